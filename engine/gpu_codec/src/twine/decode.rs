//! Decoding: the device checks every offset against the known layout of the array before it uses
//! the offset.

use std::ffi::c_void;

use unspool_codec::twine::Layout;

use super::Twine;
use super::job::Coded;
use super::modules::{DECODE_WARPS, Kernel, Special, Tiles, Variant};
use super::parts::{is_worth_a_variant, variant_form};
use super::plan::{cut, piece};
use super::words::{DecodeLaunch, PIECES, Piece};
use crate::pending::{DecodeStatus, Pending};
use unspool_cuda::AccessedBytes;
use unspool_cuda::DeviceError;
use unspool_cuda::Stream;

impl Twine {
    /// Decodes `jobs` after what is on `stream`.
    ///
    /// # Safety
    /// That of [`GpuCodec::decode`](crate::GpuCodec::decode).
    pub(super) unsafe fn decode_all(
        &self,
        stream: &Stream,
        jobs: &[Coded<'_>],
    ) -> Result<DecodeStatus, DeviceError> {
        self.context.require(stream.context().ordinal(), "the stream")?;
        // All jobs are checked before the first one is enqueued.
        jobs.iter().try_for_each(|job| piece(job, 0, DECODE_WARPS).map(drop))?;
        let mut launches = Vec::new();
        for group in by_form(jobs, self.apart) {
            for jobs in group.chunks(PIECES) {
                // SAFETY: the caller's duty.
                launches.push(unsafe { self.decode_some(stream, jobs) }?);
            }
        }
        Ok(DecodeStatus::new(launches))
    }

    /// # Safety
    /// As [`decode_all`](Self::decode_all); at most as many jobs as fit into a launch.
    unsafe fn decode_some(
        &self,
        stream: &Stream,
        jobs: &[Coded<'_>],
    ) -> Result<Pending, DeviceError> {
        let module = self.module(variant(jobs.iter().map(|job| job.layout)))?;
        let (mut slot, fence) = (self.slots.begin(0)?, self.fences.prepare()?);
        let counts = slot.counters(stream)?;
        let mut words = words_of(jobs, (slot.address(), slot.sequence(), counts))?;
        let mut list: [*mut c_void; 1] = [(&raw mut words).cast()];
        let shape = (words.tiles, 32 * DECODE_WARPS);
        // SAFETY: the kernel takes these words; they name memory that the caller guarantees, or
        // that of the slot.
        unsafe { module.launch_with(stream, Kernel::Decode.name(), shape, &mut list) }?;
        // Reported to the watch before the fence is recorded, which comes after it.
        report(stream, jobs);
        slot.launched_before(fence, stream, u64::MAX)
    }
}

/// Groups jobs that share a launch: jobs of one form, and one group of all forms with fewer than
/// `apart` chunks, unless that is the only group.
fn by_form<'a>(jobs: &[Coded<'a>], apart: u64) -> Vec<Vec<Coded<'a>>> {
    let mut groups: Vec<(Option<u32>, u64, Vec<Coded<'a>>)> = Vec::new();
    for job in jobs {
        let (form, chunks) = (variant_form(cut(job.layout).form), u64::from(job.layout.n_chunks));
        match groups.iter_mut().find(|group| group.0 == form) {
            Some((_, all, group)) => {
                *all += chunks;
                group.push(*job);
            }
            None => groups.push((form, chunks, vec![*job])),
        }
    }
    let (few, many): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|&(form, chunks, _)| chunks < apart || form.is_none());
    let few: Vec<Coded<'a>> = few.into_iter().flat_map(|(_, _, group)| group).collect();
    let few = (!few.is_empty()).then_some(few);
    few.into_iter().chain(many.into_iter().map(|(_, _, group)| group)).collect()
}

/// The kernel variant for arrays of these layouts.
pub(super) fn variant<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Variant {
    let (mut wide, mut chunks, mut forms) = (false, 0, Vec::new());
    for layout in layouts {
        wide |= layout.bits == 64;
        chunks += u64::from(layout.n_chunks);
        forms.push(variant_form(cut(layout).form));
    }
    forms.dedup();
    let special = match forms[..] {
        [Some(form)] if is_worth_a_variant(chunks) => Some(Special { form, task: None }),
        _ => None,
    };
    Variant { kernel: Kernel::Decode, wide, warps: DECODE_WARPS, tiles: Tiles::Many, special }
}

/// The words of a launch: its slot, the final sequence number of that, and its counters.
pub(super) fn words_of(
    jobs: &[Coded<'_>],
    (slot, sequence, counts): (u64, u64, u64),
) -> Result<DecodeLaunch, DeviceError> {
    let mut words = DecodeLaunch {
        slot,
        sequence,
        counts,
        tiles: 0,
        pieces: jobs.len() as u32,
        piece: [Piece::default(); PIECES],
    };
    for (place, job) in words.piece.iter_mut().zip(jobs) {
        *place = piece(job, words.tiles, DECODE_WARPS)?;
        words.tiles = words.tiles.saturating_add(place.tiles);
    }
    Ok(words)
}

fn report(stream: &Stream, jobs: &[Coded<'_>]) {
    let ordinal = stream.context().ordinal();
    for job in jobs {
        stream.saw_read("decoding", AccessedBytes::device(ordinal, job.stream, job.stored));
        let bytes = job.steps.reach(job.layout).unwrap_or_else(|| job.layout.bytes());
        stream.saw_write("decoding", AccessedBytes::device(ordinal, job.target, bytes));
    }
}

#[cfg(test)]
mod tests {
    use unspool_codec::Dtype;

    use super::*;
    use crate::steps::Steps;

    #[test]
    fn large_arrays_are_decoded_with_others_of_their_form_and_small_ones_together() {
        let layout = |dtype, shape: &[u64]| Layout::of(&dtype, shape).unwrap();
        let layouts = [
            layout(Dtype::Float32, &[900, 2048]),
            layout(Dtype::Float64, &[1]),
            layout(Dtype::Float32, &[900, 2048]),
            layout(Dtype::Float32, &[10]),
            layout(Dtype::Int16, &[900, 2048]),
        ];
        let jobs: Vec<Coded<'_>> = layouts
            .iter()
            .enumerate()
            .map(|(index, layout)| Coded {
                stream: index as u64,
                stored: 0,
                layout,
                target: 0,
                steps: Steps::default(),
            })
            .collect();
        let groups = |jobs, apart| -> Vec<Vec<u64>> {
            let groups = by_form(jobs, apart).into_iter();
            groups.map(|group| group.iter().map(|job| job.stream).collect()).collect()
        };
        assert_eq!(groups(&jobs, 1024), [vec![1, 3], vec![0, 2], vec![4]]);
        assert_eq!(groups(&jobs[..1], 1024), [vec![0]]);
        assert_eq!(groups(&jobs[1..2], 1024), [vec![1]]);
        assert_eq!(groups(&jobs, 4000), [vec![0, 2, 1, 3, 4]]);
        assert!(groups(&[], 1).is_empty());
    }
}
