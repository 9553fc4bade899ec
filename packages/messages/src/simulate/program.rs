//! What is played: for each recorded rank a list of computations, messages and waits, over some
//! steps of the program that were found to repeat, or over all that is known of it.

use std::collections::HashMap;
use std::ops::Range;

use crate::calls::{CALLS, Does, Gives};
use crate::channel::{Channel, Place, What as Sent, class_of};
use crate::measure::Flow;
use crate::part::Ending;
use crate::run::{RankRecord, Run};
use crate::simulate::pairing::{Anchor, Paired, pair};
use crate::simulate::period::period;
use crate::simulate::trace::{Half, Kept, Mode, Trace, What};

/// The longest computation and the largest message that are believed.
const LONGEST_NS: u64 = 30 * 86_400 * 1_000_000_000;
const LARGEST: u64 = 1 << 44;

/// Something that a rank does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Computes for so many picoseconds.
    Compute(u64),
    /// Sends a message, or offers to.
    Send(u32),
    /// Is ready to receive a message.
    Post(u32),
    /// Takes part in a call of several ranks.
    Enter(u32),
    /// Waits for those of the list of its rank, from one place up to another.
    Wait(u32, u32),
}

/// A message between two recorded ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Message {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    pub(crate) mode: Mode,
    /// What was measured is found by this; `None` where bytes are not in main memory.
    pub(crate) flow: Option<Flow>,
}

/// A call of several recorded ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Together {
    /// How many of the recorded ranks take part.
    pub(crate) ranks: u32,
    /// The most bytes that one of them gives.
    pub(crate) bytes: u64,
    pub(crate) gives: Gives,
    /// Whether it is a reduction.
    pub(crate) reduces: bool,
}

/// Recorded ranks and what they do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Vec<Op>>,
    pub(crate) waits: Vec<Vec<Half>>,
    pub(crate) messages: Vec<Message>,
    pub(crate) together: Vec<Together>,
    /// How many steps it has; `None` when nothing was found to repeat.
    pub(crate) steps: Option<u32>,
    /// How long it took when it was recorded.
    pub(crate) recorded_ns: u64,
    pub(crate) notes: Vec<String>,
}

impl Program {
    /// What some steps of a run do, at most so many operations of all recorded ranks.
    ///
    /// # Errors
    /// Why nothing can be played, in a sentence.
    pub(crate) fn of(run: &Run, kept: &[Kept], steps: u32, most: u64) -> Result<Program, String> {
        let finished = run.ranks.iter().all(|rank| rank.ending == Ending::Finalized);
        let whole = kept.iter().all(|kept| kept.whole);
        let anchor = if finished && !whole { Anchor::End } else { Anchor::Start };
        let traces: Vec<Trace> = kept
            .iter()
            .map(|kept| {
                let from_end = anchor == Anchor::End && !kept.whole;
                Trace::of(if from_end { &kept.last } else { &kept.first }, kept)
            })
            .collect();
        check(&traces)?;
        let paired = pair(&traces, &run.ranks, anchor);
        let cut = Cut::of(&traces, &paired, anchor, steps, most)?;
        let mut program = compile(run, &traces, &paired, &cut);
        program.note(run, &paired, whole);
        Ok(program)
    }

    fn note(&mut self, run: &Run, paired: &Paired, whole: bool) {
        if self.steps.is_none() {
            self.notes.push(
                "No step that repeats was found: times are those of all that is known of the \
                 program."
                    .to_owned(),
            );
        }
        if !whole && self.steps.is_none() {
            self.notes.push(
                "Of the program a part is known: record it with more --events to have all."
                    .to_owned(),
            );
        }
        if paired.left_out > 0 {
            self.notes.push(format!(
                "{} parts in calls of several ranks whose other parts are not known are left out.",
                paired.left_out
            ));
        }
        let looked = |name: &str| matches!(name, "MPI_Probe" | "MPI_Mprobe" | "MPI_Iprobe");
        let calls = run.ranks.iter().flat_map(|rank| &rank.calls);
        if calls.clone().any(|call| looked(&call.name) && call.calls > 0) {
            self.notes.push(
                "The program looks for messages before it receives them (MPI_Probe): the time of \
                 that counts as computation."
                    .to_owned(),
            );
        }
    }
}

fn check(traces: &[Trace]) -> Result<(), String> {
    if traces.iter().all(|trace| trace.calls.is_empty()) {
        return Err("the run has no events: record it with --events 65536.".to_owned());
    }
    for trace in traces {
        let long = trace.calls.iter().any(|call| call.gap_ns > LONGEST_NS);
        let large = trace.sends.iter().any(|send| send.bytes > LARGEST)
            || trace.joins.iter().any(|join| join.bytes > LARGEST);
        if long || large {
            return Err(
                "its events make no sense: one lasts for more than 30 days or moves more than \
                 16 TiB."
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// The calls of each rank that are played.
struct Cut {
    from: Vec<usize>,
    to: Vec<usize>,
    steps: Option<u32>,
}

impl Cut {
    /// The steps of the first rank, and what the others did meanwhile: from a call of all ranks to
    /// another one where there are such calls, or else by their clocks.
    fn of(
        traces: &[Trace],
        paired: &Paired,
        anchor: Anchor,
        steps: u32,
        most: u64,
    ) -> Result<Cut, String> {
        let lead = &traces[0];
        let known = known(traces, anchor);
        let signs: Vec<u64> = lead.calls[known.clone()].iter().map(|call| call.sign).collect();
        if let Some(found) = period(&signs) {
            let (found_at, end) =
                (known.start + found.start, known.start + found.start + found.length);
            // The step at the edge is not like the others, if there are others.
            let spare = usize::from(found.length >= 4 * found.period);
            let start = found_at + if anchor == Anchor::Start { spare * found.period } else { 0 };
            let after_all = (start..start + found.period)
                .find(|call| shared(paired, lead, *call, traces.len()).is_some());
            let begin = after_all.map_or(start, |call| call + 1);
            let room = (end - begin) / found.period;
            let room = if anchor == Anchor::End && room > 1 { room - spare } else { room };
            for count in (1..=steps.min(room as u32)).rev() {
                let skipped = if anchor == Anchor::End { room - count as usize } else { 0 };
                let begin = begin + skipped * found.period;
                let end = begin + count as usize * found.period;
                let cut = Cut::between(traces, paired, begin, end, after_all.is_some(), count);
                if cut.calls() <= most {
                    return Ok(cut);
                }
            }
        }
        let all = Cut {
            from: vec![0; traces.len()],
            to: traces.iter().map(|trace| trace.calls.len()).collect(),
            steps: None,
        };
        if all.calls() > most {
            return Err(format!(
                "what is known of the program has {} calls, and on so many ranks at most {most} \
                 can be played: ask for fewer ranks, or record with fewer --events.",
                all.calls()
            ));
        }
        Ok(all)
    }

    fn between(
        traces: &[Trace],
        paired: &Paired,
        begin: usize,
        end: usize,
        by_call: bool,
        count: u32,
    ) -> Cut {
        let lead = &traces[0];
        let place = |rank: usize, boundary: usize| -> usize {
            let trace = &traces[rank];
            let same = by_call.then(|| shared(paired, lead, boundary - 1, traces.len())).flatten();
            match same {
                Some(call) => paired.calls[call as usize]
                    .iter()
                    .find(|(other, _)| *other as usize == rank)
                    .map_or(0, |(_, part)| trace.joins[*part as usize].call as usize + 1),
                None if rank == 0 => boundary,
                None => {
                    let last = lead.calls.last().map_or(0, |call| call.start_ns.saturating_add(1));
                    let at = lead.calls.get(boundary).map_or(last, |call| call.start_ns);
                    trace.calls.partition_point(|call| call.start_ns < at)
                }
            }
        };
        let from: Vec<usize> = (0..traces.len()).map(|rank| place(rank, begin)).collect();
        let to = (0..traces.len()).map(|rank| place(rank, end).max(from[rank])).collect();
        Cut { from, to, steps: Some(count) }
    }

    fn calls(&self) -> u64 {
        self.from.iter().zip(&self.to).map(|(from, to)| (to - from) as u64).sum()
    }

    fn has(&self, rank: u32, call: u32) -> bool {
        let rank = rank as usize;
        (self.from[rank]..self.to[rank]).contains(&(call as usize))
    }
}

/// The calls of the first rank during which something is known of all ranks, by their clocks.
fn known(traces: &[Trace], anchor: Anchor) -> Range<usize> {
    let calls = &traces[0].calls;
    let some = traces.iter().filter(|trace| !trace.calls.is_empty());
    match anchor {
        Anchor::Start => {
            let ends = some.filter_map(|trace| trace.calls.last()).map(|call| call.start_ns);
            let end = ends.min().unwrap_or(0);
            0..calls.partition_point(|call| call.start_ns <= end)
        }
        Anchor::End => {
            let begins = some.filter_map(|trace| trace.calls.first()).map(|call| call.start_ns);
            let begin = begins.max().unwrap_or(0);
            calls.partition_point(|call| call.start_ns < begin)..calls.len()
        }
    }
}

/// The call of all ranks that this call of a rank is.
fn shared(paired: &Paired, lead: &Trace, call: usize, ranks: usize) -> Option<u32> {
    let (What::Do(halves), true) = (&lead.calls.get(call)?.what, ranks > 0) else { return None };
    let [Half::Together(part)] = halves[..] else { return None };
    let found = paired.joined[0][part as usize]?;
    (paired.calls[found as usize].len() == ranks).then_some(found)
}

fn compile(run: &Run, traces: &[Trace], paired: &Paired, cut: &Cut) -> Program {
    let mut program = Program { steps: cut.steps, ..Program::default() };
    let messages = messages(&mut program, run, traces, paired, cut);
    let together = together(&mut program, traces, paired, cut);
    for (rank, trace) in traces.iter().enumerate() {
        let number = |half: Half| match half {
            Half::Sent(place) => {
                let found = messages[paired.sent[rank][place as usize]? as usize]?;
                Some(Half::Sent(found))
            }
            Half::Received(place) => {
                let found = messages[paired.received[rank][place as usize]? as usize]?;
                Some(Half::Received(found))
            }
            Half::Together(place) => {
                let found = together[paired.joined[rank][place as usize]? as usize]?;
                Some(Half::Together(found))
            }
        };
        let mut writing = Writing::default();
        for call in &trace.calls[cut.from[rank]..cut.to[rank]] {
            writing.call(call.gap_ns, &call.what, number);
        }
        program.ops.push(writing.ops);
        program.waits.push(writing.waits);
    }
    let lead = &traces[0].calls[cut.from[0]..cut.to[0]];
    if let (Some(first), Some(last)) = (lead.first(), lead.last()) {
        let begin = first.start_ns.saturating_sub(first.gap_ns);
        program.recorded_ns = last.end_ns.saturating_sub(begin);
    }
    program
}

/// Takes in the messages that are sent and received within the cut; the numbers that they have.
fn messages(
    program: &mut Program,
    run: &Run,
    traces: &[Trace],
    paired: &Paired,
    cut: &Cut,
) -> Vec<Option<u32>> {
    let channels: Vec<Channels> = run.ranks.iter().map(Channels::of).collect();
    let mut numbers = vec![None; paired.messages.len()];
    for (number, [(from, send), (to, receive)]) in numbers.iter_mut().zip(&paired.messages) {
        let send = &traces[*from as usize].sends[*send as usize];
        let receive = &traces[*to as usize].receives[*receive as usize];
        if cut.has(*from, send.call) && cut.has(*to, receive.call) {
            *number = Some(program.messages.len() as u32);
            let key = (send.comm, send.to, send.tag, class_of(send.bytes));
            program.messages.push(Message {
                from: *from,
                to: *to,
                bytes: send.bytes,
                mode: send.mode,
                flow: channels[*from as usize].flow(key),
            });
        }
    }
    numbers
}

/// Takes in the calls of several ranks that all of them make within the cut.
fn together(
    program: &mut Program,
    traces: &[Trace],
    paired: &Paired,
    cut: &Cut,
) -> Vec<Option<u32>> {
    let mut numbers = vec![None; paired.calls.len()];
    for (number, parts) in numbers.iter_mut().zip(&paired.calls) {
        let joins =
            parts.iter().map(|(rank, part)| (*rank, &traces[*rank as usize].joins[*part as usize]));
        let inside = joins.clone().all(|(rank, join)| cut.has(rank, join.call));
        let row = joins.clone().next().and_then(|(_, join)| CALLS.get(usize::from(join.row)));
        if let Some(call) = row.filter(|_| inside && parts.len() > 1) {
            let (Does::Together(gives) | Does::TogetherInit(gives)) = call.does else { continue };
            *number = Some(program.together.len() as u32);
            program.together.push(Together {
                ranks: parts.len() as u32,
                bytes: joins.map(|(_, join)| join.bytes).max().unwrap_or(0),
                gives,
                reduces: call.name.contains("educe") || call.name.contains("can"),
            });
        }
    }
    numbers
}

#[derive(Default)]
struct Writing {
    ops: Vec<Op>,
    waits: Vec<Half>,
}

impl Writing {
    fn call(&mut self, gap_ns: u64, what: &What, number: impl Fn(Half) -> Option<Half>) {
        if gap_ns > 0 {
            self.ops.push(Op::Compute(gap_ns * 1000));
        }
        match what {
            What::Begin(half) => self.ops.extend(number(*half).map(begin)),
            What::Do(halves) => {
                let those: Vec<Half> = halves.iter().filter_map(|half| number(*half)).collect();
                // Who sends and receives by one call is ready to receive first.
                self.ops.extend(those.iter().rev().map(|half| begin(*half)));
                self.wait(&those);
            }
            What::Wait(halves) => {
                let those: Vec<Half> = halves.iter().filter_map(|half| number(*half)).collect();
                self.wait(&those);
            }
        }
    }

    fn wait(&mut self, halves: &[Half]) {
        if !halves.is_empty() {
            let from = self.waits.len() as u32;
            self.waits.extend(halves);
            self.ops.push(Op::Wait(from, self.waits.len() as u32));
        }
    }
}

fn begin(half: Half) -> Op {
    match half {
        Half::Sent(message) => Op::Send(message),
        Half::Received(message) => Op::Post(message),
        Half::Together(call) => Op::Enter(call),
    }
}

/// The channels of a rank, by what an event tells of a message.
struct Channels<'a> {
    rank: &'a RankRecord,
    by: HashMap<(u16, u32, i32, u8), &'a Channel>,
}

impl Channels<'_> {
    /// Of channels that differ in the type of their values alone, the one with most bytes.
    fn of(rank: &RankRecord) -> Channels<'_> {
        let mut by: HashMap<_, &Channel> = HashMap::new();
        for channel in rank.channels.iter().filter(|one| one.key.what == Sent::Messages) {
            let key = channel.key;
            let one = by.entry((key.comm, key.peer, key.tag, key.class)).or_insert(channel);
            if one.bytes < channel.bytes {
                *one = channel;
            }
        }
        Channels { rank, by }
    }

    fn flow(&self, key: (u16, u32, i32, u8)) -> Option<Flow> {
        let folded = (key.0, key.1, crate::channel::Key::ANY_TAG, key.3);
        let channel = self.by.get(&key).or_else(|| self.by.get(&folded))?;
        (channel.key.place == Place::Host).then(|| Flow::of(&channel.key, &self.rank.comms))
    }
}
