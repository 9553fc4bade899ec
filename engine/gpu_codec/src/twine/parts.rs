//! The division of a call into launches. The kernels for one form are several times as fast as
//! those that take every array, so large arrays of different forms get their own launches, one
//! after the other on the stream; each reads the end of the ones before from device memory.

use std::ops::Range;

use super::modules::{Special, Task, Tiles, Variant};
use super::plan::{ANY_KIND, FLOAT32, FLOAT64, RAW_BYTES, form};
use super::words::{Job, rule};

/// Minimum number of chunks for which a variant for one form is compiled.
const MANY_CHUNKS: u64 = 128;
/// Minimum number of chunks for which the gain of a variant exceeds the cost of another launch.
pub(super) const WORTH_A_LAUNCH: u64 = 1024;

/// The limits that determine the division of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Warps of a tile; `None` for a choice by the size of a launch.
    pub(super) warps: Option<u32>,
    /// Warps that the device runs concurrently.
    pub(super) room: u32,
    /// Minimum number of chunks for which arrays of one form get their own launch.
    pub(super) apart: u64,
}

/// A launch for adjacent jobs of a call.
#[derive(Clone, Debug)]
pub(super) struct LaunchPart {
    pub(super) jobs: Range<usize>,
    pub(super) tiles: Range<u32>,
    /// Whether there are values of 64 bits.
    pub(super) wide: bool,
    /// Warps of a tile.
    pub(super) warps: u32,
    /// The common properties of all arrays, where a variant for them is worth it.
    pub(super) special: Option<Special>,
    /// How tiles are assigned to blocks.
    way: Tiles,
}

/// Adjacent jobs, of one form or of several.
#[derive(Clone, PartialEq, Eq, Debug)]
struct JobRun {
    jobs: Range<usize>,
    /// Chunks of arrays, including units of bytes to copy.
    coded: u64,
    chunks: u64,
    form: Option<Special>,
}

impl LaunchPart {
    /// Divides jobs into launches, whose tiles are not set yet.
    pub(super) fn all_of(jobs: &[Job], ways: &Ways) -> Vec<LaunchPart> {
        runs(jobs, ways.apart).into_iter().map(|run| LaunchPart::of(jobs, run, ways)).collect()
    }

    fn of(jobs: &[Job], run: JobRun, ways: &Ways) -> LaunchPart {
        let own = &jobs[run.jobs.clone()];
        let wide = own.iter().any(|job| !is_raw(job) && job.cut.form & 0xff == 64);
        let special = run.form.filter(|_| is_worth_a_variant(run.coded));
        let suited = match special {
            None => Variant::encoder(wide).warps,
            // Two would suit the smallest arrays as well, but not enough to ship another variant.
            Some(special) if wide || is_shared(special.form) => 4,
            Some(_) => warps_for(run.chunks, ways.room),
        };
        let most = if wide { 4 } else { 8 };
        let warps = ways.warps.unwrap_or(suited).min(most);
        LaunchPart { jobs: run.jobs, tiles: 0..0, wide, warps, special, way: Tiles::Many }
    }

    /// The number of tiles.
    pub(super) fn count(&self) -> u32 {
        self.tiles.end - self.tiles.start
    }

    /// Sets its tiles, once those of its jobs are known, on a device that runs `room` warps
    /// concurrently.
    pub(super) fn take_tiles(&mut self, tiles: Range<u32>, jobs: &[Job], room: u32) {
        self.tiles = tiles;
        let has_both = self.special.is_none_or(|special| !is_shared(special.form));
        let is_short = has_both && self.is_short(jobs, self.variant().blocks_at_once(room));
        self.way = if is_short { Tiles::Own } else { Tiles::Many };
    }

    /// The variant of the encoder that suits it best.
    pub(super) fn variant(&self) -> Variant {
        let LaunchPart { wide, warps, special, way: tiles, .. } = *self;
        Variant { warps, tiles, special, ..Variant::encoder(wide) }
    }

    /// Whether each block gets the tile of its number, on a device that runs `blocks` blocks
    /// concurrently. Blocks that take several tiles are faster, but have to write the words that
    /// they keep before they go on to another region: that costs as much time as they gain in two
    /// rounds of all blocks, and proportionally less for small regions (measured on an H100).
    fn is_short(&self, jobs: &[Job], blocks: u32) -> bool {
        let blocks = u64::from(blocks);
        let gap = |job: &Job| (blocks / 4 + 2 * u64::from(job.tiles)).min(2 * blocks);
        let gaps: u64 = jobs[self.jobs.clone()].iter().skip(1).map(gap).sum();
        u64::from(self.count()) <= blocks + gaps
    }
}

/// The form of the variants for arrays of a form, if there are any: not for complex numbers and
/// integers of 64 bits. float32 and float64 have their own; others with as many bits share theirs.
pub(super) fn variant_form(of: u32) -> Option<u32> {
    let [bits, kind, profile, components] = of.to_le_bytes().map(u32::from);
    let has_own = [FLOAT32, FLOAT64].contains(&kind);
    let is_there = components == 1 && (has_own || bits < 64);
    is_there.then(|| form(bits, if has_own { kind } else { ANY_KIND }, profile, 1))
}

/// Whether the variants of a form are for values of several kinds.
pub(super) fn is_shared(form: u32) -> bool {
    form >> 8 & 0xff == ANY_KIND
}

/// Whether a variant is worth it for that many chunks.
pub(super) fn is_worth_a_variant(chunks: u64) -> bool {
    chunks >= MANY_CHUNKS
}

fn is_raw(job: &Job) -> bool {
    job.rule & 0xff == rule::RAW
}

/// Groups the jobs by their common properties: a group with fewer chunks than `apart` is general,
/// unless it is the only one.
fn runs(jobs: &[Job], apart: u64) -> Vec<JobRun> {
    let alone = jobs.iter().zip(forms(jobs)).enumerate().map(|(number, (job, form))| {
        let chunks = chunks_of(job);
        let coded = if is_raw(job) { 0 } else { chunks };
        JobRun { jobs: number..number + 1, coded, chunks, form }
    });
    let mut runs = joined(alone);
    if runs.len() > 1 {
        runs.iter_mut().filter(|run| run.coded < apart).for_each(|run| run.form = None);
    }
    joined(runs)
}

/// Merges adjacent runs of the same form.
fn joined(runs: impl IntoIterator<Item = JobRun>) -> Vec<JobRun> {
    let mut all: Vec<JobRun> = Vec::new();
    for run in runs {
        match all.last_mut().filter(|last| last.form == run.form) {
            Some(last) => {
                last.jobs.end = run.jobs.end;
                last.coded += run.coded;
                last.chunks += run.chunks;
            }
            None => all.push(run),
        }
    }
    all
}

/// The variant for each job, if one exists. Every kernel can copy: a raw job takes that of the
/// array before it, or of the first one.
fn forms(jobs: &[Job]) -> Vec<Option<Special>> {
    let mut form = jobs.iter().find(|job| !is_raw(job)).and_then(form_of);
    let known = |job| {
        if !is_raw(job) {
            form = form_of(job);
        }
        form
    };
    jobs.iter().map(known).collect()
}

/// Form and task of an array, if a variant for it exists.
fn form_of(job: &Job) -> Option<Special> {
    let task = match job.rule & 0xff {
        rule::EXACT => Task::Exact,
        rule::STEP => Task::Quantise,
        rule::RANGE | rule::RMS => Task::Measure,
        _ => return None,
    };
    variant_form(job.cut.form).map(|form| Special { form, task: Some(task) })
}

/// Chunks of an array, or units of bytes to copy.
fn chunks_of(job: &Job) -> u64 {
    if is_raw(job) { job.n / RAW_BYTES } else { u64::from(job.cut.n_chunks) }
}

/// Few warps per tile fill the device soonest; many shorten the look-back where each block has one
/// tile. With more chunks than concurrent warps, blocks of four warps wait least for each other.
fn warps_for(chunks: u64, room: u32) -> u32 {
    let room = u64::from(room);
    match chunks {
        _ if chunks > room => 4,
        _ if 8 * chunks <= room => 2,
        _ if 3 * chunks <= room => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::form;
    use super::super::words::Cut;
    use super::*;

    #[test]
    fn blocks_go_on_where_regions_are_large_enough_to_gain_by_it() {
        let is_short = |tiles: &[u32]| {
            let jobs: Vec<Job> =
                tiles.iter().map(|&tiles| Job { tiles, ..Job::default() }).collect();
            let run = JobRun { jobs: 0..jobs.len(), coded: 0, chunks: 0, form: None };
            let ways = Ways { warps: None, room: 0, apart: 0 };
            let mut part = LaunchPart::of(&jobs, run, &ways);
            part.take_tiles(7..7 + tiles.iter().sum::<u32>(), &jobs, 100 * part.warps);
            part.variant().tiles == Tiles::Own
        };
        assert!(is_short(&[1]) && is_short(&[100]) && !is_short(&[101]));
        assert!(is_short(&[50, 50]) && is_short(&[100; 16]), "each has one round");
        assert!(is_short(&[2; 1000]) && !is_short(&[220; 16]));
        // Small arrays beside a large one.
        assert!(!is_short(&[10_000, 2, 2, 2]) && !is_short(&[2, 2, 2, 10_000]));
    }

    /// An array of float32, lossless, with this profile and number of chunks.
    fn array((profile, n_chunks): (u32, u32)) -> Job {
        let form = form(32, FLOAT32, profile, 1);
        Job { rule: rule::EXACT, cut: Cut { n_chunks, form, ..Cut::default() }, ..Job::default() }
    }

    fn parts(jobs: &[Job], apart: u64) -> Vec<(Range<usize>, bool)> {
        let parts = LaunchPart::all_of(jobs, &Ways { warps: None, room: 2112, apart });
        parts.into_iter().map(|part| (part.jobs, part.special.is_some())).collect()
    }

    #[test]
    fn large_arrays_of_another_form_get_a_launch_and_small_ones_share_the_general_one() {
        let arrays = |all: &[(u32, u32)]| all.iter().copied().map(array).collect::<Vec<_>>();
        let least = WORTH_A_LAUNCH;
        assert_eq!(parts(&arrays(&[(2, 100), (2, 100)]), least), [(0..2, true)]);
        assert_eq!(parts(&arrays(&[(2, 100)]), least), [(0..1, false)], "too few for a variant");
        let many = arrays(&[(3, 2000), (2, 10), (1, 1), (3, 2000), (3, 1), (2, 1500)]);
        let expected = [(0..1, true), (1..3, false), (3..5, true), (5..6, true)];
        assert_eq!(parts(&many, least), expected);
        assert_eq!(parts(&many, u64::MAX), [(0..6, false)]);
        assert_eq!(parts(&arrays(&[(3, 900), (2, 900), (3, 900)]), least), [(0..3, false)]);
        assert_eq!(parts(&arrays(&[(3, 1), (2, 1), (2, 1)]), 0), [(0..1, false), (1..3, false)]);
    }

    #[test]
    fn what_is_copied_needs_no_launch_of_its_own() {
        let raw = Job { rule: rule::RAW, n: 1 << 30, ..Job::default() };
        let relative = Job { rule: rule::RELATIVE, ..array((2, 2000)) };
        let least = WORTH_A_LAUNCH;
        assert_eq!(parts(&[raw], least), [(0..1, false)]);
        assert_eq!(parts(&[raw, array((2, 2000)), raw], least), [(0..3, true)]);
        assert_eq!(
            parts(&[array((3, 10)), raw, array((2, 2000))], least),
            [(0..2, false), (2..3, true)]
        );
        let mixed = [array((2, 2000)), raw, relative, raw, array((2, 2000))];
        assert_eq!(parts(&mixed, least), [(0..2, true), (2..4, false), (4..5, true)]);
    }
}
