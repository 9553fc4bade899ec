//! How an array is cut into chunks (docs/reference/twine.md, "Values" and "Chunks").

use crate::dtype::Dtype;
use crate::error::{CodecError, CodecErrorKind};

/// Positions of a chunk.
pub const CHUNK: usize = 1024;
/// Positions of a block, and blocks of a chunk.
pub const BLOCK: usize = 32;

/// The type of the values of an array.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueKind {
    /// IEEE half precision.
    Float16,
    /// The upper half of a float32.
    BFloat16,
    /// IEEE single precision.
    Float32,
    /// IEEE double precision.
    Float64,
    /// Signed integers, 8 to 64 bits.
    Signed,
    /// Unsigned integers, 8 to 64 bits, and bytes of items that are not looked into.
    Unsigned,
}

impl ValueKind {
    /// Whether they can be encoded with a bound.
    #[must_use]
    pub fn is_float(self) -> bool {
        !matches!(self, ValueKind::Signed | ValueKind::Unsigned)
    }

    /// Mantissa bits that are stored; 0 for integers.
    #[must_use]
    pub fn mantissa_bits(self) -> u32 {
        match self {
            ValueKind::Float16 => 10,
            ValueKind::BFloat16 => 7,
            ValueKind::Float32 => 23,
            ValueKind::Float64 => 52,
            ValueKind::Signed | ValueKind::Unsigned => 0,
        }
    }
}

/// The values of an array and how they are cut into chunks: all that encoder and decoder must
/// agree on besides the method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Layout {
    /// The low byte of the dtype's code in the frame format.
    pub dtype: u8,
    /// The type of the values.
    pub kind: ValueKind,
    /// Bits of a value: 8, 16, 32 or 64.
    pub bits: u32,
    /// 2 for complex items, whose components are separated within each chunk; else 1.
    pub components: u32,
    /// Dimensions of a chunk: 1, 2 or 3.
    pub profile: u32,
    /// How many values there are: items times components.
    pub n: u64,
    /// How many chunks there are.
    pub n_chunks: u32,
    /// The last dimension in profiles 2 and 3, else 0.
    pub nx: u32,
    /// The last dimension but one in profiles 2 and 3, else 0.
    pub ny: u32,
    /// The last dimension but two in profile 3, else 0.
    pub nz: u32,
}

impl Layout {
    /// The layout of an array.
    ///
    /// # Errors
    /// [`CodecErrorKind::TooLarge`] when the stream might not fit its 32-bit offsets: from 16 GiB
    /// on, less a little.
    pub fn of(dtype: &Dtype, shape: &[u64]) -> Result<Layout, CodecError> {
        let (kind, bits, components) = values_of(dtype);
        let per_item = match components {
            1 => dtype.itemsize() / u64::from(bits / 8),
            two => u64::from(two),
        };
        let n = count(per_item, shape).ok_or_else(|| too_large(dtype, shape))?;
        let mut layout = Layout {
            dtype: (dtype.code() & 0xff) as u8,
            kind,
            bits,
            components,
            profile: 1,
            n,
            n_chunks: 0,
            nx: 0,
            ny: 0,
            nz: 0,
        };
        layout.choose_profile(shape);
        let n_chunks = layout.count_chunks();
        let fits = n_chunks.is_some_and(|chunks| layout.payload_words(chunks).is_some());
        let n_chunks = n_chunks.filter(|_| fits).and_then(|chunks| u32::try_from(chunks).ok());
        layout.n_chunks = n_chunks.ok_or_else(|| too_large(dtype, shape))?;
        Ok(layout)
    }

    /// Decides which dimensions predict.
    fn choose_profile(&mut self, shape: &[u64]) {
        let last = |back: usize| match shape.len().checked_sub(back) {
            Some(at) => u32::try_from(shape[at]).ok(),
            None => Some(0),
        };
        let (Some(nx), Some(ny), Some(nz)) = (last(1), last(2), last(3)) else { return };
        if self.n == 0 || self.bits == 8 || self.components == 2 {
            return;
        }
        if nx >= 32 && ny >= 8 && nz >= 4 {
            (self.profile, self.nx, self.ny, self.nz) = (3, nx, ny, nz);
        } else if nx >= 32 && ny >= 16 {
            (self.profile, self.nx, self.ny) = (2, nx, ny);
        }
    }

    fn count_chunks(&self) -> Option<u64> {
        if self.profile == 1 {
            return Some(self.n.div_ceil(CHUNK as u64));
        }
        let [x, y, z] = self.grid();
        let [nx, ny, nz] = self.dimensions();
        (self.n / (nx * ny) / nz).checked_mul(x * y)?.checked_mul(z)
    }

    /// Words of the payload at worst, when they can be counted by a u32.
    fn payload_words(&self, n_chunks: u64) -> Option<u64> {
        // Values narrower than a word may leave a part of a word empty in every chunk; those of
        // profile 1 do so in the last one only.
        let padding = if self.bits < 32 && self.profile > 1 { n_chunks } else { 0 };
        let values = (self.n / 32)
            .checked_mul(u64::from(self.bits))?
            .checked_add((self.n % 32 * u64::from(self.bits)).div_ceil(32))?;
        let words = values.checked_add(n_chunks)?.checked_add(padding)?;
        (words <= u64::from(u32::MAX)).then_some(words)
    }

    /// Bytes of the longest stream that this array can have.
    pub(super) fn max_bytes(&self) -> u64 {
        let chunks = u64::from(self.n_chunks);
        64 + 4 * (chunks + 1) + 4 * self.payload_words(chunks).unwrap_or(u64::from(u32::MAX))
    }

    /// Bytes of a value.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.bits as usize / 8
    }

    /// Bytes of the array.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.n * self.value_bytes() as u64
    }

    /// nx, ny, nz of profiles 2 and 3; nz is 1 in profile 2.
    pub(super) fn dimensions(&self) -> [u64; 3] {
        [self.nx, self.ny, self.nz.max(1)].map(u64::from)
    }

    /// Chunks along x, y, z in profiles 2 and 3.
    pub(super) fn grid(&self) -> [u64; 3] {
        let [nx, ny, nz] = self.dimensions();
        let [w, h, d] = self.extent().map(|extent| extent as u64);
        [nx.div_ceil(w), ny.div_ceil(h), nz.div_ceil(d)]
    }

    /// Positions of a chunk along x, y, z.
    pub(super) fn extent(&self) -> [usize; 3] {
        match self.profile {
            1 => [CHUNK, 1, 1],
            2 => [32, 32, 1],
            _ => [32, 8, 4],
        }
    }
}

/// Kind, bits and components of the values that an item consists of.
fn values_of(dtype: &Dtype) -> (ValueKind, u32, u32) {
    use ValueKind::{BFloat16, Float16, Float32, Float64, Signed, Unsigned};
    match dtype {
        Dtype::Float16 => (Float16, 16, 1),
        Dtype::BFloat16 => (BFloat16, 16, 1),
        Dtype::Float32 => (Float32, 32, 1),
        Dtype::Float64 => (Float64, 64, 1),
        Dtype::Complex32 => (Float16, 16, 2),
        Dtype::Complex64 => (Float32, 32, 2),
        Dtype::Complex128 => (Float64, 64, 2),
        Dtype::Int8 | Dtype::QInt8 => (Signed, 8, 1),
        Dtype::Int16 => (Signed, 16, 1),
        Dtype::Int32 | Dtype::QInt32 => (Signed, 32, 1),
        Dtype::Int64 => (Signed, 64, 1),
        Dtype::UInt16 | Dtype::Bits16 => (Unsigned, 16, 1),
        Dtype::UInt32 => (Unsigned, 32, 1),
        Dtype::UInt64 => (Unsigned, 64, 1),
        _ => (Unsigned, 8, 1),
    }
}

/// The product; 0 with a zero dimension, however large the others are.
fn count(per_item: u64, shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(per_item, |n, &d| n.checked_mul(d))
}

fn too_large(dtype: &Dtype, shape: &[u64]) -> CodecError {
    let what = format!(
        "an array of {dtype} with shape {shape:?} is too large for one Twine stream, which has \
         at most 2^32 words (16 GiB). Split the array into several regions."
    );
    CodecError::new(CodecErrorKind::TooLarge, what)
}
