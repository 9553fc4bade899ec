//! One row of one step, compiled for the instruction sets that this machine may have.
//!
//! There is one portable kernel. It is compiled a second time with AVX2 and FMA, where the
//! compiler turns the same loop into eight lanes; the choice is made once, at run time.

use crate::error::WaveError;
use crate::medium::SECOND_DERIVATIVE;

/// The instruction set that a propagator computes with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instructions {
    /// What every machine of this architecture has.
    Portable,
    /// 256-bit vectors with fused multiply-add (x86-64 since 2013).
    Avx2,
}

impl Instructions {
    /// The fastest that this machine offers.
    #[must_use]
    pub fn best() -> Self {
        if Self::Avx2.available() { Self::Avx2 } else { Self::Portable }
    }

    /// Whether this machine offers it.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
        }
    }

    /// The name that reports show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
        }
    }

    pub(crate) fn checked(self) -> Result<Self, WaveError> {
        if self.available() { Ok(self) } else { Err(WaveError::Instructions(self.name())) }
    }
}

/// Amplitudes below this are silence. The stencil spreads ever smaller numbers ahead of every
/// wave; once they, or their products in an image, become subnormal, one step takes ten times as
/// long (measured). Waves are expected to be many orders of magnitude larger.
pub(crate) const SILENCE: f32 = 1e-18;

/// The weights of the Laplacian, in 1 / m^2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    centre: f32,
    x: [f32; 4],
    z: [f32; 4],
}

impl Weights {
    pub(crate) fn new(dx: f64, dz: f64) -> Self {
        let along = |i: usize, spacing: f64| SECOND_DERIVATIVE[i] / (spacing * spacing);
        Self {
            centre: (along(0, dx) + along(0, dz)) as f32,
            x: std::array::from_fn(|i| along(i + 1, dx) as f32),
            z: std::array::from_fn(|i| along(i + 1, dz) as f32),
        }
    }
}

/// What one row of a step reads. All slices have the length of the row that is written, but
/// `across`, which has four cells more on either side.
pub(crate) struct Row<'a> {
    /// The current field along z, with the neighbours above and below.
    pub(crate) across: &'a [f32],
    /// The current field one to four rows before and after.
    pub(crate) beside: [(&'a [f32], &'a [f32]); 4],
    /// v^2 dt^2.
    pub(crate) push: &'a [f32],
    /// The damping by z.
    pub(crate) damp_z: &'a [f32],
    /// The damping of this row.
    pub(crate) damp_x: f32,
}

/// Replaces `older`, the row two steps back, by the row of the next step.
pub(crate) fn advance_row(with: Instructions, weights: &Weights, row: &Row<'_>, older: &mut [f32]) {
    match with {
        Instructions::Portable => kernel::<false>(weights, row, older),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Instructions::checked` has found AVX2 and FMA on this machine before a
        // propagator with `Avx2` could be built; the kernel has no other requirement.
        Instructions::Avx2 => unsafe { kernel_avx2(weights, row, older) },
        #[cfg(not(target_arch = "x86_64"))]
        Instructions::Avx2 => kernel::<false>(weights, row, older),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn kernel_avx2(weights: &Weights, row: &Row<'_>, older: &mut [f32]) {
    kernel::<true>(weights, row, older);
}

/// `a * b + c`, rounded once where the hardware does that at full speed.
#[inline(always)]
fn mul_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The stencil. Every slice is cut to the length of `older` first, so that the loop needs no
/// bounds checks; each element depends on its own position only, never on how the work is split.
#[inline(always)]
fn kernel<const FUSED: bool>(weights: &Weights, row: &Row<'_>, older: &mut [f32]) {
    let cells = older.len();
    let along: [&[f32]; 9] = std::array::from_fn(|shift| &row.across[shift..shift + cells]);
    let left: [&[f32]; 4] = std::array::from_fn(|i| &row.beside[i].0[..cells]);
    let right: [&[f32]; 4] = std::array::from_fn(|i| &row.beside[i].1[..cells]);
    let (push, damp_z) = (&row.push[..cells], &row.damp_z[..cells]);
    for z in 0..cells {
        let now = along[4][z];
        let mut laplacian = weights.centre * now;
        for i in 0..4 {
            let above_below = along[3 - i][z] + along[5 + i][z];
            laplacian = mul_add::<FUSED>(weights.z[i], above_below, laplacian);
            laplacian = mul_add::<FUSED>(weights.x[i], left[i][z] + right[i][z], laplacian);
        }
        let damp = row.damp_x + damp_z[z];
        let kept = mul_add::<FUSED>(damp - 1.0, older[z], 2.0 * now);
        let next = mul_add::<FUSED>(push[z], laplacian, kept) / (1.0 + damp);
        older[z] = if next.abs() < SILENCE { 0.0 } else { next };
    }
}
