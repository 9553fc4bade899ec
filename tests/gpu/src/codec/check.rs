//! Random batches: bytes, places and results of the device against those of the processor, on
//! several streams and in chains; intact and damaged streams are decoded, with guards around all
//! memory.

use std::ops::Range;

use unspool_codec::{Bound, twine as codec};
use unspool_cuda::{Context, DeviceErrorKind, DeviceMemory, Stream, copy};
use unspool_gpu_codec::twine::Twine;
use unspool_gpu_codec::{
    CheckpointResult, DecodeJob, EncodeErrorKind, EncodeJob, GpuCodec, GpuLayout, Pending, Start,
    StoredCheckpoint,
};

use crate::bench::{LONG, download, upload};
use crate::fields::{Dice, Region, damage, label, region, spread, steps};
use crate::steps::Steps;

pub const GUARD: u8 = 0x5a;
const GUARDS: u64 = 4096;

pub fn run(context: &Context, seeds: Range<u64>, warps: &[u32]) {
    let streams: Vec<Stream> = (0..2).map(|_| Stream::new(context).unwrap()).collect();
    // SAFETY: the number of the per-thread default stream.
    let per_thread = unsafe { Stream::borrow(context, 2) }.unwrap();
    let streams = [&streams[0], &streams[1], &per_thread, &Stream::legacy_default(context)];
    let coders = warps.iter().flat_map(|&warps| {
        let coder = || match warps {
            0 => Twine::new(context, Vec::new()),
            warps => Twine::new(context, Vec::new()).with_warps(warps),
        };
        // In one launch, and in as many launches as possible.
        [coder(), coder().with_launches_from(0)]
    });
    let coders: Vec<Twine> = coders.collect();
    let (mut regions, mut damaged) = (0, (0, 0));
    for seed in seeds.clone() {
        let coder = &coders[seed as usize % coders.len()];
        let round = Round { context, streams, coder, seed };
        // The second time, bounds that depend on the values are guessed right.
        regions += round.chains() + round.chains();
        let (refused, all) = round.decode();
        damaged = (damaged.0 + refused, damaged.1 + all);
        round.overflow();
    }
    println!(
        "{} rounds: {regions} regions with the bytes of the processor, all of them decoded; {} \
         damaged streams, {} refused as by the processor; nothing outside was touched",
        seeds.end - seeds.start,
        damaged.1,
        damaged.0
    );
}

struct Round<'a> {
    context: &'a Context,
    streams: [&'a Stream; 4],
    coder: &'a Twine,
    seed: u64,
}

/// A region with its array on the device and its encoding by the processor.
struct Loaded {
    region: Region,
    memory: DeviceMemory,
    skip: u64,
    steps: Option<Steps>,
    expected: (Vec<u8>, unspool_codec::Achieved),
}

impl Loaded {
    fn job(&self) -> EncodeJob {
        let dense = job_of(&self.region, self.memory.span().address() + self.skip);
        EncodeJob { steps: self.steps, ..dense }
    }
}

/// The job for a region whose array is dense at this address.
pub fn job_of(region: &Region, source: u64) -> EncodeJob {
    let bytes = region.bytes as u64;
    let layout = region.spec.map_or(GpuLayout::Raw { bytes }, GpuLayout::Twine);
    EncodeJob { source, steps: None, layout }
}

impl Round<'_> {
    fn load(&self, dice: &mut Dice) -> Loaded {
        let region = region(dice);
        let unit = region.spec.map_or(1, |spec| spec.layout.value_bytes() as u64);
        let skip = if dice.below(3) == 0 { dice.below(16 / unit) * unit } else { 0 };
        let steps = region.spec.and_then(|spec| steps(dice, &spec.layout));
        let content = match region.spec {
            Some(spec) => spread(region.bytes(), &spec.layout, steps, GUARD),
            None => region.bytes().to_vec(),
        };
        let memory = upload(self.context, self.streams[0], &content, skip);
        let expected = region.expected();
        Loaded { region, memory, skip, steps, expected }
    }

    /// Several launches, each of several checkpoints, one after the other on changing streams.
    fn chains(&self) -> u64 {
        let mut dice = Dice(self.seed);
        let launches: Vec<Vec<Vec<Loaded>>> = (0..1 + dice.below(4))
            .map(|_| {
                let many = if dice.below(10) == 0 { 12 } else { 3 };
                (0..1 + dice.below(many))
                    .map(|_| (0..1 + dice.below(3)).map(|_| self.load(&mut dice)).collect())
                    .collect()
            })
            .collect();
        let align = [64, 256, 512][dice.below(3) as usize];
        let largest: u64 = launches.iter().flatten().flatten().map(worst).sum();
        let room = self.room(largest + 1024 * 16);
        let (begin, limit) =
            (room.span().address() + GUARDS, room.span().address() + room.span().len() - GUARDS);
        let mut pending: Vec<Pending> = Vec::new();
        for launch in &launches {
            let stream = self.streams[dice.below(4) as usize];
            let jobs: Vec<Vec<EncodeJob>> =
                launch.iter().map(|regions| regions.iter().map(Loaded::job).collect()).collect();
            let start = |number: usize| match (number, pending.last()) {
                (0, None) => Start::At(begin),
                (0, Some(pending)) => Start::After { pending, align },
                _ => Start::Next { align },
            };
            let asked: Vec<StoredCheckpoint<'_>> = jobs
                .iter()
                .enumerate()
                .map(|(number, jobs)| StoredCheckpoint { jobs, start: start(number), limit })
                .collect();
            // SAFETY: everything lives until the results are present.
            let started = unsafe { self.coder.encode(stream, &asked) };
            drop(asked);
            pending.extend(started.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
        }
        let results: Vec<CheckpointResult> = pending
            .iter()
            .map(|one| one.wait(LONG).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed)))
            .collect();
        let content = download(self.streams[0], &room);
        let base = room.span().address();
        let mut expected = vec![GUARD; content.len()];
        let (mut at, mut count) = (begin, 0);
        if launches.iter().flatten().flatten().any(|loaded| depends_on_values(&loaded.region)) {
            // With a wrong guess of a bound an encoder writes elsewhere first.
            let own = (begin - base) as usize..(limit - base) as usize;
            expected[own.clone()].copy_from_slice(&content[own]);
        }
        for (regions, result) in launches.iter().flatten().zip(&results) {
            at = at.next_multiple_of(align);
            assert_eq!(result.start, at, "seed {}", self.seed);
            for (number, loaded) in regions.iter().enumerate() {
                let next = if number > 0 { at.next_multiple_of(64) } else { at };
                expected[(at - base) as usize..(next - base) as usize].fill(0);
                at = next;
                let (stream, achieved) = &loaded.expected;
                let job = &result.jobs[number];
                let what = format!("seed {}: {}", self.seed, label(&loaded.region));
                assert_eq!(job.offset, at - result.start, "{what}");
                assert_eq!(job.stored, stream.len() as u64, "{what}");
                assert_eq!(job.achieved.max_error, achieved.max_error, "{what}");
                assert_eq!(job.achieved.outliers, achieved.outliers, "{what}");
                let (got, want) = (job.achieved.sum_sq_error, achieved.sum_sq_error);
                let near = got == want || (got - want).abs() <= 1e-4 * want.abs();
                assert!(near, "{what}: {got} {want}");
                let place = (at - base) as usize;
                expected[place..place + stream.len()].copy_from_slice(stream);
                let wrong = content[place..place + stream.len()].iter().zip(stream);
                let wrong = wrong.take_while(|(a, b)| a == b).count();
                assert_eq!(wrong, stream.len(), "{what}: the first other byte");
                at += stream.len() as u64;
                count += 1;
            }
        }
        assert!(content == expected, "seed {}: something else was written", self.seed);
        count
    }

    fn room(&self, len: u64) -> DeviceMemory {
        let room = DeviceMemory::new(self.context, len.next_multiple_of(512) + 2 * GUARDS).unwrap();
        copy::fill(self.streams[0], &room.span(), GUARD).unwrap();
        self.streams[0].sync(LONG).unwrap();
        room
    }

    /// Decodes intact streams, then damaged ones: number of refused ones, and of damaged ones.
    fn decode(&self) -> (u64, u64) {
        let mut dice = Dice(self.seed + 1_000_000);
        let mut counts = (0, 0);
        for _ in 0..3 {
            let region = region(&mut dice);
            let Some(spec) = region.spec else { continue };
            let (mut stream, _) = region.expected();
            let mut values = vec![0; region.bytes];
            codec::decode(&spec.layout, &stream, &mut values).unwrap();
            let steps = steps(&mut dice, &spec.layout);
            let to = (&spec.layout, steps);
            let (good, array) = self.decoded(to, &stream, stream.len());
            let what = format!("seed {}: {} {steps:?}", self.seed, label(&region));
            let memory = spread(&values, &spec.layout, steps, GUARD);
            assert!(good && array == memory, "{what}: decoding");
            for round in 0..4 {
                damage(&mut dice, &mut stream);
                let len = stream.len() as u64;
                let cut = if round == 3 { dice.below(len) } else { len } as usize;
                let by_codec = codec::decode(&spec.layout, &stream[..cut], &mut values).is_ok();
                let (good, array) = self.decoded(to, &stream, cut);
                assert_eq!(good, by_codec, "{what}: damage {round}");
                let memory = spread(&values, &spec.layout, steps, GUARD);
                assert!(!good || array == memory, "{what}: damage {round}");
                counts = (counts.0 + u64::from(!good), counts.1 + 1);
            }
        }
        counts
    }

    /// Decodes a stream: whether it was intact, and the array. Asserts that nothing around it was
    /// written.
    fn decoded(
        &self,
        (layout, steps): (&codec::Layout, Option<Steps>),
        bytes: &[u8],
        stored: usize,
    ) -> (bool, Vec<u8>) {
        let stream = self.streams[self.seed as usize % 4];
        let from = upload(self.context, stream, &[bytes, &[0; 4]].concat(), 0);
        let zeros = vec![0; layout.bytes() as usize];
        let len = spread(&zeros, layout, steps, 0).len();
        let to = self.room(len as u64);
        let job = DecodeJob {
            stream: from.span().address(),
            stored: stored as u64,
            layout: (*layout).into(),
            target: to.span().address() + GUARDS,
            steps,
        };
        // SAFETY: both live until the status is present.
        let status = unsafe { self.coder.decode(stream, &[job]) }.unwrap();
        let outcome = status.wait(LONG);
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), DeviceErrorKind::Damaged, "{error}");
        }
        let content = download(stream, &to);
        let (before, rest) = content.split_at(GUARDS as usize);
        let (array, after) = rest.split_at(len);
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "seed {}", self.seed);
        (outcome.is_ok(), array.to_vec())
    }

    /// Encodes a checkpoint without enough space: nothing is written at its limit or beyond.
    fn overflow(&self) {
        let mut dice = Dice(self.seed + 2_000_000);
        let loaded: Vec<Loaded> = (0..2).map(|_| self.load(&mut dice)).collect();
        let jobs: Vec<EncodeJob> = loaded.iter().map(Loaded::job).collect();
        let first = loaded[0].expected.0.len() as u64;
        let bytes = first.next_multiple_of(64) + loaded[1].expected.0.len() as u64;
        if bytes == 0 {
            return;
        }
        let room = self.room(bytes);
        let begin = room.span().address() + GUARDS;
        let limit = begin + dice.below(bytes);
        let asked = StoredCheckpoint { jobs: &jobs, start: Start::At(begin), limit };
        // SAFETY: everything lives until the result is present.
        let pending = unsafe { self.coder.encode(self.streams[1], &[asked]) }.unwrap();
        let error = pending[0].wait(LONG).unwrap_err();
        assert_eq!(error.kind(), EncodeErrorKind::Overflow, "seed {}: {error}", self.seed);
        let content = download(self.streams[1], &room);
        let after = &content[(limit - room.span().address()) as usize..];
        assert!(after.iter().all(|&byte| byte == GUARD), "seed {}: overflow", self.seed);
    }
}

/// Whether its bound depends on its values.
fn depends_on_values(region: &Region) -> bool {
    let bound = region.spec.and_then(|spec| spec.bound);
    matches!(bound, Some(Bound::Range(_) | Bound::Rms(_) | Bound::Psnr(_) | Bound::L2(_)))
}

/// Maximum size of an encoded region with its gap.
fn worst(loaded: &Loaded) -> u64 {
    loaded.expected.0.len() as u64 + 1024
}
