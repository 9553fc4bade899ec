//! Twine over a fake driver whose kernels are the codec of the processor: places, chains, results,
//! and reused memory, with delayed work.

use std::time::{Duration, Instant};

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Bound, Dtype};
use unspool_cuda::{Context, DeviceError, DeviceErrorKind, DeviceMemory, Driver, Stream, copy};
use unspool_fakecuda::Fake;
use unspool_gpu_codec::twine::Twine;
use unspool_gpu_codec::{DecodeJob, EncodeJob, GpuCodec, GpuLayout, StoredCheckpoint};
use unspool_gpu_codec::{EncodeErrorKind, Pending, Start};

const LIMIT: Duration = Duration::from_secs(20);
const ROOM: u64 = 1 << 20;
/// The content of memory before anything is encoded into it.
const UNTOUCHED: u8 = 0xa5;

type Outcome<T = ()> = Result<T, DeviceError>;

struct Bench {
    context: Context,
    stream: Stream,
    twine: Twine,
    room: DeviceMemory,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        let context = Context::new(&Driver::load()?, 0)?;
        let (stream, room) = (Stream::new(&context)?, DeviceMemory::new(&context, ROOM)?);
        copy::fill(&stream, &room.span(), UNTOUCHED)?;
        Ok(Bench { twine: Twine::new(&context, Vec::new()), context, stream, room })
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<DeviceMemory> {
        let memory = DeviceMemory::new(&self.context, bytes.len() as u64)?;
        copy::host_to_device(&self.stream, &memory.span(), bytes, LIMIT)?;
        Ok(memory)
    }

    fn bytes(&self, address: u64, len: u64) -> Outcome<Vec<u8>> {
        let span = self.room.span().slice(address - self.room.span().address(), len)?;
        let mut bytes = vec![0; len as usize];
        copy::device_to_host(&self.stream, &mut bytes, &span, LIMIT)?;
        Ok(bytes)
    }

    fn begin(&self) -> u64 {
        self.room.span().address()
    }

    fn end(&self) -> u64 {
        self.begin() + ROOM
    }

    fn encode(&self, jobs: &[EncodeJob], start: Start<'_>, limit: u64) -> Outcome<Pending> {
        // SAFETY: sources live until the end of the test, which waits.
        let pending =
            unsafe { self.twine.encode(&self.stream, &[StoredCheckpoint { jobs, start, limit }])? };
        Ok(pending.into_iter().next().unwrap_or_else(|| unreachable!("one checkpoint")))
    }
}

/// A field, its layout and its stream by the processor.
struct Field {
    spec: Array,
    bytes: Vec<u8>,
    stream: Vec<u8>,
}

fn field(n: u64, method: Option<Bound>) -> Field {
    let layout = Layout::of(&Dtype::Float32, &[n]).expect("a small array");
    let values = (0..n).map(|i| (i as f32 * 0.01).sin());
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let spec = Array { layout, bound: method };
    let mut stream = vec![0; twine::max_bytes(&layout) as usize];
    let encoded = twine::encode(&spec, &bytes, &mut stream).expect("floats");
    stream.truncate(encoded.bytes as usize);
    Field { spec, bytes, stream }
}

fn bounded(n: u64) -> Field {
    field(n, Some(Bound::Range(1e-3)))
}

#[test]
fn regions_of_a_checkpoint_lie_after_each_other_and_decode_to_the_values() -> Outcome {
    let fake = Fake::start();
    let mut bench = Bench::new()?;
    let (a, b) = (bounded(5000), field(3000, None));
    let raw = bench.upload(&[7; 1001])?;
    let (first, second) = (bench.upload(&a.bytes)?, bench.upload(&b.bytes)?);
    let jobs = [
        EncodeJob { steps: None, source: first.span().address(), layout: a.spec.into() },
        EncodeJob {
            steps: None,
            source: raw.span().address(),
            layout: GpuLayout::Raw { bytes: 1001 },
        },
        EncodeJob { steps: None, source: second.span().address(), layout: b.spec.into() },
    ];
    let mut expected = a.stream.clone();
    expected.resize(expected.len().next_multiple_of(64), 0);
    expected.extend([7; 1001]);
    expected.resize(expected.len().next_multiple_of(64), 0);
    let offset = expected.len() as u64;
    expected.extend(&b.stream);
    // Both arrays in one launch, then each in its own; twice, as the first bound depends on the
    // values.
    bench.encode(&jobs, Start::At(bench.begin()), bench.end())?;
    let launches = fake.calls("cuLaunchKernel");
    assert!(bench.bytes(bench.begin(), expected.len() as u64)? == expected);
    copy::fill(&bench.stream, &bench.room.span(), UNTOUCHED)?;
    bench.twine = bench.twine.with_launches_from(0);
    let pending = bench.encode(&jobs, Start::At(bench.begin()), bench.end())?;
    let result = pending.wait(LIMIT).map_err(|error| error.into_device_error())?;
    assert_eq!(fake.calls("cuLaunchKernel") - launches, 4);
    assert_eq!(result.start, bench.begin());
    assert_eq!((result.jobs[2].offset, result.bytes), (offset, expected.len() as u64));
    assert!(bench.bytes(result.start, result.bytes)? == expected);
    assert!(result.jobs[0].achieved.max_error > 0.0 && result.jobs[2].achieved.max_error == 0.0);
    let target = bench.upload(&vec![0; b.bytes.len()])?;
    let job = DecodeJob {
        stream: result.start + offset,
        stored: b.stream.len() as u64,
        layout: b.spec.into(),
        target: target.span().address(),
        steps: None,
    };
    // SAFETY: all of it lives until the end of the test.
    unsafe { bench.twine.decode(&bench.stream, &[job]) }?.wait(LIMIT)?;
    let mut back = vec![0; b.bytes.len()];
    copy::device_to_host(&bench.stream, &mut back, &target.span(), LIMIT)?;
    assert!(back == b.bytes);
    Ok(())
}

#[test]
fn checkpoints_follow_each_other_before_anyone_knows_their_sizes() -> Outcome {
    let fake = Fake::start();
    let bench = Bench::new()?;
    let a = bounded(4000);
    let source = bench.upload(&a.bytes)?;
    let jobs = [EncodeJob { steps: None, source: source.span().address(), layout: a.spec.into() }];
    let limit = bench.end();
    fake.hold();
    let first = bench.encode(&jobs, Start::At(bench.begin()), limit)?;
    let start = Start::After { pending: &first, align: 256 };
    let other = Stream::new(&bench.context)?;
    let checkpoints = [
        StoredCheckpoint { jobs: &jobs, start, limit },
        StoredCheckpoint { jobs: &jobs, start: Start::Next { align: 512 }, limit },
    ];
    // SAFETY: as above.
    let rest = unsafe { bench.twine.encode(&other, &checkpoints) }?;
    assert!(first.try_result().is_none() && rest[1].try_result().is_none());
    // The memory of results stays as long as the device needs it, even when all handles are gone.
    drop(first);
    fake.release();
    let mut at = bench.begin();
    for (pending, align) in rest.iter().zip([256, 512]) {
        at = (at + a.stream.len() as u64).next_multiple_of(align);
        let result = pending.wait(LIMIT).map_err(|error| error.into_device_error())?;
        assert_eq!((result.start, result.bytes), (at, a.stream.len() as u64));
        assert!(bench.bytes(at, result.bytes)? == a.stream);
    }
    Ok(())
}

#[test]
fn a_checkpoint_that_does_not_fit_says_so_and_leaves_what_follows_alone() -> Outcome {
    let _fake = Fake::start();
    let bench = Bench::new()?;
    let a = bounded(4000);
    let source = bench.upload(&a.bytes)?;
    let jobs = [EncodeJob { steps: None, source: source.span().address(), layout: a.spec.into() }];
    let limit = bench.begin() + 300;
    let pending = bench.encode(&jobs, Start::At(bench.begin()), limit)?;
    let start = Start::After { pending: &pending, align: 64 };
    let next = bench.encode(&jobs, start, bench.end())?;
    let error = pending.wait(LIMIT).expect_err("it has no room");
    assert_eq!(error.kind(), EncodeErrorKind::Overflow);
    let next = next.wait(LIMIT).map_err(|error| error.into_device_error())?;
    assert_eq!(next.start, limit.next_multiple_of(64));
    assert!(bench.bytes(limit, next.start - limit)?.iter().all(|&byte| byte == UNTOUCHED));
    Ok(())
}

#[test]
fn a_damaged_stream_is_reported_later() -> Outcome {
    let _fake = Fake::start();
    let bench = Bench::new()?;
    let a = bounded(4000);
    let mut stream = a.stream.clone();
    stream[8] ^= 1;
    let (source, target) = (bench.upload(&stream)?, bench.upload(&vec![0; a.bytes.len()])?);
    let job = DecodeJob {
        stream: source.span().address(),
        stored: stream.len() as u64,
        layout: a.spec.into(),
        target: target.span().address(),
        steps: None,
    };
    // SAFETY: all of it lives until the end of the test.
    let status = unsafe { bench.twine.decode(&bench.stream, &[job]) }?;
    let error = status.wait(LIMIT).expect_err("it is damaged");
    assert_eq!(error.kind(), DeviceErrorKind::Damaged);
    assert!(status.try_result().is_some_and(|result| result.is_err()));
    Ok(())
}

#[test]
fn a_launch_allocates_nothing_when_others_before_it_are_done() -> Outcome {
    let fake = Fake::start();
    let bench = Bench::new()?;
    let fields: Vec<Field> = (0..20).map(|i| bounded(100 + i)).collect();
    let sources: Outcome<Vec<_>> = fields.iter().map(|field| bench.upload(&field.bytes)).collect();
    let sources = sources?;
    let jobs = fields.iter().zip(&sources).map(|(field, source)| EncodeJob {
        steps: None,
        source: source.span().address(),
        layout: field.spec.into(),
    });
    // More jobs than fit into the parameters of a launch: they go through a table.
    let jobs: Vec<EncodeJob> = jobs.collect();
    let mut counts = Vec::new();
    for _ in 0..5 {
        let pending = bench.encode(&jobs, Start::At(bench.begin()), bench.end())?;
        let result = pending.wait(LIMIT).map_err(|error| error.into_device_error())?;
        for (field, job) in fields.iter().zip(&result.jobs) {
            let bytes = bench.bytes(result.start + job.offset, job.stored)?;
            assert!(bytes == field.stream);
        }
        bench.stream.sync(LIMIT)?;
        counts.push((fake.count("blocks"), fake.count("host_blocks")));
    }
    assert_eq!(counts[0], counts[4]);
    Ok(())
}

#[test]
fn launches_that_pile_up_share_a_bounded_number_of_sets() -> Outcome {
    let fake = Fake::start();
    let bench = Bench::new()?;
    let a = bounded(300);
    let source = bench.upload(&a.bytes)?;
    let jobs = [EncodeJob { steps: None, source: source.span().address(), layout: a.spec.into() }];
    let streams = [Stream::new(&bench.context)?, Stream::new(&bench.context)?];
    fake.hold();
    let before = fake.count("blocks");
    let mut pending: Vec<Pending> = Vec::new();
    for number in 0..60 {
        let start = match pending.last() {
            Some(pending) => Start::After { pending, align: 64 },
            None => Start::At(bench.begin()),
        };
        let asked = [StoredCheckpoint { jobs: &jobs, start, limit: bench.end() }];
        // SAFETY: everything lives until the end of the test, which waits.
        pending.extend(unsafe { bench.twine.encode(&streams[number % 2], &asked) }?);
    }
    // Each set has memory for its counters and for sums; the slots have a little as well.
    assert!(fake.count("blocks") - before < 40, "{}", fake.count("blocks") - before);
    fake.release();
    for one in &pending {
        let result = one.wait(LIMIT).map_err(|error| error.into_device_error())?;
        assert!(bench.bytes(result.start, result.bytes)? == a.stream);
    }
    Ok(())
}

#[test]
fn what_cannot_be_encoded_is_refused_before_anything_is_enqueued() -> Outcome {
    let _fake = Fake::start();
    let bench = Bench::new()?;
    let a = bounded(100);
    let source = bench.upload(&a.bytes)?;
    let job = |source| [EncodeJob { steps: None, source, layout: a.spec.into() }];
    let (good, bad) = (job(source.span().address()), job(source.span().address() + 2));
    let (begin, end) = (bench.begin(), bench.end());
    let refused = |jobs: &[EncodeJob], start, limit| {
        let refused = bench.encode(jobs, start, limit);
        refused.is_err_and(|error| error.kind() == DeviceErrorKind::OutOfRange)
    };
    assert!(refused(&bad, Start::At(begin), end));
    assert!(refused(&good, Start::At(begin + 4), end));
    assert!(refused(&good, Start::At(begin), begin - 1));
    assert!(refused(&good, Start::Next { align: 64 }, end));
    assert!(refused(&[], Start::At(begin), end));
    let ints = Layout::of(&Dtype::Int32, &[25]).expect("a small array");
    let spec = Array { layout: ints, bound: Some(Bound::Absolute(1.0)) };
    let ints = [EncodeJob { steps: None, source: source.span().address(), layout: spec.into() }];
    assert!(refused(&ints, Start::At(begin), end));
    Ok(())
}

/// Two arrays of different forms, each encoded by its own launch.
struct TwoForms {
    bench: Bench,
    fields: [Field; 2],
    memories: [DeviceMemory; 2],
}

impl TwoForms {
    fn new() -> Outcome<TwoForms> {
        let mut bench = Bench::new()?;
        bench.twine = bench.twine.with_launches_from(128);
        let absolute = Some(Bound::Absolute(1e-3));
        let fields = [field(200_000, absolute), field(140_000, None)];
        let memories = [bench.upload(&fields[0].bytes)?, bench.upload(&fields[1].bytes)?];
        Ok(TwoForms { bench, fields, memories })
    }

    fn jobs(&self) -> Vec<EncodeJob> {
        let sources = self.memories.iter().map(|memory| memory.span().address());
        let layouts = self.fields.iter().map(|field| GpuLayout::Twine(field.spec));
        sources
            .zip(layouts)
            .map(|(source, layout)| EncodeJob { steps: None, source, layout })
            .collect()
    }
}

#[test]
fn launches_before_a_refused_one_are_done_when_the_call_returns() -> Outcome {
    let fake = Fake::start();
    let two = TwoForms::new()?;
    let TwoForms { bench, .. } = &two;
    let jobs = two.jobs();
    let asked =
        [StoredCheckpoint { jobs: &jobs, start: Start::At(bench.begin()), limit: bench.end() }];
    bench.twine.prepare(&asked)?;
    fake.fail("cuLaunchKernel", 2, 701);
    fake.hold();
    let begun = Instant::now();
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            fake.release();
        });
        bench.encode(&jobs, Start::At(bench.begin()), bench.end())
    });
    assert_eq!(refused.err().map(|error| error.kind()), Some(DeviceErrorKind::Kernel));
    assert!(begun.elapsed() >= Duration::from_millis(90) && fake.count("pending") == 0);
    let pending = bench.encode(&jobs, Start::At(bench.begin()), bench.end())?;
    let result = pending.wait(LIMIT).map_err(|error| error.into_device_error())?;
    let first = bench.bytes(result.start, result.jobs[0].stored)?;
    assert!(first == two.fields[0].stream, "and the abandoned launch has no effect");
    Ok(())
}

#[test]
fn what_was_prepared_is_not_compiled_by_the_launch() -> Outcome {
    let fake = Fake::start();
    let TwoForms { bench, .. } = TwoForms::new()?;
    let layout = Layout::of(&Dtype::Int32, &[70_000]).expect("a small array");
    let ints = Array { layout, bound: None };
    let wide = Layout::of(&Dtype::Float64, &[140_000]).expect("a small array");
    let wide = Array { layout: wide, bound: None };
    let memory = bench.upload(&vec![0; 8 * 140_000])?;
    let source = memory.span().address();
    let jobs = [&ints, &wide].map(|spec| EncodeJob { steps: None, source, layout: (*spec).into() });
    let twine = &bench.twine;
    let (start, limit) = (Start::At(bench.begin()), bench.end());
    twine.prepare(&[StoredCheckpoint { jobs: &jobs, start, limit }])?;
    let compiled = fake.calls("nvrtcCompileProgram");
    let launches = fake.calls("cuLaunchKernel");
    bench.encode(&jobs, start, limit)?.wait(LIMIT).map_err(|e| e.into_device_error())?;
    assert_eq!(fake.calls("cuLaunchKernel"), launches + 2, "a general one, and one for float64");
    assert_eq!(fake.calls("nvrtcCompileProgram"), compiled);
    Ok(())
}
