//! The folder of a run, seen from outside: which steps it has, and where all parts of one are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool::{DiskMode, DiskSettings, Error, ErrorKind, Settings, Spool, Wait};
use unspool_remote::{Options, Remote};

use crate::chain;
use crate::folder::{self, Folder};
use crate::manifest::{Manifest, Part};
use crate::names;
use crate::parts::Parts;
use crate::places::{self, failed};
use crate::shelf::Shelf;

/// One rank's part of a checkpoint, in its folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPart {
    /// The directory of the spool that has its arrays, under the step as version.
    pub data: PathBuf,
    /// What its manifest says.
    pub manifest: Manifest,
}

impl FoundPart {
    /// A spool for reading that has the arrays, whole, under the step as version; one in main
    /// memory where the part is stored as an increment.
    ///
    /// # Errors
    /// `Unknown` when it was deleted meanwhile; `Corrupt`, `Lost`; those of [`Spool::open`].
    pub fn open(&self) -> Result<Arc<Spool>, Error> {
        let disk = DiskSettings { mode: DiskMode::ReadOnly, ..DiskSettings::new(&self.data) };
        let spool = Spool::open(Settings { disk: Some(disk), ..Settings::default() })?;
        let step = self.manifest.step as i64;
        match chain::builds_on_another(&spool, step)? {
            true => chain::reader(&spool, step, &Wait::default()),
            false => Ok(Arc::new(spool)),
        }
    }
}

/// One checkpoint, as a list of a folder shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The step, and the run that wrote it.
    pub part: Part,
    /// The number of ranks of the run.
    pub ranks: u32,
    /// The ranks that have their part.
    pub has: Vec<u32>,
    /// The bytes of all arrays.
    pub bytes: u64,
    /// The bytes of the frames of the ranks that have an increment, and the steps that these build
    /// on; none where all ranks have it in full.
    pub increment: Option<(u64, BTreeSet<u64>)>,
    /// The longest time from a save to where its arrays were durable, in milliseconds.
    pub milliseconds: u64,
    /// When the last part was written, in seconds since 1970.
    pub written: u64,
}

impl Listed {
    /// Whether every rank has its part, as far as manifests say.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.has.len() == self.ranks as usize
    }
}

/// All parts in the folder of a run, and sentences about manifests that are damaged.
type All = (BTreeMap<(Part, u32), Vec<FoundPart>>, Vec<String>);

fn all(path: &Path) -> Result<All, Error> {
    let (mut parts, mut damaged): All = (BTreeMap::new(), besides(path)?);
    for (rank, size) in rank_folders(path)? {
        let folder = path.join(names::rank_folder(rank, size));
        let found = folder::manifests(&folder, rank, size)?;
        damaged.extend(found.damaged.iter().map(ToString::to_string));
        let counted = Parts::of(&found.whole).counted();
        damaged.extend(orphans(&found.whole, &counted, &folder));
        for manifest in found.whole {
            let part = manifest.part();
            if counted.binary_search(&part).is_err() {
                continue;
            }
            let found = FoundPart { data: folder.join("data"), manifest };
            parts.entry((part, size)).or_default().push(found);
        }
    }
    Ok((parts, damaged))
}

/// What parts mean that build on others which are not there, in sentences. `counted` is sorted.
pub(crate) fn orphans<'a>(
    manifests: impl IntoIterator<Item = &'a Manifest>,
    counted: &[Part],
    folder: &Path,
) -> Vec<String> {
    let step = |part: &Part| part.step;
    let orphan = |one: &&Manifest| counted.binary_search_by_key(&one.step, step).is_err();
    let sentence = |one: &Manifest| {
        let on = one.increment.map_or(0, |increment| increment.parent);
        format!(
            "Step {} in {} does not count: it is an increment to step {on}, which does not count \
             there.",
            one.step,
            folder.display()
        )
    };
    manifests.into_iter().filter(orphan).map(sentence).collect()
}

/// What folders mean that `unspool copy` has made in the folder of a run, in sentences.
///
/// # Errors
/// `Io`.
pub(crate) fn besides(path: &Path) -> Result<Vec<String>, Error> {
    let names = names_in(path)?.into_iter().filter(|name| name.starts_with(names::BESIDE));
    let sentence = |name: String| {
        let beside = path.join(name);
        format!(
            "{} is of `unspool copy`, which is at work or was interrupted: the next copy into this \
             folder ends what it has begun.",
            beside.display()
        )
    };
    Ok(names.map(sentence).collect())
}

/// The names in the folder of a run.
fn names_in(path: &Path) -> Result<Vec<String>, Error> {
    folder::entries(path).map_err(|cause| {
        let message = format!("{} cannot be read: {cause}.", path.display());
        Error::new(ErrorKind::Io, message).caused_by(cause)
    })
}

/// The folders of ranks, in order.
fn rank_folders(path: &Path) -> Result<BTreeSet<(u32, u32)>, Error> {
    Ok(names_in(path)?.iter().filter_map(|name| names::parse_rank_folder(name)).collect())
}

/// The numbers of ranks, other than `size`, of runs that have parts in a folder.
pub(crate) fn other_sizes(path: &Path, size: u32) -> Result<BTreeSet<u32>, Error> {
    let mut others = BTreeSet::new();
    for (rank, theirs) in rank_folders(path)? {
        let folder = path.join(names::rank_folder(rank, theirs));
        if theirs != size && !folder::manifests(&folder, rank, theirs)?.whole.is_empty() {
            others.insert(theirs);
        }
    }
    Ok(others)
}

/// The checkpoints in the folder of a run, oldest first, and sentences about damaged manifests.
///
/// # Errors
/// `Io`.
pub fn list(path: &Path) -> Result<(Vec<Listed>, Vec<String>), Error> {
    let (parts, damaged) = all(path)?;
    let manifests = parts.into_values().flatten().map(|found| found.manifest);
    Ok((listed(manifests), damaged))
}

fn increment(manifests: &[Manifest]) -> Option<(u64, BTreeSet<u64>)> {
    let all = || manifests.iter().filter_map(|one| one.increment);
    let parents: BTreeSet<u64> = all().map(|one| one.parent).collect();
    let bytes = || all().map(|one| one.bytes).fold(0, u64::saturating_add);
    (!parents.is_empty()).then(|| (bytes(), parents))
}

/// Manifests by the checkpoint that they are of, and its number of ranks.
pub(crate) fn grouped(
    manifests: impl IntoIterator<Item = Manifest>,
) -> BTreeMap<(Part, u32), Vec<Manifest>> {
    let mut all: BTreeMap<(Part, u32), Vec<Manifest>> = BTreeMap::new();
    for manifest in manifests {
        all.entry((manifest.part(), manifest.ranks)).or_default().push(manifest);
    }
    all
}

/// The checkpoints that these manifests are of.
pub(crate) fn listed(manifests: impl IntoIterator<Item = Manifest>) -> Vec<Listed> {
    let listed = grouped(manifests).into_iter().map(|((part, ranks), found)| {
        let manifests = || found.iter();
        Listed {
            part,
            ranks,
            has: manifests().map(|one| one.rank).collect(),
            bytes: manifests().map(|one| one.bytes).fold(0, u64::saturating_add),
            increment: increment(&found),
            milliseconds: manifests().map(|one| one.milliseconds).max().unwrap_or(0),
            written: manifests().map(|one| one.written).max().unwrap_or(0),
        }
    });
    listed.collect()
}

/// All parts of the checkpoint of `step`, or of the newest one, by rank.
///
/// # Errors
/// `Unknown` when no such checkpoint counts, `Io`.
pub fn find(path: &Path, step: Option<u64>) -> Result<Vec<FoundPart>, Error> {
    // The arrays of a part are opened later.
    let path = places::absolute(path)?;
    let (parts, _) = all(&path)?;
    complete(parts, step, &path.display().to_string())
}

/// The most steps that an error names.
const MOST_NAMED: usize = 20;

/// All parts of `step`, or of the newest checkpoint of which all are there.
///
/// # Errors
/// `Unknown` when there is none.
pub(crate) fn complete<T>(
    parts: BTreeMap<(Part, u32), Vec<T>>,
    step: Option<u64>,
    place: &str,
) -> Result<Vec<T>, Error> {
    let there: BTreeSet<u64> = parts.keys().map(|(part, _)| part.step).collect();
    let wanted = |((part, ranks), found): &((Part, u32), Vec<T>)| {
        found.len() == *ranks as usize && step.is_none_or(|step| part.step == step)
    };
    let newest = parts.into_iter().rfind(wanted).map(|(_, found)| found);
    newest.ok_or_else(|| {
        let what = step.map_or("any step".to_owned(), |step| format!("step {step}"));
        let mut named: Vec<String> =
            there.iter().rev().take(MOST_NAMED).map(u64::to_string).collect();
        named.reverse();
        let parts = match named.len() {
            0 => "no parts at all".to_owned(),
            some if some < there.len() => format!("parts of newer ones: {}", named.join(", ")),
            _ => format!("parts of {}", named.join(", ")),
        };
        let message = format!("{place} does not have all parts of {what}; it has {parts}.");
        Error::new(ErrorKind::Unknown, message)
    })
}

/// Makes one rank's part of a step count no more. Its frame is the caller's to discard, who holds
/// the spool.
///
/// # Errors
/// `Io`.
pub fn remove(path: &Path, rank: u32, ranks: u32, step: u64) -> Result<(), Error> {
    Folder::at(path, rank, ranks).remove(|one| one == step)
}

/// Copies of parts that were removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedCopies {
    /// Those that the rank kept for others.
    pub kept: usize,
    /// That of its own part in the remote place, and the place.
    pub remote: Option<String>,
}

/// Removes the copies by which a step that is removed from a rank's folder could come back: what
/// the rank keeps of other ranks' parts, and that of its own part in the remote place to which the
/// folder was last copied. To be called before [`remove`], so that what is refused is there still.
///
/// # Errors
/// `Io` when the remote place cannot be had.
pub fn remove_copies(
    path: &Path,
    rank: u32,
    ranks: u32,
    step: u64,
) -> Result<RemovedCopies, Error> {
    let folder = Folder::at(path, rank, ranks);
    let mut removed = RemovedCopies::default();
    if let Some(place) = folder.place()? {
        let shelf = |remote| Shelf::of(&Arc::new(remote), rank, ranks);
        let opened = Remote::open(&place, &Options::default()).map_err(failed).map(shelf);
        let found = opened.and_then(|shelf| shelf.remove(|one| one == step)).map_err(|cause| {
            let message = format!(
                "The copy of step {step} of rank {rank} in {place} cannot be removed, and with it \
                 the step could come back: {cause} Nothing of it was removed here."
            );
            Error::new(cause.kind(), message).caused_by(cause)
        })?;
        removed.remote = (found > 0).then_some(place);
    }
    let partner = folder.path().join("partner");
    if partner.is_dir() {
        let opened = Remote::open(&partner.to_string_lossy(), &Options::default());
        let kept = Arc::new(opened.map_err(failed)?);
        for (other, of) in Shelf::ranks(&kept)? {
            removed.kept += Shelf::of(&kept, other, of).remove(|one| one == step)?;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use unspool_testkit::Scratch;

    use super::*;
    use crate::manifest::Run;
    use crate::manifest::tests::sample;

    fn write(scratch: &Scratch, step: u64, rank: u32, ranks: u32, run: u128) {
        let folder = Folder::make(scratch.path(), rank, ranks).unwrap();
        folder.write(&Manifest { rank, ranks, run: Run(run), ..sample(step) }).unwrap();
    }

    #[test]
    fn the_newest_checkpoint_of_which_all_parts_are_there_is_found() {
        let scratch = Scratch::new();
        (0..3).for_each(|rank| write(&scratch, 100, rank, 3, 1));
        (0..2).for_each(|rank| write(&scratch, 200, rank, 3, 1));
        // Two runs.
        (0..3).for_each(|rank| write(&scratch, 300, rank, 3, u128::from(rank / 2)));
        let found = find(scratch.path(), None).unwrap();
        let parts: Vec<(u64, u32)> =
            found.iter().map(|p| (p.manifest.step, p.manifest.rank)).collect();
        assert_eq!(parts, [(100, 0), (100, 1), (100, 2)]);
        assert!(found[2].data.ends_with("rank-0002-of-0003/data"));
        let error = find(scratch.path(), Some(200)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown);
        let counts: Vec<(u64, bool)> = list(scratch.path())
            .unwrap()
            .0
            .iter()
            .map(|one| (one.part.step, one.counts()))
            .collect();
        assert_eq!(counts, [(100, true), (200, false), (300, false), (300, false)]);
        remove(scratch.path(), 1, 3, 100).unwrap();
        assert!(find(scratch.path(), None).is_err());
    }

    #[test]
    fn numbers_that_somebody_made_up_are_listed() {
        let scratch = Scratch::new();
        for rank in 0..2 {
            let folder = Folder::make(scratch.path(), rank, u32::MAX).unwrap();
            let made_up = Manifest { rank, ranks: u32::MAX, bytes: u64::MAX, ..sample(5) };
            folder.write(&made_up).unwrap();
        }
        let listed = list(scratch.path()).unwrap().0;
        assert_eq!((listed[0].bytes, listed[0].counts()), (u64::MAX, false));
        let error = find(scratch.path(), Some(5)).unwrap_err();
        assert!(error.message().contains("it has parts of 5."), "{error}");
    }

    #[test]
    fn runs_of_another_number_of_ranks_are_seen_when_they_have_parts() {
        let scratch = Scratch::new();
        Folder::make(scratch.path(), 0, 8).unwrap();
        write(&scratch, 100, 1, 4, 1);
        assert_eq!(other_sizes(scratch.path(), 2).unwrap(), BTreeSet::from([4]));
        assert_eq!(other_sizes(scratch.path(), 4).unwrap(), BTreeSet::new());
    }
}
