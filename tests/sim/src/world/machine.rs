//! The state of the machine: streams, memory, stores, links, and the application's enqueued copies.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, Nanos, Place, TierId};

use crate::device::arena::Memory;
use crate::device::fences::{Fences, Span};
use crate::device::store::Store;
use crate::device::streams::{StreamId, Streams};
use crate::plan::Plan;

/// One direction of the link between two tiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkState {
    pub streams: Vec<StreamId>,
    /// Time at which the link is free again.
    pub free_at: Nanos,
    /// No transfer succeeds any more.
    pub broken: bool,
}

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub streams: Streams,
    pub memories: Vec<Option<Memory>>,
    pub stores: Vec<Option<Store>>,
    pub fences: Fences,
    pub links: BTreeMap<(TierId, TierId), LinkState>,
}

impl Hardware {
    pub fn new(plan: &Plan) -> Hardware {
        let stores = plan.config.tiers.iter().map(|tier| {
            let mut store = (!tier.kind.is_arena()).then(|| Store::new(tier.kind))?;
            store.limit = plan.faults.medium.unwrap_or(u64::MAX);
            Some(store)
        });
        let stores: Vec<Option<Store>> = stores.collect();
        Hardware::with_stores(plan, stores)
    }

    /// A machine after a restart: only the content of the stores is left.
    pub fn with_stores(plan: &Plan, stores: Vec<Option<Store>>) -> Hardware {
        let memory = |t: &unspool_core::TierConfig| {
            t.kind.is_arena().then(|| Memory::new(t.capacity, plan.seed, plan.content))
        };
        Hardware {
            streams: Streams::default(),
            memories: plan.config.tiers.iter().map(memory).collect(),
            stores,
            fences: Fences::default(),
            links: BTreeMap::new(),
        }
    }

    pub fn memory(&mut self, tier: TierId) -> Option<&mut Memory> {
        self.memories[usize::from(tier.0)].as_mut()
    }

    pub fn store(&mut self, tier: TierId) -> Option<&mut Store> {
        self.stores[usize::from(tier.0)].as_mut()
    }

    /// The link between two tiers, with its streams.
    pub fn link(&mut self, from: TierId, to: TierId, streams: usize) -> &mut LinkState {
        if !self.links.contains_key(&(from, to)) {
            let streams = (0..streams).map(|_| self.streams.create()).collect();
            self.links.insert((from, to), LinkState { streams, ..LinkState::default() });
        }
        self.links.get_mut(&(from, to)).expect("just inserted")
    }

    /// The stream of a link with the shortest queue.
    pub fn shortest_stream(&mut self, from: TierId, to: TierId, streams: usize) -> StreamId {
        let all = self.link(from, to, streams).streams.clone();
        let shortest = all.into_iter().min_by_key(|stream| self.streams.len(*stream));
        shortest.expect("a link has streams")
    }

    /// The range that an operation accesses: bytes of an arena, or a frame of a store.
    pub fn span(&self, id: CheckpointId, place: Place, bytes: u64) -> Span {
        let tier = place.tier;
        if self.stores[usize::from(tier.0)].is_some() {
            return Span { tier, first: id.0, end: id.0 + 1 };
        }
        Span { tier, first: place.offset, end: place.offset + bytes }
    }

    /// Whether an enqueued copy of the application still accesses a checkpoint in a tier.
    pub fn is_unfinished(&self, id: CheckpointId, tier: TierId) -> bool {
        self.fences.is_unfinished(id, tier, |fence| self.streams.is_reached(fence))
    }

    /// Repairs all links.
    pub fn repair(&mut self) {
        self.links.values_mut().for_each(|link| link.broken = false);
        self.stores.iter_mut().flatten().for_each(|store| store.limit = u64::MAX);
    }
}
