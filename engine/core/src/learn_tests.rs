//! Loops of applications in front of a learner, and what it announces to them.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::event::Size;
use crate::types::RequestId;

/// An application, its learner, and the restore order queue of the core in a few lines.
#[derive(Default)]
struct Loop {
    learner: Learner,
    queue: Vec<(Version, bool)>,
    forgotten: usize,
    alive: Vec<i64>,
}

impl Loop {
    fn feed(&mut self, event: Event) {
        let mut hints = Vec::new();
        self.learner.before(&event, self.queue.len(), &mut hints);
        for hint in hints.into_iter().chain([event]) {
            self.take(hint);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Expect { version } => self.queue.push((version, false)),
            Event::ExpectLast { version } => self.queue.push((version, true)),
            Event::ForgetHints => {
                self.forgotten += 1;
                self.queue.clear();
            }
            Event::Restore { version, .. } => {
                let place = self.queue.iter().position(|(hinted, _)| *hinted == version);
                place.map(|place| self.queue.remove(place));
            }
            _ => {}
        }
    }

    fn save(&mut self, version: i64) {
        let request = RequestId(0);
        let version = Version(version);
        self.alive.push(version.0);
        self.feed(Event::Save { request, version, bytes: 1, size: Size::Exact });
        self.feed(Event::Saved { request, kept: None });
    }

    fn restore(&mut self, version: i64) {
        self.feed(Event::Restore { request: RequestId(0), version: Version(version) });
    }

    fn discard(&mut self, version: i64) {
        self.alive.retain(|alive| *alive != version);
        self.feed(Event::Discard { version: Version(version) });
    }

    fn announced(&self) -> Vec<i64> {
        self.queue.iter().map(|(version, _)| version.0).collect()
    }

    /// One iteration: saves, restores, discards. Returns what was announced in between.
    fn iterate(&mut self, first: i64, saves: i64, order: &[i64], ends: Ends) -> Vec<i64> {
        (first..first + saves).for_each(|version| self.save(version));
        let announced = self.announced();
        for place in order {
            self.restore(first + place);
            if ends == Ends::Each {
                self.discard(first + place);
            }
        }
        if ends != Ends::Never {
            (first..first + saves).for_each(|version| self.discard(version));
        }
        announced
    }
}

/// When an iteration discards what it has saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Each,
    Together,
    Never,
}

fn versions(first: i64, order: &[i64]) -> Vec<i64> {
    order.iter().map(|place| first + place).collect()
}

/// A restore order and a number of saves, not all of which it needs.
fn any_iteration() -> impl Strategy<Value = (i64, Vec<i64>)> {
    (1i64..40).prop_flat_map(|saves| {
        let all: Vec<i64> = (0..saves).collect();
        let order = Just(all).prop_shuffle();
        (Just(saves), (order, 1..=saves as usize).prop_map(|(order, n)| order[..n].to_vec()))
    })
}

fn any_end() -> impl Strategy<Value = Ends> {
    prop::sample::select(vec![Ends::Each, Ends::Together, Ends::Never])
}

proptest! {
    #[test]
    fn a_loop_is_announced_from_its_second_iteration(
        (saves, order) in any_iteration(), ends in any_end(), step in 0i64..3,
    ) {
        let step = if ends == Ends::Never { 100 } else { step * 50 };
        let mut program = Loop::default();
        for turn in 0..6 {
            let first = turn * step;
            let announced = program.iterate(first, saves, &order, ends);
            let right = if turn == 0 { vec![] } else { versions(first, &order) };
            prop_assert_eq!(announced, right, "iteration {}", turn);
            prop_assert!(program.queue.is_empty());
        }
        prop_assert_eq!(program.forgotten, 0);
    }

    #[test]
    fn a_loop_that_changes_is_learned_anew(
        (saves, order) in any_iteration(), (others, other) in any_iteration(), ends in any_end(),
    ) {
        let mut program = Loop::default();
        let mut first = 0;
        for (count, order) in [(saves, &order), (others, &other)] {
            for turn in 0..5 {
                let announced = program.iterate(first, count, order, ends);
                if turn > 2 {
                    prop_assert_eq!(announced, versions(first, order), "iteration {}", turn);
                }
                first += count;
            }
        }
    }

    #[test]
    fn whatever_is_announced_is_there_and_an_application_that_announces_is_left_alone(
        calls in prop::collection::vec((0u8..12, 0i64..12), 0..400),
    ) {
        let mut program = Loop::default();
        let mut own: Vec<i64> = Vec::new();
        for (kind, version) in calls {
            let before = program.announced();
            match kind {
                0..5 if !program.alive.contains(&version) => program.save(version),
                5..9 => {
                    program.restore(version);
                    own.iter().position(|hint| *hint == version).map(|place| own.remove(place));
                }
                9 => program.discard(version),
                10 if version < 2 => {
                    program.feed(Event::Expect { version: Version(version) });
                    own.push(version);
                    prop_assert_eq!(program.announced(), own.clone());
                }
                11 if version < 2 => {
                    program.feed(Event::ForgetHints);
                    own.clear();
                }
                _ => continue,
            }
            let hints = program.announced();
            prop_assert!(own.is_empty() || hints == own);
            for hint in hints.iter().filter(|hint| own.is_empty() && !before.contains(hint)) {
                prop_assert!(program.alive.contains(hint));
            }
            prop_assert!(hints.len() <= AHEAD);
        }
    }
}

#[test]
fn the_first_restore_in_another_order_takes_the_hints_back() {
    let mut program = Loop::default();
    let backwards: Vec<i64> = (0..10).rev().collect();
    program.iterate(0, 10, &backwards, Ends::Each);
    (0..10).for_each(|version| program.save(version));
    assert_eq!(program.announced(), backwards);
    program.restore(9);
    program.restore(4);
    assert_eq!((program.announced(), program.forgotten), (vec![], 1));
}

#[test]
fn one_save_more_takes_the_hints_back_and_the_next_iteration_has_it() {
    let mut program = Loop::default();
    program.iterate(0, 3, &[2, 1, 0], Ends::Each);
    (0..3).for_each(|version| program.save(version));
    assert_eq!(program.announced(), [2, 1, 0]);
    program.save(3);
    assert_eq!((program.announced(), program.forgotten), (vec![], 1));
    for version in (0..4).rev() {
        program.restore(version);
        program.discard(version);
    }
    assert_eq!(program.iterate(0, 4, &[3, 2, 1, 0], Ends::Each), [3, 2, 1, 0]);
}

#[test]
fn a_restore_is_announced_as_the_last_one_where_a_discard_followed_it() {
    let mut program = Loop::default();
    for _ in 0..2 {
        (0..3).for_each(|version| program.save(version));
        if !program.queue.is_empty() {
            break;
        }
        for version in [2, 1, 2, 0] {
            program.restore(version);
        }
        (1..3).for_each(|version| program.discard(version));
        program.discard(0);
    }
    let lasts: Vec<bool> = program.queue.iter().map(|(_, last)| *last).collect();
    assert_eq!((program.announced(), lasts), (vec![2, 1, 2, 0], vec![false, true, true, true]));
}

#[test]
fn a_checkpoint_that_stays_is_announced_by_its_name() {
    let mut program = Loop::default();
    program.save(-1);
    let iterate = |program: &mut Loop, first: i64| {
        (first..first + 4).for_each(|version| program.save(version));
        let announced = program.announced();
        for version in [-1, first + 3, first + 1] {
            program.restore(version);
        }
        (first..first + 4).for_each(|version| program.discard(version));
        announced
    };
    for turn in 0..2 {
        iterate(&mut program, turn * 10);
    }
    assert_eq!(iterate(&mut program, 20), [-1, 23, 21]);
    assert_eq!(iterate(&mut program, 30), [-1, 33, 31]);
}

#[test]
fn saves_between_restores_belong_to_the_iteration() {
    let iterate = |program: &mut Loop, first: i64| {
        (0..6).for_each(|n| program.save(first + n));
        let announced = program.announced();
        for n in [5, 4] {
            program.restore(first + n);
            program.discard(first + n);
        }
        (6..9).for_each(|n| program.save(first + n));
        for n in [8, 7, 6, 3, 2, 1, 0] {
            program.restore(first + n);
            program.discard(first + n);
        }
        announced
    };
    let mut program = Loop::default();
    assert_eq!(iterate(&mut program, 0), []);
    // As far as the checkpoint that is still to be saved.
    assert_eq!(iterate(&mut program, 0), [5, 4]);
    assert_eq!(iterate(&mut program, 100), [105, 104]);
    assert_eq!(program.forgotten, 0);
}

#[test]
fn a_long_iteration_is_announced_in_pieces() {
    let mut program = Loop::default();
    let saves = 3 * AHEAD as i64;
    let backwards: Vec<i64> = (0..saves).rev().collect();
    program.iterate(0, saves, &backwards, Ends::Each);
    (0..saves).for_each(|version| program.save(version));
    for version in backwards {
        assert_eq!(program.announced().first(), Some(&version));
        program.restore(version);
        program.discard(version);
        let enough = AHEAD - AHEAD / PIECES - 1;
        assert!(program.queue.len() >= enough.min(usize::try_from(version).unwrap()));
        assert!(program.queue.len() <= AHEAD);
    }
}

#[test]
fn the_record_is_bounded_and_a_loop_goes_on_being_announced() {
    let mut program = Loop::default();
    let backwards: Vec<i64> = (0..5000).rev().collect();
    for turn in 0..120 {
        let announced = program.iterate(0, 5000, &backwards, Ends::Each);
        assert_eq!(announced.len(), if turn == 0 { 0 } else { AHEAD }, "iteration {turn}");
        assert!(program.learner.record.len() <= RECORD);
    }
}

#[test]
fn when_the_restores_that_were_announced_are_made_it_learns_again() {
    let mut program = Loop::default();
    (0..3).for_each(|version| program.save(version));
    program.feed(Event::Expect { version: Version(2) });
    for version in [2, 1, 0] {
        program.restore(version);
        program.discard(version);
    }
    assert_eq!(program.iterate(0, 3, &[1, 2], Ends::Together), []);
    assert_eq!(program.iterate(0, 3, &[1, 2], Ends::Together), [1, 2]);
}

/// Iterations of ten, each in an order of its own; the restores announced before each.
fn fickle(program: &mut Loop, turns: core::ops::Range<i64>) -> Vec<usize> {
    let order = |turn: i64| -> Vec<i64> {
        let mut places: Vec<i64> = (0..10).collect();
        places.sort_by_key(|place| (((place + 1) * (turn + 3) * 2_654_435_761) >> 11) % 1009);
        places
    };
    turns.map(|turn| program.iterate(turn * 10, 10, &order(turn), Ends::Each).len()).collect()
}

#[test]
fn a_program_that_departs_again_and_again_is_left_alone() {
    let mut program = Loop::default();
    let announced = fickle(&mut program, 0..20);
    assert_eq!(announced[..3], [0, 10, 10]);
    assert!(announced[6..].iter().all(|&count| count <= 4), "{announced:?}");
    assert!(program.forgotten <= 10, "{}", program.forgotten);
}

#[test]
fn what_comes_true_in_silence_is_announced_again() {
    let mut program = Loop::default();
    fickle(&mut program, 0..20);
    let backwards: Vec<i64> = (0..10).rev().collect();
    for turn in 20..24 {
        program.iterate(turn * 10, 10, &backwards, Ends::Each);
    }
    assert_eq!(program.iterate(240, 10, &backwards, Ends::Each), versions(240, &backwards));
}

#[test]
fn between_announcements_of_the_application_nothing_is_recorded() {
    let mut program = Loop::default();
    (0..50).for_each(|version| program.save(version));
    for version in 0..40 {
        program.feed(Event::Expect { version: Version(version) });
        program.restore(version);
        program.save(100 + version);
    }
    assert_eq!((program.announced(), program.learner.record.len()), (vec![], 0));
}
