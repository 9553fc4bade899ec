//! Arrays that are not dense and are encoded and decoded where they are. Pure.

use unspool_codec::twine::Layout;
use unspool_cuda::StridedLayout;

/// How far it is from a value to the next one, in values: along the three dimensions that predict
/// (x is the fastest), and along all outer ones as if they were one.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Steps {
    /// Along the last dimension.
    pub x: u64,
    /// Along the last but one.
    pub y: u64,
    /// Along the last but two, in chunks of three dimensions.
    pub z: u64,
    /// Along all others.
    pub rest: u64,
}

impl Steps {
    /// The steps of an array that Twine cuts into chunks of several dimensions: slices, transposed
    /// and Fortran arrays of two and three. `None` where they cannot be said: such an array needs
    /// a dense copy.
    pub(crate) fn of(layout: &Layout, strided: &StridedLayout) -> Option<Steps> {
        if layout.profile == 1 || layout.components != 1 || strided.bytes().ok()? == 0 {
            return None;
        }
        let mut dims = strided.shape.iter().copied().zip(strided.strides.iter().copied()).rev();
        let unit = layout.value_bytes() as u64;
        let mut inner = || {
            let (_, stride) = dims.next()?;
            let bytes = u64::try_from(stride).ok()?;
            (bytes > 0 && bytes.is_multiple_of(unit)).then_some(bytes / unit)
        };
        let (x, y) = (inner()?, inner()?);
        let z = if layout.profile == 3 { inner()? } else { 0 };
        let rest = outer(dims, unit)?;
        Some(Steps { x, y, z, rest })
    }

    /// Whether some values of a chunk are next to each other. Where none are, each is written by
    /// itself.
    #[must_use]
    pub fn have_neighbours(&self) -> bool {
        [self.x, self.y, self.z].contains(&1)
    }

    /// Those of a dense array.
    pub(crate) fn dense(layout: &Layout) -> Steps {
        let [nx, ny, nz] = [layout.nx, layout.ny, layout.nz].map(u64::from);
        let plane = nx * ny;
        let rest = [1, plane, plane * nz][layout.profile as usize - 1];
        Steps { x: 1, y: nx, z: plane, rest }
    }

    /// Bytes from the first value to the end of the last one; `None` if they are beyond counting.
    pub(crate) fn reach(&self, layout: &Layout) -> Option<u64> {
        let [nx, ny, nz] = [layout.nx, layout.ny, layout.nz].map(|n| u64::from(n).max(1));
        if layout.n == 0 {
            return Some(0);
        }
        let rest = layout.n / (nx * ny * nz);
        let all = [(nx, self.x), (ny, self.y), (nz, self.z), (rest, self.rest)];
        let last = all.iter().try_fold(0u64, |sum, &(n, step)| {
            sum.checked_add(n.checked_sub(1)?.checked_mul(step)?)
        })?;
        last.checked_add(1)?.checked_mul(layout.value_bytes() as u64)
    }
}

/// The step of dimensions that are one in memory, the innermost first.
fn outer(dims: impl Iterator<Item = (u64, i64)>, unit: u64) -> Option<u64> {
    let mut all: Option<(u64, u64)> = None;
    for (size, stride) in dims.filter(|&(size, _)| size > 1) {
        let stride = u64::try_from(stride).ok().filter(|&stride| stride > 0)?;
        all = match all {
            None => Some((stride, stride.checked_mul(size)?)),
            Some((first, end)) if end == stride => Some((first, end.checked_mul(size)?)),
            Some(_) => return None,
        };
    }
    let step = all.map_or(0, |(first, _)| first);
    step.is_multiple_of(unit).then_some(step / unit)
}

#[cfg(test)]
mod tests {
    use unspool_codec::Dtype;

    use super::*;

    /// The steps of a slice of an array of float32, whose strides are in values.
    fn steps(shape: &[u64], strides: &[i64]) -> Option<[u64; 4]> {
        let layout = Layout::of(&Dtype::Float32, shape).unwrap();
        let strides = strides.iter().map(|stride| 4 * stride).collect();
        let strided = StridedLayout { shape: shape.to_vec(), strides, itemsize: 4 };
        Steps::of(&layout, &strided).map(|Steps { x, y, z, rest }| [x, y, z, rest])
    }

    #[test]
    fn slices_and_transposed_arrays_of_two_and_three_dimensions_have_steps() {
        let interior = steps(&[60, 60, 60], &[4096, 64, 1]);
        assert_eq!(interior, Some([1, 64, 4096, 0]));
        assert_eq!(steps(&[50, 60, 70], &[1, 50, 3000]), Some([3000, 50, 1, 0]), "Fortran");
        assert_eq!(steps(&[60, 70], &[1, 60]), Some([60, 1, 0, 0]));
        assert_eq!(steps(&[60, 70], &[140, 2]), Some([2, 140, 0, 0]), "every second value");
        assert_eq!(
            steps(&[2, 3, 1, 60, 70], &[30_000, 10_000, 9, 70, 1]),
            Some([1, 70, 0, 10_000])
        );
    }

    #[test]
    fn what_steps_cannot_say_needs_a_dense_copy() {
        assert_eq!(steps(&[5000], &[2]), None, "one dimension");
        assert_eq!(steps(&[60, 70], &[-70, 1]), None, "reversed");
        assert_eq!(steps(&[60, 70], &[0, 1]), None, "broadcast");
        assert_eq!(steps(&[2, 3, 8, 60, 70], &[1, 2, 10_000, 70, 6]), None, "two outer dimensions");
    }

    #[test]
    fn the_reach_of_dense_steps_is_the_array() {
        for shape in [&[5000][..], &[60, 70], &[3, 60, 70], &[2, 9, 10, 33]] {
            let layout = Layout::of(&Dtype::Float32, shape).unwrap();
            assert_eq!(Steps::dense(&layout).reach(&layout), Some(layout.bytes()), "{shape:?}");
        }
    }
}
