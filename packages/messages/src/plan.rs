//! Which messages of the next run of a program are coded, and how: made of a recorded run and of a
//! network, and read by every rank.
//!
//! A channel of the plan is a communicator and a tag, on all ranks and for messages of all sizes: a
//! receiver knows both before a message comes, and nothing else. In which way a message is coded
//! depends on its size, and is the sender's business.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::calls::{CALLS, Does};
use crate::channel::{Channel, Key, Place, What, class_of, class_range};
use crate::coded::{Choice, LONGEST};
use crate::hash::hash;
use crate::measure::{Outcome, Scheme};
use crate::part::number_of;
use crate::report::{FlowReport, Report};
use crate::run::{RankRecord, Run};

/// The word that a plan begins with.
const VERSION: &str = "unspool-plan-2";
/// Ways of coding in a plan at most, as it has to fit the environment of a process.
const MOST: usize = 512;
/// A way that saves less than this is not worth the header.
const LEAST: f64 = 0.05;

/// What limits a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// Bytes a second of the path between two ranks.
    pub network: f64,
    /// Bytes of the smallest message that is coded.
    pub threshold: u64,
    /// Bytes of messages that a rank keeps of those that were sent to it.
    pub memory: u64,
    /// The error that messages with a tag may have: of each value, as a part of the range of the
    /// values of its message. Those with other tags are coded without loss.
    pub bounds: BTreeMap<i32, f64>,
}

/// How messages of a channel are coded, by the class of their size.
pub type Ways = BTreeMap<u8, Choice>;

/// Which messages are coded, and how.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// Ranks of the run that it was made of, and of those that it is for.
    pub ranks: u32,
    /// Bytes that are kept for each rank that sends to another one.
    pub quota: u64,
    /// The smallest message that is coded.
    pub threshold: u64,
    /// The channels: number of the communicator and tag.
    pub channels: BTreeMap<(u64, i32), Ways>,
}

impl Plan {
    /// What pays in this run on this network.
    ///
    /// # Errors
    /// Why nothing of this program is coded, in a sentence.
    pub fn of(run: &Run, limits: &Limits) -> Result<Plan, String> {
        if let Some(rank) = run.missing().first() {
            return Err(format!("the run is not whole: rank {rank} is not in it."));
        }
        for rank in &run.ranks {
            let refused = rank.calls.iter().find(|call| call.calls > 0 && refuses(&call.name));
            if let Some(call) = refused {
                return Err(format!(
                    "rank {} calls {}, which looks at messages or prepares them in a way that is \
                     not coded.",
                    rank.rank, call.name
                ));
            }
        }
        let report = Report::of(run, Some(limits.network));
        let has = |tag: i32| report.flows.iter().any(|flow| flow.flow.tag == tag);
        if let Some(tag) = limits.bounds.keys().find(|tag| !has(**tag)) {
            return Err(format!("a bound is given for tag {tag}, which no recorded message has."));
        }
        let mut plan =
            Plan { ranks: run.about.size, threshold: limits.threshold, ..Plan::default() };
        for flow in &report.flows {
            let (comm, tag, class) = (flow.flow.comm, flow.flow.tag, flow.flow.class);
            if tag < 0 || comm == 0 || class_range(class).1 < limits.threshold {
                continue;
            }
            if let Some(choice) = best(flow, limits.network, limits.bounds.get(&tag).copied()) {
                plan.channels.entry((comm, tag)).or_default().entry(class).or_insert(choice);
            }
        }
        let pays = !plan.channels.is_empty();
        plan.channels.retain(|channel, _| all_can_be_coded(run, *channel));
        if pays && plan.channels.is_empty() {
            return Err(
                "what would pay is in memory of a GPU, in messages of more than 2 GiB, or on \
                        communicators with mpi_assert_allow_overtaking or \
                        mpi_assert_exact_length."
                    .to_owned(),
            );
        }
        let ways: usize = plan.channels.values().map(BTreeMap::len).sum();
        if ways == 0 {
            return Err("coding no kind of its messages pays on this network.".to_owned());
        }
        if ways > MOST {
            return Err(format!("{ways} kinds of messages pay, and a plan has at most {MOST}."));
        }
        plan.quota = limits.memory / plan.most_senders(run).max(1);
        Ok(plan)
    }

    /// Sees that a program of so many ranks is one that the plan is for: the communicators of
    /// another one are others, and nothing would be coded.
    ///
    /// # Errors
    /// It is not, in a sentence.
    pub fn check_ranks(&self, ranks: u32) -> Result<(), String> {
        if self.ranks == ranks {
            return Ok(());
        }
        let recorded = self.ranks;
        Err(format!(
            "the plan is of a run on {recorded} ranks, and this program has {ranks}: no message \
             would be coded. Record a run on {ranks} ranks and give it as --plan."
        ))
    }

    /// How a message of so many bytes is coded, if it is.
    #[must_use]
    pub fn choice(&self, comm: u64, tag: i32, bytes: u64) -> Option<Choice> {
        let ways = self.channels.get(&(comm, tag)).filter(|_| bytes >= self.threshold)?;
        ways.get(&class_of(bytes)).copied()
    }

    /// Whether messages of a communicator are coded.
    #[must_use]
    pub fn has(&self, comm: u64) -> bool {
        self.channels.range((comm, i32::MIN)..=(comm, i32::MAX)).next().is_some()
    }

    /// How many communicators and ranks send to the rank to which most do.
    fn most_senders(&self, run: &Run) -> u64 {
        let mut senders: BTreeMap<u32, u64> = BTreeMap::new();
        for rank in &run.ranks {
            let of = |channel: &Channel| (comm_of(rank, channel), channel.key.tag);
            let coded = messages(rank).filter(|channel| self.channels.contains_key(&of(channel)));
            let mut pairs: Vec<_> =
                coded.map(|channel| (channel.key.peer, channel.key.comm)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            pairs.iter().for_each(|(peer, _)| *senders.entry(*peer).or_default() += 1);
        }
        senders.values().copied().max().unwrap_or(0)
    }

    /// The plan as a text for the environment of a process.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{VERSION} {} {} {}", self.ranks, self.quota, self.threshold);
        for ((comm, tag), ways) in &self.channels {
            for (class, choice) in ways {
                let scheme = choice.scheme as u8;
                let _never = write!(text, " {comm:x},{tag},{class},{scheme},{}", choice.least);
            }
        }
        let sum = hash(text.as_bytes()) as u64;
        let _never = write!(text, " {sum:x}");
        text
    }

    /// Reads such a text.
    ///
    /// # Errors
    /// When it is none, in a sentence.
    pub fn read(text: &str) -> Result<Plan, &'static str> {
        const BROKEN: &str = "the plan is damaged: start the program with `unspool-messages run`.";
        let (body, sum) = text.rsplit_once(' ').ok_or(BROKEN)?;
        let mut words = body.split(' ');
        if words.next() != Some(VERSION) {
            return Err("the plan is of another version than this library.");
        }
        if format!("{:x}", hash(body.as_bytes()) as u64) != sum {
            return Err(BROKEN);
        }
        let mut number = || words.next()?.parse::<u64>().ok();
        let ranks = number().and_then(|ranks| u32::try_from(ranks).ok()).ok_or(BROKEN)?;
        let (quota, threshold) = (number().ok_or(BROKEN)?, number().ok_or(BROKEN)?);
        let mut plan = Plan { ranks, quota, threshold, channels: BTreeMap::new() };
        for word in words {
            let (channel, class, choice) = way(word).ok_or(BROKEN)?;
            plan.channels.entry(channel).or_default().insert(class, choice);
        }
        Ok(plan)
    }

    /// The plan in a few lines, for who runs the program.
    #[must_use]
    pub fn summary(&self, run: &Run) -> Vec<String> {
        let name = |number: u64| {
            let comms = run.ranks.iter().flat_map(|rank| &rank.comms);
            comms.into_iter().find(|comm| comm.id == number).map_or("?", |comm| comm.name.as_str())
        };
        let mut lines = Vec::new();
        for ((comm, tag), ways) in &self.channels {
            let mut schemes: Vec<&str> = ways.values().map(|way| way.scheme.name()).collect();
            schemes.dedup();
            lines.push(format!("{}, tag {tag}: {}", name(*comm), schemes.join("; ")));
        }
        lines
    }
}

fn way(word: &str) -> Option<((u64, i32), u8, Choice)> {
    let mut parts = word.split(',');
    let comm = u64::from_str_radix(parts.next()?, 16).ok()?;
    let (tag, class) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let scheme = Scheme::of_code(parts.next()?.parse().ok()?)?;
    let least = parts.next()?.parse().ok()?;
    scheme.alone().filter(|_| parts.next().is_none())?;
    Some(((comm, tag), class, Choice { scheme, least }))
}

/// Whether a program that calls this function is not coded: what looks at messages sees their
/// length on the wire, what is cancelled is missing in its channel, and what is prepared, or
/// buffered by the program, has no room for a header.
fn refuses(name: &str) -> bool {
    let call = CALLS.iter().find(|call| Some(call.name) == name.strip_prefix("MPI_"));
    let Some(call) = call else { return true };
    match call.does {
        Does::SendInit | Does::Cancel | Does::LookAtSeveral | Does::RequestFree => true,
        Does::Send => {
            call.name.contains("bsend")
                || call.name.contains("Bsend")
                || call.name.starts_with("Isendrecv")
        }
        Does::Receive => !matches!(call.name, "Recv" | "Irecv" | "Precv_init"),
        Does::Test => call.name.to_lowercase().contains("probe"),
        _ => false,
    }
}

fn messages(rank: &RankRecord) -> impl Iterator<Item = &Channel> {
    rank.channels.iter().filter(|channel| channel.key.what == What::Messages)
}

fn comm_of(rank: &RankRecord, channel: &Channel) -> u64 {
    number_of(&rank.comms, channel.key.comm)
}

/// Whether no message of a channel was in the memory of a GPU, longer than can be coded, or on a
/// communicator whose messages are to be left as they are.
fn all_can_be_coded(run: &Run, (comm, tag): (u64, i32)) -> bool {
    run.ranks.iter().all(|rank| {
        let same = |channel: &&Channel| {
            comm_of(rank, channel) == comm && [tag, Key::ANY_TAG].contains(&channel.key.tag)
        };
        let is_plain = rank.comms.iter().any(|one| one.id == comm && one.plain);
        !is_plain
            && messages(rank)
                .filter(same)
                .all(|channel| channel.key.place == Place::Host && channel.most <= LONGEST as u64)
    })
}

/// The way that saves most time of those by which messages are sent, where errors within `bound`
/// are allowed; `None` when none pays.
fn best(flow: &FlowReport, network: f64, bound: Option<f64>) -> Option<Choice> {
    let is_allowed = |scheme: Scheme| {
        let is_within = |own| bound.is_some_and(|bound| own <= bound);
        scheme.alone().is_some() && scheme.bound().is_none_or(is_within)
    };
    let gain = |one: &Outcome| one.gain(network);
    let pays = |one: &&Outcome| {
        is_allowed(one.scheme) && one.failed == 0 && one.factor() >= LEAST && gain(one) > 0.0
    };
    let found = flow.outcomes.iter().filter(pays).max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
    Some(Choice { scheme: found.scheme, least: found.cost(network).max(LEAST) })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
