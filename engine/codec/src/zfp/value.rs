//! The four types of values that zfp knows.

use std::borrow::Cow;
use std::fmt;

use rayon::prelude::*;

use super::NONE;
use crate::codec::Achieved;
use crate::dtype::Dtype;

/// Values whose errors one thread adds up.
const SHARE: usize = 1 << 16;

/// A type of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ValueKind {
    I32,
    I64,
    F32,
    F64,
}

impl ValueKind {
    pub(super) fn of(dtype: &Dtype) -> Option<ValueKind> {
        match dtype {
            Dtype::Int32 => Some(ValueKind::I32),
            Dtype::Int64 => Some(ValueKind::I64),
            Dtype::Float32 => Some(ValueKind::F32),
            Dtype::Float64 => Some(ValueKind::F64),
            _ => None,
        }
    }

    pub(super) fn scalar(self) -> zfp_rs::ZfpScalarType {
        match self {
            ValueKind::I32 => zfp_rs::ZfpScalarType::I32,
            ValueKind::I64 => zfp_rs::ZfpScalarType::I64,
            ValueKind::F32 => zfp_rs::ZfpScalarType::F32,
            ValueKind::F64 => zfp_rs::ZfpScalarType::F64,
        }
    }

    pub(super) fn bits(self) -> u32 {
        if matches!(self, ValueKind::I32 | ValueKind::F32) { 32 } else { 64 }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, ValueKind::F32 | ValueKind::F64)
    }
}

/// A value that zfp may know.
pub(super) trait Value:
    zfp_rs::ZfpScalar + bytemuck::Pod + fmt::Display + Send + Sync
{
    /// Whether zfp has a form for it. The two highest bits of an integer have to be free for the
    /// transform; beyond that its result is not near the value at all.
    fn has_a_form(self) -> bool;

    /// How far the other one is from it.
    fn distance(self, other: Self) -> f64;
}

impl Value for i32 {
    fn has_a_form(self) -> bool {
        (-(1 << 30)..1 << 30).contains(&self)
    }

    fn distance(self, other: i32) -> f64 {
        f64::from(self.abs_diff(other))
    }
}

impl Value for i64 {
    fn has_a_form(self) -> bool {
        (-(1 << 62)..1 << 62).contains(&self)
    }

    fn distance(self, other: i64) -> f64 {
        self.abs_diff(other) as f64
    }
}

impl Value for f32 {
    fn has_a_form(self) -> bool {
        self.is_finite()
    }

    fn distance(self, other: f32) -> f64 {
        (f64::from(self) - f64::from(other)).abs()
    }
}

impl Value for f64 {
    fn has_a_form(self) -> bool {
        self.is_finite()
    }

    fn distance(self, other: f64) -> f64 {
        (self - other).abs()
    }
}

/// These bytes as values, in place or copied to an aligned place.
pub(super) fn read<T: Value>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => {
            let values = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned);
            Cow::Owned(values.collect())
        }
    }
}

/// The error of `back` against `values`; `shared` between the threads of the pool that this runs
/// in. The sum is the same for any number of them.
pub(super) fn compare<T: Value>(values: &[T], back: &[T], shared: bool) -> Achieved {
    let shares = values.chunks(SHARE).zip(back.chunks(SHARE));
    let errors = |(values, back): (&[T], &[T])| share(values, back);
    let shares: Vec<Achieved> = if shared {
        shares.collect::<Vec<_>>().into_par_iter().map(errors).collect()
    } else {
        shares.map(errors).collect()
    };
    shares.into_iter().fold(NONE, Achieved::and)
}

fn share<T: Value>(values: &[T], back: &[T]) -> Achieved {
    let mut sum = Achieved { values: values.len() as u64, ..NONE };
    for (value, back) in values.iter().zip(back) {
        let error = value.distance(*back);
        sum.max_error = sum.max_error.max(error);
        sum.sum_sq_error += error * error;
    }
    sum
}
