//! Twine: compression ratio, and rates of encoding and decoding beside a copy of the same bytes,
//! with one thread and with all. Run with `cargo bench -p unspool-codec --bench twine`; words after
//! `--` select fields by parts of their names.

#![allow(clippy::print_stdout)]

mod twine_data;

use std::hint::black_box;
use std::time::Instant;

use twine_data::{Field, OTHERS, WAVES_2D, WAVES_3D, others, waves_2d, waves_3d};
use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Bound, Dtype};

/// The best rate of several calls in GB/s: that of an undisturbed machine.
fn rate(bytes: usize, mut call: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for round in 0.. {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_secs_f64());
        if round > 4 && begin.elapsed().as_secs_f64() > 0.15 {
            break;
        }
    }
    bytes as f64 / best / 1e9
}

/// Ratio and rates of an array with one method.
struct Measured {
    ratio: f64,
    encode: f64,
    decode: f64,
}

fn measure(spec: &Array, source: &[u8]) -> Measured {
    let mut stream = vec![0; twine::max_bytes(&spec.layout) as usize];
    let mut length = 0;
    let encode = rate(source.len(), || {
        let encoded = twine::encode(spec, black_box(source), &mut stream).expect("encodes");
        length = encoded.bytes as usize;
    });
    let mut back = vec![0; source.len()];
    let decode = rate(source.len(), || {
        twine::decode(&spec.layout, black_box(&stream[..length]), &mut back).expect("decodes");
    });
    Measured { ratio: source.len() as f64 / length as f64, encode, decode }
}

fn on_threads(threads: usize, spec: &Array, source: &[u8]) -> Measured {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| measure(spec, source))
}

fn line(name: &str, dtype: &Dtype, shape: &[u64], method: Option<Bound>, source: &[u8]) {
    let layout = Layout::of(dtype, shape).expect("small enough");
    let spec = Array { layout, bound: method };
    let mut copy = vec![0; source.len()];
    let copy = rate(source.len(), || copy.copy_from_slice(black_box(source)));
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let (one, many) = (on_threads(1, &spec, source), on_threads(all, &spec, source));
    println!(
        "{name:36} {:7.2} | {:5.2} ({:4.2}) {:5.2} ({:4.2}) | {:5.2} {:5.2} | {copy:5.1}",
        one.ratio,
        one.encode,
        one.encode / copy,
        one.decode,
        one.decode / copy,
        many.encode,
        many.decode,
    );
}

fn methods() -> [(&'static str, Option<Bound>); 4] {
    let range = |bound| Some(Bound::Range(bound));
    let relative = Some(Bound::Pointwise { bound: 1e-3, floor: 1e-5 });
    [
        ("lossless", None),
        ("range 1e-3", range(1e-3)),
        ("range 1e-4", range(1e-4)),
        ("relative 1e-3", relative),
    ]
}

fn as_doubles(field: &Field) -> Vec<u8> {
    field.values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect()
}

fn as_bfloat16(field: &Field) -> Vec<u8> {
    field
        .values
        .iter()
        .flat_map(|x| (((x.to_bits() + 0x8000) >> 16) as u16).to_le_bytes())
        .collect()
}

/// Names of fields, and a function that computes them.
type Family = (&'static [&'static str], fn() -> Vec<Field>);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word));
    println!("GB/s of values, in brackets as a part of a copy by one thread; best call");
    println!("{:36} {:>7} | one thread: encode, decode    | all threads | copy", "", "ratio");
    let families: [Family; 3] = [(&WAVES_2D, waves_2d), (&WAVES_3D, waves_3d), (&OTHERS, others)];
    let wanted_families = families.iter().filter(|(names, _)| names.iter().any(|name| wants(name)));
    let fields = wanted_families.flat_map(|(_, make)| make());
    for field in fields.filter(|field| wants(&field.name)) {
        for (method_name, method) in methods() {
            let name = format!("{}, {method_name}", field.name);
            line(&name, &Dtype::Float32, &field.shape, method, &field.bytes());
            if field.name.ends_with("3000") && method_name != "range 1e-4" {
                let name = format!("  as float64, {method_name}");
                line(&name, &Dtype::Float64, &field.shape, method, &as_doubles(&field));
                let name = format!("  as bfloat16, {method_name}");
                line(&name, &Dtype::BFloat16, &field.shape, method, &as_bfloat16(&field));
            }
        }
    }
}
