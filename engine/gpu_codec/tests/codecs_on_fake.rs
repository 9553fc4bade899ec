//! Checkpoints whose regions have several codecs, over a fake driver: runs of regions, chains of
//! checkpoints, and what is refused.

use std::time::Duration;

use unspool_codec::{Bound, Dtype, Spec, Zfp};
use unspool_cuda::{Context, DeviceError, DeviceMemory, Driver, Stream, copy};
use unspool_fakecuda::Fake;
use unspool_gpu_codec::{After, GpuCodecs, GpuLayout, Request, Values};

const LIMIT: Duration = Duration::from_secs(20);
const SHAPE: [u64; 2] = [32, 64];
const LEN: usize = 4 * 32 * 64;
const ROOM: u64 = 1 << 17;

type Outcome<T = ()> = Result<T, DeviceError>;

struct Bench {
    context: Context,
    stream: Stream,
    codecs: GpuCodecs,
    source: DeviceMemory,
    room: DeviceMemory,
}

fn wave() -> Vec<u8> {
    (0..LEN / 4).flat_map(|i| (i as f32 * 0.01).sin().to_le_bytes()).collect()
}

impl Bench {
    fn new() -> Outcome<Bench> {
        let context = Context::new(&Driver::load()?, 0)?;
        let (stream, codecs) = (Stream::new(&context)?, GpuCodecs::new(&context, &[]));
        let source = DeviceMemory::new(&context, LEN as u64)?;
        let room = DeviceMemory::new(&context, 2 * ROOM)?;
        copy::host_to_device(&stream, &source.span(), &wave(), LIMIT)?;
        Ok(Bench { context, stream, codecs, source, room })
    }

    fn values(&self, spec: Spec) -> Values {
        let layout = GpuLayout::of(&spec, &Dtype::Float32, &SHAPE).expect("a small array");
        Values { items: self.source.span().into(), layout: layout.expect("a codec of the device") }
    }

    fn back(&self, bytes: &[u8], layout: &GpuLayout) -> Outcome<Vec<u8>> {
        let from = DeviceMemory::new(&self.context, bytes.len() as u64)?;
        let to = DeviceMemory::new(&self.context, LEN as u64)?;
        copy::host_to_device(&self.stream, &from.span(), bytes, LIMIT)?;
        let status = self.codecs.decode(&self.stream, &from.span(), layout, &to.span().into())?;
        status.wait(LIMIT)?;
        let mut values = vec![0; LEN];
        copy::device_to_host(&self.stream, &mut values, &to.span(), LIMIT)?;
        Ok(values)
    }
}

/// The wave as the codec in main memory encodes it.
fn expected(spec: Spec) -> Vec<u8> {
    let codec = spec.codec().expect("a codec of the host");
    let most = codec.max_bytes(&spec, &Dtype::Float32, &SHAPE).expect("a small array");
    let mut out = vec![0; most as usize];
    let made = codec.encode(&spec, &Dtype::Float32, &SHAPE, &wave(), &mut out).expect("a wave");
    out.truncate(made.bytes as usize);
    out
}

#[test]
fn regions_of_several_codecs_become_one_checkpoint_and_the_next_begins_after_it() {
    let fake = Fake::start();
    let bench = Bench::new().unwrap();
    let bounded = Spec::Bounded(Bound::Absolute(1e-3));
    let zfp = Spec::Zfp(Zfp::Rate(8.0));
    let specs = [Spec::Lossless, zfp, zfp, Spec::Raw, bounded];
    let values = specs.map(|spec| bench.values(spec));
    let rooms = [0, 1].map(|index| bench.room.span().slice(index * ROOM, ROOM).unwrap());
    fake.hold();
    let requests = [
        Request { values: &values, room: rooms[0].clone(), after: After::Nothing },
        Request { values: &values[3..], room: rooms[1].clone(), after: After::Before(256) },
    ];
    let parts = bench.codecs.encode(&bench.stream, &requests).unwrap();
    assert!(parts.iter().all(|part| part.try_result().is_none()));
    fake.release();
    let [one, other] = [0, 1].map(|index| parts[index].wait(LIMIT).unwrap());
    assert_eq!(other.start, (one.start + one.bytes).next_multiple_of(256));
    let mut all = vec![0; 2 * ROOM as usize];
    copy::device_to_host(&bench.stream, &mut all, &bench.room.span(), LIMIT).unwrap();
    for (result, specs) in [(&one, &specs[..]), (&other, &specs[3..])] {
        assert_eq!(result.jobs.len(), specs.len());
        for (job, &spec) in result.jobs.iter().zip(specs) {
            assert!(job.offset.is_multiple_of(64));
            let at = (result.start + job.offset - rooms[0].address()) as usize;
            assert!(all[at..][..job.stored as usize] == expected(spec), "{spec:?}");
        }
    }
    for (job, (spec, values)) in one.jobs.iter().zip(specs.iter().zip(&values)).take(2) {
        let at = (one.start + job.offset - rooms[0].address()) as usize;
        let mut host = vec![0; LEN];
        let stored = &all[at..][..job.stored as usize];
        spec.codec().unwrap().decode(&Dtype::Float32, &SHAPE, stored, &mut host).unwrap();
        assert!(bench.back(stored, &values.layout).unwrap() == host, "{spec:?}");
    }
}

#[test]
fn what_cannot_be_encoded_is_refused_before_anything_is_enqueued() {
    let _fake = Fake::start();
    let bench = Bench::new().unwrap();
    let room = bench.room.span();
    let encode = |values: &[Values]| {
        let request = Request { values, room: room.clone(), after: After::Nothing };
        bench.codecs.encode(&bench.stream, &[request]).unwrap_err().to_string()
    };
    assert!(encode(&[]).contains("without regions"));
    let short = Values { items: room.slice(0, 8).unwrap().into(), ..bench.values(Spec::Lossless) };
    assert!(!encode(&[bench.values(Spec::Raw), short]).is_empty());
    assert_eq!(GpuLayout::of(&Spec::Zfp(Zfp::Precision(9)), &Dtype::Float32, &SHAPE), Ok(None));
}
