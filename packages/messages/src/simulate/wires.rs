//! Messages on their way: flows that share links fairly, from when they begin until their last byte
//! has left.
//!
//! Rates change when a flow begins or ends, for all that share links with it, directly or through
//! others. They are shared anew at once after a pause, and at most once in every `tick` while much
//! changes: a flow that begins or ends within it counts from its end on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::simulate::fair::Sharing;
use crate::simulate::links::Links;

/// Flows and the links that they share.
#[derive(Debug)]
pub(crate) struct Wires {
    pub(crate) links: Links,
    tick: u64,
    flows: Vec<Flow>,
    /// Bytes a picosecond of each flow; 0 until it has been given some.
    rates: Vec<f64>,
    free: Vec<u32>,
    on: Vec<Vec<u32>>,
    changed: Vec<u32>,
    shared_at: Option<u64>,
    ends: BinaryHeap<Reverse<(u64, u32, u32)>>,
    active: usize,
    sharing: Sharing,
    seen: Vec<bool>,
    /// Bytes that each link has carried.
    pub(crate) carried: Vec<f64>,
    /// How much there was to look at.
    pub(crate) work: u64,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    message: u32,
    path: Vec<u32>,
    left: f64,
    since: u64,
    /// Counts the ends that were foretold: only the last one holds.
    foretold: u32,
}

impl Wires {
    pub(crate) fn new(links: Links, tick: u64) -> Wires {
        let count = links.capacities.len();
        Wires {
            links,
            tick,
            flows: Vec::new(),
            rates: Vec::new(),
            free: Vec::new(),
            on: vec![Vec::new(); count],
            changed: Vec::new(),
            shared_at: None,
            ends: BinaryHeap::new(),
            active: 0,
            sharing: Sharing::new(count),
            seen: vec![false; count],
            carried: vec![0.0; count],
            work: 0,
        }
    }

    /// Begins to send a message. Without links it takes `alone` picoseconds.
    pub(crate) fn begin(
        &mut self,
        now: u64,
        message: u32,
        bytes: f64,
        nodes: (u32, u32),
        alone: u64,
    ) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.flows.push(Flow::default());
            self.rates.push(0.0);
            self.flows.len() as u32 - 1
        });
        let flow = &mut self.flows[place as usize];
        self.links.route(nodes.0, nodes.1, &mut flow.path);
        (flow.message, flow.left, flow.since) = (message, bytes, now);
        flow.foretold += 1;
        self.rates[place as usize] = 0.0;
        self.active += 1;
        if flow.path.is_empty() || bytes <= 0.0 {
            self.ends.push(Reverse((now.saturating_add(alone), place, flow.foretold)));
        }
        for link in &flow.path {
            self.on[*link as usize].push(place);
            self.carried[*link as usize] += bytes;
            self.changed.push(*link);
        }
    }

    /// When something happens next: a message has left, or links are shared anew.
    pub(crate) fn next(&mut self, now: u64) -> Option<u64> {
        while let Some(Reverse((_, flow, foretold))) = self.ends.peek() {
            if self.flows[*flow as usize].foretold == *foretold {
                break;
            }
            self.ends.pop();
        }
        let end = self.ends.peek().map(|Reverse((at, ..))| *at);
        end.into_iter().chain(self.due(now)).min()
    }

    /// When links are shared anew.
    pub(crate) fn due(&self, now: u64) -> Option<u64> {
        let rested = self.shared_at.map_or(0, |at| at.saturating_add(self.tick));
        (!self.changed.is_empty()).then(|| now.max(rested))
    }

    /// Takes out a message that has left by now.
    pub(crate) fn gone(&mut self, now: u64) -> Option<u32> {
        loop {
            let Reverse((at, place, foretold)) = *self.ends.peek()?;
            let flow = &mut self.flows[place as usize];
            if flow.foretold == foretold && at > now {
                return None;
            }
            self.ends.pop();
            if flow.foretold != foretold {
                continue;
            }
            flow.foretold += 1;
            for link in std::mem::take(&mut flow.path) {
                self.on[link as usize].retain(|other| *other != place);
                self.changed.push(link);
            }
            self.active -= 1;
            self.free.push(place);
            return Some(self.flows[place as usize].message);
        }
    }

    /// Shares the links that have changed, and all that this reaches.
    pub(crate) fn share(&mut self, now: u64) {
        let (links, flows) = self.reached();
        for flow in &flows {
            let at = *flow as usize;
            let one = &mut self.flows[at];
            one.left -= self.rates[at] * (now - one.since) as f64;
            one.since = now;
        }
        let before: Vec<f64> = flows.iter().map(|flow| self.rates[*flow as usize]).collect();
        flows.iter().for_each(|flow| self.rates[*flow as usize] = -1.0);
        let all = &self.flows;
        self.work += self.sharing.share(
            &self.links.capacities,
            &links,
            &self.on,
            |flow| &all[flow as usize].path,
            &mut self.rates,
        );
        for (flow, before) in flows.iter().zip(before) {
            let rate = self.rates[*flow as usize];
            let one = &mut self.flows[*flow as usize];
            if rate != before && one.left > 0.0 {
                one.foretold += 1;
                let takes = (one.left / rate).round() as u64;
                self.ends.push(Reverse((now.saturating_add(takes), *flow, one.foretold)));
            }
        }
        self.shared_at = Some(now);
        if self.ends.len() > 4 * self.active + 1024 {
            let flows = &self.flows;
            self.ends.retain(|Reverse((_, flow, told))| flows[*flow as usize].foretold == *told);
        }
    }

    /// The links that have changed with those that share flows with them, and these flows.
    fn reached(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (mut links, mut flows): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for link in std::mem::take(&mut self.changed) {
            if !std::mem::replace(&mut self.seen[link as usize], true) {
                links.push(link);
            }
        }
        let mut at = 0;
        while at < links.len() {
            for flow in &self.on[links[at] as usize] {
                // A flow is met on each of its links, and taken on the first of them.
                let path = &self.flows[*flow as usize].path;
                self.work += 1;
                if self.rates[*flow as usize].is_sign_negative() {
                    continue;
                }
                // Its rate is kept below nothing while it is marked.
                self.rates[*flow as usize] = -self.rates[*flow as usize];
                flows.push(*flow);
                for link in path {
                    if !std::mem::replace(&mut self.seen[*link as usize], true) {
                        links.push(*link);
                    }
                }
            }
            at += 1;
        }
        flows.iter().for_each(|flow| self.rates[*flow as usize] *= -1.0);
        links.iter().for_each(|link| self.seen[*link as usize] = false);
        (links, flows)
    }
}
