//! One suite of small checks that every tier passes.
//!
//! A new tier is one line in a test file:
//!
//! ```text
//! unspool_testkit::conformance!(my_tier, |capacity| Fixture::new(MyTier::new(capacity)));
//! ```
//!
//! which makes a module `my_tier` with one test per check. Each check gets a tier of its own.

mod accounting;
mod concurrency;
mod errors;
mod model;
mod roundtrip;

use std::any::Any;
use std::sync::Arc;

use unspool_core::CheckpointId;
use unspool_tiers::{Tier, TierError};

use crate::pattern::{Pattern, first_difference};

/// Bytes that the tier of a check must be able to hold, unless the check asks for less.
pub const CAPACITY: u64 = 256 << 20;
/// In an arena, frame `n` of a check begins at `n` times this; no frame but the last is longer.
const STRIDE: u64 = 1 << 20;

/// A fresh tier, with resources that have to live as long (a scratch directory).
#[derive(Debug)]
pub struct Fixture {
    tier: Arc<dyn Tier>,
    // Dropped after the tier.
    _keep: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A tier without other resources.
    #[must_use]
    pub fn new(tier: impl Tier + 'static) -> Fixture {
        Fixture::with(tier, ())
    }

    /// A tier with its resources.
    #[must_use]
    pub fn with(tier: impl Tier + 'static, keep: impl Any + Send + Sync) -> Fixture {
        Fixture { tier: Arc::new(tier), _keep: Box::new(keep) }
    }

    /// The same fixture with its tier wrapped.
    #[must_use]
    pub fn wrapped<T: Tier + 'static>(self, wrap: impl FnOnce(Arc<dyn Tier>) -> T) -> Fixture {
        Fixture { tier: Arc::new(wrap(self.tier)), _keep: self._keep }
    }

    /// The tier.
    #[must_use]
    pub fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Stores `bytes` as frame `n`, in one part.
    fn put(&self, n: u64, bytes: &[u8]) -> Result<(), TierError> {
        self.tier.put(CheckpointId(n), n * STRIDE, &[bytes])
    }

    /// Stores `len` bytes of the pattern `n` as frame `n`.
    fn put_pattern(&self, n: u64, len: usize) -> Result<(), TierError> {
        self.put(n, &Pattern(n).bytes(0, len))
    }

    /// `len` bytes of frame `n`, from byte `skip` on.
    fn get(&self, n: u64, skip: u64, len: usize) -> Result<Vec<u8>, TierError> {
        // Not zero, so that bytes that were never written are visible.
        let mut bytes = vec![0xA5; len];
        self.tier.get(CheckpointId(n), skip, &mut [&mut bytes]).map(|()| bytes)
    }

    fn delete(&self, n: u64) -> Result<(), TierError> {
        self.tier.delete(CheckpointId(n))
    }

    /// The ids and lengths of all frames.
    fn list(&self) -> Vec<(u64, u64)> {
        let stored = self.tier.list();
        let stored = stored.unwrap_or_else(|error| panic!("list: {error}"));
        stored.iter().map(|stored| (stored.id.0, stored.bytes)).collect()
    }

    #[track_caller]
    fn assert_holds(&self, n: u64, len: usize) {
        self.assert_bytes(n, 0, &Pattern(n).bytes(0, len));
    }

    #[track_caller]
    fn assert_bytes(&self, n: u64, skip: u64, expected: &[u8]) {
        let bytes = done(self.get(n, skip, expected.len()));
        let place = first_difference(&bytes, expected);
        assert_eq!(place, None, "frame {n} from byte {skip} on differs there");
    }
}

/// The result of a call, or a panic with its error text.
#[track_caller]
fn done<T>(answer: Result<T, TierError>) -> T {
    match answer {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// The error of a call that must fail; panics when it succeeds.
#[track_caller]
fn refused<T>(answer: Result<T, TierError>) -> TierError {
    match answer {
        Ok(_) => panic!("it was done and should have been refused"),
        Err(error) => error,
    }
}

/// Splits `bytes` at each of `places`, which are in ascending order.
fn split<'a>(mut bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    let mut before = 0;
    for &place in places {
        let (head, tail) = bytes.split_at(place - before);
        parts.push(head);
        (bytes, before) = (tail, place);
    }
    parts.push(bytes);
    parts
}

/// As [`split`], for reading.
fn split_mut<'a>(mut bytes: &'a mut [u8], places: &[usize]) -> Vec<&'a mut [u8]> {
    let mut parts = Vec::new();
    let mut before = 0;
    for &place in places {
        let (head, tail) = bytes.split_at_mut(place - before);
        parts.push(head);
        (bytes, before) = (tail, place);
    }
    parts.push(bytes);
    parts
}

macro_rules! checks {
    // `$d` is a dollar sign, for the macro that this one makes.
    ($d:tt $($module:ident, $capacity:expr, [$($check:ident,)+];)+) => {
        /// Every check of the suite: its name, the required capacity of the tier, and its function.
        const CHECKS: &[(&str, u64, fn(&Fixture))] = &[
            $($((stringify!($check), $capacity, $module::$check),)+)+
        ];

        /// One test for every check of the suite, in a module of this name:
        /// `conformance!(name, fixture)`, where `fixture` makes a
        /// [`Fixture`]($crate::conformance::Fixture) whose tier has the capacity that it is given.
        #[macro_export]
        macro_rules! conformance {
            ($d name:ident, $d fixture:expr) => {
                mod $d name {
                    use super::*;

                    fn fixture(capacity: u64) -> $d crate::conformance::Fixture {
                        ($d fixture)(capacity)
                    }

                    $($(
                        #[test]
                        fn $check() {
                            $d crate::conformance::run(stringify!($check), fixture);
                        }
                    )+)+
                }
            };
        }
    };
}

checks! { $
    roundtrip, CAPACITY, [
        a_frame_of_several_parts_is_read_back_whole,
        a_frame_may_be_cut_anywhere_for_writing_and_for_reading,
        a_read_may_skip_the_beginning,
        a_frame_without_bytes_is_a_frame,
        parts_without_bytes_change_nothing,
        buffers_may_lie_at_any_address,
        a_frame_may_be_read_again_and_again,
        neighbours_do_not_touch_each_other,
        a_frame_of_more_than_64_mib_is_read_back,
    ];
    errors, CAPACITY, [
        reading_what_is_not_there_is_missing,
        deleting_what_is_not_there_is_missing,
        an_id_has_one_frame,
        a_read_beyond_the_end_is_refused,
        a_deleted_frame_is_gone,
        an_id_may_come_back_with_another_frame,
        errors_say_what_was_tried_where_and_why,
    ];
    accounting, accounting::FRAMES * accounting::FRAME, [
        frames_are_listed_in_order_of_id,
        what_is_used_grows_and_shrinks_with_the_frames,
        a_full_tier_has_no_space_until_a_frame_is_deleted,
        a_refused_frame_leaves_nothing_behind,
        room_is_used_again_for_ever,
        frames_of_other_lengths_follow_each_other_in_the_same_room,
        a_sync_changes_nothing_that_can_be_seen,
        a_tier_describes_itself,
    ];
    concurrency, CAPACITY, [
        threads_put_get_and_delete_at_once,
        one_frame_is_read_by_many_at_once,
        a_list_holds_whole_frames_only,
        syncs_run_beside_everything_else,
    ];
    model, CAPACITY, [
        random_calls_agree_with_a_map,
    ];
}

/// Runs one check on a fresh tier.
///
/// # Panics
/// When the tier fails the check, and when no check has that name.
pub fn run(check: &str, fixture: fn(u64) -> Fixture) {
    let found = CHECKS.iter().find(|(name, ..)| *name == check);
    let Some((_, capacity, body)) = found else { panic!("there is no check {check:?}") };
    body(&fixture(*capacity));
}

/// Runs every check, each on a fresh tier.
///
/// # Panics
/// When the tier fails a check.
pub fn run_all(fixture: fn(u64) -> Fixture) {
    for (_, capacity, body) in CHECKS {
        body(&fixture(*capacity));
    }
}
