//! NumPy arrays of items that are not plain numbers. The buffer protocol refuses some of them
//! (`datetime64`, the dtypes of `ml_dtypes`) and names others by formats that depend on where
//! the array lies in memory (structures): `__array_interface__` does neither.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAnyMethods, PyDict};
use unspool::Dtype;

use super::{Access, Array, Owner, dense_strides, typestr};

/// Borrows the memory of a NumPy array; `None` when `object` is not one.
///
/// # Errors
/// Why its items cannot be saved.
pub fn borrow(object: &Bound<'_, PyAny>) -> Option<Result<Array, String>> {
    let py = object.py();
    let interface = object.getattr_opt(intern!(py, "__array_interface__")).ok().flatten()?;
    let interface = interface.cast_into::<PyDict>().ok()?;
    let dtype = object.getattr_opt(intern!(py, "dtype")).ok().flatten()?;
    Some(named_dtype(&dtype).and_then(|dtype| describe(object, &interface, dtype)))
}

/// The dtype of a NumPy dtype that is not a plain number.
///
/// # Errors
/// Why such items cannot be saved.
pub fn named_dtype(dtype: &Bound<'_, PyAny>) -> Result<Dtype, String> {
    let name: String = attribute(dtype, "name")?;
    let native: bool = attribute(dtype, "isnative")?;
    if let Some(known) = Dtype::from_name(&name).filter(|_| native) {
        return Ok(known);
    }
    let kind: String = attribute(dtype, "kind")?;
    let objects: bool = attribute(dtype, "hasobject")?;
    if objects || !"biufcmMSUV".contains(&kind) {
        return Err(format!(
            "its items ({name}) hold Python objects or addresses, which mean nothing after they \
             are read back: convert them to numbers or to strings of a fixed width"
        ));
    }
    let fields: Option<Bound<'_, PyAny>> = attribute(dtype, "names")?;
    let spelled = match fields {
        None => attribute(dtype, "str")?,
        Some(_) => layout(dtype).map_err(|raised| raised.to_string())?,
    };
    Ok(typestr::opaque(&spelled, attribute(dtype, "itemsize")?))
}

/// Where the fields of a structure lie, as text. The descriptions that NumPy itself gives leave out
/// fields that overlap or are out of order.
fn layout(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = dtype.py();
    let structures = py.import(intern!(py, "unspool._structures"))?;
    structures.getattr(intern!(py, "of_dtype"))?.call1((dtype,))?.extract()
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

fn attribute<'py, T>(dtype: &Bound<'py, PyAny>, name: &str) -> Result<T, String>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let missing = || format!("its dtype has no usable {name:?}");
    dtype.getattr(name).map_err(|_| missing())?.extract().map_err(|_| missing())
}
