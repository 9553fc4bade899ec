//! What must hold for any bytes given to the decoder of Twine, and for any that are added to a
//! stream as a difference: the body of a fuzz target and of its smoke tests.

#![allow(dead_code, reason = "every test file uses its part")]

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Bound, CodecErrorKind, Dtype};

/// Layouts of every profile and width, with which the bytes are read.
pub fn layouts() -> Vec<Layout> {
    let arrays: [(Dtype, &[u64]); 10] = [
        (Dtype::Float32, &[1500]),
        (Dtype::Float32, &[20, 70]),
        (Dtype::Float32, &[5, 9, 40]),
        (Dtype::Float64, &[1100]),
        (Dtype::Float64, &[2, 33, 33]),
        (Dtype::Float16, &[40, 40]),
        (Dtype::BFloat16, &[700]),
        (Dtype::Complex64, &[300]),
        (Dtype::Int16, &[17, 41]),
        (Dtype::UInt8, &[2100]),
    ];
    let layouts = arrays.iter().map(|(dtype, shape)| Layout::of(dtype, shape));
    layouts.map(|layout| layout.expect("small")).collect()
}

/// The byte that fills the memory around an array.
const GUARD: u8 = 0xc3;

/// Decodes the bytes as a stream of the layout, twice, and checks that both decodings agree, and
/// that they are refused with a reason or fill the array and nothing beside it.
pub fn check(layout: &Layout, stream: &[u8]) -> Result<(), CodecErrorKind> {
    let bytes = layout.bytes() as usize;
    let mut memory = vec![GUARD; bytes + 128];
    let outcome = twine::decode(layout, stream, &mut memory[64..64 + bytes]);
    let guards = memory[..64].iter().chain(&memory[64 + bytes..]);
    assert!(guards.into_iter().all(|byte| *byte == GUARD));
    match outcome {
        Ok(()) => {
            let mut again = vec![0; bytes];
            twine::decode(layout, stream, &mut again).expect("as before");
            assert!(memory[64..64 + bytes] == again);
            Ok(())
        }
        Err(error) => {
            assert!(error.to_string().len() > 20);
            Err(error.kind())
        }
    }
}

/// Gives the bytes the header of a stream of this layout, of a mode that they choose, and a table
/// that ends where they end, so that the chunks are reached.
pub fn repaired(layout: &Layout, data: &[u8]) -> Vec<u8> {
    let table = 64 + 4 * (layout.n_chunks as usize + 1);
    let mut stream = data.to_vec();
    stream.resize(stream.len().max(table).next_multiple_of(4), 0);
    let words = ((stream.len() - table) / 4) as u32;
    let mode = if layout.kind.is_float() { stream[6] % 3 } else { 0 };
    stream[..8].copy_from_slice(b"TWN1\x01\0\0\0");
    (stream[5], stream[6], stream[7]) = (layout.dtype, mode, layout.profile as u8);
    stream[8..16].copy_from_slice(&layout.n.to_le_bytes());
    if mode == 1 {
        stream[24..32].copy_from_slice(&0.125_f64.to_le_bytes());
    }
    let kept = u32::from(stream[32]) % (layout.kind.mantissa_bits() + 1);
    let fields = [kept, layout.n_chunks, layout.nx, layout.ny, layout.nz, words];
    stream[32..56].copy_from_slice(fields.map(u32::to_le_bytes).as_flattened());
    stream[64..68].fill(0);
    if layout.n_chunks > 0 {
        stream[table - 4..table].copy_from_slice(&words.to_le_bytes());
    }
    stream
}

/// Adds the bytes as a difference to a stream, twice, and checks that both sums agree, and that
/// they are refused with a reason or give a stream whose length is that of its header.
pub fn check_difference(
    layout: &Layout,
    difference: &[u8],
    parent: &[u8],
) -> Result<(), CodecErrorKind> {
    match twine::add(layout, difference, parent) {
        Ok(stream) => {
            assert_eq!(
                twine::header(&stream).expect("a header").stream_bytes(),
                stream.len() as u64
            );
            assert_eq!(twine::add(layout, difference, parent).expect("as before"), stream);
            let _outcome = check(layout, &stream);
            Ok(())
        }
        Err(error) => {
            assert!(error.to_string().len() > 20);
            Err(error.kind())
        }
    }
}

/// A stream of the layout without loss, or with a bound.
pub fn parent(layout: &Layout, bounded: bool) -> Vec<u8> {
    let bound = (bounded && layout.kind.is_float()).then_some(Bound::Absolute(0.01));
    let bytes: Vec<u8> = (0..layout.bytes()).map(|i| (i * i / 7) as u8 & 63).collect();
    let mut stream = vec![0; twine::max_bytes(layout) as usize];
    let array = Array { layout: *layout, bound };
    let encoded = twine::encode(&array, &bytes, &mut stream).expect("encodes");
    stream.truncate(encoded.bytes as usize);
    stream
}

/// Gives the bytes the header of the parent and a table that ends where they end, so that the
/// chunks are reached.
pub fn repaired_difference(layout: &Layout, data: &[u8], parent: &[u8]) -> Vec<u8> {
    let chunks = layout.n_chunks as usize;
    let table = 64 + (2 * chunks).next_multiple_of(4);
    let mut difference = data.to_vec();
    difference.resize(difference.len().max(table).next_multiple_of(4), 0);
    difference[..64].copy_from_slice(&parent[..64]);
    let mut words = (difference.len() - table) / 4;
    for c in 0..chunks {
        let entry = &mut difference[64 + 2 * c..66 + 2 * c];
        let (form, wanted) =
            (entry[0] & 3, usize::from(u16::from_le_bytes([entry[0], entry[1]]) >> 2));
        let own = if c + 1 == chunks { words.min(4000) } else { wanted.min(words) };
        words -= own;
        entry.copy_from_slice(&((own as u16) << 2 | u16::from(form)).to_le_bytes());
    }
    difference[64 + 2 * chunks..table].fill(0);
    difference.truncate(difference.len() - 4 * words);
    // What it would come to, so that sums are not refused for that alone.
    for words in 0..3 {
        let whole = twine::header(parent).expect("a header").payload_words;
        difference[52..56].copy_from_slice(&(whole + words).to_le_bytes());
        if twine::add(layout, &difference, parent).is_ok() {
            break;
        }
    }
    difference
}
