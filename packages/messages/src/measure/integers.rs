//! Values as integers that can be subtracted: what a prediction in time leaves.

use crate::values::Values;

/// Does the same with each value of a message, for the width of the type.
macro_rules! each_width {
    ($width:expr, $word:ident => $work:expr) => {
        match $width {
            1 => {
                type $word = i8;
                $work
            }
            2 => {
                type $word = i16;
                $work
            }
            4 => {
                type $word = i32;
                $work
            }
            _ => {
                type $word = i64;
                $work
            }
        }
    };
}

/// The message less what the messages before predict, in wrapping arithmetic. `before` has the last
/// one first. Bytes after the last whole value are left as they are.
pub(super) fn subtract(values: Values, message: &[u8], before: &[&[u8]], out: &mut Vec<u8>) {
    combine(values, message, before, out, false);
}

/// The inverse of [`subtract`].
pub(super) fn add(values: Values, rest: &[u8], before: &[&[u8]], out: &mut Vec<u8>) {
    combine(values, rest, before, out, true);
}

/// Bits of a float become an integer in the order of the values by turning those of negative ones
/// round; so does the way back.
fn combine(values: Values, source: &[u8], before: &[&[u8]], out: &mut Vec<u8>, is_sum: bool) {
    let ordered = values.is_float();
    out.clear();
    out.extend_from_slice(source);
    each_width!(values.width(), Word => {
        const BYTES: usize = size_of::<Word>();
        let word = |bytes: &[u8], at: usize| {
            let bits = bytes[at..at + BYTES].try_into().map_or(0, Word::from_le_bytes);
            if ordered && bits < 0 { bits ^ Word::MAX } else { bits }
        };
        for at in (0..source.len() / BYTES).map(|index| index * BYTES) {
            let seen = |index: usize| word(before[index], at);
            let expected = match before.len() {
                0 => 0,
                1 => seen(0),
                2 => seen(0).wrapping_mul(2).wrapping_sub(seen(1)),
                _ => {
                    let slope = seen(0).wrapping_sub(seen(1)).wrapping_mul(3);
                    slope.wrapping_add(seen(2))
                }
            };
            let value = if is_sum {
                let bits = source[at..at + BYTES].try_into().map_or(0, Word::from_le_bytes);
                let sum = bits.wrapping_add(expected);
                if ordered && sum < 0 { sum ^ Word::MAX } else { sum }
            } else {
                word(source, at).wrapping_sub(expected)
            };
            out[at..at + BYTES].copy_from_slice(&value.to_le_bytes());
        }
    });
}

/// The values of a message of floats as whole steps; `None` when one is not finite or too large.
pub(super) fn steps(values: Values, message: &[u8], step: f64) -> Option<Vec<i64>> {
    let inverse = 1.0 / step;
    let mut all = Vec::with_capacity(message.len() / values.width());
    for value in floats(values, message) {
        let steps = (value * inverse).round();
        if !steps.is_finite() || steps.abs() > 2f64.powi(51) {
            return None;
        }
        all.push(steps as i64);
    }
    Some(all)
}

/// The largest finite value less the smallest.
pub(super) fn range(values: Values, message: &[u8]) -> f64 {
    let (least, most) = floats(values, message)
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
    (most - least).max(0.0)
}

fn floats(values: Values, message: &[u8]) -> impl Iterator<Item = f64> {
    let width = values.width();
    message.chunks_exact(width).map(move |bytes| match width {
        4 => f64::from(bytes.try_into().map_or(0.0, f32::from_le_bytes)),
        _ => bytes.try_into().map_or(0.0, f64::from_le_bytes),
    })
}
