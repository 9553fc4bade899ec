//! Restore orders that are learned: what an iteration of a loop restored announces the next one.
//!
//! A [`Learner`] sees the calls of an application before the core does, and says which hints go
//! into the core ahead of them. It records runs of saves and single restores. A restored
//! checkpoint is named by its age, the number of saves after its own, so that the order of an
//! iteration is a permutation of its saves: it holds for the next one whether that takes the same
//! versions again or goes on counting. Where a run of saves begins, the learner looks for the run
//! in the record that began most alike, and follows what came after it. The restores are announced
//! when as many checkpoints are saved as then.
//!
//! The first call that is another one than followed takes the hints back, all of them the
//! learner's own, and the record goes on: the next iteration follows this one. What is announced
//! in vain costs trust: fewer restores are announced ahead, down to none, until what the learner
//! follows in silence comes true again. An application that announces restores itself is left
//! alone until they are made.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::event::Event;
use crate::types::Version;

/// The most calls on record: half as many in one iteration are learned.
const RECORD: usize = 1 << 18;

/// The most restores that are announced ahead.
const AHEAD: usize = 1024;

/// The part of what is announced ahead that is made between two announcements.
const PIECES: usize = 8;

/// What hints that are taken back leave of the trust: a fourth.
const DOUBT: usize = 4;

/// The trust for each restore that was as the one followed.
const PROOF: usize = 2;

/// The runs of saves that are compared with one that begins, and the calls before them.
const COMPARED: usize = 64;

/// What the application did, in its order.
#[derive(Clone, Copy, Debug)]
enum Call {
    Saves(Saves),
    Restore(Restored),
}

/// Saves without a restore between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Saves {
    count: u64,
    /// The checkpoints that there were before the first one.
    alive: usize,
}

#[derive(Clone, Copy, Debug)]
struct Restored {
    /// The number of saves after that of the checkpoint.
    age: u64,
    version: Version,
    /// The checkpoint was restored before the last run of saves already: it is one that stays.
    stays: bool,
    /// The application discarded it after this restore.
    last: bool,
}

impl Call {
    /// Whether both are the same step of an iteration.
    fn is_like(&self, other: &Call) -> bool {
        match (self, other) {
            (Call::Saves(one), Call::Saves(other)) => one.count == other.count,
            (Call::Restore(one), Call::Restore(other)) => {
                one.age == other.age || one.version == other.version
            }
            _ => false,
        }
    }
}

/// A checkpoint that was saved and not discarded.
#[derive(Clone, Copy, Debug)]
struct Alive {
    /// The number of saves before it.
    number: u64,
    /// Its last restore: where in the record, and after how many runs of saves.
    restored: Option<(usize, u64)>,
}

/// A place in the record, and what was announced from there on. Places are never reused.
#[derive(Clone, Copy, Debug)]
struct Follow {
    /// The call that is expected next, or the run of saves that is under way.
    next: usize,
    /// Restores before this place were announced.
    announced: usize,
}

/// Learns restore orders, and announces them. See the module's documentation.
#[derive(Debug)]
pub struct Learner {
    record: Vec<Call>,
    /// The place of the first call on record; what is before it is forgotten.
    base: usize,
    /// Where the last runs of saves begin, and the last one that began with no checkpoint there.
    starts: VecDeque<usize>,
    fresh: Option<usize>,
    /// The run of saves that is under way; it is not on record yet.
    run: Option<Saves>,
    follow: Option<Follow>,
    /// The restores that are announced ahead, at most [`AHEAD`].
    trust: usize,
    /// The application announces restores itself.
    told: bool,
    alive: BTreeMap<Version, Alive>,
    /// The versions of those alive by the number of saves before them.
    by_number: BTreeMap<u64, Version>,
    /// All saves so far, and all runs of them.
    saves: u64,
    runs: u64,
}

impl Default for Learner {
    fn default() -> Learner {
        Learner {
            record: Vec::new(),
            base: 0,
            starts: VecDeque::new(),
            fresh: None,
            run: None,
            follow: None,
            trust: AHEAD,
            told: false,
            alive: BTreeMap::new(),
            by_number: BTreeMap::new(),
            saves: 0,
            runs: 0,
        }
    }
}

impl Learner {
    /// Takes in an event that is about to go into the core, where `hints` hints are left, and
    /// appends those that go in before it.
    pub fn before(&mut self, event: &Event, hints: usize, out: &mut Vec<Event>) {
        match *event {
            Event::Save { version, .. } => self.on_save(version, hints, out),
            Event::SaveInFlight { .. } | Event::Saved { .. } => self.announce(out),
            Event::Restore { version, .. } => self.on_restore(version, hints, out),
            Event::Recover { version, .. } => self.meet(version),
            Event::Discard { version } => self.on_discard(version),
            Event::Expect { .. } | Event::ExpectLast { .. } | Event::ExpectOnce { .. } => {
                self.depart(hints, out);
                self.told = true;
            }
            // What was announced is forgotten with the rest.
            Event::ForgetHints => self.follow = None,
            _ => {}
        }
    }

    fn on_save(&mut self, version: Version, hints: usize, out: &mut Vec<Event>) {
        if self.told && hints == 0 {
            self.told = false;
            self.forget();
        }
        // One that is there already is refused, or tried once more.
        if self.alive.contains_key(&version) {
            return;
        }
        if !self.told {
            self.count_save(hints, out);
        }
        self.meet(version);
    }

    fn count_save(&mut self, hints: usize, out: &mut Vec<Event>) {
        let Some(run) = &mut self.run else { return self.begin_run(hints, out) };
        run.count += 1;
        let count = run.count;
        if self.followed().is_some_and(|run| run.count < count) {
            self.depart(hints, out);
        }
    }

    fn begin_run(&mut self, hints: usize, out: &mut Vec<Event>) {
        self.runs += 1;
        let run = Saves { count: 1, alive: self.alive.len() };
        self.run = Some(run);
        if self.followed().is_none() {
            self.depart(hints, out);
            self.follow = self.most_alike(run).map(|next| Follow { next, announced: next });
        }
    }

    /// The run of saves that is followed.
    fn followed(&self) -> Option<Saves> {
        match self.call(self.follow?.next)? {
            Call::Saves(run) => Some(*run),
            Call::Restore(_) => None,
        }
    }

    /// The call at a place; `None` when it is forgotten or still to come.
    fn call(&self, place: usize) -> Option<&Call> {
        self.record.get(place.checked_sub(self.base)?)
    }

    fn end(&self) -> usize {
        self.base + self.record.len()
    }

    /// Where the run on record is that began most like `run`: with as many checkpoints there, then
    /// after the same calls, then the last one.
    fn most_alike(&self, run: Saves) -> Option<usize> {
        let starts = self.starts.iter().copied().chain(self.fresh);
        starts.filter(|start| *start >= self.base).max_by_key(|start| {
            let same = matches!(self.call(*start), Some(Call::Saves(at)) if at.alive == run.alive);
            let earlier = &self.record[..start - self.base];
            let before = earlier.iter().rev().zip(self.record.iter().rev());
            let alike = before.take(COMPARED).take_while(|(one, other)| one.is_like(other));
            (same, alike.count(), *start)
        })
    }

    fn on_restore(&mut self, version: Version, hints: usize, out: &mut Vec<Event>) {
        let Some(alive) = self.alive.get(&version).copied().filter(|_| !self.told) else { return };
        if let Some(run) = self.run.take() {
            self.starts.push_back(self.end());
            if self.starts.len() > COMPARED {
                self.starts.pop_front();
            }
            if run.alive == 0 {
                self.fresh = Some(self.end());
            }
            self.pass(Call::Saves(run), hints, out);
        }
        let age = self.saves - 1 - alive.number;
        let restored = alive.restored.filter(|(place, _)| *place >= self.base);
        let stays = restored.is_some_and(|(_, runs)| runs < self.runs);
        let call = Call::Restore(Restored { age, version, stays, last: false });
        self.pass(call, hints, out);
        let here = (self.end() - 1, self.runs);
        self.alive.insert(version, Alive { restored: Some(here), ..alive });
        self.announce(out);
    }

    /// A call was made: it is on record, and followed if it is the one that was expected.
    fn pass(&mut self, call: Call, hints: usize, out: &mut Vec<Event>) {
        if self.record.len() == RECORD {
            self.forget_half(hints, out);
        }
        let expected = self.follow.and_then(|follow| self.call(follow.next));
        let is_expected = expected.is_some_and(|expected| expected.is_like(&call));
        match &mut self.follow {
            Some(follow) if is_expected => {
                follow.next += 1;
                follow.announced = follow.announced.max(follow.next);
                let proof = if matches!(call, Call::Restore(_)) { PROOF } else { 0 };
                self.trust = AHEAD.min(self.trust + proof);
            }
            _ => self.depart(hints, out),
        }
        self.record.push(call);
    }

    fn on_discard(&mut self, version: Version) {
        let Some(gone) = self.alive.remove(&version) else { return };
        self.by_number.remove(&gone.number);
        if let Some((place, _)) = gone.restored
            && let Some(place) = place.checked_sub(self.base)
            && let Call::Restore(restored) = &mut self.record[place]
        {
            restored.last = true;
        }
    }

    /// A checkpoint is there from now on.
    fn meet(&mut self, version: Version) {
        if self.alive.contains_key(&version) {
            return;
        }
        self.alive.insert(version, Alive { number: self.saves, restored: None });
        self.by_number.insert(self.saves, version);
        self.saves += 1;
    }

    /// Takes back what was announced and was not restored.
    fn depart(&mut self, hints: usize, out: &mut Vec<Event>) {
        self.follow = None;
        // All hints that are left are the learner's own, or all are the application's.
        if hints > 0 && !self.told {
            out.push(Event::ForgetHints);
            self.trust /= DOUBT;
        }
    }

    /// Announces what comes next, once the saves that come before it are made.
    fn announce(&mut self, out: &mut Vec<Event>) {
        let Some(Follow { next, announced }) = self.follow else { return };
        let at = match (self.run, self.followed()) {
            (None, _) => next,
            (Some(run), Some(followed)) if run.count == followed.count => next + 1,
            _ => return,
        };
        if announced > at + self.trust - self.trust / PIECES {
            return;
        }
        let mut saves = self.saves;
        let end = self.end().min(at + self.trust);
        for place in at..end {
            let hint = match self.record[place - self.base] {
                Call::Saves(run) => {
                    saves += run.count;
                    None
                }
                _ if place < announced => None,
                Call::Restore(restored) => {
                    let Some(hint) = self.hint(restored, saves) else { break };
                    Some(hint)
                }
            };
            out.extend(hint);
            self.follow = Some(Follow { next, announced: announced.max(place + 1) });
        }
    }

    /// The hint for the checkpoint that is restored after `saves` saves as `restored` was; `None`
    /// while it is not there.
    fn hint(&self, restored: Restored, saves: u64) -> Option<Event> {
        let same = Some(restored.version).filter(|v| restored.stays && self.alive.contains_key(v));
        let number = saves.checked_sub(restored.age + 1);
        let version = same.or_else(|| self.by_number.get(&number?).copied())?;
        let plain = Event::Expect { version };
        Some(if restored.last { Event::ExpectLast { version } } else { plain })
    }

    /// Forgets the older half of the record.
    fn forget_half(&mut self, hints: usize, out: &mut Vec<Event>) {
        let half = RECORD / 2;
        self.record.drain(..half);
        self.base += half;
        if self.follow.is_some_and(|follow| follow.next < self.base) {
            self.depart(hints, out);
        }
    }

    /// Forgets the whole record.
    fn forget(&mut self) {
        self.base = self.end();
        self.record.clear();
        self.starts.clear();
        (self.fresh, self.run, self.follow) = (None, None, None);
    }
}

#[cfg(test)]
#[path = "learn_tests.rs"]
mod tests;
