//! zfp: the same bytes, values and errors as the codec of the processor.

use unspool_codec::{Achieved, Dtype, Zfp, zfp};
use unspool_gpu_codec::{
    DecodeJob, EncodeErrorKind, EncodeJob, GpuCodec, Start, StoredCheckpoint, ZfpLayout,
};

use crate::bench::{Bench, LONG, MIB};
use crate::data::{self, Dice};

const CASES: u64 = 2000;

/// Random arrays, and blocks of all kinds.
pub fn check(bench: &Bench) {
    let mut dice = Dice(1);
    let (mut bytes, mut by_rate) = (0, 0);
    for case in 0..CASES {
        let field = Field::draw(&mut dice);
        bytes += field.bytes.len();
        by_rate += u64::from(!field.layout.stored().is_multiple_of(64));
        field.check(bench, &mut dice, case);
    }
    println!("zfp: {CASES} arrays, {bytes} bytes ({by_rate} of odd length), as by the processor");
    refuses_what_is_not_finite(bench);
}

struct Field {
    dtype: Dtype,
    shape: Vec<u64>,
    layout: ZfpLayout,
    bytes: Vec<u8>,
    stream: Vec<u8>,
    achieved: Achieved,
}

impl Field {
    fn draw(dice: &mut Dice) -> Field {
        let dims = 1 + dice.below(3) as usize;
        let most = [20_000, 260, 44][dims - 1];
        let shape: Vec<u64> = (0..dims).map(|_| 1 + dice.below(most)).collect();
        let wide = dice.below(2) == 1;
        let dtype = if wide { Dtype::Float64 } else { Dtype::Float32 };
        let rates = [0.5, 1.0, 3.0, 4.0, 5.5, 7.3, 8.0, 12.0, 16.0, 31.0, 40.5];
        let rate = rates[dice.below(if wide { 11 } else { 10 }) as usize];
        let kind = dice.below(data::KINDS);
        Field::new(dice, dtype, shape, (rate, kind))
    }

    fn new(dice: &mut Dice, dtype: Dtype, shape: Vec<u64>, (rate, kind): (f64, u64)) -> Field {
        let bytes = data::field(dice, &dtype, kind, shape.iter().product());
        let mode = Zfp::Rate(rate);
        let mut stream = vec![0; zfp::max_bytes(&mode, &dtype, &shape).unwrap() as usize];
        let made = zfp::encode(&mode, &dtype, &shape, &bytes, &mut stream).unwrap();
        stream.truncate(made.bytes as usize);
        let layout = ZfpLayout::of(&dtype, &shape, rate).unwrap();
        Field { dtype, shape, layout, bytes, stream, achieved: made.achieved }
    }

    fn check(&self, bench: &Bench, dice: &mut Dice, case: u64) {
        // Arrays may begin at any multiple of the value size.
        let skip = dice.below(3) * self.dtype.itemsize();
        let len = self.bytes.len() as u64;
        let source = bench.memory(len + skip);
        bench.upload(&source.span().slice(skip, len).unwrap(), &self.bytes);
        let room = bench.memory(self.layout.stored());
        let begin = room.span().address();
        let layout = self.layout.clone().into();
        let job = EncodeJob { steps: None, source: source.span().address() + skip, layout };
        let (start, limit) = (Start::At(begin), begin + self.layout.stored());
        let asked = [StoredCheckpoint { jobs: &[job], start, limit }];
        // SAFETY: all memory lives until the result was waited for, here and below.
        let pending = unsafe { bench.zfp.encode(&bench.stream, &asked) }.unwrap();
        let result = pending[0].wait(LONG).unwrap();
        let what = format!("case {case}: {} {:?} {:?}", self.dtype, self.shape, self.layout);
        assert_eq!(result.bytes, self.stream.len() as u64, "{what}");
        assert!(bench.download(&room.span()) == self.stream, "{what}");
        self.check_error(result.jobs[0].achieved, &what);
        self.check_back(bench, begin, &what);
    }

    fn check_error(&self, achieved: Achieved, what: &str) {
        assert_eq!(achieved.max_error, self.achieved.max_error, "{what}");
        let (a, b) = (achieved.sum_sq_error, self.achieved.sum_sq_error);
        assert!((a - b).abs() <= 1e-9 * b || (a.is_infinite() && b.is_infinite()), "{what}");
        assert_eq!(achieved.values, self.achieved.values, "{what}");
    }

    fn check_back(&self, bench: &Bench, stream: u64, what: &str) {
        let target = bench.memory(self.layout.bytes());
        let (stored, layout) = (self.layout.stored(), self.layout.clone().into());
        let job =
            DecodeJob { steps: None, stream, stored, layout, target: target.span().address() };
        // SAFETY: as above.
        unsafe { bench.zfp.decode(&bench.stream, &[job]) }.unwrap().wait(LONG).unwrap();
        let mut expected = vec![0; self.bytes.len()];
        zfp::decode(&self.dtype, &self.shape, &self.stream, &mut expected).unwrap();
        assert!(bench.download(&target.span()) == expected, "{what}");
    }
}

fn refuses_what_is_not_finite(bench: &Bench) {
    let layout = ZfpLayout::of(&Dtype::Float32, &[64, 64], 8.0).unwrap();
    let (source, room) = (bench.memory(MIB), bench.memory(MIB));
    for wild in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut bytes = data::field(&mut Dice(2), &Dtype::Float32, 0, 64 * 64);
        bytes[4 * 2077..][..4].copy_from_slice(&wild.to_le_bytes());
        bench.upload(&source.span(), &bytes);
        let job = EncodeJob {
            steps: None,
            source: source.span().address(),
            layout: layout.clone().into(),
        };
        let begin = room.span().address();
        let (start, limit) = (Start::At(begin), begin + MIB);
        let asked = [StoredCheckpoint { jobs: &[job], start, limit }];
        // SAFETY: as above.
        let pending = unsafe { bench.zfp.encode(&bench.stream, &asked) };
        let error = pending.unwrap()[0].wait(LONG).unwrap_err();
        assert_eq!(error.kind(), EncodeErrorKind::Refused);
    }
    println!("zfp: NaN and infinities are refused");
}
