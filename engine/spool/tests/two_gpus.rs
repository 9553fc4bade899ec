//! Two GPUs in one process, each with spools of its own: on the fake driver.

mod sequences;

use sequences::{Bank, Outcome, Plan, play_many};
use unspool::gpu::{Context, DeviceArray, DeviceMemory, Stream};
use unspool::{Dtype, ErrorKind, On, RegionSpec, Settings, Spool, Wait};
use unspool_cuda::Driver;
use unspool_fakecuda::Fake;

const KIB: u64 = 1 << 10;
const LEN: u64 = 1000;

fn start() -> Fake {
    Fake::start_with(&[("FAKECUDA_DEVICES", "2")])
}

fn context(ordinal: u32) -> Outcome<Context> {
    Ok(Context::new(&Driver::load()?, ordinal)?)
}

fn spool_on(ordinal: u32) -> Spool {
    let on = On::Cuda(Some(ordinal));
    let settings = Settings { device: Some(64 * KIB), on, ..Settings::default() };
    Spool::open(settings).expect("a device of this number")
}

#[test]
fn spools_on_two_devices_work_at_once() {
    let _fake = start();
    let banks = [0, 1].map(|on| Bank::new(&context(on).unwrap(), 512 * KIB).unwrap());
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (on, bank) in (0..).zip(&banks) {
            let path = directory.path();
            let plan = move |seed| Plan { on, ..Plan::small(seed, 64 * KIB, path) };
            scope.spawn(move || play_many(0..40, bank, plan).unwrap());
        }
    });
}

#[test]
fn an_array_of_another_device_is_refused_with_both_numbers_and_nothing_is_saved() {
    let _fake = start();
    let (context, spool) = (context(1).unwrap(), spool_on(0));
    let (stream, memory) =
        (Stream::new(&context).unwrap(), DeviceMemory::new(&context, LEN).unwrap());
    // SAFETY: the memory lives until the end, and nothing is enqueued.
    let array = unsafe { DeviceArray::dense(1, memory.span().address(), LEN) };
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![LEN] };
    let mut ticket = spool.save(7, vec![spec], &Wait::default()).unwrap();
    let error = ticket.put(0, &array, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice);
    let text = error.to_string();
    assert!(text.contains("device 1") && text.contains("device 0"), "{text}");
    assert!(text.contains("cuda:1"), "it says what to do: {text}");
    drop(ticket);
    assert!(!spool.contains(7).unwrap());
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let _fake = start();
    let spool = spool_on(0);
    let memory = DeviceMemory::new(&context(0).unwrap(), LEN).unwrap();
    let stream = Stream::new(&context(1).unwrap()).unwrap();
    // SAFETY: as above.
    let array = unsafe { DeviceArray::dense(0, memory.span().address(), LEN) };
    let spec = RegionSpec { name: "u".into(), dtype: Dtype::UInt8, shape: vec![LEN] };
    let mut ticket = spool.save(7, vec![spec], &Wait::default()).unwrap();
    let error = ticket.put(0, &array, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDevice, "{error}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_it() {
    let _fake = start();
    let on = On::Cuda(Some(5));
    let error = Spool::open(Settings { device: Some(KIB), on, ..Settings::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    assert!(error.to_string().contains("device 5"), "{error}");
}
