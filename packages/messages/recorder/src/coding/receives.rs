//! Receives that may get a message of a channel of the plan: they go to a buffer that has room for
//! the longest that the program takes, and are taken apart there.

use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

use unspool_messages::Place;
use unspool_messages::coded::{Body, HEADER, LONGEST, Peer};

use super::calls::{Room, Status};
use super::messages::Begun;
use super::{Coding, Pending, Real, State};
use crate::abi::Handle;
use crate::args::Args;
use crate::comms::Comms;
use crate::datatypes::Datatype;
use crate::device::Devices;

/// How long a message is waited for that MPI has matched before another one that is here.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes that follow the header and the content of a coded message: a hash, and a list of
/// the earlier messages that its sender no longer keeps.
pub(super) const MORE: usize = 128;

/// What a call receives.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    pub(super) comm: Handle,
    pub(super) number: u64,
    /// The rank that it is received from; below 0 for any, or for none.
    source: c_int,
    /// The tag; below 0 for any.
    tag: c_int,
    buffer: usize,
    /// Bytes that the program has room for.
    bytes: u64,
    count: i64,
    datatype: Datatype,
}

/// A receive that is under way.
pub(super) struct Receive {
    what: Incoming,
    request: Handle,
    /// The datatype by a handle of ours, where a message has to be unpacked: the program may give
    /// its own up before the message is here.
    unpacked_as: Option<Handle>,
    /// What arrives.
    room: Vec<u8>,
    pub(super) stage: Stage,
}

/// How far a receive is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nobody has asked for it yet.
    Posted,
    /// A thread is in a call that may complete it.
    InCall,
    /// The message is in the program's memory, with its length in bytes, or this is its error.
    Decoded { bytes: Option<usize>, error: c_int },
}

/// The room of a receive on the wire, in bytes, for a program that has room for `bytes`.
fn room_for(bytes: u64) -> usize {
    LONGEST.min(usize::try_from(bytes).unwrap_or(LONGEST)) + HEADER + MORE
}

impl Coding {
    pub(super) fn receive(&self, args: &Args, real: Real) -> c_int {
        let mut state = self.lock();
        let Some(incoming) = self.incoming(&mut state, args) else {
            drop(state);
            return real(args.words());
        };
        if !matches!(args.call.name, "Recv" | "Irecv") {
            drop(state);
            self.refuse(args, "a prepared receive");
            return real(args.words());
        }
        let begun = match self.begin_receive(&mut state, &incoming) {
            Ok(begun) => begun,
            Err(code) => return code,
        };
        if let Some(cell) = args.address('q') {
            self.hand_out(&mut state, &begun, cell);
            return 0;
        }
        drop(state);
        let mut room = Room::default();
        self.finish_receive(begun, self.status_of(args, &mut room))
    }

    /// What a call receives; `None` when no channel of the plan can be in it.
    pub(super) fn incoming(&self, state: &mut State, args: &Args) -> Option<Incoming> {
        let comm = args.comm(self.mpi)?;
        let tag = args.number(if args.has('h') { 'h' } else { 'g' })?;
        let number = self.channel(state, comm, tag)?;
        let (buffer, count, of) = args.received(self.mpi);
        let datatype = state.datatypes.get(self.mpi, of).filter(|_| count >= 0)?;
        let bytes = (count as u64).checked_mul(datatype.size)?;
        let source = args.number('s').filter(|source| *source != self.mpi.abi.no_rank())?;
        Some(Incoming { comm, number, source, tag, buffer, bytes, count, datatype })
    }

    pub(super) fn begin_receive(&self, state: &mut State, what: &Incoming) -> Result<Begun, c_int> {
        let most = room_for(what.bytes);
        let mut room = state.rooms.take(most);
        let mut request = 0_usize;
        let (to, cell, byte) = (room.as_mut_ptr().cast(), &raw mut request, self.mpi.abi.byte());
        let (source, tag) = (what.source, what.tag);
        // SAFETY: the room has `most` bytes, and is kept below until the request is complete.
        let code =
            unsafe { (self.calls.irecv)(to, most as c_int, byte, source, tag, what.comm, cell) };
        if code != 0 {
            state.rooms.give(room);
            return Err(code);
        }
        let request = self.mpi.abi.handle(request);
        let id = state.next();
        let of = &what.datatype;
        let unpacked_as = match of.dense(what.count) {
            Some(_) => None,
            None => self.mpi.copy_of(of.handle),
        };
        let receive = Receive { what: *what, request, unpacked_as, room, stage: Stage::Posted };
        state.pending.insert(id, Pending::Receive(receive));
        Ok(Begun { id: Some(id), request })
    }

    /// Waits for a receive that no other thread knows of.
    pub(super) fn finish_receive(&self, begun: Begun, status: Status) -> c_int {
        if let Some(id) = begun.id {
            self.lock().enter(id);
        }
        let mut request = begun.request;
        // SAFETY: a request that was begun here and nobody else has.
        let code = unsafe { (self.calls.wait)(&raw mut request, status.place()) };
        match begun.id {
            Some(id) => self.settle(id, status, code),
            None => code,
        }
    }

    /// Gives the program the message of a receive that MPI has completed, and forgets the receive.
    /// The result is the error code of the call. An error that was found here, and not by MPI, goes
    /// to the error handler that the program has set.
    pub(super) fn settle(&self, id: u64, status: Status, code: c_int) -> c_int {
        let error = if code == 0 { self.decode_in_turn(id, status) } else { code };
        let mut state = self.lock();
        match state.pending.remove(&id) {
            Some(Pending::Receive(receive)) => {
                state.rooms.give(receive.room);
                let is_there = state.coded.contains_key(&receive.what.comm);
                drop(state);
                if let Some(copy) = receive.unpacked_as {
                    self.mpi.free(copy);
                }
                if error != 0 && code == 0 && is_there {
                    // SAFETY: the communicator of a receive that the program has just completed.
                    let _told = unsafe { (self.calls.call_errhandler)(receive.what.comm, error) };
                }
            }
            Some(Pending::Send(wire)) => state.rooms.give(wire),
            None => {}
        }
        error
    }

    /// Gives the program the message of a receive when those that were posted before it, and could
    /// have got it, have theirs.
    pub(super) fn decode_in_turn(&self, id: u64, status: Status) -> c_int {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut state = self.lock();
            let Some(Pending::Receive(receive)) = state.pending.get(&id) else { return 0 };
            let what = receive.what;
            if let Stage::Decoded { bytes, error } = receive.stage {
                if let Some(bytes) = bytes {
                    status.set_bytes(&self.calls, bytes);
                }
                return error;
            }
            if self.decode_before(&mut state, id, status) {
                return self.decode(&mut state, id, status);
            }
            if Instant::now() > until {
                let why = format!(
                    "a message that was sent before the one that is here has not come for {} s.",
                    PATIENCE.as_secs()
                );
                self.end(&state, what.number, status.source(), status.tag(), &why);
            }
            drop(state);
            thread::yield_now();
        }
    }

    /// Gives the program what has arrived for receives that were posted before this one and could
    /// have got its message; whether that is all of them. Such a receive was matched before, as
    /// otherwise it would have got the message. A receive that was cancelled has got none, and
    /// waits for nothing.
    fn decode_before(&self, state: &mut State, id: u64, status: Status) -> bool {
        let Some(Pending::Receive(own)) = state.pending.get(&id) else { return true };
        if status.bytes(&self.calls).is_none() {
            return true;
        }
        let (comm, source, tag) = (own.what.comm, status.source(), status.tag());
        let could_get = |one: &Incoming| {
            one.comm == comm
                && (one.source < 0 || one.source == source)
                && (one.tag < 0 || one.tag == tag)
        };
        let before: Vec<u64> = state
            .pending
            .range(..id)
            .filter(|(_, one)| match one {
                Pending::Receive(one) => {
                    could_get(&one.what) && !matches!(one.stage, Stage::Decoded { .. })
                }
                Pending::Send(_) => false,
            })
            .map(|(id, _)| *id)
            .collect();
        before.into_iter().all(|id| self.decode_if_here(state, id))
    }

    /// Waits until all of these receives have their messages, without being in a call with one of
    /// them: a thread that waits for all of several requests may wait for what another thread only
    /// does when it has a later message of the same channel. It takes as long as `MPI_Waitall` of
    /// the same receives would.
    pub(super) fn wait_for(&self, ids: &[u64]) {
        loop {
            let mut state = self.lock();
            let left = ids.iter().filter(|id| !self.decode_if_here(&mut state, **id)).count();
            drop(state);
            if left == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    /// Gives the program the message of a receive that it has not asked for, if it is here; whether
    /// nothing more is to come for this receive.
    fn decode_if_here(&self, state: &mut State, id: u64) -> bool {
        let Some(Pending::Receive(receive)) = state.pending.get(&id) else { return true };
        match receive.stage {
            Stage::Decoded { .. } => return true,
            Stage::InCall => return false,
            Stage::Posted => {}
        }
        let (mut is_here, mut room) = (0, Room::default());
        // SAFETY: a request of ours that no thread is in a call with.
        let code = unsafe { (self.calls.look)(receive.request, &raw mut is_here, room.place()) };
        // SAFETY: MPI has filled it, or it has zeros.
        let status = unsafe { Status::at(self.mpi.abi, room.place()) };
        if code != 0 || (is_here != 0 && status.error() != 0) {
            // It has failed, which the call says that completes it.
            return true;
        }
        if is_here == 0 || !self.decode_before(state, id, status) {
            return false;
        }
        let _told_when_asked = self.decode(state, id, status);
        true
    }

    /// Gives the program the message that has arrived for a receive. The result is the error that
    /// its call has.
    fn decode(&self, state: &mut State, id: u64, status: Status) -> c_int {
        let Some(Pending::Receive(mut receive)) = state.pending.remove(&id) else { return 0 };
        let what = receive.what;
        let (source, tag) = (status.source(), status.tag());
        let (mut bytes, mut error) = (None, 0);
        // Nothing has arrived when it was cancelled, or from MPI_PROC_NULL. Of one that was cut
        // off, some MPIs tell its whole length: the call that completes it has its error.
        let is_here = |bytes: &usize| source >= 0 && *bytes <= room_for(what.bytes);
        let arrived = status.bytes(&self.calls).filter(is_here);
        if let Some(arrived) = arrived {
            // SAFETY: MPI has written the first `arrived` bytes, and the room holds at least these.
            unsafe { receive.room.set_len(arrived) };
            let is_coded = self.plan.channels.contains_key(&(what.number, tag));
            let from = Peer { comm: what.number, rank: source as u32 };
            let body = if is_coded {
                state.receiver.take(from, tag, &receive.room)
            } else {
                Ok(Body::There(&receive.room))
            };
            let body = match body {
                Ok(body) => body,
                Err(why) => {
                    let why = format!(
                        "{why}. Do all ranks run the program that was recorded, with this library?"
                    );
                    self.end(state, what.number, source, tag, &why)
                }
            };
            let message = body.bytes();
            bytes = Some(message.len());
            if message.len() as u64 > what.bytes {
                error = self.mpi.abi.errors()[0];
            } else {
                self.put(&mut state.devices, &state.comms, &receive, (source, tag), message);
                status.set_bytes(&self.calls, message.len());
            }
        }
        receive.stage = Stage::Decoded { bytes, error };
        state.pending.insert(id, Pending::Receive(receive));
        error
    }

    /// Puts a message where the program wants it.
    fn put(
        &self,
        devices: &mut Devices,
        comms: &Comms,
        receive: &Receive,
        (source, tag): (c_int, c_int),
        message: &[u8],
    ) {
        let what = &receive.what;
        if message.is_empty() {
            return;
        }
        let fail = |why: &str| -> ! {
            let why = format!(
                "messages with rank {source} of {}, tag {tag}: {why}",
                comms.name_of(what.number)
            );
            super::end(self.mpi, &self.calls, &why)
        };
        if let Some(begins) = what.datatype.dense(what.count) {
            let first = what.buffer.wrapping_add_signed(begins);
            if first == 0 || devices.place(first) != Place::Host {
                fail("a message for memory that is not the host's.");
            }
            // SAFETY: the program has said that there is room for as many bytes, which were
            // compared.
            unsafe {
                std::ptr::copy_nonoverlapping(message.as_ptr(), first as *mut u8, message.len());
            }
            return;
        }
        let size = what.datatype.size.max(1);
        let whole = (message.len() as u64).is_multiple_of(size);
        let count = i32::try_from(message.len() as u64 / size).ok().filter(|_| whole);
        let of = receive.unpacked_as.unwrap_or(what.datatype.handle);
        // The communicator of the receive may be given up by now. Any one does to unpack.
        let world = self.mpi.abi.world();
        let done =
            count.is_some_and(|count| self.mpi.unpacked(message, what.buffer, count, of, world));
        if !done {
            fail("a part of a value with gaps has arrived, which is not unpacked.");
        }
    }
}

impl State {
    /// Notes that a thread is in a call with a receive.
    pub(super) fn enter(&mut self, id: u64) {
        if let Some(Pending::Receive(receive)) = self.pending.get_mut(&id)
            && receive.stage == Stage::Posted
        {
            receive.stage = Stage::InCall;
        }
    }

    /// Notes that the call has not completed it.
    pub(super) fn leave(&mut self, id: u64) {
        if let Some(Pending::Receive(receive)) = self.pending.get_mut(&id)
            && receive.stage == Stage::InCall
        {
            receive.stage = Stage::Posted;
        }
    }
}
