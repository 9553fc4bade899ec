//! Regions of memory, of the host or of a GPU, to and from a spool.
//!
//! VELOC's interface has no streams: copies of a GPU's memory come after what is on its legacy
//! default stream, and are done when a call returns.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::time::Duration;

use unspool::gpu::{DeviceArray, Stream, device_of};
use unspool::{Dtype, Error, ErrorKind, RegionSpec, RestoreTicket, Spool, Wait};

use crate::regions::{Protected, Selection};

/// Where a region is. Regions may overlap, so one of the host is made a slice when it is copied.
enum Place {
    Host(*mut u8, usize),
    Device(DeviceArray),
}

impl Protected {
    /// Where its first `bytes` bytes are.
    ///
    /// # Safety
    /// They are there.
    unsafe fn place(self, bytes: u64) -> Place {
        if bytes == 0 {
            return Place::Host(NonNull::dangling().as_ptr(), 0);
        }
        match device_of(self.address as u64) {
            Ok(Some(ordinal)) => {
                // SAFETY: the caller's duty.
                Place::Device(unsafe { DeviceArray::dense(ordinal, self.address as u64, bytes) })
            }
            // Without a driver, or without any context, there is no memory of a device.
            Ok(None) | Err(_) => Place::Host(self.address as *mut u8, bytes as usize),
        }
    }
}

fn stream_of(spool: &Spool, array: &DeviceArray) -> Result<Stream, Error> {
    let gpu = spool.gpu_of(array.ordinal())?;
    Ok(Stream::legacy_default(gpu.context()))
}

/// What is said of a region. Its type is not known: what is compressed is taken for floating-point
/// numbers where its items have their size. Without loss that changes no bit.
fn spec(id: c_int, region: &Protected, typed: bool) -> RegionSpec {
    let dtype = match region.item {
        4 if typed => Dtype::Float32,
        8 if typed => Dtype::Float64,
        _ => Dtype::UInt8,
    };
    let shape = vec![region.bytes / dtype.itemsize()];
    RegionSpec { name: id.to_string(), dtype, shape }
}

/// Saves regions under `step`, as numbers where they are compressed. The copies are done when it
/// returns.
///
/// # Safety
/// The regions are there, and nobody changes them meanwhile.
pub(crate) unsafe fn save(
    (spool, typed): (&Spool, bool),
    step: u64,
    regions: &BTreeMap<c_int, Protected>,
    timeout: Duration,
) -> Result<(), Error> {
    let specs = regions.iter().map(|(id, region)| spec(*id, region, typed)).collect();
    // SAFETY: the caller's duty.
    let places = regions.values().map(|region| unsafe { region.place(region.bytes) });
    let places: Vec<Place> = places.collect();
    let mut arrays = Vec::new();
    for (index, place) in places.iter().enumerate() {
        if let Place::Device(array) = place {
            arrays.push((index, array, stream_of(spool, array)?));
        }
    }
    let stream = arrays.first().map(|(_, _, stream)| stream);
    let wait = Wait { stream, ..Wait::at_most(timeout) };
    let mut ticket = spool.save(step as i64, specs, &wait)?;
    for (index, place) in places.iter().enumerate() {
        if let Place::Host(first, bytes) = place {
            // SAFETY: the caller's duty; sizes were checked when the region was protected.
            ticket.fill_from(index, unsafe { std::slice::from_raw_parts(*first, *bytes) })?;
        }
    }
    let borrowed: Vec<_> = arrays.iter().map(|(index, array, on)| (*index, *array, on)).collect();
    ticket.put_all(&borrowed)?;
    ticket.commit()?;
    sync(arrays.iter().map(|(_, _, stream)| stream), timeout)
}

/// Waits for the streams of arrays: one on each GPU.
fn sync<'a>(streams: impl Iterator<Item = &'a Stream>, timeout: Duration) -> Result<(), Error> {
    let streams: Vec<_> = streams.collect();
    let by_gpu = streams.chunk_by(|one, next| one.context().ordinal() == next.context().ordinal());
    Ok(by_gpu.map(|some| some[0]).try_for_each(|stream| stream.sync(timeout))?)
}

/// Copies the regions that are meant from a checkpoint to where they are protected. The copies are
/// done when it returns.
///
/// # Safety
/// The regions are there, and nobody uses them meanwhile.
pub(crate) unsafe fn load(
    spool: &Spool,
    ticket: &mut RestoreTicket,
    selection: &Selection,
    protected: &BTreeMap<c_int, Protected>,
    timeout: Duration,
) -> Result<(), Error> {
    let plan = planned(ticket, selection, protected)?;
    let mut streams = Vec::new();
    for (index, region, bytes) in plan {
        // SAFETY: the caller's duty; the region has at least as many bytes.
        match unsafe { region.place(bytes) } {
            Place::Host(first, bytes) => {
                // SAFETY: as above, and this is the only slice of them.
                ticket.read_into(index, unsafe { std::slice::from_raw_parts_mut(first, bytes) })?;
            }
            Place::Device(array) => {
                let stream = stream_of(spool, &array)?;
                // One after the other: regions may overlap.
                ticket.get(index, &array, &stream)?;
                streams.push(stream);
            }
        }
    }
    sync(streams.iter(), timeout)
}

/// What is copied: the place of a region in the checkpoint, where to, and how many bytes. Nothing
/// is copied when one of them does not fit.
fn planned(
    ticket: &RestoreTicket,
    selection: &Selection,
    protected: &BTreeMap<c_int, Protected>,
) -> Result<Vec<(usize, Protected, u64)>, Error> {
    let mut plan = Vec::new();
    let regions = ticket.head().regions.iter().enumerate();
    let ids =
        regions.filter_map(|(index, region)| Some((index, region.name.parse().ok()?, region)));
    for (index, id, saved) in ids.filter(|(_, id, _)| selection.has(*id)) {
        let target = protected.get(&id).ok_or_else(|| {
            wrong(format!(
                "The checkpoint has a region {id} of {} bytes, and none is protected under that \
                 number: call VELOC_Mem_protect first, or leave it out by \
                 VELOC_Recover_selective.",
                saved.bytes
            ))
        })?;
        if target.bytes < saved.bytes {
            return Err(wrong(format!(
                "Region {id} has {} bytes in the checkpoint, and {} are protected: ask \
                 VELOC_Recover_size, and protect as many.",
                saved.bytes, target.bytes
            )));
        }
        plan.push((index, *target, saved.bytes));
    }
    Ok(plan)
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message)
}
