//! How large the arenas are: as large as the settings allow, as the machine has memory for, and as
//! the checkpoints need.

use unspool_core::{Event, TierId, TierKind};
use unspool_cuda::Bytes;
use unspool_tiers::{AnyTier, Arena};

use crate::runtime::shared::Shared;
use crate::runtime::state::State;

/// The least that a host tier has which follows the size of the checkpoints.
const LEAST: u64 = 64 << 20;

/// An arena that the machine has too little memory for, and why, for the errors of saves.
#[derive(Debug)]
pub(crate) struct Shortage {
    pub(crate) kind: TierKind,
    pub(crate) why: String,
}

impl Shared {
    fn arenas(&self) -> impl Iterator<Item = (TierId, &Arena)> {
        let tiers = (0..).map(TierId).zip(&self.tiers);
        tiers.filter_map(|(tier, any)| Some((tier, AnyTier::arena(any)?)))
    }

    /// Tells the core of device tiers in main memory.
    pub(crate) fn take_by_need(&self, state: &mut State) {
        for (tier, arena) in self.arenas() {
            if arena.kind() == TierKind::Device && !arena.is_of_device() {
                self.feed(state, Event::TakenByNeed { tier });
            }
        }
    }

    /// Tells the core of arenas that have become smaller, or may be larger again. Before any event,
    /// so that a failure for want of their memory is never heard of first. Returns those to which
    /// [`let_grow`](Self::let_grow) applies.
    pub(super) fn notice_memory(&self, state: &mut State, event: &Event) -> Vec<TierId> {
        if let Event::Save { bytes, .. } = *event {
            state.largest = state.largest.max(bytes);
        }
        let mut growing = Vec::new();
        for (tier, arena) in self.arenas() {
            let (had, has) = (state.driver.core().capacity(tier), arena.capacity());
            let wanted = self.wanted(state, arena);
            if wanted < arena.reserved() {
                arena.want(wanted);
            }
            let may_grow = has < wanted && arena.may_grow();
            let capacity = if may_grow { wanted } else { has.min(wanted) };
            if may_grow {
                growing.push(tier);
            }
            if capacity > had {
                state.pending.push_back(Event::Grown { tier, capacity });
            } else if capacity < had {
                state.pending.push_back(Event::Shrunk { tier, capacity });
                if has < wanted {
                    note(state, arena);
                }
            }
        }
        growing
    }

    /// Lets arenas take what the core counts on from now on.
    pub(super) fn let_grow(&self, state: &mut State, growing: &[TierId]) {
        for (tier, arena) in self.arenas().filter(|(tier, _)| growing.contains(tier)) {
            if state.driver.core().capacity(tier) > arena.capacity() {
                arena.grow_again();
                state.short.retain(|shortage| shortage.kind != arena.kind());
            }
        }
    }

    /// The bytes that an arena is to have where there is memory.
    fn wanted(&self, state: &State, arena: &Arena) -> u64 {
        let all = arena.reserved();
        match state.host_checkpoints {
            Some(count) if arena.kind() == TierKind::Host && state.largest > 0 => {
                // Each may begin a page later than it has to.
                let each = state.largest.saturating_add(1 << 16);
                each.saturating_mul(u64::from(count)).max(LEAST).min(all)
            }
            _ => all,
        }
    }
}

/// Notes why an arena ends early.
fn note(state: &mut State, arena: &Arena) {
    let (kind, has, all) = (arena.kind(), Bytes(arena.capacity()), Bytes(arena.reserved()));
    let why = match arena.shortage() {
        Some(why) => format!("{why}."),
        None => {
            "another process took memory while it was made ready. Its own notes say more.".into()
        }
    };
    let text = format!("The {kind} tier has {has} of the {all} that it may take: {why}");
    if !state.short.iter().any(|shortage| shortage.kind == kind) && !state.was_short {
        state.notes.push(text.clone());
        state.was_short = true;
    }
    state.short.retain(|shortage| shortage.kind != kind);
    state.short.push(Shortage { kind, why: text });
}
