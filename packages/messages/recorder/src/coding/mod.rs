//! Codes the messages of a program by a plan that all of its ranks read.
//!
//! What holds throughout:
//! - Messages are sent on the communicator and with the tag that the program has named, one for one
//!   and in its order. So they match the receives that they would have matched, wildcards as well.
//! - All messages of a channel of the plan, a communicator and a tag, have a header, and all
//!   receives that can get one of them take it apart. A blocking call is the nonblocking one and a
//!   wait for it.
//! - Messages of a channel are decoded in the order in which their receives were posted, which is
//!   that in which MPI has matched them. A message may have to wait for the earlier ones of its
//!   channel to arrive. MPI has matched those with receives already, so this rank has nothing to do
//!   for them: they arrive as far as their senders call MPI.
//! - Ranks agree, when MPI begins and when a communicator is made, that they have the same plan and
//!   the same number for it. A communicator on which they do not agree is left alone.
//! - What a channel of the plan is not made for, and what arrives damaged, ends the program with an
//!   error that names the channel: the other rank cannot know, and would wait, or take what it is
//!   not.

mod calls;
mod communicators;
mod completions;
mod fortran;
mod messages;
mod receives;

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use unspool_messages::Plan;
use unspool_messages::calls::Does;
use unspool_messages::coded::{Receiver, Sender};
use unspool_messages::hash::{Quickly, hash};
use unspool_messages::part::{Identity, Limits, Part};

use crate::abi::Handle;
use crate::args::Args;
use crate::comms::Comms;
use crate::datatypes::Datatypes;
use crate::device::Devices;
use crate::file::tell;
use crate::mpi::Mpi;
use calls::Calls;
use receives::Receive;

/// What a program ends with that cannot go on.
const FAILED: c_int = 77;
/// Buffers that are kept for the next messages, and their bytes.
const MOST_ROOMS: usize = 64;
const MOST_ROOM: usize = 64 << 20;

/// A call as it is passed on.
pub(crate) type Real<'a> = &'a dyn Fn(&[usize]) -> c_int;

/// What codes the messages of this rank.
struct Coding {
    mpi: &'static Mpi,
    calls: Calls,
    plan: Plan,
    /// The hash of the plan's text.
    sum: u64,
    /// This rank in `MPI_COMM_WORLD`.
    rank: u32,
    state: Mutex<State>,
    is_over: AtomicBool,
}

/// What calls change.
struct State {
    comms: Comms,
    /// What `comms` writes its names to.
    part: Part<'static>,
    datatypes: Datatypes,
    devices: Devices,
    /// The communicators of the plan, by handle, with their numbers.
    coded: HashMap<Handle, u64, Quickly>,
    sender: Sender,
    receiver: Receiver,
    /// Requests of the program that are ours, by handle.
    handles: HashMap<Handle, u64, Quickly>,
    /// What is under way, in the order in which it was begun.
    pending: BTreeMap<u64, Pending>,
    begun: u64,
    rooms: Rooms,
}

/// Buffers of messages that are over, for the next ones.
#[derive(Default)]
struct Rooms {
    all: Vec<Vec<u8>>,
    bytes: usize,
}

/// What a request of ours is.
enum Pending {
    /// A message and its bytes, which are there until it is sent.
    Send(Vec<u8>),
    Receive(Receive),
}

static CODING: OnceLock<Coding> = OnceLock::new();

/// Whether there is a plan for this process.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("UNSPOOL_MESSAGES_PLAN").is_some())
}

/// Passes a call on, or does what it does with coded messages. `listen` lets the calls be seen that
/// MPI makes for this one.
pub(crate) fn around(args: &Args, real: Real, listen: &dyn Fn()) -> c_int {
    let words = args.words();
    if args.call.does == Does::Init {
        let code = real(words);
        if args.succeeded(code) {
            begin();
        }
        return code;
    }
    let coding = CODING.get().filter(|coding| !coding.is_over.load(Ordering::Acquire));
    let Some(coding) = coding else {
        if args.is_fortran() {
            listen();
        }
        return real(words);
    };
    if args.is_fortran() {
        if !args.is_heard_in_c(coding.mpi.abi) {
            return coding.call_of_fortran(args, real);
        }
        listen();
        return real(words);
    }
    coding.call(args, real)
}

/// Begins to code, on all ranks alike.
fn begin() {
    if CODING.get().is_some() {
        return;
    }
    let Some(mpi) = Mpi::running() else { return };
    let text = std::env::var("UNSPOOL_MESSAGES_PLAN").unwrap_or_default();
    let calls = match Calls::find() {
        Ok(calls) => calls,
        Err(name) => {
            tell(&format!("this MPI has no {name}: nothing is coded, and this rank ends."));
            std::process::abort();
        }
    };
    let fail = |why: &str| -> ! { end(mpi, &calls, why) };
    let Some((rank, size)) = mpi.place(mpi.abi.world()) else { fail("MPI names no rank.") };
    let plan = Plan::read(&text).unwrap_or_else(|why| fail(why));
    plan.check_ranks(size).unwrap_or_else(|why| fail(&why));
    let limits = Limits { comms: 256, channels: 0, payloads: 0, events: 0 }.clamped();
    let words = Box::leak(vec![0_u64; limits.words()].into_boxed_slice());
    let who = Identity {
        rank,
        size,
        process: std::process::id(),
        started_unix_ns: 0,
        host: String::new(),
        mpi: String::new(),
    };
    let state = State {
        comms: Comms::default(),
        part: Part::begin(words, limits, &who),
        datatypes: Datatypes::default(),
        devices: Devices::default(),
        coded: HashMap::default(),
        sender: Sender::new(usize::try_from(plan.quota).unwrap_or(usize::MAX)),
        receiver: Receiver::default(),
        handles: HashMap::default(),
        pending: BTreeMap::new(),
        begun: 0,
        rooms: Rooms::default(),
    };
    let (sum, is_over) = (hash(text.as_bytes()) as u64, AtomicBool::new(false));
    let coding = Coding { mpi, calls, plan, sum, rank, state: Mutex::new(state), is_over };
    coding.take_world(size);
    let _first = CODING.set(coding);
}

/// Says why this rank cannot go on, and ends all of them.
fn end(mpi: &Mpi, calls: &Calls, why: &str) -> ! {
    let rank =
        mpi.place(mpi.abi.world()).map_or_else(|| "?".to_owned(), |(rank, _)| rank.to_string());
    tell(&format!("rank {rank}: {why}"));
    // SAFETY: the communicator that is always there.
    let _gone = unsafe { (calls.abort)(mpi.abi.world(), FAILED) };
    std::process::abort()
}

impl Coding {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, args: &Args, real: Real) -> c_int {
        let words = args.words();
        match args.call.does {
            Does::Finalize => {
                self.is_over.store(true, Ordering::Release);
                self.account();
                real(words)
            }
            Does::Send => self.send(args, real),
            Does::Receive if args.has('s') && args.call.name != "Precv_init" => {
                self.receive(args, real)
            }
            Does::SendInit => {
                self.refuse(args, "a prepared message");
                real(words)
            }
            Does::Wait | Does::Waitall | Does::Waitany | Does::Waitsome => {
                self.complete(args, real)
            }
            Does::Test if args.has('q') || args.has('A') => self.complete(args, real),
            Does::Test => self.probe(args, real),
            Does::Look => self.look(args, real),
            Does::LookAtSeveral | Does::Cancel | Does::RequestFree => {
                self.touch(args);
                real(words)
            }
            Does::Communicator | Does::OfGroup => self.communicator(args, real),
            Does::CommunicatorInfo => self.hints(args, real),
            Does::CommunicatorFree => {
                if let Some(comm) = args.comm_there(self.mpi) {
                    let mut state = self.lock();
                    state.coded.remove(&comm);
                    state.comms.forget(comm);
                }
                real(words)
            }
            Does::TypeFree => {
                if let Some(of) = args.datatype_there(self.mpi) {
                    self.lock().datatypes.forget(of);
                }
                real(words)
            }
            _ => real(words),
        }
    }

    /// Ends the program when a call is one of a coded channel.
    fn refuse(&self, args: &Args, what: &str) {
        if !matches!(args.call.does, Does::Send | Does::SendInit | Does::Receive) {
            return;
        }
        let state = self.lock();
        let comm = args.comm(self.mpi).unwrap_or(0);
        for (rank, tag) in [('d', 'g'), ('s', 'g'), ('s', 'h')] {
            let (Some(rank), Some(tag)) = (args.number(rank), args.number(tag)) else { continue };
            if let Some(number) = self.channel(&state, comm, tag) {
                let what = format!("{what} (MPI_{})", args.call.name);
                self.end(&state, number, rank, tag, &format!(
                    "{what}. Leave this program uncoded, or record it again in the way in which \
                     it runs now."
                ));
            }
        }
    }

    /// The number of a communicator when messages with this tag, or any tag, may be coded there.
    fn channel(&self, state: &State, comm: Handle, tag: c_int) -> Option<u64> {
        let number = *state.coded.get(&comm)?;
        (tag < 0 || self.plan.channels.contains_key(&(number, tag))).then_some(number)
    }

    /// Ends the program, and names the channel.
    fn end(&self, state: &State, comm: u64, peer: c_int, tag: c_int, why: &str) -> ! {
        let name = state.comms.name_of(comm);
        let why = format!("messages with rank {peer} of {name}, tag {tag}: {why}");
        end(self.mpi, &self.calls, &why)
    }

    /// Tells who has started the program what was saved.
    fn account(&self) {
        let Some(folder) = std::env::var_os("UNSPOOL_MESSAGES_SAVED") else { return };
        let sent = self.lock().sender.traffic;
        let line = format!("{} {} {} {}\n", sent.messages, sent.coded, sent.bytes, sent.wire);
        let path = PathBuf::from(folder).join(self.rank.to_string());
        let written = std::fs::File::create(&path).and_then(|mut to| to.write_all(line.as_bytes()));
        if let Err(error) = written {
            tell(&format!(
                "{}: {error}; what rank {} saved is not known",
                path.display(),
                self.rank
            ));
        }
    }
}

impl State {
    /// The next number, in the order in which requests are begun.
    fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }
}

impl Rooms {
    /// An empty buffer with room for `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let Some(room) = self.all.pop() else { return Vec::with_capacity(bytes) };
        self.bytes -= room.capacity();
        // Growing would copy what nobody needs.
        if room.capacity() < bytes { Vec::with_capacity(bytes) } else { room }
    }

    /// Keeps a buffer for another message, while there are not too many.
    fn give(&mut self, mut room: Vec<u8>) {
        room.clear();
        if self.all.len() < MOST_ROOMS && self.bytes + room.capacity() <= MOST_ROOM {
            self.bytes += room.capacity();
            self.all.push(room);
        }
    }
}
