//! The spool's own buffers, which other checkpoints may be saved from and restored into.

use pyo3::prelude::*;

use super::intake::{ArrayPlace, Intake, PendingWork};
use super::{Access, Array, ArrayRefusal, Owner};
use crate::lend::{DeviceBuffer, HostBuffer, Items};

/// Borrows the memory of one of our own buffers; `None` when `object` is none.
///
/// # Errors
/// Why it cannot be borrowed: its block was left.
pub fn borrow(
    object: &Bound<'_, PyAny>,
    intake: &Intake<'_>,
) -> Option<Result<Array, ArrayRefusal>> {
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
) -> Result<Array, ArrayRefusal> {
    let lent = buffer.borrowed();
    let lent = lent.map_err(|raised| ArrayRefusal::from_exception(object.py(), raised));
    let (ordinal, address, stream) = lent?;
    intake.admit(ordinal)?;
    let work = PendingWork::Enqueued(intake.stream().unwrap_or(stream));
    let array = describe(object, address as usize, buffer.items(), buffer.is_read_only())?;
    Ok(array.at(ArrayPlace::Cuda { ordinal, work }))
}

fn on_host(object: &Bound<'_, PyAny>, buffer: &HostBuffer) -> Result<Array, ArrayRefusal> {
    let lent = buffer.borrowed();
    let address = lent.map_err(|raised| ArrayRefusal::from_exception(object.py(), raised))?;
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
