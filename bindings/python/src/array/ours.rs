//! The spool's own buffers, which other checkpoints may be saved from and restored into.

use pyo3::prelude::*;

use super::intake::{Intake, Place, Work};
use super::{Access, Array, Owner, Refusal};
use crate::lend::{DeviceBuffer, HostBuffer, Items};

/// Borrows the memory of one of our own buffers; `None` when `object` is none.
///
/// # Errors
/// Why it cannot be borrowed: its block was left.
pub fn borrow(object: &Bound<'_, PyAny>, intake: &Intake<'_>) -> Option<Result<Array, Refusal>> {
    if let Ok(buffer) = object.cast::<DeviceBuffer>() {
        return Some(on_device(object, buffer.get(), intake));
    }
    let buffer = object.cast::<HostBuffer>().ok()?.get();
    Some(on_host(object, buffer))
}

fn on_device(
    object: &Bound<'_, PyAny>,
    buffer: &DeviceBuffer,
    intake: &Intake<'_>,
) -> Result<Array, Refusal> {
    let lent = buffer.lent();
    let lent = lent.map_err(|raised| Refusal::from_exception(object.py(), raised));
    let (ordinal, address, stream) = lent?;
    intake.admit(ordinal)?;
    let work = Work::Enqueued(intake.stream().unwrap_or(stream));
    let array = describe(object, address as usize, buffer.items(), buffer.is_read_only())?;
    Ok(array.at(Place::Cuda { ordinal, work }))
}

fn on_host(object: &Bound<'_, PyAny>, buffer: &HostBuffer) -> Result<Array, Refusal> {
    let lent = buffer.lent();
    let address = lent.map_err(|raised| Refusal::from_exception(object.py(), raised))?;
    Ok(describe(object, address, buffer.items(), buffer.is_read_only())?)
}

fn describe(
    object: &Bound<'_, PyAny>,
    address: usize,
    items: &Items,
    read_only: bool,
) -> Result<Array, String> {
    let access = if read_only { Access::ReadOnly } else { Access::Writable };
    let owner = Owner::Object { _object: object.clone().unbind() };
    let layout = (items.shape.clone(), items.strides());
    let data = std::ptr::with_exposed_provenance_mut(address);
    Array::new(data, items.dtype.clone(), layout, access, owner)
}
