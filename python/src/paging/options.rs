//! The options of `unspool.paged`, as its Python part hands them over.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use unspool::Spec;
use unspool_codec::{Dtype, Outer};
use unspool_paging::{Coding, PagingOptions};

use super::raised;
use crate::codecs;
use crate::errors::{Class, error};

/// The options, of which each may be missing.
///
/// # Errors
/// `OptionError` for a value that makes no sense, `StorageError` for a disk that cannot be opened.
pub(super) fn read(
    py: Python<'_>,
    dtype: &str,
    resident: u64,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<PagingOptions> {
    let dtype = Dtype::from_name(dtype)
        .ok_or_else(|| error(py, Class::Option, format!("{dtype} is not a dtype of Unspool.")))?;
    let mut options = PagingOptions::new(resident, dtype);
    let Some(given) = given else { return Ok(options) };
    let one = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        Ok(given.get_item(name)?.filter(|value| !value.is_none()))
    };
    options.chunk = one("chunk")?.map(|value| typed("chunk", &value)).transpose()?;
    options.threads = one("threads")?.map(|value| typed("threads", &value)).transpose()?;
    options.host = one("host")?.map(|value| typed("host", &value)).transpose()?;
    if let Some(only) = one("user_mode_only")? {
        options.user_mode_only = typed("user_mode_only", &only)?;
    }
    options.coding = match given.get_item("codec")? {
        Some(codec) => coding(&codec)?,
        None => Coding::Lossless,
    };
    if let Some(disk) = one("disk")? {
        let (path, capacity): (PathBuf, Option<u64>) = disk.extract()?;
        let opened = py.detach(|| options.spill_to(path, capacity));
        opened.map_err(|why| raised(py, &why))?;
    }
    Ok(options)
}

/// An option of one simple type.
fn typed<'a, 'py, T: FromPyObject<'a, 'py>>(
    name: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract().map_err(|_| {
        let shown = value.repr().map_or_else(|_| "this".to_owned(), |repr| repr.to_string());
        let text = format!("paged({name}=...): {shown:.60} makes no sense here.");
        error(value.py(), Class::Option, text)
    })
}

/// What `codec=` says.
fn coding(value: &Bound<'_, PyAny>) -> PyResult<Coding> {
    let packer = match value.cast::<PyString>() {
        Ok(name) => match &*name.to_string_lossy() {
            "zstd" => Some(Outer::default()),
            "lz4" => Some(Outer::Lz4),
            _ => None,
        },
        Err(_) => None,
    };
    if let Some(packer) = packer {
        return Ok(Coding::Packed(packer));
    }
    match codecs::spec(value, "paged(codec=...)")? {
        Spec::Raw => Ok(Coding::Raw),
        Spec::Lossless => Ok(Coding::Lossless),
        Spec::Bounded(bound) => Ok(Coding::Bounded(bound)),
        other => {
            let text = format!(
                "paged(codec=...) does not take {other}: give None, \"lossless\", \"lz4\", \
                 \"zstd\", or a bound such as unspool.Bound(abs=1e-3)."
            );
            Err(error(value.py(), Class::Option, text))
        }
    }
}
