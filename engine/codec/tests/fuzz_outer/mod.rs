//! What must hold for any bytes that are unpacked or packed: the body of the fuzz target and of
//! its smoke test.

use unspool_codec::{
    CodecErrorKind, CodecId, Dtype, Head, Outer, OuterId, Packed, RegionSpec, unpack,
};

/// Arrays of every type that pco knows, of others, and a stream.
fn heads() -> Vec<Head> {
    let spec = |name: &str, dtype: Dtype, items: u64| RegionSpec {
        name: name.to_owned(),
        dtype,
        shape: vec![items],
    };
    let one = |dtype, items| Head::layout(1, vec![spec("u", dtype, items)]);
    let mixed = vec![
        (spec("a", Dtype::Float32, 1024), CodecId::Raw),
        (spec("b", Dtype::UInt8, 77), CodecId::Raw),
        (spec("c", Dtype::Float64, 9000), CodecId::Twine),
        (spec("d", Dtype::Complex128, 300), CodecId::Raw),
        (spec("e", Dtype::Float16, 2050), CodecId::Raw),
    ];
    let heads = [
        one(Dtype::Float32, 3000),
        one(Dtype::Int64, 600),
        one(Dtype::UInt16, 5000),
        one(Dtype::Complex64, 700),
        Head::encoded(1, mixed, &[4096, 77, 1000, 4800, 4100]),
    ];
    heads.into_iter().map(|head| head.expect("small arrays")).collect()
}

const CODERS: [Outer; 3] = [Outer::Zstd(1), Outer::Lz4, Outer::Archive];

/// Unpacks the bytes as they are and as a single block of a right length, and packs them. Gives the
/// outcomes of unpacking.
pub fn check(data: &[u8]) -> [Result<(), CodecErrorKind>; 2] {
    let Some((choice, bytes)) = data.split_first() else {
        return [Err(CodecErrorKind::Invalid); 2];
    };
    let heads = heads();
    let head = &heads[usize::from(choice / 16) % heads.len()];
    let coder = CODERS[usize::from(choice % 16) % CODERS.len()];
    assert_comes_back(coder, bytes);
    [unpacked(head, coder.id(), bytes), unpacked(&heads[0], coder.id(), &one_block(coder, bytes))]
}

/// The bytes after a table of one entry.
fn one_block(coder: Outer, bytes: &[u8]) -> Vec<u8> {
    let method = match coder {
        Outer::Lz4 => 2,
        Outer::Archive => 3,
        _ => 1,
    };
    let mut packed = (bytes.len() as u32 | method << 24).to_le_bytes().to_vec();
    packed.extend_from_slice(bytes);
    packed
}

fn unpacked(head: &Head, coder: OuterId, packed: &[u8]) -> Result<(), CodecErrorKind> {
    let packing = Packed { coder, bytes: packed.len() as u64 };
    let Ok(head) = head.with_packed(Some(packing)) else {
        return Err(CodecErrorKind::TooLarge);
    };
    let mut payload = vec![0; head.payload_bytes as usize];
    unpack(&head, packed, &mut payload).map_err(|error| {
        assert!(error.to_string().len() > 20);
        assert_eq!(error.kind(), CodecErrorKind::Damaged);
        error.kind()
    })
}

fn assert_comes_back(coder: Outer, payload: &[u8]) {
    let dtype = if payload.len().is_multiple_of(4) { Dtype::Float32 } else { Dtype::UInt8 };
    let shape = vec![payload.len() as u64 / dtype.itemsize()];
    let head = Head::layout(1, vec![RegionSpec { name: String::new(), dtype, shape }]);
    let head = head.expect("one array");
    let mut packed = vec![0; payload.len()];
    let Some(len) = coder.pack(&head, payload, &mut packed) else { return };
    let packing = Packed { coder: coder.id(), bytes: len as u64 };
    let head = head.with_packed(Some(packing)).expect("it is shorter");
    let mut back = vec![0; payload.len()];
    unpack(&head, &packed[..len], &mut back).expect("what was packed unpacks");
    assert!(back == payload, "packing changes bytes");
}
