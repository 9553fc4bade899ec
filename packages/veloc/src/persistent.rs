//! The persistent place: a folder that all nodes see, or an object store. A part of a checkpoint is
//! there when its manifest is, which is put after the objects with its bytes, and removed before
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use unspool::StoredFrame;
use unspool_codec::{Checksum, parse_head};
use unspool_remote::{Options, Parts, Remote};
use unspool_restart::{CheckedFrame, Manifest, Part};

use crate::names::{self, Content, Object};
use crate::order::{Age, oldest_kept};
use crate::parts::Who;

/// A persistent place, for one client.
pub(crate) struct Persistent {
    place: Remote,
    who: Who,
    /// The word for this client in the names of objects.
    owner: String,
    /// Where large objects that are on their way are remembered.
    journal: PathBuf,
}

/// A part that came from persistent, but for its file.
pub(crate) struct Fetched {
    pub(crate) manifest: Manifest,
    pub(crate) content: Content,
    /// The regions of memory, under the step that was asked for.
    pub(crate) frame: Option<Vec<u8>>,
}

impl Persistent {
    /// Opens the place at `address`.
    pub(crate) fn open(
        address: &str,
        who: Who,
        journal: PathBuf,
        timeout: Duration,
    ) -> Result<Persistent, String> {
        let options = Options { patience: timeout, ..Options::default() };
        let place = Remote::open(address, &options).map_err(text)?;
        Ok(Persistent { place, who, owner: who.owner(), journal })
    }

    fn object(&self, name: &str, part: Part, object: Object) -> String {
        names::object(name, &self.owner, part, object)
    }

    /// Puts a part of this client.
    pub(crate) fn put(
        &self,
        name: &str,
        manifest: &Manifest,
        frame: Option<StoredFrame>,
        file: Option<&File>,
    ) -> Result<(), String> {
        let part = part_of(manifest);
        if let Some(file) = file {
            let key = self.object(name, part, Object::File);
            self.place.put(&key, file, Some(&self.journal)).map_err(text)?;
        }
        if let Some(frame) = frame {
            let key = self.object(name, part, Object::Frame);
            let frame = CheckedFrame::of(frame).map_err(text)?;
            self.place.put(&key, &frame, Some(&self.journal)).map_err(text)?;
        }
        let key = self.object(name, part, Object::Manifest);
        self.place.put(&key, &Parts::of(&[&manifest.render()]), None).map(drop).map_err(text)
    }

    /// The parts of this client.
    pub(crate) fn parts(&self, name: &str) -> Result<Vec<Part>, String> {
        let keys = self.keys(&names::prefix(name, Some(&self.owner)))?;
        Ok(keys.iter().filter_map(|key| Some(names::parse_object(name, key)?.1)).collect())
    }

    /// A part of this client, as what `step` stands for here.
    pub(crate) fn fetch(&self, step: u64, name: &str, part: Part) -> Result<Fetched, String> {
        let key = self.object(name, part, Object::Manifest);
        let damaged = |key: &str, why: &str| format!("{} {why}.", self.place.locate(key));
        let manifest = Manifest::parse(&self.place.get(&key).map_err(text)?)
            .map_err(|why| damaged(&key, &format!("does not count: {why}")))?;
        let content = Content::parse(&manifest.values);
        let is_ours = part_of(&manifest) == part
            && (manifest.rank, manifest.ranks) == self.who.rank_of()
            && content.as_ref().is_some_and(|content| content.name == name);
        let content = content.filter(|_| is_ours);
        let content = content.ok_or_else(|| damaged(&key, "is that of another checkpoint"))?;
        let key = self.object(name, part, Object::Frame);
        let frame = content.memory.then(|| self.place.get(&key).map_err(text)).transpose()?;
        let frame = frame.map(|frame| {
            renumbered(frame, step).ok_or_else(|| damaged(&key, "is not a whole frame"))
        });
        let manifest = Manifest { step, ..manifest };
        Ok(Fetched { manifest, content, frame: frame.transpose()? })
    }

    /// Writes the file of a part of this client to `to`, which has this length and checksum.
    pub(crate) fn fetch_file(
        &self,
        name: &str,
        part: Part,
        expected: (u64, u64),
        to: &mut impl Write,
    ) -> Result<(), String> {
        let key = self.object(name, part, Object::File);
        let (mut sum, mut written) = (Checksum::new(), Ok::<(), io::Error>(()));
        let take = &mut |bytes: &[u8]| {
            sum.update(bytes);
            if written.is_ok() {
                written = to.write_all(bytes);
            }
            Ok(())
        };
        let bytes = self.place.fetch(&key, take).map_err(text)?;
        written.map_err(|cause| format!("Scratch cannot be written to: {cause}."))?;
        if (bytes, sum.value()) != expected {
            return Err(format!("{} is not the file that was saved.", self.place.locate(&key)));
        }
        Ok(())
    }

    /// The names of the objects in a folder.
    fn keys(&self, folder: &str) -> Result<BTreeSet<String>, String> {
        let found = self.place.list(folder).map_err(text)?;
        Ok(found.into_iter().map(|entry| entry.name).collect())
    }

    /// Removes what is older than the newest `keep` checkpoints that all clients of the job have, 0
    /// for all, and what another one of the same version has replaced on all of them.
    pub(crate) fn remove_old(
        &self,
        name: &str,
        keep: usize,
        age: impl Fn(Part) -> Age,
    ) -> Result<(), String> {
        let owners: BTreeSet<String> = match self.who {
            Who::Single(_) => BTreeSet::from([self.owner.clone()]),
            Who::Rank { size, .. } => {
                (0..size).map(|rank| Who::Rank { rank, size }.owner()).collect()
            }
        };
        let only = (owners.len() == 1).then_some(self.owner.as_str());
        let keys = self.keys(&names::prefix(name, only))?;
        let mut has: BTreeMap<Part, Vec<&str>> = BTreeMap::new();
        for key in &keys {
            let found = names::parse_object(name, key);
            if let Some((owner, part)) = found.filter(|(owner, _)| owners.contains(*owner)) {
                has.entry(part).or_default().push(owner);
            }
        }
        let whole = has.iter().filter(|(_, has)| has.len() == owners.len()).map(|(part, _)| *part);
        // The newest of each version.
        let mut whole_ages: BTreeMap<u64, Age> = BTreeMap::new();
        for part in whole {
            let newest = whole_ages.entry(part.step).or_default();
            *newest = age(part).max(*newest);
        }
        let oldest = oldest_kept(whole_ages.values().copied(), keep);
        let goes = |part: Part| {
            let replaced = whole_ages.get(&part.step).is_some_and(|newest| age(part) < *newest);
            replaced || oldest.is_some_and(|oldest| age(part) < oldest)
        };
        for (part, owners) in has.iter().filter(|(part, _)| goes(**part)) {
            owners.iter().try_for_each(|owner| self.remove(name, owner, *part, &keys))?;
        }
        Ok(())
    }

    /// Removes what is there of a part: first what makes it count.
    fn remove(
        &self,
        name: &str,
        owner: &str,
        part: Part,
        there: &BTreeSet<String>,
    ) -> Result<(), String> {
        let objects = [Object::Manifest, Object::Frame, Object::File];
        let objects = objects.map(|object| names::object(name, owner, part, object));
        let mut objects = objects.iter().filter(|key| there.contains(*key));
        objects.try_for_each(|key| self.place.delete(key).map_err(text))
    }

    /// Ends what waits for the place.
    pub(crate) fn stop(&self) {
        self.place.stop();
    }
}

fn part_of(manifest: &Manifest) -> Part {
    Part { step: u64::from(names::unstep(manifest.step).1), run: manifest.run }
}

/// A frame under another step: names have other numbers where scratch is new.
fn renumbered(mut frame: Vec<u8>, step: u64) -> Option<Vec<u8>> {
    let (mut head, sum) = parse_head(&frame).ok()?;
    head.version = step as i64;
    let bytes = head.encode(sum);
    frame.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    Some(frame)
}

fn text(error: impl Display) -> String {
    error.to_string()
}
