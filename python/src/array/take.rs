//! Any object as an array, by the cheapest protocol that it speaks.

use std::fmt;

use pyo3::intern;
use pyo3::prelude::*;
use unspool::Dtype;

use super::intake::Intake;
use super::{Access, Array, ArrayRefusal, buffer, cuda, cupy, dlpack, numpy, ours, torch};
use crate::errors::{Class, error};

/// Which array of which call an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// The method that was called.
    pub call: &'static str,
    /// The version that it named.
    pub version: i64,
    /// The name or the position of the array.
    pub name: &'a str,
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Label { call, version, name } = self;
        let positional = name.bytes().all(|byte| byte.is_ascii_digit());
        let quote = if positional { "" } else { "\"" };
        write!(f, "{call}({version}): array {quote}{name}{quote}")
    }
}

/// Borrows the memory of `object`.
///
/// # Errors
/// `ArrayError`, when it is not an array or its memory cannot be used from here, and
/// `DeviceError` when it lies on another device than the spool.
pub fn take(object: &Bound<'_, PyAny>, label: Label<'_>, intake: &Intake<'_>) -> PyResult<Array> {
    borrow(object, label.call, intake).map_err(|refusal| {
        let (class, why) = match refusal {
            ArrayRefusal::Why(why) => (Class::Array, why),
            ArrayRefusal::OtherDevice { ordinal, own } => (Class::Device, elsewhere(ordinal, own)),
            ArrayRefusal::Raised(raised) => return raised,
        };
        let name = class_name(&object.get_type());
        error(object.py(), class, format!("{label} ({name}) cannot be used: {why}."))
    })
}

fn elsewhere(ordinal: u32, own: u32) -> String {
    format!(
        "it lies on CUDA device {ordinal}, and the spool is on device {own}; open a spool for each \
         device, such as Spool(..., device=\"cuda:{ordinal}\")"
    )
}

fn borrow(
    object: &Bound<'_, PyAny>,
    call: &str,
    intake: &Intake<'_>,
) -> Result<Array, ArrayRefusal> {
    if let Some(answer) = ours::borrow(object, intake) {
        return answer;
    }
    let mut refusal = None;
    if buffer::speaks(object) {
        let lent = buffer::borrow(object);
        if let Ok(array) = &lent
            && !matches!(array.dtype, Dtype::Opaque { .. })
        {
            return Ok(unmasked(object, lent?)?);
        }
        if let Some(answer) = numpy::borrow(object) {
            return Ok(unmasked(object, answer?)?);
        }
        match lent {
            Ok(array) => return named(object, array),
            Err(why) => refusal = Some(why),
        }
    }
    if let Some(answer) = cupy::borrow(object, intake) {
        return answer;
    }
    if let Some(answer) = torch::borrow(object, intake) {
        return answer;
    }
    others(object, intake)
        .unwrap_or_else(|| Err(refusal.unwrap_or_else(|| no_array(object, call).into())))
}

/// Items that are not numbers, by where their fields lie: formats of the buffer protocol leave
/// padding out, and those of `ctypes` say nothing of unions and packed structures.
fn named(object: &Bound<'_, PyAny>, mut array: Array) -> Result<Array, ArrayRefusal> {
    let Dtype::Opaque { itemsize, tag } = &array.dtype else { return Ok(array) };
    let py = object.py();
    let structures = py.import(intern!(py, "unspool._structures"));
    let tag = structures
        .and_then(|module| module.getattr(intern!(py, "of_buffer")))
        .and_then(|of_buffer| of_buffer.call1((object, tag, *itemsize)))
        .and_then(|tag| tag.extract());
    let tag = tag.map_err(|raised| ArrayRefusal::from_exception(py, raised))?;
    array.dtype = Dtype::Opaque { itemsize: *itemsize, tag };
    Ok(array)
}

/// Arrays of libraries that are not known here: by DLPack, except where the CUDA array interface
/// says more, namely the stream on which the library works. JAX waits for its results before it
/// shows that interface, and does not when it is asked by DLPack.
fn others(object: &Bound<'_, PyAny>, intake: &Intake<'_>) -> Option<Result<Array, ArrayRefusal>> {
    let immutable = is_immutable(object);
    let interface = if immutable { None } else { cuda::interface(object) };
    if let Some(interface) = &interface {
        if let Err(masked) = interface.unmasked() {
            return Some(Err(masked.into()));
        }
        if interface.names_stream() {
            return Some(interface.borrow(object, intake));
        }
    }
    match dlpack::borrow(object, intake, |_| None) {
        Some(Ok(array)) => Some(Ok(resolve_access(object, array))),
        Some(Err(why)) => Some(unpacked(object).map_or(Err(why), |answer| Ok(answer?))),
        None => interface.map(|interface| interface.borrow(object, intake)),
    }
}

/// A masked array lends its data without its mask: half of it would be lost without a word.
fn unmasked(object: &Bound<'_, PyAny>, array: Array) -> Result<Array, String> {
    let class = object.get_type();
    let Ok(name) = class.name() else { return Ok(array) };
    if name == "MaskedArray" {
        let advice = "its mask would be lost: save array.data and array.mask as two arrays";
        return Err(advice.to_owned());
    }
    if name == "datetime64" || name == "timedelta64" {
        return Err("it lends bytes without their unit: pass numpy.asarray(it)".to_owned());
    }
    Ok(array)
}

/// Capsules without flags do not say whether the memory may be written: the library does.
fn resolve_access(object: &Bound<'_, PyAny>, mut array: Array) -> Array {
    if array.access == Access::Unknown {
        array.access = Access::Writable;
    }
    if is_immutable(object) && array.access != Access::Copied {
        array.access = Access::Immutable;
    }
    array
}

/// JAX gives dtypes narrower than a byte only through NumPy, one item a byte, as a copy.
fn unpacked(object: &Bound<'_, PyAny>) -> Option<Result<Array, String>> {
    if !is_immutable(object) {
        return None;
    }
    let copy = object.call_method0("__array__").ok()?;
    let mut array = numpy::borrow(&copy)?;
    if let Ok(array) = &mut array {
        array.access = Access::Immutable;
    }
    Some(array)
}

/// Whether arrays of this library never change.
pub fn is_immutable(object: &Bound<'_, PyAny>) -> bool {
    let module = object.get_type().module();
    module.is_ok_and(|module| {
        let module = module.to_string_lossy();
        ["jax", "tensorflow"].iter().any(|library| module.starts_with(library))
    })
}

fn no_array(object: &Bound<'_, PyAny>, call: &str) -> String {
    let advice = if object.hasattr("__array__").unwrap_or(false) && call == "restore" {
        // A dataset of h5py or zarr: what NumPy makes of it is a copy.
        "load the checkpoint, or restore it into a NumPy array, and assign that: it[...] = array"
    } else if object.hasattr("__array__").unwrap_or(false) {
        "pass numpy.asarray(it)"
    } else if object.hasattr("__len__").unwrap_or(false) {
        "pass arrays one by one, such as save(version, u, v) or save(version, **arrays)"
    } else {
        "pass an array of NumPy, CuPy, PyTorch or JAX"
    };
    format!("it has neither the buffer protocol nor DLPack nor the CUDA array interface; {advice}")
}

fn class_name(class: &Bound<'_, pyo3::types::PyType>) -> String {
    let qualified = class.fully_qualified_name().map(|name| name.to_string());
    qualified.unwrap_or_else(|_| "an object".to_owned())
}
