//! Arrays of CuPy, by their attributes: a third of what `__cuda_array_interface__` costs, and
//! unlike it they name the device.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use unspool::Dtype;

use super::intake::{ArrayPlace, Intake, LEGACY_STREAM, PendingWork};
use super::{Access, Array, ArrayRefusal, Owner, numpy, typestr};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CURRENT_STREAM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Borrows the memory of an array of CuPy; `None` when `object` is not one.
///
/// # Errors
/// Why it cannot be borrowed.
pub fn borrow(
    object: &Bound<'_, PyAny>,
    intake: &Intake<'_>,
) -> Option<Result<Array, ArrayRefusal>> {
    let class = class(object.py())?;
    if !object.get_type().is(class) && !object.is_instance(class).unwrap_or(false) {
        return None;
    }
    Some(describe(object, intake))
}

fn class<'py>(py: Python<'py>) -> Option<&'py Bound<'py, PyType>> {
    if CLASS.get(py).is_none() {
        let found = super::loaded(py, intern!(py, "cupy"), intern!(py, "ndarray"))?;
        let _ = CLASS.set(py, found.unbind());
    }
    CLASS.get(py).map(|class| class.bind(py))
}

fn describe(object: &Bound<'_, PyAny>, intake: &Intake<'_>) -> Result<Array, ArrayRefusal> {
    let py = object.py();
    let unusable = |raised: PyErr| ArrayRefusal::from_exception(py, raised);
    let memory = object.getattr(intern!(py, "data")).map_err(unusable)?;
    let number = |name| memory.getattr(name).and_then(|value| value.extract::<usize>());
    let address = number(intern!(py, "ptr")).map_err(unusable)?;
    let shape: Vec<usize> =
        object.getattr(intern!(py, "shape")).and_then(|shape| shape.extract()).map_err(unusable)?;
    let strides = object.getattr(intern!(py, "strides"));
    let strides: Vec<isize> = strides.and_then(|strides| strides.extract()).map_err(unusable)?;
    let dtype = dtype(&object.getattr(intern!(py, "dtype")).map_err(unusable)?)?;
    let data = std::ptr::with_exposed_provenance_mut(address);
    let owner = Owner::Object { _object: object.clone().unbind() };
    let array = Array::new(data, dtype, (shape, strides), Access::Writable, owner)?;
    let ordinal = number(intern!(py, "device_id")).map_err(unusable)?;
    let ordinal = u32::try_from(ordinal).map_err(|_| format!("its device is {ordinal}"))?;
    intake.admit(ordinal)?;
    let ask = || current_stream(py, ordinal).map_err(unusable);
    let stream = intake.stream_of(("cupy", ordinal), ask)?;
    Ok(array.at(ArrayPlace::Cuda { ordinal, work: PendingWork::Enqueued(stream) }))
}

/// The dtype of a NumPy dtype, as CuPy has them.
fn dtype(dtype: &Bound<'_, PyAny>) -> Result<Dtype, String> {
    let py = dtype.py();
    let text = dtype.getattr(intern!(py, "str"));
    let text = text.and_then(|text| Ok(text.cast_into::<PyString>()?));
    let text = text.map_err(|_| "its dtype has no usable \"str\"")?;
    let text = text.to_str().map_err(|_| "the name of its dtype is not text")?;
    match typestr::dtype(text)? {
        Some(known) => Ok(known),
        None => numpy::named_dtype(dtype),
    }
}

/// CuPy's current stream as an object, for an array of CuPy; `None` for arrays of others. CuPy
/// destroys a stream when the last reference to it goes.
pub fn stream_alive(object: &Bound<'_, PyAny>) -> Option<Py<PyAny>> {
    let py = object.py();
    object.is_instance(class(py)?).ok().filter(|is| *is)?;
    let ask = py.import("cupy.cuda").ok()?.getattr("get_current_stream").ok()?;
    ask.call0().ok().map(Bound::unbind)
}

/// The handle of CuPy's current stream on a device.
pub fn current_stream(py: Python<'_>, ordinal: u32) -> PyResult<usize> {
    let ask = CURRENT_STREAM.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        Ok(py.import("cupy.cuda")?.getattr("get_current_stream")?.unbind())
    })?;
    let stream = ask.bind(py).call1((ordinal,))?.getattr(intern!(py, "ptr"))?;
    Ok(stream.extract::<usize>()?.max(LEGACY_STREAM))
}

/// As [`current_stream`]; `None` when CuPy is not loaded, or cannot say.
pub fn stream_in_use(py: Python<'_>, ordinal: u32) -> Option<usize> {
    class(py)?;
    current_stream(py, ordinal).ok()
}
