//! zfp over a fake driver whose kernels are the codec of the processor: lengths, places, chains,
//! results, and what is refused.

use std::time::Duration;

use unspool_codec::{Dtype, Zfp, zfp};
use unspool_cuda::{
    Context, DeviceError, DeviceErrorKind, DeviceMemory, DeviceSpan, Driver, Stream, copy,
};
use unspool_fakecuda::Fake;
use unspool_gpu_codec::{
    DecodeJob, EncodeErrorKind, EncodeJob, GpuCodec, Pending, Slots, Start, StoredCheckpoint,
    ZfpCoder, ZfpLayout,
};

const LIMIT: Duration = Duration::from_secs(20);
const ROOM: u64 = 1 << 20;
const UNTOUCHED: u8 = 0xa5;

type Outcome<T = ()> = Result<T, DeviceError>;

struct Bench {
    context: Context,
    stream: Stream,
    coder: ZfpCoder,
    room: DeviceMemory,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        let context = Context::new(&Driver::load()?, 0)?;
        let (stream, room) = (Stream::new(&context)?, DeviceMemory::new(&context, ROOM)?);
        copy::fill(&stream, &room.span(), UNTOUCHED)?;
        let coder = ZfpCoder::new(&context, &Slots::new(&context), Vec::new());
        Ok(Bench { coder, context, stream, room })
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<DeviceMemory> {
        let memory = DeviceMemory::new(&self.context, bytes.len() as u64)?;
        copy::host_to_device(&self.stream, &memory.span(), bytes, LIMIT)?;
        Ok(memory)
    }

    fn download(&self, span: &DeviceSpan) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; span.len() as usize];
        copy::device_to_host(&self.stream, &mut bytes, span, LIMIT)?;
        Ok(bytes)
    }

    fn room_bytes(&self, address: u64, len: u64) -> Outcome<Vec<u8>> {
        self.download(&self.room.span().slice(address - self.begin(), len)?)
    }

    fn begin(&self) -> u64 {
        self.room.span().address()
    }

    fn end(&self) -> u64 {
        self.begin() + ROOM
    }

    fn encode(&self, fields: &[&Field], start: Start<'_>, limit: u64) -> Outcome<Pending> {
        let jobs: Vec<_> = fields.iter().map(|field| field.job()).collect();
        // SAFETY: fields and room live until the end of the test, which waits.
        let all = unsafe {
            self.coder.encode(&self.stream, &[StoredCheckpoint { jobs: &jobs, start, limit }])
        };
        Ok(all?.pop().expect("one checkpoint gives one result"))
    }
}

/// A field in device memory, with its stream by the processor.
struct Field {
    layout: ZfpLayout,
    bytes: Vec<u8>,
    stream: Vec<u8>,
    memory: DeviceMemory,
}

impl Field {
    fn new(bench: &Bench, dtype: &Dtype, shape: &[u64], rate: f64) -> Field {
        let count = shape.iter().product::<u64>();
        let value = |i: u64| (i as f64 * 0.37).sin() * (i % 7) as f64;
        let bytes: Vec<u8> = match dtype {
            Dtype::Float32 => (0..count).flat_map(|i| (value(i) as f32).to_le_bytes()).collect(),
            _ => (0..count).flat_map(|i| value(i).to_le_bytes()).collect(),
        };
        let mode = Zfp::Rate(rate);
        let mut stream = vec![0; zfp::max_bytes(&mode, dtype, shape).expect("a length") as usize];
        let made = zfp::encode(&mode, dtype, shape, &bytes, &mut stream).expect("a stream");
        stream.truncate(made.bytes as usize);
        let layout = ZfpLayout::of(dtype, shape, rate).expect("a layout");
        let memory = bench.upload(&bytes).expect("memory");
        Field { layout, bytes, stream, memory }
    }

    fn job(&self) -> EncodeJob {
        EncodeJob {
            steps: None,
            source: self.memory.span().address(),
            layout: self.layout.clone().into(),
        }
    }
}

#[test]
fn lengths_and_heads_are_those_of_the_codec() {
    let _fake = Fake::start();
    let bench = Bench::new().unwrap();
    for dtype in [Dtype::Float32, Dtype::Float64] {
        for shape in [&[1][..], &[77], &[4, 4], &[9, 6], &[1, 1, 1], &[5, 3, 10]] {
            for rate in [0.5, 3.3, 8.0, 17.25] {
                let field = Field::new(&bench, &dtype, shape, rate);
                assert_eq!(field.layout.stored(), field.stream.len() as u64, "{shape:?} {rate}");
                assert_eq!(field.layout.bytes(), field.bytes.len() as u64);
                let start = Start::At(bench.begin());
                let pending = bench.encode(&[&field], start, bench.end()).unwrap();
                let result = pending.wait(LIMIT).unwrap();
                let made = bench.room_bytes(result.start, result.bytes).unwrap();
                assert!(made == field.stream, "{dtype} {shape:?} {rate}");
            }
        }
    }
}

#[test]
fn arrays_of_a_checkpoint_begin_at_multiples_of_64_with_zeros_between() {
    let fake = Fake::start();
    let bench = Bench::new().unwrap();
    let fields = [
        Field::new(&bench, &Dtype::Float32, &[30, 21], 8.0),
        Field::new(&bench, &Dtype::Float64, &[300], 5.3),
        Field::new(&bench, &Dtype::Float32, &[7, 9, 11], 16.0),
    ];
    let all: Vec<&Field> = fields.iter().collect();
    fake.hold();
    let first = bench.encode(&all, Start::At(bench.begin()), bench.end()).unwrap();
    let after = Start::After { pending: &first, align: 512 };
    let second = bench.encode(&all, after, bench.end()).unwrap();
    assert!(first.try_result().is_none() && second.try_result().is_none());
    fake.release();
    let (one, two) = (first.wait(LIMIT).unwrap(), second.wait(LIMIT).unwrap());
    assert_eq!(two.start, (one.start + one.bytes).next_multiple_of(512));
    let mut expected = vec![0; one.bytes as usize];
    for (job, field) in one.jobs.iter().zip(&fields) {
        assert!(job.offset.is_multiple_of(64) && job.stored == field.stream.len() as u64);
        expected[job.offset as usize..][..field.stream.len()].copy_from_slice(&field.stream);
        assert!(job.achieved.max_error > 0.0 && job.achieved.sum_sq_error > 0.0);
        assert_eq!(job.achieved.outliers, 0);
    }
    for result in [&one, &two] {
        assert!(bench.room_bytes(result.start, result.bytes).unwrap() == expected);
    }
    let (after, rest) = (two.start + two.bytes, 4096);
    assert!(bench.room_bytes(after, rest).unwrap().iter().all(|&byte| byte == UNTOUCHED));
}

#[test]
fn streams_come_back_as_the_codec_decodes_them() {
    let _fake = Fake::start();
    let bench = Bench::new().unwrap();
    let field = Field::new(&bench, &Dtype::Float32, &[33, 18], 6.5);
    let pending = bench.encode(&[&field], Start::At(bench.begin()), bench.end()).unwrap();
    let result = pending.wait(LIMIT).unwrap();
    let target = bench.upload(&vec![0; field.bytes.len()]).unwrap();
    let (stream, stored) = (result.start, result.bytes);
    let (layout, target_address) = (field.layout.clone().into(), target.span().address());
    let job = DecodeJob { stream, stored, steps: None, layout, target: target_address };
    // SAFETY: as above.
    let status = unsafe { bench.coder.decode(&bench.stream, std::slice::from_ref(&job)) }.unwrap();
    status.wait(LIMIT).unwrap();
    let mut expected = vec![0; field.bytes.len()];
    zfp::decode(&Dtype::Float32, &[33, 18], &field.stream, &mut expected).unwrap();
    assert!(bench.download(&target.span()).unwrap() == expected);

    copy::fill(&bench.stream, &target.span(), UNTOUCHED).unwrap();
    let other = ZfpLayout::of(&Dtype::Float32, &[18, 33], 6.5).unwrap();
    assert_eq!(other.stored(), stored);
    let job = DecodeJob { layout: other.into(), ..job };
    // SAFETY: as above.
    let status = unsafe { bench.coder.decode(&bench.stream, std::slice::from_ref(&job)) }.unwrap();
    assert_eq!(status.wait(LIMIT).unwrap_err().kind(), DeviceErrorKind::Damaged);
    assert!(bench.download(&target.span()).unwrap().iter().all(|&byte| byte == UNTOUCHED));
    let job = DecodeJob { stored: stored - 8, ..job };
    // SAFETY: as above.
    let error = unsafe { bench.coder.decode(&bench.stream, &[job]) }.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::OutOfRange);
}

#[test]
fn what_does_not_fit_or_is_not_finite_is_reported_and_leaves_what_follows_alone() {
    let _fake = Fake::start();
    let bench = Bench::new().unwrap();
    let mut field = Field::new(&bench, &Dtype::Float32, &[40, 40], 8.0);
    let limit = bench.begin() + field.layout.stored() - 8;
    let pending = bench.encode(&[&field], Start::At(bench.begin()), limit).unwrap();
    let after = Start::After { pending: &pending, align: 64 };
    let next = bench.encode(&[&field], after, bench.end()).unwrap();
    assert_eq!(pending.wait(LIMIT).unwrap_err().kind(), EncodeErrorKind::Overflow);
    assert_eq!(next.wait(LIMIT).unwrap().start, limit.next_multiple_of(64));

    field.bytes[403..407].copy_from_slice(&[0xff; 4]);
    field.memory = bench.upload(&field.bytes).unwrap();
    let limit = bench.begin() + ROOM / 2;
    let pending = bench.encode(&[&field], Start::At(bench.begin()), limit).unwrap();
    let error = pending.wait(LIMIT).unwrap_err();
    assert_eq!(error.kind(), EncodeErrorKind::Refused);
    assert!(error.to_string().contains("finite"), "{error}");
}
