//! The end of saves in the ledger: the space that they keep, and who gets the rest.

use unspool_core::{CheckpointId, Kept, Size, TierId, Version};

use super::Ledger;
use crate::check::copies::{Holding, Stage, size_in};
use crate::check::{Rule, Violation, ensure};

type Checked = Result<(), Violation>;

impl Ledger {
    /// Enters that a granted save is in flight.
    pub fn set_in_flight(&mut self, id: CheckpointId) {
        let books = self.books.get_mut(&id).expect("a granted checkpoint has books");
        books.stage = Stage::InFlight;
        let version = books.version;
        self.discarded.remove(&version);
    }

    /// Enters the end of a granted save: it keeps this part of its space, or it failed (`None`).
    pub fn saved(&mut self, id: CheckpointId, tier: TierId, done: Option<Option<Kept>>) -> Checked {
        self.keep(id, tier, done)?;
        let books = self.books.get_mut(&id).expect("a granted checkpoint has books");
        books.saving = None;
        let complete = done.is_some();
        let holding = books.holdings[usize::from(tier.0)].as_mut().expect("a grant has room");
        (holding.filling, holding.ready) = (false, complete);
        let (version, gone) = (books.version, books.stage == Stage::Gone);
        if !gone {
            books.stage = if complete { Stage::Live } else { Stage::Gone };
            self.named_by(version, complete);
        }
        if !complete {
            self.drop_failed(id, tier);
        }
        Ok(())
    }

    fn named_by(&mut self, version: Version, complete: bool) {
        if complete {
            self.discarded.remove(&version);
        } else {
            self.names.remove(&version);
        }
    }

    /// Shrinks a save to the part that it keeps. The rest goes to the save directly after it, if
    /// both had unknown sizes.
    fn keep(&mut self, id: CheckpointId, tier: TierId, done: Option<Option<Kept>>) -> Checked {
        let config = self.config.tiers[usize::from(tier.0)];
        let books = &self.books[&id];
        let room = *books.at(tier).expect("a grant has room");
        let end = room.offset + room.size;
        let granted = end - size_in(&config, books.bytes);
        let kept = match done {
            Some(kept) => kept.unwrap_or(Kept { offset: granted, bytes: books.bytes }),
            None => Kept { offset: room.offset, bytes: 0 },
        };
        let size = size_in(&config, kept.bytes);
        let placed = config.kind.is_arena() && size > 0;
        let offset = if placed { kept.offset } else { 0 };
        let inside = !placed || (room.offset <= offset && offset + size <= end);
        ensure(inside && kept.bytes <= books.bytes, Rule::Capacity, || {
            format!("{id:?} keeps {kept:?} of its room {room:?}")
        })?;
        let open_ended = books.saving == Some(Size::AtMost);
        let books = self.books.get_mut(&id).expect("the books were just read");
        books.holdings[usize::from(tier.0)] = Some(Holding { offset, size, ..room });
        books.bytes = kept.bytes;
        if config.kind.is_arena() && room.size > 0 && open_ended {
            self.inherit(tier, if placed { offset + size } else { room.offset }, end);
        }
        Ok(())
    }

    /// Extends the save of unknown size whose space begins at `end` down to `start`, unless the
    /// arena has lost that space.
    fn inherit(&mut self, tier: TierId, start: u64, end: u64) {
        let tier = usize::from(tier.0);
        if end >= self.ends[tier] {
            return;
        }
        let heir = self.books.values_mut().find(|books| {
            let stands = books.holdings[tier].is_some_and(|h| h.size > 0 && h.offset == end);
            books.saving == Some(Size::AtMost) && stands
        });
        if let Some(holding) = heir.and_then(|books| books.holdings[tier].as_mut()) {
            (holding.offset, holding.size) = (start, holding.size + (end - start));
        }
    }
}
