//! The arguments of the kernels, laid out as in `kernels/twine.cuh`; crate `fakecuda` reads them
//! too.

use crate::steps::Steps;

/// Jobs and checkpoints that fit into a launch's parameters; more of them go through device memory.
pub(super) const INLINE: usize = 16;
/// Maximum number of streams of one decoding launch.
pub(super) const PIECES: usize = 32;

/// Bytes of all sums of a job, and of the step that the device computes for it.
pub(super) const TALLY_BYTES: u64 = 192;
pub(super) const STEP_BYTES: u64 = 32;
/// 64-bit words for the sum of the squares of a job.
pub(super) const BINS: u64 = 128;

/// The launches of a call: `EncodeLaunch::pass`.
pub(super) mod pass {
    /// There is only one.
    pub const ONLY: u32 = 0;
    /// Encodes with guesses of the bounds that depend on the values.
    pub const FIRST: u32 = 1;
    /// Encodes again if a guess was wrong, and reports otherwise.
    pub const SECOND: u32 = 2;
}

/// The codes of a job: in the lowest byte of `Job::rule`.
pub(super) mod rule {
    /// The bytes as they are.
    pub const RAW: u32 = 0;
    /// Mode 0.
    pub const EXACT: u32 = 1;
    /// Mode 1, the step is known.
    pub const STEP: u32 = 2;
    /// Mode 1, the bound is a part of the range.
    pub const RANGE: u32 = 3;
    /// Mode 1, the bound is a part of the root mean square.
    pub const RMS: u32 = 4;
    /// Mode 2.
    pub const RELATIVE: u32 = 5;
}

/// The codes of a checkpoint's begin: `Entry::how`.
pub(super) mod how {
    /// At `start`.
    pub const AT: u32 = 0;
    /// After the record at `start`.
    pub const AFTER: u32 = 1;
    /// After the checkpoint before.
    pub const NEXT: u32 = 2;
}

/// The division of an array into chunks.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cut {
    pub(super) n_chunks: u32,
    pub(super) nx: u32,
    pub(super) ny: u32,
    pub(super) nz: u32,
    /// Chunks along x, y, z in profiles 2 and 3.
    pub(super) px: u32,
    pub(super) py: u32,
    pub(super) pz: u32,
    /// Bits of a value; its kind (0 float16, 1 bfloat16, 2 float32, 3 float64, 4 signed, 5
    /// unsigned); profile; components: a byte each, the first lowest.
    pub(super) form: u32,
}

/// An array to encode, or bytes to copy.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Job {
    pub(super) source: u64,
    /// Number of values; bytes of a raw job.
    pub(super) n: u64,
    /// Its first tile, and the number of its tiles.
    pub(super) tile0: u32,
    pub(super) tiles: u32,
    pub(super) cut: Cut,
    /// Index of its checkpoint.
    pub(super) entry: u32,
    /// See [`rule`]; the dtype's code in the second byte.
    pub(super) rule: u32,
    /// Mode 1: the absolute bound, or the factor; mode 2: the relative bound.
    pub(super) bound: f64,
    pub(super) e: f64,
    /// Mode 1: the step; mode 2: the floor.
    pub(super) step: f64,
    pub(super) inv: f64,
    pub(super) floor_bits: u64,
    pub(super) kept: u32,
    pub(super) shift: u32,
    /// Where the bound depends on the values: the address of the guess of it.
    pub(super) guess: u64,
    /// Where the bound depends on the squares of the values: the address of their sums.
    pub(super) bins: u64,
    pub(super) steps: Steps,
}

/// A checkpoint.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Entry {
    /// An address, or the address of a record.
    pub(super) start: u64,
    pub(super) align: u64,
    pub(super) limit: u64,
    pub(super) slot: u64,
    pub(super) sequence: u64,
    pub(super) record: u64,
    pub(super) job0: u32,
    pub(super) jobs: u32,
    pub(super) how: u32,
    /// The checkpoint that begins its chain: the last one up to it that is not [`how::NEXT`].
    pub(super) head: u32,
}

/// A launch that encodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodeLaunch {
    /// Addresses of jobs and checkpoints in device memory; 0 when they are in the fields below.
    pub(super) job_table: u64,
    pub(super) entry_table: u64,
    /// Words of the status of each tile, and of each job.
    pub(super) status: u64,
    pub(super) totals: u64,
    /// For each job its sums, and its step.
    pub(super) sums: u64,
    pub(super) steps: u64,
    /// A counter for each checkpoint, and the ticket counter.
    pub(super) counts: u64,
    pub(super) ticket: u64,
    /// How much the guesses of bounds are doubted in calls like this.
    pub(super) doubt: u64,
    /// The value of the ticket counter before the launch.
    pub(super) first_ticket: u32,
    /// One past the launch's last tile.
    pub(super) end_tile: u32,
    /// Number of jobs of the call, of which the launch may be a part.
    pub(super) jobs: u32,
    pub(super) entries: u32,
    /// Distinguishes the words of this call from those of older ones.
    pub(super) epoch: u32,
    /// See [`pass`].
    pub(super) pass: u32,
    pub(super) first_tile: u32,
    /// The launch's jobs: the first, and one past the last.
    pub(super) first_job: u32,
    pub(super) end_job: u32,
    /// The increment of the ticket counter by a launch that encodes.
    pub(super) tickets: u32,
    pub(super) inline_jobs: [Job; INLINE],
    pub(super) inline_entries: [Entry; INLINE],
}

/// A stream to decode.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Piece {
    pub(super) stream: u64,
    pub(super) stored: u64,
    pub(super) target: u64,
    pub(super) n: u64,
    pub(super) cut: Cut,
    pub(super) tile0: u32,
    pub(super) tiles: u32,
    /// The dtype's code.
    pub(super) dtype: u32,
    pub(super) zero: u32,
    pub(super) steps: Steps,
}

/// A launch that decodes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodeLaunch {
    pub(super) slot: u64,
    pub(super) sequence: u64,
    /// Two 32-bit counters that start at 0: tiles that are done, and damaged ones.
    pub(super) counts: u64,
    pub(super) tiles: u32,
    pub(super) pieces: u32,
    pub(super) piece: [Piece; PIECES],
}

// A kernel's parameters are limited to 4 KiB.
const _: () = {
    assert!(size_of::<Job>() == 160 && size_of::<Entry>() == 64 && size_of::<Piece>() == 112);
    assert!(size_of::<EncodeLaunch>() == 72 + 40 + INLINE * (160 + 64));
    assert!(size_of::<EncodeLaunch>() <= 4096 && size_of::<DecodeLaunch>() <= 4096);
};
