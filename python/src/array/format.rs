//! Formats of the buffer protocol (PEP 3118) as dtypes, and back.

use std::ffi::{CString, c_int};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use unspool::Dtype;

use super::typestr;

#[cfg(target_endian = "big")]
compile_error!("frames hold little-endian items and this crate lends memory as it is");

/// The dtype of items with this format and size.
///
/// Formats of one number are dtypes of their own; all others (structures, strings, `longdouble`,
/// other byte orders) are opaque items with the format as their tag.
///
/// # Errors
/// Why such items cannot be saved: they hold addresses, which mean nothing later.
pub fn dtype(format: &str, itemsize: usize) -> Result<Dtype, String> {
    if let Some(dtype) = number(format, itemsize) {
        return Ok(dtype);
    }
    if holds_addresses(format) {
        return Err(format!(
            "its items (format {format:?}) hold Python objects or addresses, which mean nothing \
             after they are read back: convert them to numbers"
        ));
    }
    let tag: String = format.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    Ok(Dtype::Opaque { itemsize: itemsize as u64, tag })
}

/// The dtype of a format that is one little-endian number.
fn number(format: &str, itemsize: usize) -> Option<Dtype> {
    let swapped = format.starts_with(['>', '!']) && itemsize > 1;
    let code = format.trim_start_matches(['@', '=', '<', '>', '!', '^']);
    let name = match (code, itemsize) {
        _ if swapped => return None,
        ("?", 1) => "bool",
        // Structures of `ctypes` that are packed, and its unions, call themselves `B` of any size.
        ("b", 1) => "int8",
        ("h", 2) => "int16",
        ("i" | "l", 4) => "int32",
        ("l" | "q" | "n", 8) => "int64",
        ("B", 1) => "uint8",
        ("H", 2) => "uint16",
        ("I" | "L", 4) => "uint32",
        ("L" | "Q" | "N", 8) => "uint64",
        ("e", 2) => "float16",
        ("f", 4) => "float32",
        ("d", 8) => "float64",
        ("Ze", 4) => "complex32",
        ("Zf", 8) => "complex64",
        ("Zd", 16) => "complex128",
        _ => return None,
    };
    Dtype::from_name(name)
}

/// The format of a dtype; `None` for those that the protocol has no words for.
pub fn text(dtype: &Dtype) -> Option<String> {
    let code = match dtype {
        Dtype::Bool => "?",
        Dtype::Int8 => "b",
        Dtype::UInt8 => "B",
        Dtype::Int16 => "h",
        Dtype::UInt16 => "H",
        Dtype::Int32 => "i",
        Dtype::UInt32 => "I",
        Dtype::Int64 => "q",
        Dtype::UInt64 => "Q",
        Dtype::Float16 => "e",
        Dtype::Float32 => "f",
        Dtype::Float64 => "d",
        Dtype::Complex64 => "Zf",
        Dtype::Complex128 => "Zd",
        Dtype::Opaque { tag, .. } if !tag.starts_with(typestr::TAG) => tag,
        _ => return None,
    };
    Some(code.to_owned())
}

/// Whether a format names objects or pointers; names of fields, between colons, are skipped.
fn holds_addresses(format: &str) -> bool {
    format.split(':').step_by(2).any(|codes| codes.contains(['O', 'P', '&', 'X']))
}

/// An empty buffer of items with a given format: what NumPy needs to see to name the dtype.
#[pyclass(module = "unspool._unspool", frozen)]
#[derive(Debug)]
pub struct Exporter {
    format: CString,
    /// Shape and strides as the protocol wants them: addresses that live as long as the view.
    layout: [ffi::Py_ssize_t; 2],
}

#[pymethods]
impl Exporter {
    #[new]
    fn new(format: &str, itemsize: isize) -> PyResult<Exporter> {
        Ok(Exporter { format: CString::new(format)?, layout: [0, itemsize] })
    }

    /// # Safety
    /// Called by Python with a view to be filled, or null.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() || flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("this buffer only describes a dtype"));
        }
        let this = slf.get();
        let layout = this.layout.as_ptr().cast_mut();
        let filled = ffi::Py_buffer {
            buf: layout.cast(),
            obj: slf.clone().into_ptr(),
            len: 0,
            itemsize: this.layout[1],
            readonly: 1,
            ndim: 1,
            format: this.format.as_ptr().cast_mut(),
            shape: layout,
            // SAFETY: `layout` has two entries.
            strides: unsafe { layout.add(1) },
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        };
        // SAFETY: `view` is not null and Python's to be filled; the addresses in it belong to
        // `slf`, which the view owns a reference to, and this class is frozen.
        unsafe { view.write(filled) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dtypes_of_their_own_whatever_they_are_called() {
        assert_eq!(dtype("l", 8), Ok(Dtype::Int64));
        assert_eq!(dtype("<q", 8), Ok(Dtype::Int64));
        assert_eq!(dtype("=L", 4), Ok(Dtype::UInt32));
        assert_eq!(dtype("Zd", 16), Ok(Dtype::Complex128));
        assert_eq!(dtype(">b", 1), Ok(Dtype::Int8));
    }

    #[test]
    fn everything_else_is_opaque_with_its_format() {
        let odd = [(">d", 8), ("g", 16), ("5s", 5), ("B", 8), ("T{f:O:xxxxd:y:}", 16)];
        for (format, itemsize) in odd {
            let expected = Dtype::Opaque { itemsize: itemsize as u64, tag: format.to_owned() };
            assert_eq!(dtype(format, itemsize), Ok(expected));
        }
    }

    #[test]
    fn items_that_hold_addresses_are_refused() {
        for format in ["O", "T{O:a:}", "&d", "P", "X{}"] {
            assert!(dtype(format, 8).unwrap_err().contains("addresses"), "{format}");
        }
    }
}
