//! When ranks ask each other whether a checkpoint is due, and what they answer.
//!
//! All ranks have to decide alike, and clocks differ. So rank 0's clock decides, and its word goes
//! to all by an exchange. An exchange costs time, so there are about one a second: with each one
//! rank 0 says after how many questions the next one is, which is when a checkpoint will be due if
//! that is sooner. Every question between two exchanges is answered without one. Most programs ask
//! once a step.
//!
//! No clock is read here: the time is an argument, in seconds since the run was opened.

use crate::interval::{Costs, Every, Rule};

/// The seconds between two exchanges, about.
const APART: f64 = 1.0;

/// The most steps between two exchanges: steps that become slower by far are noticed after so many.
const MOST_APART: u32 = 100;

/// The bytes of a beat.
const BEAT_BYTES: usize = 22;

/// What one rank says in an exchange.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Beat {
    /// It was asked to stop.
    pub stop: bool,
    /// A checkpoint is due by its clock.
    pub due: bool,
    /// The steps to the next exchange, as it would have them.
    pub next: u32,
    /// What checkpoints cost it.
    pub costs: Costs,
}

impl Beat {
    /// The beat as bytes of a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.stop), u8::from(self.due)];
        bytes.extend(self.next.to_le_bytes());
        bytes.extend(self.costs.blocked.to_le_bytes());
        bytes.extend(self.costs.commit.to_le_bytes());
        bytes
    }

    /// The beat in the bytes of a message; `None` when they are something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Beat> {
        let bytes: &[u8; BEAT_BYTES] = bytes.try_into().ok()?;
        let (flags, rest) = bytes.split_at(2);
        let (next, costs) = rest.split_at(4);
        let (blocked, commit) = costs.split_at(8);
        Some(Beat {
            stop: flags[0] == 1,
            due: flags[1] == 1,
            next: u32::from_le_bytes(next.try_into().ok()?),
            costs: Costs {
                blocked: f64::from_le_bytes(blocked.try_into().ok()?),
                commit: f64::from_le_bytes(commit.try_into().ok()?),
            },
        })
    }
}

/// What a step needs to know whether its checkpoint is due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Look {
    /// Nothing: this is the answer.
    Answer(bool),
    /// What all ranks say; this is what this one says.
    Exchange(Beat),
}

/// When a checkpoint is due.
#[derive(Clone, Debug)]
pub struct Pace {
    rule: Rule,
    /// Whether there is one rank: nobody has to be asked, so every step looks at the clock.
    alone: bool,
    /// Whether anything but the number of the step decides.
    watches: bool,
    /// A checkpoint is due and was not saved yet.
    due: bool,
    /// All ranks know that the run is to stop.
    stopping: bool,
    /// A step was asked about and is not saved: what came since the last checkpoint would be lost.
    unsaved: bool,
    /// The step of the last checkpoint.
    saved_step: u64,
    /// The time at the end of the last save.
    saved_at: f64,
    /// Steps until the next exchange.
    left: u32,
    /// Steps since the last exchange, and its time.
    since: u32,
    exchanged_at: f64,
    /// The steps that rank 0 said last.
    last_next: u32,
    /// What checkpoints cost the slowest rank.
    costs: Option<Costs>,
}

impl Pace {
    /// A pace that begins now. `stops`: whether the run can be asked to stop.
    #[must_use]
    pub fn new(rule: Rule, alone: bool, stops: bool) -> Pace {
        let by_time = matches!(rule.every, Every::Time(_) | Every::Auto);
        Pace {
            rule,
            alone,
            watches: by_time || stops,
            due: false,
            stopping: false,
            unsaved: false,
            saved_step: 0,
            saved_at: 0.0,
            left: 1,
            since: 0,
            exchanged_at: 0.0,
            last_next: 1,
            costs: None,
        }
    }

    /// Whether all ranks know that the run is to stop. `stop`: whether this one was asked to. One
    /// rank alone knows it by that, unless a step was asked about since the last checkpoint: the
    /// next one is due then, and says so.
    pub fn stopping(&mut self, stop: bool) -> bool {
        if stop && self.alone && !self.unsaved && !self.stopping {
            (self.stopping, self.due) = (true, true);
        }
        self.stopping
    }

    /// All ranks have told each other in a save that one of them was asked to stop.
    pub fn told_to_stop(&mut self) {
        self.stopping = true;
    }

    /// The seconds between the end of a save and the next one; `None` where time does not decide.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        self.rule.interval(self.costs)
    }

    /// Asks whether the checkpoint of `step` is due, at time `now`, on a rank that was asked to
    /// stop or not and whose checkpoints cost this. A step may be asked about again, on all ranks:
    /// a long one hears so that the run is to stop. What was due stays so until it is saved.
    pub fn look(&mut self, step: u64, now: f64, stop: bool, costs: Option<Costs>) -> Look {
        if let Every::Steps(every) = self.rule.every {
            let every = every.max(1);
            self.due |= step / every > self.saved_step / every;
        }
        self.unsaved = true;
        self.since = self.since.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        if !self.watches || self.left > 0 {
            return Look::Answer(self.due);
        }
        if self.alone {
            self.costs = costs;
        }
        let remaining = self.interval().map(|interval| self.saved_at + interval - now);
        let due = self.due || remaining.is_some_and(|seconds| seconds <= 0.0);
        let next = self.next_exchange(now, remaining.filter(|_| !due));
        Look::Exchange(Beat { stop, due, next, costs: costs.unwrap_or_default() })
    }

    /// The steps until the next exchange: about a second, less when a checkpoint is due sooner, and
    /// at most twice as many as before, as one slow step says little of those to come.
    fn next_exchange(&self, now: f64, remaining: Option<f64>) -> u32 {
        if self.alone {
            return 1;
        }
        let step = (now - self.exchanged_at).max(1e-9) / f64::from(self.since.max(1));
        let steps = remaining.map_or(APART, |seconds| seconds.min(APART)) / step;
        let most = self.last_next.saturating_mul(2).min(MOST_APART);
        // A float beyond the integers becomes the largest one.
        (steps as u32).clamp(1, most)
    }

    /// Hears what all ranks said, by rank, and answers.
    pub fn heard(&mut self, beats: &[Beat], now: f64) -> bool {
        let lead = beats.first().copied().unwrap_or_default();
        let stop = beats.iter().any(|beat| beat.stop);
        self.due |= lead.due || (stop && !self.stopping);
        self.stopping |= stop;
        (self.left, self.last_next) = (lead.next.max(1), lead.next.max(1));
        (self.since, self.exchanged_at) = (0, now);
        let costs = beats.iter().map(|beat| beat.costs).fold(Costs::default(), Costs::max);
        self.costs = (costs != Costs::default()).then_some(costs);
        self.due
    }

    /// The checkpoint of `step` was saved, or restored, at time `now`.
    pub fn saved(&mut self, step: u64, now: f64) {
        (self.saved_step, self.saved_at) = (step, now);
        (self.due, self.unsaved) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pace(every: Every, alone: bool) -> Pace {
        Pace::new(Rule::of(every, 1), alone, false)
    }

    /// Ranks whose steps take `step` seconds each until `end`; the steps that were due, and the
    /// number of exchanges. The clocks of ranks differ by far.
    fn run(every: Every, ranks: usize, step: f64, end: u64) -> (Vec<u64>, usize) {
        let mut paces = vec![pace(every, ranks == 1); ranks];
        let (mut due, mut exchanges) = (Vec::new(), 0);
        for number in 1..=end {
            let now = |rank: usize| number as f64 * step + 1000.0 * rank as f64;
            let looks: Vec<Look> = paces
                .iter_mut()
                .enumerate()
                .map(|(r, p)| p.look(number, now(r), false, None))
                .collect();
            let beats: Vec<Beat> = looks
                .iter()
                .filter_map(|look| match look {
                    Look::Exchange(beat) => Some(*beat),
                    Look::Answer(_) => None,
                })
                .collect();
            assert!(beats.is_empty() || beats.len() == ranks, "all ranks or none");
            exchanges += usize::from(!beats.is_empty());
            let answers: Vec<bool> = looks
                .iter()
                .zip(&mut paces)
                .enumerate()
                .map(|(rank, (look, pace))| match look {
                    Look::Answer(answer) => *answer,
                    Look::Exchange(_) => pace.heard(&beats, now(rank)),
                })
                .collect();
            assert!(answers.iter().all(|answer| *answer == answers[0]), "ranks decide alike");
            if answers[0] {
                due.push(number);
                paces.iter_mut().enumerate().for_each(|(r, p)| p.saved(number, now(r)));
            }
        }
        (due, exchanges)
    }

    #[test]
    fn steps_need_no_exchange() {
        assert_eq!(run(Every::Steps(4), 3, 0.1, 13), (vec![4, 8, 12], 0));
        assert_eq!(run(Every::Never, 3, 0.1, 13), (vec![], 0));
    }

    #[test]
    fn a_step_that_jumps_over_a_multiple_is_due() {
        let mut pace = pace(Every::Steps(10), true);
        let mut ask = |step| pace.look(step, 0.0, false, None);
        assert_eq!([ask(7), ask(14), ask(14)], [false, true, true].map(Look::Answer));
        pace.saved(14, 0.0);
        assert_eq!(pace.look(19, 0.0, false, None), Look::Answer(false));
        assert_eq!(pace.look(20, 0.0, false, None), Look::Answer(true));
    }

    #[test]
    fn a_step_that_is_asked_about_again_hears_that_the_run_is_to_stop() {
        let mut alone = Pace::new(Rule::of(Every::Steps(10), 1), true, true);
        let mut ask = |stop| match alone.look(7, 0.0, stop, None) {
            Look::Exchange(beat) => alone.heard(&[beat], 0.0),
            Look::Answer(answer) => answer,
        };
        assert_eq!([ask(false), ask(false), ask(true), ask(true)], [false, false, true, true]);
        assert!(alone.stopping(false));
        let mut one_of_two = Pace::new(Rule::of(Every::Never, 2), false, true);
        let asked = (0..3 * MOST_APART).any(|number| {
            let now = f64::from(number) * 1e-3;
            let look = one_of_two.look(7, now, true, None);
            let Look::Exchange(beat) = look else { return false };
            one_of_two.heard(&[Beat { stop: number > 1, ..beat }, beat], now)
        });
        assert!(asked && one_of_two.stopping(false));
    }

    #[test]
    fn ranks_exchange_about_once_a_second_and_when_a_checkpoint_is_due() {
        let (due, exchanges) = run(Every::Time(Duration::from_secs(60)), 4, 0.01, 20_000);
        assert!((3..=3).contains(&due.len()), "{due:?}");
        for (count, step) in due.iter().enumerate() {
            let wanted = 6000 * (count as u64 + 1);
            assert!(step.abs_diff(wanted) < 30 * (count as u64 + 1), "{due:?}");
        }
        assert!((200..300).contains(&exchanges), "{exchanges}");
    }

    #[test]
    fn one_rank_looks_at_every_step() {
        let (due, exchanges) = run(Every::Time(Duration::from_secs(5)), 1, 1.0, 20);
        assert_eq!((due, exchanges), (vec![5, 10, 15, 20], 20));
    }

    #[test]
    fn a_signal_on_any_rank_makes_one_checkpoint_due_on_all() {
        let mut pace = Pace::new(Rule::of(Every::Never, 2), false, true);
        assert!(matches!(pace.look(1, 0.0, false, None), Look::Exchange(Beat { stop: false, .. })));
        let signalled = Beat { stop: true, next: 9, ..Beat::default() };
        assert!(pace.heard(&[Beat { next: 1, ..Beat::default() }, signalled], 0.0));
        assert!(pace.stopping(false));
        pace.saved(1, 0.0);
        pace.look(2, 0.1, false, None);
        assert!(!pace.heard(&[Beat::default(), signalled], 0.1), "it is saved once");
        assert!(pace.stopping(false));
    }

    #[test]
    fn a_rank_alone_hears_of_a_stop_when_it_asks_unless_something_is_not_saved() {
        let mut alone = Pace::new(Rule::of(Every::Steps(10), 1), true, true);
        assert!(!alone.stopping(false));
        alone.look(7, 0.0, false, None);
        assert!(!alone.stopping(true), "step 7 would be lost");
        alone.saved(7, 0.0);
        assert!(alone.stopping(true) && alone.stopping(false));
        let Look::Exchange(beat) = alone.look(8, 0.0, true, None) else { panic!() };
        assert!(alone.heard(&[beat], 0.0), "one that goes on all the same saves once more");
        alone.saved(8, 0.0);
        let Look::Exchange(beat) = alone.look(9, 0.0, true, None) else { panic!() };
        assert!(!alone.heard(&[beat], 0.0));
        let mut several = Pace::new(Rule::of(Every::Steps(10), 2), false, true);
        assert!(!several.stopping(true));
        several.told_to_stop();
        assert!(several.stopping(false));
    }

    #[test]
    fn the_slowest_rank_sets_the_automatic_interval() {
        let mut pace = pace(Every::Auto, false);
        let beat = |blocked| Beat { costs: Costs { blocked, commit: 0.0 }, ..Beat::default() };
        let before = pace.interval().unwrap();
        pace.heard(&[beat(0.1), beat(40.0), beat(2.0)], 0.0);
        assert_eq!(pace.interval(), Rule::of(Every::Auto, 1).interval(Some(beat(40.0).costs)));
        assert!(pace.interval().unwrap() > before);
    }

    #[test]
    fn steps_that_become_slower_by_far_do_not_keep_ranks_from_talking() {
        let (_, exchanges) = run(Every::Time(Duration::from_secs(3600)), 2, 1e-6, 10_000);
        assert!((100..120).contains(&exchanges), "{exchanges}");
    }

    #[test]
    fn beats_come_back_from_a_message() {
        let costs = Costs { blocked: 0.25, commit: 3.5 };
        let beat = Beat { stop: true, due: false, next: 70_000, costs };
        assert_eq!(Beat::decode(&beat.encode()), Some(beat));
        assert_eq!(Beat::decode(&[0; 21]), None);
    }
}
