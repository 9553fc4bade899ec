//! Checkpoints of many arrays on a fake GPU: what they cost in calls of the driver, and that every
//! byte comes back, from any address and in any layout.

mod application;

use std::time::Duration;

use application::{
    Application, Given, History, LIMIT, Outcome, array_of, download, every_other, wait,
};
use unspool::gpu::{DeviceArray, DeviceMemory, Stream};
use unspool::{Codecs, Dtype, RegionSpec, Settings, Spec, Spool};
use unspool_cuda::copy;
use unspool_fakecuda::Fake;

/// The calls that may depend on the number of arrays, and the other ones.
const LAUNCHES: &str = "cuLaunchKernel";
const OTHERS: [&str; 8] = [
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuMemAlloc_v2",
    "cuMemsetD8Async",
];

/// Arrays of one launch: of copies, of the decoder of Twine.
const COPIES: u64 = 168;
const DECODED: u64 = 32;

fn open(codec: Spec, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    let large = |settings: &mut Settings| {
        settings.device = Some(8 << 20);
        change(settings);
    };
    application::open(Codecs::all(codec), large)
}

/// Main memory is the only tier, if so.
fn on_host(settings: &mut Settings, is_so: bool) {
    if is_so {
        (settings.device, settings.host) = (None, Some(8 << 20));
    }
}

fn region(index: usize, dtype: Dtype, bytes: u64) -> RegionSpec {
    let shape = vec![bytes / dtype.itemsize()];
    RegionSpec { name: format!("layers.{index}.weight"), dtype, shape }
}

/// What calls `work` makes: launches, and all the other ones.
fn calls(fake: &Fake, work: impl FnOnce()) -> (u64, u64) {
    let count = || (fake.calls(LAUNCHES), OTHERS.iter().map(|name| fake.calls(name)).sum::<u64>());
    let before = count();
    work();
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

fn restore(spool: &Spool, version: i64, arrays: &[Given<'_>]) -> Outcome {
    let mut ticket = spool.restore(version, &wait())?;
    ticket.get_all(arrays)?;
    Ok(ticket.finish()?)
}

#[test]
fn a_thousand_arrays_cost_as_many_calls_as_three_but_for_a_few_launches() {
    // Between arrays of such bytes there are gaps, which are zeroed.
    const BYTES: u64 = 260;
    let fake = Fake::start();
    let application = Application::with(|_| vec![0; 4]).unwrap();
    for (codec, on_device) in [(Spec::Raw, true), (Spec::Lossless, true), (Spec::Raw, false)] {
        let spool = open(codec, |settings| on_host(settings, !on_device)).unwrap();
        let mut others = Vec::new();
        for count in [1_u64, 3, 100, 1000] {
            let memory = DeviceMemory::new(&application.context, count * BYTES).unwrap();
            copy::fill(&application.stream, &memory.span(), 3).unwrap();
            let part = |index| memory.span().slice(index * BYTES, BYTES).unwrap();
            let arrays: Vec<_> = (0..count).map(|index| DeviceArray::of(part(index))).collect();
            let given = arrays.iter().enumerate();
            let given: Vec<Given<'_>> =
                given.map(|(index, array)| (index, array, &application.stream)).collect();
            let specs = || given.iter().map(|one| region(one.0, Dtype::Float32, BYTES)).collect();
            let mut made = Vec::new();
            // The first ones load kernels, and make memory and events that are used again.
            for version in 0..4 {
                let saved = calls(&fake, || spool.put(version, specs(), &given).unwrap());
                spool.achieved(version).unwrap();
                // Else the restore waits for the save, on the device, by one call more.
                application.context.synchronize().unwrap();
                let restored = calls(&fake, || restore(&spool, version, &given).unwrap());
                application.stream.sync(LIMIT).unwrap();
                spool.discard(version).unwrap();
                made.push((saved, restored));
            }
            let (saved, restored) = made[3];
            let launches = match codec {
                Spec::Raw if count == 1 => (0, 0),
                Spec::Raw => {
                    let gaps = if on_device { (count - 1).div_ceil(COPIES) } else { 0 };
                    (count.div_ceil(COPIES) + gaps, count.div_ceil(COPIES))
                }
                _ => (1, count.div_ceil(DECODED)),
            };
            assert_eq!((saved.0, restored.0), launches, "{count} arrays, {codec:?}: {made:?}");
            // Each launch of the decoder has a fence of its own.
            let fences = if codec == Spec::Raw { 0 } else { restored.0 };
            others.push((saved.1, restored.1 - fences));
        }
        assert!(others[3].0 <= others[1].0 + 1, "{codec:?}: {others:?}");
        assert!(others[3].1 <= others[1].1, "{codec:?}: {others:?}");
        spool.close().unwrap();
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// Arrays at any addresses of one memory that holds `content`: their regions and their bytes.
struct Scattered {
    arrays: Vec<DeviceArray>,
    specs: Vec<RegionSpec>,
    values: Vec<Vec<u8>>,
}

const APART: u64 = 6000;

fn scattered(memory: &DeviceMemory, content: &[u8], dice: &mut Dice) -> Outcome<Scattered> {
    let mut all = Scattered { arrays: Vec::new(), specs: Vec::new(), values: Vec::new() };
    for index in 0..memory.span().len() / APART {
        let dtype = [Dtype::UInt8, Dtype::Float32, Dtype::Float64][index as usize % 3].clone();
        let bytes = dice.below(5000) / dtype.itemsize() * dtype.itemsize();
        let first = index * APART + dice.below(17);
        let values = content[first as usize..(first + bytes) as usize].to_vec();
        all.arrays.push(DeviceArray::of(memory.span().slice(first, bytes)?));
        all.specs.push(region(index as usize, dtype, bytes));
        all.values.push(values);
    }
    Ok(all)
}

#[test]
fn arrays_of_any_size_address_and_stream_come_back_from_every_tier() {
    const COUNT: u64 = 340;
    let fake = Fake::start();
    fake.pace(Duration::from_micros(20), 0);
    let application = Application::with(|_| vec![0; 4]).unwrap();
    let second = Stream::new(&application.context).unwrap();
    let (mut dice, streams) = (Dice(7), [&application.stream, &second]);
    let content: Vec<u8> = (0..COUNT * APART).map(|_| dice.below(256) as u8 & 0x4f).collect();
    for (codec, on_device) in
        [(Spec::Raw, true), (Spec::Lossless, true), (Spec::Raw, false), (Spec::Lossless, false)]
    {
        let spool = open(codec, |settings| on_host(settings, !on_device)).unwrap();
        let memory = application.upload(&content).unwrap();
        let all = scattered(&memory, &content, &mut dice).unwrap();
        let (strided, kept) = every_other(&memory, &content[..16_000]);
        let mut specs = all.specs.clone();
        specs.push(region(COUNT as usize, Dtype::Float32, kept.len() as u64));
        let lane = |index: usize| streams[index / 3 % 2];
        let given = all.arrays.iter().chain([&strided]).enumerate();
        let given: Vec<Given<'_>> =
            given.map(|(index, array)| (index, array, lane(index))).collect();
        spool.put(0, specs, &given).unwrap();
        for (which, on) in streams.iter().enumerate() {
            let half = memory.span().len() / 2;
            let part = memory.span().slice(which as u64 * half, half).unwrap();
            copy::fill(on, &part, 0xEE).unwrap();
        }
        // Elsewhere, and in another order. The arrays of one call have the streams by turns.
        let elsewhere = application.upload(&vec![0xEE; content.len()]).unwrap();
        let strided_to = application.upload(&vec![0xEE; 16_000]).unwrap();
        let place = |index: usize| {
            let len = all.values[index].len() as u64;
            let to = index as u64 * APART + (index as u64 * 5) % 23;
            DeviceArray::of(elsewhere.span().slice(to, len).unwrap())
        };
        let targets: Vec<_> = (0..COUNT as usize).map(place).collect();
        let (strided, _) = every_other(&strided_to, &content[..16_000]);
        let back = targets.iter().chain([&strided]).enumerate();
        let mut back: Vec<Given<'_>> =
            back.map(|(index, array)| (index, array, lane(index))).collect();
        back.reverse();
        application.stream.sync(LIMIT).unwrap();
        restore(&spool, 0, &back).unwrap();
        second.wait_for(&application.stream.record().unwrap()).unwrap();
        let mut expected = vec![0xEE; content.len()];
        for (index, values) in all.values.iter().enumerate() {
            let to = index * APART as usize + (index * 5) % 23;
            expected[to..to + values.len()].copy_from_slice(values);
        }
        assert!(download(&second, &elsewhere).unwrap() == expected, "{codec:?}, {on_device}");
        let found = download(&second, &strided_to).unwrap();
        let found: Vec<u8> = found.chunks_exact(8).flat_map(|pair| pair[..4].to_vec()).collect();
        assert!(found == kept, "{codec:?}, {on_device}: what lies apart");
        spool.close().unwrap();
    }
}

#[test]
fn what_is_enqueued_on_the_stream_of_each_array_comes_before_its_save_and_after_its_restore() {
    let fake = Fake::start();
    fake.pace(Duration::from_micros(300), 0);
    let application = Application::with(|_| vec![0; 4096]).unwrap();
    let lanes: Vec<_> = (0..5).map(|_| Stream::new(&application.context).unwrap()).collect();
    for codec in [Spec::Raw, Spec::Lossless] {
        let spool = open(codec, |_| ()).unwrap();
        let memory = application.prepared(0..5).unwrap();
        application.stream.sync(LIMIT).unwrap();
        let arrays: Vec<_> = memory.iter().map(array_of).collect();
        let given = arrays.iter().zip(&lanes).enumerate();
        let given: Vec<Given<'_>> = given.map(|(index, (array, on))| (index, array, on)).collect();
        let fill = |byte: usize| {
            for (index, (memory, on)) in memory.iter().zip(&lanes).enumerate() {
                copy::fill(on, &memory.span(), (byte + index) as u8).unwrap();
            }
        };
        let specs = (0..5).map(|index| region(index, Dtype::Float32, 4096)).collect();
        fill(10);
        spool.put(0, specs, &given).unwrap();
        fill(20);
        restore(&spool, 0, &given).unwrap();
        for (index, (memory, on)) in memory.iter().zip(&lanes).enumerate() {
            assert!(download(on, memory).unwrap() == [10 + index as u8; 4096], "{codec:?} {index}");
        }
        spool.close().unwrap();
    }
}
