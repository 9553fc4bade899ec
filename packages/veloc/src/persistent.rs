//! The persistent place: a folder that all nodes see, or an object store. It has a folder for each
//! name and client, with the parts of its checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};

use unspool::Wait;
use unspool_codec::{Checksum, parse_head};
use unspool_remote::Source;
use unspool_restart::{CheckedFrame, Found, Manifest, Object, Part, Run, Shelf, discard};

use crate::names::{self, Content};
use crate::order::{Age, oldest_kept};
use crate::parts::{Kept, Parts, Who, failed, text, whole_file};

impl Parts {
    /// The folder of this client's parts.
    fn own_folder(&self, name: &str) -> String {
        names::folder(name) + &self.who.owner()
    }

    fn shelf(&self, name: &str) -> Shelf {
        let journal = Some(self.folder.path().join("upload"));
        Shelf::new(&self.place, self.own_folder(name), self.who.rank_of(), journal)
    }

    /// Copies a part from scratch to persistent.
    pub(crate) fn persist(&self, manifest: &Manifest, content: &Content) -> Result<(), String> {
        let (shelf, part) = (self.shelf(&content.name), part_of(manifest));
        let put = |object, source: &dyn Source| {
            shelf.put(&names::word(part), object, source).map(drop).map_err(text)
        };
        if content.file.is_some() {
            let path = self.routed(&content.name, part.step as u32);
            let file = File::open(&path);
            put(Object::File, &file.map_err(|cause| failed("the file", &path, "read", &cause))?)?;
        }
        if content.memory {
            let stored = self.spool.stored(manifest.step as i64).and_then(CheckedFrame::of);
            put(Object::Frame, &stored.map_err(text)?)?;
        }
        put(Object::Manifest, &manifest.render())
    }

    /// What persistent has of this client.
    pub(crate) fn in_persistent(&self, name: &str) -> Result<Vec<Part>, String> {
        let found = self.shelf(name).own().map_err(text)?;
        Ok(counted(&found).map(|(_, part)| part).collect())
    }

    /// Brings a part from persistent to scratch, where it counts afterwards as `step`.
    pub(crate) fn fetch(&self, step: u64, name: &str, part: Part) -> Result<Kept, String> {
        let (shelf, word) = (self.shelf(name), names::word(part));
        let manifest = shelf.manifest(&word, |one| part_of(one) == part).map_err(text)?;
        let content = Content::parse(&manifest.values).filter(|content| content.name == name);
        let content = content.ok_or_else(|| {
            let place = self.place.locate(&shelf.name(&word, Object::Manifest));
            format!("{place} is that of another checkpoint.")
        })?;
        let frame = || renumbered(shelf.frame(&word, &manifest).map_err(text)?, step);
        let frame = content.memory.then(frame).transpose()?;
        if let Some(expected) = content.file {
            let path = self.routed(name, part.step as u32);
            let from = shelf.name(&word, Object::File);
            let written = whole_file(&path, |to| self.fetch_file(&from, expected, to));
            written.map_err(|cause| failed("the file", &path, "written", &cause))??;
        }
        if let Some(frame) = frame {
            let wait = Wait::at_most(self.timeout);
            discard(&self.spool, |one| one == step).map_err(text)?;
            self.spool.adopt(&frame, &wait).map_err(text)?;
            self.flush(step, &wait)?;
        }
        self.count(&Manifest { step, ..manifest })?;
        Ok(Kept { part, content })
    }

    /// Writes the file of a part to `to`, which has this length and checksum.
    fn fetch_file(&self, key: &str, expected: (u64, u64), to: &mut File) -> Result<(), String> {
        let (mut sum, mut written) = (Checksum::new(), Ok::<(), io::Error>(()));
        let take = &mut |bytes: &[u8]| {
            sum.update(bytes);
            if written.is_ok() {
                written = to.write_all(bytes);
            }
            Ok(())
        };
        let bytes = self.place.fetch(key, take).map_err(text)?;
        written.map_err(|cause| format!("Scratch cannot be written to: {cause}."))?;
        if (bytes, sum.value()) != expected {
            return Err(format!("{} is not the file that was saved.", self.place.locate(key)));
        }
        Ok(())
    }

    /// Removes what is older in persistent than the newest checkpoints of a name that all clients
    /// of the job have and that are kept there, and what another one of the same version has
    /// replaced on all of them. One rank does it for all.
    pub(crate) fn remove_old_in_persistent(
        &self,
        name: &str,
        saved: Run,
        age: impl Fn(Part) -> Age,
    ) -> Result<(), String> {
        // A list of everything takes its time: where all are kept, it is only for what this run has
        // saved once more.
        let may_find = self.keep_in_persistent > 0 || saved != self.run;
        if self.who.rank_of().0 != 0 || !may_find {
            return Ok(());
        }
        let all = names::folder(name);
        let folders: BTreeSet<String> = match self.who {
            Who::Single(_) => BTreeSet::from([self.own_folder(name)]),
            Who::Rank { size, .. } => {
                (0..size).map(|rank| all.clone() + &Who::Rank { rank, size }.owner()).collect()
            }
        };
        let only = folders.first().filter(|_| folders.len() == 1);
        let begin = only.map_or(all, |folder| format!("{folder}/"));
        let mut found = Shelf::found(&self.place, &begin).map_err(text)?;
        found.retain(|(folder, _), _| folders.contains(folder));
        let mut has: BTreeMap<Part, usize> = BTreeMap::new();
        counted(&found).for_each(|(_, part)| *has.entry(part).or_default() += 1);
        // The newest of each version.
        let mut whole_ages: BTreeMap<u64, Age> = BTreeMap::new();
        for (&part, _) in has.iter().filter(|(_, count)| **count == folders.len()) {
            let newest = whole_ages.entry(part.step).or_default();
            *newest = age(part).max(*newest);
        }
        let oldest = oldest_kept(whole_ages.values().copied(), self.keep_in_persistent);
        let goes = |part: Part| {
            let replaced = whole_ages.get(&part.step).is_some_and(|newest| age(part) < *newest);
            replaced || oldest.is_some_and(|oldest| age(part) < oldest)
        };
        let old: BTreeSet<(String, String)> =
            counted(&found).filter(|(_, part)| goes(*part)).map(|(key, _)| key.clone()).collect();
        found.retain(|key, _| old.contains(key));
        Shelf::clear(&self.place, &found).map_err(text)
    }
}

/// The parts that are there: those that have a manifest.
fn counted(found: &Found) -> impl Iterator<Item = (&(String, String), Part)> {
    let there = found.iter().filter(|(_, has)| has.contains(&Object::Manifest));
    there.filter_map(|(key, _)| Some((key, names::parse_word(&key.1)?)))
}

fn part_of(manifest: &Manifest) -> Part {
    Part { step: u64::from(names::unstep(manifest.step).1), run: manifest.run }
}

/// A frame under another step: names have other numbers where scratch is new.
fn renumbered(mut frame: Vec<u8>, step: u64) -> Result<Vec<u8>, String> {
    let (mut head, sum) = parse_head(&frame).map_err(text)?;
    head.version = step as i64;
    let bytes = head.encode(sum);
    let place = frame.get_mut(..bytes.len()).ok_or("The frame is cut off.")?;
    place.copy_from_slice(&bytes);
    Ok(frame)
}
