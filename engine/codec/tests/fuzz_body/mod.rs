//! What must hold for any bytes whatever: the body of the fuzz target and of its smoke test.

use unspool_codec::{
    FORMAT_VERSION, FrameError, FrameErrorKind, Head, MAGIC, Region, checksum, head_len, parse_head,
};

/// The longest head that the repaired variant has: enough for every rule of the format.
const REPAIRED_BYTES: usize = 16 << 10;

/// Checks the bytes as they are, then as heads of every version whose beginning and checksum are
/// right, so that the rules after the check of the checksum are reached. Gives the outcomes.
pub fn check(data: &[u8]) -> [Result<(), FrameErrorKind>; 1 + FORMAT_VERSION as usize] {
    std::array::from_fn(|version| match version {
        0 => check_bytes(data),
        version => check_bytes(&repaired(data, version as u32)),
    })
}

/// Checks that an accepted head encodes to the same bytes and is what `layout` makes of its arrays,
/// and that a refusal has a text and a place within the input.
fn check_bytes(bytes: &[u8]) -> Result<(), FrameErrorKind> {
    match parse_head(bytes) {
        Ok((head, payload_checksum)) => {
            let len = head.encoded_len();
            assert_eq!(head_len(bytes), Ok(len));
            assert_eq!(head.encode(payload_checksum), bytes[..len as usize]);
            let laid_out = laid_out(&head);
            let laid_out = laid_out.map(|one| if head.pieces { one.with_pieces() } else { one });
            assert_eq!(laid_out, Ok(head));
            Ok(())
        }
        Err(error) => {
            assert!(error.to_string().len() > 20);
            assert!(error.offset().is_none_or(|at| at <= bytes.len() as u64));
            Err(error.kind())
        }
    }
}

/// A new head for the arrays of another one.
fn laid_out(head: &Head) -> Result<Head, FrameError> {
    if !head.is_encoded() {
        let specs = head.regions.iter().map(Region::spec).collect();
        return Head::layout(head.version, specs)?.with_packed(head.packed);
    }
    let stored: Vec<u64> = head.regions.iter().map(|region| region.stored).collect();
    let arrays: Vec<_> = head.regions.iter().map(|region| (region.spec(), region.codec)).collect();
    let without_pieces = Head::worst(head.version, arrays.clone(), &stored)?;
    assert_eq!(without_pieces.in_memory(), head.in_memory());
    Head::encoded(head.version, arrays, &stored)?.with_packed(head.packed)
}

fn repaired(data: &[u8], version: u32) -> Vec<u8> {
    let mut head = data[..data.len().min(REPAIRED_BYTES)].to_vec();
    head.resize(head.len().max(1).next_multiple_of(4096), 0);
    let head_bytes = head.len() as u64;
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    head[16..24].copy_from_slice(&head_bytes.to_le_bytes());
    head[24..32].fill(0);
    let sum = checksum(&head);
    head[24..32].copy_from_slice(&sum.to_le_bytes());
    head
}
