//! The levels below the folder of a run: copies beyond the machine, and those that other ranks
//! keep.

use std::collections::BTreeSet;
use std::sync::Arc;

use unspool::{Error, ErrorKind, Spool, Wait};

use super::Checkpointer;
use crate::agreement::{self, Agreed, Held};
use crate::chain;
use crate::frames::{discard, flush, on_its_own};
use crate::manifest::Part;
use crate::partner::{self, Came, Sent};
use crate::ranks::Ranks;
use crate::worker::{interruptible, lock};

impl Checkpointer {
    /// Makes the checkpoint of `step` one that counts in the folder of this rank: waits for it when
    /// it was saved just now, and fetches it where only the remote place has it.
    ///
    /// # Errors
    /// `Unknown` when neither has it; `Timeout`; those of [`fetch`](Self::fetch).
    pub fn ready(&self, step: u64, wait: &Wait<'_>) -> Result<(), Error> {
        self.arrived(step, wait)?;
        let wanted = self.wanted(step);
        let here = |part: &Part| part.step == step && wanted.is_none_or(|wanted| wanted == *part);
        if self.committer.counted().iter().any(here) || self.fetch(step, wait)? {
            return Ok(());
        }
        let message = format!("Step {step} does not count on this rank.");
        Err(Error::new(ErrorKind::Unknown, message))
    }

    /// The spool to restore `step` from, which is [ready](Self::ready): that of the application, or
    /// one in main memory where the checkpoint is put together, or was saved by way of a stage.
    ///
    /// # Errors
    /// `Corrupt`, `Lost` and `Io`: what it is, or builds on, cannot be read.
    pub fn reading(&self, step: u64, wait: &Wait<'_>) -> Result<Arc<Spool>, Error> {
        match self.places().stage.is_none()
            && !chain::builds_on_another(&self.places().data, step as i64)?
        {
            true => Ok(Arc::clone(&self.places().data)),
            false => chain::reader(&self.places().data, step as i64, wait),
        }
    }

    /// Fetches this rank's part of the checkpoint of `step`, which is damaged here, in place of
    /// what is here of it: from the remote place, or, as long as it was not asked, from the rank
    /// that keeps a copy. That rank gives it when [`candidate`](Self::candidate) is called once
    /// more, so this says false then, as it does when there is no copy anywhere.
    ///
    /// # Errors
    /// `Io`, `Lost` and `Corrupt` when the place does not give it; those of
    /// [`save`](unspool::Spool::save) and [`flush`](unspool::Spool::flush); `Interrupted`.
    pub fn fetch(&self, step: u64, wait: &Wait<'_>) -> Result<bool, Error> {
        if self.asks_partner(step) {
            return Ok(false);
        }
        let Some(copier) = &self.places().copier else { return Ok(false) };
        let wanted = self.wanted(step);
        let mut there = copier.counted().into_iter();
        let is_it = |part: &Part| part.step == step && wanted.is_none_or(|one| one == *part);
        let Some(part) = there.rfind(is_it) else { return Ok(false) };
        let copier = Arc::clone(copier);
        let came =
            interruptible(wait, "a copy of the step", move || copier.jobs().shelf.get(part))?;
        self.take_in(part, came, wait)?;
        Ok(true)
    }

    /// Puts a part that came from elsewhere in place of what is here of its step.
    fn take_in(&self, part: Part, (manifest, frame): Came, wait: &Wait<'_>) -> Result<(), Error> {
        let step = part.step;
        // What is here may be damaged. It does not count any more before it goes.
        self.places().folder.remove(|one| one == step)?;
        self.committer.book().own.parts.retain(|one| one != step);
        discard(&self.places().data, |one| one == step)?;
        self.places().data.adopt(&frame, wait)?;
        drop(frame);
        flush(&self.places().data, step, wait)?;
        self.places().folder.write(&manifest)?;
        self.committer.book().own.parts.add(&manifest);
        lock(&self.life).mending.damaged.remove(&part);
        Ok(())
    }

    /// Whether another rank, which keeps a copy, is asked for this rank's part of `step`: once.
    fn asks_partner(&self, step: u64) -> bool {
        let mut life = lock(&self.life);
        let Some(part) = life.wanted.filter(|part| part.step == step) else { return false };
        let mending = &mut life.mending;
        let asks = mending.kept && mending.asked.insert(part);
        if asks {
            mending.damaged.insert(part);
            mending.asks = true;
        }
        asks
    }

    fn wanted(&self, step: u64) -> Option<Part> {
        lock(&self.life).wanted.filter(|part| part.step == step)
    }

    /// Deletes what is not kept, in the folder and beyond the machine.
    pub(super) fn delete_old(&self, agreed: &Agreed) {
        let below = |parts| agreement::deletable_below(parts, self.settings.keep as usize);
        let stays = |parts: &[Part]| {
            let scores = agreed.ranks.first().map_or(&[][..], |lead| &lead.scores);
            self.settings.stays.of(parts, scores)
        };
        if let Some(below) = below(&agreed.local) {
            // What is being copied stays until it is. So does what all partners have: when one disk
            // is lost, it is what the others need here.
            let copied = self.places().copier.as_ref().map_or(Vec::new(), |copier| copier.needs());
            let kept = agreed.partner.last().map(|part| part.step);
            // Of two that stay, one damaged frame does not take both.
            let apart = agreed.apart.filter(|_| self.settings.keep > 1).map(|part| part.step);
            let needed = copied.into_iter().chain(kept).chain(apart).chain(stays(&agreed.local));
            self.committer.remove_below(below, needed.collect());
        }
        if let Some((copier, below)) = self.places().copier.as_ref().zip(below(&agreed.remote)) {
            copier.remove_below(below, stays(&agreed.remote));
        }
    }

    /// Copies the newest checkpoint that all ranks have, when none that is as new is beyond the
    /// machine.
    pub(super) fn copy_newest(&self, agreed: &Agreed) {
        let newest = |parts: &[Part]| parts.last().copied();
        let newer = newest(&agreed.local).filter(|newest_here| {
            newest(&agreed.remote).is_none_or(|there| there.step < newest_here.step)
        });
        if let Some((copier, part)) = self.places().copier.as_ref().zip(newer) {
            copier.copy(part);
        }
    }

    /// Gives the newest checkpoint that all ranks have to the ranks that keep it, unless they have
    /// it, and keeps that of another one. The application waits meanwhile.
    ///
    /// # Errors
    /// `Timeout` when ranks do not answer. Whatever else goes wrong is told later.
    pub(super) fn give_newest(&self, agreed: &Agreed, ranks: &dyn Ranks) -> Result<(), Error> {
        let (Some(partner), Some(&part)) = (&self.partner, agreed.local.last()) else {
            return Ok(());
        };
        if agreed.partner.contains(&part) {
            return Ok(());
        }
        let own = on_its_own(&self.places().folder, &self.places().data, part);
        let sent: Option<Sent<'_>> = own.as_ref().ok().map(|(one, frame)| (one, &**frame));
        let (timeout, shift) = (self.settings.timeout, partner.shift());
        let came = partner::relay(&self.exchanges, ranks, shift, sent, timeout)?;
        let from = (self.rank + self.size - shift % self.size) % self.size;
        let kept = came.map_or(Ok(()), |came| partner.keep(from, part, came));
        let below = agreement::deletable_below(&agreed.partner, self.settings.keep as usize);
        let removed = below.map_or(Ok(()), |below| partner.remove(|step| step < below));
        if let Err(cause) = own.map(drop).and(kept).and(removed) {
            let message = format!("Step {} is not at all partners: {cause}", part.step);
            partner.fail(Error::new(cause.kind(), message).caused_by(cause));
        }
        Ok(())
    }

    /// Takes `part` back from those that keep it, on all ranks that lack it.
    ///
    /// # Errors
    /// `Timeout` when ranks do not answer. A part that does not come is missing afterwards.
    pub(super) fn take_back(
        &self,
        part: Part,
        agreed: &Agreed,
        ranks: &dyn Ranks,
    ) -> Result<(), Error> {
        let Some(partner) = &self.partner else { return Ok(()) };
        let lacking = agreed.kept_elsewhere(part);
        let way = |&(rank, keeper): &(u32, u32)| (rank + self.size - keeper) % self.size;
        let ways: BTreeSet<u32> = lacking.iter().map(way).collect();
        if lacking.iter().any(|(rank, _)| *rank == self.rank) {
            lock(&self.life).mending.asked.insert(part);
        }
        for shift in ways {
            let pairs = lacking.iter().filter(|pair| way(pair) == shift);
            let asked = pairs.clone().find(|(_, keeper)| *keeper == self.rank);
            let kept = asked.and_then(|&(rank, _)| partner.get(Held { rank, part }).ok());
            let sent: Option<Sent<'_>> = kept.as_ref().map(|(one, frame)| (one, frame as _));
            let timeout = self.settings.timeout;
            let came = partner::relay(&self.exchanges, ranks, shift, sent, timeout)?;
            let taken = came.map_or(Ok(()), |came| self.take_own(part, came));
            taken.unwrap_or_else(|error| partner.fail(error));
        }
        Ok(())
    }

    /// Takes a part that another rank has kept, if it is this rank's.
    fn take_own(&self, part: Part, came: Came) -> Result<(), Error> {
        let is_it = partner::is_part(&came, self.rank, self.size, part);
        if is_it { self.take_in(part, came, &Wait::default()) } else { Ok(()) }
    }
}
