//! The partner level of a run: a rank on another node, where there is one, keeps a copy of each
//! rank's part. Frames go there and back through the ranks' own communicator, in pieces, while the
//! application waits.
//!
//! What a rank keeps for others lies in its folder as objects: whole or not at all, each with its
//! length and checksum.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use unspool::{Error, ErrorKind};
use unspool_codec::version_of;
use unspool_remote::{Options, Remote, Source};

use crate::agreement::Held;
use crate::exchange::{Call, Exchanges};
use crate::folder::Folder;
use crate::interval::Every;
use crate::manifest::{Manifest, Part};
use crate::places::failed;
use crate::ranks::Ranks;
use crate::shelf::Shelf;
use crate::worker::lock;

/// The bytes of a frame that go to another rank at once.
const PIECE: u64 = 8 << 20;

/// In place of a length: there is nothing to send.
const NOTHING: u64 = u64::MAX;

/// What this rank keeps for others, and when it gets more.
#[derive(Debug)]
pub(crate) struct Partner {
    remote: Arc<Remote>,
    size: u32,
    every: Every,
    /// How far the keeper of each rank is from it.
    shift: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: Vec<Held>,
    /// The step and the time of the last save that gave one away.
    last: (u64, f64),
    /// What went wrong and was not told yet.
    failure: Option<Error>,
}

/// A part on its way to another rank.
pub(crate) type Sent<'a> = (&'a Manifest, &'a dyn Source);

/// A part that came from another rank: its manifest, and its frame.
pub(crate) type Came = (Manifest, Vec<u8>);

impl Partner {
    /// What lies in the folder of this rank, which is one of several.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(folder: &Folder, size: u32, every: Every) -> Result<Partner, Error> {
        let path = folder.path().join("partner");
        let path = path.to_string_lossy();
        let remote = Arc::new(Remote::open(&path, &Options::default()).map_err(failed)?);
        let mut held = Vec::new();
        for (rank, of) in Shelf::ranks(&remote)?.into_iter().filter(|(_, of)| *of == size) {
            let shelf = Shelf::of(&remote, rank, of);
            held.extend(shelf.parts()?.0.into_iter().map(|part| Held { rank, part }));
        }
        let state = Mutex::new(State { held, last: (0, 0.0), failure: None });
        Ok(Partner { remote, size, every, shift: 0, state })
    }

    /// All ranks know on which machine each of them is; whether keepers are on other ones.
    pub(crate) fn begin(&mut self, hosts: &[String]) -> bool {
        let (shift, apart) = shift_of(hosts);
        self.shift = shift;
        apart
    }

    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        lock(&self.state).held.clone()
    }

    pub(crate) fn take_failure(&self) -> Option<Error> {
        lock(&self.state).failure.take()
    }

    pub(crate) fn fail(&self, error: Error) {
        lock(&self.state).failure = Some(error);
    }

    pub(crate) fn is_due(&self, step: u64, now: f64) -> bool {
        let (last, at) = lock(&self.state).last;
        self.every.is_due_after((last, at), step, now)
    }

    pub(crate) fn took(&self, step: u64, now: f64) {
        lock(&self.state).last = (step, now);
    }

    /// Keeps a part of another rank, and forgets those of it that `wanted` names.
    ///
    /// # Errors
    /// `Corrupt` when it is not the part that it should be; `Full`, `Io`.
    pub(crate) fn keep(&self, rank: u32, part: Part, came: Came) -> Result<(), Error> {
        if !is_part(&came, rank, self.size, part) {
            let message = format!("What rank {rank} gave is not its part of step {}.", part.step);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let held = Held { rank, part };
        lock(&self.state).held.retain(|one| (one.rank, one.part.step) != (rank, part.step));
        let (manifest, frame) = came;
        self.shelf(rank).put_part(&manifest, &frame, true)?;
        lock(&self.state).held.push(held);
        Ok(())
    }

    /// The manifest and the frame of a part that this rank keeps.
    ///
    /// # Errors
    /// `Lost`, `Corrupt`, `Io`.
    pub(crate) fn get(&self, Held { rank, part }: Held) -> Result<(Manifest, Vec<u8>), Error> {
        self.shelf(rank).get(part)
    }

    /// Forgets the parts of all ranks that `wanted` names.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove(&self, wanted: impl Fn(u64) -> bool) -> Result<(), Error> {
        let ranks: Vec<u32> = {
            let mut state = lock(&self.state);
            let gone = state.held.iter().filter(|held| wanted(held.part.step));
            let ranks = gone.map(|held| held.rank).collect();
            state.held.retain(|held| !wanted(held.part.step));
            ranks
        };
        ranks.iter().try_for_each(|rank| self.shelf(*rank).remove(&wanted).map(drop))
    }

    fn shelf(&self, rank: u32) -> Shelf {
        Shelf::of(&self.remote, rank, self.size)
    }
}

/// Whether what came is this part of a rank.
pub(crate) fn is_part((manifest, frame): &Came, rank: u32, size: u32, part: Part) -> bool {
    (manifest.rank, manifest.ranks, manifest.part()) == (rank, size, part)
        && version_of(frame) == i64::try_from(part.step).ok()
}

/// How far the keeper of each rank is from it, so that all are on other machines; half of the ranks
/// where that cannot be.
fn shift_of(hosts: &[String]) -> (u32, bool) {
    let apart = |shift: &usize| {
        let others = hosts.iter().cycle().skip(*shift);
        hosts.iter().zip(others).all(|(one, other)| one != other)
    };
    match (1..hosts.len()).find(apart) {
        Some(shift) => (shift as u32, true),
        None => ((hosts.len() as u32 / 2).max(1), false),
    }
}

/// The name of this machine.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Gives `mine` to the rank that is `shift` after this one, and returns what the one before it by
/// as many gave, if it is whole. All ranks call it together.
///
/// # Errors
/// `Timeout` and others of an exchange.
pub(crate) fn relay(
    exchanges: &Exchanges,
    ranks: &dyn Ranks,
    shift: u32,
    mine: Option<Sent<'_>>,
    timeout: Duration,
) -> Result<Option<Came>, Error> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let pair = ((rank + shift) % size, (rank + size - shift % size) % size);
    let own = mine.map_or(NOTHING, |(_, frame)| frame.bytes());
    let all = exchanges.all(ranks, Call::Partner, &own.to_le_bytes(), timeout)?;
    let lengths: Option<Vec<u64>> =
        all.iter().map(|one| Some(u64::from_le_bytes(one[..].try_into().ok()?))).collect();
    let lengths = lengths.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "A rank said what this version does not understand.")
    })?;
    let pass = |bytes: &[u8]| exchanges.pass(ranks, Call::Partner, bytes, pair, timeout);
    let manifest = pass(&mine.map_or(Vec::new(), |(manifest, _)| manifest.render()))?;
    let expected = lengths[pair.1 as usize];
    let longest = lengths.iter().filter(|length| **length != NOTHING).max().copied().unwrap_or(0);
    let mut frame = Vec::new();
    let mut whole = expected != NOTHING && frame.try_reserve_exact(expected as usize).is_ok();
    for number in 0..longest.div_ceil(PIECE) {
        // A piece that cannot be read is missing there, where its length is compared.
        let piece = mine.and_then(|(_, frame)| piece_of(frame, number * PIECE));
        let came = pass(&piece.unwrap_or_default())?;
        whole &= frame.len() as u64 + came.len() as u64 <= expected;
        if whole {
            frame.extend_from_slice(&came);
        }
    }
    // Until all are through, each of them waits here: one that hangs is told from the others.
    exchanges.all(ranks, Call::Partner, &[], timeout)?;
    let manifest = Manifest::parse(&manifest).ok();
    Ok(manifest.filter(|_| whole && frame.len() as u64 == expected).map(|one| (one, frame)))
}

/// The piece of a frame that begins at `at`; none at its end, or where it cannot be read.
fn piece_of(frame: &dyn Source, at: u64) -> Option<Vec<u8>> {
    let len = frame.bytes().checked_sub(at)?.min(PIECE);
    let mut piece = vec![0; len as usize];
    frame.read(at, &mut piece).ok().map(|()| piece)
}

#[cfg(test)]
mod tests {
    use super::shift_of;

    #[test]
    fn keepers_are_on_other_machines_where_there_are_any() {
        let shift = |hosts: &str| shift_of(&hosts.chars().map(String::from).collect::<Vec<_>>());
        assert_eq!(shift("ab"), (1, true));
        assert_eq!(shift("aabb"), (2, true));
        assert_eq!(shift("abab"), (1, true));
        assert_eq!(shift("aaaabbbbcccc"), (4, true));
        assert_eq!(shift("aaaa"), (2, false));
        assert_eq!(shift("aaab"), (2, false));
        assert_eq!(shift("a"), (1, false));
    }
}
