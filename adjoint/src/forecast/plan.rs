//! The survey of a schedule before it runs, like the dry run of the driver.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::forecast::{ForecastError, ForecastJob, MAX_ACTIONS};
use crate::{Action, Counts, Interpreter, Limits, Schedule};
use unspool_core::TierKind;

/// One thing that the application does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    /// Forward steps.
    Advance { steps: u64 },
    /// One reverse step.
    Reverse,
    /// A save: whether all restores of the copy are followed by a reverse step, and the tier whose
    /// slot the copy takes in the schedule.
    Save { step: u64, for_reverse: bool, tier: Option<TierKind> },
    /// A restore: whether the copy is discarded before it is restored again.
    Restore { step: u64, last: bool },
    /// A discard of a copy.
    Discard { step: u64 },
    /// From here on nothing is prefetched, or it is again.
    Prefetch { starts: bool },
    /// A wait for the other processes.
    Meet,
    /// A wait until everything is in the slowest tier.
    Flush,
}

/// All operations of a schedule, and what has to be known of them in advance.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ForecastPlan {
    pub operations: Vec<Operation>,
    /// The places of the restores in `operations`.
    pub restores: Vec<usize>,
    pub counts: Counts,
    /// The operation before which the restore order becomes known: the first one, or the end of the
    /// forward pass of a schedule that does not know its number of steps.
    pub known_from: usize,
    /// The number of copies when they take the most room: of whole states, and of what a reverse
    /// step needs.
    pub peak: [u64; 2],
    /// Bytes of each checkpoint, where they differ.
    pub sizes: Vec<u64>,
}

/// A step of which copies are kept.
struct KeptStep {
    /// The place of its save in `operations`.
    save: usize,
    /// The number of tiers in which the schedule keeps it.
    copies: u32,
    /// The place of its last restore in `operations`.
    restore: Option<usize>,
}

#[derive(Default)]
struct Survey {
    operations: Vec<Operation>,
    restores: Vec<usize>,
    kept: BTreeMap<u64, KeptStep>,
    /// The save whose copy was restored last, until the next action shows what for.
    restored: Option<usize>,
}

impl ForecastPlan {
    /// Checks and surveys a schedule.
    pub fn of(
        mut schedule: impl Schedule,
        job: &ForecastJob,
    ) -> Result<ForecastPlan, ForecastError> {
        let steps = schedule.steps().or(job.steps).ok_or(ForecastError::UnknownSteps)?;
        let mut interpreter = Interpreter::new(Limits::of(&schedule));
        let (mut survey, mut known_from) = (Survey::default(), 0);
        while let Some(action) = schedule.next() {
            let (action, ends) = stopped(action, steps, &mut schedule)?;
            interpreter.see(&action).map_err(ForecastError::Schedule)?;
            if survey.operations.len() >= MAX_ACTIONS {
                return Err(ForecastError::TooLong { limit: MAX_ACTIONS });
            }
            survey.see(action);
            if ends {
                interpreter.stopped_at(steps).map_err(ForecastError::Schedule)?;
                known_from = survey.operations.len();
                survey.save_whole();
            }
        }
        let counts = interpreter.finish().map_err(ForecastError::Schedule)?;
        debug_assert!(
            survey.kept.is_empty(),
            "the interpreter saw that nothing is kept at the end"
        );
        let peak = peak(&survey.operations, job);
        let Survey { operations, restores, .. } = survey;
        let sizes = Vec::new();
        Ok(ForecastPlan { operations, restores, counts, known_from, peak, sizes })
    }

    /// The bytes of a checkpoint; `usual` where they do not differ.
    pub fn bytes(&self, step: u64, usual: u64) -> u64 {
        let place = usize::try_from(step).unwrap_or(usize::MAX);
        self.sizes.get(place).copied().unwrap_or(usual)
    }

    /// The bytes that the copies take at most when one of `bytes` takes `size_of(bytes)`.
    pub fn peak_bytes(&self, job: &ForecastJob, size_of: impl Fn(u64) -> u64) -> u64 {
        let [whole, parts] = self.peak;
        let bytes = |count: u64, bytes| count.saturating_mul(size_of(bytes));
        let [whole_bytes, part_bytes] = [job.state_bytes, job.reverse_bytes].map(|b| job.stored(b));
        bytes(whole, whole_bytes).saturating_add(bytes(parts, part_bytes))
    }
}

/// The action as the application carries it out, and whether the forward pass ends with it. The end
/// is reported to a schedule that does not know its number of steps.
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
                self.operations.push(Operation::Advance { steps: to - from });
            }
            Action::Reverse { .. } => {
                self.is_restored_for(true);
                self.operations.push(Operation::Reverse);
            }
            Action::Save { step, tier } => self.save(step, tier),
            Action::Restore { step, .. } => self.restore(step),
            Action::Discard { step, .. } => self.discard(step),
            Action::End => {}
        }
    }

    /// Notes what the last restore was for: to reverse a step, or to go on from it.
    fn is_restored_for(&mut self, reverse: bool) {
        let Some(save) = self.restored.take() else { return };
        if let Operation::Save { for_reverse, .. } = &mut self.operations[save] {
            *for_reverse &= reverse;
        }
    }

    fn save(&mut self, step: u64, tier: Option<TierKind>) {
        // A save right after a restore copies the restored state, which needs to be whole.
        self.is_restored_for(false);
        let save = self.operations.len();
        let kept = self.kept.entry(step).or_insert(KeptStep { save, copies: 0, restore: None });
        kept.copies += 1;
        if kept.copies == 1 {
            self.operations.push(Operation::Save { step, for_reverse: true, tier });
        }
    }

    /// Makes all saves until now ones of the whole state: it was not known what they are for.
    fn save_whole(&mut self) {
        for operation in &mut self.operations {
            if let Operation::Save { for_reverse, .. } = operation {
                *for_reverse = false;
            }
        }
    }

    fn restore(&mut self, step: u64) {
        let place = self.operations.len();
        if let Some(kept) = self.kept.get_mut(&step) {
            self.restored = Some(kept.save);
            kept.restore = Some(place);
        }
        self.restores.push(place);
        self.operations.push(Operation::Restore { step, last: false });
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
        if let Some(Operation::Restore { last, .. }) =
            place.and_then(|at| self.operations.get_mut(at))
        {
            *last = true;
        }
        self.operations.push(Operation::Discard { step });
    }
}

/// The number of whole states and of copies for a reverse step when they take the most bytes.
fn peak(operations: &[Operation], job: &ForecastJob) -> [u64; 2] {
    let mut kept = BTreeMap::new();
    let (mut now, mut most, mut most_bytes) = ([0_u64; 2], [0_u64; 2], 0);
    for operation in operations {
        match *operation {
            Operation::Save { step, for_reverse, .. } => {
                kept.insert(step, for_reverse);
                now[usize::from(for_reverse)] += 1;
                let bytes = now[0].saturating_mul(job.stored(job.state_bytes));
                let parts = now[1].saturating_mul(job.stored(job.reverse_bytes));
                let bytes = bytes.saturating_add(parts);
                if bytes >= most_bytes {
                    (most, most_bytes) = (now, bytes);
                }
            }
            Operation::Discard { step } => {
                if let Some(for_reverse) = kept.remove(&step) {
                    now[usize::from(for_reverse)] -= 1;
                }
            }
            _ => {}
        }
    }
    most
}
