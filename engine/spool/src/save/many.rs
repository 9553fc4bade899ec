//! Several checkpoints by one call: the core is asked for all of them under one lock, those that
//! one encoder takes are encoded by one launch, and small ones that are kept as they are are copied
//! by one.
//!
//! Each checkpoint is saved as a whole or not at all, and independently of the others. Where the
//! next one has to wait for room, those that have room are encoded first: what they leave may be
//! what it waits for.
//!
//! Where [room is scarce](super::expected), a checkpoint that needs more than it asked for gives
//! its room back, and asks again for the most that it can need: its arrays are still there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_core::RequestId;
use unspool_cuda::{DeviceError, Poll, Stream};

use super::Checkpoint;
use super::group::{self, Entered, LaunchGroup, Together, streams};
use super::launch::note_on_host;
use super::room::granted;
use super::ticket::SaveState;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, Gpu};
use crate::runtime::counters::Call;
use crate::runtime::deferred::{Unsaved, as_one_error};
use crate::runtime::shared::Shared;
use crate::runtime::state::State;
use crate::runtime::waiting::{Offered, Until};
use crate::wait::Wait;

/// The time between two looks at arrays that are still being computed.
const NAP: Duration = Duration::from_micros(200);

/// Saves several checkpoints, and leaves those that it cannot save in `checkpoints`.
///
/// # Errors
/// As [`Spool::save_many`](crate::Spool::save_many).
pub(crate) fn save_many(
    shared: &Arc<Shared>,
    checkpoints: &mut Vec<Checkpoint<'_>>,
    wait: &Wait<'_>,
) -> Result<(), Error> {
    let mut state = shared.enter()?;
    shared.report_deferred(&mut state)?;
    drop(state);
    let todo = std::mem::take(checkpoints).into();
    let timeout = wait.timeout.unwrap_or(shared.settings.timeout);
    let until = Instant::now() + timeout;
    let mut call = SaveMany { shared, wait, until, todo, refused: Vec::new() };
    call.run();
    let refused = call.refused;
    let (left, errors): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
    *checkpoints = left;
    let unsaved = checkpoints.iter().zip(errors);
    let unsaved = unsaved.map(|(one, error)| Unsaved { version: one.version(), error });
    as_one_error(unsaved.collect()).map_or(Ok(()), Err)
}

/// One call of [`Spool::save_many`](crate::Spool::save_many).
struct SaveMany<'s, 'c> {
    shared: &'s Arc<Shared>,
    wait: &'s Wait<'s>,
    until: Instant,
    /// Those that were not asked for yet.
    todo: VecDeque<Checkpoint<'c>>,
    /// Those that were not saved, and why.
    refused: Vec<(Checkpoint<'c>, Error)>,
}

/// A checkpoint whose room is being made, and how many bytes of it.
type PendingRoom<'c> = (Checkpoint<'c>, RequestId, u64);

impl<'s, 'c> SaveMany<'s, 'c> {
    fn run(&mut self) {
        let mut first = None;
        while first.is_some() || !self.todo.is_empty() {
            let (granted, pending) = self.grant(first);
            self.save_granted(granted);
            first = pending.and_then(|pending| self.wait_for_room(pending));
        }
    }

    /// Asks for room under one lock, up to the first checkpoint that has to wait for it.
    fn grant(&mut self, first: Option<Entered<'c>>) -> (Vec<Entered<'c>>, Option<PendingRoom<'c>>) {
        let mut all: Vec<_> = first.into_iter().collect();
        let mut state = match self.shared.enter() {
            Ok(state) => state,
            Err(closed) => {
                self.refuse_rest(&closed);
                return (all, None);
            }
        };
        while let Some(checkpoint) = self.todo.pop_front() {
            let (began, prepared) = (self.shared.time_of_call(), checkpoint.prepared());
            let room = self.room_for(&checkpoint, &state);
            match self.shared.ask_now(&mut state, prepared.asked(room)) {
                Ok(Offered::Now(request, answer)) => {
                    let (granted, batch) = (granted(request, &answer, room), all.iter().rev());
                    let batch = batch.map(|one: &Entered<'_>| &one.ticket.grant);
                    let ticket = prepared.granted(self.shared, &mut state, granted, began, batch);
                    all.push(Entered { checkpoint, ticket });
                }
                Ok(Offered::Later(request)) => return (all, Some((checkpoint, request, room))),
                Err(error) => self.refuse(checkpoint, error),
            }
        }
        (all, None)
    }

    /// The GPU that encodes and copies checkpoints together.
    fn gpu(&self) -> Option<&'s Gpu> {
        self.shared.gpu.as_ref().filter(|_| !self.shared.settings.check_codec)
    }

    /// The bytes that a checkpoint asks room for.
    fn room_for(&self, checkpoint: &Checkpoint<'_>, state: &State) -> u64 {
        let prepared = checkpoint.prepared();
        let has_values = self.gpu().is_some_and(|gpu| checkpoint.together(gpu).is_some());
        match has_values && !checkpoint.asks_for_most {
            true => prepared.expected(state),
            false => prepared.most(),
        }
    }

    /// Waits until there is room for a checkpoint; `None` when there is none.
    fn wait_for_room(
        &mut self,
        (checkpoint, request, room): PendingRoom<'c>,
    ) -> Option<Entered<'c>> {
        let (shared, prepared) = (self.shared, checkpoint.prepared());
        let began = shared.time_of_call();
        let left = self.until.saturating_duration_since(Instant::now());
        let wait = Wait { timeout: Some(left), ..*self.wait };
        let asked = (prepared.asked(room), request);
        match shared.wait_for(shared.state(), asked, &wait, Until::Closing) {
            Ok(answered) => {
                let ticket = prepared.answered(shared, (answered, room), began);
                Some(Entered { checkpoint, ticket })
            }
            Err(error) => {
                self.refuse(checkpoint, error);
                None
            }
        }
    }

    /// Saves those that have room, as many as possible by one launch.
    fn save_granted(&mut self, granted: Vec<Entered<'c>>) {
        let gpu = self.gpu();
        // Before any of them is filled by code of the caller, which may panic.
        let mut without_room = Vec::new();
        let enter = |one| self.enter(one, &mut without_room);
        let entered: Vec<_> = granted.into_iter().filter_map(enter).collect();
        without_room.into_iter().rev().for_each(|one| self.todo.push_front(one));
        let mut group = LaunchGroup::default();
        for mut one in entered {
            let Some(way) = gpu.and_then(|gpu| Together::of(gpu, &mut one)) else {
                self.save_group(std::mem::take(&mut group));
                match one.ticket.has_all_room() {
                    true => self.save_alone(one),
                    false => self.save_again(one.checkpoint),
                }
                continue;
            };
            if !group.takes(way, &one) {
                self.save_group(std::mem::take(&mut group));
            }
            group.push(way, one);
        }
        self.save_group(group);
    }

    fn enter(
        &mut self,
        Entered { checkpoint, ticket }: Entered<'c>,
        without_room: &mut Vec<Checkpoint<'c>>,
    ) -> Option<Entered<'c>> {
        match ticket.enter() {
            Ok(Some(ticket)) => return Some(Entered { checkpoint, ticket }),
            Ok(None) => without_room.push(checkpoint),
            Err(error) => self.refuse(checkpoint, error),
        }
        None
    }

    fn save_alone(&mut self, one: Entered<'c>) {
        let Entered { mut checkpoint, mut ticket } = one;
        let fetched = self.wait_for_host(&checkpoint);
        let filled = fetched.and_then(|()| checkpoint.fill_ticket(&mut ticket));
        self.end(checkpoint, filled.and_then(|()| ticket.commit()));
    }

    /// Waits for the arrays that the host has to encode because the GPU does not: their copies do
    /// not know how long this call may take.
    fn wait_for_host(&self, checkpoint: &Checkpoint<'_>) -> Result<(), Error> {
        let gpu = self.shared.gpu.as_ref().filter(|gpu| gpu.coders().is_none());
        let Some(gpu) = gpu.filter(|_| checkpoint.prepared().plan().is_some()) else {
            return Ok(());
        };
        checkpoint.arrays().try_for_each(|(_, _, stream)| self.wait_for_arrays(gpu, stream))
    }

    fn save_group(&mut self, group: LaunchGroup<'c>) {
        let Some((way, gpu)) = group.way.zip(self.shared.gpu.clone()) else { return };
        let mut members = group.members;
        if streams(&members).is_captured() {
            for one in members.extract_if(.., |one| one.checkpoint.is_captured()) {
                self.refuse(one.checkpoint, gpu::captured());
            }
        }
        if members.is_empty() {
            return;
        }
        match way {
            Together::Copied => match group::copy(&gpu, &mut members) {
                Ok(()) => self.commit(members),
                Err(cause) => self.copy_failed(members, &cause),
            },
            Together::Encoded(_) => match group::encode(&gpu, &mut members) {
                Ok(()) => self.commit_fitting(&gpu, members),
                Err(cause) => self.launch_failed(&gpu, way, members, &cause),
            },
        }
    }

    /// Reports those of `members`, which a launch encodes, that fit their rooms. The others are
    /// saved again. All are ended in the order of the launch, since each may lie in what the one
    /// before it has left.
    fn commit_fitting(&mut self, gpu: &Gpu, members: Vec<Entered<'c>>) {
        let (mut fitting, mut others) = (Vec::with_capacity(members.len()), Vec::new());
        for one in members {
            let fits = one.ticket.fits(gpu, self.wait);
            if matches!(fits, Ok(true)) {
                fitting.push(one);
                continue;
            }
            self.commit(std::mem::take(&mut fitting));
            drop(one.ticket);
            others.push((one.checkpoint, fits));
        }
        self.commit(fitting);
        for (checkpoint, fits) in others.into_iter().rev() {
            match fits {
                Ok(_) => self.save_again(checkpoint),
                Err(error) => self.refuse(checkpoint, error),
            }
        }
    }

    /// Has a checkpoint without room saved next, with room for the most that it can need.
    fn save_again(&mut self, mut checkpoint: Checkpoint<'c>) {
        checkpoint.asks_for_most = true;
        self.todo.push_front(checkpoint);
    }

    /// Reports all of these under one lock.
    fn commit(&mut self, mut members: Vec<Entered<'c>>) {
        let Some(last) = members.last().map(|one| one.checkpoint.version()) else { return };
        let mut state = self.shared.state();
        let report = |one: &mut Entered<'_>| one.ticket.report(&mut state);
        let reported: Vec<_> = members.iter_mut().map(report).collect();
        drop(state);
        self.shared.count_kernels(Call::Save, last);
        for (Entered { checkpoint, mut ticket }, reported) in members.into_iter().zip(reported) {
            let saved = ticket.ended(reported);
            drop(ticket);
            self.end(checkpoint, saved);
        }
    }

    /// Copies checkpoints, which could not be copied together, one by one, so that those that can
    /// be saved are.
    fn copy_failed(&mut self, members: Vec<Entered<'c>>, cause: &Error) {
        self.shared.note_once(&format!("Checkpoints could not be copied together: {cause}"));
        members.into_iter().for_each(|one| self.save_alone(one));
    }

    /// The GPU does not take these together: each is tried alone, and then encoded by the host.
    fn launch_failed(
        &mut self,
        gpu: &Gpu,
        way: Together,
        members: Vec<Entered<'c>>,
        cause: &DeviceError,
    ) {
        if members.len() > 1 {
            self.shared.note_once(&format!("Checkpoints could not be encoded together: {cause}"));
            return members.into_iter().for_each(|one| self.save_group(LaunchGroup::of(way, one)));
        }
        for mut one in members {
            if !one.ticket.has_all_room() {
                self.save_again(one.checkpoint);
                continue;
            }
            let fetched = self.encode_on_host(gpu, &mut one, cause);
            self.end(one.checkpoint, fetched.and_then(|()| one.ticket.commit()));
        }
    }

    /// Brings the values of a checkpoint that the GPU does not take, because of `cause`, to the
    /// host, which encodes them when the ticket is committed.
    fn encode_on_host(
        &self,
        gpu: &Gpu,
        one: &mut Entered<'c>,
        cause: &DeviceError,
    ) -> Result<(), Error> {
        let SaveState::Coded { coded: (encoded, _), .. } = &mut one.ticket.state else {
            return Ok(());
        };
        let refused = |kind, host: String| {
            let version = one.checkpoint.version();
            let message = format!(
                "Version {version} was not saved: the GPU could not encode it: {cause}{host}"
            );
            Error::new(kind, message).caused_by(cause.clone())
        };
        if encoded.plan().needs_gpu() {
            return Err(refused(ErrorKind::Device, String::new()));
        }
        gpu.coder_failed(cause);
        note_on_host(self.shared, cause);
        // The arrays themselves are still there.
        drop(encoded.forget_gathered());
        let arrays: Vec<_> = one.checkpoint.arrays().collect();
        let fetched =
            arrays.iter().try_for_each(|(_, _, stream)| self.wait_for_arrays(gpu, stream));
        let fetched = fetched.and_then(|()| one.ticket.download_all(gpu, &arrays));
        fetched.map_err(|error| {
            refused(error.kind(), format!(" The host could not do it instead: {error}"))
        })
    }

    /// Waits until what is on `stream` now is done.
    fn wait_for_arrays(&self, gpu: &Gpu, stream: &Stream) -> Result<(), Error> {
        let fence = gpu.fence(stream)?;
        while matches!(fence.poll(), Poll::NotYet) {
            if (self.wait.interrupted)() {
                return Err(super::expected::interrupted());
            }
            if Instant::now() >= self.until {
                let message = "the GPU has not come to its arrays in time.";
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// A checkpoint was saved, or was not.
    fn end(&mut self, checkpoint: Checkpoint<'c>, saved: Result<(), Error>) {
        if let Err(error) = saved {
            self.refuse(checkpoint, error);
        }
    }

    /// Notes that a checkpoint was not saved. After one that may be tried again later, those that
    /// follow are not tried now: they would come before it.
    fn refuse(&mut self, checkpoint: Checkpoint<'c>, error: Error) {
        let ends_call = error.is_retryable() || error.kind() == ErrorKind::Closed;
        let rest = ends_call.then(|| error.again());
        self.refused.push((checkpoint, error));
        if let Some(error) = rest {
            self.refuse_rest(&error);
        }
    }

    fn refuse_rest(&mut self, error: &Error) {
        let rest = self.todo.drain(..).map(|checkpoint| (checkpoint, error.again()));
        self.refused.extend(rest);
    }
}
