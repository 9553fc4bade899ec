//! Encoding: chunks of one array, or of several equal ones, go to the library in one call, and are
//! then packed into a container for each.

use std::time::Duration;

use super::launch::Launcher;
use super::room::Room;
use super::{NvCompCoder, NvCompJob, staged};
use crate::pending::{Pending, Slot, Start};
use unspool_cuda::Place as Touched;
use unspool_cuda::Stream;
use unspool_cuda::Unrecorded;
use unspool_cuda::copy;
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// The longest wait for arrays before one that cannot be enqueued.
const LIMIT: Duration = Duration::from_secs(60);

impl NvCompCoder {
    /// Enqueues the encoding of one array as a checkpoint of its own. Nothing at or beyond the
    /// address `limit` is written. What would not get smaller is stored as it is, so that a
    /// container never takes more than [`NvCompLayout::most`](super::NvCompLayout::most) bytes.
    ///
    /// The errors in the result are limits: nvCOMP does not tell what it has done.
    ///
    /// # Errors
    /// When nvCOMP or the kernels cannot be had, this version has not the format, the stream is of
    /// another device, memory is missing, or the driver refuses.
    ///
    /// # Safety
    /// The array is device memory and stays as it is until the encoding is done; from the start to
    /// `limit` is device memory that nobody else uses until then.
    pub unsafe fn encode(
        &self,
        stream: &Stream,
        job: &NvCompJob<'_>,
        start: Start<'_>,
        limit: u64,
    ) -> Result<Pending, DeviceError> {
        // SAFETY: the caller's duty.
        let mut pending = unsafe { self.encode_all(stream, &[*job], &[(start, limit)]) }?;
        Ok(pending.pop().unwrap_or_else(|| unreachable!("one array gives one result")))
    }

    /// As [`encode`](Self::encode), for several arrays of one layout, which share the call of the
    /// library ("accumulated compression"). Each has its own place, in which `Start::Next` is
    /// behind the array before it.
    ///
    /// # Errors
    /// Those of `encode`; when there are no arrays, or they are of several layouts.
    ///
    /// # Safety
    /// That of `encode`, for each array.
    pub unsafe fn encode_all(
        &self,
        stream: &Stream,
        jobs: &[NvCompJob<'_>],
        places: &[(Start<'_>, u64)],
    ) -> Result<Vec<Pending>, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        let layout = match jobs {
            [first, rest @ ..] if rest.iter().all(|job| job.layout == first.layout) => first.layout,
            _ => return Err(unequal()),
        };
        let (library, format) = self.format(layout)?;
        let module = self.module()?;
        let marks = jobs.iter().map(|_| Ok((self.slots.begin(1)?, self.marks.prepare()?)));
        let marks = marks.collect::<Result<Vec<_>, DeviceError>>()?;
        let addresses = jobs.iter().fold(0, |all, job| all | job.source);
        let count = jobs.len() as u64;
        let room = self.room(stream, &format, (layout, count), (addresses, false))?;
        let launcher = |index| Launcher::new(&module, stream, layout, &library).of(index);
        let mut from = Vec::with_capacity(jobs.len());
        for (index, job) in (0..).zip(jobs) {
            let source = self.foreign(job.source, layout.bytes());
            let values = staged(&room, index, &source)?;
            if room.shape.staged {
                copy::device_to_device(stream, &values, &source)?;
            }
            stream.saw_read("encoding with nvCOMP", Touched::of(&source));
            // SAFETY: the room is ours until the results are there.
            unsafe { launcher(index).arrays(&room, values.address()) }?;
            from.push(values.address());
        }
        // SAFETY: as above; the arrays name the chunks of all values, which stay by the caller's
        // word.
        unsafe { self.compress(stream, &format, (&room, layout.chunks() * count)) }?;
        let mut all: Vec<Pending> = Vec::with_capacity(jobs.len());
        for ((index, (slot, mark)), place) in (0..).zip(marks).zip(places) {
            let from = from[index as usize];
            // SAFETY: the caller's duty.
            let packed = unsafe {
                self.pack(&launcher(index), (&room, from), *place, (slot, mark), all.last())
            };
            match packed {
                Ok(pending) => all.push(pending),
                Err(error) => {
                    // Whoever gets the bytes now must not meet the arrays before.
                    all.iter().for_each(|pending| drop(pending.wait(LIMIT)));
                    return Err(error);
                }
            }
        }
        if let Some(last) = all.last() {
            self.give_back(room, last);
        }
        Ok(all)
    }

    /// Packs the chunks of one array into its container.
    ///
    /// # Safety
    /// As for `encode_all`; the chunks are compressed by what is on the stream.
    unsafe fn pack(
        &self,
        launcher: &Launcher<'_>,
        (room, from): (&Room, u64),
        (start, limit): (Start<'_>, u64),
        (mut slot, mark): (Slot, Unrecorded),
        before: Option<&Pending>,
    ) -> Result<Pending, DeviceError> {
        let (stream, most) = (launcher.stream(), room.shape.layout.most());
        let start = match (start, before) {
            (Start::Next { align }, Some(pending)) => Start::After { pending, align },
            (start, _) => start,
        };
        let anchor = start.anchor(stream, &mut slot, (limit, most))?;
        // SAFETY: the caller's duty.
        unsafe {
            launcher.pack(room, from, &anchor)?;
            launcher.finish(room, &anchor, &slot)?;
        }
        if let Some(begin) = anchor.known() {
            let end = begin.saturating_add(most).min(limit);
            let touched = Touched::device(self.context.ordinal(), begin, end.saturating_sub(begin));
            stream.saw_write("encoding with nvCOMP", touched);
        }
        Ok(slot.launched(mark.record(stream)?, limit))
    }
}

fn unequal() -> DeviceError {
    let message = "nvCOMP takes arrays of one shape, type and format in one call";
    DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice("Encode others apart.")
}
