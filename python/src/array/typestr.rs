//! The dtypes of `__cuda_array_interface__` and of CuPy, which write them as NumPy does: `<f4`.

use unspool::Dtype;

/// The prefix of tags that are written as NumPy writes its dtypes.
pub const TAG: &str = "numpy:";

/// The dtype of a type string; `None` for items that a type string does not tell apart (`V2` is
/// bfloat16 as well as two bytes of anything).
///
/// # Errors
/// Why such items cannot be saved.
pub fn dtype(text: &str) -> Result<Option<Dtype>, String> {
    let (kind, itemsize) = split(text).ok_or_else(|| format!("its typestr is {text:?}"))?;
    let name = match (kind, itemsize) {
        _ if text.starts_with('>') && itemsize > 1 => return Ok(Some(opaque(text, itemsize))),
        ('b', 1) => "bool",
        ('i', 1) => "int8",
        ('i', 2) => "int16",
        ('i', 4) => "int32",
        ('i', 8) => "int64",
        ('u', 1) => "uint8",
        ('u', 2) => "uint16",
        ('u', 4) => "uint32",
        ('u', 8) => "uint64",
        ('f', 2) => "float16",
        ('f', 4) => "float32",
        ('f', 8) => "float64",
        ('c', 4) => "complex32",
        ('c', 8) => "complex64",
        ('c', 16) => "complex128",
        ('V', _) => return Ok(None),
        ('f' | 'c' | 'm' | 'M' | 'S' | 'U', _) => return Ok(Some(opaque(text, itemsize))),
        _ => {
            return Err(format!(
                "its items ({text}) hold Python objects or addresses, which mean nothing after \
                 they are read back: convert them to numbers"
            ));
        }
    };
    Ok(Dtype::from_name(name))
}

/// The type string of a dtype; `None` for those that NumPy itself does not have.
pub fn text(dtype: &Dtype) -> Option<String> {
    if let Dtype::Opaque { tag, .. } = dtype {
        return tag
            .strip_prefix(TAG)
            .filter(|spelled| !spelled.starts_with(['[', '{']))
            .map(str::to_owned);
    }
    let name = dtype.name();
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let kind = match (&name[..digits], dtype.itemsize()) {
        ("bool", _) => "|b",
        ("int", 1) => "|i",
        ("uint", 1) => "|u",
        ("int", _) => "<i",
        ("uint", _) => "<u",
        ("float", 2..) => "<f",
        ("complex", 8..) => "<c",
        _ => return None,
    };
    // Kinds narrower than a byte, and those of 8 bits that have more to their names, are others.
    let bits = 8 * dtype.itemsize();
    let plain = kind == "|b" || name[digits..] == bits.to_string();
    plain.then(|| format!("{kind}{}", dtype.itemsize()))
}

/// Items that are kept as they are, with what NumPy calls them.
pub fn opaque(spelled: &str, itemsize: u64) -> Dtype {
    Dtype::Opaque { itemsize, tag: format!("{TAG}{spelled}") }
}

/// The kind and the bytes of an item; the unit of a time, `[ns]`, belongs to neither. Of text
/// (`U`) an item takes four bytes a character.
pub fn split(text: &str) -> Option<(char, u64)> {
    let bare = text.trim_start_matches(['<', '>', '|', '=']);
    let kind = bare.chars().next()?;
    let number = bare[kind.len_utf8()..].split('[').next()?;
    let count: u64 = number.parse().ok()?;
    Some((kind, if kind == 'U' { count.checked_mul(4)? } else { count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dtypes_of_their_own() {
        assert_eq!(dtype("<f4"), Ok(Some(Dtype::Float32)));
        assert_eq!(dtype("|b1"), Ok(Some(Dtype::Bool)));
        assert_eq!(dtype(">i1"), Ok(Some(Dtype::Int8)));
        assert_eq!(dtype("<c16"), Ok(Some(Dtype::Complex128)));
    }

    #[test]
    fn a_type_string_is_read_back_as_the_dtype_that_it_was_written_from() {
        let mut written = 0;
        for known in Dtype::ALL {
            if let Some(text) = text(known) {
                assert_eq!(dtype(&text), Ok(Some(known.clone())), "{text}");
                written += 1;
            }
        }
        assert_eq!(written, 14);
        assert_eq!(text(&Dtype::BFloat16), None);
        assert_eq!(text(&opaque("<M8[s]", 8)), Some("<M8[s]".to_owned()));
    }

    #[test]
    fn what_numpy_alone_understands_is_opaque_and_keeps_its_spelling() {
        for (text, itemsize) in [(">f8", 8), ("<M8[ns]", 8), ("|S5", 5), ("<U3", 12), ("<f16", 16)]
        {
            assert_eq!(dtype(text), Ok(Some(opaque(text, itemsize))), "{text}");
        }
    }

    #[test]
    fn items_of_raw_bytes_are_left_to_their_description() {
        assert_eq!(dtype("|V8"), Ok(None));
    }

    #[test]
    fn objects_and_nonsense_are_refused() {
        for text in ["|O8", "<t4", "f", "", "<f99999999999999999999", "é"] {
            assert!(dtype(text).is_err(), "{text}");
        }
    }
}
