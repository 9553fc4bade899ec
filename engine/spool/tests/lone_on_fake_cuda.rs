//! Arrays of a GPU that are encoded and decoded by themselves.

mod application;

use std::time::Duration;

use application::{LIMIT, Outcome, array_of, download, every_other, upload};
use unspool::gpu::{Context, DeviceArray, Gpu, LoneArray, Stream};
use unspool::{Bound, Dtype, ErrorKind, Spec};
use unspool_fakecuda::Fake;

const ITEMS: u64 = 3000;
/// The room has a header before the coded bytes.
const OFFSET: u64 = 64;

struct Device {
    fake: Fake,
    gpu: Gpu,
    stream: Stream,
}

impl Device {
    fn new() -> Outcome<Device> {
        let fake = Fake::start();
        let gpu = Gpu::open(0, Vec::new(), LIMIT)?;
        Ok(Device { fake, stream: Stream::new(gpu.context())?, gpu })
    }

    fn context(&self) -> &Context {
        self.gpu.context()
    }

    fn lone<'a>(&'a self, array: &'a DeviceArray, codec: &'a Spec) -> LoneArray<'a> {
        let shape = &[ITEMS];
        LoneArray { array, stream: &self.stream, dtype: &Dtype::Float32, shape, codec }
    }
}

fn values(items: u64) -> Vec<u8> {
    (0..items).flat_map(|i| (i as f32 * 0.01).sin().to_le_bytes()).collect()
}

fn codecs() -> [Spec; 3] {
    [Spec::Raw, Spec::Lossless, Spec::Bounded(Bound::Absolute(1e-3))]
}

#[test]
fn what_is_decoded_is_what_main_memory_makes_of_it() -> Outcome {
    let device = Device::new()?;
    let given = values(ITEMS);
    let (memory, target) = (
        upload(device.context(), &device.stream, &given)?,
        upload(device.context(), &device.stream, &vec![0; given.len()])?,
    );
    for codec in codecs() {
        let (source, out) = (array_of(&memory), array_of(&target));
        let room = device.gpu.pinned(OFFSET + 2 * given.len() as u64)?;
        let lone = device.lone(&source, &codec);
        let made = device.gpu.encode_alone(&lone, (&room, OFFSET), LIMIT)?;
        let mut stream = vec![0; 2 * given.len()];
        let wanted = codec.codec()?.encode(&codec, lone.dtype, lone.shape, &given, &mut stream)?;
        assert_eq!(made.bytes, wanted.bytes);
        // SAFETY: the copy into the room is done.
        let found = unsafe { &room.bytes()[OFFSET as usize..][..made.bytes as usize] };
        assert_eq!(found, &stream[..made.bytes as usize]);
        let lone = device.lone(&out, &codec);
        device.gpu.decode_alone(&lone, (&room, OFFSET), made.bytes)?.wait(LIMIT)?;
        let mut decoded = vec![0; given.len()];
        codec.codec()?.decode(lone.dtype, lone.shape, found, &mut decoded)?;
        assert_eq!(download(&device.stream, &target)?, decoded);
    }
    Ok(())
}

#[test]
fn every_other_value_is_gathered_and_scattered() -> Outcome {
    let device = Device::new()?;
    let (given, zeros) = (values(2 * ITEMS), vec![0; 8 * ITEMS as usize]);
    for codec in [Spec::Raw, Spec::Lossless] {
        let memory = upload(device.context(), &device.stream, &given)?;
        let target = upload(device.context(), &device.stream, &zeros)?;
        let (source, wanted) = every_other(&memory, &given);
        let (out, _) = every_other(&target, &zeros);
        let room = device.gpu.pinned(OFFSET + 8 * ITEMS)?;
        let lone = device.lone(&source, &codec);
        let made = device.gpu.encode_alone(&lone, (&room, OFFSET), LIMIT)?;
        let lone = device.lone(&out, &codec);
        device.gpu.decode_alone(&lone, (&room, OFFSET), made.bytes)?.wait(LIMIT)?;
        let found = download(&device.stream, &target)?;
        let (_, found) = every_other(&target, &found);
        assert_eq!(found, wanted);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_or_is_damaged_is_refused() -> Outcome {
    let device = Device::new()?;
    let memory = upload(device.context(), &device.stream, &values(ITEMS))?;
    let array = array_of(&memory);
    let lossless = device.lone(&array, &Spec::Lossless);
    let small = device.gpu.pinned(OFFSET + 8)?;
    let refused = device.gpu.encode_alone(&lossless, (&small, OFFSET), LIMIT);
    assert_eq!(refused.expect_err("no room").kind(), ErrorKind::Device);
    let short = LoneArray { shape: &[ITEMS - 1], ..lossless };
    let refused = device.gpu.encode_alone(&short, (&small, OFFSET), LIMIT);
    assert_eq!(refused.expect_err("another size").kind(), ErrorKind::Invalid);

    let mut room = device.gpu.pinned(4 * ITEMS)?;
    // SAFETY: nothing uses the room yet.
    unsafe { room.bytes_mut().fill(0xA5) };
    let decoding = device.gpu.decode_alone(&lossless, (&room, OFFSET), 4000)?;
    assert_eq!(decoding.wait(LIMIT).expect_err("no stream").kind(), ErrorKind::Corrupt);
    let raw = device.lone(&array, &Spec::Raw);
    let refused = device.gpu.decode_alone(&raw, (&room, 0), 4 * ITEMS - 4);
    assert_eq!(refused.expect_err("another size").kind(), ErrorKind::Invalid);
    Ok(())
}

#[test]
fn a_device_that_does_not_come_to_it_is_waited_for_no_longer_than_asked() -> Outcome {
    let device = Device::new()?;
    let memory = upload(device.context(), &device.stream, &values(ITEMS))?;
    let array = array_of(&memory);
    let lone = device.lone(&array, &Spec::Lossless);
    let room = device.gpu.pinned(OFFSET + 8 * ITEMS)?;
    device.gpu.encode_alone(&lone, (&room, OFFSET), LIMIT)?;
    device.fake.hold();
    let late = device.gpu.encode_alone(&lone, (&room, OFFSET), Duration::from_millis(1));
    assert_eq!(late.expect_err("held").kind(), ErrorKind::Timeout);
    device.fake.release();
    device.gpu.encode_alone(&lone, (&room, OFFSET), LIMIT)?;
    Ok(())
}
