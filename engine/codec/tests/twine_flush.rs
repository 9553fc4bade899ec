//! Twine gives the same bytes where another library of the process has set the processor to
//! treat subnormal numbers as 0 (FTZ and DAZ in MXCSR), and the bound holds there.

#![cfg(target_arch = "x86_64")]

mod twine_common;

use std::arch::asm;

use twine_common::{
    FLOATS, Noise, absolute, assert_within, decode, encode, layout, pack, relative,
};
use unspool_codec::Bound;
use unspool_codec::twine::Layout;

const FLUSH_TO_ZERO: u32 = 1 << 15;
const DENORMALS_ARE_ZERO: u32 = 1 << 6;

fn control() -> u32 {
    let mut control = 0_u32;
    // SAFETY: stores MXCSR to a variable of four bytes.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack)) };
    control
}

fn set_control(control: u32) {
    // SAFETY: loads MXCSR from a variable of four bytes; the reserved bits are those it had.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, readonly)) };
}

/// Calls with subnormal numbers treated as 0, in this thread.
fn flushed<R>(call: impl FnOnce() -> R) -> R {
    let before = control();
    set_control(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    let result = call();
    set_control(before);
    result
}

/// Values of all magnitudes, many of them subnormal; as many as one thread encodes alone.
fn sources(layout: &Layout) -> Vec<Vec<u8>> {
    let mut noise = Noise(17);
    let n = layout.n;
    let subnormal = (1_u64 << layout.kind.mantissa_bits()) - 1;
    let sign = 1_u64 << (layout.bits - 1);
    let anything: Vec<u64> = (0..n).map(|_| noise.next()).collect();
    let tiny = (0..n).map(|_| noise.next() & (subnormal | sign)).collect();
    let edge = (0..n).map(|i| (i % 64) << (layout.kind.mantissa_bits() - 3)).collect();
    let mixed = anything.iter().map(|bits| if bits % 3 == 0 { bits & subnormal } else { *bits });
    let mixed: Vec<u64> = mixed.collect();
    let all: [Vec<u64>; 4] = [anything, tiny, edge, mixed];
    all.map(|patterns| pack(layout.bits, patterns)).into()
}

fn methods() -> Vec<Option<Bound>> {
    let mut methods = vec![None, relative(1e-2, 0.0), relative(1e-3, 1e-39)];
    methods.extend([1e-45, 1e-38, 2e-38, 7e-31, 9e-31, 1e-20, 1.0, 1e37, 8e37].map(absolute));
    methods.extend([1e-320, 1e-300, 1e-280, 1e-250, 1e300].map(absolute));
    let relative_to_values = [1e-40, 1e-3, 1.0, 10.0];
    methods.extend(relative_to_values.map(|factor| Some(Bound::Range(factor))));
    methods.extend(relative_to_values.map(|factor| Some(Bound::Rms(factor))));
    methods
}

#[test]
fn subnormal_numbers_are_zero_in_these_tests() {
    let product = || std::hint::black_box(1e-30_f32) * std::hint::black_box(1e-10_f32);
    assert!(product() > 0.0);
    assert!(flushed(product) == 0.0);
    assert!(product() > 0.0);
}

#[test]
fn streams_and_what_comes_back_do_not_depend_on_how_subnormal_numbers_are_treated() {
    for dtype in FLOATS {
        let layout = layout(&dtype, &[3000]);
        for source in sources(&layout) {
            for method in methods() {
                let (stream, encoded) = encode(layout, method, &source);
                let (other, said) = flushed(|| encode(layout, method, &source));
                assert!(stream == other, "{dtype} {method:?}");
                assert_eq!(encoded.achieved.max_error, said.achieved.max_error);
                let back = decode(&layout, &stream);
                assert!(back == flushed(|| decode(&layout, &stream)), "{dtype} {method:?}");
            }
        }
    }
}

#[test]
fn the_bound_holds_where_subnormal_numbers_are_zero() {
    for dtype in FLOATS {
        let layout = layout(&dtype, &[3000]);
        for source in sources(&layout) {
            for bound in [1e-45, 1e-38, 9e-31, 1e-3, 1e37] {
                let back = flushed(|| {
                    let (stream, _) = encode(layout, absolute(bound), &source);
                    decode(&layout, &stream)
                });
                assert_within(&layout, &source, &back, bound);
            }
        }
    }
}
