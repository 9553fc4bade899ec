//! The state of the machine: streams, memory, stores, ways between them, and what was only
//! enqueued.

use std::collections::BTreeMap;

use unspool_core::{CheckpointId, Nanos, Place, TierId};

use crate::device::arena::Memory;
use crate::device::marks::{Marks, Span};
use crate::device::store::Store;
use crate::device::streams::{StreamId, Streams};
use crate::plan::Plan;

/// One direction between two tiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    pub streams: Vec<StreamId>,
    /// When the wire is free again.
    pub free_at: Nanos,
    /// Nothing gets through any more.
    pub broken: bool,
}

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub streams: Streams,
    pub memories: Vec<Option<Memory>>,
    pub stores: Vec<Option<Store>>,
    pub marks: Marks,
    pub ways: BTreeMap<(TierId, TierId), Way>,
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

    /// A machine after a restart: what the stores hold is all that is left.
    pub fn with_stores(plan: &Plan, stores: Vec<Option<Store>>) -> Hardware {
        let memory = |t: &unspool_core::TierConfig| {
            t.kind.is_arena().then(|| Memory::new(t.capacity, plan.seed, plan.content))
        };
        Hardware {
            streams: Streams::default(),
            memories: plan.config.tiers.iter().map(memory).collect(),
            stores,
            marks: Marks::default(),
            ways: BTreeMap::new(),
        }
    }

    pub fn memory(&mut self, tier: TierId) -> Option<&mut Memory> {
        self.memories[usize::from(tier.0)].as_mut()
    }

    pub fn store(&mut self, tier: TierId) -> Option<&mut Store> {
        self.stores[usize::from(tier.0)].as_mut()
    }

    /// The way between two tiers, with its streams.
    pub fn way(&mut self, from: TierId, to: TierId, streams: usize) -> &mut Way {
        if !self.ways.contains_key(&(from, to)) {
            let streams = (0..streams).map(|_| self.streams.create()).collect();
            self.ways.insert((from, to), Way { streams, ..Way::default() });
        }
        self.ways.get_mut(&(from, to)).expect("it was just made")
    }

    /// The stream of a way with the shortest queue.
    pub fn shortest_stream(&mut self, from: TierId, to: TierId, streams: usize) -> StreamId {
        let all = self.way(from, to, streams).streams.clone();
        let shortest = all.into_iter().min_by_key(|stream| self.streams.len(*stream));
        shortest.expect("a way has streams")
    }

    /// What an operation covers: bytes of an arena, or a frame of a store.
    pub fn span(&self, id: CheckpointId, place: Place, bytes: u64) -> Span {
        let tier = place.tier;
        if self.stores[usize::from(tier.0)].is_some() {
            return Span { tier, first: id.0, end: id.0 + 1 };
        }
        Span { tier, first: place.offset, end: place.offset + bytes }
    }

    /// Whether a copy that the application has enqueued still works on a checkpoint in a tier.
    pub fn is_unfinished(&self, id: CheckpointId, tier: TierId) -> bool {
        self.marks.is_unfinished(id, tier, |mark| self.streams.is_reached(mark))
    }

    /// Everything works again.
    pub fn repair(&mut self) {
        self.ways.values_mut().for_each(|way| way.broken = false);
        self.stores.iter_mut().flatten().for_each(|store| store.limit = u64::MAX);
    }
}
