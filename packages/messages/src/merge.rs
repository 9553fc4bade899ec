//! The parts of all ranks as one run: what was counted is copied, samples are coded, and what is
//! missing is said.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::calls::CALLS;
use crate::measure::{Coders, Flow, Measure, Outcome, measure};
use crate::part::{self, Ending, Found, Payload};
use crate::run::{About, CallTotal, Duplicates, RankRecord, Writer};
use crate::sample::{self, Sample};

/// The most payloads of all ranks that are compared with each other; of more, a part that is chosen
/// by their hashes.
const MOST_PAYLOADS: u64 = 1 << 22;

/// Parts of one program: where each rank's is, in the order of ranks.
#[derive(Debug)]
pub struct Chosen<T> {
    /// How many ranks there were.
    pub size: u32,
    /// The parts that are there.
    pub parts: Vec<(u32, T)>,
    /// What was left out, in sentences.
    pub notes: Vec<String>,
}

/// Chooses the parts of one program: the one that began last, when there were several.
///
/// # Errors
/// There is none, in a sentence.
pub fn choose<T>(all: Vec<(part::Identity, T)>) -> Result<Chosen<T>, String> {
    let mut by_rank: HashMap<u32, Vec<(part::Identity, T)>> = HashMap::new();
    let newest = all.iter().map(|(who, _)| who).max_by_key(|who| who.started_unix_ns);
    let size = newest.ok_or("No rank has left anything.")?.size;
    let (mut others, mut notes) = (0, Vec::new());
    for (who, one) in all {
        if who.size == size && who.rank < size {
            by_rank.entry(who.rank).or_default().push((who, one));
        } else {
            others += 1;
        }
    }
    let mut parts: Vec<(u32, T)> = Vec::new();
    for (rank, mut of_rank) in by_rank {
        of_rank.sort_by_key(|(who, _)| who.started_unix_ns);
        others += of_rank.len() - 1;
        parts.extend(of_rank.pop().map(|(_, one)| (rank, one)));
    }
    parts.sort_by_key(|(rank, _)| *rank);
    if others > 0 {
        notes.push(format!(
            "Several MPI programs ran: {others} parts of earlier ones or of other worlds are left \
             out. Record one program at a time to have each."
        ));
    }
    Ok(Chosen { size, parts, notes })
}

/// Puts a run together, one part at a time.
#[derive(Debug)]
pub struct Merger {
    deadline: Instant,
    coders: Coders,
    measures: HashMap<Flow, Vec<Outcome>>,
    ranks: Vec<RankRecord>,
    receivers: Received,
    notes: Vec<String>,
    about: About,
}

/// Payloads by who got them.
#[derive(Debug)]
struct Received {
    /// One of so many hashes is looked at.
    one_of: u64,
    counts: HashMap<(u32, u128), u64>,
}

impl Merger {
    /// Begins a run of `size` ranks, whose samples are coded for at most `time`.
    #[must_use]
    pub fn begin(command: Vec<String>, size: u32, notes: Vec<String>, time: Duration) -> Merger {
        let payloads = part::Limits::default().payloads as u64 * u64::from(size);
        Merger {
            deadline: Instant::now() + time,
            coders: Coders::default(),
            measures: HashMap::new(),
            ranks: Vec::new(),
            receivers: Received {
                one_of: payloads.div_ceil(MOST_PAYLOADS).max(1),
                counts: HashMap::new(),
            },
            notes,
            about: About { command, size, ..About::default() },
        }
    }

    /// Takes the part of a rank in. `ranks_left` says among how many ranks, itself included, the
    /// remaining time is shared.
    ///
    /// # Errors
    /// Why it is not a part, in a sentence without its end.
    pub fn add(&mut self, bytes: &[u8], ranks_left: u32) -> Result<(), String> {
        let found = part::read(bytes)?;
        self.note(&found);
        let (samples, torn) = sample::read(&bytes[found.samples_at..]);
        if torn > 0 && found.ending == Ending::Finalized {
            let rank = found.who.rank;
            self.notes.push(format!("{torn} bytes of the samples of rank {rank} are damaged."));
        }
        let now = Instant::now();
        let share = self.deadline.saturating_duration_since(now) / ranks_left.max(1);
        self.code(&found, &samples, now + share);
        self.receivers.add(&found.payloads);
        if self.about.mpi.is_empty() {
            self.about.mpi.clone_from(&found.who.mpi);
        }
        let started = found.who.started_unix_ns;
        self.about.started_unix_ns = match self.about.started_unix_ns {
            0 => started,
            earlier => earlier.min(started),
        };
        self.ranks.push(record_of(found));
        Ok(())
    }

    /// Says that something is missing.
    pub fn missing(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Writes the run; `events` gives those of a rank, which are not kept: there may be many.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write<W: Write>(
        mut self,
        to: W,
        mut events: impl FnMut(u32) -> Option<crate::Events>,
    ) -> io::Result<W> {
        self.ranks.sort_by_key(|rank| rank.rank);
        self.about.notes = self.notes;
        let received = self.receivers.by_rank();
        let mut writer = Writer::begin(to, &self.about)?;
        for rank in &mut self.ranks {
            rank.received = received.get(&rank.rank).copied().unwrap_or_default();
            writer.rank(rank)?;
            if let Some(events) = events(rank.rank) {
                writer.events(rank.rank, &events)?;
            }
        }
        let mut measures: Vec<Measure> =
            self.measures.into_iter().map(|(flow, outcomes)| Measure { flow, outcomes }).collect();
        measures.sort_by_key(|measure| measure.flow);
        writer.end(&measures)
    }

    fn note(&mut self, found: &Found) {
        let rank = found.who.rank;
        let mut tell = |count: u64, what: &str| {
            if count > 0 {
                self.notes.push(format!("Rank {rank}: {what}"));
            }
        };
        let damaged = found.channels.iter().filter(|channel| channel.is_none()).count() as u64;
        tell(damaged, &format!("{damaged} channels are damaged and left out."));
        tell(u64::from(found.sampling_failed), "samples could not be written; is the disk full?");
        tell(
            found.folded,
            "it has more tags than there is room for; the further ones are counted as one.",
        );
        let starts = found.unknown_starts;
        tell(starts, &format!("{starts} starts of requests that were not seen being prepared."));
        let scattered = found.not_packed;
        tell(
            scattered,
            &format!("{scattered} messages of scattered values were too large to be sampled."),
        );
    }

    /// Codes the samples of a rank: the first run of every channel, then the second ones, until the
    /// time is over.
    fn code(&mut self, found: &Found, samples: &[Sample], deadline: Instant) {
        let mut runs = runs_of(samples);
        runs.sort_by_key(|(ordinal, _)| *ordinal);
        for (_, run) in runs {
            let channel = found.channels.get(run[0].row as usize).and_then(Option::as_ref);
            let Some(key) = channel.map(|channel| channel.key) else { continue };
            let flow = Flow::of(&key, &found.comms);
            let payloads: Vec<&[u8]> = run.iter().map(|sample| sample.payload).collect();
            let into = self.measures.entry(flow).or_default();
            measure(&mut self.coders, key.values, &payloads, into, deadline);
        }
    }
}

/// Consecutive samples of one channel and one length, with the ordinal of each run in its channel.
fn runs_of<'a, 'b>(samples: &'b [Sample<'a>]) -> Vec<(usize, Vec<&'b Sample<'a>>)> {
    let mut by_row: HashMap<u32, Vec<Vec<&Sample>>> = HashMap::new();
    for sample in samples {
        let runs = by_row.entry(sample.row).or_default();
        let follows = |run: &&mut Vec<&Sample>| {
            let last = run[run.len() - 1];
            last.number + 1 == sample.number && last.payload.len() == sample.payload.len()
        };
        match runs.last_mut().filter(follows) {
            Some(run) => run.push(sample),
            None => runs.push(vec![sample]),
        }
    }
    let mut rows: Vec<_> = by_row.into_iter().collect();
    rows.sort_by_key(|(row, _)| *row);
    rows.into_iter().flat_map(|(_, runs)| runs.into_iter().enumerate()).collect()
}

fn record_of(found: Found) -> RankRecord {
    let calls = found.calls.iter().filter_map(|(row, calls, ns)| {
        let name = format!("MPI_{}", CALLS.get(usize::from(*row))?.name);
        Some(CallTotal { name, calls: *calls, ns: *ns })
    });
    let comms = found.comms.len();
    let channels = found.channels.iter().flatten();
    let kept = channels
        .filter(|one| one.messages > 0 && usize::from(one.key.comm) < comms.max(1))
        .cloned();
    RankRecord {
        rank: found.who.rank,
        host: found.who.host.clone(),
        ending: found.ending,
        wall_ns: found.last_ns,
        calls: calls.collect(),
        comms: found.comms.clone(),
        channels: kept.collect(),
        sent: sent(&found.payloads),
        received: Duplicates::default(),
    }
}

/// Payloads of a rank that it had sent before, to anybody.
fn sent(payloads: &[Payload]) -> Duplicates {
    let mut counts: HashMap<u128, u64> = HashMap::new();
    for payload in payloads {
        *counts.entry(payload.hash).or_default() += u64::from(payload.count);
    }
    repeated(counts.into_values())
}

fn repeated(counts: impl Iterator<Item = u64>) -> Duplicates {
    counts.fold(Duplicates::default(), |all, count| Duplicates {
        compared: all.compared + count,
        same: all.same + count - 1,
    })
}

impl Received {
    fn add(&mut self, payloads: &[Payload]) {
        for payload in payloads.iter().filter(|one| (one.hash as u64).is_multiple_of(self.one_of)) {
            let count = self.counts.entry((payload.peer, payload.hash)).or_default();
            *count += u64::from(payload.count);
        }
    }

    fn by_rank(&self) -> HashMap<u32, Duplicates> {
        let mut all: HashMap<u32, Duplicates> = HashMap::new();
        for ((peer, _), count) in &self.counts {
            let one = all.entry(*peer).or_default();
            one.compared += count;
            one.same += count - 1;
        }
        all
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
