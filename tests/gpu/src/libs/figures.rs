//! Speed: device time and the time of the call, beside a copy within the device.

use std::time::Duration;

use unspool_codec::{Dtype, NvComp};
use unspool_cuda::{DeviceMemory, copy};
use unspool_gpu_codec::{
    DecodeJob, EncodeJob, GpuCodec, NvCompLayout, Start, StoredCheckpoint, ZfpLayout,
};

use crate::bench::{Bench, LONG, MIB};
use crate::data;
use crate::nvcomp::LOSSLESS;

const SIZES: [u64; 5] = [1, 8, 32, 128, 512];

/// The share of the wave's values that are not 0, as in earlier measurements of nvCOMP.
const SHARE: f64 = 0.125;

pub fn run(bench: &Bench, with_nvcomp: bool) {
    println!("codec                    MiB  ratio | encode GB/s  us device/host | decode GB/s  us");
    for mib in SIZES {
        let arena = Arena::new(bench, mib);
        arena.copies(bench);
        for (shape, rate) in [(2, 8.0), (2, 4.0), (3, 8.0), (1, 8.0), (2, 5.5)] {
            arena.zfp(bench, shape, rate);
        }
        if with_nvcomp {
            LOSSLESS.into_iter().for_each(|codec| arena.nvcomp(bench, codec));
            if bench.nvcomp.loaded().unwrap().version().0 >= 6 {
                arena.nvcomp(bench, NvComp::BitcompLossy(1e-3));
            }
        }
    }
}

/// An array, space for its encoding, and space for the decoded array.
struct Arena {
    mib: u64,
    rounds: u32,
    source: DeviceMemory,
    room: DeviceMemory,
    target: DeviceMemory,
}

impl Arena {
    fn new(bench: &Bench, mib: u64) -> Arena {
        let bytes = mib * MIB;
        let (source, target) = (bench.memory(bytes), bench.memory(bytes));
        let room = bench.memory(bytes + bytes / 8 + MIB);
        bench.upload(&source.span(), &data::wave(bytes, SHARE));
        let rounds = (1024 / mib).clamp(4, 100) as u32;
        Arena { mib, rounds, source, room, target }
    }

    fn row(&self, name: &str, stored: u64, encode: (Duration, Duration), decode: Duration) {
        let bytes = (self.mib * MIB) as f64;
        let rate = |time: Duration| bytes / time.as_secs_f64() / 1e9;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{name:24} {:4} {:6.2} | {:11.0} {:7.0}/{:<7.0} | {:11.0} {:7.0}",
            self.mib,
            bytes / stored as f64,
            rate(encode.0),
            micros(encode.0),
            micros(encode.1),
            rate(decode),
            micros(decode)
        );
    }

    fn copies(&self, bench: &Bench) {
        let (from, to) = (self.source.span(), self.target.span());
        let time = bench.time(self.rounds, || {
            copy::device_to_device(&bench.stream, &to, &from).unwrap();
        });
        self.row("a copy", self.mib * MIB, time, time.0);
    }

    fn zfp(&self, bench: &Bench, dims: u64, rate: f64) {
        let count = self.mib * MIB / 4;
        let shape = match dims {
            1 => vec![count],
            2 => vec![count / 1024, 1024],
            _ => vec![count / 16_384, 128, 128],
        };
        let layout = ZfpLayout::of(&Dtype::Float32, &shape, rate).unwrap();
        let jobs = [EncodeJob {
            steps: None,
            source: self.source.span().address(),
            layout: layout.clone().into(),
        }];
        let begin = self.room.span().address();
        let limit = begin + self.room.span().len();
        let asked = [StoredCheckpoint { jobs: &jobs, start: Start::At(begin), limit }];
        let encode = bench.time(self.rounds, || {
            // SAFETY: the memory lives until the stream was waited for, here and below.
            drop(unsafe { bench.zfp.encode(&bench.stream, &asked) }.unwrap());
        });
        let back = DecodeJob {
            steps: None,
            stream: begin,
            stored: layout.stored(),
            layout: layout.clone().into(),
            target: self.target.span().address(),
        };
        let decode = bench.time(self.rounds, || {
            // SAFETY: as above.
            drop(unsafe { bench.zfp.decode(&bench.stream, std::slice::from_ref(&back)) }.unwrap());
        });
        self.row(&format!("zfp {dims}-D, {rate} bits"), layout.stored(), encode, decode.0);
    }

    fn nvcomp(&self, bench: &Bench, codec: NvComp) {
        let layout = NvCompLayout::of(&codec, &Dtype::Float32, &[self.mib * MIB / 4]).unwrap();
        let jobs = [EncodeJob {
            steps: None,
            source: self.source.span().address(),
            layout: layout.clone().into(),
        }];
        let begin = self.room.span().address();
        let limit = begin + self.room.span().len();
        let asked = [StoredCheckpoint { jobs: &jobs, start: Start::At(begin), limit }];
        // SAFETY: as above.
        let encode = || unsafe { bench.nvcomp.encode(&bench.stream, &asked) }.unwrap();
        let result = encode()[0].wait(LONG).unwrap();
        let slow = matches!(codec, NvComp::Gdeflate | NvComp::Zstd);
        let rounds = if slow { (self.rounds / 10).max(1) } else { self.rounds };
        let encoding = bench.time(rounds, || drop(encode()));
        let back = DecodeJob {
            steps: None,
            stream: result.start,
            stored: result.bytes,
            layout: layout.into(),
            target: self.target.span().address(),
        };
        let decode = bench.time(rounds, || {
            // SAFETY: as above.
            drop(
                unsafe { bench.nvcomp.decode(&bench.stream, std::slice::from_ref(&back)) }.unwrap(),
            );
        });
        self.row(&format!("nvCOMP {codec:?}"), result.bytes, encoding, decode.0);
    }
}
