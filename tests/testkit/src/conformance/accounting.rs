//! Capacity, usage, and the behaviour of a full tier.

use unspool_core::{CheckpointId, Failure};

use super::{Fixture, done, refused};
use crate::pattern::Pattern;
use crate::random::Random;

/// Bytes of a frame of these checks, a multiple of every alignment.
pub(super) const FRAME: u64 = 64 << 10;
/// Number of such frames that the tier holds.
pub(super) const FRAMES: u64 = 8;

/// Stores frame `id` in the `place`th slot of an arena.
fn put(fixture: &Fixture, id: u64, place: u64, len: u64) -> Result<(), unspool_tiers::TierError> {
    let bytes = Pattern(id).bytes(0, len as usize);
    fixture.tier().put(CheckpointId(id), place * FRAME, &[&bytes])
}

pub(super) fn frames_are_listed_in_order_of_id(fixture: &Fixture) {
    assert_eq!(fixture.list(), []);
    for (place, id) in (0..).zip([5, u64::MAX, 0, 3]) {
        done(put(fixture, id, place, 100 + place));
    }
    assert_eq!(fixture.list(), [(0, 102), (3, 103), (5, 100), (u64::MAX, 101)]);
}

pub(super) fn what_is_used_grows_and_shrinks_with_the_frames(fixture: &Fixture) {
    let tier = fixture.tier();
    let alignment = tier.describe().alignment;
    assert_eq!(tier.describe().used, 0);
    let mut low = 0;
    let mut high = 0;
    for (n, len) in (0..).zip([1, FRAME, 5000, 0]) {
        done(put(fixture, n, n, len));
        low += len;
        high += len.next_multiple_of(alignment);
        let used = tier.describe().used;
        assert!((low..=high).contains(&used), "{used} is not in {low}..={high}");
    }
    (0..4).for_each(|n| done(fixture.delete(n)));
    assert_eq!(tier.describe().used, 0);
}

pub(super) fn a_full_tier_has_no_space_until_a_frame_is_deleted(fixture: &Fixture) {
    assert_eq!(fixture.tier().describe().capacity, FRAMES * FRAME);
    (0..FRAMES).for_each(|n| done(put(fixture, n, n, FRAME)));
    let error = refused(put(fixture, 100, FRAMES, FRAME));
    assert_eq!(error.kind(), Failure::NoSpace, "{error}");
    done(fixture.delete(3));
    done(put(fixture, 100, 3, FRAME));
    fixture.assert_holds(100, FRAME as usize);
    assert_eq!(refused(put(fixture, 101, FRAMES, 1)).kind(), Failure::NoSpace);
    assert_eq!(fixture.tier().describe().used, FRAMES * FRAME);
}

pub(super) fn a_refused_frame_leaves_nothing_behind(fixture: &Fixture) {
    done(put(fixture, 1, 0, FRAME));
    let before = (fixture.list(), fixture.tier().describe());
    assert_eq!(refused(put(fixture, 2, 1, FRAMES * FRAME)).kind(), Failure::NoSpace);
    assert_eq!((fixture.list(), fixture.tier().describe()), before);
    assert_eq!(refused(fixture.get(2, 0, 1)).kind(), Failure::Missing);
    done(put(fixture, 2, 1, FRAME));
    fixture.assert_holds(2, FRAME as usize);
}

pub(super) fn room_is_used_again_for_ever(fixture: &Fixture) {
    for id in 0..10 * FRAMES {
        if id >= FRAMES {
            fixture.assert_holds(id - FRAMES, FRAME as usize);
            done(fixture.delete(id - FRAMES));
        }
        done(put(fixture, id, id % FRAMES, FRAME));
    }
    let expected: Vec<_> = (9 * FRAMES..10 * FRAMES).map(|id| (id, FRAME)).collect();
    assert_eq!(fixture.list(), expected);
}

pub(super) fn frames_of_other_lengths_follow_each_other_in_the_same_room(fixture: &Fixture) {
    let mut random = Random::new(2);
    let mut held = std::collections::VecDeque::new();
    for id in 0..100 {
        if id >= FRAMES {
            let (old, len) = held.pop_front().unwrap_or_default();
            fixture.assert_holds(old, len);
            assert!(fixture.get(old, 0, len + 1).is_err());
            done(fixture.delete(old));
        }
        let len = [random.below(FRAME + 1), random.below(5000), FRAME][random.below(3) as usize];
        done(put(fixture, id, id % FRAMES, len));
        held.push_back((id, len as usize));
    }
    held.iter().for_each(|&(id, len)| fixture.assert_holds(id, len));
}

pub(super) fn a_sync_changes_nothing_that_can_be_seen(fixture: &Fixture) {
    let tier = fixture.tier();
    done(tier.sync());
    (0..4).for_each(|n| done(put(fixture, n, n, FRAME)));
    done(fixture.delete(1));
    let before = (fixture.list(), tier.describe());
    done(tier.sync());
    done(tier.sync());
    assert_eq!((fixture.list(), tier.describe()), before);
    done(put(fixture, 9, 1, 777));
    done(fixture.delete(0));
    done(tier.sync());
    assert_eq!(fixture.list(), [(2, FRAME), (3, FRAME), (9, 777)]);
    fixture.assert_holds(9, 777);
    fixture.assert_holds(2, FRAME as usize);
}

pub(super) fn a_tier_describes_itself(fixture: &Fixture) {
    let description = fixture.tier().describe();
    assert!(!description.location.is_empty());
    assert!(description.alignment.is_power_of_two());
    for note in &description.notes {
        assert!(note.ends_with('.'), "{note:?} is not a sentence");
    }
}
