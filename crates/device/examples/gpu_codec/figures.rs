//! What encoding and decoding cost, beside a copy of the same bytes.

use std::time::{Duration, Instant};

use unspool_codec::twine::{Layout, Method, Spec};
use unspool_codec::{Bound, Dtype};
use unspool_device::twine::{Checkpoint, DecodeJob, EncodeJob, JobSpec, Twine};
use unspool_device::{Context, DeviceMemory, Event, Start, Stream, copy};

use crate::bench::{LONG, upload};

const MIB: u64 = 1 << 20;
/// Values of a row.
const WIDTH: u64 = 2048;

struct Bench<'a> {
    context: &'a Context,
    stream: Stream,
    coder: Twine,
    /// Fields of float32 and float64, and room for what they become.
    narrow: DeviceMemory,
    wide: DeviceMemory,
    room: DeviceMemory,
    target: DeviceMemory,
    range: f64,
}

/// A wave that has come half way through a quiet field: rings, their echoes, and a little noise
/// where the wave has been.
fn wave(rows: u64) -> Vec<f32> {
    let (mut field, mut noise) = (Vec::with_capacity((rows * WIDTH) as usize), 1u32);
    for y in 0..rows {
        for x in 0..WIDTH {
            let (dx, dy) = (x as f32 - 900.0, y as f32 % 2048.0 - 700.0);
            let r = (dx * dx + dy * dy).sqrt();
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let front = if r < 800.0 { 1.0 } else { 0.0 };
            let rings = (r * 0.08).sin() / (1.0 + r * 0.01) + 0.3 * ((dx + 2.0 * dy) * 0.05).sin();
            field.push(front * (rings + (noise >> 8) as f32 * 1e-12));
        }
    }
    field
}

/// Of arrays of at least and at most so many MiB, and of codecs whose names have `name`.
pub fn run(context: &Context, (least, most): (u64, u64), name: &str) {
    let stream = Stream::new(context).unwrap();
    let field = wave(most.min(64) * MIB / 4 / WIDTH);
    let bytes: Vec<u8> = field.iter().flat_map(|x| x.to_le_bytes()).collect();
    let wide: Vec<u8> = field.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect();
    let range =
        field.iter().fold(0f32, |m, x| m.max(*x)) - field.iter().fold(0f32, |m, x| m.min(*x));
    let bench = Bench {
        context,
        narrow: repeated(context, &stream, &bytes, most * MIB),
        wide: repeated(context, &stream, &wide, most * MIB),
        room: DeviceMemory::new(context, most * MIB / 64 * 65 + MIB).unwrap(),
        target: DeviceMemory::new(context, most * MIB).unwrap(),
        coder: Twine::new(context, Vec::new()).with_best_kernels(),
        range: f64::from(range),
        stream,
    };
    println!(
        "\ndevice time and time of the call; GB/s of the array; stored bytes of it are 1 / ratio"
    );
    bench.copies(least, most);
    bench.codecs(least, most, name);
    if name.is_empty() {
        bench.batches();
        bench.tiles(most);
    }
}

fn repeated(context: &Context, stream: &Stream, bytes: &[u8], len: u64) -> DeviceMemory {
    let (memory, once) =
        (DeviceMemory::new(context, len).unwrap(), upload(context, stream, bytes, 0));
    let mut at = 0;
    while at < len {
        let part = (len - at).min(bytes.len() as u64);
        let to = memory.span().slice(at, part).unwrap();
        copy::device_to_device(stream, &to, &once.span().slice(0, part).unwrap()).unwrap();
        at += part;
    }
    stream.sync(LONG).unwrap();
    memory
}

/// Sizes in MiB.
fn sizes(least: u64, most: u64) -> impl Iterator<Item = u64> {
    [1, 8, 32, 128, 512].into_iter().filter(move |size| (least..=most).contains(size))
}

fn repeats(mib: u64) -> u32 {
    (2048 / mib).clamp(8, 100) as u32
}

/// Device time and host time of one of many calls in a row.
fn measure(bench: &Bench<'_>, repeats: u32, mut call: impl FnMut()) -> (Duration, Duration) {
    for _ in 0..repeats {
        call();
    }
    bench.stream.sync(LONG).unwrap();
    let (start, end) = (Event::timed(bench.context).unwrap(), Event::timed(bench.context).unwrap());
    start.record(&bench.stream).unwrap();
    let begin = Instant::now();
    for _ in 0..repeats {
        call();
    }
    let host = begin.elapsed() / repeats;
    end.record(&bench.stream).unwrap();
    end.wait(LONG).unwrap();
    (end.since(&start).unwrap() / repeats, host)
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Bench<'_> {
    fn copies(&self, least: u64, most: u64) {
        for size in sizes(least, most) {
            let (from, to) = (self.narrow.span(), self.target.span());
            let (from, to) = (from.slice(0, size * MIB).unwrap(), to.slice(0, size * MIB).unwrap());
            let copied = || copy::device_to_device(&self.stream, &to, &from).unwrap();
            let (device, host) = measure(self, repeats(size), copied);
            println!(
                "copy                 {size:4} MiB  {:8.1} us {:6.0} GB/s  call {:5.1} us",
                us(device),
                rate(size * MIB, device),
                us(host)
            );
        }
    }

    fn codecs(&self, least: u64, most: u64, wanted: &str) {
        let absolute = Method::Bound(Bound::Absolute(1e-3 * self.range));
        let ways: [(&str, Dtype, bool, Method); 8] = [
            ("f32 2-D abs 1e-3", Dtype::Float32, true, absolute),
            ("f32 1-D abs 1e-3", Dtype::Float32, false, absolute),
            ("f32 2-D range 1e-3", Dtype::Float32, true, Method::Bound(Bound::Range(1e-3))),
            ("f32 2-D rms 1e-2", Dtype::Float32, true, Method::Bound(Bound::Rms(1e-2))),
            ("f32 2-D lossless", Dtype::Float32, true, Method::Lossless),
            ("f32 1-D lossless", Dtype::Float32, false, Method::Lossless),
            ("f64 2-D abs 1e-3", Dtype::Float64, true, absolute),
            ("f64 2-D lossless", Dtype::Float64, true, Method::Lossless),
        ];
        for (name, dtype, flat, method) in ways.into_iter().filter(|way| way.0.contains(wanted)) {
            for size in sizes(least, most) {
                self.codec(&self.coder, name, (&dtype, flat, method), size);
            }
        }
    }

    fn codec(&self, coder: &Twine, name: &str, how: (&Dtype, bool, Method), size: u64) {
        let (dtype, flat, method) = how;
        let n = size * MIB / dtype.itemsize();
        let shape = if flat { vec![n / WIDTH, WIDTH] } else { vec![n] };
        let layout = Layout::of(dtype, &shape).unwrap();
        let spec = Spec { layout, method };
        let memory = if dtype.itemsize() == 8 { &self.wide } else { &self.narrow };
        let jobs = [EncodeJob { source: memory.span().address(), spec: JobSpec::Twine(&spec) }];
        let room = self.room.span();
        let (start, limit) = (Start::At(room.address()), room.address() + room.len());
        let asked = [Checkpoint { jobs: &jobs, start, limit }];
        // SAFETY: everything lives until the end of the measurement.
        let encode = || unsafe { coder.encode(&self.stream, &asked) }.unwrap();
        let stored = encode()[0].wait(LONG).unwrap().bytes;
        let (encoding, call) = measure(self, repeats(size), || drop(encode()));
        let job = DecodeJob {
            stream: room.address(),
            stored,
            layout: &layout,
            target: self.target.span().address(),
        };
        // SAFETY: as above.
        let decode = || unsafe { coder.decode(&self.stream, &[job]) }.unwrap();
        decode().wait(LONG).unwrap();
        let (decoding, decode_call) = measure(self, repeats(size), || drop(decode()));
        println!(
            "{name:20} {size:4} MiB  {:8.1} us {:6.0} GB/s  call {:5.1} us  decode {:8.1} us \
             {:6.0} GB/s  call {:5.1} us  ratio {:.2}",
            us(encoding),
            rate(size * MIB, encoding),
            us(call),
            us(decoding),
            rate(size * MIB, decoding),
            us(decode_call),
            (size * MIB) as f64 / stored as f64
        );
    }

    /// Many checkpoints of 1 MiB in one call, one behind the other.
    fn batches(&self) {
        let layout = Layout::of(&Dtype::Float32, &[MIB / 4 / WIDTH, WIDTH]).unwrap();
        let method = Method::Bound(Bound::Absolute(1e-3 * self.range));
        let spec = Spec { layout, method };
        let room = self.room.span();
        let limit = room.address() + room.len();
        for count in [8u64, 32] {
            let first = self.narrow.span().address();
            let jobs: Vec<[EncodeJob<'_>; 1]> = (0..count)
                .map(|i| [EncodeJob { source: first + i * MIB, spec: JobSpec::Twine(&spec) }])
                .collect();
            let asked: Vec<Checkpoint<'_>> = jobs
                .iter()
                .enumerate()
                .map(|(number, jobs)| {
                    let at = Start::At(room.address());
                    let start = if number == 0 { at } else { Start::Next { align: 256 } };
                    Checkpoint { jobs, start, limit }
                })
                .collect();
            // SAFETY: everything lives until the end of the measurement.
            let encode = || drop(unsafe { self.coder.encode(&self.stream, &asked) }.unwrap());
            let (device, host) = measure(self, 50, encode);
            println!(
                "batch of {count:2} x 1 MiB, f32 2-D abs  {:8.1} us {:6.0} GB/s  call {:5.1} us",
                us(device),
                rate(count * MIB, device),
                us(host)
            );
        }
    }

    /// The same with tiles of other sizes than those that are chosen.
    fn tiles(&self, most: u64) {
        let method = Method::Bound(Bound::Absolute(1e-3 * self.range));
        for warps in [2, 4, 8] {
            let coder = Twine::new(self.context, Vec::new()).with_best_kernels().with_warps(warps);
            for size in sizes(1, most).filter(|&size| size == 1 || size > 32) {
                let name = format!("f32 2-D, tiles of {warps}");
                self.codec(&coder, &name, (&Dtype::Float32, true, method), size);
                let name = format!("f32 1-D, tiles of {warps}");
                self.codec(&coder, &name, (&Dtype::Float32, false, method), size);
            }
        }
    }
}
