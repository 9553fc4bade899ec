//! The kernels of Twine with the interface of `engine/gpu_codec/kernels/twine_*.cu`: the same words
//! in, the same bytes and results out, computed by the codec of the processor.

use std::sync::atomic::{AtomicU64, Ordering};

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Achieved, Bound, Dtype};

use crate::codes::{Code, Outcome};
use crate::memory::{Memory, Owner};

const INLINE: usize = 16;
const PIECES: usize = 32;
const JOB: usize = 20;
const ENTRY: usize = 8;
const PIECE: usize = 14;
const FIRST_JOB: usize = 14;

/// 64-bit words of an encoding launch, and of a decoding one.
pub(super) const ENCODE_WORDS: usize = FIRST_JOB + INLINE * (JOB + ENTRY);
pub(super) const DECODE_WORDS: usize = 4 + PIECES * PIECE;

const RAW: u32 = 0;
const EXACT: u32 = 1;
const STEP: u32 = 2;
const RANGE: u32 = 3;
const RMS: u32 = 4;
const RELATIVE: u32 = 5;

const AT: u32 = 0;
const AFTER: u32 = 1;

/// The launch of a call that encodes with guesses.
const FIRST_PASS: u32 = 1;

const DONE: u64 = 0;
const OVERFLOW: u64 = 1;
const REFUSED: u64 = 2;

const UNIT: u64 = 64;

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The division of an array, and the type of its values.
struct Cut {
    nx: u64,
    ny: u64,
    nz: u64,
    components: u32,
    profile: u32,
}

impl Cut {
    /// Parses the four words of a cut.
    fn of(words: &[u64]) -> Cut {
        let form = high(words[3]);
        Cut {
            nx: u64::from(high(words[0])),
            ny: u64::from(low(words[1])),
            nz: u64::from(high(words[1])),
            components: form >> 24,
            profile: form >> 16 & 0xff,
        }
    }

    /// The layout that these words describe.
    fn layout(&self, code: u32, n: u64) -> Outcome<Layout> {
        let known = Dtype::ALL.iter().find(|dtype| u32::from(dtype.code() & 0xff) == code);
        let opaque = Dtype::Opaque { itemsize: 1, tag: String::new() };
        let dtype = known.unwrap_or(&opaque);
        let plane = self.nx * self.ny;
        let shape = match self.profile {
            1 => vec![n / u64::from(self.components)],
            2 => vec![n / plane, 1, self.ny, self.nx],
            _ => vec![n / plane / self.nz, self.nz, self.ny, self.nx],
        };
        let layout = Layout::of(dtype, &shape).map_err(|_| Code::LAUNCH_FAILED)?;
        let fits = layout.n == n && layout.profile == self.profile;
        if fits { Ok(layout) } else { Err(Code::LAUNCH_FAILED) }
    }
}

/// Where the values of an array are: for each dimension, the outermost first, how many there are
/// and how far apart they are in bytes.
struct Places {
    unit: u64,
    dims: Vec<(u64, u64)>,
}

impl Places {
    /// Those of an array of this layout, whose steps the four words are.
    fn of(words: &[u64], layout: &Layout) -> Places {
        let unit = layout.value_bytes() as u64;
        let [nx, ny, nz] = [layout.nx, layout.ny, layout.nz].map(|n| u64::from(n).max(1));
        let rest = layout.n / (nx * ny * nz);
        let all = match layout.profile {
            1 => vec![(rest, 1)],
            _ => vec![(rest, words[3]), (nz, words[2]), (ny, words[1]), (nx, words[0])],
        };
        Places { unit, dims: all.into_iter().map(|(n, step)| (n, step * unit)).collect() }
    }

    /// Bytes from the first to the last, both included.
    fn reach(&self) -> u64 {
        match self.dims.iter().all(|&(n, _)| n > 0) {
            true => self.dims.iter().map(|&(n, step)| (n - 1) * step).sum::<u64>() + self.unit,
            false => 0,
        }
    }

    fn are_dense(&self) -> bool {
        let mut dense = self.unit;
        self.dims.iter().rev().all(|&(n, step)| {
            let fits = n <= 1 || step == dense;
            dense *= n;
            fits
        })
    }

    /// The values at these places from `first` on, one after the other.
    fn gather(&self, first: &[u8]) -> Vec<u8> {
        if self.are_dense() {
            return first.to_vec();
        }
        let unit = self.unit as usize;
        self.offsets().iter().flat_map(|&at| &first[at..at + unit]).copied().collect()
    }

    /// The offset of each value, in C order.
    fn offsets(&self) -> Vec<usize> {
        let mut all = vec![0];
        for &(n, step) in &self.dims {
            all = all.iter().flat_map(|at| (0..n).map(move |i| at + i * step)).collect();
        }
        all.into_iter().map(|at| at as usize).collect()
    }
}

/// A job of a launch.
struct Job<'a> {
    words: &'a [u64],
}

impl Job<'_> {
    fn source(&self) -> u64 {
        self.words[0]
    }

    fn n(&self) -> u64 {
        self.words[1]
    }

    fn rule(&self) -> u32 {
        high(self.words[7]) & 0xff
    }

    fn float(&self, index: usize) -> f64 {
        f64::from_bits(self.words[index])
    }

    fn layout(&self) -> Outcome<Layout> {
        Cut::of(&self.words[3..7]).layout(high(self.words[7]) >> 8 & 0xff, self.n())
    }

    fn method(&self) -> Outcome<Option<Bound>> {
        Ok(match self.rule() {
            EXACT => None,
            STEP => Some(Bound::Absolute(self.float(8))),
            RANGE => Some(Bound::Range(self.float(8))),
            RMS => Some(Bound::Rms(self.float(8))),
            RELATIVE => {
                let (bound, floor) = (self.float(8), self.float(10));
                Some(Bound::Pointwise { bound, floor })
            }
            _ => return Err(Code::LAUNCH_FAILED),
        })
    }
}

/// An encoding launch.
struct Launch {
    jobs: Vec<u64>,
    entries: Vec<u64>,
}

impl Launch {
    fn of(memory: &Memory, device: u32, words: &[u64]) -> Outcome<Launch> {
        let table = |address: u64, inline: usize, len: usize| match address {
            0 => Ok(words[inline..inline + len].to_vec()),
            _ => read_words(memory, device, address, len),
        };
        let (jobs, entries) = (low(words[10]) as usize, high(words[10]) as usize);
        let jobs = table(words[0], FIRST_JOB, jobs * JOB)?;
        let entries = table(words[1], FIRST_JOB + INLINE * JOB, entries * ENTRY)?;
        Ok(Launch { jobs, entries })
    }

    fn job(&self, number: usize) -> Job<'_> {
        Job { words: &self.jobs[number * JOB..][..JOB] }
    }
}

fn read_words(memory: &Memory, device: u32, address: u64, len: usize) -> Outcome<Vec<u64>> {
    memory.check_of(device, address, 8 * len as u64)?;
    // SAFETY: checked just now, under the lock that prevents freeing.
    Ok((0..len).map(|index| unsafe { (address as *const u64).add(index).read() }).collect())
}

fn check(memory: &Memory, device: u32, address: u64, len: u64) -> Outcome {
    if memory.owner(address, len.max(1)) == Ok(Owner::Pinned) {
        return Ok(());
    }
    memory.check_of(device, address, len)
}

/// Bytes that a kernel may access.
fn bytes<'a>(memory: &Memory, device: u32, address: u64, len: u64) -> Outcome<&'a [u8]> {
    check(memory, device, address, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: checked just now; the lock that prevents freeing is held while they are used.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) })
}

/// Writes the part of `from` that lies before `limit`.
fn write(memory: &Memory, device: u32, to: u64, from: &[u8], limit: u64) -> Outcome {
    let len = (from.len() as u64).min(limit.saturating_sub(to));
    if len == 0 {
        return Ok(());
    }
    check(memory, device, to, len)?;
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, len as usize) };
    Ok(())
}

/// Encodes all checkpoints, one after the other, in the last launch of a call.
pub(super) fn encode(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (jobs, pass, end_job) = (low(words[10]), high(words[11]), low(words[13]));
    if end_job < jobs || pass == FIRST_PASS {
        return Ok(());
    }
    let launch = Launch::of(memory, device, words)?;
    let mut end = 0;
    for entry in launch.entries.chunks_exact(ENTRY) {
        end = encode_entry(memory, device, &launch, entry, end)?;
    }
    Ok(())
}

/// Encodes one checkpoint, after one that ends at `before`; returns its end.
fn encode_entry(
    memory: &Memory,
    device: u32,
    launch: &Launch,
    entry: &[u64],
    before: u64,
) -> Outcome<u64> {
    let &[start, align, limit, slot, sequence, record, jobs, how] = entry else {
        return Err(Code::LAUNCH_FAILED);
    };
    let start = match low(how) {
        AT => start,
        AFTER => read_words(memory, device, start, 1)?[0].next_multiple_of(align),
        _ => before.next_multiple_of(align),
    };
    let (mut end, mut results) = (start, Vec::new());
    for number in low(jobs)..low(jobs) + high(jobs) {
        let at = end.next_multiple_of(UNIT);
        write(memory, device, end, &vec![0; (at - end) as usize], limit)?;
        let (stored, achieved) = encode_job(memory, device, launch, number as usize, at, limit)?;
        results.extend(job_result(at - start, stored, achieved));
        end = at + stored;
    }
    let fits = end <= limit;
    let status = if fits { DONE } else { OVERFLOW };
    let known_end = if fits { end } else { limit };
    write_words(memory, device, record, &[known_end, start, status])?;
    let head = [status, start, end - start];
    report(memory, device, slot, sequence, &[&head, results.as_slice()].concat())?;
    Ok(known_end)
}

/// Encodes a job that begins at `at`; returns its stored bytes and errors.
fn encode_job(
    memory: &Memory,
    device: u32,
    launch: &Launch,
    number: usize,
    at: u64,
    limit: u64,
) -> Outcome<(u64, Achieved)> {
    let job = launch.job(number);
    if job.rule() == RAW {
        let source = bytes(memory, device, job.source(), job.n())?;
        write(memory, device, at, source, limit)?;
        return Ok((job.n(), Achieved::default()));
    }
    let (layout, method) = (job.layout()?, job.method()?);
    let places = Places::of(&job.words[16..20], &layout);
    let source = bytes(memory, device, job.source(), places.reach())?;
    let source = places.gather(source);
    let mut stream = vec![0; twine::max_bytes(&layout) as usize];
    let encoded = twine::encode(&Array { layout, bound: method }, &source, &mut stream)
        .map_err(|_| Code::LAUNCH_FAILED)?;
    write(memory, device, at, &stream[..encoded.bytes as usize], limit)?;
    Ok((encoded.bytes, encoded.achieved))
}

fn job_result(offset: u64, stored: u64, achieved: Achieved) -> [u64; 6] {
    let Achieved { max_error, sum_sq_error, values, outliers } = achieved;
    [offset, stored, max_error.to_bits(), sum_sq_error.to_bits(), values, outliers]
}

/// Writes `words`.
fn write_words(memory: &Memory, device: u32, to: u64, words: &[u64]) -> Outcome {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    write(memory, device, to, &bytes, u64::MAX)
}

/// Writes the words of a slot, the first one last.
fn report(memory: &Memory, device: u32, slot: u64, sequence: u64, words: &[u64]) -> Outcome {
    write_words(memory, device, slot + 8, words)?;
    // SAFETY: the first word of the slot whose other words were checked just now.
    unsafe { AtomicU64::from_ptr(slot as *mut u64) }.store(sequence, Ordering::Release);
    Ok(())
}

/// Decodes all streams of a launch.
pub(super) fn decode(memory: &Memory, device: u32, words: &[u64]) -> Outcome {
    let (slot, sequence, pieces) = (words[0], words[1], high(words[3]) as usize);
    let mut whole = true;
    for piece in words[4..].chunks_exact(PIECE).take(pieces) {
        whole &= decode_piece(memory, device, piece)?;
    }
    let status = if whole { DONE } else { REFUSED };
    report(memory, device, slot, sequence, &[status, 0, 0])
}

/// Decodes a piece; returns whether its stream was intact.
fn decode_piece(memory: &Memory, device: u32, piece: &[u64]) -> Outcome<bool> {
    let &[stream, stored, target, n, _, _, _, _, _, dtype, ..] = piece else {
        return Err(Code::LAUNCH_FAILED);
    };
    let layout = Cut::of(&piece[4..8]).layout(low(dtype), n)?;
    let stream = bytes(memory, device, stream, stored)?;
    let mut array = vec![0; layout.bytes() as usize];
    let whole = twine::decode(&layout, stream, &mut array).is_ok();
    let places = Places::of(&piece[10..14], &layout);
    check(memory, device, target, places.reach())?;
    if whole && places.are_dense() {
        write(memory, device, target, &array, u64::MAX)?;
    } else if whole {
        let values = array.chunks_exact(layout.value_bytes());
        for (at, value) in places.offsets().into_iter().zip(values) {
            write(memory, device, target + at as u64, value, u64::MAX)?;
        }
    }
    Ok(whole)
}
