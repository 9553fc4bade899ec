//! Gather and scatter against the plain definition, on any view that slicing can make.

use proptest::prelude::*;

use super::{StridedWalk, gather, scatter};

/// An array as slicing and transposing make them: a view of a dense block of bytes.
#[derive(Clone, Debug)]
struct View {
    block: usize,
    first: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
    itemsize: usize,
}

/// One dimension of the dense block and how the view sees it.
#[derive(Clone, Debug)]
struct Cut {
    extent: usize,
    step: usize,
    reversed: bool,
}

fn view() -> impl Strategy<Value = View> {
    let cut = (0..7_usize, 1..4_usize, any::<bool>()).prop_map(|(extent, step, reversed)| Cut {
        extent,
        step,
        reversed,
    });
    let itemsize = prop_oneof![
        Just(1),
        Just(2),
        Just(3),
        Just(4),
        Just(8),
        Just(12),
        Just(16),
        Just(32_usize)
    ];
    (prop::collection::vec(cut, 0..6), itemsize).prop_flat_map(|(cuts, itemsize)| {
        let order: Vec<usize> = (0..cuts.len()).collect();
        Just(order).prop_shuffle().prop_map(move |order| build(&cuts, &order, itemsize))
    })
}

fn build(cuts: &[Cut], order: &[usize], itemsize: usize) -> View {
    let mut step = itemsize;
    let mut first = 0;
    let mut strides = vec![0_isize; cuts.len()];
    for (cut, stride) in cuts.iter().zip(strides.iter_mut()).rev() {
        *stride = (step * cut.step) as isize;
        if cut.reversed {
            first += step * cut.step * cut.extent.saturating_sub(1);
            *stride = -*stride;
        }
        step *= (cut.extent * cut.step).max(1);
    }
    View {
        block: step,
        first,
        shape: order.iter().map(|&i| cuts[i].extent).collect(),
        strides: order.iter().map(|&i| strides[i]).collect(),
        itemsize,
    }
}

impl View {
    fn walk(&self) -> StridedWalk {
        StridedWalk::new(&self.shape, &self.strides, self.itemsize)
    }

    /// Offsets of all elements in C order, by the plain definition.
    fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![self.first as isize];
        for (&extent, &stride) in self.shape.iter().zip(&self.strides) {
            offsets = offsets
                .iter()
                .flat_map(|at| (0..extent).map(move |i| at + stride * i as isize))
                .collect();
        }
        offsets.into_iter().map(|at| at as usize).collect()
    }
}

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

proptest! {
    #[test]
    fn gather_takes_the_elements_in_c_order(view in view()) {
        let block = noise(view.block);
        let walk = view.walk();
        let mut dense = vec![0; walk.bytes()];
        // SAFETY: `view` lies inside `block`.
        unsafe { gather(block.as_ptr().add(view.first.min(view.block)), &walk, &mut dense) };
        let expected: Vec<u8> = view
            .offsets()
            .iter()
            .flat_map(|&at| block[at..at + view.itemsize].to_vec())
            .collect();
        prop_assert_eq!(dense, expected);
    }

    #[test]
    fn scatter_writes_the_elements_and_nothing_else(view in view()) {
        let mut block = noise(view.block);
        let mut expected = block.clone();
        let walk = view.walk();
        let dense: Vec<u8> = (0..walk.bytes()).map(|i| !(i as u8)).collect();
        for (item, at) in dense.chunks(view.itemsize).zip(view.offsets()) {
            expected[at..at + view.itemsize].copy_from_slice(item);
        }
        // SAFETY: `view` lies inside `block`.
        unsafe { scatter(&dense, &walk, block.as_mut_ptr().add(view.first.min(view.block))) };
        prop_assert_eq!(block, expected);
    }

    #[test]
    fn a_view_made_by_slicing_never_overlaps_itself(view in view()) {
        prop_assert!(!view.walk().may_overlap());
    }

    #[test]
    fn the_span_is_the_lowest_and_the_highest_byte(view in view()) {
        let offsets = view.offsets();
        prop_assume!(!offsets.is_empty());
        let (low, high) = view.walk().span();
        let first = view.first as isize;
        prop_assert_eq!(first + low, *offsets.iter().min().unwrap() as isize);
        let end = *offsets.iter().max().unwrap() + view.itemsize;
        prop_assert_eq!(first + high, end as isize);
    }
}

#[test]
fn a_contiguous_array_is_one_run() {
    let walk = StridedWalk::new(&[3, 4, 5], &[160, 40, 8], 8);
    assert!(walk.is_contiguous());
    assert_eq!(walk.unit(), 480);
}

#[test]
fn the_inside_of_a_padded_array_is_one_run_a_row() {
    let walk = StridedWalk::new(&[3, 4, 5], &[800, 80, 8], 8);
    assert_eq!(walk.unit(), 40);
    assert_eq!(walk.dims().len(), 2);
}

#[test]
fn neighbouring_dimensions_that_are_evenly_spaced_are_one_loop() {
    let walk = StridedWalk::new(&[3, 4, 5], &[320, 80, 16], 8);
    assert_eq!(walk.unit(), 8);
    assert_eq!(walk.dims().len(), 1);
}

#[test]
fn broadcast_dimensions_overlap_and_are_gathered() {
    let walk = StridedWalk::new(&[3, 2], &[0, 1], 1);
    assert!(walk.may_overlap());
    let mut dense = [0; 6];
    // SAFETY: the array spans the two bytes of the literal.
    unsafe { gather(b"ab".as_ptr(), &walk, &mut dense) };
    assert_eq!(&dense, b"ababab");
}

#[test]
fn windows_that_slide_overlap() {
    assert!(StridedWalk::new(&[6, 3], &[8, 8], 8).may_overlap());
}

#[test]
fn an_empty_array_with_any_strides_has_nothing_to_copy() {
    let walk = StridedWalk::new(&[0, 4], &[isize::MAX, isize::MIN], 8);
    assert!(walk.is_contiguous() && !walk.may_overlap());
    assert_eq!(walk.bytes(), 0);
}

/// The first dimension of a block as the last one, and the other way round.
fn transposed(rows: usize, columns: usize, itemsize: usize) -> View {
    View {
        block: rows * columns * itemsize,
        first: 0,
        shape: vec![columns, rows],
        strides: vec![itemsize as isize, (itemsize * columns) as isize],
        itemsize,
    }
}

#[test]
fn large_transpositions_cross_tile_borders_unharmed() {
    for itemsize in [1, 2, 3, 4, 8, 16, 24] {
        for (rows, columns) in [(131, 203), (64, 128), (300, 2), (3, 700), (130, 65)] {
            let view = transposed(rows, columns, itemsize);
            let block = noise(view.block);
            let walk = view.walk();
            let mut dense = vec![0; block.len()];
            // SAFETY: the view covers exactly `block`.
            unsafe { gather(block.as_ptr(), &walk, &mut dense) };
            let items = view.offsets().into_iter().flat_map(|at| at..at + itemsize);
            assert!(items.map(|at| block[at]).eq(dense.iter().copied()), "{view:?}");
            let mut back = vec![0; block.len()];
            // SAFETY: the view covers exactly `back`.
            unsafe { scatter(&dense, &walk, back.as_mut_ptr()) };
            assert!(back == block, "{view:?}");
        }
    }
}
