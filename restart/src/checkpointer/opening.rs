//! The opening of a Checkpointer: what each rank opens of its own, and what all of them agree on.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::SystemTime;

use unspool::{DiskSettings, Error, ErrorKind, Spool, Wait};

use super::{Settings, nonsense};
use crate::agreement::{Agreed, Said};
use crate::folder::Folder;
use crate::level::{self, OpenedLevel};
use crate::listing;
use crate::manifest::{Manifest, Run};
use crate::partner::{self, Partner};
use crate::parts::Parts;
use crate::places;
use crate::stage::Stage;

/// The most ranks of a run. Every rank hears from all of them.
const MOST_RANKS: u32 = 1 << 24;

/// The checkpoints for which a host tier without a given size has room: one is saved while another
/// is on its way to the disk.
const HOST_CHECKPOINTS: u32 = 2;
/// The same where each is compared with the one before.
const HOST_CHECKPOINTS_COMPARED: u32 = 3;

/// What a rank found when it opened its part.
pub(super) struct Opened {
    pub(super) folder: Folder,
    pub(super) data: Arc<Spool>,
    pub(super) stage: Option<Stage>,
    pub(super) parts: Parts,
    pub(super) warnings: Vec<String>,
    pub(super) remote: Option<OpenedLevel>,
    pub(super) partner: Option<Partner>,
}

impl Opened {
    fn said(&self) -> Said {
        let remote = self.remote.as_ref().map_or(Vec::new(), |level| level.parts.clone());
        let held = self.partner.as_ref().map_or(Vec::new(), Partner::held);
        Said { local: self.parts.counted(), remote, held, ..Said::default() }
    }

    /// The message of a rank that has opened its part.
    pub(super) fn message(&self, own: Run) -> Vec<u8> {
        let (host, said) = (partner::host(), self.said().encode());
        let length = (host.len() as u64).to_le_bytes();
        [&[0][..], &own.0.to_le_bytes(), &length, host.as_bytes(), &said].concat()
    }
}

/// A random number of a run.
pub(super) fn draw() -> Run {
    // The keys are random, but a process that was forked has those of its parent.
    let drawn = || RandomState::new().hash_one((process::id(), SystemTime::now()));
    let half = || u128::from(drawn());
    Run(half() << 64 | half())
}

/// Has the settings say the paths that are meant now, whatever the working directory becomes.
///
/// # Errors
/// `Io`, `Invalid`.
fn settle(settings: &mut Settings) -> Result<(), Error> {
    settings.path = places::absolute(&settings.path)?;
    if let Some(remote) = &mut settings.remote {
        remote.place = places::settled(&remote.place)?;
        places::check_apart(&settings.path, &remote.place)?;
    }
    Ok(())
}

/// Refuses a rank that is none.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_ranks(rank: u32, size: u32) -> Result<(), Error> {
    if rank < size && size <= MOST_RANKS {
        return Ok(());
    }
    let message = format!(
        "There is no rank {rank} of {size}: give one below the number of ranks, which is at most \
         {MOST_RANKS}."
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Opens this rank's part. The paths of the settings are absolute afterwards.
///
/// # Errors
/// What `make` returned; those of the folder and of the remote place; `Interrupted`.
pub(super) fn open_part<E: From<Error>>(
    settings: &mut Settings,
    (rank, size, run): (u32, u32, Run),
    wait: &Wait<'_>,
    make: impl FnOnce(Option<&Path>) -> Result<Arc<Spool>, E>,
) -> Result<Opened, E> {
    settle(settings)?;
    // Nothing is made or removed before it is known that nobody else is at work here.
    let there = settings.path.is_dir();
    let others = there.then(|| listing::other_sizes(&settings.path, size)).transpose()?;
    let others = others.unwrap_or_default();
    if let Some(other) = others.first() {
        let message = format!(
            "{} has checkpoints of {other} ranks, and this run has {size}. Start it with {other} \
             ranks, or choose another folder, where the parts of that one can be saved anew: \
             `Checkpointer.parts` reads them in Python, `unspool_parts_find` in C.",
            settings.path.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let folder = Folder::make(&settings.path, rank, size)?;
    let (data, stage) = match settings.increments {
        None => {
            let data = make(Some(&folder.data()))?;
            data.limit_picked_host(HOST_CHECKPOINTS)?;
            (data, None)
        }
        Some(fulls) => {
            let (mtbf, seed) = (settings.rule.mtbf, draw().0 as u64);
            let (data, spool) = (open_data(settings, &folder)?, make(None)?);
            spool.limit_picked_host(HOST_CHECKPOINTS_COMPARED)?;
            (data, Some(Stage::of(spool, fulls, mtbf, seed)?))
        }
    };
    folder.remove_unfinished()?;
    let manifests = folder.manifests()?;
    let mut warnings: Vec<String> = manifests.damaged.iter().map(ToString::to_string).collect();
    if rank == 0 {
        warnings.extend(listing::besides(&settings.path)?);
    }
    let parts = parts_of(&manifests.whole, &data.versions()?, &folder, &mut warnings);
    let wait = Wait { timeout: Some(settings.timeout), interrupted: wait.interrupted, ..*wait };
    let open = |remote| level::open(remote, &folder, (rank, size, run), &wait);
    let mut remote = settings.remote.as_ref().map(open).transpose()?;
    remote.iter_mut().for_each(|level| warnings.append(&mut level.warnings));
    let partner = settings.partner.filter(|_| size > 1);
    let partner = partner.map(|every| Partner::open(&folder, size, every)).transpose()?;
    Ok(Opened { folder, data, stage, parts, warnings, remote, partner })
}

/// The durable spool of a rank whose application saves into a stage.
fn open_data(settings: &Settings, folder: &Folder) -> Result<Arc<Spool>, Error> {
    let disk = Some(DiskSettings { durable: true, ..DiskSettings::new(folder.data()) });
    let usual = unspool::Settings::default();
    Spool::open(unspool::Settings { disk, timeout: settings.timeout, ..usual }).map(Arc::new)
}

/// The parts whose frames are there, and sentences about others, and those that build on them.
fn parts_of(
    manifests: &[Manifest],
    versions: &[i64],
    folder: &Folder,
    warnings: &mut Vec<String>,
) -> Parts {
    let has = |one: &&Manifest| versions.binary_search(&(one.step as i64)).is_ok();
    let (there, missing): (Vec<_>, Vec<_>) = manifests.iter().partition(has);
    warnings.extend(missing.iter().map(|Manifest { step, .. }| {
        let data = folder.data();
        format!("Step {step} does not count: its arrays are not in {}.", data.display())
    }));
    let parts = Parts::of(there.iter().copied());
    warnings.extend(listing::orphans(there, &parts.counted(), folder.path()));
    parts
}

/// The run of rank 0, what all ranks have, and their machines.
pub(super) fn opened_by_all(all: &[Vec<u8>]) -> Result<(Run, Agreed, Vec<String>), Error> {
    let (mut run, mut of_ranks, mut hosts) = (None, Vec::new(), Vec::new());
    for (rank, said) in all.iter().enumerate() {
        let (failed, said) = said.split_first().ok_or_else(nonsense)?;
        if *failed != 0 {
            let why = String::from_utf8_lossy(said);
            let message = format!("Rank {rank} could not open its part: {why}");
            return Err(Error::new(ErrorKind::Io, message));
        }
        let (tag, rest) = said.split_at_checked(16).ok_or_else(nonsense)?;
        let (length, rest) = rest.split_at_checked(8).ok_or_else(nonsense)?;
        let length = length.try_into().map(u64::from_le_bytes).map_err(|_| nonsense())?;
        let length = usize::try_from(length).map_err(|_| nonsense())?;
        let (host, has) = rest.split_at_checked(length).ok_or_else(nonsense)?;
        hosts.push(String::from_utf8_lossy(host).into_owned());
        let tag = tag.try_into().map(u128::from_le_bytes).map_err(|_| nonsense())?;
        run.get_or_insert(Run(tag));
        of_ranks.push(Said::decode(has).ok_or_else(nonsense)?);
    }
    Ok((run.ok_or_else(nonsense)?, Agreed::of(of_ranks), hosts))
}
