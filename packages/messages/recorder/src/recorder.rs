//! What is counted of each call. The channel of a message is found and its payload looked at before
//! the call is passed on: a call may write over what it sends.

use std::slice;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use unspool_messages::calls::{CALLS, Does, Gives};
use unspool_messages::hash::hash;
use unspool_messages::part::{Ending, Identity, Message, Part};
use unspool_messages::sample::{self, LONGEST, Sample, Sampler};
use unspool_messages::{Event, Key, Place, Values, What, class_of};

use crate::args::Args;
use crate::comms::Comms;
use crate::datatypes::{Datatype, Datatypes};
use crate::device::Devices;
use crate::file::{Settings, Tail, host, make};
use crate::mpi::Mpi;
use crate::requests::{Outgoing, Prepared, Request, Requests};
use crate::waits::{completed, waited_for};

/// A datatype whose one value is larger than this is not packed to be sampled.
const LARGEST_PACKED: u64 = 4 << 20;

/// The rows of `MPI_Recv` and `MPI_Irecv` in the table of calls. What a call that both
/// sends and receives, as `MPI_Sendrecv`, has received counts in one of them.
static RECEIVES: LazyLock<[u8; 2]> = LazyLock::new(|| {
    let row = |name| CALLS.iter().position(|call| call.name == name);
    ["Recv", "Irecv"].map(|name| row(name).expect("a row of the table") as u8)
});

/// What records the calls of a rank.
pub(crate) struct Recorder {
    pub(crate) mpi: &'static Mpi,
    part: Part<'static>,
    tail: Tail,
    sampler: Sampler,
    comms: Comms,
    datatypes: Datatypes,
    devices: Devices,
    requests: Requests,
    begun: Instant,
    room: Vec<u8>,
}

/// What was seen of a call before it was made.
#[derive(Default)]
pub(crate) struct Looked {
    event: Event,
    /// Messages that the call sends.
    messages: Vec<Seen>,
    /// What it receives, when it sends and receives.
    received: Option<Event>,
    /// What a request is prepared for.
    prepared: Option<Prepared>,
    /// Bytes given to a call of all ranks.
    together: Option<(Key, u64)>,
    /// Requests that may be completed.
    requests: Vec<u64>,
}

/// A message before it is counted.
struct Seen {
    outgoing: Outgoing,
    /// The row of its channel.
    row: usize,
    event: Event,
    /// Its bytes, where they can be looked at in place.
    bytes: Option<&'static [u8]>,
    hash: Option<u128>,
}

impl Looked {
    /// Hashes the payloads.
    pub(crate) fn hash(&mut self) {
        for message in &mut self.messages {
            message.hash = message.bytes.map(hash);
        }
    }
}

impl Recorder {
    /// Begins the part of this rank.
    pub(crate) fn begin(mpi: &'static Mpi, settings: &Settings) -> Result<Recorder, String> {
        let (rank, size) =
            mpi.place(mpi.abi.world()).ok_or("MPI does not say which rank it is.")?;
        let process = std::process::id();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = host();
        let name = format!("{rank:06}-{process}-{host}.part").replace('/', "_");
        let path = settings.folder.join(name);
        let (words, tail) = make(&path, settings.limits.words())
            .map_err(|error| format!("{} cannot be made: {error}.", path.display()))?;
        let who = Identity {
            rank,
            size,
            process,
            started_unix_ns: now.as_nanos() as u64,
            host,
            mpi: mpi.own_name(),
        };
        let mut recorder = Recorder {
            mpi,
            part: Part::begin(words, settings.limits, &who),
            tail,
            sampler: Sampler::new(settings.samples, u64::from(rank)),
            comms: Comms::default(),
            datatypes: Datatypes::default(),
            devices: Devices::default(),
            requests: Requests::default(),
            begun: Instant::now(),
            room: Vec::new(),
        };
        let _known = recorder.comms.get(mpi, &mut recorder.part, mpi.abi.world());
        Ok(recorder)
    }

    /// Says how the rank has ended.
    pub(crate) fn finish(&mut self, ending: Ending) {
        let now = self.begun.elapsed().as_nanos() as u64;
        self.part.finish(ending, now);
    }

    /// Looks at a call that is about to be made.
    pub(crate) fn before(&mut self, args: &Args) -> Looked {
        let mut looked = Looked {
            event: Event { call: args.row, peer: Event::ANYBODY, ..Event::default() },
            ..Looked::default()
        };
        match args.call.does {
            Does::Send | Does::SendInit | Does::PsendInit => {
                self.look_at_message(args, &mut looked)
            }
            Does::Start | Does::Startall => self.look_at_starts(args, &mut looked),
            Does::Pready | Does::PreadyRange | Does::PreadyList => {
                self.look_at_partitions(args, &mut looked);
            }
            Does::Together(gives) | Does::TogetherInit(gives) => {
                looked.together = self.look_at_all(args, gives, &mut looked.event);
            }
            Does::Receive => {
                looked.event = self.received(args, looked.event, 'g');
                looked.prepared = args.call.name.ends_with("_init").then_some(Prepared::Receive);
            }
            Does::CommunicatorFree => {
                if let Some(comm) = args.comm_there(self.mpi) {
                    self.comms.forget(comm);
                }
            }
            Does::TypeFree => {
                if let Some(of) = args.datatype_there(self.mpi) {
                    self.datatypes.forget(of);
                }
            }
            Does::RequestFree => {
                if let Some(request) = args.request(self.mpi) {
                    self.requests.forget(request);
                }
            }
            _ => looked.requests = waited_for(args, self.mpi),
        }
        looked
    }

    /// Counts a call that was made.
    pub(crate) fn after(&mut self, args: &Args, looked: Looked, start: Instant, took: Duration) {
        let mpi = self.mpi;
        let start_ns = start.saturating_duration_since(self.begun).as_nanos() as u64;
        let call_ns = took.as_nanos() as u64;
        self.part.call(args.row, call_ns);
        self.part.now(start_ns + call_ns);
        let mut event = looked.event;
        (event.start_ns, event.duration_ns) = (start_ns, call_ns.min(u32::MAX.into()) as u32);
        match args.call.does {
            Does::Send
            | Does::Receive
            | Does::SendInit
            | Does::PsendInit
            | Does::Together(_)
            | Does::TogetherInit(_) => {
                event.request = args.request(mpi).unwrap_or(0);
                self.part.event(&event);
                if let Some(half) = looked.received {
                    let call = RECEIVES[usize::from(event.request != 0)];
                    self.part.event(&Event { call, start_ns, request: event.request, ..half });
                }
            }
            Does::Communicator | Does::OfGroup => self.take_comm(args),
            Does::CommunicatorName => {
                if let (Some(comm), Some(name)) = (args.comm(mpi), args.text()) {
                    self.comms.rename(mpi, &mut self.part, comm, &name);
                }
            }
            Does::CommunicatorInfo => {
                if let Some(comm) = args.comm(mpi) {
                    self.comms.hinted(mpi, &mut self.part, comm);
                }
            }
            _ => {
                for request in completed(args, looked.requests) {
                    self.part.event(&Event { request, ..event });
                }
            }
        }
        if let Some(prepared) = looked.prepared {
            self.requests.prepare(event.request, Request { prepared, event });
        }
        if let Some((key, bytes)) = looked.together {
            match args.call.does {
                Does::TogetherInit(_) => {
                    let prepared = Prepared::Together { key, bytes };
                    self.requests.prepare(event.request, Request { prepared, event });
                }
                _ => self.count(key, bytes, start_ns, call_ns),
            }
        }
        let shared = call_ns / looked.messages.len().max(1) as u64;
        for message in looked.messages {
            if !matches!(args.call.does, Does::Send) {
                let what = Event { call: args.row, start_ns, ..message.event };
                self.part.event(&Event { duration_ns: event.duration_ns, ..what });
            }
            let Outgoing { key, bytes, .. } = message.outgoing;
            let payload = message.hash;
            let counted = Message { key, bytes, payload, start_ns, call_ns: shared };
            self.part.message_in(message.row, &counted);
        }
    }

    /// Counts what this rank has given to a call of all ranks.
    fn count(&mut self, key: Key, bytes: u64, start_ns: u64, call_ns: u64) {
        self.part.message(&Message { key, bytes, payload: None, start_ns, call_ns });
    }

    /// What a call that names buffer, count, type, destination and tag sends.
    fn outgoing(&mut self, args: &Args, event: &mut Event) -> Option<Outgoing> {
        let (rank, tag) = (args.number('d')?, args.number('g')?);
        let comm = args.comm(self.mpi)?;
        let known = self.comms.get(self.mpi, &mut self.part, comm)?;
        (event.comm, event.tag) = (known.index, tag);
        // Nothing is sent to MPI_PROC_NULL.
        let peer = known.peer(rank)?;
        let index = known.index;
        let of = args.datatype(self.mpi, 't')?;
        let datatype = self.datatypes.get(self.mpi, of)?;
        let partitions = i64::from(args.number('k').unwrap_or(1)).max(0);
        let count = match args.call.does {
            Does::PsendInit => args.count('L')?.checked_mul(partitions)?,
            _ => args.count('n')?,
        };
        let count = count.max(0);
        let bytes = (count as u64).checked_mul(datatype.size)?;
        let buffer = args.buffer()?;
        let first = buffer.wrapping_add_signed(datatype.dense(count).unwrap_or(0));
        let place = match bytes {
            0 => Place::Host,
            _ if args.is_scattered() => Place::Unknown,
            _ => self.devices.place(first),
        };
        (event.peer, event.bytes) = (peer as i32, bytes);
        let key = Key {
            comm: index,
            what: What::Messages,
            peer,
            tag,
            class: class_of(bytes),
            values: datatype.values,
            place,
        };
        Some(Outgoing { buffer, count, datatype, comm, key, bytes })
    }

    fn look_at_message(&mut self, args: &Args, looked: &mut Looked) {
        let mut event = looked.event;
        let outgoing = self.outgoing(args, &mut event);
        looked.event = event;
        if args.has('h') {
            looked.received = Some(self.received(args, event, 'h'));
        }
        let Some(outgoing) = outgoing else { return };
        match args.call.does {
            Does::SendInit => looked.prepared = Some(Prepared::Message(outgoing)),
            Does::PsendInit => {
                let partitions = args.number('k').unwrap_or(0).max(0) as usize;
                let missing = vec![true; partitions];
                let parts = Prepared::Parts { message: outgoing, missing, left: partitions };
                looked.prepared = Some(parts);
            }
            _ => looked.messages.extend(self.see(outgoing, event)),
        }
    }

    /// Looks at the payload of a message that is about to be sent, and keeps it if it is a sample.
    fn see(&mut self, outgoing: Outgoing, event: Event) -> Option<Seen> {
        let bytes = if outgoing.key.place == Place::Host { payload(&outgoing) } else { None };
        let (row, number) = self.part.peek(outgoing.key);
        if outgoing.key.place == Place::Host {
            self.sample(&outgoing, row, number, bytes);
        }
        Some(Seen { outgoing, row, event, bytes, hash: None })
    }

    fn sample(&mut self, outgoing: &Outgoing, row: usize, number: u64, bytes: Option<&[u8]>) {
        let Some(wanted) = self.sampler.wants(row, number, outgoing.bytes) else { return };
        let packed;
        let payload = match bytes {
            Some(bytes) => bytes,
            None => {
                let Some(found) = self.packed(outgoing) else {
                    return self.part.not_packed();
                };
                packed = found;
                &packed[..]
            }
        };
        let payload = &payload[..wanted.kept.min(payload.len())];
        self.room.clear();
        let kept = Sample { row: row as u32, number, bytes: outgoing.bytes, payload };
        sample::write(&kept, &mut self.room);
        self.room.resize(wanted.room, 0);
        match self.tail.write(wanted.place, &self.room) {
            Ok(()) => self.part.sampled(row),
            Err(_) => {
                self.sampler.stop();
                self.part.sampling_failed();
            }
        }
    }

    /// As many values with gaps between them as a sample needs, without the gaps.
    fn packed(&self, outgoing: &Outgoing) -> Option<Vec<u8>> {
        let Datatype { handle, size, .. } = outgoing.datatype;
        if size > LARGEST_PACKED || size == 0 {
            return None;
        }
        let count = outgoing.count.min((LONGEST / size).max(1) as i64);
        let count = i32::try_from(count).ok()?;
        self.mpi.packed(outgoing.buffer, count, handle, outgoing.comm)
    }

    fn look_at_starts(&mut self, args: &Args, looked: &mut Looked) {
        let requests = match args.call.does {
            Does::Start => args.request(self.mpi).into_iter().collect(),
            _ => args.requests(self.mpi, usize::MAX),
        };
        for name in requests {
            let Some(request) = self.requests.get(name) else {
                self.part.unknown_start();
                continue;
            };
            request.prepared.start();
            let event = Event { request: name, ..request.event };
            match request.prepared {
                Prepared::Message(outgoing) => {
                    looked.messages.extend(self.see(outgoing, event));
                }
                Prepared::Together { key, bytes } => {
                    self.count(key, bytes, self.begun.elapsed().as_nanos() as u64, 0);
                    looked.requests.push(name);
                }
                Prepared::Parts { .. } | Prepared::Receive => looked.requests.push(name),
            }
        }
    }

    fn look_at_partitions(&mut self, args: &Args, looked: &mut Looked) {
        let Some(request) = args.request(self.mpi).and_then(|name| self.requests.get(name)) else {
            return;
        };
        let event = request.event;
        let ready = match args.call.does {
            Does::Pready => request.prepared.ready(std::iter::once(args.number_at(0))),
            Does::PreadyRange => request.prepared.ready(args.number_at(0)..=args.number_at(1)),
            _ => {
                let count = args.number('k').unwrap_or(0).max(0) as usize;
                let listed = (0..count).filter_map(|index| args.index_at(index));
                // Partitions count from 0 in Fortran as well.
                let shift = args.as_in_c(0);
                request.prepared.ready(listed.map(|index| index - shift))
            }
        };
        if let Some(outgoing) = ready {
            looked.messages.extend(self.see(outgoing, event));
        }
    }

    /// The event of what a call receives; its tag has this letter.
    fn received(&mut self, args: &Args, mut event: Event, tag: char) -> Event {
        let comm = args.comm(self.mpi);
        if let Some(known) = comm.and_then(|comm| self.comms.get(self.mpi, &mut self.part, comm)) {
            let rank = args.number('s').unwrap_or(-1);
            event.comm = known.index;
            event.peer = match known.peer(rank) {
                Some(peer) => peer as i32,
                None if rank == self.mpi.abi.any_source() => Event::ANYBODY,
                None => Event::NOBODY,
            };
            event.tag = args.number(tag).unwrap_or(0);
        }
        let (count, of) = if args.has('u') { ('m', 'u') } else { ('n', 't') };
        let size = self.size_of(args.datatype(self.mpi, of));
        let count = args.count(count).or_else(|| args.count('L')).unwrap_or(0).max(0) as u64;
        event.bytes = count.saturating_mul(size);
        event
    }

    /// The bytes that this rank gives to a call of all ranks.
    fn look_at_all(&mut self, args: &Args, gives: Gives, event: &mut Event) -> Option<(Key, u64)> {
        let comm = args.comm(self.mpi)?;
        let known = self.comms.get(self.mpi, &mut self.part, comm)?;
        let (index, size, rank, is_inter) = (known.index, known.size, known.rank, known.is_inter);
        let neighbours: Vec<bool> = match gives {
            Gives::ToNeighbours | Gives::EachNeighbour => known.neighbours(self.mpi, comm).to_vec(),
            _ => Vec::new(),
        };
        let root = args.number('R');
        let is_root = !is_inter && root == Some(rank as i32);
        if let Some(peer) = root.and_then(|root| known.peer(root)) {
            event.peer = peer as i32;
        }
        let all = || (0..size as usize).map(|_| true);
        // Arguments that a rank has no use for may be anything: they are not looked at.
        let bytes = match gives {
            _ if is_inter => 0,
            Gives::RootOnce | Gives::RootEach if !is_root => 0,
            Gives::Nothing => 0,
            Gives::Once | Gives::RootOnce => self.once(args, rank),
            Gives::RootEach | Gives::Each => self.each(args, all()),
            Gives::ToNeighbours => {
                let count = neighbours.iter().filter(|there| **there).count() as u64;
                self.once(args, rank).saturating_mul(count)
            }
            Gives::EachNeighbour => self.each(args, neighbours.iter().copied()),
        };
        (event.comm, event.bytes) = (index, bytes);
        let key = Key {
            comm: index,
            what: What::Together(args.row),
            peer: Key::NOBODY,
            tag: 0,
            class: class_of(bytes),
            values: Values::Bytes,
            place: Place::Host,
        };
        Some((key, bytes))
    }

    /// The bytes of the buffer of a call; in place, of what this rank has in the result.
    fn once(&mut self, args: &Args, rank: u32) -> u64 {
        let in_place = args.is_in_place(self.mpi);
        let (count, of) = if in_place && args.has('R') && args.has('u') {
            // The root of a gather has its part where it belongs.
            (None, None)
        } else if in_place && args.has('u') {
            let own = args.count_at('M', rank as usize);
            (args.count('m').or(own), args.datatype(self.mpi, 'u'))
        } else {
            (args.count('n'), args.datatype(self.mpi, 't'))
        };
        self.size_of(of).saturating_mul(count.unwrap_or(0).max(0) as u64)
    }

    /// The bytes of a call with a part for each rank or neighbour that is there.
    fn each(&mut self, args: &Args, those: impl Iterator<Item = bool>) -> u64 {
        let in_place = args.is_in_place(self.mpi) && (args.has('u') || args.has('U'));
        let [one, many, of, each_of] =
            if in_place { ['m', 'M', 'u', 'U'] } else { ['n', 'N', 't', 'T'] };
        let common = self.size_of(args.datatype(self.mpi, of));
        let mut bytes = 0_u64;
        for (index, _) in those.enumerate().filter(|(_, there)| *there) {
            let count = args.count_at(many, index).or_else(|| args.count(one)).unwrap_or(0);
            let own = args.datatype_at(self.mpi, each_of, index);
            let size = if own.is_some() { self.size_of(own) } else { common };
            bytes = bytes.saturating_add(size.saturating_mul(count.max(0) as u64));
        }
        bytes
    }

    fn size_of(&mut self, of: Option<usize>) -> u64 {
        of.and_then(|of| self.datatypes.get(self.mpi, of)).map_or(0, |of| of.size)
    }

    fn take_comm(&mut self, args: &Args) {
        let Some(parent) = args.comm(self.mpi) else { return };
        let null = self.mpi.abi.null_comm();
        let new = args.comm_there(self.mpi).filter(|new| *new != null);
        self.comms.made(self.mpi, &mut self.part, args.call, parent, new);
    }
}

/// The bytes of a message, where they lie one after the other.
fn payload(outgoing: &Outgoing) -> Option<&'static [u8]> {
    let begins = outgoing.datatype.dense(outgoing.count)?;
    let first = outgoing.buffer.wrapping_add_signed(begins);
    if outgoing.bytes == 0 {
        return Some(&[]);
    }
    if first == 0 {
        return None;
    }
    // SAFETY: the program hands these bytes to a call that reads them, and does not change them
    // before it returns; they are only looked at until then. They are not those of a device.
    Some(unsafe {
        slice::from_raw_parts(first as *const u8, usize::try_from(outgoing.bytes).ok()?)
    })
}
