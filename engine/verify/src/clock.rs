//! Vector clocks (Mattern 1989; Fidge 1988) of the host and the streams, with epochs for accesses
//! as in FastTrack (Flanagan and Freund, PLDI 2009).
//!
//! Each agent has a slot and a count in it. The count goes up at the first access after a
//! recording, so an access is known to exactly those agents whose clock has its slot at its count
//! or above. What the host itself did is known to every agent that is given work later.
//!
//! Slots are compacted: a stream of which the host knows everything is as good as a new one, since
//! whatever it is given next begins after what the host knows.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Agent;

/// One agent's place in every clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClockSlot(usize);

/// The slot of the host.
pub(super) const HOST: ClockSlot = ClockSlot(0);

/// The time of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    pub slot: ClockSlot,
    pub count: u64,
}

/// What an agent knows: for each slot, up to which count.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Arc<Vec<u64>>);

impl Clock {
    fn at(&self, slot: ClockSlot) -> u64 {
        self.0.get(slot.0).copied().unwrap_or(0)
    }

    fn set(&mut self, slot: ClockSlot, count: u64) {
        let counts = Arc::make_mut(&mut self.0);
        if counts.len() <= slot.0 {
            counts.resize(slot.0 + 1, 0);
        }
        counts[slot.0] = count;
    }

    /// Whether the access at `stamp` is known.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.at(stamp.slot) >= stamp.count
    }

    fn covers(&self, other: &Clock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || other.0.iter().enumerate().all(|(slot, count)| self.at(ClockSlot(slot)) >= *count)
    }

    /// Adds what `other` knows. True when anything was new.
    fn join(&mut self, other: &Clock) -> bool {
        if self.covers(other) {
            return false;
        }
        let counts = Arc::make_mut(&mut self.0);
        if counts.len() < other.0.len() {
            counts.resize(other.0.len(), 0);
        }
        for (mine, theirs) in counts.iter_mut().zip(other.0.iter()) {
            *mine = (*mine).max(*theirs);
        }
        true
    }
}

#[derive(Clone, Debug)]
struct Party {
    agent: Agent,
    clock: Clock,
    /// Whether others may know the present count, so that the next access begins a new one.
    shared: bool,
    /// Its count when it got its slot.
    born: u64,
    /// The state of the host's clock that it has joined.
    heard: u64,
}

/// The clocks of all agents.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    parties: Vec<Option<Party>>,
    slots: BTreeMap<Agent, ClockSlot>,
    free: Vec<ClockSlot>,
    /// Counts the changes of the host's clock.
    host_state: u64,
}

impl Clocks {
    pub fn new() -> Clocks {
        let mut clock = Clock::default();
        clock.set(HOST, 1);
        let host = Party { agent: Agent::Host, clock, shared: false, born: 1, heard: 0 };
        Clocks {
            parties: alloc::vec![Some(host)],
            slots: BTreeMap::from([(Agent::Host, HOST)]),
            free: Vec::new(),
            host_state: 0,
        }
    }

    /// How many agents have a slot.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of `agent`, which begins an operation: a stream then knows what the host knows.
    pub fn begin(&mut self, agent: Agent) -> ClockSlot {
        let slot = self.slots.get(&agent).copied().unwrap_or_else(|| self.enter(agent));
        if slot != HOST && self.party(slot).heard != self.host_state {
            self.hear_host(slot);
        }
        slot
    }

    fn hear_host(&mut self, slot: ClockSlot) {
        let clock = self.clock(HOST).clone();
        let heard = self.host_state;
        let party = self.party_mut(slot);
        party.clock.join(&clock);
        party.heard = heard;
    }

    /// Gives `agent` a slot. In a slot that was used before, the new count is above every count
    /// that any agent knows, and the host knows those.
    fn enter(&mut self, agent: Agent) -> ClockSlot {
        let slot = self.free.pop().unwrap_or(ClockSlot(self.parties.len()));
        let mut clock = self.clock(HOST).clone();
        let born = clock.at(slot) + 1;
        clock.set(slot, born);
        let party = Party { agent, clock, shared: false, born, heard: self.host_state };
        if slot.0 == self.parties.len() {
            self.parties.push(Some(party));
        } else {
            self.parties[slot.0] = Some(party);
        }
        self.slots.insert(agent, slot);
        slot
    }

    fn party(&self, slot: ClockSlot) -> &Party {
        self.parties[slot.0].as_ref().expect("a slot in use has a party")
    }

    fn party_mut(&mut self, slot: ClockSlot) -> &mut Party {
        self.parties[slot.0].as_mut().expect("a slot in use has a party")
    }

    /// The agent of a slot in use.
    pub fn agent(&self, slot: ClockSlot) -> Agent {
        self.party(slot).agent
    }

    /// What the agent of a slot knows.
    pub fn clock(&self, slot: ClockSlot) -> &Clock {
        &self.party(slot).clock
    }

    /// Whether the agent of `slot` knows anything that the agent of `other` did.
    pub fn has_heard_of(&self, slot: ClockSlot, other: ClockSlot) -> bool {
        self.clock(slot).at(other) >= self.party(other).born
    }

    /// The time of an access that is made now.
    pub fn stamp(&mut self, slot: ClockSlot) -> Stamp {
        let party = self.party_mut(slot);
        if party.shared {
            party.shared = false;
            let count = party.clock.at(slot) + 1;
            party.clock.set(slot, count);
            self.host_state += u64::from(slot == HOST);
        }
        Stamp { slot, count: self.clock(slot).at(slot) }
    }

    /// The clock that a wait adds for an event that is recorded now.
    pub fn snapshot(&mut self, slot: ClockSlot) -> Clock {
        let party = self.party_mut(slot);
        party.shared = true;
        party.clock.clone()
    }

    /// Lets the agent of `slot` wait for an event with this clock.
    pub fn wait(&mut self, slot: ClockSlot, event: &Clock) {
        let is_new = self.party_mut(slot).clock.join(event);
        self.host_state += u64::from(is_new && slot == HOST);
    }

    /// Lets the host wait for all work of all streams.
    pub fn wait_all(&mut self) {
        for slot in (1..self.parties.len()).map(ClockSlot) {
            let Some(party) = &mut self.parties[slot.0] else { continue };
            party.shared = true;
            let clock = party.clock.clone();
            self.wait(HOST, &clock);
        }
    }

    /// Whether the host knows all of this clock, and so every agent at its next operation.
    pub fn host_covers(&self, clock: &Clock) -> bool {
        self.clock(HOST).covers(clock)
    }

    /// Panics unless every agent has a slot of its own, no other slot is in use, and no agent knows
    /// more of another than that one itself.
    #[cfg(test)]
    pub fn assert_invariants(&self) {
        for (agent, slot) in &self.slots {
            assert_eq!(self.agent(*slot), *agent);
            let own = self.clock(*slot).at(*slot);
            let others = self.slots.values().filter(|other| *other != slot);
            assert!(others.into_iter().all(|other| self.clock(*other).at(*slot) <= own));
        }
        let used = self.parties.iter().flatten().count();
        assert_eq!((used, used + self.free.len()), (self.slots.len(), self.parties.len()));
    }

    /// Frees the slots of streams of which the host knows everything, for other agents. Stamps that
    /// the host knows must not be kept anywhere, since they could name such a slot.
    pub fn compact(&mut self) {
        let host = self.clock(HOST).clone();
        for slot in (1..self.parties.len()).map(ClockSlot) {
            let known = |party: &Party| host.covers(&party.clock);
            let Some(party) = self.parties[slot.0].take_if(|party| known(party)) else { continue };
            self.slots.remove(&party.agent);
            self.free.push(slot);
        }
    }
}
