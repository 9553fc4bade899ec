//! The coding of a chunk: in pieces, each encoded by itself or as it is.
//!
//! A piece is so short that the codec works on the calling thread alone: the codecs' own threads
//! may be waiting for a page of this very array. An encoded chunk is, for each piece, its length
//! (four bytes, little-endian; the highest bit says that the piece is as it was, the next one that
//! numbers are in LZ4) and its bytes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use unspool_codec::{
    Bound, CodecError, CodecErrorKind, Dtype, Head, Outer, Packed, RegionSpec, Spec, unpack,
};

use crate::error::PagingError;

/// Bytes of a piece. Twine takes other threads from 256 KiB on, and packers from two blocks of
/// 1 MiB.
pub(crate) const PIECE: usize = 128 << 10;

const AS_IT_WAS: u32 = 1 << 31;
const IN_LZ4: u32 = 1 << 30;

/// Of so many pieces of numbers one is encoded by Twine and by LZ4.
const TRIED: u32 = 13;

/// How the bytes of an array are encoded when they are put aside.
#[derive(Clone, PartialEq, Debug)]
pub enum Coding {
    /// Twine or LZ4 for numbers, LZ4 for all else.
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
    /// Twine with a bound.
    Twine(Spec, Dtype),
    /// Twine or LZ4, whichever is shorter.
    Numbers(Dtype),
    Pack(Outer),
}

/// Encodes and decodes the chunks of one array.
#[derive(Debug)]
pub(crate) struct Coder {
    method: Method,
    /// Pieces of numbers that were encoded.
    pieces: AtomicU32,
    /// Whether LZ4 made the last piece that was tried as short as Twine did.
    packs: AtomicBool,
}

/// The length of an encoded piece, and what its word says besides.
type Encoded = Option<(usize, u32)>;

impl Coder {
    pub(crate) fn new(coding: &Coding, dtype: &Dtype) -> Result<Coder, PagingError> {
        let is_number = !matches!(dtype, Dtype::Opaque { .. } | Dtype::Bool);
        let method = match coding {
            Coding::Lossless if is_number => Method::Numbers(dtype.clone()),
            Coding::Lossless => Method::Pack(Outer::Lz4),
            Coding::Raw => Method::Nothing,
            Coding::Packed(outer) => Method::Pack(*outer),
            Coding::Bounded(bound) => Method::Twine(bounded(*bound, dtype)?, dtype.clone()),
        };
        Ok(Coder { method, pieces: AtomicU32::new(0), packs: AtomicBool::new(false) })
    }

    /// Whether values may come back changed.
    pub(crate) fn is_lossy(&self) -> bool {
        matches!(&self.method, Method::Twine(spec, _) if spec.is_lossy())
    }

    /// Writes the encoded form of `source` to `out`, in place of what is there.
    pub(crate) fn encode(&self, source: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.clear();
        for piece in source.chunks(PIECE) {
            let start = out.len() + 4;
            let word = match self.encode_piece(piece, out, start)? {
                Some((len, how)) if len < piece.len() => {
                    out.truncate(start + len);
                    len as u32 | how
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

    /// Encodes a piece to `out` from `start` on; `None`: it does not get shorter.
    fn encode_piece(
        &self,
        piece: &[u8],
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<Encoded, CodecError> {
        match &self.method {
            Method::Nothing => Ok(None),
            Method::Pack(outer) => Ok(pack(*outer, piece, out, start)?.map(|len| (len, 0))),
            Method::Twine(spec, dtype) => Ok(Some((twine(spec, dtype, piece, out, start)?, 0))),
            Method::Numbers(dtype) => self.encode_numbers(dtype, piece, out, start),
        }
    }

    /// Numbers without loss. Numbers that repeat are shorter in LZ4, which decodes four times as
    /// fast; others are shorter in Twine. A few pieces are encoded by both, and the others by the
    /// one that was shorter last.
    fn encode_numbers(
        &self,
        dtype: &Dtype,
        piece: &[u8],
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<Encoded, CodecError> {
        let tries = self.pieces.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED);
        if !tries
            && self.packs.load(Ordering::Relaxed)
            && let Some(len) = pack(Outer::Lz4, piece, out, start)?
        {
            return Ok(Some((len, IN_LZ4)));
        }
        let len = twine(&Spec::Lossless, dtype, piece, out, start)?;
        if !tries {
            return Ok(Some((len, 0)));
        }
        let packed = pack(Outer::Lz4, piece, out, start + len)?.filter(|&packed| packed <= len);
        self.packs.store(packed.is_some(), Ordering::Relaxed);
        Ok(Some(match packed {
            Some(packed) => {
                out.copy_within(start + len..start + len + packed, start);
                (packed, IN_LZ4)
            }
            None => (len, 0),
        }))
    }

    /// Decodes what was made of `len` bytes, and gives `each` piece with its place, in order.
    /// `room` has `PIECE` bytes. Any stored bytes are safe.
    pub(crate) fn decode<E: From<CodecError>>(
        &self,
        stored: &[u8],
        len: usize,
        room: &mut [u8],
        mut each: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = stored;
        for at in (0..len).step_by(PIECE) {
            let (word, after) = rest.split_first_chunk().ok_or_else(damaged)?;
            let word = u32::from_le_bytes(*word);
            let stored = (word & !(AS_IT_WAS | IN_LZ4)) as usize;
            let (bytes, after) = after.split_at_checked(stored).ok_or_else(damaged)?;
            rest = after;
            let piece = &mut room[..PIECE.min(len - at)];
            if word & AS_IT_WAS == 0 {
                self.decode_piece(bytes, word & IN_LZ4 != 0, piece)?;
                each(at, piece)?;
            } else if bytes.len() == piece.len() {
                each(at, bytes)?;
            } else {
                return Err(damaged().into());
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(damaged().into()) }
    }

    fn decode_piece(&self, bytes: &[u8], lz4: bool, piece: &mut [u8]) -> Result<(), CodecError> {
        match &self.method {
            Method::Nothing => Err(damaged()),
            Method::Numbers(_) if lz4 => unpack_piece(Outer::Lz4, bytes, piece),
            Method::Pack(outer) => unpack_piece(*outer, bytes, piece),
            Method::Numbers(dtype) => untwine(&Spec::Lossless, dtype, bytes, piece),
            Method::Twine(spec, dtype) => untwine(spec, dtype, bytes, piece),
        }
    }
}

/// Packs a piece to `out` from `start` on; `None`: it does not get shorter.
fn pack(
    outer: Outer,
    piece: &[u8],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<Option<usize>, CodecError> {
    out.resize(start + piece.len(), 0);
    Ok(outer.pack(&head(piece.len())?, piece, &mut out[start..]))
}

fn unpack_piece(outer: Outer, bytes: &[u8], piece: &mut [u8]) -> Result<(), CodecError> {
    let mut head = head(piece.len())?;
    head.packed = Some(Packed { coder: outer.id(), bytes: bytes.len() as u64 });
    unpack(&head, bytes, piece)
}

/// Encodes a piece of numbers to `out` from `start` on, and gives the length.
fn twine(
    spec: &Spec,
    dtype: &Dtype,
    piece: &[u8],
    out: &mut Vec<u8>,
    start: usize,
) -> Result<usize, CodecError> {
    let shape = [piece.len() as u64 / dtype.itemsize()];
    let codec = spec.codec()?;
    out.resize(start + codec.max_bytes(spec, dtype, &shape)? as usize, 0);
    Ok(codec.encode(spec, dtype, &shape, piece, &mut out[start..])?.bytes as usize)
}

fn untwine(spec: &Spec, dtype: &Dtype, bytes: &[u8], piece: &mut [u8]) -> Result<(), CodecError> {
    let shape = [piece.len() as u64 / dtype.itemsize()];
    spec.codec()?.decode(dtype, &shape, bytes, piece)
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

    /// The decoded bytes, of `len` in all.
    fn decoded(coder: &Coder, stored: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
        let (mut room, mut back) = (vec![7; PIECE], Vec::new());
        let decoded = coder.decode(stored, len, &mut room, |at, piece| {
            assert_eq!(at, back.len());
            back.extend_from_slice(piece);
            Ok::<(), CodecError>(())
        });
        decoded.map(|()| back)
    }

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
                let back = decoded(&coder, &stored, bytes.len()).unwrap();
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
        let back = decoded(&coder, &bounded, bytes.len()).unwrap();
        let number = |four: &[u8; 4]| f32::from_le_bytes(*four);
        let pairs = bytes.as_chunks::<4>().0.iter().zip(back.as_chunks::<4>().0);
        assert!(pairs.into_iter().all(|(a, b)| (number(a) - number(b)).abs() <= 1e-3));
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic() {
        let coder = Coder::new(&Coding::Lossless, &Dtype::Float32).unwrap();
        let (bytes, mut stored) = (values(), Vec::new());
        coder.encode(&bytes, &mut stored).unwrap();
        for len in [0, 3, 4, stored.len() / 2, stored.len() - 1] {
            assert!(decoded(&coder, &stored[..len], bytes.len()).is_err());
        }
        stored.push(0);
        assert!(decoded(&coder, &stored, bytes.len()).is_err());
    }

    #[test]
    fn numbers_that_repeat_are_in_lz4_and_smooth_ones_in_twine() {
        let coder = Coder::new(&Coding::Lossless, &Dtype::Float64).unwrap();
        let smooth = (0..1 << 18).map(|i| (f64::from(i) * 1e-5).sin());
        let smooth: Vec<u8> = smooth.flat_map(f64::to_le_bytes).collect();
        let period = (0..1 << 18).map(|i| (f64::from(i % 1000) * 0.7).sin());
        let repeating: Vec<u8> = period.flat_map(f64::to_le_bytes).collect();
        for (bytes, lz4) in [(&repeating, IN_LZ4), (&smooth, 0), (&repeating, IN_LZ4)] {
            let mut stored = Vec::new();
            // One piece of `TRIED` is tried: the second chunk of two is after one of them.
            coder.encode(bytes, &mut stored).unwrap();
            coder.encode(bytes, &mut stored).unwrap();
            let word = u32::from_le_bytes(*stored.first_chunk().unwrap());
            assert_eq!(word & IN_LZ4, lz4);
            assert!(decoded(&coder, &stored, bytes.len()).unwrap() == *bytes);
        }
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
