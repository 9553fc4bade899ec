//! NumPy arrays that the buffer protocol refuses: `datetime64`, the dtypes of `ml_dtypes`, and
//! structures with such fields. `__array_interface__` names their memory.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyDict};
use unspool::Dtype;

use super::{Access, Array, Owner, dense_strides};

/// The prefix of tags that are written as NumPy writes its dtypes, and not as formats.
const TAG: &str = "numpy:";

/// Borrows the memory of a NumPy array; `None` when `object` is none.
///
/// # Errors
/// Why its items cannot be saved.
pub fn borrow(object: &Bound<'_, PyAny>) -> Option<Result<Array, String>> {
    let py = object.py();
    let interface = object.getattr_opt(intern!(py, "__array_interface__")).ok().flatten()?;
    let interface = interface.cast_into::<PyDict>().ok()?;
    let dtype = object.getattr_opt(intern!(py, "dtype")).ok().flatten()?;
    Some(named_dtype(&dtype, &interface).and_then(|dtype| describe(object, &interface, dtype)))
}

/// The dtype of a NumPy dtype that the buffer protocol cannot name.
fn named_dtype(dtype: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> Result<Dtype, String> {
    let name = text(dtype, "name")?;
    if let Some(known) = Dtype::from_name(&name) {
        return Ok(known);
    }
    let kind = text(dtype, "kind")?;
    let objects = truth(dtype, "hasobject")?;
    if objects || !matches!(kind.as_str(), "M" | "m" | "V" | "S" | "U") {
        return Err(format!(
            "its items ({name}) hold Python objects or addresses, which mean nothing after they \
             are read back: convert them to numbers or to strings of a fixed width"
        ));
    }
    let spelled = if kind == "V" { descr(interface)? } else { text(dtype, "str")? };
    let itemsize: u64 = dtype
        .getattr(intern!(dtype.py(), "itemsize"))
        .and_then(|size| size.extract())
        .map_err(|e| e.to_string())?;
    Ok(Dtype::Opaque { itemsize, tag: format!("{TAG}{spelled}") })
}

/// The fields of a structure, as a literal that NumPy reads back.
fn descr(interface: &Bound<'_, PyDict>) -> Result<String, String> {
    let found = interface.get_item(intern!(interface.py(), "descr")).map_err(|e| e.to_string())?;
    let found = found.ok_or("its __array_interface__ does not describe its fields")?;
    found.repr().map(|repr| repr.to_string()).map_err(|e| e.to_string())
}

fn describe(
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyDict>,
    dtype: Dtype,
) -> Result<Array, String> {
    let (address, read_only): (usize, bool) = entry(interface, "data")?;
    let shape: Vec<usize> = entry(interface, "shape")?;
    let strides: Option<Vec<isize>> = entry(interface, "strides")?;
    let strides = strides.unwrap_or_else(|| dense_strides(&shape, dtype.itemsize() as usize));
    let access = if read_only { Access::ReadOnly } else { Access::Writable };
    let owner = Owner::Object { _object: object.clone().unbind() };
    let data = std::ptr::with_exposed_provenance_mut(address);
    Array::new(data, dtype, (shape, strides), access, owner)
}

fn entry<'py, T>(interface: &Bound<'py, PyDict>, key: &str) -> Result<T, String>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let missing = || format!("its __array_interface__ has no usable {key:?}");
    let value = interface.as_any().get_item(key).map_err(|_| missing())?;
    value.extract().map_err(|_| missing())
}

fn text(dtype: &Bound<'_, PyAny>, attribute: &str) -> Result<String, String> {
    let value = dtype.getattr(attribute).and_then(|value| value.extract());
    value.map_err(|_| format!("its dtype has no usable {attribute:?}"))
}

fn truth(dtype: &Bound<'_, PyAny>, attribute: &str) -> Result<bool, String> {
    let value = dtype.getattr(attribute).and_then(|value| value.extract());
    value.map_err(|_| format!("its dtype has no usable {attribute:?}"))
}
