//! The text of zfp's kernels, compiled for the processor and run thread by thread, against the
//! codec: the same bytes, the same values, the same errors.

use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use unspool_codec::{Dtype, Zfp, zfp};
use unspool_gpu_codec::sources;

/// The part of CUDA that the kernels use.
const SHIM: &str = r#"
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define __forceinline__ inline
typedef unsigned long long word;
struct One { unsigned int x; };
static One blockIdx, blockDim = {1}, threadIdx;
template <typename To, typename From> static To bits_of(From from) {
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static unsigned int __float_as_uint(float x) { return bits_of<unsigned int>(x); }
static float __uint_as_float(unsigned int x) { return bits_of<float>(x); }
static long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static double __longlong_as_double(long long x) { return bits_of<double>(x); }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __dadd_rn(double a, double b) { return a + b; }
static int __float2int_rz(float x) { return (int)x; }
static long long __double2ll_rz(double x) { return (long long)x; }
static float __int2float_rn(int x) { return (float)x; }
static double __ll2double_rn(long long x) { return (double)x; }
static void __threadfence_system() {}
static int lowest_bit(word x) { return __builtin_ctzll(x); }
struct Seen;
static void see(Seen *seen, double largest, double squares, unsigned int wild);
"#;

/// The kernels as functions that run all threads in turn.
const LOOPS: &str = r#"
static void see(Seen *seen, double largest, double squares, unsigned int wild) {
    if (largest > bits_of<double>(seen->largest)) seen->largest = bits_of<word>(largest);
    seen->squares += squares;
    seen->wild += wild;
}
template <typename Run> static void each(word threads, Run run) {
    for (word thread = 0; thread < threads; thread++) {
        blockIdx.x = (unsigned int)thread;
        run();
    }
}
#define LOOP(name, T, dims)                                                                        \
    extern "C" void run_encode_##name##_##dims(const T::Value *values, const Shape *shape,         \
                                               const Place *place, const Head *head,               \
                                               const Job *job) {                                   \
        each((shape->count + shape->group - 1) / shape->group,                                     \
             [&] { zfp_encode_##name##_##dims(values, *shape, *place, *head, *job); });            \
    }                                                                                              \
    extern "C" void run_decode_##name##_##dims(const word *stream, T::Value *values,               \
                                               const Shape *shape, const Head *head,               \
                                               word *status) {                                     \
        each(shape->count,                                                                         \
             [&] { zfp_decode_##name##_##dims(stream, values, *shape, *head, status); });          \
    }
LOOP(f32, Single, 1)
LOOP(f32, Single, 2)
LOOP(f32, Single, 3)
LOOP(f64, Double, 1)
LOOP(f64, Double, 2)
LOOP(f64, Double, 3)
"#;

struct Compiled {
    built: libloading::Library,
    folder: PathBuf,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

type Encode = unsafe extern "C" fn(*const u8, *const Shape, *const Place, *const u64, *const Job);
type Decode = unsafe extern "C" fn(*const u64, *mut u8, *const Shape, *const u64, *mut u64);

/// The kernels' structures.
#[repr(C)]
struct Shape {
    values: [u64; 3],
    blocks: [u64; 3],
    count: u64,
    bits: u64,
    group: u64,
    words: u64,
    slack: u64,
}

#[repr(C)]
struct Place {
    fixed: u64,
    before: u64,
    align: u64,
    limit: u64,
    bytes: u64,
}

#[repr(C)]
struct Job {
    offset: u64,
    gap: u64,
    seen: *mut u64,
    result: *mut u64,
}

impl Compiled {
    /// `None` where there is no C++ compiler.
    fn new(name: &str) -> Option<Compiled> {
        let folder = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        let (text, path) = (folder.join("zfp.cpp"), folder.join("zfp.so"));
        let source = sources().into_iter().find(|source| source.name == "zfp.cu");
        let source = source.expect("the text of the kernels").text;
        std::fs::write(&text, format!("{SHIM}{source}{LOOPS}")).expect("a file");
        let output =
            ["c++", "g++", "clang++"].into_iter().find_map(|c| compile(c, &text, &path).ok())?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: made just now from our text, whose initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(&path) }.expect("a library");
        Some(Compiled { built: library, folder })
    }

    fn name(what: &str, case: &Case) -> String {
        let kind = if case.wide { "f64" } else { "f32" };
        format!("run_{what}_{kind}_{}", case.shape.len())
    }

    /// The stream with its head, the sums of errors, and the words of the result.
    fn encode(&self, case: &Case, head: &[u64]) -> (Vec<u64>, [u64; 3], [u64; 6]) {
        let (shape, mut seen, mut result) = (case.kernel_shape(), [0; 3], [0; 6]);
        let mut stream = vec![u64::MAX; 8 + shape.words as usize];
        let (begin, bytes) = (stream.as_mut_ptr() as u64, 8 * stream.len() as u64);
        let place = Place { fixed: begin, before: 0, align: 1, limit: begin + bytes, bytes };
        let job = Job { offset: 0, gap: 0, seen: seen.as_mut_ptr(), result: result.as_mut_ptr() };
        // SAFETY: the type is that of the text above, and all of it is as long as the shape says.
        unsafe {
            let name = Compiled::name("encode", case);
            let run = self.built.get::<Encode>(name.as_bytes()).expect("a kernel");
            run(
                case.bytes.as_ptr().cast(),
                &raw const shape,
                &raw const place,
                head.as_ptr(),
                &raw const job,
            );
        }
        (stream, seen, result)
    }

    fn decode(&self, case: &Case, stream: &[u64], head: &[u64]) -> (Vec<u8>, u64) {
        let (shape, mut status) = (case.kernel_shape(), 7);
        let mut values = vec![0x5a5a_5a5a_5a5a_5a5a_u64; case.bytes.len()];
        // SAFETY: as above.
        unsafe {
            let name = Compiled::name("decode", case);
            let run = self.built.get::<Decode>(name.as_bytes()).expect("a kernel");
            let to = values.as_mut_ptr().cast();
            run(stream.as_ptr(), to, &raw const shape, head.as_ptr(), &raw mut status);
        }
        let bytes = values.iter().flat_map(|word| word.to_le_bytes());
        (bytes.take(case.len()).collect(), status)
    }
}

fn compile(compiler: &str, text: &Path, to: &Path) -> std::io::Result<std::process::Output> {
    let mut command = Command::new(compiler);
    // As on the device, integers wrap, and a product and a sum are rounded separately.
    command.args(["-std=c++17", "-O1", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"]);
    command.args(["-shared", "-fPIC", "-o"]).arg(to).arg(text).output()
}

/// An array and a rate. The bytes are kept in words, to which they are aligned.
#[derive(Debug)]
struct Case {
    wide: bool,
    /// The last one changes fastest.
    shape: Vec<u64>,
    rate: f64,
    bytes: Vec<u64>,
}

impl Case {
    fn new(wide: bool, shape: &[u64], rate: f64, value: impl Fn(u64) -> f64) -> Case {
        let values = (0..shape.iter().product::<u64>()).map(value);
        let bytes: Vec<u8> = match wide {
            false => values.flat_map(|x| (x as f32).to_le_bytes()).collect(),
            true => values.flat_map(f64::to_le_bytes).collect(),
        };
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
        let bytes = bytes.chunks(8).map(word).collect();
        Case { wide, shape: shape.to_vec(), rate, bytes }
    }

    fn dtype(&self) -> Dtype {
        if self.wide { Dtype::Float64 } else { Dtype::Float32 }
    }

    fn len(&self) -> usize {
        (self.shape.iter().product::<u64>() * self.dtype().itemsize()) as usize
    }

    fn source(&self) -> Vec<u8> {
        self.bytes.iter().flat_map(|word| word.to_le_bytes()).take(self.len()).collect()
    }

    fn bits(&self) -> u64 {
        let all = (4f64.powi(self.shape.len() as i32) * self.rate + 0.5).floor() as u64;
        all.max(if self.wide { 12 } else { 9 })
    }

    fn kernel_shape(&self) -> Shape {
        let at = |i: usize| self.shape.iter().rev().nth(i).copied();
        let values = [0, 1, 2].map(|i| at(i).unwrap_or(1));
        let blocks = [0, 1, 2].map(|i| at(i).map_or(1, |n| n.div_ceil(4)));
        let (count, bits) = (blocks.iter().product::<u64>(), self.bits());
        let slack = 1074 + 2 * (self.shape.len() as u64 + 1);
        let until = |unit: u64| unit >> bits.trailing_zeros().min(unit.trailing_zeros());
        let group = if until(64) <= 4 { until(64) } else { until(8) };
        Shape { values, blocks, count, bits, group, words: (count * bits).div_ceil(64), slack }
    }

    fn check(&self, kernels: &Compiled) {
        let (dtype, mode) = (self.dtype(), Zfp::Rate(self.rate));
        let mut expected =
            vec![0; zfp::max_bytes(&mode, &dtype, &self.shape).expect("a length") as usize];
        let made = zfp::encode(&mode, &dtype, &self.shape, &self.source(), &mut expected)
            .expect("a stream");
        expected.truncate(made.bytes as usize);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
        let expected: Vec<u64> = expected.chunks_exact(8).map(word).collect();
        let (stream, seen, result) = kernels.encode(self, &expected[..8]);
        assert!(stream == expected, "{:?} {} {}", self.shape, self.rate, self.wide);
        assert_eq!(f64::from_bits(seen[0]), made.achieved.max_error);
        let (sum, other) = (f64::from_bits(seen[1]), made.achieved.sum_sq_error);
        assert!((sum - other).abs() <= 1e-9 * other || (sum.is_infinite() && other.is_infinite()));
        assert_eq!(seen[2], 0);
        assert_eq!(result[1], made.bytes);
        assert_eq!(result[4], made.achieved.values);

        let (back, status) = kernels.decode(self, &stream, &expected[..8]);
        let bytes: Vec<u8> = stream.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut values = vec![0; self.len()];
        zfp::decode(&dtype, &self.shape, &bytes, &mut values).expect("values");
        assert!(back == values && status == 0, "{:?} {} {}", self.shape, self.rate, self.wide);
    }

    /// Checks that blocks of random content decode to the codec's values, and other heads to
    /// nothing.
    fn check_noise(&self, kernels: &Compiled, seed: u64) {
        let (dtype, mode) = (self.dtype(), Zfp::Rate(self.rate));
        let mut bytes =
            vec![0; zfp::max_bytes(&mode, &dtype, &self.shape).expect("a length") as usize];
        zfp::encode(&mode, &dtype, &self.shape, &self.source(), &mut bytes).expect("a stream");
        for (i, byte) in bytes.iter_mut().enumerate().skip(64) {
            *byte = mixed(seed + i as u64) as u8;
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |x, &byte| x << 8 | u64::from(byte));
        let stream: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
        let (back, status) = kernels.decode(self, &stream, &stream[..8]);
        let mut values = vec![0; self.len()];
        zfp::decode(&dtype, &self.shape, &bytes, &mut values).expect("values");
        assert!(back == values && status == 0, "{:?} {} {}", self.shape, self.rate, self.wide);
        let mut head = stream[..8].to_vec();
        head[seed as usize % 8] ^= 1;
        let (back, status) = kernels.decode(self, &stream, &head);
        assert!(status == 1 && back.iter().all(|&byte| byte == 0x5a));
    }
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// From -1 to 1.
fn noise(seed: u64, i: u64) -> f64 {
    (mixed(seed ^ i << 20) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Values of kinds that matter: noise, waves, many magnitudes, sparse, huge, tiny, zeros.
fn value(wide: bool, kind: u64, seed: u64, i: u64) -> f64 {
    let (x, huge, tiny) = match wide {
        false => (noise(seed, i), 3e38, 1e-39),
        true => (noise(seed, i), 1.7e308, 1e-309),
    };
    match kind {
        0 => x,
        1 => (i as f64 * 0.031).sin() * 1e3,
        2 => x * (noise(seed + 1, i) * 85.0).exp(),
        3 if i.is_multiple_of(11) => x,
        4 => x * huge,
        5 => x * tiny,
        3 => 0.0,
        _ => -0.0,
    }
}

fn cases() -> impl Strategy<Value = (Case, u64)> {
    let shapes = prop_oneof![
        proptest::collection::vec(1u64..120, 1..=1),
        proptest::collection::vec(1u64..30, 2..=2),
        proptest::collection::vec(1u64..11, 3..=3),
    ];
    let rates =
        prop_oneof![proptest::sample::select(vec![0.5, 1.0, 4.0, 5.5, 8.0, 16.0, 32.0]), 0.1..40.0];
    (any::<bool>(), shapes, rates, 0u64..7, any::<u32>()).prop_map(
        |(wide, shape, rate, kind, seed)| {
            let seed = u64::from(seed);
            (Case::new(wide, &shape, rate, |i| value(wide, kind, seed, i)), seed)
        },
    )
}

#[test]
#[allow(clippy::print_stdout)]
fn the_kernels_compiled_for_the_processor_make_and_read_the_codecs_streams() {
    let Some(kernels) = Compiled::new("streams") else {
        println!("skipped: no C++ compiler (c++, g++, clang++)");
        return assert!(Command::new("c++").output().is_err());
    };
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let checked = runner.run(&cases(), |(case, seed)| {
        case.check(&kernels);
        case.check_noise(&kernels, seed);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn the_kernels_report_values_that_are_not_finite() {
    let Some(kernels) = Compiled::new("wild") else {
        return assert!(Command::new("c++").output().is_err());
    };
    for wild in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for wide in [false, true] {
            let value = |i| if i == 37 { wild } else { 1.0 };
            let case = Case::new(wide, &[9, 11], 8.0, value);
            let (_, seen, _) = kernels.encode(&case, &[0; 8]);
            assert_eq!(seen[2], 1, "{wild} {wide}");
        }
    }
}
