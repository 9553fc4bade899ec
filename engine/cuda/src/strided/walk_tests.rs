//! Layouts against a naive walk: merging, units and order, and the kernel itself, compiled for the
//! processor.

use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::strided::many::{self, Many};
use crate::strided::{SOURCE, StridedLayout, launch_shape};

/// An array inside a buffer.
#[derive(Clone, Debug)]
struct Case {
    layout: StridedLayout,
    /// Distance of the buffer from a multiple of 16, and position of the first item in the buffer.
    skip: usize,
    first: usize,
    buffer: usize,
}

impl Case {
    fn new(layout: StridedLayout, skip: usize) -> Case {
        // Far enough from 0 for every stride of a case.
        let middle = 1 << 40;
        let (low, end) = layout.extent(middle).unwrap();
        let (first, buffer) = ((middle - low) as usize, (end - low) as usize);
        Case { layout, skip, first, buffer }
    }

    fn dense_len(&self) -> usize {
        self.layout.bytes().unwrap() as usize
    }

    /// The distance of each item from the first one, in C order.
    fn naive(&self) -> Vec<i64> {
        let mut offsets = vec![0];
        for (&size, &stride) in self.layout.shape.iter().zip(&self.layout.strides) {
            let along = |at: &i64| (0..size as i64).map(move |i| *at + i * stride).collect();
            offsets = offsets.iter().flat_map(|at| -> Vec<i64> { along(at) }).collect();
        }
        offsets
    }

    /// The dense copy of the content of `buffer`.
    fn gathered(&self, buffer: &[u8]) -> Vec<u8> {
        let item = self.layout.itemsize as usize;
        let at = |offset: i64| (self.first as i64 + offset) as usize;
        self.naive().iter().flat_map(|&offset| &buffer[at(offset)..][..item]).copied().collect()
    }
}

/// Bytes that begin `skip` after a multiple of 16.
struct Aligned {
    words: Vec<u128>,
    skip: usize,
    len: usize,
}

impl Aligned {
    fn new(bytes: &[u8], skip: usize) -> Aligned {
        let words = vec![0; (bytes.len() + skip).div_ceil(16) + 1];
        let mut aligned = Aligned { words, skip, len: bytes.len() };
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside of the words, of which there is one more than needed; any byte is valid.
        unsafe {
            let first = self.words.as_mut_ptr().cast::<u8>().add(self.skip);
            std::slice::from_raw_parts_mut(first, self.len)
        }
    }
}

/// Executes a walk: in Rust, or with the kernel.
trait Runner {
    /// # Safety
    /// The walk's units are there on both sides.
    unsafe fn run(&self, plan: &UnitWalk, to: *mut u8, from: *const u8);
}

/// The walk in Rust.
struct Plain;

impl Runner for Plain {
    unsafe fn run(&self, plan: &UnitWalk, to: *mut u8, from: *const u8) {
        let walk = &plan.walk;
        for index in 0..walk.units {
            let (mut rest, mut from_at, mut to_at) = (index, 0, 0);
            for dim in (0..walk.dims as usize).rev() {
                let place = (rest % walk.sizes[dim]) as i64;
                assert!(walk.shifts[dim] == 64 || walk.sizes[dim] == 1 << walk.shifts[dim]);
                rest /= walk.sizes[dim];
                from_at += place * walk.from[dim];
                to_at += place * walk.to[dim];
            }
            // SAFETY: the caller's duty.
            unsafe {
                let (from, to) = (from.offset(from_at as isize), to.offset(to_at as isize));
                assert!(from.addr().is_multiple_of(plan.unit as usize));
                assert!(to.addr().is_multiple_of(plan.unit as usize));
                std::ptr::copy_nonoverlapping(from, to, plan.unit as usize);
            }
        }
    }
}

/// Gathers and scatters `case` with `runner` and compares with the naive walk.
fn check(case: &Case, runner: &dyn Runner) {
    let content: Vec<u8> = (0..case.buffer).map(|i| (i * 7 + i / 256) as u8).collect();
    let dense = case.gathered(&content);
    assert_eq!(dense.len(), case.dense_len());
    let mut array = Aligned::new(&content, case.skip);
    let mut copy = Aligned::new(&vec![0; dense.len()], case.layout.shape.len() % 16);
    let Some(merged) = case.layout.merged().unwrap() else {
        return assert!(dense.is_empty());
    };
    run(case, &merged, &mut array, &mut copy, Direction::Gather, runner);
    assert_eq!(copy.bytes_mut(), dense, "gathered {case:?}");
    if case.layout.may_overlap().unwrap() {
        return;
    }
    let mut empty = Aligned::new(&vec![0xEE; content.len()], case.skip);
    run(case, &merged, &mut empty, &mut copy, Direction::Scatter, runner);
    assert_eq!(case.gathered(empty.bytes_mut()), dense, "scattered {case:?}");
    let mut items = vec![false; content.len()];
    for offset in case.naive() {
        items[(case.first as i64 + offset) as usize..][..case.layout.itemsize as usize].fill(true);
    }
    let between = empty.bytes_mut().iter().zip(&items).filter(|pair| !pair.1);
    assert!(between.map(|pair| *pair.0).all(|byte| byte == 0xEE), "wrote between items: {case:?}");
}

fn run(
    case: &Case,
    merged: &Merged,
    array: &mut Aligned,
    dense: &mut Aligned,
    direction: Direction,
    runner: &dyn Runner,
) {
    let first = array.bytes_mut()[case.first..].as_mut_ptr();
    let dense = dense.bytes_mut().as_mut_ptr();
    let plans = UnitWalk::all(merged, first.addr() as u64, dense.addr() as u64, direction);
    let all: u64 = plans.iter().map(|plan| plan.walk.units * plan.unit).sum();
    assert_eq!(all, case.layout.bytes().unwrap());
    for plan in plans {
        // SAFETY: the buffer is the layout's whole extent, and the dense side its bytes.
        unsafe {
            let first = first.offset(plan.array_at as isize);
            let dense = dense.offset(plan.dense_at as isize);
            match direction {
                Direction::Gather => runner.run(&plan, dense, first),
                Direction::Scatter => runner.run(&plan, first, dense),
            }
        }
    }
}

/// A dense array of random shape, partly sliced, reversed, repeated or transposed; or arbitrary
/// strides.
fn cases() -> impl Strategy<Value = Case> {
    let dim = (0u64..6, 1i64..4, any::<bool>(), 0u64..3, 0u32..12, -40i64..40);
    let items = prop_oneof![Just(1u64), Just(2), Just(4), Just(8), Just(16), 1u64..21];
    let parts = (proptest::collection::vec(dim, 0..6), items, 0usize..16, any::<u64>());
    parts.prop_map(|(dims, itemsize, skip, seed)| {
        let mut outer = itemsize as i64;
        let mut pairs = Vec::new();
        for (size, step, reversed, spare, kind, odd) in dims {
            let stride = match kind {
                0 => 0,
                1 => odd,
                2..5 => outer * step,
                _ => outer,
            };
            outer *= (size + if kind > 8 { spare } else { 0 }).max(1) as i64 * step;
            pairs.push((
                size.max(u64::from(seed % 5 != 0)),
                if reversed { -stride } else { stride },
            ));
        }
        if seed % 2 == 0 {
            pairs.reverse();
        }
        let turn = (seed / 16) as usize % pairs.len().max(1);
        if seed % 3 == 0 {
            pairs.rotate_left(turn);
        }
        let (shape, strides) = pairs.into_iter().unzip();
        Case::new(StridedLayout { shape, strides, itemsize }, skip)
    })
}

fn layout(shape: &[u64], strides: &[i64], itemsize: u64) -> StridedLayout {
    StridedLayout { shape: shape.to_vec(), strides: strides.to_vec(), itemsize }
}

proptest! {
    #[test]
    fn any_layout_is_walked_as_its_items_lie(case in cases()) {
        check(&case, &Plain);
    }
}

#[test]
fn dimensions_that_lie_in_memory_as_one_are_merged() {
    let merged = |shape: &[u64], strides: &[i64]| {
        let merged = layout(shape, strides, 4).merged().unwrap().unwrap();
        (merged.run, merged.dims.iter().map(|dim| (dim.size, dim.stride)).collect::<Vec<_>>())
    };
    assert_eq!(merged(&[2, 3, 5], &[60, 20, 4]), (120, vec![]));
    assert_eq!(merged(&[2, 3, 5], &[80, 24, 4]), (20, vec![(2, 80), (3, 24)]));
    assert_eq!(merged(&[2, 3, 5], &[72, 24, 4]), (20, vec![(6, 24)]));
    assert_eq!(merged(&[4, 3], &[-12, -4]), (4, vec![(12, -4)]));
    assert_eq!(merged(&[4, 1, 3], &[0, 99, 4]), (12, vec![(4, 0)]));
    assert_eq!(merged(&[4, 7, 3], &[0, 0, 4]), (12, vec![(28, 0)]));
    assert_eq!(merged(&[], &[]), (4, vec![]));
    assert_eq!(merged(&[3, 4], &[4, 12]), (4, vec![(3, 4), (4, 12)]));
}

#[test]
fn a_unit_is_as_large_as_addresses_and_distances_allow() {
    let unit = |shape: &[u64], strides: &[i64], itemsize, address| {
        let merged = layout(shape, strides, itemsize).merged().unwrap().unwrap();
        let plans = UnitWalk::all(&merged, address, 1 << 20, Direction::Gather);
        (plans[0].unit, plans[0].kernel())
    };
    assert_eq!(unit(&[8, 4], &[64, 4], 4, 1 << 21), (16, "copy_units_16_32".into()));
    assert_eq!(unit(&[8, 4], &[64, 4], 4, (1 << 21) + 8).0, 8);
    assert_eq!(unit(&[8, 3], &[24, 12], 12, 1 << 21).0, 4);
    assert_eq!(unit(&[8, 3], &[-25, 5], 5, 1 << 21).0, 1);
    let large = unit(&[1 << 20, 1 << 12], &[1 << 13, 2], 1, 1 << 21);
    assert_eq!(large, (1, "copy_units_1_64".into()));
}

/// Layouts that are large enough for tiles, with edges of all kinds.
fn transposed() -> Vec<Case> {
    let layouts = [
        layout(&[300, 333], &[4, 1200], 4),
        layout(&[256, 512], &[8, 2048], 8),
        layout(&[257, 300, 3], &[2, 257 * 2 * 3, 257 * 2], 2),
        layout(&[70, 40, 61], &[4, 280, 280 * 40], 4),
        layout(&[520, 300], &[1, 600], 1),
        layout(&[300, 333], &[-4, 1200], 4),
        layout(&[333, 300], &[16, -16 * 333], 16),
        layout(&[300, 333], &[12, 12 * 300], 12),
        layout(&[3, 300, 200], &[0, 4, 1300], 4),
    ];
    layouts.into_iter().map(|layout| Case::new(layout, 4)).collect()
}

/// Views of one array of 5 x 6 x 7 x 8 items of 8 bytes: `.T`, `.transpose(2, 0, 3, 1)`,
/// `[:, ::-2, None]`, and one row for all.
fn views() -> Vec<Case> {
    let layouts = [
        layout(&[8, 7, 6, 5], &[8, 64, 448, 2688], 8),
        layout(&[7, 5, 8, 6], &[64, 2688, 8, 448], 8),
        layout(&[5, 3, 1, 7, 8], &[2688, -896, 0, 64, 8], 8),
        layout(&[3, 8], &[0, 8], 8),
    ];
    layouts.into_iter().map(|layout| Case::new(layout, 8)).collect()
}

#[test]
fn views_of_an_array_of_four_dimensions_are_walked_as_their_items_lie() {
    views().iter().for_each(|case| check(case, &Plain));
}

#[test]
fn transposed_arrays_are_walked_in_tiles_and_no_item_is_left_out() {
    for case in transposed() {
        check(&case, &Plain);
        let merged = case.layout.merged().unwrap().unwrap();
        let plans = UnitWalk::all(&merged, 1 << 20, 1 << 20, Direction::Gather);
        let units = usize::from(merged.run > plans[0].unit);
        assert_eq!(plans[0].walk.dims as usize, merged.dims.len() + 2 + units, "{case:?}");
        assert!(plans.len() <= 3);
    }
}

#[test]
fn arrays_whose_order_is_that_of_their_copy_need_no_tiles() {
    let walks = |shape: &[u64], strides: &[i64]| {
        let merged = layout(shape, strides, 4).merged().unwrap().unwrap();
        UnitWalk::all(&merged, 1 << 20, 1 << 20, Direction::Scatter).len()
    };
    assert_eq!(walks(&[504, 504], &[2048, 4]), 1);
    assert_eq!(walks(&[504, 504], &[4096, 8]), 1);
    assert_eq!(walks(&[100, 100], &[4, 400]), 1, "small");
    assert_eq!(walks(&[1 << 20, 2], &[4, 4 << 20]), 1, "thin");
}

#[test]
fn no_bytes_are_nothing_to_do_whatever_the_strides() {
    for (shape, itemsize) in [(&[3, 0, 2][..], 4), (&[3, 2, 2], 0), (&[0, u64::MAX, 9], 8)] {
        let layout = layout(shape, &[i64::MAX, i64::MIN, 0], itemsize);
        assert_eq!(layout.bytes().unwrap(), 0);
        assert_eq!(layout.extent(5).unwrap(), (5, 5));
        assert_eq!(layout.merged().unwrap(), None);
        assert!(!layout.may_overlap().unwrap());
    }
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    assert!(layout(&[2], &[4, 4], 4).bytes().is_err());
    assert!(layout(&[1 << 40, 1 << 40], &[4, 4], 4).bytes().is_err());
    assert!(layout(&[1; 33], &[4; 33], 4).merged().is_err());
    assert!(layout(&[2, 2], &[i64::MAX, i64::MAX], 4).extent(1 << 40).is_err());
    assert!(layout(&[2], &[-8], 4).extent(7).is_err(), "before address 0");
    let shape = [2; 9];
    let strides: Vec<i64> = (0..9).map(|i| 100 << (2 * i)).collect();
    let error = layout(&shape, &strides, 4).merged().unwrap_err();
    assert!(error.to_string().contains("9 dimensions that cannot be merged"), "{error}");
    assert!(layout(&shape[..8], &strides[..8], 4).merged().is_ok());
}

#[test]
fn items_that_share_bytes_are_found_whichever_dimension_they_share_them_along() {
    let overlap = |shape: &[u64], strides: &[i64]| layout(shape, strides, 4).may_overlap().unwrap();
    assert!(overlap(&[3, 4], &[0, 4]));
    assert!(overlap(&[5, 3], &[4, 4]), "a sliding window");
    assert!(overlap(&[3], &[2]), "items that reach into each other");
    assert!(!overlap(&[3, 4], &[4, 12]), "a transposed array");
    assert!(!overlap(&[3, 4], &[-16, 4]));
    assert!(!overlap(&[1, 4], &[0, 4]), "one of them has no neighbour");
}

/// The kernel's text compiled as C++, with a loop over all threads around it.
struct Compiled(libloading::Library);

const SHIM: &str = "
struct Three { unsigned int x, y, z; };
static Three gridDim, blockDim, blockIdx, threadIdx;
#define __global__
#define __device__
#define __grid_constant__
";

const LOOP: &str = "
extern \"C\" void run_threads(void (*kernel)(char *, const char *, Walk), unsigned int blocks,
                              unsigned int threads, char *to, const char *from, const Walk *walk) {
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
            kernel(to, from, *walk);
        }
    }
}
";

const LOOP_OF_MANY: &str = "
extern \"C\" void run_many(unsigned int blocks, unsigned int threads, const Many *many) {
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
            copy_many(*many);
        }
    }
}
";

type RunMany = unsafe extern "C" fn(u32, u32, *const Many);
type Kernel = unsafe extern "C" fn(*mut u8, *const u8, WalkArgument);
type RunThreads = unsafe extern "C" fn(Kernel, u32, u32, *mut u8, *const u8, *const WalkArgument);

impl Compiled {
    /// `None` where there is no C++ compiler.
    fn new(folder: &Path) -> Option<Compiled> {
        let (text, library) = (folder.join("strided.cpp"), folder.join("strided.so"));
        std::fs::write(&text, format!("{SHIM}{SOURCE}{LOOP}{LOOP_OF_MANY}")).unwrap();
        let compile = |compiler: &str| {
            let mut command = Command::new(compiler);
            command.args(["-std=c++17", "-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-o"]);
            command.arg(&library).arg(&text).output().ok()
        };
        let output = ["c++", "g++", "clang++"].into_iter().find_map(compile)?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: made just now from our text, which has no initialisers.
        Some(Compiled(unsafe { libloading::Library::new(&library) }.unwrap()))
    }
}

impl Runner for Compiled {
    unsafe fn run(&self, plan: &UnitWalk, to: *mut u8, from: *const u8) {
        // SAFETY: the functions of the text above with their types; the caller guarantees the rest.
        // A block has few threads here, so that every thread loops more than once.
        unsafe {
            let kernel = self.0.get::<Kernel>(plan.kernel().as_bytes()).unwrap();
            let run_threads = self.0.get::<RunThreads>(b"run_threads").unwrap();
            run_threads(*kernel, 2, 3, to, from, &raw const plan.walk);
            let (blocks, threads) = launch_shape(plan.walk.units);
            run_threads(*kernel, blocks, threads, to, from, &raw const plan.walk);
            let wide = plan.kernel().replace("_32", "_64");
            let kernel = self.0.get::<Kernel>(wide.as_bytes()).unwrap();
            run_threads(*kernel, 3, 5, to, from, &raw const plan.walk);
        }
    }
}

impl Compiled {
    fn copy(&self, many: &Many, threads: u32) {
        // SAFETY: the function of the text above with its type; the caller's copies are of live
        // memory.
        unsafe {
            let run = self.0.get::<RunMany>(b"run_many").unwrap();
            run(many.tiles(), threads, many);
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(tempfile::Builder::new().prefix(name).tempdir().unwrap().keep())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn many_copies_compiled_for_the_processor_write_their_bytes_and_no_others() {
    let folder = Folder::new("many");
    let Some(kernel) = Compiled::new(&folder.0) else {
        println!("skipped: no C++ compiler (c++, g++, clang++)");
        return assert!(Command::new("c++").output().is_err());
    };
    let cases = [(1, 40_000, 1 << 14, 7), (3, 17, 16, 64), (many::MOST, 333, 64, 5)];
    for (count, length, tile, threads) in cases {
        let apart = (length + 64) / 16 * 16;
        let half = count * apart;
        let mut words = vec![0_u128; 2 * half / 16];
        let base = words.as_mut_ptr() as u64;
        // SAFETY: the bytes of `words`, which nothing else uses meanwhile.
        let bytes =
            |at, len| unsafe { std::slice::from_raw_parts_mut((base + at) as *mut u8, len) };
        bytes(0, half).iter_mut().zip(0_u32..).for_each(|(byte, i)| *byte = ((i * 7) >> 3) as u8);
        bytes(half as u64, half).fill(0xEE);
        let mut expected = vec![0xEE; half];
        let mut many = Many::of_tiles(tile);
        for index in 0..count {
            // Places that are multiples of 16, 4, 8, 2 and of none, and lengths of no and of many
            // tiles, which end within a unit.
            let at = index * apart + [0, 4, 8, 2, 1][index % 5];
            let len = [length, 1, length - index % 7, length / 2][index % 4];
            let from = base + at as u64;
            if index % 11 == 2 {
                expected[at..at + len].fill(0);
                many.add((from + half as u64, 0), len as u32);
                continue;
            }
            expected[at..at + len].copy_from_slice(&bytes(at as u64, len)[..]);
            many.add((from + half as u64, from), len as u32);
        }
        kernel.copy(&many, threads);
        assert!(bytes(half as u64, half) == expected, "{count} copies of {length} bytes");
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn the_kernel_compiled_for_the_processor_walks_as_the_items_lie() {
    let folder = Folder::new("strided");
    let Some(kernel) = Compiled::new(&folder.0) else {
        println!("skipped: no C++ compiler (c++, g++, clang++)");
        return assert!(Command::new("c++").output().is_err());
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let checked = runner.run(&cases(), |case| {
        check(&case, &kernel);
        Ok(())
    });
    checked.unwrap();
    views().iter().chain(&transposed()).for_each(|case| check(case, &kernel));
}
