//! The communicators whose messages are coded, on which all of their ranks agree.

use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

use unspool_messages::calls::Does;

use super::{Coding, Real, end};
use crate::abi::Handle;
use crate::args::Args;

/// How long a rank waits for the others to say what they have.
const PATIENCE: Duration = Duration::from_secs(60);

impl Coding {
    /// Sees that all ranks have the plan, and takes `MPI_COMM_WORLD` in when it is in it.
    pub(super) fn take_world(&self, size: u32) {
        let world = self.mpi.abi.world();
        let told = self.agree(world, size, self.sum);
        if told.is_none() {
            let why = format!(
                "another rank has said nothing for {} s. Is the library preloaded there, and the \
                 plan in its environment? With Open MPI on several machines, give mpirun \
                 `-x LD_PRELOAD -x LD_AUDIT -x UNSPOOL_MESSAGES_PLAN`.",
                PATIENCE.as_secs()
            );
            end(self.mpi, &self.calls, &why);
        }
        if told == Some(false) {
            end(self.mpi, &self.calls, "another rank has another plan.");
        }
        let state = &mut *self.lock();
        let known = state.comms.get(self.mpi, &mut state.part, world);
        if let Some(number) = known.map(|known| known.id).filter(|number| self.plan.has(*number)) {
            state.coded.insert(world, number);
        }
    }

    /// Makes a communicator, and takes it in when it is in the plan. All of its ranks are in this
    /// call, so they can agree in it.
    pub(super) fn communicator(&self, args: &Args, real: Real) -> c_int {
        let code = real(args.words());
        if args.succeeded(code)
            && let Some((new, size, number)) = self.made(args)
        {
            match self.agree(new, size, number) {
                Some(true) if self.plan.has(number) => {
                    self.lock().coded.insert(new, number);
                }
                Some(_) => {}
                None => {
                    let why = "the ranks of a new communicator do not answer.";
                    end(self.mpi, &self.calls, why)
                }
            }
        }
        code
    }

    /// Numbers a communicator that was made. Handle, size and number of one whose ranks are to
    /// agree on it: what is made while they are elsewhere, or by some of them, is left alone.
    fn made(&self, args: &Args) -> Option<(Handle, u32, u64)> {
        let parent = args.comm(self.mpi)?;
        let null = self.mpi.abi.null_comm();
        let new = args.comm_there(self.mpi).filter(|new| *new != null);
        let state = &mut *self.lock();
        state.comms.made(self.mpi, &mut state.part, args.call, parent, new);
        let by_all = args.call.does == Does::Communicator && !args.has('q');
        if !by_all || !self.has_more_than_the_world(state) {
            return None;
        }
        let new = new?;
        let known = state.comms.get(self.mpi, &mut state.part, new)?;
        // No communicator of a plan has this number: all ranks leave this one alone if one does.
        let number = if self.mpi.is_plain(new) { 0 } else { known.id };
        (!known.is_inter).then_some((new, known.size, number))
    }

    /// Ends the program when it allows MPI to do with the messages of a coded communicator what
    /// coding rules out: the other ranks may have messages under way.
    pub(super) fn hints(&self, args: &Args, real: Real) -> c_int {
        let code = real(args.words());
        let Some(comm) = args.comm(self.mpi).filter(|_| args.succeeded(code)) else { return code };
        let number = self.lock().coded.get(&comm).copied();
        if let Some(number) = number.filter(|_| self.mpi.is_plain(comm)) {
            let why = format!(
                "MPI_Comm_set_info sets mpi_assert_allow_overtaking or mpi_assert_exact_length on \
                 {}, whose messages are coded. Record this program again in the way in which it \
                 runs now, or leave it uncoded.",
                self.lock().comms.name_of(number)
            );
            end(self.mpi, &self.calls, &why);
        }
        code
    }

    fn has_more_than_the_world(&self, state: &mut super::State) -> bool {
        let world = state.comms.get(self.mpi, &mut state.part, self.mpi.abi.world());
        let world = world.map_or(0, |known| known.id);
        self.plan.channels.keys().any(|(comm, _)| *comm != world)
    }

    /// Whether all ranks of a communicator have the same number and the same plan; `None` when not
    /// all have answered.
    fn agree(&self, comm: Handle, size: u32, number: u64) -> Option<bool> {
        let own = [number.to_le_bytes(), self.sum.to_le_bytes()].concat();
        let length = own.len() as c_int;
        let mut all = vec![0_u8; own.len() * size as usize];
        let (byte, mut request) = (self.mpi.abi.byte(), 0_usize);
        let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
        // SAFETY: room for what each rank sends, which stays until the request is complete.
        let begun = unsafe {
            (self.calls.iallgather)(from, length, byte, to, length, byte, comm, &raw mut request)
        };
        let until = Instant::now() + PATIENCE;
        let (mut done, mut room) = (0, super::calls::Room::default());
        while begun == 0 && Instant::now() < until {
            // SAFETY: the request from above.
            let code = unsafe { (self.calls.test)(&raw mut request, &raw mut done, room.place()) };
            if code != 0 || done != 0 {
                break;
            }
            thread::yield_now();
        }
        if done == 0 {
            // MPI may still write there.
            std::mem::forget((own, all));
            return None;
        }
        Some(all.chunks_exact(own.len()).all(|one| one == own))
    }
}
