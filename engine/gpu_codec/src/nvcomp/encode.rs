//! Encoding: the chunks of one array, or of several with equal layouts, are compressed by one call
//! of the library, and then packed into a container for each array.

use super::launch::Launcher;
use super::room::WorkMemory;
use super::{NvCompCoder, NvCompLayout, staged};
use crate::codec::StoredCheckpoint;
use crate::pending::{Pending, Slot, Start};
use crate::start::one_by_one;
use unspool_cuda::AccessedBytes as Touched;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;
use unspool_cuda::Unrecorded;
use unspool_cuda::copy;

impl NvCompCoder {
    /// Encodes several arrays of one layout with one call of the library. Each is a checkpoint of
    /// its own, placed by its `Start`; `Start::Next` is after the array before it. A chunk that
    /// would not get smaller is stored uncompressed, so that a container never takes more than
    /// [`NvCompLayout::most`] bytes.
    ///
    /// The errors in the result are upper bounds: nvCOMP does not report the actual ones.
    ///
    /// # Errors
    /// When nvCOMP or the kernels are not available, this version lacks the format, the stream is
    /// of another device, memory is missing, or the driver refuses.
    ///
    /// # Safety
    /// That of [`GpuCodec::encode`](crate::GpuCodec::encode), for each array.
    pub(super) unsafe fn encode_alike(
        &self,
        stream: &Stream,
        layout: &NvCompLayout,
        checkpoints: &[StoredCheckpoint<'_>],
    ) -> Result<Vec<Pending>, DeviceError> {
        let jobs: Vec<u64> =
            checkpoints.iter().flat_map(|one| one.jobs).map(|job| job.source).collect();
        let format = self.format(layout)?;
        let module = self.module()?;
        let fences = jobs.iter().map(|_| Ok((self.slots.begin(1)?, self.fences.prepare()?)));
        let fences = fences.collect::<Result<Vec<_>, DeviceError>>()?;
        let addresses = jobs.iter().fold(0, |all, source| all | source);
        let count = jobs.len() as u64;
        let room = self.room(stream, &format, (layout, count), (addresses, false))?;
        let launcher = |index| Launcher::new(&module, stream, layout, &format).of(index);
        let mut from = Vec::with_capacity(jobs.len());
        for (index, &source) in (0..).zip(&jobs) {
            let source = self.foreign(source, layout.bytes());
            let values = staged(&room, index, &source)?;
            if room.shape.staged {
                copy::device_to_device(stream, &values, &source)?;
            }
            stream.saw_read("encoding with nvCOMP", Touched::of(&source));
            // SAFETY: the room has no other user until the results are present.
            unsafe { launcher(index).arrays(&room, values.address()) }?;
            from.push(values.address());
        }
        {
            let _scope = self.context.enter()?;
            let found = room.at.found;
            // SAFETY: as above; the arrays name the chunks of all values, which stay allocated as
            // the caller guarantees.
            let one = |part| unsafe { room.compress(stream, &format, part, found) };
            room.batches(count).try_for_each(one)?;
        }
        let mut fences = fences.into_iter();
        let all = one_by_one(checkpoints, |index, place| {
            let ready = fences.next().unwrap_or_else(|| unreachable!("there is one for each"));
            // SAFETY: the caller's duty.
            unsafe { self.pack(&launcher(index as u64), (&room, from[index]), place, ready) }
        })?;
        if let Some(last) = all.last() {
            self.give_back(room, last);
        }
        Ok(all)
    }

    /// Packs the chunks of one array into its container.
    ///
    /// # Safety
    /// As for `encode_alike`; earlier work on the stream compresses the chunks.
    unsafe fn pack(
        &self,
        launcher: &Launcher<'_>,
        (room, from): (&WorkMemory, u64),
        (start, limit): (Start<'_>, u64),
        (mut slot, fence): (Slot, Unrecorded),
    ) -> Result<Pending, DeviceError> {
        let (stream, most) = (launcher.stream(), room.shape.layout.most());
        let anchor = start.anchor(stream, &mut slot, (limit, most))?;
        // SAFETY: the caller's duty.
        unsafe {
            launcher.pack(room, from, &anchor)?;
            launcher.finish(room, &anchor, &slot).map_err(DeviceError::with_work_left)?;
        }
        if let Some(begin) = anchor.known() {
            let end = begin.saturating_add(most).min(limit);
            let touched = Touched::device(self.context.ordinal(), begin, end.saturating_sub(begin));
            stream.saw_write("encoding with nvCOMP", touched);
        }
        slot.launched_before(fence, stream, limit)
    }
}
