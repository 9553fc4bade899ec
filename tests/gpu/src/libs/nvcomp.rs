//! nvCOMP: arrays are restored, bounds hold, and damage is found before the library sees it.

use unspool_codec::{Dtype, NvComp};
use unspool_cuda::{DeviceErrorKind, DeviceMemory};
use unspool_gpu_codec::{
    CheckpointResult, DecodeJob, EncodeJob, GpuCodec, NvCompLayout, Start, StoredCheckpoint,
};

use crate::bench::{Bench, LONG};
use crate::data::{self, Dice};

const CASES: u64 = 40;

/// All formats without loss.
pub const LOSSLESS: [NvComp; 6] =
    [NvComp::Bitcomp, NvComp::Ans, NvComp::Lz4, NvComp::Cascaded, NvComp::Gdeflate, NvComp::Zstd];

pub fn check(bench: &Bench) {
    for codec in LOSSLESS {
        let kept: f64 = (0..CASES).map(|case| round(bench, codec, case)).sum();
        println!("nvCOMP {codec:?}: {CASES} arrays came back, {:.2} of their bytes", kept / 40.0);
    }
    if bench.nvcomp.loaded().unwrap().version().0 >= 6 {
        lossy(bench);
    }
    LOSSLESS.into_iter().for_each(|codec| damaged(bench, codec));
    println!("nvCOMP: damage is found");
}

struct Case {
    layout: NvCompLayout,
    bytes: Vec<u8>,
    room: DeviceMemory,
    result: CheckpointResult,
}

impl Case {
    fn new(bench: &Bench, codec: NvComp, dtype: &Dtype, bytes: Vec<u8>, skip: u64) -> Case {
        let len = bytes.len() as u64;
        let layout = NvCompLayout::of(&codec, dtype, &[len / dtype.itemsize()]).unwrap();
        let source = bench.memory(len + skip);
        bench.upload(&source.span().slice(skip, len).unwrap(), &bytes);
        let room = bench.memory(layout.most());
        let begin = room.span().address();
        let job = EncodeJob {
            steps: None,
            source: source.span().address() + skip,
            layout: layout.clone().into(),
        };
        let (start, limit) = (Start::At(begin), begin + layout.most());
        let asked = [StoredCheckpoint { jobs: &[job], start, limit }];
        // SAFETY: all memory lives until the result was waited for, here and below.
        let pending = unsafe { bench.nvcomp.encode(&bench.stream, &asked) }.unwrap();
        let result = pending[0].wait(LONG).unwrap();
        assert!(result.bytes <= layout.most());
        Case { layout, bytes, room, result }
    }

    fn back(&self, bench: &Bench, skip: u64) -> Result<Vec<u8>, DeviceErrorKind> {
        let target = bench.memory(self.layout.bytes() + skip);
        let job = DecodeJob {
            steps: None,
            stream: self.result.start,
            stored: self.result.bytes,
            layout: self.layout.clone().into(),
            target: target.span().address() + skip,
        };
        // SAFETY: as above.
        let status = unsafe { bench.nvcomp.decode(&bench.stream, &[job]) }.unwrap();
        status.wait(LONG).map_err(|error| error.kind())?;
        Ok(bench.download(&target.span().slice(skip, self.layout.bytes()).unwrap()))
    }
}

/// Checks one random array; returns the compressed share of its bytes.
fn round(bench: &Bench, codec: NvComp, case: u64) -> f64 {
    let mut dice = Dice(case + 1);
    let dtypes = [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::UInt8, Dtype::Complex64];
    let dtype = &dtypes[dice.below(5) as usize];
    let count = 1 + dice.below(if case == 0 { 4_000_000 } else { 300_000 });
    let kind = dice.below(data::KINDS);
    let bytes = data::field(&mut dice, dtype, kind, count);
    let skip = dice.below(3) * dtype.itemsize();
    let case = Case::new(bench, codec, dtype, bytes, skip);
    let back = case.back(bench, skip).unwrap();
    assert!(back == case.bytes, "{codec:?} {dtype} {count} values of kind {kind}");
    case.result.bytes as f64 / case.bytes.len() as f64
}

fn lossy(bench: &Bench) {
    for (seed, bound) in [1e-2, 3e-4, 1e-6].into_iter().enumerate() {
        for kind in [0, 1, 3] {
            let bytes = data::field(&mut Dice(seed as u64), &Dtype::Float32, kind, 500_000);
            let case = Case::new(bench, NvComp::BitcompLossy(bound), &Dtype::Float32, bytes, 0);
            let largest = farthest(&case.bytes, &case.back(bench, 0).unwrap());
            let limit = case.result.jobs[0].achieved.max_error;
            assert!(largest <= limit && limit <= bound, "{largest} {limit} {bound}");
            let ratio = case.bytes.len() as f64 / case.result.bytes as f64;
            println!("Bitcomp, bound {bound:e}: largest error {largest:.3e}, ratio {ratio:.2}");
        }
    }
}

fn farthest(values: &[u8], back: &[u8]) -> f64 {
    let floats = |bytes: &[u8]| -> Vec<f64> {
        let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).map(|bytes| f64::from(float(bytes))).collect()
    };
    let pairs = floats(values).into_iter().zip(floats(back));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn damaged(bench: &Bench, codec: NvComp) {
    let bytes = data::wave(1 << 20, 0.3);
    let case = Case::new(bench, codec, &Dtype::Float32, bytes, 0);
    assert!(case.result.bytes < case.layout.most(), "{codec:?} makes a wave no smaller");
    let whole = bench.download(&case.room.span().slice(0, case.result.bytes).unwrap());
    let mut dice = Dice(9);
    let places = [0, 9, 33, 41, 48, 65, 68].into_iter();
    let random: Vec<usize> = (0..25).map(|_| dice.below(whole.len() as u64) as usize).collect();
    for at in places.chain(random) {
        let mut wrong = whole.clone();
        wrong[at] ^= 1 << dice.below(8);
        bench.upload(&case.room.span(), &wrong);
        assert_eq!(case.back(bench, 0), Err(DeviceErrorKind::Damaged), "{codec:?} byte {at}");
    }
    bench.upload(&case.room.span(), &whole);
    assert!(case.back(bench, 0).unwrap() == case.bytes, "{codec:?}");
}
