//! The order in which the elements of a strided array are visited.

/// One loop of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dim {
    /// How many steps; at least 2.
    pub extent: usize,
    /// Bytes between two steps in the strided array; may be negative or zero.
    pub stride: isize,
    /// Bytes between two steps in the dense copy.
    pub dense: usize,
}

/// A strided array reduced to as few loops as possible around contiguous runs.
///
/// Neighbouring dimensions that lie in memory as one are merged, and an innermost dimension
/// without gaps becomes part of the run: the C-contiguous array of any shape is one run and no
/// loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StridedWalk {
    /// Bytes of one contiguous run.
    unit: usize,
    /// The loops around the runs, outermost first, in C order.
    dims: Vec<Dim>,
    /// Bytes of all elements.
    bytes: usize,
}

impl StridedWalk {
    /// The walk over an array of `shape` whose `strides` are in bytes.
    ///
    /// `shape` and `strides` have the same length, and the bytes of all elements fit an `isize`:
    /// whoever takes arrays in has checked that.
    pub fn new(shape: &[usize], strides: &[isize], itemsize: usize) -> StridedWalk {
        debug_assert_eq!(shape.len(), strides.len());
        let bytes = shape.iter().product::<usize>() * itemsize;
        if bytes == 0 {
            return StridedWalk { unit: 0, dims: Vec::new(), bytes: 0 };
        }
        let mut dims: Vec<Dim> = Vec::with_capacity(shape.len());
        for (&extent, &stride) in shape.iter().zip(strides).filter(|(extent, _)| **extent != 1) {
            push_merged(&mut dims, Dim { extent, stride, dense: 0 });
        }
        let unit = absorb_run(&mut dims, itemsize);
        number_dense(&mut dims, unit);
        StridedWalk { unit, dims, bytes }
    }

    /// Bytes of all elements together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of one contiguous run.
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The loops around the runs, outermost first.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Whether the array is one run: dense in C order, or empty.
    #[cfg(test)]
    pub fn is_contiguous(&self) -> bool {
        self.dims.is_empty()
    }

    /// The bytes that the array spans, relative to its first element: `[low, high)`.
    pub fn span(&self) -> (isize, isize) {
        let (mut low, mut high) = (0, self.unit as isize);
        for dim in &self.dims {
            let reach = dim.stride * (dim.extent as isize - 1);
            low += reach.min(0);
            high += reach.max(0);
        }
        (low, high)
    }

    /// Whether two elements may share memory.
    ///
    /// `false` is certain. `true` is certain for broadcast dimensions and for everything that
    /// slicing and transposing can make; hand-made strides that interleave without touching are
    /// also called overlapping.
    pub fn may_overlap(&self) -> bool {
        let mut dims = self.dims.clone();
        dims.sort_unstable_by_key(|dim| dim.stride.unsigned_abs());
        let mut reach = self.unit;
        for dim in dims {
            let stride = dim.stride.unsigned_abs();
            if stride < reach {
                return true;
            }
            reach += stride * (dim.extent - 1);
        }
        false
    }
}

/// Adds an inner loop, as part of the one outside it when both are evenly spaced together.
fn push_merged(dims: &mut Vec<Dim>, inner: Dim) {
    match dims.last_mut() {
        Some(outer) if outer.stride == inner.stride.wrapping_mul(inner.extent as isize) => {
            outer.extent *= inner.extent;
            outer.stride = inner.stride;
        }
        _ => dims.push(inner),
    }
}

/// Takes the innermost loop away when it has no gaps; the bytes of a run.
fn absorb_run(dims: &mut Vec<Dim>, itemsize: usize) -> usize {
    match dims.last() {
        Some(inner) if inner.stride == itemsize as isize => {
            let unit = inner.extent * itemsize;
            dims.pop();
            unit
        }
        _ => itemsize,
    }
}

fn number_dense(dims: &mut [Dim], unit: usize) {
    let mut step = unit;
    for dim in dims.iter_mut().rev() {
        dim.dense = step;
        step *= dim.extent;
    }
}
