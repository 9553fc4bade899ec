//! `docs/reference/format.md` says what the code does.

mod common;

use common::{opaque, spec};
use unspool_codec::{
    CodecId, Dtype, Head, MAX_HEAD_BYTES, MAX_NAME_BYTES, MAX_RANK, MAX_REGIONS, MAX_TAG_BYTES,
    OuterId, Packed, checksum, parse_head,
};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/format.md");
    std::fs::read_to_string(path).expect("the format is documented")
}

/// The frame of the page's last section.
fn example() -> Vec<u8> {
    let specs = vec![spec("u", Dtype::Float32, &[3]), spec("t", opaque(8, "<M8[ns]"), &[])];
    let head = Head::layout(-2, specs).expect("two arrays");
    let mut payload: Vec<u8> =
        [1.0, -2.5, f32::INFINITY].iter().flat_map(|item| item.to_le_bytes()).collect();
    payload.resize(64, 0);
    payload.extend_from_slice(&1_000_000_000_i64.to_le_bytes());
    let mut frame = head.encode(checksum(&payload));
    frame.extend_from_slice(&payload);
    frame
}

/// The head of the page's last section, which is one of version 2.
fn example_2() -> Vec<u8> {
    let arrays = vec![(spec("u", Dtype::Float32, &[500, 1500]), CodecId::Twine)];
    let packed = Packed { coder: OuterId::Zstd, bytes: 103_000 };
    let head = Head::encoded(7, arrays, &[120_072]).and_then(|head| head.with_packed(Some(packed)));
    head.expect("one array").encode(0x2545_f491_4f6c_dd1d)
}

/// The lines of a section of the page that have bytes.
fn hex_lines(section: &str) -> Vec<(usize, Vec<u8>)> {
    let page = page();
    let lines = page.lines().skip_while(|line| *line != section).skip(1);
    lines.take_while(|line| !line.starts_with("## ")).filter_map(hex_line).collect()
}

/// A frame or a head of so many bytes, zeros but for those of the page.
fn shown(lines: &[(usize, Vec<u8>)], len: usize) -> Vec<u8> {
    let mut shown = vec![0; len];
    for (offset, bytes) in lines {
        shown[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    shown
}

/// The bytes of a line such as `0010  00 10 ...  words`, with their offset.
fn hex_line(line: &str) -> Option<(usize, Vec<u8>)> {
    let (offset, rest) = line.split_once("  ")?;
    let offset = usize::from_str_radix(offset, 16).ok().filter(|_| offset.len() == 4)?;
    let bytes = rest.split("  ").next()?.split(' ');
    Some((offset, bytes.map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect()))
}

#[test]
fn hex_example_is_what_the_encoder_writes() {
    let frame = example();
    let lines = hex_lines("## Example");
    let shown = shown(&lines, frame.len());
    assert_eq!(lines.len(), 14);
    assert_eq!(shown, frame);
    assert_eq!(parse_head(&shown).unwrap().0.version, -2);
}

#[test]
fn hex_example_of_version_2_is_what_the_encoder_writes() {
    let head = example_2();
    let lines = hex_lines("## Example of version 2");
    assert_eq!(lines.len(), 11);
    assert_eq!(shown(&lines, head.len()), head);
}

#[test]
fn dtype_table_lists_every_dtype_and_no_other() {
    let row = |d: &Dtype| format!("| {} | `{}` | {} |", d.code(), d.name(), d.itemsize());
    let page = page();
    let written: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| 0 | opaque"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(written, Dtype::ALL.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn limits_are_the_documented_ones() {
    let numbers = [MAX_HEAD_BYTES, MAX_REGIONS as u64, MAX_RANK as u64];
    assert_eq!(numbers, [16_777_216, 65_536, 64]);
    assert_eq!([MAX_NAME_BYTES, MAX_TAG_BYTES], [4096, 65_535]);
    let page = page();
    for row in [
        "| head | 16 MiB (16,777,216 bytes) |",
        "| regions | 65,536 |",
        "| rank | 64 |",
        "| name | 4,096 bytes; unique in the frame |",
        "| tag | 65,535 bytes |",
    ] {
        assert!(page.contains(row), "{row}");
    }
}

#[test]
fn dtypes_are_in_the_order_of_their_codes_with_names_of_their_own() {
    assert!(Dtype::ALL.is_sorted_by(|a, b| a.code() < b.code()));
    for dtype in Dtype::ALL {
        assert_eq!(Dtype::from_name(&dtype.name()).as_ref(), Some(dtype));
    }
    for name in ["", "float128", "opaque", "opaque:", "opaque08:x", "opaque-1:x", "Float32"] {
        assert_eq!(Dtype::from_name(name), None, "{name}");
    }
}
