//! Random arrays of all kinds, and their encoding by the codec of the processor: for tests of the
//! kernels, on a device and without one.

use unspool_codec::twine::{self, Array, Layout};
use unspool_codec::{Achieved, Bound, Dtype};

use crate::steps::Steps;

/// A random number generator (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

/// A region and its bytes.
#[derive(Clone, Debug)]
pub struct Region {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// `None` for bytes that are copied.
    pub spec: Option<Array>,
    /// Aligned memory, and the number of bytes in use.
    pub source: Vec<u64>,
    pub bytes: usize,
}

impl Region {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: any initialised words may be read as bytes.
        let all = unsafe {
            std::slice::from_raw_parts(self.source.as_ptr().cast::<u8>(), 8 * self.source.len())
        };
        &all[..self.bytes]
    }

    /// The encoding by the codec of the processor, and its error.
    pub fn expected(&self) -> (Vec<u8>, Achieved) {
        let Some(spec) = &self.spec else {
            return (self.bytes().to_vec(), Achieved::default());
        };
        let mut stream = vec![0; twine::max_bytes(&spec.layout) as usize];
        let encoded = twine::encode(spec, self.bytes(), &mut stream).unwrap();
        stream.truncate(encoded.bytes as usize);
        (stream, encoded.achieved)
    }
}

const DTYPES: &[Dtype] = &[
    Dtype::Float32,
    Dtype::Float32,
    Dtype::Float32,
    Dtype::Float64,
    Dtype::Float64,
    Dtype::Float16,
    Dtype::BFloat16,
    Dtype::Complex64,
    Dtype::Complex128,
    Dtype::Complex32,
    Dtype::Int8,
    Dtype::UInt8,
    Dtype::Bool,
    Dtype::Int16,
    Dtype::UInt16,
    Dtype::Int32,
    Dtype::UInt32,
    Dtype::Int64,
    Dtype::UInt64,
    Dtype::Float8E4m3,
];

fn shape(dice: &mut Dice) -> Vec<u64> {
    match dice.below(6) {
        0 => vec![1 + dice.below(100)],
        1 => vec![1 + dice.below(5000)],
        2 => vec![16 + dice.below(60), 32 + dice.below(70)],
        3 => vec![1 + dice.below(3), 16 + dice.below(30), 32 + dice.below(40)],
        4 => vec![4 + dice.below(6), 8 + dice.below(12), 32 + dice.below(40)],
        _ => vec![dice.below(2) * 2, 5, 8 + dice.below(3), 33],
    }
}

fn method(dice: &mut Dice, layout: &Layout) -> Option<Bound> {
    if !layout.kind.is_float() {
        return None;
    }
    let small = 10f64.powi(-(dice.below(6) as i32));
    Some(match dice.below(9) {
        0 | 1 => return None,
        2 => Bound::Absolute(small * 10.0),
        3 => Bound::Absolute(dice.pick(&[0.0, 1e-30, 1e-40, 1e30, f64::MAX])),
        4 => Bound::Range(small),
        5 => Bound::Rms(small),
        6 => Bound::Psnr(40.0 + 60.0 * dice.part()),
        7 => Bound::L2(small),
        _ => Bound::Pointwise { bound: small, floor: dice.pick(&[0.0, 1e-3, 1e-20, 1e300]) },
    })
}

/// A value of a field, as the bits of the layout's type.
fn value(dice: &mut Dice, style: u64, i: usize, layout: &Layout) -> u64 {
    use unspool_codec::twine::ValueKind::{BFloat16, Float16, Float32, Float64};
    let smooth = (i as f64 * 0.01).sin() * 3.0 + (i as f64 * 0.003).cos();
    let x = match style {
        0 => smooth,
        1 => smooth + dice.part() * 1e-3,
        2 if dice.below(8) > 0 => 0.0,
        3 => -1.25,
        4 => i as f64,
        5 => dice.part() * 2.0 - 1.0,
        _ => smooth * 10f64.powi(dice.below(20) as i32 - 10),
    };
    if style == 7 || (style > 4 && dice.below(40) == 0) {
        return match layout.kind {
            Float32 => dice.pick(&[0x7f80_0000, 0xffc0_1234, 0x8000_0000, 1, 0x0070_0000]),
            _ => dice.next(),
        };
    }
    match layout.kind {
        Float64 => x.to_bits(),
        Float32 => u64::from((x as f32).to_bits()),
        BFloat16 => u64::from((x as f32).to_bits() >> 16),
        // Close enough to float16: sign, exponent and mantissa of the float32, truncated.
        Float16 => {
            let bits = ((x as f32) * f32::from_bits((127 - 112) << 23)).to_bits();
            u64::from(bits >> 16 & 0x8000 | (bits & 0x7fff_ffff) >> 13 & 0x7fff)
        }
        _ => (x * 20.0) as i64 as u64,
    }
}

/// A region of bytes that are copied.
pub fn raw(dice: &mut Dice) -> Region {
    let bytes = dice.below(20_000) as usize;
    let source = (0..bytes.div_ceil(8)).map(|_| dice.next()).collect();
    Region { dtype: Dtype::UInt8, shape: vec![bytes as u64], spec: None, source, bytes }
}

pub fn region(dice: &mut Dice) -> Region {
    if dice.below(8) == 0 {
        return raw(dice);
    }
    let (dtype, shape) = (dice.pick(DTYPES), shape(dice));
    let method = method(dice, &Layout::of(&dtype, &shape).unwrap());
    array(dice, dtype, shape, method)
}

/// A random array of this type and shape.
pub fn array(dice: &mut Dice, dtype: Dtype, shape: Vec<u64>, method: Option<Bound>) -> Region {
    let layout = Layout::of(&dtype, &shape).unwrap();
    let spec = Array { layout, bound: method };
    let style = dice.below(8);
    let mut bytes = Vec::new();
    for i in 0..layout.n as usize {
        // Some chunks have another style, such as zeros.
        let zero = style < 3 && i / 1024 % 3 == 2;
        let bits = if zero { 0 } else { value(dice, style, i, &layout) };
        bytes.extend_from_slice(&bits.to_le_bytes()[..layout.value_bytes()]);
    }
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(8), 0);
    let source = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    Region { dtype, shape, spec: Some(spec), source, bytes: len }
}

/// Extents and places of an array's steps, the outermost first.
fn dims<T>(layout: &Layout, [x, y, z, rest]: [T; 4]) -> [(u64, T); 4] {
    let [nx, ny, nz] = [layout.nx, layout.ny, layout.nz].map(|n| u64::from(n).max(1));
    [(layout.n / (nx * ny * nz), rest), (nz, z), (ny, y), (nx, x)]
}

/// Where the values of an array may be: one after the other, or a part of a larger array, whose
/// dimensions have any order.
pub fn steps(dice: &mut Dice, layout: &Layout) -> Option<Steps> {
    if layout.profile == 1 || dice.below(2) == 0 {
        return None;
    }
    let mut own = [0; 4];
    let mut left: Vec<usize> = vec![0, 1, 2, 3];
    let mut step = dice.pick(&[1, 1, 1, 2, 5]);
    let sizes = dims(layout, [3usize, 2, 1, 0]).map(|(size, _)| size);
    // Rows that stay together are the most usual.
    let mut at = if dice.below(2) == 0 { 3 } else { dice.below(4) as usize };
    while !left.is_empty() {
        let which = left.remove(at.min(left.len() - 1));
        own[which] = step;
        step *= sizes[which];
        step += dice.pick(&[0, 0, 1, 4, 7]);
        at = if dice.below(3) == 0 { dice.below(4) as usize } else { 3 };
    }
    let [rest, z, y, x] = own;
    Some(Steps { x, y, z, rest })
}

/// The memory of an array with these values, from the first to the last; `gap` is between them.
pub fn spread(values: &[u8], layout: &Layout, steps: Option<Steps>, gap: u8) -> Vec<u8> {
    let Some(Steps { x, y, z, rest }) = steps else { return values.to_vec() };
    let unit = layout.value_bytes();
    let mut places = vec![0];
    for (size, step) in dims(layout, [x, y, z, rest]) {
        places = places.iter().flat_map(|at| (0..size).map(move |i| at + i * step)).collect();
    }
    let end = places.iter().max().map_or(0, |last| last + 1);
    let mut memory = vec![gap; end as usize * unit];
    for (at, value) in places.into_iter().zip(values.chunks_exact(unit)) {
        memory[at as usize * unit..][..unit].copy_from_slice(value);
    }
    memory
}

/// Flips some bits of a stream, more often in the headers.
pub fn damage(dice: &mut Dice, stream: &mut [u8]) {
    for _ in 0..1 + dice.below(3) {
        let near = if dice.below(3) == 0 { stream.len() } else { stream.len().min(160) };
        let at = dice.below(near as u64) as usize;
        stream[at] = if dice.below(2) == 0 { dice.next() as u8 } else { stream[at] ^ 1 };
    }
}

pub fn label(region: &Region) -> String {
    format!("{:?} {:?} {:?}", region.dtype, region.shape, region.spec.map(|spec| spec.bound))
}
