//! The numbers of binomial checkpointing (Griewank and Walther, Algorithm 799, section 2).
//!
//! `beta(s, r)`, the binomial coefficient of `s + r` over `s`, is the longest chain that `s` slots
//! can reverse when no step is advanced over more than `r` times; it obeys Pascal's rule
//! `beta(s, r) = beta(s, r - 1) + beta(s - 1, r)`. The repetition number `r` of a chain of `l`
//! steps is the smallest with `beta(s, r) >= l`.

/// The number of steps that a schedule for `steps` steps and `slots` slots advances over, if it
/// advances over as few as possible: `r l - beta(s + 1, r - 1)`.
///
/// `u64::MAX` when it is more than that, or when there is no such schedule (no slot for two steps
/// or more).
#[must_use]
pub fn advances(steps: u64, slots: u64) -> u64 {
    if steps < 2 {
        return 0;
    }
    if slots == 0 {
        return u64::MAX;
    }
    let slots = slots.min(steps - 1);
    let r = repetitions(steps, slots);
    // beta(s + 1, r - 1) = beta(s, r - 1) (s + r) / (s + 1), and beta(s, r - 1) < l.
    debug_assert!(beta(slots, r - 1) < steps, "{r} is not the smallest number of repetitions");
    let (l, s, r) = (u128::from(steps), u128::from(slots), u128::from(r));
    let fewer = u128::from(beta(slots, r as u64 - 1)) * (s + r) / (s + 1);
    u64::try_from(r * l - fewer).unwrap_or(u64::MAX)
}

/// The fewest copies that a schedule with as few [`advances`] makes.
///
/// It grows by `beta(s - 2, r)` while the steps grow from `beta(s, r - 1)` to `beta(s, r)`: not at
/// first, then with every step.
#[must_use]
pub fn saves(steps: u64, slots: u64) -> u64 {
    if steps < 2 || slots == 0 {
        return 0;
    }
    let slots = slots.min(steps - 1);
    let r = repetitions(steps, slots);
    debug_assert!(beta(slots, r) >= steps, "{r} repetitions are too few");
    let flat = beta(slots - 1, r - 1);
    flat + (steps - beta(slots, r - 1)).saturating_sub(flat)
}

/// The smallest `r` with `beta(slots, r) >= steps`, for `steps >= 2` and `1 <= slots < steps`.
pub(crate) fn repetitions(steps: u64, slots: u64) -> u64 {
    debug_assert!(steps >= 2 && slots >= 1 && slots < steps, "{steps} steps, {slots} slots");
    // beta(s, 0) = 1 is too small; beta(s, r) > r is not for r = steps - 1.
    let (mut small, mut large) = (0, steps - 1);
    while large - small > 1 {
        let middle = small + (large - small) / 2;
        if beta(slots, middle) >= steps {
            large = middle;
        } else {
            small = middle;
        }
    }
    large
}

/// The binomial coefficient of `s + r` over `s`, at most `u64::MAX`.
pub(crate) fn beta(s: u64, r: u64) -> u64 {
    let (few, many) = (s.min(r), u128::from(s.max(r)));
    let mut value: u128 = 1;
    // After k factors it is the coefficient of many + k over k: it grows, at least twofold.
    for k in 1..=u128::from(few) {
        value = value * (many + k) / k;
        if value >= u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    value as u64
}

/// How a chain is split: its number of slots, its repetition number, and three coefficients that
/// are smaller than its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    /// `s`, at least 1.
    slots: u64,
    /// `r`, at least 1.
    repetitions: u64,
    /// `beta(s, r - 1)`
    here: u64,
    /// `beta(s - 1, r - 1)`
    fewer: u64,
    /// `beta(s - 2, r - 1)`, and 0 for one slot.
    fewest: u64,
}

impl Split {
    /// The split of a chain of two steps or more, with at least one slot and fewer slots than
    /// steps.
    pub fn new(length: u64, slots: u64) -> Split {
        let repetitions = repetitions(length, slots);
        let r = repetitions - 1;
        Split {
            slots,
            repetitions,
            here: beta(slots, r),
            fewer: beta(slots - 1, r),
            fewest: if slots == 1 { 0 } else { beta(slots - 2, r) },
        }
    }

    /// The split of a chain of `length >= 2` steps after an advance over this one, with one slot
    /// less.
    #[inline]
    pub fn after(&self, length: u64) -> Split {
        debug_assert!(self.slots > 1, "the chain after the advance needs a slot");
        let (s, r) = (self.slots - 2, self.repetitions - 1);
        let mut split = Split {
            slots: self.slots - 1,
            repetitions: self.repetitions,
            here: self.fewer,
            fewer: self.fewest,
            fewest: if s == 0 { 0 } else { scaled(self.fewest, s, s + r) },
        };
        split.shorten(length);
        split
    }

    /// Adapts the split to the same chain when `length >= 1` of its steps are left.
    #[inline]
    pub fn shorten(&mut self, length: u64) {
        debug_assert!(length > 0, "a chain has a step");
        while length <= self.here && self.repetitions > 1 {
            let r = self.repetitions - 1;
            self.here -= self.fewer;
            self.fewer -= self.fewest;
            if self.slots > 2 {
                self.fewest = scaled(self.fewest, r, self.slots - 2 + r);
            }
            self.repetitions = r;
        }
    }

    /// The number of `length >= 2` steps to advance over before the next copy.
    ///
    /// Any number is optimal that leaves both parts as many repetitions as they may have; the
    /// paper's also makes as few copies as possible (section 2 gives it in three cases).
    #[inline]
    pub fn advance(&self, length: u64) -> u64 {
        debug_assert!(length > self.here, "{length} steps are a chain of fewer repetitions");
        let shortest = self.here - self.fewer;
        let wanted = length.saturating_sub(self.fewer).saturating_sub(self.fewest);
        wanted.clamp(shortest.max(1), self.here)
    }
}

/// `value * over / under`, which is an integer that fits.
#[inline]
fn scaled(value: u64, over: u64, under: u64) -> u64 {
    match value.checked_mul(over) {
        Some(product) => product / under,
        None => (u128::from(value) * u128::from(over) / u128::from(under)) as u64,
    }
}
