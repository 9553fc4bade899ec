//! What a rank did, as its events tell it: calls with the computation before each, and which half
//! of which message a wait has waited for.

use std::collections::{HashMap, VecDeque};

use crate::calls::{CALLS, Call, Does};
use crate::events::{Event, Events};
use crate::hash::hash;

/// Events of all ranks that are kept in memory.
const MOST_EVENTS: usize = 1 << 21;
/// The least of a rank.
const LEAST: usize = 1 << 10;

/// The events of a rank that are kept: all of them, or its first and its last ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) first: Vec<Event>,
    pub(crate) last: Vec<Event>,
    pub(crate) whole: bool,
    /// What requests were prepared for, which may be long before they are started.
    prepared: HashMap<u64, Event>,
}

impl Kept {
    /// Keeps the share of a rank among so many.
    pub(crate) fn of(events: Events, ranks: usize) -> Kept {
        let most = (MOST_EVENTS / ranks.max(1)).max(LEAST);
        let mut prepared = HashMap::new();
        for event in events.first.iter().chain(&events.last) {
            if call_of(event).is_some_and(prepares) {
                prepared.insert(event.request, *event);
            }
        }
        let Events { total, mut first, mut last } = events;
        let whole = (first.len() + last.len()) as u64 == total;
        if whole && first.len() + last.len() <= most {
            first.append(&mut last);
            return Kept { first, last, whole: true, prepared };
        }
        if last.is_empty() {
            last = first.split_off(first.len() / 2);
        }
        first.truncate(most / 2);
        last.drain(..last.len().saturating_sub(most / 2));
        Kept { first, last, whole: false, prepared }
    }
}

fn call_of(event: &Event) -> Option<&'static Call> {
    CALLS.get(usize::from(event.call))
}

/// Whether a call prepares something that is started later.
fn prepares(call: &Call) -> bool {
    match call.does {
        Does::SendInit | Does::PsendInit | Does::TogetherInit(_) => true,
        Does::Receive => call.name.ends_with("_init"),
        _ => false,
    }
}

/// A rank's calls, in order, with the messages that it sends and receives and the calls of all
/// ranks that it takes part in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) calls: Vec<Made>,
    pub(crate) sends: Vec<Sends>,
    pub(crate) receives: Vec<Receives>,
    pub(crate) joins: Vec<Joins>,
}

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Computation before it.
    pub(crate) gap_ns: u64,
    row: u8,
    /// The same for calls that are alike.
    pub(crate) sign: u64,
    pub(crate) what: What,
}

/// What a call did, by places in the lists of its rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Began something, and did not wait for it.
    Begin(Half),
    /// Began these and waited for all of them.
    Do(Vec<Half>),
    /// Waited for what was begun before.
    Wait(Vec<Half>),
}

/// One side of a message, or a part in a call of all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Sent(u32),
    Received(u32),
    Together(u32),
}

/// A message that a rank sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sends {
    pub(crate) call: u32,
    pub(crate) comm: u16,
    pub(crate) to: u32,
    pub(crate) tag: i32,
    pub(crate) bytes: u64,
    pub(crate) mode: Mode,
}

/// How a message leaves its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// At once when it is small.
    Usual,
    /// At once.
    Buffered,
    /// When its receiver is there.
    Synchronous,
}

/// A message that a rank receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receives {
    pub(crate) call: u32,
    /// `None` for a message that was looked at before: which, the event does not tell.
    pub(crate) comm: Option<u16>,
    /// `None` for anybody.
    pub(crate) from: Option<u32>,
    /// `None` for any.
    pub(crate) tag: Option<i32>,
}

/// A part in a call of all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joins {
    pub(crate) call: u32,
    pub(crate) comm: u16,
    pub(crate) row: u8,
    pub(crate) bytes: u64,
}

impl Trace {
    /// Reads events in order. Of requests that were begun before the first of them, and of calls
    /// that nobody knows, there is nothing.
    pub(crate) fn of(events: &[Event], kept: &Kept) -> Trace {
        let mut reading = Reading {
            trace: Trace::default(),
            prepared: &kept.prepared,
            pending: HashMap::new(),
            last_end: None,
        };
        events.iter().for_each(|event| reading.take(event));
        reading.trace
    }
}

struct Reading<'a> {
    trace: Trace,
    prepared: &'a HashMap<u64, Event>,
    /// What was begun by the name of its request. A library may have one name for all that are
    /// complete at once, so there may be several.
    pending: HashMap<u64, VecDeque<Vec<Half>>>,
    /// When the calls before have ended.
    last_end: Option<u64>,
}

impl Reading<'_> {
    fn take(&mut self, event: &Event) {
        if let Some(call) = call_of(event) {
            self.call(event, call);
        }
        // A call of which nothing is played took its time as well.
        if self.trace.calls.last().is_none_or(|last| last.start_ns != event.start_ns) {
            self.made(event, What::Wait(Vec::new()));
        }
    }

    fn call(&mut self, event: &Event, call: &Call) {
        let at_once = !call.name.starts_with('I');
        match call.does {
            Does::Send => {
                let half = self.sends(event, mode_of(call.name));
                // What a call receives that sends as well is the next event.
                match half {
                    None if call.name.contains("endrecv") => self.made(event, What::Do(Vec::new())),
                    None => {}
                    Some(half) => self.begun(event, half, at_once),
                }
            }
            Does::Receive if !prepares(call) => {
                let looked_at = matches!(call.name, "Mrecv" | "Imrecv");
                let half = self.receives(event, looked_at);
                if let Some(half) = half.filter(|half| !self.joined(event, *half)) {
                    self.begun(event, half, at_once);
                }
            }
            Does::Together(_) => {
                let half = self.joins(event, event.call);
                self.begun(event, half, at_once);
            }
            Does::Start | Does::Startall => self.starts(event),
            Does::Pready | Does::PreadyRange | Does::PreadyList => {
                if let Some(half) = self.sends(event, Mode::Usual) {
                    self.begun(event, half, false);
                }
            }
            Does::Wait | Does::Waitall | Does::Waitany | Does::Waitsome | Does::Test => {
                self.waits(event);
            }
            _ => {}
        }
    }

    /// A call that was made, with the computation since the one before.
    fn made(&mut self, event: &Event, what: What) {
        let end_ns = event.start_ns.saturating_add(event.duration_ns.into());
        let gap_ns = self.last_end.map_or(0, |end| event.start_ns.saturating_sub(end));
        // A longer call is told as this long: when it ended is not known.
        let told = event.duration_ns < u32::MAX;
        self.last_end = told.then(|| self.last_end.map_or(end_ns, |end| end.max(end_ns)));
        let (row, sign) = (event.call, sign_of(event));
        let made = Made { start_ns: event.start_ns, end_ns, gap_ns, row, sign, what };
        self.trace.calls.push(made);
    }

    fn begun(&mut self, event: &Event, half: Half, at_once: bool) {
        if at_once {
            self.made(event, What::Do(vec![half]));
        } else {
            self.pending.entry(event.request).or_default().push_back(vec![half]);
            self.made(event, What::Begin(half));
        }
    }

    /// Takes the receiving half of a call that sends as well; whether there was one.
    fn joined(&mut self, event: &Event, half: Half) -> bool {
        let call = (self.trace.calls.len() as u32).wrapping_sub(1);
        let Some(before) = self.trace.calls.last_mut() else { return false };
        let both =
            CALLS.get(usize::from(before.row)).is_some_and(|call| call.name.contains("endrecv"));
        let is_both = both && before.start_ns == event.start_ns;
        match &mut before.what {
            What::Do(halves) if is_both && halves.len() < 2 => {
                halves.push(half);
                before.sign = mixed(&[before.sign, sign_of(event)]);
                if let Half::Received(place) = half {
                    self.trace.receives[place as usize].call = call;
                }
                true
            }
            What::Begin(_) if is_both => {
                let halves = self.pending.get_mut(&event.request).and_then(VecDeque::back_mut);
                if let Some(halves) = halves {
                    halves.push(half);
                }
                self.made(event, What::Begin(half));
                true
            }
            _ => false,
        }
    }

    fn starts(&mut self, event: &Event) {
        if event.peer >= 0 {
            if let Some(half) = self.sends(event, Mode::Usual) {
                self.begun(event, half, false);
            }
            return;
        }
        let Some(prepared) = self.prepared.get(&event.request) else { return };
        let as_now = Event {
            start_ns: event.start_ns,
            duration_ns: event.duration_ns,
            request: event.request,
            ..*prepared
        };
        let half = match call_of(prepared).map(|call| call.does) {
            Some(Does::Receive) => self.receives(&as_now, false),
            Some(Does::TogetherInit(_)) => Some(self.joins(&as_now, prepared.call)),
            _ => None,
        };
        if let Some(half) = half {
            self.begun(&as_now, half, false);
        }
    }

    fn waits(&mut self, event: &Event) {
        let Some(queue) = self.pending.get_mut(&event.request) else { return };
        let Some(halves) = queue.pop_front() else { return };
        if queue.is_empty() {
            self.pending.remove(&event.request);
        }
        if let Some(before) = self.trace.calls.last_mut()
            && let What::Wait(all) = &mut before.what
            && (before.start_ns, before.row) == (event.start_ns, event.call)
        {
            all.extend(halves);
            before.sign = mixed(&[before.sign, 1]);
            return;
        }
        self.made(event, What::Wait(halves));
    }

    fn sends(&mut self, event: &Event, mode: Mode) -> Option<Half> {
        let to = u32::try_from(event.peer).ok()?;
        let call = self.trace.calls.len() as u32;
        let Event { comm, tag, bytes, .. } = *event;
        self.trace.sends.push(Sends { call, comm, to, tag, bytes, mode });
        Some(Half::Sent(self.trace.sends.len() as u32 - 1))
    }

    fn receives(&mut self, event: &Event, looked_at: bool) -> Option<Half> {
        let from = u32::try_from(event.peer).ok();
        if from.is_none() && event.peer != Event::ANYBODY {
            return None;
        }
        let call = self.trace.calls.len() as u32;
        let comm = (!looked_at).then_some(event.comm);
        let tag = Some(event.tag).filter(|tag| *tag >= 0 && !looked_at);
        self.trace.receives.push(Receives { call, comm, from, tag });
        Some(Half::Received(self.trace.receives.len() as u32 - 1))
    }

    fn joins(&mut self, event: &Event, row: u8) -> Half {
        let call = self.trace.calls.len() as u32;
        self.trace.joins.push(Joins { call, comm: event.comm, row, bytes: event.bytes });
        Half::Together(self.trace.joins.len() as u32 - 1)
    }
}

fn sign_of(event: &Event) -> u64 {
    mixed(&[
        u64::from(event.call) | u64::from(event.comm) << 8,
        u64::from(event.peer as u32) | u64::from(event.tag as u32) << 32,
        event.bytes,
    ])
}

fn mixed(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    hash(&bytes) as u64
}

fn mode_of(name: &str) -> Mode {
    match name {
        "Bsend" | "Ibsend" => Mode::Buffered,
        "Ssend" | "Issend" => Mode::Synchronous,
        _ => Mode::Usual,
    }
}
