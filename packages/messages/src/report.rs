//! From what was recorded to figures that somebody can act on: who talks to whom, what each way of
//! coding would save, from which network on it costs more than it saves, and what the run time
//! would become.
//!
//! The model: a message of n bytes takes n / B on a path of B bytes a second. Coded with factor α
//! it takes n (1 - α) / B, and n / r_enc and n / r_dec on the two cores, one after the other. So
//! coding pays when α > B (1/r_enc + 1/r_dec), and B = α / (1/r_enc + 1/r_dec) is the path at which
//! it breaks even. A rank saves at most the time that it spends in calls of messages, and the run
//! time follows the rank that is worst off.

use std::collections::{BTreeMap, HashMap};

use crate::channel::{Channel, Key, Place, What};
use crate::measure::{Flow, Measure, Outcome, Scheme};
use crate::run::{Duplicates, RankRecord, Run};

/// Networks that are looked at when the user names none, in bytes a second.
pub const NETWORKS: [f64; 4] = [0.1e9, 1e9, 10e9, 25e9];

/// Rows and columns of the matrix at most; of more ranks, several share one.
const MATRIX: usize = 64;

/// What is worth saying of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Messages from rank to rank, and their bytes.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them in the memory of a GPU, or where nobody looked.
    pub not_on_host: u64,
    /// Calls of all ranks: name, calls, bytes that ranks gave.
    pub together: Vec<(String, u64, u64)>,
    /// Bytes from the ranks of a row to those of a column.
    pub matrix: Matrix,
    /// Messages by communicator, tag, class and type, those with most bytes first.
    pub flows: Vec<FlowReport>,
    /// What each way of coding has made of all flows that were sampled.
    pub schemes: Vec<SchemeReport>,
    /// Payloads that a sender had sent before, to anybody.
    pub sent: Duplicates,
    /// Payloads that a receiver had got before, from anybody.
    pub received: Duplicates,
    /// Seconds that the longest rank ran.
    pub wall_s: f64,
    /// The part of the ranks' time that was spent in calls of messages, and of all ranks.
    pub in_messages: f64,
    /// The part of the time in calls of all ranks.
    pub in_together: f64,
    /// What coding would do, by network.
    pub networks: Vec<Prediction>,
    /// Whether the user has named the network.
    pub named: bool,
}

/// Bytes by sender and receiver.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Ranks that share a row.
    pub ranks_a_row: u32,
    /// Bytes, row by row.
    pub bytes: Vec<Vec<u64>>,
}

/// A flow with what was counted of it.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The flow.
    pub flow: Flow,
    /// The name of the communicator.
    pub comm: String,
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes a second, of the rank with the most.
    pub rate: f64,
    /// Senders and pairs.
    pub pairs: u64,
    /// Duplicates of those compared.
    pub duplicates: Duplicates,
    /// What coding its samples gave.
    pub outcomes: Vec<Outcome>,
}

/// A way of coding over all flows that were sampled.
#[derive(Clone, Debug)]
pub struct SchemeReport {
    /// The way.
    pub scheme: Scheme,
    /// Bytes of the flows that it was tried on.
    pub covered: u64,
    /// What of them would be saved, when flows that grow are sent as they are.
    pub saved: f64,
    /// What the samples gave, together.
    pub outcome: Outcome,
    /// Bytes a second of the network up to which it pays.
    pub break_even: f64,
}

/// What coding would do on a network.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Bytes a second.
    pub network: f64,
    /// Change of the run time when every flow is coded in the one lossless way that is best here:
    /// 0.03 is 3 % longer.
    pub everything: Option<(Scheme, f64)>,
    /// Change when each flow that pays is coded in its best lossless way, and no other.
    pub chosen: f64,
    /// The same when an error of 1e-6 of the range is allowed.
    pub bounded: f64,
    /// The flows that pay: their places in the list, with their ways.
    pub pays: Vec<(usize, Scheme)>,
}

/// Where a way of coding breaks even.
#[must_use]
pub fn break_even(factor: f64, encode: f64, decode: f64) -> f64 {
    (factor / (1.0 / encode + 1.0 / decode)).max(0.0)
}

impl Report {
    /// The report of a run, for a network of so many bytes a second or for several.
    #[must_use]
    pub fn of(run: &Run, network: Option<f64>) -> Report {
        let flows = flows_of(run);
        let (together_ns, message_ns) = times(run);
        let wall = total(run.ranks.iter().map(|rank| rank.wall_ns));
        let of_wall = |ns: u64| if wall == 0 { 0.0 } else { ns as f64 / wall as f64 };
        let mine = network.map(|network| vec![network]);
        let mut report = Report {
            messages: total(flows.iter().map(|flow| flow.messages)),
            bytes: total(flows.iter().map(|flow| flow.bytes)),
            not_on_host: not_on_host(run),
            together: together(run),
            matrix: matrix(run),
            schemes: schemes_of(&flows),
            sent: all(run.ranks.iter().map(|rank| rank.sent)),
            received: all(run.ranks.iter().map(|rank| rank.received)),
            wall_s: run.ranks.iter().map(|rank| rank.wall_ns).max().unwrap_or(0) as f64 * 1e-9,
            in_messages: of_wall(message_ns),
            in_together: of_wall(together_ns),
            networks: Vec::new(),
            named: network.is_some(),
            flows,
        };
        let networks = mine.unwrap_or_else(|| NETWORKS.to_vec());
        let most_saved = most_saved(run);
        let predicted = |network| predict(run, &report.flows, network, &most_saved);
        report.networks = networks.into_iter().map(predicted).collect();
        report
    }

    /// What to do, in sentences.
    #[must_use]
    pub fn verdicts(&self) -> Vec<String> {
        if self.messages == 0 {
            return vec![
                "This program sends no messages from rank to rank: there is nothing to code."
                    .to_owned(),
            ];
        }
        if self.schemes.is_empty() {
            return vec![
                "No message could be sampled, so nothing is known of what coding would save."
                    .to_owned(),
            ];
        }
        self.networks.iter().map(|one| one.verdict(self.schemes.iter())).collect()
    }

    /// The part of the bytes of messages whose flows were sampled.
    #[must_use]
    pub fn sampled(&self) -> f64 {
        let sampled = self.flows.iter().filter(|flow| !flow.outcomes.is_empty());
        let bytes = total(sampled.map(|flow| flow.bytes));
        if self.bytes == 0 { 0.0 } else { bytes as f64 / self.bytes as f64 }
    }
}

impl Prediction {
    fn verdict<'a>(&self, schemes: impl Iterator<Item = &'a SchemeReport>) -> String {
        let network = crate::show::rate(self.network);
        let percent = |change: f64| format!("{:.1} %", change.abs() * 100.0);
        let mut text = if self.chosen < -0.005 {
            let most = self.pays.iter().fold(BTreeMap::new(), |mut counts, (_, scheme)| {
                *counts.entry(*scheme).or_insert(0) += 1;
                counts
            });
            let best =
                most.iter().max_by_key(|(_, count)| **count).map(|(scheme, _)| scheme.name());
            format!(
                "At {network}, coding what pays ({} of the kinds of messages, mostly by {}) would \
                 save up to {} of the run time.",
                self.pays.len(),
                best.unwrap_or_default(),
                percent(self.chosen)
            )
        } else {
            match self.everything {
                Some((scheme, change)) if change >= 0.0005 => format!(
                    "At {network}, compressing would cost {} here (with {}): do not.",
                    percent(change),
                    scheme.name()
                ),
                _ => format!(
                    "At {network}, compressing would change the run time by less than 0.5 %: it is \
                     not worth the trouble."
                ),
            }
        };
        if self.bounded < self.chosen - 0.005 {
            text.push_str(&format!(
                " If errors of 1e-6 of the range are allowed, up to {}.",
                percent(self.bounded)
            ));
        }
        let best = schemes.filter(|one| one.scheme.is_lossless()).map(|one| one.break_even);
        let best = best.fold(0.0, f64::max);
        if self.chosen >= -0.005 && best > 0.0 && best < self.network {
            text.push_str(&format!(" Lossless coding pays up to {}.", crate::show::rate(best)));
        }
        text
    }
}

/// Adds to a count, as far as counts go: those of a file may be anything.
fn add(to: &mut u64, more: u64) {
    *to = to.saturating_add(more);
}

pub(crate) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn all(parts: impl Iterator<Item = Duplicates>) -> Duplicates {
    parts.fold(Duplicates::default(), |all, one| Duplicates {
        compared: all.compared.saturating_add(one.compared),
        same: all.same.saturating_add(one.same),
    })
}

fn messages(rank: &RankRecord) -> impl Iterator<Item = &Channel> {
    let rest = |channel: &&Channel| matches!(channel.key.what, What::Messages | What::Rest);
    rank.channels.iter().filter(rest)
}

fn not_on_host(run: &Run) -> u64 {
    let channels = run.ranks.iter().flat_map(messages);
    total(channels.filter(|channel| channel.key.place != Place::Host).map(|channel| channel.bytes))
}

fn together(run: &Run) -> Vec<(String, u64, u64)> {
    let mut kinds: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for channel in run.ranks.iter().flat_map(|rank| &rank.channels) {
        if let What::Together(call) = channel.key.what {
            let (calls, bytes) = kinds.entry(call).or_default();
            add(calls, channel.messages);
            add(bytes, channel.bytes);
        }
    }
    let name = |call: u8| match crate::calls::CALLS.get(usize::from(call)) {
        Some(call) => format!("MPI_{}", call.name),
        None => "another call".to_owned(),
    };
    let mut named: Vec<_> =
        kinds.into_iter().map(|(call, (calls, bytes))| (name(call), calls, bytes)).collect();
    named.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    named
}

fn matrix(run: &Run) -> Matrix {
    let size = run.about.size as usize;
    let ranks_a_row = size.div_ceil(MATRIX).max(1);
    let rows = size.div_ceil(ranks_a_row);
    let mut bytes = vec![vec![0_u64; rows]; rows];
    for rank in &run.ranks {
        for channel in messages(rank).filter(|channel| (channel.key.peer as usize) < size) {
            let row = rank.rank as usize / ranks_a_row;
            add(&mut bytes[row][channel.key.peer as usize / ranks_a_row], channel.bytes);
        }
    }
    Matrix { ranks_a_row: ranks_a_row as u32, bytes }
}

fn flows_of(run: &Run) -> Vec<FlowReport> {
    let mut flows: HashMap<Flow, FlowReport> = HashMap::new();
    for rank in &run.ranks {
        for channel in messages(rank) {
            let flow = Flow::of(&channel.key, &rank.comms);
            let name = || {
                let comm = rank.comms.get(usize::from(channel.key.comm));
                comm.map_or_else(|| "?".to_owned(), |comm| comm.name.clone())
            };
            let one = flows.entry(flow).or_insert_with(|| FlowReport {
                flow,
                comm: name(),
                messages: 0,
                bytes: 0,
                rate: 0.0,
                pairs: 0,
                duplicates: Duplicates::default(),
                outcomes: Vec::new(),
            });
            add(&mut one.messages, channel.messages);
            add(&mut one.bytes, channel.bytes);
            one.rate = one.rate.max(channel.rate());
            one.pairs += 1;
            add(&mut one.duplicates.compared, channel.compared);
            add(&mut one.duplicates.same, channel.duplicates);
        }
    }
    for Measure { flow, outcomes } in &run.measures {
        if let Some(one) = flows.get_mut(flow) {
            let some = outcomes.iter().filter(|outcome| outcome.messages > 0);
            one.outcomes = some.cloned().collect();
        }
    }
    let mut flows: Vec<FlowReport> = flows.into_values().collect();
    flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.flow));
    flows
}

fn schemes_of(flows: &[FlowReport]) -> Vec<SchemeReport> {
    Scheme::ALL.into_iter().filter_map(|scheme| scheme_of(scheme, flows)).collect()
}

fn scheme_of(scheme: Scheme, flows: &[FlowReport]) -> Option<SchemeReport> {
    let (mut covered, mut saved, mut outcome) = (0, 0.0, Outcome::new(scheme));
    let (mut encode_s, mut decode_s) = (0.0, 0.0);
    for flow in flows {
        let Some(one) = flow.outcomes.iter().find(|one| one.scheme == scheme) else { continue };
        let (encode, decode) = one.speeds();
        let bytes = flow.bytes as f64;
        add(&mut covered, flow.bytes);
        saved += bytes * one.factor().max(0.0);
        encode_s += bytes / encode;
        decode_s += bytes / decode;
        outcome.merge(one);
    }
    let break_even = break_even(saved, 1.0 / encode_s.max(1e-12), 1.0 / decode_s.max(1e-12));
    (outcome.messages > 0).then_some(SchemeReport { scheme, covered, saved, outcome, break_even })
}

/// Nanoseconds of all ranks in calls of all ranks, and in calls of messages.
fn times(run: &Run) -> (u64, u64) {
    let (mut together, mut messages) = (0, 0);
    for call in run.ranks.iter().flat_map(|rank| &rank.calls) {
        match kind_of(&call.name) {
            Some(true) => add(&mut together, call.ns),
            Some(false) => add(&mut messages, call.ns),
            None => {}
        }
    }
    (together, messages)
}

/// Whether a function is a call of all ranks; `None` when it moves nothing.
fn kind_of(name: &str) -> Option<bool> {
    use crate::calls::{CALLS, Does};
    let call = CALLS.iter().find(|call| Some(call.name) == name.strip_prefix("MPI_"))?;
    match call.does {
        Does::Together(_) => Some(true),
        Does::Send | Does::Start | Does::Startall | Does::Receive | Does::Test => Some(false),
        Does::Wait | Does::Waitall | Does::Waitany | Does::Waitsome => Some(false),
        _ => None,
    }
}

/// What coding costs and saves, in seconds by rank.
struct Account {
    cost: Vec<f64>,
    saved: Vec<f64>,
}

impl Account {
    /// The account when each flow is coded in the way that `choice` names for it.
    fn of(
        run: &Run,
        flows: &[FlowReport],
        network: f64,
        choice: impl Fn(&FlowReport) -> Option<Scheme>,
    ) -> Account {
        let size = run.about.size as usize;
        let mut account = Account { cost: vec![0.0; size], saved: vec![0.0; size] };
        let chosen: HashMap<Flow, &Outcome> = flows
            .iter()
            .filter_map(|flow| {
                let scheme = choice(flow)?;
                let outcome = flow.outcomes.iter().find(|one| one.scheme == scheme)?;
                Some((flow.flow, outcome))
            })
            .collect();
        for rank in &run.ranks {
            for channel in messages(rank).filter(|one| one.key.place == Place::Host) {
                let Some(outcome) = chosen.get(&Flow::of(&channel.key, &rank.comms)) else {
                    continue;
                };
                let (encode, decode) = outcome.speeds();
                let bytes = channel.bytes as f64;
                account.cost[rank.rank as usize] += bytes / encode;
                account.saved[rank.rank as usize] += bytes * outcome.factor() / network;
                if let Some(cost) = account.cost.get_mut(channel.key.peer as usize) {
                    *cost += bytes / decode;
                }
            }
        }
        account
    }

    /// The change of the run time: that of the rank that is worst off, where a rank saves so many
    /// seconds at most.
    fn change(&self, run: &Run, most_saved: &[f64]) -> f64 {
        let wall = run.ranks.iter().map(|rank| rank.wall_ns).max().unwrap_or(0) as f64 * 1e-9;
        if wall <= 0.0 {
            return 0.0;
        }
        let changes = run.ranks.iter().zip(most_saved).map(|(rank, most)| {
            let place = rank.rank as usize;
            self.cost[place] - self.saved[place].min(*most)
        });
        changes.fold(f64::NEG_INFINITY, f64::max) / wall
    }
}

/// The way that saves most on this network, if one pays.
pub(crate) fn best(
    outcomes: &[Outcome],
    network: f64,
    allowed: impl Fn(Scheme) -> bool,
) -> Option<Scheme> {
    let gain = |one: &Outcome| one.gain(network);
    let allowed = outcomes.iter().filter(|one| allowed(one.scheme) && gain(one) > 0.0);
    allowed.max_by(|a, b| gain(a).total_cmp(&gain(b))).map(|one| one.scheme)
}

/// Seconds that each rank of a run spends in calls of messages: coding saves no more.
fn most_saved(run: &Run) -> Vec<f64> {
    let in_messages = |rank: &RankRecord| {
        let calls = rank.calls.iter().filter(|call| kind_of(&call.name) == Some(false));
        total(calls.map(|call| call.ns)) as f64 * 1e-9
    };
    run.ranks.iter().map(in_messages).collect()
}

fn predict(run: &Run, flows: &[FlowReport], network: f64, most_saved: &[f64]) -> Prediction {
    let change = |choice: &dyn Fn(&FlowReport) -> Option<Scheme>| {
        Account::of(run, flows, network, choice).change(run, most_saved)
    };
    let lossless = Scheme::ALL.into_iter().filter(|scheme| scheme.is_lossless());
    let everything = lossless
        .filter(|scheme| flows.iter().any(|f| f.outcomes.iter().any(|o| o.scheme == *scheme)))
        .map(|scheme| (scheme, change(&|_| Some(scheme))))
        .min_by(|a, b| a.1.total_cmp(&b.1));
    let lossless = |flow: &FlowReport| best(&flow.outcomes, network, Scheme::is_lossless);
    let bounded = |flow: &FlowReport| {
        best(&flow.outcomes, network, |scheme| scheme.bound().is_none_or(|bound| bound <= 1e-6))
    };
    let pays = flows.iter().enumerate();
    Prediction {
        network,
        everything,
        chosen: change(&lossless).min(0.0),
        bounded: change(&bounded).min(0.0),
        pays: pays.filter_map(|(place, flow)| Some((place, lossless(flow)?))).collect(),
    }
}

/// What stands for the tag of a flow in a table.
#[must_use]
pub fn tag_name(tag: i32) -> String {
    if tag == Key::ANY_TAG { "any".to_owned() } else { tag.to_string() }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
