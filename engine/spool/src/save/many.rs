//! Several checkpoints by one call: the core is asked for all of them under one lock, those that
//! one encoder takes are encoded by one launch, and small ones that are kept as they are are copied
//! by one.
//!
//! Each checkpoint is saved as a whole or not at all, and independently of the others. Where the
//! next one has to wait for room, those that have room are encoded first: what they leave may be
//! what it waits for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_codec::{CodecId, Head};
use unspool_core::RequestId;
use unspool_cuda::{DeviceError, Poll, Stream};

use super::in_flight::leave_all_to_completion;
use super::state::{Granted, SaveState};
use super::together::{MOST_REGIONS, launch, streams, together};
use super::{Prepared, SaveTicket, count_stall, plain};
use crate::coding::Room;
use crate::error::{Error, ErrorKind};
use crate::gpu::{self, DeviceArray, Gpu};
use crate::runtime::counters::Call;
use crate::runtime::deferred::{Unsaved, as_one_error};
use crate::runtime::shared::Shared;
use crate::runtime::state::Answer;
use crate::runtime::waiting::{Answered, Offered, Until};
use crate::wait::Wait;

/// The time between two looks at arrays that are still being computed.
const NAP: Duration = Duration::from_micros(200);

/// One checkpoint for [`Spool::save_many`](crate::Spool::save_many): its regions, their codecs, and
/// where their values are.
///
/// Regions whose values are not given are zeros where they are encoded, and unspecified otherwise.
pub struct Checkpoint<'a> {
    prepared: Arc<Prepared>,
    values: Vec<Values<'a>>,
}

/// Writes the values of a region.
type Writer<'a> = Box<dyn FnMut(&mut [u8]) + Send + 'a>;

/// Where the values of a region are.
enum Values<'a> {
    Nowhere,
    /// On a GPU, ready on a stream.
    Array(&'a DeviceArray, &'a Stream),
    /// In main memory, dense.
    Bytes(&'a [u8]),
    /// Wherever this takes them from.
    Write(Writer<'a>),
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn of(prepared: Arc<Prepared>) -> Checkpoint<'a> {
        let values = prepared.head().regions.iter().map(|_| Values::Nowhere).collect();
        Checkpoint { prepared, values }
    }

    /// Its name.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.head().version
    }

    /// The regions, and where they lie in the payload at most.
    #[must_use]
    pub fn head(&self) -> &Arc<Head> {
        self.prepared.head()
    }

    pub(crate) fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Region `index` has the values of an array of a GPU, as they are when what is on `stream` at
    /// the time of the save is done.
    ///
    /// # Errors
    /// `Invalid` when the array has another size.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn put(
        &mut self,
        index: usize,
        array: &'a DeviceArray,
        stream: &'a Stream,
    ) -> Result<(), Error> {
        gpu::check_size(array.bytes(), self.head().regions[index].bytes)?;
        self.values[index] = Values::Array(array, stream);
        Ok(())
    }

    /// Region `index` has these values, the bytes of a dense array in C order.
    ///
    /// # Errors
    /// `Invalid` when they have another size.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill_from(&mut self, index: usize, values: &'a [u8]) -> Result<(), Error> {
        gpu::check_size(values.len() as u64, self.head().regions[index].bytes)?;
        self.values[index] = Values::Bytes(values);
        Ok(())
    }

    /// Region `index` has the values that `write` writes when the checkpoint is saved. Where a save
    /// is tried again, `write` is called again.
    ///
    /// # Panics
    /// When the checkpoint has no region `index`.
    pub fn fill(&mut self, index: usize, write: impl FnMut(&mut [u8]) + Send + 'a) {
        self.values[index] = Values::Write(Box::new(write));
    }

    /// The arrays of GPUs that have bytes, by region.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = (usize, &'a DeviceArray, &'a Stream)> {
        self.values.iter().enumerate().filter_map(|(index, values)| match values {
            Values::Array(array, stream) if array.bytes() > 0 => Some((index, *array, *stream)),
            _ => None,
        })
    }

    /// Whether every region that has bytes is an array of the GPU `ordinal`.
    pub(crate) fn is_all_on(&self, ordinal: u32) -> bool {
        let mut regions = self.values.iter().zip(&self.head().regions);
        let is_there = |values: &Values<'_>| match values {
            Values::Array(array, _) => array.ordinal() == ordinal,
            _ => false,
        };
        self.arrays().next().is_some()
            && regions.all(|(values, region)| region.bytes == 0 || is_there(values))
    }

    /// The codec that encodes it together with others on `gpu`, if its values let it.
    pub(crate) fn together(&self, gpu: &Gpu) -> Option<CodecId> {
        let plan = self.prepared.plan()?;
        let may = gpu.coders().is_some()
            && plan.regions.len() <= MOST_REGIONS
            && self.is_all_on(gpu.ordinal());
        if may { together(plan) } else { None }
    }

    /// Whether the stream of an array is being captured into a graph. A stream that cannot
    /// be asked counts as not captured: its launch fails then, if something is wrong with it.
    fn is_captured(&self) -> bool {
        self.arrays().any(|(_, _, stream)| stream.is_capturing().unwrap_or(false))
    }

    /// Gives its values to a ticket.
    fn fill_ticket(&mut self, ticket: &mut SaveTicket) -> Result<(), Error> {
        for (index, values) in self.values.iter_mut().enumerate() {
            match values {
                Values::Bytes(bytes) => ticket.fill_from(index, bytes)?,
                Values::Write(write) => ticket.fill(index, |room| write(room))?,
                Values::Nowhere | Values::Array(..) => {}
            }
        }
        ticket.put_all(&self.arrays().collect::<Vec<_>>())
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("version", &self.version()).finish_non_exhaustive()
    }
}

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

/// One checkpoint whose room is borrowed.
pub(super) struct Entered<'c> {
    pub(super) checkpoint: Checkpoint<'c>,
    pub(super) ticket: SaveTicket,
}

/// One checkpoint for which room is granted.
type WithRoom<'c> = (Checkpoint<'c>, Granted);

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

/// A checkpoint whose room is being made.
type PendingRoom<'c> = (Checkpoint<'c>, RequestId);

impl<'c> SaveMany<'_, 'c> {
    fn run(&mut self) {
        let mut first = None;
        loop {
            let (granted, pending) = self.grant(first.take());
            self.save_granted(granted);
            match pending {
                Some(pending) => first = self.wait_for_room(pending),
                None if self.todo.is_empty() => return,
                // Those whose room was lost are asked for again.
                None => {}
            }
        }
    }

    /// Asks for room under one lock, up to the first checkpoint that has to wait for it.
    fn grant(
        &mut self,
        first: Option<WithRoom<'c>>,
    ) -> (Vec<WithRoom<'c>>, Option<PendingRoom<'c>>) {
        let mut granted: Vec<_> = first.into_iter().collect();
        let mut state = match self.shared.enter() {
            Ok(state) => state,
            Err(closed) => {
                self.refuse_rest(&closed);
                return (granted, None);
            }
        };
        while let Some(checkpoint) = self.todo.pop_front() {
            let began = self.shared.time_of_call();
            match self.shared.ask_now(&mut state, checkpoint.prepared.asked()) {
                Ok(Offered::Now(request, Answer::Granted(id, place))) => {
                    let room = (request, id, place);
                    let mut one = checkpoint.prepared.granted(self.shared, &mut state, room, began);
                    one.follow_one_of(&state, granted.iter().rev().map(|(_, earlier)| earlier));
                    granted.push((checkpoint, one));
                }
                Ok(Offered::Now(..)) => unreachable!("a save is granted or refused"),
                Ok(Offered::Later(request)) => return (granted, Some((checkpoint, request))),
                Err(error) => self.refuse(checkpoint, error),
            }
        }
        (granted, None)
    }

    /// Waits until there is room for a checkpoint; `None` when there is none.
    fn wait_for_room(&mut self, (checkpoint, request): PendingRoom<'c>) -> Option<WithRoom<'c>> {
        let shared = self.shared;
        let began = shared.time_of_call();
        let left = self.until.saturating_duration_since(Instant::now());
        let wait = Wait { timeout: Some(left), ..*self.wait };
        let asked = (checkpoint.prepared.asked(), request);
        let mut answered = match shared.wait_for(shared.state(), asked, &wait, Until::Closing) {
            Ok(answered) => answered,
            Err(error) => {
                self.refuse(checkpoint, error);
                return None;
            }
        };
        count_stall(&mut answered, checkpoint.version());
        let Answered { request, answer, mut state, waited, .. } = answered;
        let Answer::Granted(id, place) = answer else {
            unreachable!("a save is granted or refused")
        };
        let room = (request, id, place);
        let granted = checkpoint.prepared.granted(shared, &mut state, room, began);
        drop(state);
        shared.span_of_stall(&granted.grant.frame, place.tier, waited);
        Some((checkpoint, granted))
    }

    /// Saves those that have room, as many as possible by one launch.
    fn save_granted(&mut self, granted: Vec<WithRoom<'c>>) {
        let gpu = self.shared.gpu.as_ref().filter(|_| !self.shared.settings.check_codec);
        // Before any of them is filled by code of the caller, which may panic.
        let mut without_room = Vec::new();
        let enter = |one| self.enter(one, &mut without_room);
        let entered: Vec<_> = granted.into_iter().filter_map(enter).collect();
        without_room.into_iter().rev().for_each(|one| self.todo.push_front(one));
        let mut group = LaunchGroup::default();
        for one in entered {
            let on_device = gpu.filter(|_| one.is_on_device());
            let Some(way) = on_device.and_then(|gpu| Together::of(gpu, &one)) else {
                self.save_group(std::mem::take(&mut group));
                self.save_alone(one);
                continue;
            };
            if group.way != Some(way) || !group.fits(&one) {
                self.save_group(std::mem::take(&mut group));
            }
            group.push(way, one);
        }
        self.save_group(group);
    }

    fn enter(
        &mut self,
        (checkpoint, granted): WithRoom<'c>,
        without_room: &mut Vec<Checkpoint<'c>>,
    ) -> Option<Entered<'c>> {
        match granted.enter() {
            Ok(Some(ticket)) => Some(Entered { checkpoint, ticket }),
            Ok(None) => {
                without_room.push(checkpoint);
                None
            }
            Err(error) => {
                self.refuse(checkpoint, error);
                None
            }
        }
    }

    fn save_alone(&mut self, one: Entered<'c>) {
        let Entered { mut checkpoint, mut ticket } = one;
        let fetched = self.wait_for_host(&checkpoint);
        let filled = fetched.and_then(|()| checkpoint.fill_ticket(&mut ticket));
        if let Err(error) = filled.and_then(|()| ticket.commit()) {
            self.refuse(checkpoint, error);
        }
    }

    /// Waits for the arrays that the host has to encode because the GPU does not: their copies do
    /// not know how long this call may take.
    fn wait_for_host(&self, checkpoint: &Checkpoint<'_>) -> Result<(), Error> {
        let gpu = self.shared.gpu.as_ref().filter(|gpu| gpu.coders().is_none());
        let Some(gpu) = gpu.filter(|_| checkpoint.prepared.plan().is_some()) else { return Ok(()) };
        checkpoint.arrays().try_for_each(|(_, _, stream)| self.wait_for_arrays(gpu, stream))
    }

    fn save_group(&mut self, group: LaunchGroup<'c>) {
        let Some((way, gpu)) = group.way.zip(self.shared.gpu.clone()) else { return };
        let mut members = group.members;
        // A stream that cannot be asked counts as not captured: its launch fails then, if something
        // is wrong with it.
        if streams(&members).iter().any(|stream| stream.is_capturing().unwrap_or(false)) {
            for one in members.extract_if(.., |one| one.checkpoint.is_captured()) {
                self.refuse(one.checkpoint, gpu::captured());
            }
        }
        if members.is_empty() {
            return;
        }
        match way {
            Together::Copied => self.copy_group(&gpu, members),
            Together::Encoded(_) => match launch(&gpu, &mut members) {
                Ok(()) => self.leave_to_completion(members),
                Err(cause) => self.launch_failed(&gpu, way, members, &cause),
            },
        }
    }

    /// Saves checkpoints that are kept as they are; one by one, where that fails, so that those
    /// that can be saved are.
    fn copy_group(&mut self, gpu: &Gpu, mut members: Vec<Entered<'c>>) {
        if let Err(cause) = plain::copy_all(gpu, &mut members) {
            self.shared.note_once(&format!("Checkpoints could not be copied together: {cause}"));
            return members.into_iter().for_each(|one| self.save_alone(one));
        }
        if let Err(error) = plain::commit_all(self.shared, &mut members) {
            for one in members {
                drop(one.ticket);
                self.refuse(one.checkpoint, error.again());
            }
        }
    }

    /// The encoder of these is under way.
    fn leave_to_completion(&mut self, mut members: Vec<Entered<'c>>) {
        let count = members.len() as u64;
        let Some(last) = members.last().map(|one| one.checkpoint.version()) else { return };
        let saves = members.iter_mut().filter_map(|one| one.ticket.in_flight()).collect();
        self.shared.state().counters.launches.add(count);
        let handed = leave_all_to_completion(self.shared, saves);
        self.shared.count_kernels(Call::Save, last);
        for Entered { checkpoint, ticket } in members {
            match &handed {
                Ok(()) => ticket.grant.end_span("done"),
                Err(error) => self.refuse(checkpoint, error.again()),
            }
        }
    }

    /// The GPU does not take these together: each is tried alone, and then encoded by the host.
    fn launch_failed(
        &mut self,
        gpu: &Gpu,
        way: Together,
        members: Vec<Entered<'c>>,
        cause: &DeviceError,
    ) {
        self.shared.note_once(&format!("Checkpoints could not be encoded together: {cause}"));
        if members.len() > 1 {
            return members.into_iter().for_each(|one| self.save_group(LaunchGroup::of(way, one)));
        }
        for mut one in members {
            match self.encode_on_host(gpu, &mut one, cause) {
                Ok(()) => {
                    if let Err(error) = one.ticket.commit() {
                        self.refuse(one.checkpoint, error);
                    }
                }
                Err(error) => {
                    drop(one.ticket);
                    self.refuse(one.checkpoint, error);
                }
            }
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
        let SaveState::Coded { encoded, .. } = &mut one.ticket.state else { return Ok(()) };
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
                return Err(Error::new(ErrorKind::Interrupted, "the wait was interrupted."));
            }
            if Instant::now() >= self.until {
                let message = "the GPU has not come to its arrays in time.";
                return Err(Error::new(ErrorKind::Timeout, message));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
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

/// How a checkpoint is saved together with others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    /// It is kept as it is.
    Copied,
    /// By this codec.
    Encoded(CodecId),
}

impl Together {
    fn of(gpu: &Gpu, one: &Entered<'_>) -> Option<Together> {
        let encoded = || one.checkpoint.together(gpu).map(Together::Encoded);
        if plain::can_join(gpu, one) { Some(Together::Copied) } else { encoded() }
    }
}

/// Checkpoints that are saved together.
#[derive(Default)]
struct LaunchGroup<'c> {
    /// `None` while there are none.
    way: Option<Together>,
    members: Vec<Entered<'c>>,
    regions: usize,
}

impl<'c> LaunchGroup<'c> {
    fn of(way: Together, one: Entered<'c>) -> LaunchGroup<'c> {
        let mut group = LaunchGroup::default();
        group.push(way, one);
        group
    }

    fn fits(&self, one: &Entered<'_>) -> bool {
        self.regions + one.checkpoint.values.len() <= MOST_REGIONS
    }

    fn push(&mut self, way: Together, one: Entered<'c>) {
        self.way = Some(way);
        self.regions += one.checkpoint.values.len();
        self.members.push(one);
    }
}

impl Entered<'_> {
    /// Whether its room is in the memory of a device.
    fn is_on_device(&self) -> bool {
        match &self.ticket.state {
            SaveState::Coded { room: Room::Arena(guard), .. }
            | SaveState::Plain { room: Room::Arena(guard), .. } => guard.device().is_some(),
            _ => false,
        }
    }
}
