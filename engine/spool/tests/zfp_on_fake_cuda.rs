//! zfp of a fixed rate in spools: encoded and decoded by a fake GPU, wherever the streams lie.

mod application;

use application::{LIMIT, Outcome, array_of, damage, download, every_other, on_host, upload, wait};
use unspool::gpu::{Context, DeviceMemory, Stream};
use unspool::{
    CodecId, Codecs, DiskSettings, Dtype, ErrorKind, On, RegionSpec, Settings, Spec, Spool, Zfp,
};
use unspool_codec::zfp;
use unspool_cuda::Driver;
use unspool_fakecuda::Fake;

const SHAPE: [u64; 2] = [61, 83];

/// An array, and what zfp makes of it in main memory.
struct Field {
    spec: RegionSpec,
    values: Vec<u8>,
    stored: u64,
    decoded: Vec<u8>,
}

impl Field {
    fn new(dtype: Dtype, shape: &[u64], rate: f64, seed: u64) -> Field {
        let at = |i: u64| (i as f64 * 0.01 + seed as f64).sin() * (1 + i % 5) as f64;
        let count = shape.iter().product::<u64>();
        let values: Vec<u8> = match dtype {
            Dtype::Float32 => (0..count).flat_map(|i| (at(i) as f32).to_le_bytes()).collect(),
            _ => (0..count).flat_map(|i| at(i).to_le_bytes()).collect(),
        };
        let mode = Zfp::Rate(rate);
        let most = zfp::max_bytes(&mode, &dtype, shape).expect("a mode of zfp");
        let (mut stream, mut decoded) = (vec![0; most as usize], vec![0; values.len()]);
        let made = zfp::encode(&mode, &dtype, shape, &values, &mut stream).expect("finite values");
        stream.truncate(made.bytes as usize);
        zfp::decode(&dtype, shape, &stream, &mut decoded).expect("a stream");
        let spec = RegionSpec { name: "u".to_owned(), dtype, shape: shape.to_vec() };
        Field { spec, values, stored: made.bytes, decoded }
    }

    fn plain(seed: u64) -> Field {
        Field::new(Dtype::Float32, &SHAPE, 8.0, seed)
    }

    fn len(&self) -> u64 {
        self.values.len() as u64
    }
}

/// An application with one stream.
struct Application {
    fake: Fake,
    context: Context,
    stream: Stream,
}

impl Application {
    fn new() -> Outcome<Application> {
        let fake = Fake::start();
        let context = Context::new(&Driver::load()?, 0)?;
        Ok(Application { fake, stream: Stream::new(&context)?, context })
    }

    fn upload(&self, bytes: &[u8]) -> Outcome<DeviceMemory> {
        upload(&self.context, &self.stream, bytes)
    }

    fn download(&self, memory: &DeviceMemory) -> Outcome<Vec<u8>> {
        download(&self.stream, memory)
    }

    fn save(&self, spool: &Spool, version: i64, field: &Field) -> Outcome {
        let memory = self.upload(&field.values)?;
        let mut ticket = spool.save(version, vec![field.spec.clone()], &wait())?;
        ticket.put(0, &array_of(&memory), &self.stream)?;
        Ok(ticket.commit()?)
    }

    /// Restores into memory of the GPU.
    fn restore(&self, spool: &Spool, version: i64, len: u64) -> Outcome<Vec<u8>> {
        let memory = self.upload(&vec![0xEE; len as usize])?;
        let mut ticket = spool.restore(version, &wait())?;
        ticket.get(0, &array_of(&memory), &self.stream)?;
        ticket.finish()?;
        self.download(&memory)
    }

    /// The same, and the bytes that crossed the link for it, to the device and back.
    fn restore_counted(&self, spool: &Spool, version: i64, len: u64) -> Outcome<(Vec<u8>, u64)> {
        let memory = self.upload(&vec![0xEE; len as usize])?;
        let crossed = || self.fake.count("bytes_to_device") + self.fake.count("bytes_to_host");
        let mut ticket = spool.restore(version, &wait())?;
        let before = crossed();
        ticket.get(0, &array_of(&memory), &self.stream)?;
        self.stream.sync(LIMIT)?;
        let after = crossed();
        ticket.finish()?;
        Ok((self.download(&memory)?, after - before))
    }
}

fn open(change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    application::open(Codecs::all(Spec::Zfp(Zfp::Rate(8.0))), |settings| {
        settings.device = Some(4 << 20);
        change(settings);
    })
}

#[test]
fn every_rate_dtype_and_number_of_dimensions_comes_back_as_the_host_decodes_it() {
    let application = Application::new().unwrap();
    let shapes: [&[u64]; 6] = [&[64], &[77], &[16, 12], &[9, 14], &[4, 8, 4], &[5, 6, 7]];
    for rate in [4.0, 8.0, 16.0] {
        let codec = Codecs::all(Spec::Zfp(Zfp::Rate(rate)));
        let spool = open(|settings| settings.codec = codec).unwrap();
        let mut version = 0;
        for dtype in [Dtype::Float32, Dtype::Float64] {
            for shape in shapes {
                let field = Field::new(dtype.clone(), shape, rate, version as u64);
                application.save(&spool, version, &field).unwrap();
                let told = &spool.achieved(version).unwrap()[0];
                assert_eq!((told.codec, told.stored), (CodecId::Zfp, field.stored));
                let (found, crossed) =
                    application.restore_counted(&spool, version, field.len()).unwrap();
                assert!(found == field.decoded, "{dtype} {shape:?} at {rate}");
                assert_eq!(crossed, 0, "the GPU decodes what is in its memory");
                assert!(on_host(&spool, version, 0).unwrap() == field.decoded);
                version += 1;
            }
        }
        spool.close().unwrap();
    }
}

#[test]
fn from_main_memory_and_from_a_disk_the_stream_crosses_the_link_and_not_the_values() {
    let application = Application::new().unwrap();
    let field = Field::plain(3);
    let directory = tempfile::tempdir().unwrap();
    let host_only = |settings: &mut Settings| {
        (settings.device, settings.host) = (None, Some(1 << 20));
    };
    let disk_only = |settings: &mut Settings| {
        (settings.device, settings.on, settings.check_order) = (None, On::Cpu, false);
        settings.disk = Some(DiskSettings::new(directory.path()));
    };
    for spool in [open(host_only).unwrap(), open(disk_only).unwrap()] {
        application.save(&spool, 0, &field).unwrap();
        let (found, crossed) = application.restore_counted(&spool, 0, field.len()).unwrap();
        assert!(found == field.decoded);
        assert_eq!(crossed, field.stored);
        spool.close().unwrap();
    }
}

#[test]
fn a_history_larger_than_its_arenas_comes_back_from_every_tier() {
    let application = Application::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spool = open(|settings| {
        (settings.device, settings.host) = (Some(64 << 10), Some(64 << 10));
        settings.disk = Some(DiskSettings::new(directory.path()));
    })
    .unwrap();
    let fields: Vec<Field> = (0..40).map(Field::plain).collect();
    for (version, field) in (0..).zip(&fields) {
        application.save(&spool, version, field).unwrap();
    }
    spool.expect((0..40).rev()).unwrap();
    for version in (0..40).rev() {
        let field = &fields[version as usize];
        let found = application.restore(&spool, version, field.len()).unwrap();
        assert!(found == field.decoded, "version {version}");
    }
    spool.close().unwrap();
}

#[test]
fn restores_return_while_the_gpu_stands_and_strided_arrays_are_filled_in_place() {
    let application = Application::new().unwrap();
    let spool = open(|_| ()).unwrap();
    let field = Field::new(Dtype::Float32, &[5000], 8.0, 1);
    application.save(&spool, 0, &field).unwrap();
    // What is made at the first use takes its time.
    application.restore(&spool, 0, field.len()).unwrap();
    let dense = application.upload(&vec![0; field.values.len()]).unwrap();
    let wide = application.upload(&vec![0; 2 * field.values.len()]).unwrap();
    let (strided, _) = every_other(&wide, &vec![0; 2 * field.values.len()]);
    for target in [&array_of(&dense), &strided] {
        let mut ticket = spool.restore(0, &wait()).unwrap();
        ticket.get(0, target, &application.stream).unwrap();
        ticket.finish().unwrap();
    }
    application.fake.hold();
    let mut ticket = spool.restore(0, &wait()).unwrap();
    ticket.get(0, &array_of(&dense), &application.stream).unwrap();
    ticket.finish().unwrap();
    application.fake.release();
    assert!(application.download(&dense).unwrap() == field.decoded);
    let wide = application.download(&wide).unwrap();
    let every_other: Vec<u8> = wide.chunks_exact(8).flat_map(|pair| pair[..4].to_vec()).collect();
    assert!(every_other == field.decoded);
    assert!(wide.chunks_exact(8).all(|pair| pair[4..] == [0; 4]));
    spool.close().unwrap();
}

#[test]
fn what_an_earlier_run_has_saved_is_decoded_by_the_gpu_too() {
    let application = Application::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let disk = DiskSettings { durable: true, ..DiskSettings::new(directory.path()) };
    let durable = |settings: &mut Settings| settings.disk = Some(disk.clone());
    let field = Field::new(Dtype::Float64, &SHAPE, 16.0, 2);
    let rate = Codecs::all(Spec::Zfp(Zfp::Rate(16.0)));
    let spool = open(|settings| {
        durable(settings);
        settings.codec = rate;
    })
    .unwrap();
    application.save(&spool, 0, &field).unwrap();
    spool.close().unwrap();
    drop(spool);
    // Whose spool has another codec, so only the stream says what it is.
    let spool = open(|settings| {
        durable(settings);
        settings.codec = Codecs::default();
    })
    .unwrap();
    spool.expect([0, 0]).unwrap();
    for _ in 0..2 {
        let (found, crossed) = application.restore_counted(&spool, 0, field.len()).unwrap();
        assert!(found == field.decoded);
        assert!(crossed <= field.stored + 64, "{crossed} bytes crossed the link");
    }
    spool.close().unwrap();
}

#[test]
fn other_modes_than_a_fixed_rate_are_coded_by_the_host() {
    let application = Application::new().unwrap();
    let spool = open(|settings| {
        settings.codec = Codecs::all(Spec::Zfp(Zfp::Tolerance(1e-3)));
    })
    .unwrap();
    let field = Field::plain(4);
    application.save(&spool, 0, &field).unwrap();
    let found = application.restore(&spool, 0, field.len()).unwrap();
    let value = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    let pairs = found.chunks_exact(4).zip(field.values.chunks_exact(4));
    assert!(pairs.clone().all(|(a, b)| (value(a) - value(b)).abs() <= 1e-3));
    assert_eq!(pairs.count(), (SHAPE[0] * SHAPE[1]) as usize);
    spool.close().unwrap();
}

#[test]
fn streams_that_were_damaged_are_told_as_by_the_host() {
    let application = Application::new().unwrap();
    let field = Field::plain(5);
    for check in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let spool = open(|settings| {
            (settings.device, settings.on, settings.check_order) = (None, On::Cpu, false);
            (settings.verify, settings.check_codec) = (false, check);
            settings.disk = Some(DiskSettings::new(directory.path()));
        })
        .unwrap();
        application.save(&spool, 0, &field).unwrap();
        // The rate that the stream says it has.
        damage(directory.path(), b"ZFP1", 31, 0x41);
        let by_host = kind_of(on_host(&spool, 0, 0).map(drop));
        assert_eq!(by_host, Some(ErrorKind::Corrupt));
        let at_once = kind_of(application.restore(&spool, 0, field.len()).map(drop));
        let later = spool.restore(0, &wait()).map(drop).err().map(|error| error.kind());
        assert_eq!(if check { at_once } else { later }, Some(ErrorKind::Corrupt), "{check}");
        spool.close().unwrap();
    }
}

fn kind_of(outcome: Outcome) -> Option<ErrorKind> {
    outcome.err().and_then(|error| error.downcast_ref::<unspool::Error>().map(|e| e.kind()))
}
