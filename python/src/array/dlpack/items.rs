//! The dtypes of DLPack as ours, and back.

use unspool::Dtype;

use super::raw::{Items, SUBBYTE_PADDED};

/// Codes of DLPack for numbers that no size tells apart.
const CODES: [(u8, u8, u16, &str); 13] = [
    (4, 16, 1, "bfloat16"),
    (6, 8, 1, "bool"),
    (7, 8, 1, "float8_e3m4"),
    (8, 8, 1, "float8_e4m3"),
    (9, 8, 1, "float8_e4m3b11fnuz"),
    (10, 8, 1, "float8_e4m3fn"),
    (11, 8, 1, "float8_e4m3fnuz"),
    (12, 8, 1, "float8_e5m2"),
    (13, 8, 1, "float8_e5m2fnuz"),
    (14, 8, 1, "float8_e8m0fnu"),
    (15, 6, 1, "float6_e2m3fn"),
    (16, 6, 1, "float6_e3m2fn"),
    (17, 4, 1, "float4_e2m1fn"),
];

/// Codes for numbers whose names are a kind and their bits.
const KINDS: [(u8, &str); 4] = [(0, "int"), (1, "uint"), (2, "float"), (5, "complex")];

/// The dtype of a tensor's items.
///
/// # Errors
/// Why such items are not known here.
pub fn dtype(items: Items, flags: u64) -> Result<Dtype, String> {
    let Items { code, bits, lanes } = items;
    if (code, bits, lanes) == (17, 4, 2) {
        return Dtype::from_name("float4_e2m1fn_x2").ok_or_else(|| unknown(items));
    }
    let whole = bits >= 8 || flags & SUBBYTE_PADDED != 0;
    if lanes != 1 || !whole {
        return Err(unknown(items));
    }
    if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == code) {
        let name = format!("{kind}{bits}");
        return Dtype::from_name(&name)
            .ok_or_else(|| format!("its dtype ({name}) is not known here"));
    }
    let known = CODES.iter().find(|(c, b, ..)| (*c, *b) == (code, bits));
    known.and_then(|(.., name)| Dtype::from_name(name)).ok_or_else(|| unknown(items))
}

fn unknown(items: Items) -> String {
    let Items { code, bits, lanes } = items;
    format!(
        "its dtype (DLPack code {code}, {bits} bits, {lanes} lanes) is not known here: pass a view \
         of its bytes as uint8 instead"
    )
}

/// How DLPack writes the dtype called `name`, and the flags that go with it; `None` for opaque
/// items.
pub fn items(name: &str) -> Option<(Items, u64)> {
    if name == "float4_e2m1fn_x2" {
        return Some((Items { code: 17, bits: 4, lanes: 2 }, 0));
    }
    if let Some(&(code, bits, lanes, _)) = CODES.iter().find(|(.., known)| *known == name) {
        return Some((Items { code, bits, lanes }, padding(bits)));
    }
    let (code, kind) = KINDS.iter().rev().find(|(_, kind)| name.starts_with(kind))?;
    let bits: u8 = name.strip_prefix(kind)?.parse().ok()?;
    Some((Items { code: *code, bits, lanes: 1 }, padding(bits)))
}

fn padding(bits: u8) -> u64 {
    if bits < 8 { SUBBYTE_PADDED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_dlpack_can_write_is_read_back() {
        let names = "bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 \
                     bfloat16 float32 float64 complex32 complex64 complex128 float8_e3m4 \
                     float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 \
                     float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn float6_e2m3fn float6_e3m2fn \
                     float4_e2m1fn_x2";
        for name in names.split_whitespace() {
            let (written, flags) = items(name).unwrap();
            assert_eq!(dtype(written, flags).unwrap().name(), name);
        }
    }

    #[test]
    fn opaque_items_have_no_dlpack_dtype() {
        assert_eq!(items("opaque8:numpy:<M8[s]"), None);
    }
}
