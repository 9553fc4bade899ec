//! Which send and which receive are one message, and which calls of several ranks are one call.
//!
//! The sequences of all ranks begin with the program or end with it, without gaps. So the first
//! receive that fits a message takes the first message that fits it, as MPI has it, or the last
//! takes the last. Of messages from several senders that fit a receive from anybody, the clocks of
//! the ranks tell which was sent first. What has no other half is beyond the other edge.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::part::number_of;
use crate::run::RankRecord;
use crate::simulate::trace::{Receives, Trace};

/// From which end of a program its sequences are without a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Anchor {
    Start,
    End,
}

/// Messages and calls of several ranks, with the numbers that their parts have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paired {
    /// By rank and send.
    pub(crate) sent: Vec<Vec<Option<u32>>>,
    /// By rank and receive.
    pub(crate) received: Vec<Vec<Option<u32>>>,
    /// By rank and part in a call of all ranks.
    pub(crate) joined: Vec<Vec<Option<u32>>>,
    /// Rank and send, rank and receive.
    pub(crate) messages: Vec<[(u32, u32); 2]>,
    /// The parts of each call of several ranks: rank and part.
    pub(crate) calls: Vec<Vec<(u32, u32)>>,
    /// Parts in calls of communicators whose ranks do not fit together.
    pub(crate) left_out: u64,
}

/// Messages from a rank with a tag, by communicator.
type Queues = BTreeMap<(u64, u32, i32), VecDeque<u32>>;

/// Pairs the calls of all ranks.
pub(crate) fn pair(traces: &[Trace], ranks: &[RankRecord], anchor: Anchor) -> Paired {
    let mut paired = Paired {
        sent: traces.iter().map(|trace| vec![None; trace.sends.len()]).collect(),
        received: traces.iter().map(|trace| vec![None; trace.receives.len()]).collect(),
        joined: traces.iter().map(|trace| vec![None; trace.joins.len()]).collect(),
        ..Paired::default()
    };
    messages(&mut paired, traces, ranks, anchor);
    calls(&mut paired, traces, ranks, anchor);
    paired
}

fn messages(paired: &mut Paired, traces: &[Trace], ranks: &[RankRecord], anchor: Anchor) {
    let mut to: Vec<Queues> = vec![Queues::new(); traces.len()];
    for (from, trace) in traces.iter().enumerate() {
        for (place, send) in trace.sends.iter().enumerate() {
            if let Some(queues) = to.get_mut(send.to as usize) {
                let key = (number_of(&ranks[from].comms, send.comm), from as u32, send.tag);
                queues.entry(key).or_default().push_back(place as u32);
            }
        }
    }
    for (rank, (trace, mut queues)) in traces.iter().zip(to).enumerate() {
        let mut places: Vec<usize> = (0..trace.receives.len()).collect();
        if anchor == Anchor::End {
            places.reverse();
        }
        for place in places {
            let receive = &trace.receives[place];
            let comm = receive.comm.map(|index| number_of(&ranks[rank].comms, index));
            let Some(key) = fitting(&queues, receive, comm, traces, anchor) else { continue };
            let Some(queue) = queues.get_mut(&key) else { continue };
            let send = match anchor {
                Anchor::Start => queue.pop_front(),
                Anchor::End => queue.pop_back(),
            };
            if queue.is_empty() {
                queues.remove(&key);
            }
            let Some(send) = send else { continue };
            let number = paired.messages.len() as u32;
            paired.sent[key.1 as usize][send as usize] = Some(number);
            paired.received[rank][place] = Some(number);
            paired.messages.push([(key.1, send), (rank as u32, place as u32)]);
        }
    }
}

/// The queue whose next message a receive takes.
fn fitting(
    queues: &Queues,
    receive: &Receives,
    comm: Option<u64>,
    traces: &[Trace],
    anchor: Anchor,
) -> Option<(u64, u32, i32)> {
    if let (Some(comm), Some(from), Some(tag)) = (comm, receive.from, receive.tag) {
        let key = (comm, from, tag);
        return queues.contains_key(&key).then_some(key);
    }
    let fits = |key: &(u64, u32, i32)| {
        comm.is_none_or(|comm| comm == key.0)
            && receive.from.is_none_or(|from| from == key.1)
            && receive.tag.is_none_or(|tag| tag == key.2)
    };
    let sent_at = |(key, queue): (&(u64, u32, i32), &VecDeque<u32>)| {
        let send = match anchor {
            Anchor::Start => queue.front(),
            Anchor::End => queue.back(),
        };
        let trace = &traces[key.1 as usize];
        let call = trace.sends.get(*send? as usize)?.call;
        Some((trace.calls.get(call as usize)?.start_ns, *key))
    };
    let those = queues.iter().filter(|(key, _)| fits(key)).filter_map(sent_at);
    let found = match anchor {
        Anchor::Start => those.min(),
        Anchor::End => those.max(),
    };
    found.map(|(_, key)| key)
}

fn calls(paired: &mut Paired, traces: &[Trace], ranks: &[RankRecord], anchor: Anchor) {
    let mut parts: BTreeMap<u64, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for (rank, trace) in traces.iter().enumerate() {
        for (place, join) in trace.joins.iter().enumerate() {
            let of_comm = parts.entry(number_of(&ranks[rank].comms, join.comm)).or_default();
            of_comm.entry(rank as u32).or_default().push(place as u32);
        }
    }
    for (id, of_comm) in parts {
        let sizes: BTreeSet<u32> = ranks
            .iter()
            .filter_map(|rank| rank.comms.iter().find(|comm| comm.id == id))
            .map(|comm| comm.size)
            .collect();
        let count = of_comm.values().map(Vec::len).min().unwrap_or(0);
        if sizes.len() != 1 || !sizes.contains(&(of_comm.len() as u32)) {
            paired.left_out += of_comm.values().map(|parts| parts.len() as u64).sum::<u64>();
            continue;
        }
        for number in 0..count {
            let of = |(rank, parts): (&u32, &Vec<u32>)| {
                let place = match anchor {
                    Anchor::Start => number,
                    Anchor::End => parts.len() - count + number,
                };
                (*rank, parts[place])
            };
            let those: Vec<(u32, u32)> = of_comm.iter().map(of).collect();
            let row = |(rank, part): &(u32, u32)| traces[*rank as usize].joins[*part as usize].row;
            if those.iter().any(|one| row(one) != row(&those[0])) {
                paired.left_out += those.len() as u64;
                continue;
            }
            for (rank, part) in &those {
                let call = paired.calls.len() as u32;
                paired.joined[*rank as usize][*part as usize] = Some(call);
            }
            paired.calls.push(those);
        }
    }
}
