//! Messages that are sent, and calls that send and receive.

use std::ffi::c_int;
use std::slice;

use unspool_messages::Place;
use unspool_messages::coded::{HEADER, LONGEST, Peer};

use super::calls::{Room, Status};
use super::receives::MORE;
use super::{Coding, Pending, Real, State};
use crate::abi::Handle;
use crate::args::Args;
use crate::datatypes::Datatype;

/// A message that a call sends in a channel of the plan.
#[derive(Clone, Copy)]
struct Outgoing {
    comm: Handle,
    number: u64,
    to: c_int,
    tag: c_int,
    buffer: usize,
    count: i64,
    datatype: Datatype,
}

/// A request that was begun: ours, with its number, or one of MPI alone.
pub(super) struct Begun {
    pub(super) id: Option<u64>,
    pub(super) request: Handle,
}

impl Coding {
    pub(super) fn send(&self, args: &Args, real: Real) -> c_int {
        let mut state = self.lock();
        let outgoing = self.outgoing(&mut state, args);
        if args.has('h') {
            let incoming = self.incoming(&mut state, args);
            drop(state);
            return match (&outgoing, &incoming) {
                (None, None) => real(args.words()),
                _ => self.send_and_receive(args, outgoing, incoming),
            };
        }
        let Some(outgoing) = outgoing else {
            drop(state);
            return real(args.words());
        };
        let begun = match self.begin_send(&mut state, args, &outgoing) {
            Ok(begun) => begun,
            Err(code) => return code,
        };
        match args.address('q') {
            Some(cell) => self.hand_out(&mut state, &begun, cell),
            None => {
                drop(state);
                return self.finish_send(begun);
            }
        }
        0
    }

    /// The message of a call; `None` when it is of no channel of the plan, or MPI refuses it.
    fn outgoing(&self, state: &mut State, args: &Args) -> Option<Outgoing> {
        let comm = args.comm(self.mpi)?;
        let (to, tag) = (args.number('d')?, args.number('g')?);
        let number = self.channel(state, comm, tag).filter(|_| tag >= 0)?;
        let known = state.comms.get(self.mpi, &mut state.part, comm)?;
        // Nothing is sent to MPI_PROC_NULL.
        u32::try_from(to).ok().filter(|to| *to < known.size)?;
        let count = args.count('n').filter(|count| *count >= 0)?;
        let datatype = state.datatypes.get(self.mpi, args.datatype(self.mpi, 't')?)?;
        Some(Outgoing { comm, number, to, tag, buffer: args.buffer()?, count, datatype })
    }

    /// Begins to send a message as it is on the wire.
    fn begin_send(&self, state: &mut State, args: &Args, out: &Outgoing) -> Result<Begun, c_int> {
        let start = match args.call.name {
            "Send" | "Isend" | "Sendrecv" | "Sendrecv_replace" => self.calls.isend,
            "Ssend" | "Issend" => self.calls.issend,
            "Rsend" | "Irsend" => self.calls.irsend,
            other => {
                let why = format!("MPI_{other} is not coded. Leave this program uncoded.");
                self.end(state, out.number, out.to, out.tag, &why)
            }
        };
        let wire = self.wire(state, out);
        let (byte, length) = (self.mpi.abi.byte(), wire.len() as c_int);
        let mut request = 0_usize;
        let place = (wire.as_ptr().cast(), &raw mut request);
        // SAFETY: the bytes stay where they are until the request is complete: they are kept below.
        let code = unsafe { start(place.0, length, byte, out.to, out.tag, out.comm, place.1) };
        if code != 0 {
            // The receiver would miss it.
            let why = format!("MPI does not send (error {code}).");
            self.end(state, out.number, out.to, out.tag, &why);
        }
        let request = self.mpi.abi.handle(request);
        let (mut is_sent, mut room) = (0, Room::default());
        // SAFETY: the request from above.
        let code = unsafe { (self.calls.look)(request, &raw mut is_sent, room.place()) };
        if code == 0 && is_sent != 0 {
            // MPICH has one request for all messages that are sent at once.
            state.rooms.give(wire);
            return Ok(Begun { id: None, request });
        }
        let id = state.next();
        state.pending.insert(id, Pending::Send(wire));
        Ok(Begun { id: Some(id), request })
    }

    /// A message as it is on the wire.
    fn wire(&self, state: &mut State, out: &Outgoing) -> Vec<u8> {
        let bytes = (out.count as u64).checked_mul(out.datatype.size);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = bytes.filter(|bytes| *bytes <= LONGEST) else {
            self.end(state, out.number, out.to, out.tag, "a message of more than 2 GiB.");
        };
        let packed;
        let message: &[u8] = match out.datatype.dense(out.count) {
            _ if bytes == 0 => &[],
            Some(begins) => {
                let first = out.buffer.wrapping_add_signed(begins);
                if first == 0 || state.devices.place(first) != Place::Host {
                    let why = "a message that is not in memory of the host.";
                    self.end(state, out.number, out.to, out.tag, why);
                }
                // SAFETY: the program hands these bytes to a call that reads them.
                unsafe { slice::from_raw_parts(first as *const u8, bytes) }
            }
            None => {
                let count = i32::try_from(out.count).ok();
                let of = out.datatype.handle;
                let found = count
                    .and_then(|count| self.mpi.packed(out.buffer, count, of, out.comm))
                    .filter(|found| found.len() == bytes);
                let Some(found) = found else {
                    self.end(state, out.number, out.to, out.tag, "MPI does not pack a message.");
                };
                packed = found;
                &packed
            }
        };
        let choice = self.plan.choice(out.number, out.tag, bytes as u64);
        let to = Peer { comm: out.number, rank: out.to as u32 };
        let mut wire = state.rooms.take(bytes + HEADER + MORE);
        state.sender.put(to, out.tag, choice, out.datatype.values, message, &mut wire);
        wire
    }

    /// Gives the program a request of ours.
    pub(super) fn hand_out(&self, state: &mut State, begun: &Begun, cell: usize) {
        // SAFETY: the program's own place for a request, as its call says.
        unsafe { self.mpi.abi.put_handle(cell, begun.request) };
        if let Some(id) = begun.id {
            state.handles.insert(begun.request, id);
        }
    }

    /// Waits until a message is sent, or has arrived where MPI puts it.
    pub(super) fn finish_send(&self, begun: Begun) -> c_int {
        let (mut request, mut room) = (begun.request, Room::default());
        // SAFETY: a request that was begun here and nobody else has.
        let code = unsafe { (self.calls.wait)(&raw mut request, room.place()) };
        let mut state = self.lock();
        if let Some(Pending::Send(room)) = begun.id.and_then(|id| state.pending.remove(&id)) {
            state.rooms.give(room);
        }
        code
    }

    /// A call that sends and receives: both are begun and waited for. What is sent is begun first,
    /// as what is received may be put in its place.
    fn send_and_receive(
        &self,
        args: &Args,
        outgoing: Option<Outgoing>,
        incoming: Option<super::receives::Incoming>,
    ) -> c_int {
        if args.has('q') {
            self.refuse(args, "a call that sends and receives and goes on");
        }
        let mut state = self.lock();
        let sent = match &outgoing {
            Some(outgoing) => self.begin_send(&mut state, args, outgoing),
            None => self.send_plainly(&mut state, args),
        };
        let sent = match sent {
            Ok(sent) => sent,
            Err(code) => return code,
        };
        let received = match &incoming {
            Some(incoming) => self.begin_receive(&mut state, incoming),
            None => self.receive_plainly(args),
        };
        drop(state);
        let received = match received {
            Ok(received) => received,
            Err(code) => {
                let _sent = self.finish_send(sent);
                return code;
            }
        };
        let mut room = Room::default();
        let status = self.status_of(args, &mut room);
        let code = self.finish_receive(received, status);
        let sent = self.finish_send(sent);
        if code == 0 { sent } else { code }
    }

    fn send_plainly(&self, state: &mut State, args: &Args) -> Result<Begun, c_int> {
        let number = |letter| args.number(letter).unwrap_or(-1);
        let large = args.count('n').unwrap_or(-1);
        let count = c_int::try_from(large).ok();
        let of = args.datatype(self.mpi, 't').unwrap_or(0);
        let comm = args.comm(self.mpi).unwrap_or(0);
        let (to, tag, buffer) = (number('d'), number('g'), args.words()[0]);
        let mut request = 0_usize;
        if to < 0 || !args.call.name.starts_with("Sendrecv_replace") {
            let (from, place) = (buffer as *const _, &raw mut request);
            // SAFETY: the program's own arguments, in a call that it makes.
            let code = unsafe {
                match (self.calls.isend_large, count) {
                    (Some(isend), None) => isend(from, large, of, to, tag, comm, place),
                    (_, count) => {
                        (self.calls.isend)(from, count.unwrap_or(-1), of, to, tag, comm, place)
                    }
                }
            };
            return if code == 0 { Ok(Begun { id: None, request }) } else { Err(code) };
        }
        // What is received is decoded into the same memory, perhaps before MPI has read all of it.
        let copy = count.and_then(|count| self.mpi.packed(buffer, count, of, comm));
        let sized = copy.and_then(|copy| Some((c_int::try_from(copy.len()).ok()?, copy)));
        let Some((bytes, copy)) = sized else {
            let number = state.coded.get(&comm).copied().unwrap_or(0);
            self.end(state, number, to, tag, "MPI does not pack a message.");
        };
        let (from, place) = (copy.as_ptr().cast(), &raw mut request);
        // SAFETY: the copy is there until the request is done.
        let code =
            unsafe { (self.calls.isend)(from, bytes, self.mpi.abi.byte(), to, tag, comm, place) };
        if code != 0 {
            return Err(code);
        }
        let (id, request) = (state.next(), self.mpi.abi.handle(request));
        state.pending.insert(id, Pending::Send(copy));
        Ok(Begun { id: Some(id), request })
    }

    fn receive_plainly(&self, args: &Args) -> Result<Begun, c_int> {
        let number = |letter| args.number(letter).unwrap_or(-1);
        let (buffer, count, of) = args.received(self.mpi);
        let (comm, from, tag) = (args.comm(self.mpi).unwrap_or(0), number('s'), number('h'));
        let mut request = 0_usize;
        let (to, place) = (buffer as *mut _, &raw mut request);
        let small = c_int::try_from(count).ok();
        // SAFETY: the program's own arguments, in a call that it makes.
        let code = unsafe {
            match (self.calls.irecv_large, small) {
                (Some(irecv), None) => irecv(to, count, of, from, tag, comm, place),
                (_, small) => {
                    (self.calls.irecv)(to, small.unwrap_or(-1), of, from, tag, comm, place)
                }
            }
        };
        if code == 0 { Ok(Begun { id: None, request }) } else { Err(code) }
    }

    /// Where the status of a call of one request goes: where the program wants it, or `room`.
    pub(super) fn status_of(&self, args: &Args, room: &mut Room) -> Status {
        let place = args.status(self.mpi).map_or_else(|| room.place(), |word| word as *mut u8);
        // SAFETY: the program's own place for a status, or the room.
        unsafe { Status::at(self.mpi.abi, place) }
    }
}
