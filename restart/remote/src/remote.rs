//! A remote place: what it gives to its callers is whole, whatever the place itself says.

use std::path::Path;

use unspool_core::Failure;
use unspool_tiers::TierError;

use crate::directory::Directory;
use crate::fault;
use crate::foot::{FOOT, Foot, Sum};
use crate::names;
use crate::place::Place;
use crate::settings::Options;
use crate::source::{Source, Whole};
#[cfg(feature = "object-store")]
use crate::store::Store;

/// A place beyond the machine that keeps opaque bytes under names. Its calls may be made by several
/// threads at once; those that name the same object are ordered by the caller. They wait, and must
/// not be made from within an asynchronous runtime.
#[derive(Debug)]
pub struct Remote {
    place: Box<dyn Place>,
}

/// An object in a list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The bytes that were put, as far as the list is right.
    pub bytes: u64,
}

impl Remote {
    /// Opens `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or a directory,
    /// which is made when the one that is to hold it exists. No server is asked yet. Credentials
    /// are those of the environment, as `object_store` reads them: `AWS_*`, `GOOGLE_*`, `AZURE_*`.
    ///
    /// # Errors
    /// When the place has no such form, the environment makes no sense, a directory cannot be made,
    /// or this was built without the feature `object-store`.
    pub fn open(place: &str, options: &Options) -> Result<Remote, TierError> {
        let place = match place.split_once("://") {
            None => Box::new(Directory::open(Path::new(place))?),
            Some(_) => in_store(place, options)?,
        };
        Ok(Remote { place })
    }

    /// The place of an object, for people.
    #[must_use]
    pub fn locate(&self, name: &str) -> String {
        self.place.locate(name)
    }

    /// Stores the bytes of `source` as the object `name`, in place of what has that name, and
    /// returns their checksum. When this returns, the place has all of it, and has said so.
    ///
    /// In a store, an object of several pieces that was interrupted goes on from the pieces that
    /// are there, when the same call is made again with the same `journal`: a file that this call
    /// makes, and removes at the end. What another upload has left in it is given up first.
    ///
    /// # Errors
    /// Those of the source; when the place refuses, does not answer, or has something else
    /// afterwards. What was there before may be there still.
    pub fn put(
        &self,
        name: &str,
        source: &dyn Source,
        journal: Option<&Path>,
    ) -> Result<u64, TierError> {
        names::check("put", name)?;
        let mut whole = Whole::of(source);
        let sent = self.place.put(name, &mut whole, journal);
        // A put of which only the answer was lost is done.
        let lost = |error: &TierError| error.kind() == Failure::Io && whole.is_read();
        let sent = match sent {
            Err(error) if !lost(&error) => return Err(error),
            sent => sent,
        };
        match self.foot("put", name) {
            Ok(found) if found == whole.foot() => Ok(found.checksum),
            found => {
                sent?;
                let wrong = |_| fault::damaged("put", self.locate(name), "it has something else");
                Err(found.map_or_else(|error| error, wrong))
            }
        }
    }

    /// Gives the bytes of an object to `take`, in order and in pieces; returns how many there are.
    /// What `take` has been given is right when this returns.
    ///
    /// # Errors
    /// `Missing`, `Corrupt`, those of `take`; when the place does not answer.
    pub fn fetch(
        &self,
        name: &str,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<u64, TierError> {
        let foot = self.foot("get", name)?;
        let mut sum = Sum::new();
        self.place.read(name, size_of(foot), 0..foot.bytes, &mut |bytes| {
            sum.add(bytes);
            take(bytes)
        })?;
        self.check_sum(name, foot, &sum)?;
        Ok(foot.bytes)
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// Those of [`fetch`](Self::fetch); when there is not so much memory.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, TierError> {
        let mut all = Vec::new();
        self.fetch(name, &mut |bytes| {
            all.try_reserve(bytes.len()).map_err(|_| {
                let reason = "there is no memory for it";
                TierError::new(Failure::Io, "get", self.locate(name), reason)
            })?;
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    /// The objects whose names begin so (`""`: all; `folder/`: those in a folder), by name. Those
    /// that are too short to be ours are left out. No other ones are looked at, whatever their
    /// names are.
    ///
    /// # Errors
    /// When the place cannot be listed.
    pub fn list(&self, begin: &str) -> Result<Vec<Entry>, TierError> {
        if !begin.is_empty() {
            names::check("list", begin.strip_suffix('/').unwrap_or(begin))?;
        }
        let entry = |(name, size): (String, u64)| {
            let bytes = size.checked_sub(FOOT as u64)?;
            Some(Entry { name, bytes })
        };
        let mut found: Vec<_> = self.place.list(begin)?.into_iter().filter_map(entry).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Removes an object; fine when it is not there.
    ///
    /// # Errors
    /// When the place refuses or does not answer.
    pub fn delete(&self, name: &str) -> Result<(), TierError> {
        names::check("delete", name)?;
        self.place.delete(name)
    }

    /// What this place is, as one line, also where a directory is seen under another path: not that
    /// of a copy of it.
    ///
    /// # Errors
    /// When a directory cannot be looked at.
    pub fn identity(&self) -> Result<String, TierError> {
        self.place.identity()
    }

    /// Ends the calls that are under way, and all later ones, with an error. What was sent of an
    /// object can be gone on with by another [`Remote`].
    pub fn stop(&self) {
        self.place.stop();
    }

    fn foot(&self, operation: &'static str, name: &str) -> Result<Foot, TierError> {
        names::check(operation, name)?;
        let wrong = |why| fault::damaged(operation, self.locate(name), why);
        let size = self.place.size(name)?;
        let begin = size.checked_sub(FOOT as u64).ok_or_else(|| wrong("it is cut off"))?;
        let mut bytes = Vec::new();
        self.place.read(name, size, begin..size, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        let foot = Foot::parse(&bytes).ok_or_else(|| wrong("it is cut off, or not ours"))?;
        if foot.bytes != begin {
            return Err(wrong("its length is another one than it says"));
        }
        Ok(foot)
    }

    fn check_sum(&self, name: &str, foot: Foot, sum: &Sum) -> Result<(), TierError> {
        if sum.value() == foot.checksum {
            return Ok(());
        }
        Err(fault::damaged("get", self.locate(name), "its checksum is another one"))
    }
}

#[cfg(feature = "object-store")]
fn in_store(place: &str, options: &Options) -> Result<Box<dyn Place>, TierError> {
    Ok(Box::new(Store::open(place, options)?))
}

#[cfg(not(feature = "object-store"))]
fn in_store(place: &str, _: &Options) -> Result<Box<dyn Place>, TierError> {
    let reason = "this was built without a client of object stores";
    let advice = "Build it with the feature object-store, or name a directory.";
    // What comes after the scheme may hold a secret.
    let scheme = place.split_once("://").map_or("", |(scheme, _)| scheme);
    let place = format!("{scheme}://");
    Err(TierError::new(Failure::Permanent, "open", place, reason).with_advice(advice))
}

/// The bytes of an object with this foot.
fn size_of(foot: Foot) -> u64 {
    foot.bytes + FOOT as u64
}
