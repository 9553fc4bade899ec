//! The coding of a chunk: in pieces, each encoded by itself or as it is.
//!
//! A piece is so short that the codec works on the calling thread alone: the codecs' own threads
//! may be waiting for a page of this very array. An encoded chunk is, for each piece, its length
//! (four bytes, little-endian; the highest bit says that the piece is as it was) and its bytes.

use unspool_codec::{
    Bound, CodecError, CodecErrorKind, Dtype, Head, Outer, Packed, RegionSpec, Spec, unpack,
};

use crate::error::PagingError;

/// Bytes of a piece. Twine takes other threads from 256 KiB on, and packers from two blocks of
/// 1 MiB.
const PIECE: usize = 128 << 10;

const AS_IT_WAS: u32 = 1 << 31;

/// How the bytes of an array are encoded when they are put aside.
#[derive(Clone, PartialEq, Debug)]
pub enum Coding {
    /// Twine for numbers, LZ4 for all else.
    Lossless,
    /// Not at all.
    Raw,
    /// Twine with this bound, which has to be one for each value by itself.
    Bounded(Bound),
    /// A general codec for bytes.
    Packed(Outer),
}

/// What is done to a piece.
#[derive(Clone, PartialEq, Debug)]
enum Method {
    Nothing,
    Twine(Spec, Dtype),
    Pack(Outer),
}

/// Encodes and decodes the chunks of one array.
#[derive(Clone, Debug)]
pub(crate) struct Coder(Method);

impl Coder {
    pub(crate) fn new(coding: &Coding, dtype: &Dtype) -> Result<Coder, PagingError> {
        let is_number = !matches!(dtype, Dtype::Opaque { .. } | Dtype::Bool);
        Ok(Coder(match coding {
            Coding::Lossless if is_number => Method::Twine(Spec::Lossless, dtype.clone()),
            Coding::Lossless => Method::Pack(Outer::Lz4),
            Coding::Raw => Method::Nothing,
            Coding::Packed(outer) => Method::Pack(*outer),
            Coding::Bounded(bound) => Method::Twine(bounded(*bound, dtype)?, dtype.clone()),
        }))
    }

    /// Whether values may come back changed.
    pub(crate) fn is_lossy(&self) -> bool {
        matches!(&self.0, Method::Twine(spec, _) if spec.is_lossy())
    }

    /// Writes the encoded form of `source` to `out`, in place of what is there.
    pub(crate) fn encode(&self, source: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.clear();
        for piece in source.chunks(PIECE) {
            let start = out.len() + 4;
            let word = match self.encode_piece(piece, out, start)? {
                Some(len) if len < piece.len() => {
                    out.truncate(start + len);
                    len as u32
                }
                _ => {
                    out.resize(start, 0);
                    out.extend_from_slice(piece);
                    piece.len() as u32 | AS_IT_WAS
                }
            };
            out[start - 4..start].copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    /// Encodes a piece to `out` from `start` on and says how long it is; `None`: it does not get
    /// shorter.
    fn encode_piece(
        &self,
        piece: &[u8],
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<Option<usize>, CodecError> {
        match &self.0 {
            Method::Nothing => Ok(None),
            Method::Pack(outer) => {
                out.resize(start + piece.len(), 0);
                Ok(outer.pack(&head(piece.len())?, piece, &mut out[start..]))
            }
            Method::Twine(spec, dtype) => {
                let shape = [piece.len() as u64 / dtype.itemsize()];
                let codec = spec.codec()?;
                out.resize(start + codec.max_bytes(spec, dtype, &shape)? as usize, 0);
                let encoded = codec.encode(spec, dtype, &shape, piece, &mut out[start..])?;
                Ok(Some(encoded.bytes as usize))
            }
        }
    }

    /// Fills `out` with the bytes whose encoded form is `stored`. Any bytes are safe.
    pub(crate) fn decode(&self, stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let mut rest = stored;
        for piece in out.chunks_mut(PIECE) {
            let (word, after) = rest.split_first_chunk().ok_or_else(damaged)?;
            let word = u32::from_le_bytes(*word);
            let len = (word & !AS_IT_WAS) as usize;
            let (bytes, after) = after.split_at_checked(len).ok_or_else(damaged)?;
            rest = after;
            if word & AS_IT_WAS == 0 {
                self.decode_piece(bytes, piece)?;
            } else if len == piece.len() {
                piece.copy_from_slice(bytes);
            } else {
                return Err(damaged());
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(damaged()) }
    }

    fn decode_piece(&self, bytes: &[u8], piece: &mut [u8]) -> Result<(), CodecError> {
        match &self.0 {
            Method::Nothing => Err(damaged()),
            Method::Pack(outer) => {
                let mut head = head(piece.len())?;
                head.packed = Some(Packed { coder: outer.id(), bytes: bytes.len() as u64 });
                unpack(&head, bytes, piece)
            }
            Method::Twine(spec, dtype) => {
                let shape = [piece.len() as u64 / dtype.itemsize()];
                spec.codec()?.decode(dtype, &shape, bytes, piece)
            }
        }
    }
}

fn bounded(bound: Bound, dtype: &Dtype) -> Result<Spec, PagingError> {
    let spec = Spec::Bounded(bound);
    spec.check().map_err(|error| PagingError::invalid(error.to_string()))?;
    if bound.depends_on_values() {
        return Err(PagingError::invalid(
            "The bound depends on all values of the array, and paging sees a part of them at a \
             time: give an absolute or a pointwise one.",
        ));
    }
    if spec.takes(dtype) {
        return Ok(spec);
    }
    let message = format!("A bound is for floats, and the dtype is {dtype}: leave it out.");
    Err(PagingError::invalid(message))
}

/// The head that a packer is told what a piece is by.
fn head(bytes: usize) -> Result<Head, CodecError> {
    let region =
        RegionSpec { name: "piece".into(), dtype: Dtype::UInt8, shape: vec![bytes as u64] };
    let head = Head::layout(0, vec![region]);
    head.map_err(|error| CodecError::new(CodecErrorKind::Invalid, error.to_string()))
}

fn damaged() -> CodecError {
    CodecError::new(CodecErrorKind::Damaged, "a chunk that was put aside is damaged")
}

#[cfg(test)]
mod tests {
    use unspool_testkit::Pattern;

    use super::*;

    fn values() -> Vec<u8> {
        (0..100_000).flat_map(|i| ((i as f32) * 1e-3).sin().to_le_bytes()).collect()
    }

    #[test]
    fn every_coding_gives_the_bytes_back() {
        let structs = Dtype::Opaque { itemsize: 24, tag: "record".into() };
        let packed = Coding::Packed(Outer::default());
        let codings = [
            (Coding::Lossless, Dtype::Float32),
            (Coding::Lossless, structs),
            (Coding::Raw, Dtype::Float32),
            (packed, Dtype::Int64),
        ];
        for (coding, dtype) in codings {
            let coder = Coder::new(&coding, &dtype).unwrap();
            for bytes in [values(), Pattern(1).bytes(0, 300_000), vec![0; 4096], Vec::new()] {
                let mut stored = vec![9; 3];
                coder.encode(&bytes, &mut stored).unwrap();
                assert!(stored.len() <= bytes.len() + 4 * bytes.len().div_ceil(PIECE));
                let mut back = vec![7; bytes.len()];
                coder.decode(&stored, &mut back).unwrap();
                assert!(back == bytes, "{coding:?} {dtype}");
            }
        }
    }

    #[test]
    fn smooth_numbers_get_shorter_and_a_bound_holds() {
        let (bytes, mut lossless, mut bounded) = (values(), Vec::new(), Vec::new());
        Coder::new(&Coding::Lossless, &Dtype::Float32)
            .unwrap()
            .encode(&bytes, &mut lossless)
            .unwrap();
        let coder = Coder::new(&Coding::Bounded(Bound::Absolute(1e-3)), &Dtype::Float32).unwrap();
        coder.encode(&bytes, &mut bounded).unwrap();
        assert!(lossless.len() * 10 < bytes.len() * 9 && bounded.len() * 2 < lossless.len());
        let mut back = vec![0; bytes.len()];
        coder.decode(&bounded, &mut back).unwrap();
        let number = |four: &[u8; 4]| f32::from_le_bytes(*four);
        let pairs = bytes.as_chunks::<4>().0.iter().zip(back.as_chunks::<4>().0);
        assert!(pairs.into_iter().all(|(a, b)| (number(a) - number(b)).abs() <= 1e-3));
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic() {
        let coder = Coder::new(&Coding::Lossless, &Dtype::Float32).unwrap();
        let (bytes, mut stored) = (values(), Vec::new());
        coder.encode(&bytes, &mut stored).unwrap();
        let mut back = vec![0; bytes.len()];
        for len in [0, 3, 4, stored.len() / 2, stored.len() - 1] {
            assert!(coder.decode(&stored[..len], &mut back).is_err());
        }
        stored.push(0);
        assert!(coder.decode(&stored, &mut back).is_err());
    }

    #[test]
    fn bounds_that_paging_cannot_hold_are_refused() {
        let refused = [
            (Bound::Range(1e-3), Dtype::Float32),
            (Bound::Absolute(-1.0), Dtype::Float32),
            (Bound::Absolute(1e-3), Dtype::Int32),
        ];
        for (bound, dtype) in refused {
            assert!(Coder::new(&Coding::Bounded(bound), &dtype).is_err(), "{bound:?} {dtype}");
        }
    }
}
