//! Speed of encoding and decoding, beside a copy of the same bytes.

use std::time::{Duration, Instant};

use unspool_codec::twine::{Array, Layout};
use unspool_codec::{Bound, Dtype};
use unspool_cuda::{Context, DeviceMemory, Event, Stream, copy};
use unspool_gpu_codec::twine::Twine;
use unspool_gpu_codec::{DecodeJob, EncodeJob, GpuCodec, Start, StoredCheckpoint};

use crate::bench::{LONG, upload};

const MIB: u64 = 1 << 20;
/// Values per row; in three dimensions, per side of a plane.
const WIDTH: u64 = 2048;
const SIDE: u64 = 256;

struct Bench<'a> {
    context: &'a Context,
    stream: Stream,
    coder: Twine,
    /// Two- and three-dimensional fields of float32, a field of float64, and space for their
    /// encodings.
    narrow: DeviceMemory,
    /// The two-dimensional field with twice the amplitude.
    louder: DeviceMemory,
    space: DeviceMemory,
    wide: DeviceMemory,
    room: DeviceMemory,
    target: DeviceMemory,
    range: f64,
}

/// A wave that has come half way through a quiet field: rings, their echoes, and a little noise in
/// the area that the wave has passed.
fn wave(rows: u64) -> Vec<f32> {
    let mut noise = Noise(1);
    let places = (0..rows).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    places
        .map(|(x, y)| {
            let (dx, dy) = (x as f32 - 900.0, y as f32 % 2048.0 - 700.0);
            let r = (dx * dx + dy * dy).sqrt();
            let echoes = 0.3 * ((dx + 2.0 * dy) * 0.05).sin();
            noise.trail(r < 800.0, (r * 0.08).sin() / (1.0 + r * 0.01) + echoes)
        })
        .collect()
}

/// The same wave in three dimensions: planes of cubes of 256 values a side.
fn wave_in_space(planes: u64) -> Vec<f32> {
    let mut noise = Noise(1);
    let places =
        (0..planes).flat_map(|z| (0..SIDE * SIDE).map(move |at| (at % SIDE, at / SIDE, z)));
    places
        .map(|(x, y, z)| {
            let (dx, dy) = (x as f32 - 110.0, y as f32 - 90.0);
            let dz = z as f32 % 256.0 - 80.0;
            let r = (dx * dx + dy * dy + dz * dz).sqrt();
            let echoes = 0.3 * ((dx + dy + 2.0 * dz) * 0.3).sin();
            noise.trail(r < 115.0, (r * 0.5).sin() / (1.0 + r * 0.07) + echoes)
        })
        .collect()
}

struct Noise(u32);

impl Noise {
    /// The field at a point: quiet where the wave has not been, with noise elsewhere.
    fn trail(&mut self, has_been: bool, value: f32) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if has_been { value + (self.0 >> 8) as f32 * 1e-12 } else { 0.0 }
    }
}

fn range_of(field: &[f32]) -> f64 {
    let most = field.iter().fold(0f32, |most, x| most.max(*x));
    f64::from(most - field.iter().fold(0f32, |least, x| least.min(*x)))
}

/// Measures arrays of `least` to `most` MiB with the codecs whose names contain `name`.
pub fn run(context: &Context, (least, most): (u64, u64), name: &str) {
    let stream = Stream::new(context).unwrap();
    let field = wave(most.min(64) * MIB / 4 / WIDTH);
    let louder: Vec<f32> = field.iter().map(|x| 2.0 * x).collect();
    let space = wave_in_space(most.min(64) * MIB / 4 / SIDE / SIDE);
    let bytes = |field: &[f32]| field.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let wide: Vec<u8> = field.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect();
    let bench = Bench {
        context,
        narrow: repeated(context, &stream, &bytes(&field), most * MIB),
        louder: repeated(context, &stream, &bytes(&louder), most * MIB),
        space: repeated(context, &stream, &bytes(&space), most * MIB),
        wide: repeated(context, &stream, &wide, most * MIB),
        room: DeviceMemory::new(context, most * MIB / 64 * 65 + MIB).unwrap(),
        target: DeviceMemory::new(context, most * MIB).unwrap(),
        coder: Twine::new(context, Vec::new()),
        range: range_of(&field),
        stream,
    };
    println!(
        "\ndevice time and time of the call; GB/s of the array; stored bytes of it are 1 / ratio"
    );
    bench.copies(least, most);
    bench.codecs(least, most, name);
    bench.guesses(least, most, name);
    if name.is_empty() || name == "batch" {
        bench.batches();
    }
    if name.is_empty() {
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

/// The measured sizes from `least` to `most`, in MiB.
fn sizes(least: u64, most: u64) -> impl Iterator<Item = u64> {
    [1, 8, 32, 128, 512].into_iter().filter(move |size| (least..=most).contains(size))
}

fn repeats(mib: u64) -> u32 {
    (2048 / mib).clamp(8, 100) as u32
}

/// Device time and host time per call of many consecutive calls.
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
        let absolute = Some(Bound::Absolute(1e-3 * self.range));
        let of_range = |bound| Some(Bound::Range(bound));
        let ways: [(&str, Dtype, usize, Option<Bound>); 12] = [
            ("f32 2-D abs 1e-3", Dtype::Float32, 2, absolute),
            ("f32 1-D abs 1e-3", Dtype::Float32, 1, absolute),
            ("f32 3-D abs 1e-3", Dtype::Float32, 3, absolute),
            ("f32 2-D range 1e-3", Dtype::Float32, 2, of_range(1e-3)),
            ("f32 3-D range 1e-3", Dtype::Float32, 3, of_range(1e-3)),
            ("f32 3-D range 1e-5", Dtype::Float32, 3, of_range(1e-5)),
            ("f32 2-D rms 1e-2", Dtype::Float32, 2, Some(Bound::Rms(1e-2))),
            ("f32 2-D lossless", Dtype::Float32, 2, None),
            ("f32 1-D lossless", Dtype::Float32, 1, None),
            ("f32 3-D lossless", Dtype::Float32, 3, None),
            ("f64 2-D abs 1e-3", Dtype::Float64, 2, absolute),
            ("f64 2-D lossless", Dtype::Float64, 2, None),
        ];
        for (name, dtype, axes, method) in ways.into_iter().filter(|way| way.0.contains(wanted)) {
            for size in sizes(least, most) {
                self.codec(&self.coder, name, (&dtype, axes, method), size);
            }
        }
    }

    fn codec(&self, coder: &Twine, name: &str, how: (&Dtype, usize, Option<Bound>), size: u64) {
        let (dtype, axes, method) = how;
        let n = size * MIB / dtype.itemsize();
        let shape = match axes {
            1 => vec![n],
            2 => vec![n / WIDTH, WIDTH],
            _ => vec![n / SIDE / SIDE, SIDE, SIDE],
        };
        let layout = Layout::of(dtype, &shape).unwrap();
        let spec = Array { layout, bound: method };
        let memory = match (dtype.itemsize(), axes) {
            (8, _) => &self.wide,
            (_, 3) => &self.space,
            _ => &self.narrow,
        };
        let jobs =
            [EncodeJob { source: memory.span().address(), steps: None, layout: spec.into() }];
        let room = self.room.span();
        let (start, limit) = (Start::At(room.address()), room.address() + room.len());
        let asked = [StoredCheckpoint { jobs: &jobs, start, limit }];
        // SAFETY: everything lives until the end of the measurement.
        let encode = || unsafe { coder.encode(&self.stream, &asked) }.unwrap();
        let stored = encode()[0].wait(LONG).unwrap().bytes;
        let (encoding, call) = measure(self, repeats(size), || drop(encode()));
        let job = DecodeJob {
            stream: room.address(),
            stored,
            layout: layout.into(),
            target: self.target.span().address(),
            steps: None,
        };
        // SAFETY: as above.
        let decode = || unsafe { coder.decode(&self.stream, std::slice::from_ref(&job)) }.unwrap();
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

    /// Encoding where the bound is not that of the array before: each time, so that it is not
    /// guessed any more, and every third time.
    fn guesses(&self, least: u64, most: u64, wanted: &str) {
        let (quiet, loud) = (self.narrow.span().address(), self.louder.span().address());
        let ways = [
            ("other range each time", Bound::Range(1e-3), 1),
            ("other range third time", Bound::Range(1e-3), 3),
            ("other rms each time", Bound::Rms(1e-2), 1),
            ("other rms third time", Bound::Rms(1e-2), 3),
        ];
        for (name, bound, run) in ways.into_iter().filter(|way| way.0.contains(wanted)) {
            for size in sizes(least, most) {
                let shape = [size * MIB / 4 / WIDTH, WIDTH];
                let layout = Layout::of(&Dtype::Float32, &shape).unwrap();
                let spec = Array { layout, bound: Some(bound) };
                let job = |source| [EncodeJob { source, steps: None, layout: spec.into() }];
                let jobs = [job(quiet), job(loud)];
                let room = self.room.span();
                let (start, limit) = (Start::At(room.address()), room.address() + room.len());
                let asked = [0, 1].map(|i| [StoredCheckpoint { jobs: &jobs[i], start, limit }]);
                let mut number = 0;
                let encode = || {
                    number += 1;
                    let asked = &asked[number / run % 2];
                    // SAFETY: everything lives until the end of the measurement.
                    drop(unsafe { self.coder.encode(&self.stream, asked) }.unwrap());
                };
                let (device, host) = measure(self, repeats(size) / 3 * 3, encode);
                println!(
                    "{name:20} {size:4} MiB  {:8.1} us {:6.0} GB/s  call {:5.1} us",
                    us(device),
                    rate(size * MIB, device),
                    us(host)
                );
            }
        }
    }

    /// Several checkpoints in one call, one after the other.
    fn batches(&self) {
        let method = Some(Bound::Absolute(1e-3 * self.range));
        for (mib, count) in [(1u64, 8u64), (1, 32), (8, 16), (32, 8)] {
            let spec = |dtype: &Dtype| {
                let shape = [mib * MIB / dtype.itemsize() / WIDTH, WIDTH];
                Array { layout: Layout::of(dtype, &shape).unwrap(), bound: method }
            };
            let (narrow, wide) = (spec(&Dtype::Float32), spec(&Dtype::Float64));
            self.batch("f32 2-D abs", (mib, count), |at| {
                let source = self.narrow.span().address() + at;
                EncodeJob { source, steps: None, layout: narrow.into() }
            });
            // Small arrays use the kernel for every form, large ones a launch each.
            self.batch("f32 and f64", (mib, count), |at| {
                let is_wide = at / MIB / mib % 2 == 1;
                let (memory, spec) =
                    if is_wide { (&self.wide, &wide) } else { (&self.narrow, &narrow) };
                let source = memory.span().address() + at;
                EncodeJob { source, steps: None, layout: (*spec).into() }
            });
        }
    }

    fn batch(&self, name: &str, (mib, count): (u64, u64), job: impl Fn(u64) -> EncodeJob) {
        if count * mib * MIB > self.narrow.span().len() {
            return;
        }
        let room = self.room.span();
        let limit = room.address() + room.len();
        let jobs: Vec<[EncodeJob; 1]> = (0..count).map(|i| [job(i * mib * MIB)]).collect();
        let asked = jobs.iter().enumerate().map(|(number, jobs)| {
            let at = Start::At(room.address());
            let start = if number == 0 { at } else { Start::Next { align: 256 } };
            StoredCheckpoint { jobs, start, limit }
        });
        let asked: Vec<StoredCheckpoint<'_>> = asked.collect();
        // SAFETY: everything lives until the end of the measurement.
        let encode = || unsafe { self.coder.encode(&self.stream, &asked) }.unwrap();
        let results = encode().into_iter().map(|pending| pending.wait(LONG).unwrap());
        let mut target = self.target.span().address();
        let streams = results.zip(&jobs).map(|(result, jobs)| {
            let (stream, stored, layout) = (result.start, result.bytes, jobs[0].layout.clone());
            target += layout.bytes();
            DecodeJob { stream, stored, target: target - layout.bytes(), steps: None, layout }
        });
        let streams: Vec<DecodeJob> = streams.collect();
        let (device, host) = measure(self, repeats(count * mib), || drop(encode()));
        // SAFETY: as above.
        let decode = || drop(unsafe { self.coder.decode(&self.stream, &streams) }.unwrap());
        let (decoding, decode_call) = measure(self, repeats(count * mib), decode);
        println!(
            "{count:2} x {mib:2} MiB, {name}     {:8.1} us {:6.0} GB/s  call {:5.1} us  decode \
             {:8.1} us {:6.0} GB/s  call {:5.1} us",
            us(device),
            rate(count * mib * MIB, device),
            us(host),
            us(decoding),
            rate(count * mib * MIB, decoding),
            us(decode_call)
        );
    }

    /// Measures the same with other tile sizes than the automatic ones.
    fn tiles(&self, most: u64) {
        let method = Some(Bound::Absolute(1e-3 * self.range));
        for warps in [2, 4, 8] {
            let coder = Twine::new(self.context, Vec::new()).with_warps(warps);
            for size in sizes(1, most).filter(|&size| size == 1 || size > 32) {
                let name = format!("f32 2-D, tiles of {warps}");
                self.codec(&coder, &name, (&Dtype::Float32, 2, method), size);
                let name = format!("f32 1-D, tiles of {warps}");
                self.codec(&coder, &name, (&Dtype::Float32, 1, method), size);
            }
        }
    }
}
