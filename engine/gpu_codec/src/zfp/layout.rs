//! Fixed-rate zfp of one array: the sizes of its blocks and stream, which do not depend on the
//! values.

use unspool_codec::Dtype;

use unspool_cuda::{DeviceError, DeviceErrorKind};

/// Bytes of the head, before the blocks.
const HEAD_BYTES: u64 = 64;

/// Maximum number of bits of a block in zfp (`ZFP_MAX_BITS`).
const MOST_BITS: f64 = 16_658.0;

/// Maximum number of values of an array, so that no count of bits overflows.
const MOST_VALUES: u64 = 1 << 44;

const MAGIC: u32 = u32::from_le_bytes(*b"ZFP1");
const VERSION: u64 = 1;

/// A dense array of float32 or float64 with one to three dimensions, and its rate.
///
/// A block of `4^d` values takes `4^d * rate` bits, rounded to whole bits and at least as many as
/// its exponent needs (9 and 12): the size in zfp without alignment to words.
#[derive(Clone, PartialEq, Debug)]
pub struct ZfpLayout {
    wide: bool,
    dims: u32,
    /// The sizes of the dimensions, the fastest first; 1 for missing ones.
    values: [u64; 3],
    rate: f64,
    bits: u64,
    dtype_code: u16,
}

/// The kernels' `Shape`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    values: [u64; 3],
    blocks: [u64; 3],
    count: u64,
    bits: u64,
    group: u64,
    words: u64,
    precision_slack: u64,
}

impl ZfpLayout {
    /// The layout of an array of `shape` (the last dimension changes fastest) at `rate` bits for
    /// each value.
    ///
    /// # Errors
    /// When the kernels do not take the dtype, the shape or the rate.
    pub fn of(dtype: &Dtype, shape: &[u64], rate: f64) -> Result<ZfpLayout, DeviceError> {
        let wide = match dtype {
            Dtype::Float32 => false,
            Dtype::Float64 => true,
            _ => return Err(other_dtype(dtype)),
        };
        let values = values_of(shape)?;
        let dims = shape.len() as u32;
        let bits = bits_of(rate, dims, wide)?;
        Ok(ZfpLayout { wide, dims, values, rate, bits, dtype_code: dtype.code() })
    }

    /// Bytes of the stream with its head.
    #[must_use]
    pub fn stored(&self) -> u64 {
        HEAD_BYTES + 8 * self.shape().words
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.values.iter().product::<u64>() * self.value_bytes()
    }

    /// Bytes of a value.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    pub(super) fn shape(&self) -> Shape {
        let dims = self.dims as usize;
        let blocks = std::array::from_fn(|dim| match dim < dims {
            true => self.values[dim].div_ceil(4),
            false => 1,
        });
        let count = blocks.iter().product();
        let words = (u64::div_ceil)(count * self.bits, 64);
        let precision_slack = 1074 + 2 * (u64::from(self.dims) + 1);
        let (values, bits, group) = (self.values, self.bits, group_of(self.bits));
        Shape { values, blocks, count, bits, group, words, precision_slack }
    }

    /// The head of 64 bytes before the blocks, as in `docs/reference/format.md`.
    pub(super) fn head(&self) -> [u64; 8] {
        let kind = VERSION | u64::from(self.dtype_code & 0xff) << 8 | u64::from(self.dims) << 24;
        let there = |dim: usize| if dim < self.dims as usize { self.values[dim] } else { 0 };
        [
            u64::from(MAGIC) | kind << 32,
            there(0) | there(1) << 32,
            there(2),
            self.rate.to_bits(),
            self.bits,
            8 * self.shape().words,
            0,
            0,
        ]
    }

    /// The name of one of the kernels.
    pub(super) fn kernel(&self, what: &str) -> String {
        format!("zfp_{what}_{}_{}", if self.wide { "f64" } else { "f32" }, self.dims)
    }
}

impl Shape {
    /// Number of threads that encode groups of blocks.
    pub(super) fn encoders(&self) -> u64 {
        self.count.div_ceil(self.group)
    }

    /// Number of threads that decode a block each.
    pub(super) fn decoders(&self) -> u64 {
        self.count
    }

    /// Bytes of the stream without its head.
    #[cfg(test)]
    pub(super) fn stream_bytes(&self) -> u64 {
        8 * self.words
    }
}

/// Number of blocks that end at a whole word, or at a whole byte if that would be many.
fn group_of(bits: u64) -> u64 {
    let until = |unit: u64| unit >> bits.trailing_zeros().min(unit.trailing_zeros());
    if until(64) <= 4 { until(64) } else { until(8) }
}

fn values_of(shape: &[u64]) -> Result<[u64; 3], DeviceError> {
    if shape.is_empty() || shape.len() > 3 {
        let message =
            format!("zfp on the device takes 1 to 3 dimensions, and there are {}", shape.len());
        return Err(refused(message, "Reshape the array, or encode it in host memory."));
    }
    let mut values = [1; 3];
    for (to, &from) in values.iter_mut().zip(shape.iter().rev()) {
        *to = from;
    }
    let all = values.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
    let fits = all.is_some_and(|all| all <= MOST_VALUES);
    if !fits || values.iter().any(|&size| size == 0 || size > u64::from(u32::MAX)) {
        let message = format!("zfp takes no array of shape {shape:?}");
        return Err(refused(message, "Save it raw if it is empty; split it if it is too large."));
    }
    Ok(values)
}

fn bits_of(rate: f64, dims: u32, wide: bool) -> Result<u64, DeviceError> {
    let least = if wide { 12 } else { 9 };
    let bits = (f64::from(1u32 << (2 * dims)) * rate + 0.5).floor();
    if !(rate > 0.0 && bits <= MOST_BITS) {
        let message = format!("zfp has no rate of {rate} bits for each value");
        return Err(refused(message, "Give a rate above 0 and at most that of the values' type."));
    }
    Ok((bits as u64).max(least))
}

fn other_dtype(dtype: &Dtype) -> DeviceError {
    let message = format!("zfp on the device takes float32 and float64, and this is {dtype}");
    refused(message, "Use a lossless codec for it.")
}

fn refused(message: String, advice: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[u64], rate: f64) -> ZfpLayout {
        ZfpLayout::of(&Dtype::Float32, shape, rate).unwrap()
    }

    #[test]
    fn blocks_of_whole_words_have_a_thread_each() {
        assert_eq!([64, 128, 32, 16].map(group_of), [1, 1, 2, 4]);
        assert_eq!([8, 9, 12, 88].map(group_of), [1, 8, 2, 1]);
        for bits in 9..700 {
            assert!((bits * group_of(bits)).is_multiple_of(8) && group_of(bits) <= 8);
        }
    }

    #[test]
    fn the_size_of_a_stream_is_that_of_its_blocks_in_words() {
        let shape = layout(&[5, 9], 4.0).shape();
        assert_eq!((shape.blocks, shape.count, shape.bits), ([3, 2, 1], 6, 64));
        assert_eq!(shape.stream_bytes(), 48);
        assert_eq!(layout(&[5, 9], 4.0).stored(), 112);
        assert_eq!(layout(&[5], 0.5).shape().bits, 9);
    }

    #[test]
    fn what_the_kernels_cannot_code_is_refused_with_a_reason() {
        let text = |dtype, shape: &[u64], rate| {
            ZfpLayout::of(&dtype, shape, rate).unwrap_err().to_string()
        };
        assert!(text(Dtype::Int32, &[4], 8.0).contains("int32"));
        assert!(text(Dtype::Float32, &[2, 2, 2, 2], 8.0).contains("there are 4"));
        assert!(text(Dtype::Float32, &[4, 0], 8.0).contains("[4, 0]"));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(text(Dtype::Float64, &[4], rate).contains("rate"), "{rate}");
        }
    }
}
