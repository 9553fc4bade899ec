//! Arrays that speak the CUDA array interface, versions 2 and 3 (Numba, RMM, our own buffers).
//!
//! Since version 3 it names a stream: work enqueued there finds the data ready. Without one the
//! legacy default stream is used, which waits for all streams but the non-blocking ones.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use unspool::Dtype;

use super::intake::{ArrayPlace, Intake, LEGACY_STREAM, PendingWork};
use super::{Access, Array, ArrayRefusal, Owner, dense_strides, numpy, typestr};

/// The interface of an object.
#[derive(Debug)]
pub struct Interface<'py>(Bound<'py, PyDict>);

/// The interface of `object`; `None` when it has none.
pub fn interface<'py>(object: &Bound<'py, PyAny>) -> Option<Interface<'py>> {
    let found = object.getattr_opt(intern!(object.py(), "__cuda_array_interface__")).ok()??;
    found.cast_into::<PyDict>().ok().map(Interface)
}

impl<'py> Interface<'py> {
    fn py(&self) -> Python<'py> {
        self.0.py()
    }

    /// Whether it names the stream on which its data is ready.
    pub fn names_stream(&self) -> bool {
        self.optional::<usize>(intern!(self.py(), "stream")).is_ok_and(|stream| stream.is_some())
    }

    fn optional<T>(&self, key: &Bound<'py, PyString>) -> Result<Option<T>, String>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let unusable = || format!("its __cuda_array_interface__ has no usable \"{key}\"");
        let Some(value) = self.0.get_item(key).map_err(|_| unusable())? else { return Ok(None) };
        if value.is_none() { Ok(None) } else { value.extract().map(Some).map_err(|_| unusable()) }
    }

    fn needed<T>(&self, key: &Bound<'py, PyString>) -> Result<T, String>
    where
        T: for<'a> FromPyObject<'a, 'py>,
    {
        let missing = || format!("its __cuda_array_interface__ has no \"{key}\"");
        self.optional(key)?.ok_or_else(missing)
    }

    /// A masked array lends its data without its mask: half of it would be lost without a word.
    ///
    /// # Errors
    /// When there is a mask.
    pub fn unmasked(&self) -> Result<(), String> {
        let mask: Option<Bound<'py, PyAny>> = self.optional(intern!(self.py(), "mask"))?;
        if mask.is_none() {
            return Ok(());
        }
        Err("its mask would be lost: save its data and its mask as two arrays".to_owned())
    }

    fn dtype(&self, object: &Bound<'py, PyAny>) -> Result<Dtype, String> {
        let text: String = self.needed(intern!(self.py(), "typestr"))?;
        if let Some(dtype) = typestr::dtype(&text)? {
            return Ok(dtype);
        }
        // The interface has no words for fields that overlap or are out of order.
        let named = object.getattr(intern!(object.py(), "dtype")).ok();
        let named = named.filter(|dtype| dtype.hasattr("names").unwrap_or(false));
        if let Some(named) = named {
            return numpy::named_dtype(&named);
        }
        let itemsize = typestr::split(&text).map_or(0, |(_, itemsize)| itemsize);
        let descr: Option<Bound<'py, PyAny>> = self.optional(intern!(self.py(), "descr"))?;
        let fields = descr.and_then(|descr| descr.repr().ok()).map(|repr| repr.to_string());
        // One field without a name is what the type string says already.
        let fields = fields.filter(|spelled| !spelled.starts_with("[('',"));
        Ok(typestr::opaque(fields.as_deref().unwrap_or(&text), itemsize))
    }

    fn work(&self, intake: &Intake<'_>) -> Result<PendingWork, String> {
        if let Some(given) = intake.stream() {
            return Ok(PendingWork::Enqueued(given));
        }
        match self.optional::<usize>(intern!(self.py(), "stream"))? {
            Some(0) => {
                let why = "its __cuda_array_interface__ names the stream 0, which could be any of \
                           two: it has to be 1 or 2";
                Err(why.to_owned())
            }
            Some(stream) => Ok(PendingWork::Enqueued(stream)),
            None => Ok(PendingWork::Visible(LEGACY_STREAM)),
        }
    }

    /// Borrows the memory of `object`, whose interface this is.
    ///
    /// # Errors
    /// Why it cannot be borrowed.
    pub fn borrow(
        &self,
        object: &Bound<'py, PyAny>,
        intake: &Intake<'_>,
    ) -> Result<Array, ArrayRefusal> {
        let version: i64 = self.needed(intern!(self.py(), "version"))?;
        if version < 2 {
            let why = format!("version {version} of its __cuda_array_interface__ is too old");
            return Err(why.into());
        }
        self.unmasked()?;
        let (address, read_only): (usize, bool) = self.needed(intern!(self.py(), "data"))?;
        let dtype = self.dtype(object)?;
        let shape: Vec<usize> = self.needed(intern!(self.py(), "shape"))?;
        let strides: Option<Vec<isize>> = self.optional(intern!(self.py(), "strides"))?;
        let strides = strides.unwrap_or_else(|| dense_strides(&shape, dtype.itemsize() as usize));
        let access = if read_only { Access::ReadOnly } else { Access::Writable };
        let owner = Owner::Object { _object: object.clone().unbind() };
        let data = std::ptr::with_exposed_provenance_mut(address);
        let array = Array::new(data, dtype, (shape, strides), access, owner)?;
        // Without items there is nothing to copy, and no address to ask about.
        if array.bytes() == 0 {
            return Ok(array);
        }
        let Some(ordinal) = intake.ordinal_of(object.py(), address)? else { return Ok(array) };
        intake.admit(ordinal)?;
        Ok(array.at(ArrayPlace::Cuda { ordinal, work: self.work(intake)? }))
    }
}
