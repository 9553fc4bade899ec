//! Calls that wait for requests or look at them, some of which are ours, and calls that look at
//! messages.

use std::ffi::c_int;

use unspool_messages::calls::Does;

use super::calls::{Room, Status};
use super::{Coding, Pending, Real};
use crate::args::Args;

impl Coding {
    /// Waits or tests as the call does, and gives the program the messages of what is complete.
    pub(super) fn complete(&self, args: &Args, real: Real) -> c_int {
        let ours = self.take_out(args);
        if ours.iter().all(Option::is_none) {
            return real(args.words());
        }
        let bytes = self.mpi.abi.status_bytes();
        let (mut words, mut rooms) = (args.words().to_vec(), Vec::new());
        let last = words.len() - 1;
        if words[last] == self.mpi.abi.no_status() {
            rooms.resize(ours.len(), Room::default());
            words[last] = rooms.as_mut_ptr() as usize;
        }
        let code = real(&words);
        let completed = self.put_back(args, &ours);
        let mut first = 0;
        for (id, place) in completed {
            // SAFETY: a status for each request, or the one of the call, is there.
            let status =
                unsafe { Status::at(self.mpi.abi, (words[last] + place * bytes) as *mut u8) };
            let own = self.own_error(args, status, code);
            let error = self.settle(id, status, own);
            if error != 0 && own == 0 {
                status.set_error(error);
                first = if first == 0 { error } else { first };
            }
        }
        match (code, first) {
            (0, 0) => 0,
            (0, error) => self.tell_error(args, error, words[last], ours.len()),
            (code, _) => code,
        }
    }

    /// The numbers of our requests among those of a call, which no other thread finds until they
    /// are put back.
    fn take_out(&self, args: &Args) -> Vec<Option<u64>> {
        let mut state = self.lock();
        if state.handles.is_empty() {
            return Vec::new();
        }
        let cells = self.cells(args);
        let mut ours = Vec::with_capacity(cells.len());
        for cell in cells {
            // SAFETY: the program's own request, as its call says.
            let request = unsafe { self.mpi.abi.handle_at(cell) };
            ours.push(state.handles.remove(&request));
        }
        drop(state);
        let known: Vec<u64> = ours.iter().flatten().copied().collect();
        if args.call.does == Does::Waitall {
            self.wait_for(&known);
        }
        let mut state = self.lock();
        known.into_iter().for_each(|id| state.enter(id));
        ours
    }

    /// Puts back what the call has not completed. What it has, in the order in which it was begun,
    /// with the place of its status.
    fn put_back(&self, args: &Args, ours: &[Option<u64>]) -> Vec<(u64, usize)> {
        let mut state = self.lock();
        let null = self.mpi.abi.null_request();
        let mut completed = Vec::new();
        for (index, cell) in self.cells(args).into_iter().enumerate() {
            let Some(id) = ours[index] else { continue };
            // SAFETY: as before the call.
            let request = unsafe { self.mpi.abi.handle_at(cell) };
            if request == null {
                completed.push((id, self.status_place(args, index)));
            } else {
                state.handles.insert(request, id);
                state.leave(id);
            }
        }
        completed.sort_unstable();
        completed
    }

    /// The addresses of the requests of a call.
    fn cells(&self, args: &Args) -> Vec<usize> {
        if let Some(cell) = args.address('q') {
            return vec![cell];
        }
        let count = args.number('k').unwrap_or(0).max(0) as usize;
        let bytes = self.mpi.abi.handle_bytes();
        let array = args.address('A');
        array.map_or_else(Vec::new, |array| (0..count).map(|i| array + i * bytes).collect())
    }

    /// Which status of a call is that of the request at `index`.
    fn status_place(&self, args: &Args, index: usize) -> usize {
        if args.has('I') {
            let count = args.result('i').unwrap_or(0).max(0) as usize;
            let is_it = |place: &usize| args.index_at(*place) == Some(index as i32);
            return (0..count).find(is_it).unwrap_or(0);
        }
        let has_one = args.has('q') || args.has('i');
        if has_one { 0 } else { index }
    }

    /// Whether a call has a status for each request.
    fn has_several(&self, args: &Args) -> bool {
        args.has('A') && (args.has('I') || !args.has('i'))
    }

    /// The error of one request of a call.
    fn own_error(&self, args: &Args, status: Status, code: c_int) -> c_int {
        let in_status = self.mpi.abi.errors()[1];
        if code != 0 && self.has_several(args) && code == in_status { status.error() } else { code }
    }

    /// Tells the program of an error that MPI has not seen.
    fn tell_error(&self, args: &Args, error: c_int, statuses: usize, count: usize) -> c_int {
        if !self.has_several(args) {
            return error;
        }
        let filled = match args.call.does {
            Does::Waitsome | Does::Test if args.has('I') => {
                args.result('i').unwrap_or(0).max(0) as usize
            }
            _ => count,
        };
        let truncated = self.mpi.abi.errors()[0];
        for place in 0..filled {
            let place = (statuses + place * self.mpi.abi.status_bytes()) as *mut u8;
            // SAFETY: as many statuses were filled.
            let status = unsafe { Status::at(self.mpi.abi, place) };
            if status.error() != truncated {
                status.set_error(0);
            }
        }
        self.mpi.abi.errors()[1]
    }

    /// Looks at a request and leaves it; its message is there for the program when it is complete.
    pub(super) fn look(&self, args: &Args, real: Real) -> c_int {
        let request = args.address('v').map(|word| self.mpi.abi.handle(word));
        let id = {
            let state = self.lock();
            let id = request.and_then(|request| state.handles.get(&request).copied());
            id.filter(|id| matches!(state.pending.get(id), Some(Pending::Receive(_))))
        };
        let Some(id) = id else { return real(args.words()) };
        let (mut words, mut room) = (args.words().to_vec(), Room::default());
        let status = self.status_of(args, &mut room);
        words[args.status_at()] = status.place() as usize;
        let code = real(&words);
        if code == 0 && args.result('f').unwrap_or(0) != 0 {
            let _told_by_the_wait = self.decode_in_turn(id, status);
        }
        code
    }

    /// Ends the program when it does something to a request of ours that would lose a message.
    pub(super) fn touch(&self, args: &Args) {
        let mut state = self.lock();
        for cell in self.cells(args) {
            // SAFETY: the program's own request, as its call says.
            let request = unsafe { self.mpi.abi.handle_at(cell) };
            let Some(id) = state.handles.get(&request).copied() else { continue };
            match (state.pending.get(&id), args.call.does) {
                // MPI gives it up when it is sent, and nobody says when that is: its bytes stay.
                (Some(Pending::Send(_)), Does::RequestFree) => {
                    state.handles.remove(&request);
                    if let Some(Pending::Send(wire)) = state.pending.remove(&id) {
                        std::mem::forget(wire);
                    }
                }
                // What is taken back is received plainly, or not at all.
                (Some(Pending::Receive(_)), Does::Cancel) => {}
                (Some(_), _) => self.lost(args),
                (None, _) => {}
            }
        }
    }

    fn lost(&self, args: &Args) -> ! {
        let why = format!(
            "MPI_{} of a request of coded messages is not possible. Leave this program uncoded.",
            args.call.name
        );
        super::end(self.mpi, &self.calls, &why)
    }

    /// Ends the program when it finds a message of the plan by looking for messages: it would see
    /// its length on the wire.
    pub(super) fn probe(&self, args: &Args, real: Real) -> c_int {
        let Some(comm) = args.comm(self.mpi) else { return real(args.words()) };
        let Some(number) = self.channel(&self.lock(), comm, -1) else { return real(args.words()) };
        let (mut words, mut room) = (args.words().to_vec(), Room::default());
        let status = self.status_of(args, &mut room);
        words[args.status_at()] = status.place() as usize;
        let code = real(&words);
        let found = args.succeeded(code) && args.result('f').is_none_or(|flag| flag != 0);
        if found && status.source() >= 0 {
            let state = self.lock();
            if self.channel(&state, comm, status.tag()).is_some() {
                let why = format!(
                    "MPI_{} has found a coded message, whose length it does not see. Leave this \
                     program uncoded.",
                    args.call.name
                );
                self.end(&state, number, status.source(), status.tag(), &why);
            }
        }
        code
    }
}
