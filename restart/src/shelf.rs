//! Parts in a remote place: those of one rank are objects in one folder, its shelf. The names of
//! the objects of a part begin with its word, such as `step-300.frame` and `step-300.manifest`.
//!
//! A part is there when its manifest is, which is put after its other objects and removed before
//! them. That of a step is whole with its frame.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use unspool::{Error, ErrorKind};
use unspool_codec::{checksum, version_of};
use unspool_remote::{Failure, Remote, Source, TierError};

use crate::claim::Claim;
use crate::manifest::{MOST_BYTES, Manifest, Part};
use crate::names;
use crate::places::failed;

/// What an object of a part has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    /// What makes the part count.
    Manifest,
    /// The arrays, as the spool stores them.
    Frame,
    /// A file that the program wrote.
    File,
}

impl Object {
    const ALL: [Object; 3] = [Object::Manifest, Object::Frame, Object::File];

    fn end(self) -> &'static str {
        match self {
            Object::Manifest => ".manifest",
            Object::Frame => ".frame",
            Object::File => ".file",
        }
    }
}

/// The objects of parts in a place, by folder and word.
pub type Found = BTreeMap<(String, String), BTreeSet<Object>>;

/// The folder of one rank in a remote place.
#[derive(Debug)]
pub struct Shelf {
    remote: Arc<Remote>,
    folder: String,
    rank: u32,
    size: u32,
    /// The file of this machine that remembers an upload.
    journal: Option<PathBuf>,
    /// What says that the place belongs to this run; none for who has no run.
    claim: Option<Claim>,
}

impl Shelf {
    /// That of a rank of so many, in a folder of any name, with a file of this machine that
    /// remembers an upload.
    #[must_use]
    pub fn new(
        remote: &Arc<Remote>,
        folder: String,
        (rank, size): (u32, u32),
        journal: Option<PathBuf>,
    ) -> Shelf {
        Shelf { remote: Arc::clone(remote), folder, rank, size, journal, claim: None }
    }

    /// That of a rank of a run.
    pub(crate) fn of(remote: &Arc<Remote>, rank: u32, size: u32) -> Shelf {
        Shelf::new(remote, names::rank_folder(rank, size), (rank, size), None)
    }

    /// The same one, which writes there only as long as the place belongs to the run.
    pub(crate) fn claimed(self, claim: Claim) -> Shelf {
        Shelf { claim: Some(claim), ..self }
    }

    /// The name of an object of the part with this word.
    #[must_use]
    pub fn name(&self, word: &str, object: Object) -> String {
        named(&self.folder, word, object)
    }

    /// Puts an object of a part; its checksum is returned.
    ///
    /// # Errors
    /// Those of the place.
    pub fn put(&self, word: &str, object: Object, source: &dyn Source) -> Result<u64, Error> {
        let journal = self.journal.as_deref().filter(|_| object != Object::Manifest);
        self.remote.put(&self.name(word, object), source, journal).map_err(failed)
    }

    /// The manifest of a part of this rank, if it `is_it`.
    ///
    /// # Errors
    /// `Corrupt` when it is another one, or damaged; those of the place.
    pub fn manifest(
        &self,
        word: &str,
        is_it: impl FnOnce(&Manifest) -> bool,
    ) -> Result<Manifest, Error> {
        let mut bytes = Vec::new();
        let name = self.name(word, Object::Manifest);
        let take = &mut |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            let long = bytes.len() > MOST_BYTES;
            let why = "it is longer than a manifest may be";
            let error = || TierError::new(Failure::Corrupt, "get", self.remote.locate(&name), why);
            if long { Err(error()) } else { Ok(()) }
        };
        self.remote.fetch(&name, take).map_err(failed)?;
        let found = Manifest::parse(&bytes).map_err(|why| why.to_string());
        let other = || "it is that of another step or rank".to_owned();
        let is_own = |one: &Manifest| (one.rank, one.ranks) == (self.rank, self.size) && is_it(one);
        let found = found.and_then(|one| if is_own(&one) { Ok(one) } else { Err(other()) });
        found.map_err(|why| {
            let place = self.remote.locate(&name);
            let message = format!("{place} makes no checkpoint count: {why}.");
            Error::new(ErrorKind::Corrupt, message)
        })
    }

    /// The frame that a manifest is about.
    ///
    /// # Errors
    /// `Corrupt` when it is another one; those of the place.
    pub fn frame(&self, word: &str, manifest: &Manifest) -> Result<Vec<u8>, Error> {
        let name = self.name(word, Object::Frame);
        let frame = self.remote.get(&name).map_err(failed)?;
        let wrong = |why: &str| {
            let message = format!("{} is not the frame {why}.", self.remote.locate(&name));
            Err(Error::new(ErrorKind::Corrupt, message))
        };
        if version_of(&frame) != i64::try_from(manifest.step).ok() {
            return wrong(&format!("of step {}", manifest.step));
        }
        if manifest.frame.is_some_and(|sum| sum != checksum(&frame)) {
            return wrong("that its manifest is about: another run writes there");
        }
        Ok(frame)
    }

    /// The objects of this rank's parts.
    ///
    /// # Errors
    /// Those of the place.
    pub fn own(&self) -> Result<Found, Error> {
        let mut found = Shelf::found(&self.remote, &format!("{}/", self.folder))?;
        found.retain(|(folder, _), _| *folder == self.folder);
        Ok(found)
    }

    /// The objects of parts of which the names begin so.
    ///
    /// # Errors
    /// Those of the place.
    pub fn found(remote: &Remote, begin: &str) -> Result<Found, Error> {
        let mut found = Found::new();
        for entry in remote.list(begin).map_err(failed)? {
            let Some((folder, file)) = entry.name.rsplit_once('/') else { continue };
            for object in Object::ALL {
                if let Some(word) = file.strip_suffix(object.end()) {
                    let part = found.entry((folder.to_owned(), word.to_owned()));
                    part.or_default().insert(object);
                }
            }
        }
        Ok(found)
    }

    /// Removes objects: of all parts first what makes them count.
    ///
    /// # Errors
    /// Those of the place.
    pub fn clear(remote: &Remote, found: &Found) -> Result<(), Error> {
        for object in Object::ALL {
            for ((folder, word), _) in found.iter().filter(|(_, has)| has.contains(&object)) {
                remote.delete(&named(folder, word, object)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Ends what is under way there.
    pub(crate) fn stop(&self) {
        self.claim.iter().for_each(Claim::end);
        self.remote.stop();
    }

    /// The run does not write there any more.
    pub(crate) fn release(&self) {
        self.claim.iter().for_each(|claim| claim.release(&self.remote));
    }

    /// The place, for people.
    pub(crate) fn place(&self) -> String {
        self.remote.locate("").trim_end_matches('/').to_owned()
    }

    /// What is there of steps, as far as names say.
    fn steps(&self) -> Result<Found, Error> {
        let mut found = self.own()?;
        found.retain(|(_, word), has| {
            has.remove(&Object::File);
            names::parse_step(word).is_some() && !has.is_empty()
        });
        Ok(found)
    }

    /// The manifests of the parts that are whole, oldest first, and sentences about others.
    pub(crate) fn manifests(&self) -> Result<(Vec<Manifest>, Vec<String>), Error> {
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        let found = self.steps()?.into_iter().filter(|(_, has)| has.len() == 2);
        let steps: BTreeSet<u64> =
            found.filter_map(|((_, word), _)| names::parse_step(&word)).collect();
        for step in steps {
            match self.manifest_of(step) {
                Ok(manifest) => whole.push(manifest),
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Lost) => {
                    damaged.push(format!("Step {step} does not count there: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((whole, damaged))
    }

    /// The parts that are whole, oldest first, and sentences about others.
    pub(crate) fn parts(&self) -> Result<(Vec<Part>, Vec<String>), Error> {
        let (whole, damaged) = self.manifests()?;
        Ok((whole.iter().map(Manifest::part).collect(), damaged))
    }

    /// The ranks that have a manifest in a remote place, each with the number of ranks.
    pub(crate) fn ranks(remote: &Remote) -> Result<BTreeSet<(u32, u32)>, Error> {
        let found = Shelf::found(remote, names::RANK)?.into_iter();
        let found = found.filter(|((_, word), has)| {
            names::parse_step(word).is_some() && has.contains(&Object::Manifest)
        });
        Ok(found.filter_map(|((folder, _), _)| names::parse_rank_folder(&folder)).collect())
    }

    fn manifest_of(&self, step: u64) -> Result<Manifest, Error> {
        self.manifest(&names::step(step), |one| one.step == step)
    }

    /// Puts a part: its frame, and then its manifest, which has the checksum of the frame.
    /// `replaces`: another one of its step is there.
    ///
    /// # Errors
    /// `Io` when the place belongs to another run, and those of the place.
    pub(crate) fn put_part(
        &self,
        manifest: &Manifest,
        frame: &dyn Source,
        replaces: bool,
    ) -> Result<(), Error> {
        let word = names::step(manifest.step);
        self.check_claim()?;
        if replaces {
            self.remote.delete(&self.name(&word, Object::Manifest)).map_err(failed)?;
        }
        let sum = self.put(&word, Object::Frame, frame)?;
        // That may have taken hours.
        self.check_claim()?;
        let bytes = Manifest { frame: Some(sum), ..manifest.clone() }.render();
        self.put(&word, Object::Manifest, &bytes).map(drop)
    }

    fn check_claim(&self) -> Result<(), Error> {
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check(&self.remote))
    }

    /// The manifest and the frame of a part.
    ///
    /// # Errors
    /// `Lost` when another run has put another one there; `Corrupt`; those of the place.
    pub(crate) fn get(&self, part: Part) -> Result<(Manifest, Vec<u8>), Error> {
        let manifest = self.manifest_of(part.step)?;
        if manifest.run != part.run {
            let message = format!("Step {} of another run is in {}.", part.step, self.place());
            return Err(Error::new(ErrorKind::Lost, message));
        }
        let frame = self.frame(&names::step(part.step), &manifest)?;
        Ok((Manifest { frame: None, ..manifest }, frame))
    }

    /// Removes the parts of steps, and what is there of others; how many steps had something.
    pub(crate) fn remove(&self, wanted: impl Fn(u64) -> bool) -> Result<usize, Error> {
        self.check_claim()?;
        let mut found = self.steps()?;
        found.retain(|(_, word), _| names::parse_step(word).is_some_and(&wanted));
        Shelf::clear(&self.remote, &found)?;
        Ok(found.len())
    }
}

fn named(folder: &str, word: &str, object: Object) -> String {
    format!("{folder}/{word}{}", object.end())
}
