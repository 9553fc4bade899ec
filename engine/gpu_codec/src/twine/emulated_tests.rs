//! The kernels' text compiled for the processor against the codec of the processor: the same bytes,
//! the same places, the same decoded values, and no access outside of a damaged stream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use unspool_codec::twine::{self, Layout};
use unspool_codec::{Bound, Dtype};

use super::decode::words_of;
use super::fields::{Dice, Region, array, damage, label, region, spread, steps};
use super::job::Coded;
use super::modules::{COMMON, DECODE_WARPS, Kernel, Special, Task, Tiles, Variant};
use super::parts::Ways;
use super::plan::LaunchPlan;
use super::words::{BINS, DecodeLaunch, EncodeLaunch, INLINE, pass};
use super::{Places, words_at};
use crate::codec::{EncodeJob, GpuLayout, StoredCheckpoint};
use crate::pending::Start;
use crate::steps::Steps;

/// Warps of a tile of the encoder, words of its chunks that a warp keeps, concurrent blocks, and
/// threads that run them.
const WARPS: u32 = 2;
const KEPT: u32 = 500;
const MOST_BLOCKS: u32 = 3;
const WORKERS: u32 = 2;

/// The bytes of a region at an address that an array of its kind may have: any multiple of its
/// values' size; dense or not.
pub(super) struct Source {
    bytes: Vec<u8>,
    first: usize,
    steps: Option<Steps>,
}

impl Source {
    pub(super) fn new(region: &Region, dice: &mut Dice) -> Source {
        let unit = region.spec.map_or(1, |spec| spec.layout.value_bytes());
        let steps = region.spec.and_then(|spec| steps(dice, &spec.layout));
        let memory = match region.spec {
            Some(spec) => spread(region.bytes(), &spec.layout, steps, GUARD),
            None => region.bytes().to_vec(),
        };
        let mut bytes = vec![0; memory.len() + 64];
        let aligned = bytes.as_ptr().addr().next_multiple_of(16) - bytes.as_ptr().addr();
        let first = aligned + dice.pick(&[0, 0, 1, 2, 3]) * unit;
        bytes[first..first + memory.len()].copy_from_slice(&memory);
        Source { bytes, first, steps }
    }

    pub(super) fn job(&self, region: &Region) -> EncodeJob {
        let bytes = region.bytes as u64;
        let layout = region.spec.map_or(GpuLayout::Raw { bytes }, GpuLayout::Twine);
        let source = (self.bytes.as_ptr().addr() + self.first) as u64;
        EncodeJob { source, steps: self.steps, layout }
    }
}

type Encode = unsafe extern "C" fn(*const EncodeLaunch, u32, u32);
/// A function of the emulated encoder.
pub(super) type Part = unsafe extern "C" fn(*const EncodeLaunch);
type Decode = unsafe extern "C" fn(*const DecodeLaunch, u32, u32);

pub(super) struct Kernels {
    pub(super) warps: u32,
    pub(super) encode: libloading::Library,
    decode: libloading::Library,
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Entry points for single parts: the block that adds up sizes, and the look-back from the last
/// tile, with the sum at the end of the first job.
const PARTS: &str = "
    static void add_all(EncodeLaunch a) { if (threadIdx.x < 32) add_up(a, threadIdx.x); }
    extern \"C\" void add(const EncodeLaunch *launch) { run_blocks(add_all, *launch, 1, 1); }
    static void look_from_last(EncodeLaunch a) {
        __shared__ Shared shared;
        shared.job.tile0 = a.inline_jobs[0].tile0;
        __syncthreads();
        u64 sum = look_back(a, shared, a.end_tile - 1, threadIdx.x / 32, threadIdx.x % 32);
        if (threadIdx.x == 0) *(u64 *)a.totals = sum;
    }
    extern \"C\" void look(const EncodeLaunch *launch) {
        run_blocks(look_from_last, *launch, 1, 1);
    }";

fn build(
    folder: &Path,
    kernel: Kernel,
    (warps, kept): (u32, u32),
    head: &str,
) -> Option<libloading::Library> {
    let launch = if kernel == Kernel::Decode { "DecodeLaunch" } else { "EncodeLaunch" };
    let name = kernel.name();
    let run = format!(
        "extern \"C\" void run(const {launch} *launch, unsigned blocks, unsigned workers) {{\n\
         run_blocks<{launch}>((void (*)({launch})){name}, *launch, blocks, workers);\n}}\n"
    );
    let run = if kernel == Kernel::Encode { run + PARTS } else { run };
    let texts = [include_str!("emulated.cpp"), COMMON, kernel.text()].concat();
    // Without arrays of 64 bits, shared memory is as small as on a device.
    let narrow = ["20u", "10u", "08u", "NARROW"].iter().any(|form| head.contains(form));
    let wide = u32::from(!narrow);
    let front = format!("#define WIDE {wide}\n#define WARPS {warps}\n#define KEPT {kept}\n");
    let whole = [&front, head, &texts, &run].concat();
    let built = compiled(&folder.join(name), &whole)?;
    // Each test has a copy of its own: a library has one state.
    let library = folder.join(format!("{name}-own.so"));
    std::fs::write(&library, &*built).unwrap();
    // SAFETY: made just now from our text, which has no initialisers.
    Some(unsafe { libloading::Library::new(&library) }.unwrap())
}

/// The library of a text, which is compiled once: it takes as long as most tests.
fn compiled(place: &Path, text: &str) -> Option<Arc<Vec<u8>>> {
    type Once = Arc<OnceLock<Option<Arc<Vec<u8>>>>>;
    static KNOWN: Mutex<BTreeMap<String, Once>> = Mutex::new(BTreeMap::new());
    let once = Arc::clone(KNOWN.lock().unwrap().entry(text.to_owned()).or_default());
    once.get_or_init(|| {
        let (source, library) = (place.with_extension("cpp"), place.with_extension("so"));
        std::fs::write(&source, text).unwrap();
        let compile = |compiler: &str| {
            let mut command = Command::new(compiler);
            command.args(["-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-ffp-contract=off", "-w"]);
            // A shift by all bits or more is another number on a device.
            command.args(["-fsanitize=shift", "-fsanitize-undefined-trap-on-error"]);
            command.args(["-fno-strict-aliasing", "-shared", "-fPIC", "-pthread", "-o"]);
            command.arg(&library).arg(&source).output().ok()
        };
        let output = ["c++", "g++", "clang++"].into_iter().find_map(compile)?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Arc::new(std::fs::read(&library).unwrap()))
    })
    .clone()
}

/// The kernels with `head` in front of their text, or `None` where there is no C++ compiler.
pub(super) fn kernels(head: &str) -> Option<Kernels> {
    kernels_of(WARPS, KEPT, head)
}

/// Kernels whose encoders have `warps` warps that keep `kept` words.
pub(super) fn kernels_of(warps: u32, kept: u32, head: &str) -> Option<Kernels> {
    let folder = Folder(tempfile::tempdir().unwrap().keep());
    let found = std::thread::scope(|scope| {
        let build = |kernel, warps| {
            let folder = &folder.0;
            scope.spawn(move || build(folder, kernel, (warps, kept), head))
        };
        let all = [build(Kernel::Encode, warps), build(Kernel::Decode, DECODE_WARPS)];
        all.map(|thread| thread.join().unwrap())
    });
    let [encode, decode] = found;
    Some(Kernels { warps, encode: encode?, decode: decode? })
}

pub(super) fn skipped() {
    assert!(Command::new("c++").output().is_err(), "there is a compiler, and it was not used");
}

/// The memory of launches, reused by one after the other.
pub(super) struct Scratch {
    pub(super) words: Vec<u64>,
    pub(super) tables: Vec<u64>,
    pub(super) ticket: u32,
    pub(super) epoch: u32,
    /// The guess of each job's bound, after the doubt about them; and what they are set to before a
    /// call, if they are not left as the call before has set them.
    pub(super) guesses: Vec<u64>,
    pub(super) guess: Option<Guess>,
    /// How tiles are assigned to blocks, and whether the kernels are compiled for that.
    pub(super) tiles: Tiles,
    pub(super) compiled: bool,
    /// Number of concurrent blocks, and of threads that run them.
    pub(super) blocks: u32,
    pub(super) workers: u32,
    /// Minimum number of chunks for which arrays of one form get their own launch.
    pub(super) apart: u64,
    /// Number of launches so far.
    pub(super) launches: u64,
    /// Maximum number of regions of a checkpoint of a batch.
    pub(super) regions: u64,
}

const JOBS: usize = 64;
/// Words of the sums of a job.
const TALLY: usize = 24;
const TILES: usize = 4096;

impl Scratch {
    pub(super) fn new() -> Scratch {
        let words = vec![0; 8 + JOBS * (1 + 1 + TALLY + 4) + TILES];
        Scratch {
            words,
            tables: vec![0; JOBS * 24],
            ticket: 0,
            epoch: 0,
            guesses: vec![0; 1 + JOBS],
            guess: None,
            tiles: Tiles::Many,
            compiled: false,
            blocks: MOST_BLOCKS,
            workers: WORKERS,
            apart: u64::MAX,
            launches: 0,
            regions: 3,
        }
    }

    pub(super) fn places(&self) -> Places {
        let at = |word: usize| self.words.as_ptr().addr() as u64 + 8 * word as u64;
        let (ticket, totals, counts) = (at(0), at(8), at(8 + JOBS));
        let (sums, steps) = (at(8 + 2 * JOBS), at(8 + (2 + TALLY) * JOBS));
        let status = at(8 + (2 + TALLY + 4) * JOBS);
        Places { ticket, totals, counts, sums, steps, status, tables: None }
    }

    /// Runs a plan whose entries have their places.
    pub(super) fn run(&mut self, kernels: &Kernels, plan: &mut LaunchPlan, in_tables: bool) {
        let bins = vec![0u64; (BINS * plan.squares) as usize];
        let guesses = self.guesses.as_ptr().addr() as u64;
        plan.measure_at(|_, _| 0, bins.as_ptr().addr() as u64);
        for (number, job) in (1..).zip(&mut plan.jobs) {
            job.guess = guesses + 8 * number;
        }
        let mut places = self.places();
        if in_tables {
            places.tables = Some((plan.jobs.as_ptr() as u64, plan.entries.as_ptr() as u64));
        }
        self.epoch += 2;
        let mut words = EncodeLaunch { doubt: guesses, ..words_at(plan, &places, self.epoch) };
        let passes: &[u32] =
            if plan.measures { &[pass::FIRST, pass::SECOND] } else { &[pass::ONLY] };
        for (&pass, epoch) in passes.iter().zip(self.epoch..) {
            (words.pass, words.epoch) = (pass, epoch);
            self.run_parts(kernels, plan, &mut words);
        }
        assert!(self.tables.iter().all(|&word| word == 0));
        assert!(bins.iter().all(|&word| word == 0));
        self.assert_counters_are_reset();
    }

    fn run_parts(&mut self, kernels: &Kernels, plan: &LaunchPlan, words: &mut EncodeLaunch) {
        for part in &plan.parts {
            let special = self.compiled.then_some(Special { form: 0, task: None });
            let variant = Variant { tiles: self.tiles, special, ..Variant::encoder(true) };
            let (blocks, tickets) = variant.blocks(part.count(), self.blocks);
            words.first_ticket = self.ticket;
            words.is_for(part, tickets);
            self.launches += 1;
            self.ticket = self.ticket.wrapping_add(tickets);
            // SAFETY: our own text with its types; all memory that the words name is allocated.
            unsafe {
                let encode = kernels.encode.get::<Encode>(b"run").unwrap();
                encode(std::ptr::from_ref(words), blocks, self.workers);
            }
            assert_eq!(self.words[0] as u32, self.ticket, "the ticket counter");
        }
    }

    /// Begins and sizes may keep their values.
    fn assert_counters_are_reset(&self) {
        assert_eq!(self.words[8 + JOBS..8 + 2 * JOBS], [0; JOBS]);
        for tally in self.words[8 + 2 * JOBS..8 + (2 + TALLY) * JOBS].chunks(TALLY) {
            let [first, second, found] = [0, 8, 16].map(|at| &tally[at..at + 8]);
            assert!(found.iter().all(|&word| word == 0), "{found:?}");
            for sums in [first, second] {
                assert_eq!((&sums[..3], sums[5] as u32), (&[0; 3][..], 0));
            }
        }
    }

    /// Whether the last call has encoded twice.
    pub(super) fn has_encoded_again(&self) -> bool {
        self.words[1] as u32 == self.epoch
    }
}

pub(super) const GUARD: u8 = 0x5a;

/// A buffer of `len` bytes at a multiple of 512 with guards on both sides.
pub(super) struct Room {
    bytes: Vec<u8>,
    first: usize,
    pub(super) len: usize,
}

impl Room {
    pub(super) fn new(len: usize) -> Room {
        let bytes = vec![GUARD; len + 4096];
        let first = 1024 + (512 - bytes.as_ptr().addr() % 512) % 512;
        Room { bytes, first, len }
    }

    pub(super) fn address(&self) -> u64 {
        (self.bytes.as_ptr().addr() + self.first) as u64
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.bytes[self.first..self.first + self.len]
    }

    pub(super) fn guards_are_whole(&self) -> bool {
        let (before, after) = (&self.bytes[..self.first], &self.bytes[self.first + self.len..]);
        before.iter().chain(after).all(|&byte| byte == GUARD)
    }
}

/// The guess of a bound from the right one; from 0 the doubt about guesses.
pub(super) type Guess = fn(&mut Dice, u64) -> u64;

fn as_word(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |_, &word| u64::from_le_bytes(word))
}

/// Makes a region.
pub(super) type Make = fn(&mut Dice) -> Region;

/// Encodes checkpoints one after the other, and checks the place of each region.
pub(super) fn check_batch(kernels: &Kernels, scratch: &mut Scratch, seed: u64, make: Make) {
    let dice = &mut Dice(seed);
    let checkpoints: Vec<Vec<Region>> = (0..1 + dice.below(3))
        .map(|_| (0..1 + dice.below(scratch.regions)).map(|_| make(dice)).collect())
        .collect();
    let align = dice.pick(&[64, 256, 512]);
    let (mut expected, mut right) = (Vec::new(), Vec::new());
    let (mut results, mut gaps) = (Vec::new(), Vec::new());
    for regions in &checkpoints {
        let end = expected.len();
        expected.resize(end.next_multiple_of(align as usize), GUARD);
        let start = expected.len();
        gaps.push(end..start);
        let mut words = vec![0, start as u64, 0];
        for (number, region) in regions.iter().enumerate() {
            let (stream, achieved) = region.expected();
            if number > 0 {
                expected.resize(expected.len().next_multiple_of(64), 0);
            }
            words.extend([(expected.len() - start) as u64, stream.len() as u64]);
            words.extend([achieved.max_error.to_bits(), achieved.sum_sq_error.to_bits()]);
            words.extend([achieved.values * u64::from(region.spec.is_some()), achieved.outliers]);
            right.push(stream.get(16..24).map_or(0, as_word));
            expected.extend(stream);
        }
        words[2] = (expected.len() - start) as u64;
        results.push(words);
    }
    let room = Room::new(expected.len());
    let sources: Vec<Vec<Source>> = checkpoints
        .iter()
        .map(|regions| regions.iter().map(|region| Source::new(region, dice)).collect())
        .collect();
    let jobs: Vec<Vec<EncodeJob>> = checkpoints
        .iter()
        .zip(&sources)
        .map(|(regions, sources)| {
            regions.iter().zip(sources).map(|(region, source)| source.job(region)).collect()
        })
        .collect();
    let limit = room.address() + room.len as u64;
    let asked: Vec<StoredCheckpoint<'_>> = jobs
        .iter()
        .enumerate()
        .map(|(number, jobs)| {
            let at = room.address() + results[number][1];
            let start = if number > 0 { Start::Next { align } } else { Start::At(at) };
            StoredCheckpoint { jobs, start, limit }
        })
        .collect();
    let ways = Ways { warps: Some(kernels.warps), room: 0, apart: scratch.apart };
    let mut plan = LaunchPlan::of(&asked, &ways).unwrap();
    let slots: Vec<Vec<u64>> = jobs.iter().map(|jobs| vec![0; 4 + 6 * jobs.len()]).collect();
    let records = vec![0u64; 4 * jobs.len()];
    for (number, entry) in plan.entries.iter_mut().enumerate() {
        entry.start = room.address() + results[number][1];
        entry.slot = slots[number].as_ptr().addr() as u64;
        entry.record = records.as_ptr().addr() as u64 + 32 * number as u64;
        entry.sequence = seed + 1;
        // A chain that begins after the result of an earlier launch.
        if entry.how == super::words::how::AT && dice.below(2) == 0 && number == 0 {
            entry.how = super::words::how::AFTER;
            let older = Box::leak(Box::new([entry.start - dice.below(64), 0, 0, 0]));
            entry.start = older.as_ptr().addr() as u64;
        }
    }
    let in_tables = dice.below(3) == 0 || plan.jobs.len() > INLINE;
    if let Some(guess) = scratch.guess {
        let all = [0].iter().chain(&right).zip(&mut scratch.guesses);
        all.for_each(|(&right, to)| *to = guess(dice, right));
    }
    scratch.run(kernels, &mut plan, in_tables);
    for gap in gaps.into_iter().filter(|_| plan.measures) {
        // Guesses may have written there.
        expected[gap.clone()].copy_from_slice(&room.content()[gap]);
    }
    let what = || {
        format!("seed {seed}: {:?}", checkpoints.iter().flatten().map(label).collect::<Vec<_>>())
    };
    assert!(room.guards_are_whole(), "{}", what());
    for (number, slot) in slots.iter().enumerate() {
        compare_result(slot, &results[number], room.address(), seed + 1, &what());
    }
    let same = room.content().iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(same, None, "{}", what());
}

/// Rounds of each test; the environment variable `TWINE_ROUNDS` sets more.
pub(super) fn rounds() -> u64 {
    std::env::var("TWINE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40)
}

/// Compares a slot with the expected one: the sum of squares within rounding, the rest exactly.
fn compare_result(slot: &[u64], expected: &[u64], base: u64, sequence: u64, what: &str) {
    assert_eq!((slot[0], slot[1]), (sequence, 0), "{what}");
    assert_eq!((slot[2] - base, slot[3]), (expected[1], expected[2]), "{what}");
    for (job, words) in slot[4..].chunks(6).zip(expected[3..].chunks(6)) {
        assert_eq!(
            (job[0], job[1], f64::from_bits(job[2]), job[4], job[5]),
            (words[0], words[1], f64::from_bits(words[2]), words[4], words[5]),
            "{what}"
        );
        let (got, want) = (f64::from_bits(job[3]), f64::from_bits(words[3]));
        let near = got == want || (got - want).abs() <= want.abs() * 1e-4;
        assert!(near, "{got} {want} {what}");
    }
}

#[test]
fn the_kernels_write_the_bytes_of_the_codec() {
    let Some(kernels) = kernels("") else { return skipped() };
    let mut scratch = Scratch::new();
    for seed in 0..rounds() {
        scratch.tiles = if seed % 3 == 0 { Tiles::Own } else { Tiles::Many };
        scratch.apart = [u64::MAX, 0, 2][seed as usize / 3 % 3];
        check_batch(&kernels, &mut scratch, seed, region);
    }
    assert!(scratch.launches > rounds() + rounds() / 4, "{} launches", scratch.launches);
}

/// Decodes streams and returns the status.
fn decode(kernels: &Kernels, jobs: &[Coded<'_>]) -> u64 {
    let (slot, counts) = (vec![0u64; 4], vec![0u64; 1]);
    let places = (slot.as_ptr().addr() as u64, 9, counts.as_ptr().addr() as u64);
    let words = words_of(jobs, places).unwrap();
    // SAFETY: our own text with its types; all memory that the words name is allocated.
    unsafe {
        let run = kernels.decode.get::<Decode>(b"run").unwrap();
        run(&raw const words, words.tiles, WORKERS);
    }
    assert_eq!((slot[0], counts[0]), (9, 0));
    slot[1]
}

/// Decodes the stream in a buffer of its own, into another for the array.
fn decoded(
    kernels: &Kernels,
    (layout, steps): (&Layout, Option<Steps>),
    stream: &[u8],
    stored: usize,
) -> (u64, Room) {
    let steps = steps.unwrap_or_else(|| Steps::dense(layout));
    let to = Room::new(steps.reach(layout).unwrap() as usize);
    let mut from = Room::new(stream.len());
    let first = from.first;
    from.bytes[first..first + stream.len()].copy_from_slice(stream);
    let (stored, target) = (stored as u64, to.address());
    let job = Coded { stream: from.address(), stored, layout, target, steps };
    let status = decode(kernels, &[job]);
    assert!(from.guards_are_whole() && to.guards_are_whole());
    (status, to)
}

fn check_decoding(kernels: &Kernels, seed: u64, make: Make) {
    let dice = &mut Dice(seed);
    let region = make(dice);
    let Some(spec) = region.spec else { return };
    let (mut stream, _) = region.expected();
    let mut values = vec![0; region.bytes];
    twine::decode(&spec.layout, &stream, &mut values).unwrap();
    let steps = steps(dice, &spec.layout);
    let what = format!("seed {seed}: {} {steps:?}", label(&region));
    let array = (&spec.layout, steps);
    let (status, room) = decoded(kernels, array, &stream, stream.len());
    assert_eq!(status, 0, "{what}");
    let memory = spread(&values, &spec.layout, steps, GUARD);
    assert_eq!(room.content().iter().zip(&memory).position(|(a, b)| a != b), None, "{what}");
    for round in 0..4 {
        damage(dice, &mut stream);
        let cut = if round == 3 { dice.below(stream.len() as u64) as usize } else { stream.len() };
        let by_codec = twine::decode(&spec.layout, &stream[..cut], &mut values);
        let (status, room) = decoded(kernels, array, &stream[..cut], cut);
        assert_eq!(status == 0, by_codec.is_ok(), "{what} round {round}: {by_codec:?}");
        let memory = spread(&values, &spec.layout, steps, GUARD);
        assert!(status != 0 || room.content() == memory, "{what} round {round}");
    }
}

#[test]
fn the_decoder_gives_the_values_back_and_refuses_what_the_codec_refuses() {
    let Some(kernels) = kernels("") else { return skipped() };
    for seed in 0..rounds() {
        check_decoding(&kernels, 1000 + seed, region);
    }
}

fn bounded(dice: &mut Dice, dtype: Dtype, shape: Vec<u64>) -> Region {
    let small = 10f64.powi(-(dice.below(6) as i32));
    let bound = dice.pick(&[Bound::Absolute(small), Bound::Range(small), Bound::Rms(small)]);
    array(dice, dtype, shape, Some(bound))
}

#[test]
fn a_variant_for_one_form_writes_and_reads_the_same() {
    let one: Make = |dice| {
        let shape = vec![1 + dice.below(5000)];
        bounded(dice, Dtype::Float64, shape)
    };
    let two: Make = |dice| {
        let shape = vec![16 + dice.below(60), 32 + dice.below(70)];
        bounded(dice, Dtype::Float32, shape)
    };
    let three: Make = |dice| {
        let shape = vec![4 + dice.below(6), 8 + dice.below(12), 32 + dice.below(40)];
        array(dice, Dtype::Float32, shape, None)
    };
    let all = [
        ("0x01010340u", Task::Measure, one),
        ("0x01020220u", Task::Measure, two),
        ("0x01030220u", Task::Exact, three),
    ];
    check_variants(&all);
}

#[test]
fn full_chunks_of_small_coefficients_are_written_the_same() {
    let one: Make = |dice| {
        let shape = vec![1000 + dice.below(6000)];
        bounded(dice, Dtype::Float32, shape)
    };
    let two: Make = |dice| {
        let shape = vec![32 + dice.below(60), 64 + 4 * dice.below(20)];
        bounded(dice, Dtype::Float32, shape)
    };
    let three: Make = |dice| {
        let shape = vec![8 + dice.below(6), 16 + dice.below(12), 64 + dice.below(3) * 16];
        bounded(dice, Dtype::Float32, shape)
    };
    let all: [(&str, Make); 3] =
        [("0x01010220u", one), ("0x01020220u", two), ("0x01030220u", three)];
    let all = all.map(|(form, make)| (form, Task::Measure, make));
    check_variants(&all);
}

/// Bits of float32 of which each kind of chunk is the narrowest somewhere, with blocks of every
/// width, sparse ones, and chunks of one value.
fn bits_of_all_kinds(dice: &mut Dice, shape: Vec<u64>) -> Region {
    let mut region = array(dice, Dtype::Float32, shape, None);
    let style = dice.below(10);
    let (base, slope) = (dice.next() as u32, dice.next() as u32 >> dice.below(32));
    let (shift, rare) = (dice.below(32), 1 + dice.below(12));
    for (at, word) in (0u32..).zip(&mut region.source) {
        let mut bits = |i: u32| {
            let noise = dice.next() as u32 >> (shift + u64::from(i / 512 % 3) * 4).min(31);
            let same = (i / 2048).is_multiple_of(2);
            match style {
                0 => base ^ noise,
                1 => base.wrapping_add(noise).rotate_right(1),
                2 => slope.wrapping_mul(i).wrapping_add(noise),
                3 => slope.wrapping_mul(i).wrapping_mul(i).wrapping_add(noise),
                4 if dice.below(rare) > 0 => 0,
                5 if dice.below(rare) > 0 => base,
                6 if same => base,
                7 if same => 0,
                8 => noise,
                _ => noise | (dice.next() as u32) << 31,
            }
        };
        *word = u64::from(bits(2 * at)) | u64::from(bits(2 * at + 1)) << 32;
    }
    region
}

#[test]
fn chunks_without_loss_are_written_the_same_whether_they_are_full_or_not() {
    let one: Make = |dice| {
        let shape = vec![1024 + dice.below(8000)];
        bits_of_all_kinds(dice, shape)
    };
    let two: Make = |dice| {
        let shape = vec![16 + dice.below(76), 32 + dice.below(110)];
        bits_of_all_kinds(dice, shape)
    };
    let three: Make = |dice| {
        let shape = vec![4 + dice.below(10), 8 + dice.below(20), 32 + dice.below(80)];
        bits_of_all_kinds(dice, shape)
    };
    let all: [(&str, Make); 3] =
        [("0x01010220u", one), ("0x01020220u", two), ("0x01030220u", three)];
    check_variants(&all.map(|(form, make)| (form, Task::Exact, make)));
}

/// Values of one kind of those with so many bits, in one to three dimensions.
fn of_bits(dice: &mut Dice, profile: usize, dtypes: &[Dtype], has_bound: bool) -> Region {
    let dtype = dice.pick(dtypes);
    let sizes = [
        vec![1000 + dice.below(7000)],
        vec![16 + dice.below(76), 32 + dice.below(110)],
        vec![4 + dice.below(10), 8 + dice.below(20), 32 + dice.below(80)],
    ];
    let shape = sizes[profile - 1].clone();
    if has_bound { bounded(dice, dtype, shape) } else { array(dice, dtype, shape, None) }
}

#[test]
fn kinds_of_as_many_bits_share_a_variant() {
    use Dtype::{BFloat16, Bool, Float16, Int8, Int16, Int32, UInt8, UInt16, UInt32};
    let all: [(&str, Task, Make); 7] = [
        ("0x0101ff08u", Task::Exact, |dice| of_bits(dice, 1, &[Bool, Int8, UInt8], false)),
        ("0x0101ff10u", Task::Exact, |dice| {
            of_bits(dice, 1, &[Float16, BFloat16, Int16, UInt16], false)
        }),
        ("0x0102ff10u", Task::Exact, |dice| {
            of_bits(dice, 2, &[Float16, BFloat16, Int16, UInt16], false)
        }),
        ("0x0102ff10u", Task::Measure, |dice| of_bits(dice, 2, &[Float16, BFloat16], true)),
        ("0x0103ff10u", Task::Measure, |dice| of_bits(dice, 3, &[Float16, BFloat16], true)),
        ("0x0101ff20u", Task::Exact, |dice| of_bits(dice, 1, &[Int32, UInt32], false)),
        ("0x0103ff20u", Task::Exact, |dice| of_bits(dice, 3, &[Int32, UInt32], false)),
    ];
    check_variants(&all);
}

fn known(dice: &mut Dice, dtype: Dtype, shape: Vec<u64>) -> Region {
    let bound = Bound::Absolute(dice.pick(&[1e-1, 1e-3, 1e-5, 0.0]));
    array(dice, dtype, shape, Some(bound))
}

#[test]
fn arrays_whose_steps_are_known_need_nothing_that_measures() {
    let one: Make = |dice| {
        let shape = vec![1 + dice.below(6000)];
        known(dice, Dtype::Float32, shape)
    };
    let two: Make = |dice| {
        let shape = vec![32 + dice.below(60), 64 + 4 * dice.below(20)];
        known(dice, Dtype::Float32, shape)
    };
    let three: Make = |dice| {
        let shape = vec![4 + dice.below(6), 8 + dice.below(12), 32 + dice.below(40)];
        known(dice, Dtype::Float32, shape)
    };
    let wide: Make = |dice| {
        let shape = vec![1 + dice.below(5000)];
        known(dice, Dtype::Float64, shape)
    };
    let all =
        [("0x01010220u", one), ("0x01020220u", two), ("0x01030220u", three), ("0x01010340u", wide)];
    check_variants(&all.map(|(form, make)| (form, Task::Quantise, make)));
}

/// Checks variants compiled for one form and task with arrays of that form.
fn check_variants(all: &[(&str, Task, Make)]) {
    let ways = [Tiles::Many, Tiles::Own];
    for (&(form, task, make), tiles) in all.iter().flat_map(|one| ways.map(|tiles| (one, tiles))) {
        let ways = format!("{}#define ONCE {}\n", task.defines(), tiles as u32);
        let head = format!("#define FORM {form}\n{ways}");
        let Some(kernels) = kernels(&head) else { return skipped() };
        let mut scratch = Scratch { tiles, compiled: true, ..Scratch::new() };
        for seed in 0..rounds() / 6 {
            check_batch(&kernels, &mut scratch, seed, make);
            check_decoding(&kernels, seed, make);
        }
    }
}

#[test]
fn with_a_bound_of_zero_every_value_is_kept_also_in_blocks_of_zeros() {
    let Some(kernels) = kernels("") else { return skipped() };
    let make: Make = |dice| {
        let method = Some(Bound::Absolute(0.0));
        let mut region = array(dice, Dtype::Float32, vec![3000], method);
        let zeros = dice.below(1400) as usize;
        region.source[..zeros].fill(0);
        region
    };
    let mut scratch = Scratch::new();
    for seed in 0..8 {
        check_batch(&kernels, &mut scratch, seed, make);
    }
}

#[test]
fn errors_far_below_the_bound_are_summed_as_well() {
    let Some(kernels) = kernels("") else { return skipped() };
    let make: Make = |dice| {
        let bound = dice.pick(&[f64::MAX, 1e30, 10.0]);
        let mut region = array(dice, Dtype::Float32, vec![1500], Some(Bound::Absolute(bound)));
        let tiny = dice.pick(&[1e-4f32, 1e-37, 1e-20]);
        for word in &mut region.source {
            let pair = [0, 1].map(|_| u64::from((dice.part() as f32 * tiny).to_bits()));
            *word = pair[0] | pair[1] << 32;
        }
        region
    };
    let mut scratch = Scratch::new();
    for seed in 0..8 {
        check_batch(&kernels, &mut scratch, seed, make);
    }
}

#[test]
fn errors_as_large_as_the_bound_allows_have_a_finite_sum() {
    let make: Make = |dice| {
        let bound = dice.pick(&[1e-3, 0.25, 0.5, 1e-5, 0.01]);
        let method = Some(Bound::Absolute(bound));
        let mut region = array(dice, Dtype::Float32, vec![4096], method);
        let step = twine::Step::new(twine::ValueKind::Float32, bound);
        let e = (step.e as f32).to_bits();
        region.source.fill(u64::from(e) | u64::from(e | 0x8000_0000) << 32);
        region
    };
    check_variants(&[("0x01010220u", Task::Measure, make)]);
}

#[test]
fn errors_are_summed_alike_whatever_the_size_of_the_step() {
    let make: Make = |dice| {
        let bound = dice.pick(&[1e-29, 1e-25, 1e-18, 2e-19, 1e10, 1e30, f64::MAX]);
        let method = Some(Bound::Absolute(bound));
        let mut region = array(dice, Dtype::Float32, vec![5000], method);
        let step = twine::Step::new(twine::ValueKind::Float32, bound).step;
        let steps = dice.pick(&[1.9, 100.0, 0.4]);
        for word in &mut region.source {
            let value = |dice: &mut Dice| ((dice.part() - 0.5) * steps * step) as f32;
            let pair = [0, 1].map(|_| u64::from(value(dice).to_bits()));
            *word = pair[0] | pair[1] << 32;
        }
        region
    };
    check_variants(&[("0x01010220u", Task::Measure, make)]);
}
