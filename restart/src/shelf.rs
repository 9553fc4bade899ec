//! One rank's parts in a remote place: for each step an object with the frame as it is stored, and
//! then one with the manifest. A part is there when both are.
//!
//! A manifest is put after its frame, and removed before it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use unspool::{Error, ErrorKind, Spool, StoredFrame};
use unspool_codec::{Checksum, MAX_HEAD_BYTES, checksum, head_len, parse_head, version_of};
use unspool_remote::{Entry, Failure, Parts, Remote, Source, TierError};

use crate::agreement::Part;
use crate::chain;
use crate::claim::Claim;
use crate::folder::Folder;
use crate::manifest::{MOST_BYTES, Manifest};
use crate::names;

/// The folder of one rank in a remote place.
#[derive(Debug)]
pub(crate) struct Shelf {
    remote: Arc<Remote>,
    rank: u32,
    size: u32,
    /// The file of this machine that remembers an upload.
    journal: PathBuf,
    /// What says that the place belongs to this run; none for who has no run.
    claim: Option<Claim>,
}

/// What is in a remote place, as far as names say.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) manifests: BTreeSet<u64>,
    pub(crate) frames: BTreeSet<u64>,
}

impl Shelf {
    pub(crate) fn of(remote: Arc<Remote>, rank: u32, size: u32, journal: PathBuf) -> Shelf {
        Shelf { remote, rank, size, journal, claim: None }
    }

    /// The same one, which writes there only as long as the place belongs to the run.
    pub(crate) fn claimed(self, claim: Claim) -> Shelf {
        Shelf { claim: Some(claim), ..self }
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

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The place, for people.
    pub(crate) fn place(&self) -> String {
        self.remote.locate("").trim_end_matches('/').to_owned()
    }

    fn folder(&self) -> String {
        names::rank_folder(self.rank, self.size)
    }

    fn manifest(&self, step: u64) -> String {
        format!("{}/{}", self.folder(), names::manifest(step))
    }

    fn frame(&self, step: u64) -> String {
        format!("{}/{}", self.folder(), names::frame(step))
    }

    fn names(&self) -> Result<Names, Error> {
        let listed = self.remote.list(&format!("{}/", self.folder())).map_err(failed)?;
        let mut found = Names::default();
        for Entry { name, .. } in listed {
            let word = name.rsplit('/').next().unwrap_or_default();
            found.manifests.extend(names::parse_manifest(word));
            found.frames.extend(names::parse_frame(word));
        }
        Ok(found)
    }

    /// The manifests of the parts that are whole, oldest first, and sentences about others.
    pub(crate) fn manifests(&self) -> Result<(Vec<Manifest>, Vec<String>), Error> {
        let names = self.names()?;
        let (mut whole, mut damaged) = (Vec::new(), Vec::new());
        for &step in names.manifests.intersection(&names.frames) {
            match self.read_manifest(step) {
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
        let part = |one: &Manifest| Part { step: one.step, run: one.run };
        Ok((whole.iter().map(part).collect(), damaged))
    }

    /// The ranks that have a manifest in a remote place, each with the number of ranks.
    pub(crate) fn ranks(remote: &Remote) -> Result<BTreeSet<(u32, u32)>, Error> {
        let rank = |entry: &Entry| {
            let (folder, word) = entry.name.rsplit_once('/')?;
            names::parse_manifest(word)?;
            names::parse_rank_folder(folder)
        };
        Ok(remote.list(names::RANK).map_err(failed)?.iter().filter_map(rank).collect())
    }

    pub(crate) fn read_manifest(&self, step: u64) -> Result<Manifest, Error> {
        let mut bytes = Vec::new();
        let name = self.manifest(step);
        let wrong = |why: &str| {
            let message =
                format!("{} makes no checkpoint count: {why}.", self.remote.locate(&name));
            Error::new(ErrorKind::Corrupt, message)
        };
        let take = &mut |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            let long = bytes.len() > MOST_BYTES;
            let why = "it is longer than a manifest may be";
            let error = || TierError::new(Failure::Corrupt, "get", self.remote.locate(&name), why);
            if long { Err(error()) } else { Ok(()) }
        };
        self.remote.fetch(&name, take).map_err(failed)?;
        let manifest = Manifest::parse(&bytes).map_err(|why| wrong(&why.to_string()))?;
        if (manifest.step, manifest.rank, manifest.ranks) != (step, self.rank, self.size) {
            return Err(wrong("it is that of another step or rank"));
        }
        Ok(manifest)
    }

    /// Puts a part: its frame, and then its manifest, which has the checksum of the frame.
    /// `replaces`: another one of its step is there.
    ///
    /// # Errors
    /// `Io` when the place belongs to another run, and those of the place.
    pub(crate) fn put(
        &self,
        manifest: &Manifest,
        frame: &dyn Source,
        replaces: bool,
    ) -> Result<(), Error> {
        let step = manifest.step;
        self.check_claim()?;
        if replaces {
            self.remote.delete(&self.manifest(step)).map_err(failed)?;
        }
        let sum = self.remote.put(&self.frame(step), frame, Some(&self.journal)).map_err(failed)?;
        // That may have taken hours.
        self.check_claim()?;
        self.put_manifest(manifest, sum)
    }

    fn check_claim(&self) -> Result<(), Error> {
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check(&self.remote))
    }

    /// As [`put`](Self::put), for a frame in memory.
    pub(crate) fn put_bytes(&self, manifest: &Manifest, frame: &[u8]) -> Result<(), Error> {
        let step = manifest.step;
        self.remote.delete(&self.manifest(step)).map_err(failed)?;
        let sum = self.remote.put(&self.frame(step), &Parts::of(&[frame]), None).map_err(failed)?;
        self.put_manifest(manifest, sum)
    }

    fn put_manifest(&self, manifest: &Manifest, sum: u64) -> Result<(), Error> {
        let name = self.manifest(manifest.step);
        let bytes = Manifest { frame: Some(sum), ..manifest.clone() }.render();
        self.remote.put(&name, &Parts::of(&[&bytes]), None).map(drop).map_err(failed)
    }

    /// The manifest and the frame of a part.
    ///
    /// # Errors
    /// `Lost` when another run has put another one there; `Corrupt`; those of the place.
    pub(crate) fn get(&self, part: Part) -> Result<(Manifest, Vec<u8>), Error> {
        let manifest = self.read_manifest(part.step)?;
        if manifest.run != part.run {
            let message = format!("Step {} of another run is in {}.", part.step, self.place());
            return Err(Error::new(ErrorKind::Lost, message));
        }
        let frame = self.remote.get(&self.frame(part.step)).map_err(failed)?;
        if version_of(&frame) != i64::try_from(part.step).ok() {
            let place = self.remote.locate(&self.frame(part.step));
            let message = format!("{place} is not the frame of step {}.", part.step);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        if manifest.frame.is_some_and(|sum| sum != checksum(&frame)) {
            let place = self.remote.locate(&self.frame(part.step));
            let message = format!(
                "{place} is not the frame that its manifest is about: another run writes there."
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok((Manifest { frame: None, ..manifest }, frame))
    }

    /// Removes the parts of steps, and what is there of others; how many steps had something.
    pub(crate) fn remove(&self, wanted: impl Fn(u64) -> bool) -> Result<usize, Error> {
        self.check_claim()?;
        let mut names = self.names()?;
        names.manifests.retain(|step| wanted(*step));
        names.frames.retain(|step| wanted(*step));
        for &step in &names.manifests {
            self.remote.delete(&self.manifest(step)).map_err(failed)?;
        }
        for &step in &names.frames {
            self.remote.delete(&self.frame(step)).map_err(failed)?;
        }
        Ok(names.manifests.union(&names.frames).count())
    }
}

/// A part as it goes beyond the folder: in full, whether it is an increment here or not.
///
/// # Errors
/// `Lost` when it does not count here any more; those of reading it.
pub(crate) fn on_its_own(
    folder: &Folder,
    spool: &Spool,
    part: Part,
) -> Result<(Manifest, Box<dyn Source>), Error> {
    let mut all = folder.manifests()?.whole.into_iter();
    let own = all.find(|one| (one.step, one.run) == (part.step, part.run)).ok_or_else(|| {
        let message = format!("Step {} does not count here any more.", part.step);
        Error::new(ErrorKind::Lost, message)
    })?;
    let frame: Box<dyn Source> = match own.increment {
        None => Box::new(CheckedFrame::of(spool.stored(part.step as i64)?)?),
        Some(_) => Box::new(WholeFrame(chain::whole(spool, part.step as i64)?)),
    };
    Ok((Manifest { increment: None, ..own }, frame))
}

/// A frame that was put together of a chain, and compared with its checksum then.
struct WholeFrame(Vec<u8>);

impl Source for WholeFrame {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        Parts::of(&[&self.0]).read(at, into)
    }
}

/// An error of a remote place.
pub(crate) fn failed(cause: TierError) -> Error {
    let kind = match cause.kind() {
        Failure::NoSpace => ErrorKind::Full,
        Failure::Corrupt => ErrorKind::Corrupt,
        Failure::Missing => ErrorKind::Lost,
        Failure::Io | Failure::Permanent => ErrorKind::Io,
    };
    Error::new(kind, cause.to_string()).caused_by(cause)
}

/// A frame whose payload is compared with its checksum while it is read from its beginning to its
/// end: damaged bytes do not get any farther.
#[derive(Debug)]
pub struct CheckedFrame {
    frame: StoredFrame,
    /// Where the payload begins, and its checksum; none where it is packed, and checked by who
    /// unpacks it.
    payload: Option<(u64, u64)>,
    read: RefCell<(u64, Checksum)>,
}

impl CheckedFrame {
    /// A frame whose head is whole.
    ///
    /// # Errors
    /// `Corrupt`; those of reading it.
    pub fn of(frame: StoredFrame) -> Result<CheckedFrame, Error> {
        let mut start = vec![0; frame.bytes().min(4096) as usize];
        frame.read(0, &mut start)?;
        let len = head_len(&start).map_err(|why| corrupt(&why.to_string()))?;
        if len > frame.bytes().min(MAX_HEAD_BYTES) {
            return Err(corrupt("its head is longer than it"));
        }
        start.resize(len as usize, 0);
        frame.read(0, &mut start)?;
        let (head, sum) = parse_head(&start).map_err(|why| corrupt(&why.to_string()))?;
        let payload = head.packed.is_none().then_some((len, sum));
        Ok(CheckedFrame { frame, payload, read: RefCell::new((0, Checksum::new())) })
    }

    fn check(&self, at: u64, bytes: &[u8]) -> Result<(), TierError> {
        let Some((begin, expected)) = self.payload else { return Ok(()) };
        let mut read = self.read.borrow_mut();
        if at == 0 {
            *read = (0, Checksum::new());
        }
        if at != read.0 {
            return Ok(());
        }
        let skip = begin.saturating_sub(at).min(bytes.len() as u64) as usize;
        read.1.update(&bytes[skip..]);
        read.0 += bytes.len() as u64;
        if read.0 == self.frame.bytes() && read.1.value() != expected {
            let reason = "the checksum of its payload is another one";
            return Err(TierError::new(Failure::Corrupt, "put", "the frame", reason));
        }
        Ok(())
    }
}

fn corrupt(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("The frame is damaged: {why}."))
}

impl Source for CheckedFrame {
    fn bytes(&self) -> u64 {
        self.frame.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        self.frame.read(at, into).map_err(|cause| {
            let kind = match cause.kind() {
                ErrorKind::Lost => Failure::Missing,
                ErrorKind::Corrupt => Failure::Corrupt,
                _ => Failure::Io,
            };
            TierError::new(kind, "put", "the frame", cause.message().trim_end_matches('.'))
        })?;
        self.check(at, into)
    }
}
