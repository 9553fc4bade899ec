//! What has changed of a checkpoint, asked of it where it lies: the hashes of its chunks, and parts
//! of its regions. From a GPU nothing else comes.

use std::ops::Range;
use std::slice;

use unspool_cuda::{DeviceError, DeviceSpan, Stream, copy as raw};
use unspool_gpu_codec::ChunkHasher;

use super::RestoreTicket;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Data, Gpu, Part, part, staged};

/// The most bytes of parts that are brought side by side on the device and come together.
const GATHERED: usize = 64 << 20;

impl RestoreTicket {
    /// The hashes of the chunks of these regions as they are stored, computed by the GPU in whose
    /// memory they are: [`unspool_codec::increment::chunk_hash`] with that seed of each. `None`
    /// where they are in main memory, and the caller can hash them as well.
    ///
    /// # Errors
    /// `Device` when there is no kernel for the device or CUDA refuses, `Io` when there is no
    /// memory for the hashes.
    ///
    /// # Panics
    /// When the checkpoint has none of these regions.
    pub fn hash_chunks(
        &mut self,
        regions: &[usize],
        seed: u64,
    ) -> Result<Option<Vec<Vec<u128>>>, Error> {
        let Some(Data::Arena(guard)) = self.state.data_mut() else { return Ok(None) };
        let gpu = self.served.shared.some_gpu().filter(|_| guard.device().is_some());
        let Some((gpu, span)) = gpu.zip(guard.device().cloned()) else { return Ok(None) };
        let parts: Vec<Part> =
            regions.iter().map(|index| part(&self.served.frame.head().regions[*index])).collect();
        let lens: Vec<u64> = parts.iter().map(|p| ChunkHasher::answer_bytes(p.len)).collect();
        let stream = gpu.stream();
        let answers = gpu.scratch(lens.iter().sum(), stream)?;
        guard.order(stream)?;
        let enqueued = enqueue(&gpu, (&span, &parts), seed, (&answers.span(), &lens));
        // Also where one has failed, others may be under way.
        guard.leave(stream)?;
        enqueued?;
        let mut found = staged(&self.served.shared.buffers, answers.span().len())?;
        raw::device_to_host(stream, &mut found, &answers.span(), gpu.device().limit())?;
        answers.done(&gpu, gpu.device().fence(stream)?);
        let (mut rest, mut hashes) = (&found[..], Vec::with_capacity(parts.len()));
        for (part, len) in parts.iter().zip(&lens) {
            let (answer, others) = rest.split_at(*len as usize);
            hashes.push(ChunkHasher::hashes(part.len, seed, answer));
            rest = others;
        }
        Ok(Some(hashes))
    }

    /// Adds the bytes of region `index` as it is stored to the end of `to`, which has room for
    /// them.
    ///
    /// # Errors
    /// `Device` when CUDA refuses.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn append_stored(&mut self, index: usize, to: &mut Vec<u8>) -> Result<(), Error> {
        let is_on_device = self.state.data().is_some_and(Data::is_on_device);
        if !is_on_device {
            return self.read_stored(index, |stored| to.extend_from_slice(stored));
        }
        let (begin, len) = (to.len(), self.served.frame.head().regions[index].stored as usize);
        to.resize(begin + len, 0);
        self.read_parts(index, slice::from_ref(&(0..len)), &mut to[begin..])
    }

    /// Copies `parts` of region `index` as it is stored to `to`, one after the other.
    ///
    /// # Errors
    /// `Device` when CUDA refuses, `Invalid` when `to` has another size than all of them.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`, or that ends before a part.
    pub fn read_parts(
        &mut self,
        index: usize,
        parts: &[Range<usize>],
        to: &mut [u8],
    ) -> Result<(), Error> {
        let all: usize = parts.iter().map(Range::len).sum();
        gpu::check_size(to.len() as u64, all as u64)?;
        let region = part(&self.served.frame.head().regions[index]);
        let guard = match self.state.data_mut() {
            Some(Data::Arena(guard)) => guard,
            Some(Data::Staged(buffer)) => {
                copy_parts(&buffer[region.range()], parts, to);
                return Ok(());
            }
            None => return Err(gone()),
        };
        if let Some(bytes) = guard.bytes() {
            copy_parts(&bytes[region.range()], parts, to);
            return Ok(());
        }
        let gpu = self.served.shared.some_gpu();
        let (gpu, span) = gpu.zip(guard.device().cloned()).ok_or_else(gone)?;
        let (stream, from) = (gpu.stream(), span.slice(region.offset, region.len)?);
        guard.order(stream)?;
        let copied = bring(&gpu, &from, parts, to);
        // Also after a failure, copies may be under way.
        guard.leave(stream)?;
        Ok(copied?)
    }
}

/// The error of a checkpoint whose memory is not there.
fn gone() -> Error {
    Error::new(ErrorKind::Device, "The memory of the checkpoint is not there any more.")
}

/// Enqueues the answers for all parts, one after the other.
fn enqueue(
    gpu: &Gpu,
    (span, parts): (&DeviceSpan, &[Part]),
    seed: u64,
    (answers, lens): (&DeviceSpan, &[u64]),
) -> Result<(), DeviceError> {
    let mut at = 0;
    for (part, len) in parts.iter().zip(lens) {
        let from = span.slice(part.offset, part.len)?;
        gpu.hasher().enqueue(gpu.stream(), &from, seed, &answers.slice(at, *len)?)?;
        at += len;
    }
    Ok(())
}

fn copy_parts(bytes: &[u8], parts: &[Range<usize>], mut to: &mut [u8]) {
    for part in parts {
        let (here, rest) = std::mem::take(&mut to).split_at_mut(part.len());
        here.copy_from_slice(&bytes[part.clone()]);
        to = rest;
    }
}

/// Copies parts of `from` to main memory. Small ones come together.
fn bring(
    gpu: &Gpu,
    from: &DeviceSpan,
    mut parts: &[Range<usize>],
    mut to: &mut [u8],
) -> Result<(), DeviceError> {
    let (stream, limit) = (gpu.stream(), gpu.device().limit());
    while !parts.is_empty() {
        let (now, later) = parts.split_at(count_within(parts, GATHERED));
        let bytes: usize = now.iter().map(Range::len).sum();
        let (here, rest) = std::mem::take(&mut to).split_at_mut(bytes);
        if let [one] = now {
            let one = from.slice(one.start as u64, one.len() as u64)?;
            raw::device_to_host(stream, here, &one, limit)?;
        } else {
            let gathered = gpu.scratch(bytes as u64, stream)?;
            gather(stream, from, now, &gathered.span())?;
            raw::device_to_host(stream, here, &gathered.span(), limit)?;
            gathered.done(gpu, gpu.device().fence(stream)?);
        }
        (parts, to) = (later, rest);
    }
    Ok(())
}

/// How many of the first parts have at most so many bytes together, at least 1.
fn count_within(parts: &[Range<usize>], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |part: &&Range<usize>| {
        bytes += part.len();
        bytes <= most
    };
    parts.iter().take_while(fits).count().max(1)
}

fn gather(
    stream: &Stream,
    from: &DeviceSpan,
    parts: &[Range<usize>],
    to: &DeviceSpan,
) -> Result<(), DeviceError> {
    let mut at = 0;
    for part in parts {
        let len = part.len() as u64;
        let part = from.slice(part.start as u64, len)?;
        raw::device_to_device(stream, &to.slice(at, len)?, &part)?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::count_within;

    #[test]
    fn parts_come_together_up_to_a_size_and_a_larger_one_alone() {
        let parts = [0..10, 20..30, 40..45, 50..100, 200..201];
        let counts = [5, 20, 25, 74, 75, 76].map(|most| count_within(&parts, most));
        assert_eq!(counts, [1, 2, 3, 3, 4, 5]);
        assert_eq!(count_within(&parts[3..], 20), 1);
    }
}
