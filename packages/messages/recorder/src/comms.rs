//! The communicators of the program, with numbers that all of their ranks have for them.
//!
//! No message is needed to agree on a number. All ranks of a communicator call what makes new ones
//! in the same order, so the number of the new one is made of that of its parent, of how many were
//! made of the parent before, and of its members. A function that only the members of the new one
//! call counts by parent and members instead. A communicator that was not seen being made is
//! numbered by its members alone.

use std::collections::HashMap;

use unspool_messages::Key;
use unspool_messages::calls::{Call, Does};
use unspool_messages::hash::{Quickly, hash};
use unspool_messages::part::{Comm, Part};

use crate::abi::Handle;
use crate::mpi::Mpi;

/// A communicator of this rank.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Its row in the part.
    pub(crate) index: u16,
    /// Ranks that messages can be sent to.
    pub(crate) size: u32,
    /// Whether they are another group than the one that this rank is in.
    pub(crate) is_inter: bool,
    /// This rank in it.
    pub(crate) rank: u32,
    /// Its number, which all of its ranks have for it.
    pub(crate) id: u64,
    name: String,
    /// The ranks in the world; `None` when they are the same.
    peers: Option<Vec<u32>>,
    /// Communicators that were made of it.
    made: u64,
    neighbours: Option<Vec<bool>>,
}

impl Known {
    /// The rank in the world of one of its ranks; `None` for no rank.
    pub(crate) fn peer(&self, rank: i32) -> Option<u32> {
        let rank = u32::try_from(rank).ok()?;
        match &self.peers {
            None => Some(rank),
            Some(peers) => peers.get(rank as usize).copied(),
        }
    }

    /// Which neighbours are there, in the order of the calls to neighbours.
    pub(crate) fn neighbours(&mut self, mpi: &Mpi, handle: Handle) -> &[bool] {
        self.neighbours.get_or_insert_with(|| mpi.neighbours(handle).unwrap_or_default())
    }
}

/// The communicators that were seen.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    known: HashMap<Handle, Known, Quickly>,
    /// How many were made by members alone, by parent and members.
    by_members: HashMap<u64, u64>,
}

impl Comms {
    pub(crate) fn get(&mut self, mpi: &Mpi, part: &mut Part, handle: Handle) -> Option<&mut Known> {
        if !self.known.contains_key(&handle) {
            let world = handle == mpi.abi.world();
            let name = if world { "MPI_COMM_WORLD" } else { "a communicator" };
            let (peers, is_inter) = mpi.peers(handle)?;
            let id = number(&[u64::from(!world), members(&peers)]);
            let known = self.entry(mpi, part, handle, (peers, is_inter), id, name.to_owned())?;
            self.known.insert(handle, known);
        }
        self.known.get_mut(&handle)
    }

    /// Takes a new communicator in, which `call` has made of `parent`; `None` where this rank is
    /// not in it.
    pub(crate) fn made(
        &mut self,
        mpi: &Mpi,
        part: &mut Part,
        call: &Call,
        parent: Handle,
        new: Option<Handle>,
    ) {
        let Some(known) = self.get(mpi, part, parent) else { return };
        let (id, name) = (known.id, known.name.clone());
        let by_all = call.does == Does::Communicator;
        known.made += u64::from(by_all);
        let before = known.made;
        // The new handle of a call that is not over yet cannot be asked; its group is the same.
        let same = call.name.contains("dup").then(|| known.clone());
        let Some(new) = new else { return };
        let Some((peers, is_inter)) = (match &same {
            Some(_) => mpi.peers(parent),
            None => mpi.peers(new),
        }) else {
            return;
        };
        let those = members(&peers);
        let ordinal = if by_all {
            before
        } else {
            let count = self.by_members.entry(number(&[id, those])).or_default();
            *count += 1;
            *count
        };
        let how = call.name.strip_prefix("Comm_").unwrap_or(call.name).to_lowercase();
        let name = format!("{how} {ordinal} of {name}");
        let id = number(&[id, ordinal, u64::from(by_all), those]);
        let known = match same {
            Some(same) => {
                // What is being made while the call goes on is not asked yet, nor ever coded.
                let plain = call.at('q').is_none() && mpi.is_plain(new);
                let one = Comm { id, size: same.size, name: name.clone(), plain };
                let index = part.comm(&one);
                Some(Known { index, id, name, made: 0, ..same })
            }
            None => self.entry(mpi, part, new, (peers, is_inter), id, name),
        };
        if let Some(known) = known {
            self.known.insert(new, known);
        }
    }

    /// The name of the communicator with this number.
    pub(crate) fn name_of(&self, number: u64) -> String {
        let found = self.known.values().find(|known| known.id == number);
        found.map_or_else(|| "a communicator".to_owned(), |known| known.name.clone())
    }

    /// Gives a communicator the name that the program has for it.
    pub(crate) fn rename(&mut self, mpi: &Mpi, part: &mut Part, handle: Handle, name: &str) {
        if let Some(known) = self.get(mpi, part, handle) {
            known.name = name.to_owned();
            part.rename(known.index, name);
        }
    }

    /// Looks again at what the program has allowed MPI to do on a communicator.
    pub(crate) fn hinted(&mut self, mpi: &Mpi, part: &mut Part, handle: Handle) {
        let index = self.get(mpi, part, handle).map(|known| known.index);
        if let Some(index) = index.filter(|_| mpi.is_plain(handle)) {
            part.keep_plain(index);
        }
    }

    /// Forgets a communicator that the program gives up: another may get its handle.
    pub(crate) fn forget(&mut self, handle: Handle) {
        self.known.remove(&handle);
    }

    fn entry(
        &self,
        mpi: &Mpi,
        part: &mut Part,
        handle: Handle,
        (peers, is_inter): (Vec<i32>, bool),
        id: u64,
        name: String,
    ) -> Option<Known> {
        let size = peers.len() as u32;
        let (rank, _) = mpi.place(handle)?;
        let is_same = peers.iter().enumerate().all(|(rank, peer)| *peer == rank as i32);
        let peers = peers.iter().map(|peer| u32::try_from(*peer).unwrap_or(Key::OUTSIDE));
        let peers = (!is_same).then(|| peers.collect());
        let plain = mpi.is_plain(handle);
        let index = part.comm(&Comm { id, size, name: name.clone(), plain });
        Some(Known { index, size, is_inter, rank, id, name, peers, made: 0, neighbours: None })
    }
}

fn members(peers: &[i32]) -> u64 {
    let bytes: Vec<u8> = peers.iter().flat_map(|peer| peer.to_le_bytes()).collect();
    hash(&bytes) as u64
}

fn number(parts: &[u64]) -> u64 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    hash(&bytes) as u64
}

#[cfg(test)]
mod tests {
    use super::{members, number};

    #[test]
    fn numbers_depend_on_parent_order_and_members() {
        let (these, those) = (members(&[0, 1]), members(&[1, 0]));
        assert_ne!(these, those);
        let all = [[1, 1, these], [1, 2, these], [2, 1, these], [1, 1, those]];
        let numbers: std::collections::HashSet<u64> = all.iter().map(|one| number(one)).collect();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(number(&all[0]), number(&[1, 1, these]));
    }
}
