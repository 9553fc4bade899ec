//! The play of a program on a network, in LogGOPS with shared links.
//!
//! - A rank that sends b bytes is busy for o + b O. Then its link takes the message: one of a rank
//!   after the other, at least g apart. Alone it takes b G; where links are shared, what its share
//!   allows. It is there L after its last byte has left.
//! - A rank that waits for a message is busy for o + b O when it has come. Of several messages that
//!   it waits for, the first to come is first.
//! - A message above S bytes is offered, and leaves when the receiver is ready and has said so: two
//!   more L. Its sender waits until it has left; that of another message does not.
//! - Coding and decoding are work of the ranks, before a message is sent and after it has come; b
//!   is what is left of it.
//!
//! A rank is played until it has to wait for something that is not known, so time does not go back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::simulate::coding::Coded;
use crate::simulate::links::Links;
use crate::simulate::network::Network;
use crate::simulate::program::{Op, Program};
use crate::simulate::together;
use crate::simulate::trace::{Half, Mode};
use crate::simulate::wires::Wires;

const NEVER: u64 = u64::MAX;
/// A time that is believed.
const LATEST: u64 = u64::MAX / 4;
/// What is looked at in links and flows before the play is given up.
const MOST_WORK: u64 = 20_000_000_000;

/// How a program was played.
#[derive(Clone, PartialEq, Debug)]
pub struct Played {
    /// Seconds of all steps.
    pub seconds: f64,
    /// What the time of all ranks was spent on, as parts of one.
    pub spent: Spent,
    /// The link that was busy for the largest part of the time, and that part.
    pub busiest: Option<(String, f64)>,
    /// Bytes from rank to rank, as they were sent.
    pub bytes: f64,
}

/// Parts of the time of all ranks.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Spent {
    /// Computing.
    pub computing: f64,
    /// Coding and decoding.
    pub coding: f64,
    /// Sending and receiving, as far as the processor does it.
    pub overhead: f64,
    /// Waiting for bytes that are on their way.
    pub network: f64,
    /// Waiting for ranks that are not there yet, or are through already.
    pub others: f64,
}

/// Where the copies of the recorded ranks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The ranks of a copy are beside each other.
    Packed,
    /// The copies of a rank are.
    Spread,
}

/// Plays a program in so many copies.
///
/// # Errors
/// Why it cannot be played to its end.
pub(crate) fn play(
    program: &Program,
    network: &Network,
    coded: &[Coded],
    copies: u32,
    placement: Placement,
) -> Result<Played, String> {
    let mut playing = Playing::of(program, network, coded, copies, placement);
    playing.run_out()?;
    if playing.ranks.iter().any(|rank| rank.clock > LATEST) {
        return Err("it would take longer than 50 days: its times make no sense.".to_owned());
    }
    Ok(playing.played())
}

#[derive(Clone, Debug, Default)]
struct Rank {
    op: usize,
    clock: u64,
    /// The first of what it waits for that is not known, when it waits.
    waiting: Option<u32>,
    /// Messages that its link has not taken.
    queue: VecDeque<u32>,
    sending: bool,
    /// When its link takes the next one.
    free: u64,
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    /// When it was offered, or given away.
    offered: u64,
    /// When its receiver was ready.
    posted: u64,
    /// When nobody was waited for any more.
    ready: u64,
    gone: u64,
}

#[derive(Clone, Debug, Default)]
struct Joined {
    ranks: u32,
    last: u64,
    done: Option<u64>,
    waiting: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A message is to be sent.
    Ready(u32),
    /// The link of a rank takes another message.
    Next(u32),
}

struct Playing<'a> {
    program: &'a Program,
    network: &'a Network,
    coded: &'a [Coded],
    copies: u32,
    placement: Placement,
    ranks: Vec<Rank>,
    messages: Vec<Underway>,
    /// Where the calls of several ranks begin in `joined`.
    joins: Vec<u32>,
    joined: Vec<Joined>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    wires: Wires,
    now: u64,
    /// Ranks that may go on.
    awake: Vec<u32>,
    spent: Spent,
    bytes: f64,
}

impl<'a> Playing<'a> {
    fn of(
        program: &'a Program,
        network: &'a Network,
        coded: &'a [Coded],
        copies: u32,
        placement: Placement,
    ) -> Playing<'a> {
        let recorded = program.ops.len() as u32;
        let ranks = recorded * copies;
        let mut calls = 0;
        let mut joins = Vec::new();
        for call in &program.together {
            joins.push(calls);
            calls += if call.ranks == recorded { 1 } else { copies };
        }
        let nothing = Underway { offered: NEVER, posted: NEVER, ready: NEVER, gone: NEVER };
        let wires = Wires::new(Links::of(network, ranks), tick(program, network));
        Playing {
            program,
            network,
            coded,
            copies,
            placement,
            ranks: vec![Rank::default(); ranks as usize],
            messages: vec![nothing; program.messages.len() * copies as usize],
            joins,
            joined: vec![Joined::default(); calls as usize],
            events: BinaryHeap::new(),
            wires,
            now: 0,
            awake: (0..ranks).rev().collect(),
            spent: Spent::default(),
            bytes: 0.0,
        }
    }

    fn run_out(&mut self) -> Result<(), String> {
        loop {
            while let Some(rank) = self.awake.pop() {
                self.go_on(rank);
            }
            let event = self.events.peek().map(|Reverse((at, _))| *at);
            let next = event.into_iter().chain(self.wires.next(self.now)).min();
            let Some(next) = next else { break };
            self.now = next;
            let mut happened = false;
            while let Some(message) = self.wires.gone(self.now) {
                happened = true;
                self.gone(message);
            }
            while let Some(Reverse((at, event))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                happened = true;
                self.happens(event);
            }
            if !happened {
                self.wires.share(self.now);
                if self.wires.work > MOST_WORK {
                    return Err(format!(
                        "{} ranks on these links take too long to play: ask for fewer ranks or \
                         fewer --steps.",
                        self.ranks.len()
                    ));
                }
            }
        }
        let stuck = self.ranks.iter().position(|rank| rank.waiting.is_some());
        match stuck {
            None => Ok(()),
            Some(rank) => Err(format!(
                "rank {rank} waits for what never comes: the recorded order of calls cannot be \
                 played. Programs whose threads call MPI at the same time are recorded in such \
                 orders."
            )),
        }
    }

    fn recorded(&self) -> u32 {
        self.program.ops.len() as u32
    }

    /// The rank of this copy that a recorded one stands for.
    fn rank_of(&self, copy: u32, recorded: u32) -> u32 {
        copy * self.recorded() + recorded
    }

    fn node_of(&self, rank: u32) -> u32 {
        let place = match self.placement {
            Placement::Packed => rank,
            Placement::Spread => rank % self.recorded() * self.copies + rank / self.recorded(),
        };
        place / self.network.ranks_per_node.max(1)
    }

    /// The number that a message of a recorded rank has in the copy that this rank is in.
    fn message_of(&self, rank: u32, message: u32) -> u32 {
        rank / self.recorded() * self.program.messages.len() as u32 + message
    }

    fn call_of(&self, rank: u32, call: u32) -> u32 {
        let of_all = self.program.together[call as usize].ranks == self.recorded();
        self.joins[call as usize] + if of_all { 0 } else { rank / self.recorded() }
    }

    /// A message as it was recorded, and what becomes of it.
    fn recorded_message(&self, message: u32) -> usize {
        message as usize % self.program.messages.len()
    }

    /// Whether a message waits for its receiver.
    fn is_offered(&self, message: u32) -> bool {
        let place = self.recorded_message(message);
        match self.program.messages[place].mode {
            Mode::Buffered => false,
            Mode::Synchronous => true,
            Mode::Usual => self.coded[place].bytes > self.network.rendezvous,
        }
    }

    fn go_on(&mut self, rank: u32) {
        let program = self.program;
        let recorded = (rank % self.recorded()) as usize;
        while let Some(op) = program.ops[recorded].get(self.ranks[rank as usize].op) {
            match *op {
                Op::Compute(time) => {
                    let clock = &mut self.ranks[rank as usize].clock;
                    *clock = clock.saturating_add(time);
                    self.spent.computing += time as f64;
                }
                Op::Send(message) => self.send(rank, message),
                Op::Post(message) => {
                    let message = self.message_of(rank, message);
                    self.messages[message as usize].posted = self.ranks[rank as usize].clock;
                    self.agree(message);
                }
                Op::Enter(call) => self.enter(rank, call),
                Op::Wait(from, to) => {
                    let halves = &program.waits[recorded][from as usize..to as usize];
                    if !self.wait(rank, halves) {
                        return;
                    }
                }
            }
            self.ranks[rank as usize].op += 1;
        }
    }

    fn busy(&mut self, bytes: u64) -> u64 {
        let time = self.network.overhead + (bytes as f64 * self.network.overhead_per_byte) as u64;
        self.spent.overhead += time as f64;
        time
    }

    fn send(&mut self, rank: u32, message: u32) {
        let coded = self.coded[message as usize];
        let message = self.message_of(rank, message);
        self.spent.coding += coded.encode as f64;
        let work = coded.encode.saturating_add(self.busy(coded.bytes));
        let clock = self.ranks[rank as usize].clock.saturating_add(work);
        self.ranks[rank as usize].clock = clock;
        self.bytes += coded.bytes as f64;
        self.messages[message as usize].offered = clock;
        if self.is_offered(message) {
            self.agree(message);
        } else {
            self.messages[message as usize].ready = clock;
            self.events.push(Reverse((clock, Event::Ready(message))));
        }
    }

    /// Lets a message leave that was offered, when its receiver is ready.
    fn agree(&mut self, message: u32) {
        let one = self.messages[message as usize];
        if one.offered == NEVER || one.posted == NEVER || !self.is_offered(message) {
            return;
        }
        let latency = self.network.latency;
        let asked = one.offered.saturating_add(latency).max(one.posted);
        let leaves = asked.saturating_add(latency);
        self.messages[message as usize].ready = one.offered.max(one.posted);
        self.events.push(Reverse((leaves, Event::Ready(message))));
    }

    fn enter(&mut self, rank: u32, call: u32) {
        let what = &self.program.together[call as usize];
        let of_all = what.ranks == self.recorded();
        let ranks = if of_all { self.ranks.len() as u32 } else { what.ranks };
        let cost = together::cost(what, self.network, ranks);
        let place = self.call_of(rank, call);
        let joined = &mut self.joined[place as usize];
        joined.ranks += 1;
        joined.last = joined.last.max(self.ranks[rank as usize].clock);
        if joined.ranks == ranks {
            joined.done = Some(joined.last.saturating_add(cost));
            self.awake.append(&mut joined.waiting);
        }
    }

    /// When it is known that this is over, when that is, and from when on it took its time.
    fn over(&self, rank: u32, half: Half) -> Option<(u64, u64)> {
        match half {
            Half::Together(call) => {
                let joined = &self.joined[self.call_of(rank, call) as usize];
                joined.done.map(|done| (done, joined.last))
            }
            Half::Sent(message) => {
                let message = self.message_of(rank, message);
                let one = &self.messages[message as usize];
                let at = if self.is_offered(message) { one.gone } else { one.offered };
                (at != NEVER).then_some((at, one.ready))
            }
            Half::Received(message) => {
                let one = &self.messages[self.message_of(rank, message) as usize];
                let arrived = || one.gone.saturating_add(self.network.latency);
                (one.gone != NEVER).then(|| (arrived(), one.ready))
            }
        }
    }

    /// Waits for all of these; whether they are over.
    fn wait(&mut self, rank: u32, halves: &[Half]) -> bool {
        let begin = self.ranks[rank as usize].waiting.unwrap_or(0);
        for (place, half) in halves.iter().enumerate().skip(begin as usize) {
            if self.over(rank, *half).is_none() {
                self.ranks[rank as usize].waiting = Some(place as u32);
                if let Half::Together(call) = half {
                    let call = self.call_of(rank, *call) as usize;
                    self.joined[call].waiting.push(rank);
                }
                return false;
            }
        }
        self.ranks[rank as usize].waiting = None;
        let mut those: Vec<(u64, u64, Half)> = halves
            .iter()
            .filter_map(|half| self.over(rank, *half).map(|(at, since)| (at, since, *half)))
            .collect();
        those.sort_by_key(|(at, ..)| *at);
        let mut clock = self.ranks[rank as usize].clock;
        for (at, since, half) in those {
            if at > clock {
                let network = at - since.max(clock).min(at);
                self.spent.network += network as f64;
                self.spent.others += (at - clock - network) as f64;
                clock = at;
            }
            if let Half::Received(message) = half {
                let coded = self.coded[message as usize];
                self.spent.coding += coded.decode as f64;
                clock = clock.saturating_add(coded.decode).saturating_add(self.busy(coded.bytes));
            }
        }
        self.ranks[rank as usize].clock = clock;
        true
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Ready(message) => {
                let place = self.recorded_message(message);
                let copy = message / self.program.messages.len() as u32;
                let rank = self.rank_of(copy, self.program.messages[place].from);
                let sender = &mut self.ranks[rank as usize];
                sender.queue.push_back(message);
                if !sender.sending && sender.queue.len() == 1 {
                    let at = sender.free.max(self.now);
                    self.events.push(Reverse((at, Event::Next(rank))));
                }
            }
            Event::Next(rank) => {
                let sender = &mut self.ranks[rank as usize];
                if sender.sending {
                    return;
                }
                let Some(message) = sender.queue.pop_front() else { return };
                sender.sending = true;
                sender.free = self.now.saturating_add(self.network.gap);
                let place = self.recorded_message(message);
                let copy = message / self.program.messages.len() as u32;
                let to = self.rank_of(copy, self.program.messages[place].to);
                let nodes = (self.node_of(rank), self.node_of(to));
                let bytes = self.coded[place].bytes as f64;
                let alone = (bytes * self.network.per_byte).round() as u64;
                self.wires.begin(self.now, message, bytes, nodes, alone);
            }
        }
    }

    /// The last byte of a message has left.
    fn gone(&mut self, message: u32) {
        self.messages[message as usize].gone = self.now;
        let place = self.recorded_message(message);
        let copy = message / self.program.messages.len() as u32;
        let from = self.rank_of(copy, self.program.messages[place].from);
        let to = self.rank_of(copy, self.program.messages[place].to);
        let sender = &mut self.ranks[from as usize];
        sender.sending = false;
        if !sender.queue.is_empty() {
            let at = sender.free.max(self.now);
            self.events.push(Reverse((at, Event::Next(from))));
        }
        for rank in [from, to] {
            if self.ranks[rank as usize].waiting.is_some() {
                self.awake.push(rank);
            }
        }
    }

    fn played(self) -> Played {
        let last = self.ranks.iter().map(|rank| rank.clock).max().unwrap_or(0);
        let all = (last as f64 * self.ranks.len() as f64).max(1.0);
        let early = self.ranks.iter().map(|rank| (last - rank.clock) as f64).sum::<f64>();
        let spent = Spent {
            computing: self.spent.computing / all,
            coding: self.spent.coding / all,
            overhead: self.spent.overhead / all,
            network: self.spent.network / all,
            others: (self.spent.others + early) / all,
        };
        let links = self.wires.carried.iter().zip(&self.wires.links.capacities);
        let busy = links.map(|(bytes, capacity)| bytes / capacity).enumerate();
        let busiest = busy.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, time)| *time > 0.0);
        let busiest = busiest
            .map(|(link, time)| (self.wires.links.name(link as u32), time / last.max(1) as f64));
        Played { seconds: last as f64 * 1e-12, spent, busiest, bytes: self.bytes }
    }
}

/// How often links are shared anew at most: every hundredth of the time that a message takes.
fn tick(program: &Program, network: &Network) -> u64 {
    let bytes: f64 = program.messages.iter().map(|message| message.bytes as f64).sum();
    let mean = bytes / program.messages.len().max(1) as f64;
    ((network.latency as f64 + mean * network.per_byte) / 100.0) as u64
}

#[cfg(test)]
#[path = "play_tests.rs"]
mod tests;
