//! The layout of an array for nvCOMP: chunks of 64 KiB, compressed in batches.

use unspool_codec::{Dtype, NvComp};

use super::formats::{CHUNK, Format, delta, float};
use unspool_cuda::{DeviceError, DeviceErrorKind};

/// Bytes of the head of a container.
pub(super) const HEAD_BYTES: u64 = 64;

/// Maximum size of an array in bytes: offsets in a container are 32-bit numbers in units of 16
/// bytes.
const MOST: u64 = 1 << 34;

const MAGIC: u32 = u32::from_le_bytes(*b"NVC1");
const VERSION: u64 = 1;

/// A dense array and the format that encodes it.
#[derive(Clone, PartialEq, Debug)]
pub struct NvCompLayout {
    codec: NvComp,
    dtype: Dtype,
    bytes: u64,
    values: u64,
}

impl NvCompLayout {
    /// The layout of an array of `shape`.
    ///
    /// # Errors
    /// When it is empty or too large, or a bound does not fit the values.
    pub fn of(codec: &NvComp, dtype: &Dtype, shape: &[u64]) -> Result<NvCompLayout, DeviceError> {
        let values = shape.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        let bytes = values.and_then(|values| values.checked_mul(dtype.itemsize()));
        let fits = |&bytes: &u64| bytes > 0 && bytes <= MOST;
        let Some((values, bytes)) = values.zip(bytes.filter(fits)) else {
            let message = format!("nvCOMP takes no array of shape {shape:?} and type {dtype}");
            return Err(refused(message, "Save it raw if it is empty; split it above 16 GiB."));
        };
        if let NvComp::BitcompLossy(bound) = *codec {
            check_bound(bound, dtype)?;
        }
        Ok(NvCompLayout { codec: *codec, dtype: dtype.clone(), bytes, values })
    }

    /// Maximum size of its container in bytes: chunks that do not get smaller stay uncompressed.
    #[must_use]
    pub fn most(&self) -> u64 {
        HEAD_BYTES + self.bytes
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its format.
    #[must_use]
    pub fn codec(&self) -> NvComp {
        self.codec
    }

    pub(super) fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    pub(super) fn values(&self) -> u64 {
        let components = match self.dtype {
            Dtype::Complex32 | Dtype::Complex64 | Dtype::Complex128 => 2,
            _ => 1,
        };
        self.values * components
    }

    pub(super) fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK)
    }

    /// Bytes of the last chunk.
    pub(super) fn last_chunk(&self) -> u64 {
        self.bytes - (self.chunks() - 1) * CHUNK
    }

    /// Offset of the first chunk in a container.
    pub(super) fn table_end(&self) -> u64 {
        HEAD_BYTES + (8 * self.chunks()).next_multiple_of(16)
    }

    /// Upper bound of the error; the actual error is not measured.
    pub(super) fn largest_error(&self) -> f64 {
        match self.codec {
            NvComp::BitcompLossy(bound) => power_of_two_below(delta(bound)) / 2.0,
            _ => 0.0,
        }
    }

    /// The words of the head that identify the content.
    pub(super) fn head(&self, format: &Format) -> [u64; 4] {
        let bound = if let NvComp::BitcompLossy(bound) = self.codec { bound } else { 0.0 };
        let dtype = u64::from(self.dtype.code() & 0xff);
        let kind = VERSION | format.number << 8 | dtype << 16 | (format.major as u64) << 24;
        [
            u64::from(MAGIC) | kind << 32,
            self.bytes,
            CHUNK | self.chunks() << 32,
            f64::to_bits(bound),
        ]
    }
}

/// Checks that nvCOMP takes the bound: it divides by a delta that has to be a normal number of the
/// values' type.
fn check_bound(bound: f64, dtype: &Dtype) -> Result<(), DeviceError> {
    let Some(float) = float(dtype) else {
        let message = format!("Bitcomp takes no bound for values of type {dtype}");
        let advice = "Use it without loss, or one of Unspool's own codecs.";
        return Err(refused(message, advice));
    };
    if (float.least..=float.most).contains(&delta(bound)) {
        return Ok(());
    }
    let message = format!("Bitcomp takes no bound of {bound:e} for values of type {dtype}");
    let advice = format!("Give one from {:e} to {:e}.", float.least / 2.0, float.most / 2.0);
    Err(refused(message, &advice))
}

/// The largest power of two that is at most `x`, a normal number.
fn power_of_two_below(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !((1 << 52) - 1))
}

fn refused(message: String, advice: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::OutOfRange, message).with_advice(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(codec: NvComp, shape: &[u64]) -> NvCompLayout {
        NvCompLayout::of(&codec, &Dtype::Float32, shape).unwrap()
    }

    #[test]
    fn an_array_is_cut_into_chunks_of_64_kib_and_a_rest() {
        let layout = layout(NvComp::Lz4, &[3, 16_384]);
        assert_eq!((layout.chunks(), layout.last_chunk(), layout.most()), (3, CHUNK, 196_672));
        let layout = self::layout(NvComp::Lz4, &[16_385]);
        assert_eq!((layout.chunks(), layout.last_chunk(), layout.table_end()), (2, 4, 80));
    }

    #[test]
    fn the_error_is_at_most_the_bound() {
        for bound in [1e-3, 0.5, 0.3, 1.0, 7e-20] {
            let largest = layout(NvComp::BitcompLossy(bound), &[4]).largest_error();
            assert!(largest <= bound && largest > bound / 2.0, "{largest} of {bound}");
        }
        assert_eq!(layout(NvComp::Ans, &[4]).largest_error(), 0.0);
    }

    #[test]
    fn what_cannot_be_coded_is_refused_with_a_reason() {
        let text = |codec, dtype, shape: &[u64]| {
            NvCompLayout::of(&codec, &dtype, shape).unwrap_err().to_string()
        };
        assert!(text(NvComp::Lz4, Dtype::Int8, &[0]).contains("[0]"));
        assert!(text(NvComp::Lz4, Dtype::Int8, &[1 << 40]).contains("16 GiB"));
        assert!(text(NvComp::Lz4, Dtype::Int8, &[u64::MAX, 2]).contains("int8"));
        for bound in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-45] {
            let text = text(NvComp::BitcompLossy(bound), Dtype::Float32, &[4]);
            assert!(text.contains("Bitcomp takes no bound"), "{text}");
        }
        let text = text(NvComp::BitcompLossy(1e-3), Dtype::Int32, &[4]);
        assert!(text.contains("int32"), "{text}");
    }
}
