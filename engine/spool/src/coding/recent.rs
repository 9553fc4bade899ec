//! How many bytes a checkpoint will probably have once it is encoded: little more than the largest
//! of the last ones with the same regions and codecs.

use std::collections::VecDeque;

use unspool_codec::{RegionSpec, Spec};

use super::plan::EncodingPlan;

/// How many sizes of a layout count, and how many layouts are known.
const SIZES: usize = 8;
const LAYOUTS: usize = 8;

/// The sizes of the last encodings, by layout; the layout that was encoded last comes first.
#[derive(Debug, Default)]
pub(crate) struct RecentSizes(VecDeque<RecentLayout>);

/// Regions with their codecs, and the sizes of their last encodings in bytes.
#[derive(Debug)]
struct RecentLayout {
    regions: Vec<(RegionSpec, Spec)>,
    sizes: VecDeque<u64>,
}

impl RecentSizes {
    /// The bytes that the next encoding of `plan` asks room for, of at most `most`, where `gap` are
    /// free: a tenth more than the largest of the last ones, and a little for those of next to
    /// nothing. The gap itself if it is somewhat less, but not less than the largest. All of `most`
    /// while none is known, or where so much is free.
    pub(crate) fn expected(&self, plan: &EncodingPlan, most: u64, gap: u64) -> u64 {
        let Some(largest) = self.largest(plan).filter(|_| gap < most) else { return most };
        let expected = (largest + largest.div_ceil(10) + most / 64).min(most);
        if (largest..expected).contains(&gap) { gap } else { expected }
    }

    /// The largest of the last encodings of `plan`, if one is known.
    pub(crate) fn largest(&self, plan: &EncodingPlan) -> Option<u64> {
        let known = self.0.iter().find(|layout| layout.is_of(plan))?;
        known.sizes.iter().max().copied()
    }

    /// An encoding of `plan` has `bytes` bytes.
    pub(crate) fn learn(&mut self, plan: &EncodingPlan, bytes: u64) {
        let mut layout = self.take(plan).unwrap_or_else(|| RecentLayout::of(plan));
        layout.sizes.truncate(SIZES - 1);
        layout.sizes.push_front(bytes);
        self.0.truncate(LAYOUTS - 1);
        self.0.push_front(layout);
    }

    /// The encodings of `plan` have become larger than expected: nothing is known of them.
    pub(crate) fn forget(&mut self, plan: &EncodingPlan) {
        drop(self.take(plan));
    }

    fn take(&mut self, plan: &EncodingPlan) -> Option<RecentLayout> {
        let place = self.0.iter().position(|layout| layout.is_of(plan))?;
        self.0.remove(place)
    }
}

impl RecentLayout {
    fn of(plan: &EncodingPlan) -> RecentLayout {
        let regions = plan.regions.iter().map(|region| (region.spec.clone(), region.codec));
        RecentLayout { regions: regions.collect(), sizes: VecDeque::new() }
    }

    fn is_of(&self, plan: &EncodingPlan) -> bool {
        let planned = plan.regions.iter().map(|region| (&region.spec, region.codec));
        self.regions.iter().map(|(spec, codec)| (spec, *codec)).eq(planned)
    }
}
