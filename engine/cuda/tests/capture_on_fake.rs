//! Captures of a stream in the mode that forbids every thread of the process unsafe calls, while
//! arenas are prepared and copies go on: nothing fails and no capture is spoilt.

use std::time::Duration;

use unspool_cuda::{
    Context, DeviceArena, DeviceArenaOptions, DeviceError, DeviceMemory, Driver, FencePool,
    PinnedArena, PinnedOptions, Stream, Unregistered, copy, device_of,
};
use unspool_fakecuda::Fake;

const LIMIT: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`.
const GLOBAL: u32 = 0;

type Begin = unsafe extern "C" fn(usize, u32) -> u32;
type End = unsafe extern "C" fn(usize, *mut usize) -> u32;
type Push = unsafe extern "C" fn(usize) -> u32;
type Pop = unsafe extern "C" fn(*mut usize) -> u32;
type Retain = unsafe extern "C" fn(*mut usize, i32) -> u32;

/// Begins or ends a capture of `stream` by the driver's own functions, with the context current.
fn capture(fake: &Fake, stream: &Stream, begins: bool) -> u32 {
    let library = fake.driver();
    let (mut context, mut graph) = (0, 0);
    // SAFETY: the signatures are the driver's own; the stream and its context live.
    unsafe {
        library.get::<Retain>(b"cuDevicePrimaryCtxRetain").expect("there")(&raw mut context, 0);
        library.get::<Push>(b"cuCtxPushCurrent_v2").expect("there")(context);
        let code = match begins {
            true => library.get::<Begin>(b"cuStreamBeginCapture_v2").expect("there")(
                stream.handle(),
                GLOBAL,
            ),
            false => library.get::<End>(b"cuStreamEndCapture").expect("there")(
                stream.handle(),
                &raw mut graph,
            ),
        };
        library.get::<Pop>(b"cuCtxPopCurrent_v2").expect("there")(&raw mut context);
        code
    }
}

/// What the threads of a spool do, on another thread than the one that captures.
fn work(context: &Context) -> Result<(), DeviceError> {
    let stream = Stream::new(context)?;
    let options = DeviceArenaOptions { chunk: 4 * MIB, ..DeviceArenaOptions::default() };
    let device = DeviceArena::new(context, 8 * MIB, &options)?;
    device.wait_mapped(8 * MIB, LIMIT)?;
    let host = PinnedArena::new(context, 8 * MIB, &PinnedOptions::default())?;
    host.wait_registered(8 * MIB, LIMIT)?;
    let (fences, span) = (FencePool::new(context), device.span(0, 4 * MIB)?);
    copy::fill(&stream, &span, 5)?;
    host.copy_in(&stream, 0, &span, Unregistered::Pageable)?;
    fences.record(&stream)?.wait(LIMIT)?;
    let memory = DeviceMemory::new(context, MIB)?;
    let mut bytes = vec![1; MIB as usize];
    copy::host_to_device(&stream, &memory.span(), &bytes, LIMIT)?;
    copy::device_to_host(&stream, &mut bytes, &memory.span(), LIMIT)?;
    assert!(bytes.iter().all(|&byte| byte == 1));
    assert_eq!(device_of(memory.span().address())?, Some(0));
    drop(memory);
    stream.drain(LIMIT)
}

#[test]
fn arenas_and_copies_of_other_threads_go_on_and_spoil_no_capture() {
    let fake = Fake::start();
    let driver = Driver::load().unwrap();
    let context = Context::new(&driver, 0).unwrap();
    let user = Stream::new(&context).unwrap();
    assert_eq!(capture(&fake, &user, true), 0);
    assert!(user.is_capturing().unwrap());
    let worked = std::thread::scope(|scope| scope.spawn(|| work(&context)).join());
    assert!(user.is_capturing().unwrap());
    assert_eq!(capture(&fake, &user, false), 0, "the capture was spoilt");
    worked.unwrap().unwrap();
    assert!(!user.is_capturing().unwrap());
}
