//! From the values of a chunk to coefficients and back: exact, by a step, or relative.

use super::layout::CHUNK;
use super::real::{Arithmetic, Real};
use super::rule::{Relative, Step, infinity};
use super::simd::vectorised;
use super::word::Word;

/// The maps of a mode between values and coefficients.
pub(super) trait Coding: Sync {
    /// The bits of a value.
    type V: Word;
    /// The bits of a coefficient.
    type Q: Word;
    /// Whether reconstructions may differ from values.
    const LOSSY: bool;

    /// Coefficients of all values; `bad` is 1 where a value failed, and its coefficient 0.
    fn forward(&self, values: &[Self::V; CHUNK], out: &mut Coefficients<Self::Q>) -> Errors;

    /// The values that the coefficients stand for.
    fn inverse(&self, q: &[Self::Q; CHUNK], values: &mut [Self::V; CHUNK]);

    /// The patterns that a frame of reference works on; only without loss.
    fn to_reference(&self, values: &[Self::V; CHUNK], u: &mut [Self::Q; CHUNK]);

    /// The inverse of [`to_reference`](Coding::to_reference).
    fn undo_reference(&self, u: &[Self::Q; CHUNK], values: &mut [Self::V; CHUNK]);
}

vectorised! {
    /// [`Coding::forward`].
    fn forward<'a, K: Coding>(
        coding: &'a K,
        values: &'a [K::V; CHUNK],
        out: &'a mut Coefficients<K::Q>,
    ) -> Errors {
        coding.forward(values, out)
    }

    /// [`Coding::inverse`].
    fn inverse<'a, K: Coding>(
        coding: &'a K,
        q: &'a [K::Q; CHUNK],
        values: &'a mut [K::V; CHUNK],
    ) -> () {
        coding.inverse(q, values);
    }

    /// [`Coding::to_reference`].
    fn to_reference<'a, K: Coding>(
        coding: &'a K,
        values: &'a [K::V; CHUNK],
        u: &'a mut [K::Q; CHUNK],
    ) -> () {
        coding.to_reference(values, u);
    }

    /// [`Coding::undo_reference`].
    fn undo_reference<'a, K: Coding>(
        coding: &'a K,
        u: &'a [K::Q; CHUNK],
        values: &'a mut [K::V; CHUNK],
    ) -> () {
        coding.undo_reference(u, values);
    }
}

/// Coefficients by position.
pub(super) struct Coefficients<Q> {
    pub q: Box<[Q; CHUNK]>,
    pub bad: Box<[Q; CHUNK]>,
}

/// The errors of a chunk.
#[derive(Clone, Copy, Default)]
pub(super) struct Errors {
    pub max: f64,
    pub sum_sq: f64,
}

/// The number of sums that are formed side by side, so that they need not wait for each other.
const LANES: usize = 16;

/// Errors while they are collected.
struct Collected<A> {
    max: [A; LANES],
    sum_sq: [f64; LANES],
}

impl<A: Arithmetic> Collected<A> {
    #[inline(always)]
    fn new() -> Collected<A> {
        Collected { max: [A::default(); LANES], sum_sq: [0.0; LANES] }
    }

    #[inline(always)]
    fn add(&mut self, lane: usize, error: A) {
        if error > self.max[lane] {
            self.max[lane] = error;
        }
        let wide = error.to_f64();
        self.sum_sq[lane] += wide * wide;
    }

    #[inline(always)]
    fn total(&self) -> Errors {
        let max = self.max.iter().fold(A::default(), |m, &e| if e > m { e } else { m });
        Errors { max: max.to_f64(), sum_sq: self.sum_sq.iter().sum() }
    }
}

/// The type of exact values, whose map to integers keeps near values near.
#[derive(Clone, Copy)]
pub(super) enum Order {
    Float,
    Signed,
    Unsigned,
}

/// Mode 0.
pub(super) struct Exact<W> {
    order: Order,
    width: std::marker::PhantomData<W>,
}

impl<W> Exact<W> {
    pub fn new(order: Order) -> Exact<W> {
        Exact { order, width: std::marker::PhantomData }
    }
}

#[inline(always)]
fn map<V: Word, Q: Word>(from: &[V; CHUNK], to: &mut [Q; CHUNK], function: impl Fn(V) -> Q) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = function(from);
    }
}

impl<W: Word> Coding for Exact<W> {
    type V = W;
    type Q = W;
    const LOSSY: bool = false;

    #[inline(always)]
    fn forward(&self, values: &[W; CHUNK], out: &mut Coefficients<W>) -> Errors {
        match self.order {
            Order::Float => map(values, &mut out.q, W::ordered),
            Order::Signed | Order::Unsigned => *out.q = *values,
        }
        Errors::default()
    }

    #[inline(always)]
    fn inverse(&self, q: &[W; CHUNK], values: &mut [W; CHUNK]) {
        match self.order {
            Order::Float => map(q, values, W::ordered),
            Order::Signed | Order::Unsigned => *values = *q,
        }
    }

    #[inline(always)]
    fn to_reference(&self, values: &[W; CHUNK], u: &mut [W; CHUNK]) {
        match self.order {
            Order::Float => map(values, u, W::rotate_left),
            Order::Signed => map(values, u, W::flip_sign),
            Order::Unsigned => *u = *values,
        }
    }

    #[inline(always)]
    fn undo_reference(&self, u: &[W; CHUNK], values: &mut [W; CHUNK]) {
        match self.order {
            Order::Float => map(u, values, W::rotate_right),
            Order::Signed => map(u, values, W::flip_sign),
            Order::Unsigned => *values = *u,
        }
    }
}

type Q<R> = <<R as Real>::A as Arithmetic>::Q;

/// The coefficients of values, which of them fail, and the errors of the others, by calling
/// `quantise` for each.
#[inline(always)]
fn quantise_all<R: Real>(
    values: &[R::V; CHUNK],
    out: &mut Coefficients<Q<R>>,
    quantise: impl Fn(R::V) -> (Q<R>, bool, R::A),
) -> Errors {
    quantise_into::<R>(values, &mut out.q, &mut out.bad, quantise)
}

/// As above, to places of which the compiler knows that they are apart.
#[inline(always)]
fn quantise_into<R: Real>(
    values: &[R::V; CHUNK],
    coefficients: &mut [Q<R>; CHUNK],
    bad: &mut [Q<R>; CHUNK],
    quantise: impl Fn(R::V) -> (Q<R>, bool, R::A),
) -> Errors {
    let mut errors = Collected::new();
    for at in (0..CHUNK).step_by(LANES) {
        for lane in 0..LANES {
            let (q, passes, error) = quantise(values[at + lane]);
            coefficients[at + lane] = q;
            bad[at + lane] = Q::<R>::from_words(u32::from(!passes), 0);
            errors.add(lane, error);
        }
    }
    errors.total()
}

/// Mode 1.
pub(super) struct Stepped<R: Real> {
    e: R::A,
    step: R::A,
    inv: R::A,
}

impl<R: Real> Stepped<R> {
    pub fn new(step: &Step) -> Stepped<R> {
        let [e, inv] = [step.e, step.inv].map(R::A::from_f64);
        Stepped { e, inv, step: R::A::from_f64(step.step) }
    }

    /// Coefficient, whether the value passes, and its error.
    #[inline(always)]
    fn quantise(&self, value: R::V) -> (Q<R>, bool, R::A) {
        let zero = R::A::default();
        let x = R::widen(value);
        let scaled = x * self.inv;
        let in_range = scaled.magnitude() < R::A::LIMIT;
        let nearest = (if in_range { scaled } else { zero }).nearest_integer();
        let r = R::widen(R::narrow(nearest * self.step));
        let error = (x - r).magnitude();
        let passes = in_range & (error <= self.e);
        let q = (if passes { nearest } else { zero }).to_q();
        (q, passes, if passes { error } else { zero })
    }
}

impl<R: Real> Coding for Stepped<R> {
    type V = R::V;
    type Q = Q<R>;
    const LOSSY: bool = true;

    #[inline(always)]
    fn forward(&self, values: &[R::V; CHUNK], out: &mut Coefficients<Q<R>>) -> Errors {
        quantise_all::<R>(values, out, |value| self.quantise(value))
    }

    #[inline(always)]
    fn inverse(&self, q: &[Q<R>; CHUNK], values: &mut [R::V; CHUNK]) {
        map(q, values, |q| R::narrow(R::A::from_q(q) * self.step));
    }

    fn to_reference(&self, _: &[R::V; CHUNK], _: &mut [Q<R>; CHUNK]) {}

    fn undo_reference(&self, _: &[Q<R>; CHUNK], _: &mut [R::V; CHUNK]) {}
}

/// Mode 2.
pub(super) struct Cut<R: Real> {
    shift: u32,
    half: Q<R>,
    floor: Q<R>,
    infinity: Q<R>,
    smallest_normal: Q<R>,
    sign: Q<R>,
    real: std::marker::PhantomData<R>,
}

fn wide<W: Word>(bits: u64) -> W {
    W::from_words(bits as u32, (bits >> 32) as u32)
}

impl<R: Real> Cut<R> {
    pub fn new(relative: &Relative) -> Cut<R> {
        Cut {
            shift: relative.shift,
            half: wide(1_u64 << relative.shift >> 1),
            floor: wide(relative.floor_bits),
            infinity: wide(infinity(R::KIND)),
            smallest_normal: wide(1 << R::KIND.mantissa_bits()),
            sign: wide(1 << (R::V::BITS - 1)),
            real: std::marker::PhantomData,
        }
    }

    /// Coefficient, whether the value passes, and its error.
    #[inline(always)]
    fn quantise(&self, value: R::V) -> (Q<R>, bool, R::A) {
        let (zero, error_of_none) = (Q::<R>::ZERO, R::A::default());
        let bits: Q<R> = Q::<R>::from_words(value.low(), value.high());
        let negative = bits.and(self.sign) != zero;
        let magnitude = if negative { bits.xor(self.sign) } else { bits };
        let code = magnitude.add(self.half).shr(self.shift);
        let cut = code.shl(self.shift);
        let number = magnitude <= self.infinity;
        let vanishes = number & ((magnitude < self.floor) | (magnitude == zero));
        let normal = (magnitude < self.infinity) & (magnitude >= self.smallest_normal);
        let keeps = normal & (cut < self.infinity) & !vanishes;
        let code = if keeps { code } else { zero };
        let q = if negative { zero.sub(code) } else { code };
        let r = if keeps { cut } else { zero };
        let x = R::widen(R::V::from_words(magnitude.low(), magnitude.high()));
        let error = (x - R::widen(R::V::from_words(r.low(), r.high()))).magnitude();
        let passes = keeps | vanishes;
        (q, passes, if passes { error } else { error_of_none })
    }
}

impl<R: Real> Coding for Cut<R> {
    type V = R::V;
    type Q = Q<R>;
    const LOSSY: bool = true;

    #[inline(always)]
    fn forward(&self, values: &[R::V; CHUNK], out: &mut Coefficients<Q<R>>) -> Errors {
        quantise_all::<R>(values, out, |value| self.quantise(value))
    }

    #[inline(always)]
    fn inverse(&self, q: &[Q<R>; CHUNK], values: &mut [R::V; CHUNK]) {
        map(q, values, |q| {
            let negative = q.shr(Q::<R>::BITS - 1) != Q::<R>::ZERO;
            let code = if negative { Q::<R>::ZERO.sub(q) } else { q };
            let sign = if negative { self.sign } else { Q::<R>::ZERO };
            let bits = code.shl(self.shift).or(sign);
            R::V::from_words(bits.low(), bits.high())
        });
    }

    fn to_reference(&self, _: &[R::V; CHUNK], _: &mut [Q<R>; CHUNK]) {}

    fn undo_reference(&self, _: &[Q<R>; CHUNK], _: &mut [R::V; CHUNK]) {}
}
