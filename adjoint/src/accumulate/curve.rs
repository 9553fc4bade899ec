//! The time of a codec by the size of its input.

use alloc::vec::Vec;

use super::Mistake;
use unspool_core::Nanos;

/// The input of the second point of a straight line, far beyond that of any call.
const FAR: u64 = 1 << 40;

/// A piecewise linear function from bytes to time.
///
/// Below its first point it has the time of that point, for small calls are all fixed cost; above
/// its last one it goes on as between the last two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Bytes and nanoseconds, by ascending bytes; at least one.
    points: Vec<(u64, u64)>,
}

impl Curve {
    /// `fixed + bytes / bytes_per_second`.
    ///
    /// # Errors
    /// [`Mistake::Curve`]: the rate is not a positive number, or below one byte a second.
    pub fn linear(fixed: Nanos, bytes_per_second: f64) -> Result<Curve, Mistake> {
        let slope = FAR as f64 / bytes_per_second * 1e9;
        if !(bytes_per_second >= 1.0 && slope < FAR as f64 * 1e9 && fixed.0 < FAR) {
            return Err(Mistake::Curve);
        }
        Ok(Curve { points: [(0, fixed.0), (FAR, fixed.0 + (slope + 0.5) as u64)].into() })
    }

    /// The curve through measured points: bytes, and the time of a call with so many.
    ///
    /// # Errors
    /// [`Mistake::Curve`]: there are no points, they are not by ascending bytes, or a time is above
    /// 18 minutes.
    pub fn through(points: &[(u64, Nanos)]) -> Result<Curve, Mistake> {
        let ascending = points.is_sorted_by(|one, next| one.0 < next.0);
        let sane = points.iter().all(|&(bytes, time)| bytes < FAR && time.0 < FAR);
        if points.is_empty() || !ascending || !sane {
            return Err(Mistake::Curve);
        }
        Ok(Curve { points: points.iter().map(|&(bytes, time)| (bytes, time.0)).collect() })
    }

    /// The time of a call with so many bytes.
    #[must_use]
    pub fn time(&self, bytes: u64) -> Nanos {
        let above = self.points.partition_point(|&(at, _)| at < bytes);
        let last = self.points.len() - 1;
        if above == 0 || last == 0 {
            return Nanos(self.points[above.min(last)].1);
        }
        let to = above.min(last);
        let ((x0, y0), (x1, y1)) = (self.points[to - 1], self.points[to]);
        let (run, rise) = (i128::from(x1 - x0), i128::from(y1) - i128::from(y0));
        // Noise must not make the line fall beyond what was measured.
        let rise = if bytes > x1 { rise.max(0) } else { rise };
        let exact = i128::from(y0) * run + rise * i128::from(bytes - x0);
        let base = if bytes > x1 && rise == 0 { i128::from(y1) * run } else { exact };
        Nanos(u64::try_from((base + run / 2) / run).unwrap_or(0))
    }
}
