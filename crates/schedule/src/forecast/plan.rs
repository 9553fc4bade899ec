//! A schedule, looked at as a whole before it runs: as the driver's dry run does.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::forecast::{ForecastError, Job, MAX_ACTIONS};
use crate::{Action, Counts, Interpreter, Limits, Schedule};
use unspool_core::TierKind;

/// What the application does, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    /// Forward steps.
    Advance { steps: u64 },
    /// One reverse step.
    Reverse,
    /// A save; whether all restores of the copy are followed by a reverse step, and the tier that
    /// the schedule has counted it to.
    Save { step: u64, for_reverse: bool, tier: Option<TierKind> },
    /// A restore; whether the copy is discarded before it is restored again.
    Restore { step: u64, last: bool },
    /// A copy is needed no more.
    Discard { step: u64 },
}

/// The whole of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    pub deeds: Vec<Deed>,
    /// The places of the restores among the deeds.
    pub restores: Vec<usize>,
    pub counts: Counts,
    /// The deed before which the restore order becomes known: the first one, or the end of the
    /// forward pass of a schedule that does not know its number of steps.
    pub known_from: usize,
    /// The copies at the moment when they take the most room: whole states, parts for a reverse.
    pub peak: [u64; 2],
}

/// A step of which there are copies.
struct Kept {
    /// Its save among the deeds.
    save: usize,
    /// In so many tiers of the schedule.
    copies: u32,
    /// Its last restore among the deeds.
    restore: Option<usize>,
}

#[derive(Default)]
struct Survey {
    deeds: Vec<Deed>,
    restores: Vec<usize>,
    kept: BTreeMap<u64, Kept>,
    /// The save whose copy was restored last, until it is known what for.
    restored: Option<usize>,
}

impl Plan {
    /// Checks and surveys a schedule.
    pub fn of(mut schedule: impl Schedule, job: &Job) -> Result<Plan, ForecastError> {
        let steps = schedule.steps().or(job.steps).ok_or(ForecastError::UnknownSteps)?;
        let mut interpreter = Interpreter::new(Limits::of(&schedule));
        let (mut survey, mut known_from) = (Survey::default(), 0);
        while let Some(action) = schedule.next() {
            let (action, ends) = stopped(action, steps, &mut schedule)?;
            interpreter.see(&action).map_err(ForecastError::Schedule)?;
            if survey.deeds.len() >= MAX_ACTIONS {
                return Err(ForecastError::TooLong { limit: MAX_ACTIONS });
            }
            survey.see(action);
            if ends {
                interpreter.stopped_at(steps).map_err(ForecastError::Schedule)?;
                known_from = survey.deeds.len();
                survey.save_whole();
            }
        }
        let counts = interpreter.finish().map_err(ForecastError::Schedule)?;
        debug_assert!(
            survey.kept.is_empty(),
            "the interpreter saw that nothing is kept at the end"
        );
        let peak = peak(&survey.deeds, job);
        let Survey { deeds, restores, .. } = survey;
        Ok(Plan { deeds, restores, counts, known_from, peak })
    }

    /// The bytes that the copies take at most when one of `bytes` takes `size_of(bytes)`.
    pub fn peak_bytes(&self, job: &Job, size_of: impl Fn(u64) -> u64) -> u64 {
        let [whole, parts] = self.peak;
        let bytes = |count: u64, bytes| count.saturating_mul(size_of(bytes));
        let [whole_bytes, part_bytes] = [job.state_bytes, job.reverse_bytes].map(|b| job.stored(b));
        bytes(whole, whole_bytes).saturating_add(bytes(parts, part_bytes))
    }
}

/// The action as the application carries it out, and whether the forward pass ends with it: a
/// schedule that does not know its number of steps is then told.
fn stopped(
    action: Action,
    steps: u64,
    schedule: &mut impl Schedule,
) -> Result<(Action, bool), ForecastError> {
    match action {
        Action::Forward { from, to } if schedule.steps().is_none() && to >= steps => {
            schedule.finish(steps).map_err(ForecastError::Steps)?;
            Ok((Action::Forward { from, to: steps }, true))
        }
        other => Ok((other, false)),
    }
}

impl Survey {
    fn see(&mut self, action: Action) {
        match action {
            Action::Forward { from, to } => {
                self.is_restored_for(false);
                self.deeds.push(Deed::Advance { steps: to - from });
            }
            Action::Reverse { .. } => {
                self.is_restored_for(true);
                self.deeds.push(Deed::Reverse);
            }
            Action::Save { step, tier } => self.save(step, tier),
            Action::Restore { step, .. } => self.restore(step),
            Action::Discard { step, .. } => self.discard(step),
            Action::End => {}
        }
    }

    /// What the last restore was for becomes known.
    fn is_restored_for(&mut self, reverse: bool) {
        let Some(save) = self.restored.take() else { return };
        if let Deed::Save { for_reverse, .. } = &mut self.deeds[save] {
            *for_reverse &= reverse;
        }
    }

    fn save(&mut self, step: u64, tier: Option<TierKind>) {
        // The next copy of what was restored: it needs the whole state.
        self.is_restored_for(false);
        let save = self.deeds.len();
        let kept = self.kept.entry(step).or_insert(Kept { save, copies: 0, restore: None });
        kept.copies += 1;
        if kept.copies == 1 {
            self.deeds.push(Deed::Save { step, for_reverse: true, tier });
        }
    }

    /// Until here nobody knows what the copies are for: they hold the whole state.
    fn save_whole(&mut self) {
        for deed in &mut self.deeds {
            if let Deed::Save { for_reverse, .. } = deed {
                *for_reverse = false;
            }
        }
    }

    fn restore(&mut self, step: u64) {
        let place = self.deeds.len();
        if let Some(kept) = self.kept.get_mut(&step) {
            self.restored = Some(kept.save);
            kept.restore = Some(place);
        }
        self.restores.push(place);
        self.deeds.push(Deed::Restore { step, last: false });
    }

    fn discard(&mut self, step: u64) {
        debug_assert!(self.kept.contains_key(&step), "the interpreter saw its save");
        let Some(kept) = self.kept.get_mut(&step) else { return };
        kept.copies -= 1;
        if kept.copies > 0 {
            return;
        }
        let place = kept.restore;
        self.kept.remove(&step);
        if let Some(Deed::Restore { last, .. }) = place.and_then(|at| self.deeds.get_mut(at)) {
            *last = true;
        }
        self.deeds.push(Deed::Discard { step });
    }
}

/// How many whole states and how many parts for a reverse are kept when they take the most bytes.
fn peak(deeds: &[Deed], job: &Job) -> [u64; 2] {
    let mut kept = BTreeMap::new();
    let (mut now, mut most, mut most_bytes) = ([0_u64; 2], [0_u64; 2], 0);
    for deed in deeds {
        match *deed {
            Deed::Save { step, for_reverse, .. } => {
                kept.insert(step, for_reverse);
                now[usize::from(for_reverse)] += 1;
                let bytes = now[0].saturating_mul(job.stored(job.state_bytes));
                let parts = now[1].saturating_mul(job.stored(job.reverse_bytes));
                let bytes = bytes.saturating_add(parts);
                if bytes >= most_bytes {
                    (most, most_bytes) = (now, bytes);
                }
            }
            Deed::Discard { step } => {
                if let Some(for_reverse) = kept.remove(&step) {
                    now[usize::from(for_reverse)] -= 1;
                }
            }
            _ => {}
        }
    }
    most
}
