//! Outer codecs on payloads of a disk: raw wavefields and their Twine streams. Sizes, and rates of
//! packing and unpacking in bytes of the payload, with one thread and with all. Run with `cargo
//! bench -p unspool-codec --bench outer`; words after `--` select fields by parts of their names.

#![allow(clippy::print_stdout)]

#[allow(dead_code)] // the other benchmark uses all of it
mod twine_data;

use std::hint::black_box;
use std::time::Instant;

use twine_data::{Field, waves_2d, waves_3d};
use unspool_codec::{Bound, Dtype, Head, Outer, Packed, RegionSpec, Spec, Zfp, unpack};

const CODERS: [(&str, Outer); 6] = [
    ("lz4", Outer::Lz4),
    ("zstd 1", Outer::Zstd(1)),
    ("zstd 3", Outer::Zstd(3)),
    ("zstd 9", Outer::Zstd(9)),
    ("zstd 19", Outer::Zstd(19)),
    ("archive", Outer::Archive),
];

/// The best rate of several calls in GB/s.
fn rate(bytes: usize, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for round in 0.. {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_secs_f64());
        if round > 0 && begin.elapsed().as_secs_f64() > 0.2 {
            break;
        }
    }
    bytes as f64 / best / 1e9
}

fn on_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads").install(run)
}

/// A payload of one array, and the bytes of that array.
struct Payload {
    name: String,
    head: Head,
    bytes: Vec<u8>,
    raw: usize,
}

impl Payload {
    fn of(field: &Field, name: &str, codec: Spec) -> Payload {
        let raw = field.bytes();
        let bytes = stream(&field.shape, codec, &raw);
        let (dtype, shape) = (Dtype::Float32, field.shape.clone());
        let spec = RegionSpec { name: "u".to_owned(), dtype, shape };
        let array = (spec, codec.id());
        let head = Head::encoded(1, vec![array], &[bytes.len() as u64]).expect("one array");
        Payload { name: format!("{}, {name}", field.name), head, bytes, raw: raw.len() }
    }

    fn measure(&self) {
        let alone = self.raw as f64 / self.bytes.len() as f64;
        println!("{:34} {:8} {alone:7.2}", self.name, "none");
        for (name, coder) in CODERS {
            self.line(name, coder);
        }
    }

    fn line(&self, name: &str, coder: Outer) {
        let mut packed = vec![0; self.bytes.len()];
        let Some(len) = coder.pack(&self.head, &self.bytes, &mut packed) else {
            println!("{:34} {name:8}       - (not shorter)", "");
            return;
        };
        packed.truncate(len);
        let packing = Packed { coder: coder.id(), bytes: packed.len() as u64 };
        let head = self.head.with_packed(Some(packing)).expect("it is shorter");
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let [(pack, back), (packs, backs)] =
            [1, all].map(|threads| on_threads(threads, || self.rates(coder, &head, &packed)));
        println!(
            "{:34} {name:8} {:7.2} | {pack:6.3} {back:6.3} | {packs:6.3} {backs:6.3}",
            "",
            self.raw as f64 / packed.len() as f64,
        );
    }

    fn rates(&self, coder: Outer, head: &Head, packed: &[u8]) -> (f64, f64) {
        let mut room = vec![0; self.bytes.len()];
        let pack = rate(self.bytes.len(), || {
            _ = black_box(coder.pack(&self.head, black_box(&self.bytes), &mut room));
        });
        let back = rate(self.bytes.len(), || {
            unpack(head, black_box(packed), &mut room).expect("what was packed unpacks");
        });
        assert!(room == self.bytes, "packing changes bytes");
        (pack, back)
    }
}

/// The payload of an array in a memory tier.
fn stream(shape: &[u64], spec: Spec, source: &[u8]) -> Vec<u8> {
    let codec = spec.codec().expect("a codec of the host");
    let most = codec.max_bytes(&spec, &Dtype::Float32, shape).expect("small enough");
    let mut out = vec![0; most as usize];
    let made = codec.encode(&spec, &Dtype::Float32, shape, source, &mut out).expect("encodes");
    out.truncate(made.bytes as usize);
    out
}

/// A tolerance relative to the range of a field.
fn tolerance(field: &Field, part: f64) -> Zfp {
    let least = field.values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = field.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    Zfp::Tolerance(part * f64::from(most - least))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    println!("ratio to the array | pack, unpack in GB/s of the payload: one thread | all threads");
    for field in waves_2d().into_iter().chain(waves_3d()).filter(|field| wanted(&field.name)) {
        for (name, codec) in [
            ("as it is", Spec::Raw),
            ("lossless", Spec::Lossless),
            ("1e-3 of range", Spec::Bounded(Bound::Range(1e-3))),
            ("1e-4 of range", Spec::Bounded(Bound::Range(1e-4))),
            ("zfp 1e-4 of range", Spec::Zfp(tolerance(&field, 1e-4))),
        ] {
            Payload::of(&field, name, codec).measure();
        }
    }
}
