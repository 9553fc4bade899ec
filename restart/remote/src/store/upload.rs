//! An object on its way into a store: small ones in one request, large ones in pieces, of which
//! several are on their way at once and which a journal remembers.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use unspool_core::Failure;
use unspool_tiers::TierError;

use crate::foot::Sum;
use crate::place::Place;
use crate::source::Whole;
use crate::store::journal::{self, Begun, Job, Journal, Sent};
use crate::store::{IN_FLIGHT, Store};

/// The most pieces of an object that every store takes.
const MOST_PIECES: u64 = 10_000;

/// Puts all of `whole` where `name` says.
pub(crate) fn put(
    store: &Store,
    name: &str,
    whole: &mut Whole<'_>,
    journal: Option<&FilePath>,
) -> Result<(), TierError> {
    let piece = piece_of(whole.total(), store.options.piece as u64);
    let job = Job { object: store.locate(name), bytes: whole.total(), piece };
    let begun = journal.and_then(journal::read);
    let (resumed, other) = match begun {
        Some(begun) if begun.job == job => (Some(begun), None),
        other => (None, other),
    };
    if let (Some(other), Some(journal)) = (other, journal) {
        give_up(store, &other, journal);
    }
    if whole.total() <= piece {
        let all = whole.next(piece as usize)?;
        let path = store.path(name);
        return store.wait("put", name, store.objects.put(&path, all.into())).map(drop);
    }
    let resumes = resumed.is_some();
    let sent = Upload::begin(store, name, &job, journal, resumed)?.send(whole);
    match sent {
        // The store does not know the upload any more, or not these pieces of it.
        Err(error) if resumes && error.kind() != Failure::Io => {
            whole.restart();
            Upload::begin(store, name, &job, journal, None)?.send(whole)
        }
        sent => sent,
    }
}

/// The bytes of a piece of an object of `total` bytes, so that there are not too many.
fn piece_of(total: u64, least: u64) -> u64 {
    total.div_ceil(MOST_PIECES).next_multiple_of(1 << 20).max(least)
}

/// Lets go of what an upload that will not go on has left in the store.
fn give_up(store: &Store, begun: &Begun, journal: &FilePath) {
    let own = begun.job.object.strip_prefix(&store.locate("")).and_then(|n| n.strip_prefix('/'));
    if let Some(name) = own {
        let path = store.path(name);
        // The store may not know it any more; what stays there can be removed by its own rules.
        let _ = store.wait("delete", name, store.objects.abort_multipart(&path, &begun.upload));
    }
    Journal::go_on(journal).end();
}

/// An upload in pieces.
struct Upload<'a> {
    store: &'a Store,
    name: &'a str,
    path: Path,
    id: String,
    piece: usize,
    journal: Option<Journal>,
    /// Pieces of an earlier try, by number.
    there: BTreeMap<usize, Sent>,
    done: BTreeMap<usize, PartId>,
}

impl<'a> Upload<'a> {
    fn begin(
        store: &'a Store,
        name: &'a str,
        job: &Job,
        journal: Option<&FilePath>,
        resumed: Option<Begun>,
    ) -> Result<Upload<'a>, TierError> {
        let path = store.path(name);
        let (id, journal, there) = match resumed {
            Some(begun) => (begun.upload, journal.map(Journal::go_on), begun.sent),
            None => {
                let id = store.wait("put", name, store.objects.create_multipart(&path))?;
                let journal = journal.map(|journal| Journal::begin(journal, job, &id));
                (id, journal, Vec::new())
            }
        };
        let there = there.into_iter().map(|sent| (sent.number, sent)).collect();
        let (piece, done) = (job.piece as usize, BTreeMap::new());
        Ok(Upload { store, name, path, id, piece, journal, there, done })
    }

    /// Sends what is not there yet, and makes an object of it all.
    fn send(mut self, whole: &mut Whole<'_>) -> Result<(), TierError> {
        let (store, name, path, id) = (self.store, self.name, self.path.clone(), self.id.clone());
        let mut flying = FuturesOrdered::new();
        for number in 0.. {
            let piece = whole.next(self.piece)?;
            if piece.is_empty() {
                break;
            }
            let checksum = Sum::of(&piece);
            if let Some(sent) = self.there.get(&number).filter(|sent| sent.checksum == checksum) {
                self.done.insert(number, PartId { content_id: sent.id.clone() });
                continue;
            }
            let (path, id) = (&path, &id);
            flying.push_back(async move {
                let part = store.objects.put_part(path, id, number, PutPayload::from(piece));
                part.await.map(|part| (number, checksum, part))
            });
            if flying.len() >= IN_FLIGHT {
                let next = async { flying.next().await.transpose() };
                store.wait("put", name, next)?.into_iter().for_each(|sent| self.sent(sent));
            }
        }
        while !flying.is_empty() {
            let next = async { flying.next().await.transpose() };
            store.wait("put", name, next)?.into_iter().for_each(|sent| self.sent(sent));
        }
        self.complete()
    }

    fn sent(&mut self, (number, checksum, part): (usize, u64, PartId)) {
        if let Some(journal) = &mut self.journal {
            journal.note(&Sent { number, checksum, id: part.content_id.clone() });
        }
        self.done.insert(number, part);
    }

    fn complete(self) -> Result<(), TierError> {
        let parts = self.done.into_values().collect();
        let made = self.store.objects.complete_multipart(&self.path, &self.id, parts);
        let made = self.store.wait("put", self.name, made).map(drop);
        // After an answer that was lost it can be asked for once more.
        let over = made.as_ref().err().is_none_or(|error| error.kind() != Failure::Io);
        if let Some(journal) = self.journal.filter(|_| over) {
            journal.end();
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_as_large_as_their_number_allows() {
        assert_eq!(piece_of(100, 8 << 20), 8 << 20);
        assert_eq!(piece_of(8 << 30, 8 << 20), 8 << 20);
        let huge = 5_u64 << 40;
        let piece = piece_of(huge, 8 << 20);
        assert!(huge.div_ceil(piece) <= MOST_PIECES && piece.is_multiple_of(1 << 20), "{piece}");
    }
}
