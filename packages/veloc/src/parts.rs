//! One rank's parts of checkpoints: in scratch a frame of the spool, a manifest, and a file where
//! the program wrote one; in persistent the same as objects.
//!
//! A part counts in scratch when its manifest is there, which is written last and removed first.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use unspool::{DiskSettings, Settings, Spool, Wait};
use unspool_codec::Checksum;
use unspool_remote::{Options, Remote};
use unspool_restart::{Folder, Manifest, Part, Run, discard, flush};

use crate::config::Config;
use crate::names::{self, Content};

/// Who a client is among all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// A rank of a communicator.
    Rank { rank: u32, size: u32 },
    /// A client that stands alone, with its number.
    Single(u32),
}

impl Who {
    /// What takes the place of the rank in names.
    pub(crate) fn id(self) -> u32 {
        match self {
            Who::Rank { rank, .. } => rank,
            Who::Single(id) => id,
        }
    }

    /// The rank among those that share checkpoints, and their number.
    pub(crate) fn rank_of(self) -> (u32, u32) {
        match self {
            Who::Rank { rank, size } => (rank, size),
            Who::Single(_) => (0, 1),
        }
    }

    /// The folder in scratch. Checkpoints that do not outlive the process have one of their own.
    fn folder(self, durable: bool) -> String {
        let kind = if durable { "" } else { "-history" };
        match self {
            Who::Rank { .. } => format!("unspool{kind}"),
            Who::Single(id) => format!("unspool{kind}-single-{id}"),
        }
    }

    /// The word in the names of objects, of this client or another one of the same job.
    pub(crate) fn owner(self) -> String {
        match self {
            Who::Rank { rank, size } => format!("rank-{rank:04}-of-{size:04}"),
            Who::Single(id) => format!("single-{id}"),
        }
    }
}

/// A checkpoint whose copies into the spool, or whose file, are done.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) step: u64,
    pub(crate) content: Content,
    /// The number of the run; it is given when the job is added.
    pub(crate) run: Run,
    /// Whether the program wrote a file.
    pub(crate) routed: bool,
    /// Whether it is copied to persistent.
    pub(crate) persist: bool,
    pub(crate) begun: Instant,
}

/// A checkpoint in scratch.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) part: Part,
    pub(crate) content: Content,
}

/// One rank's parts.
pub(crate) struct Parts {
    pub(crate) spool: Arc<Spool>,
    pub(crate) who: Who,
    /// The run that parts are written by.
    pub(crate) run: Run,
    /// Persistent.
    pub(crate) place: Arc<Remote>,
    pub(crate) folder: Folder,
    scratch: PathBuf,
    /// Whether they outlive the process.
    durable: bool,
    verify: bool,
    pub(crate) timeout: Duration,
    pub(crate) keep_in_scratch: usize,
    pub(crate) keep_in_persistent: usize,
}

/// What a client has found in scratch.
pub(crate) type Found = BTreeMap<u64, Kept>;

impl Parts {
    /// Opens the parts of a client, with a spool of these settings, and what is there already.
    pub(crate) fn open(
        config: &Config,
        who: Who,
        mut settings: Settings,
    ) -> Result<(Parts, Found, Vec<String>), String> {
        let (rank, size) = who.rank_of();
        // Programs may change their folder later.
        let scratch = std::path::absolute(&config.scratch)
            .and_then(|scratch| make_folder(&scratch).map(|()| scratch))
            .map_err(|cause| failed("scratch", &config.scratch, "made", &cause))?;
        let folder =
            Folder::make(&scratch.join(who.folder(config.durable)), rank, size).map_err(text)?;
        let disk = DiskSettings::new(folder.data());
        settings.disk = Some(DiskSettings { durable: config.durable, ..disk });
        let spool = Arc::new(Spool::open(settings).map_err(text)?);
        folder.remove_unfinished().map_err(text)?;
        let options = Options { patience: config.timeout, ..Options::default() };
        let place = Remote::open(&absolute(&config.persistent), &options).map_err(text)?;
        let spare = usize::from(size > 1);
        let parts = Parts {
            spool,
            who,
            run: Run(0),
            place: Arc::new(place),
            folder,
            scratch,
            durable: config.durable,
            verify: config.chksum,
            timeout: config.timeout,
            // Another rank may be one checkpoint behind.
            keep_in_scratch: config.scratch_versions.checked_sub(1).map_or(0, |n| n + 1 + spare),
            keep_in_persistent: config.max_versions,
        };
        let (found, notes) = parts.found()?;
        Ok((parts, found, notes))
    }

    /// What scratch has, and what is left there of parts that do not count is removed.
    fn found(&self) -> Result<(Found, Vec<String>), String> {
        let manifests = self.folder.manifests().map_err(text)?;
        let mut notes: Vec<String> = manifests.damaged.iter().map(ToString::to_string).collect();
        let saved = self.spool.versions().map_err(text)?;
        let mut kept = Found::new();
        for Manifest { step, run, values, .. } in manifests.whole {
            let Some(content) = Content::parse(&values) else {
                let folder = self.folder.path().display();
                notes.push(format!("Step {step} in {folder} is not VELOC's."));
                continue;
            };
            let version = names::unstep(step).1;
            let has_regions = !content.memory || saved.contains(&(step as i64));
            if has_regions && self.has_length(version, &content) {
                let part = Part { step: u64::from(version), run };
                kept.insert(step, Kept { part, content });
            } else {
                let what = if has_regions { "file is" } else { "regions are" };
                let name = content.name;
                notes.push(format!(
                    "Checkpoint {version} of {name} does not count in scratch: its {what} not \
                     there."
                ));
            }
        }
        discard(&self.spool, |step| !kept.contains_key(&step)).map_err(text)?;
        Ok((kept, notes))
    }

    /// The file that a program writes and reads by itself.
    pub(crate) fn routed(&self, name: &str, version: u32) -> PathBuf {
        self.scratch.join(names::routed(name, self.who.id(), version))
    }

    /// Makes a part count in scratch, and says what it has.
    pub(crate) fn make_durable(
        &self,
        job: &Job,
        wait: &Wait<'_>,
    ) -> Result<(Manifest, Content), String> {
        let mut content = job.content.clone();
        if content.memory {
            self.flush(job.step, wait)?;
        }
        if job.routed {
            let path = self.routed(&content.name, names::unstep(job.step).1);
            let done = sealed(&path).and_then(|file| Ok((file, sync_folder(&self.scratch)?)));
            let (file, ()) = done.map_err(|cause| failed("the file", &path, "read", &cause))?;
            content.file = Some(file);
        }
        let manifest = self.manifest(job, &content);
        self.count(&manifest)?;
        Ok((manifest, content))
    }

    /// Makes regions durable, where checkpoints outlive the process.
    pub(crate) fn flush(&self, step: u64, wait: &Wait<'_>) -> Result<(), String> {
        if self.durable { flush(&self.spool, step, wait).map_err(text) } else { Ok(()) }
    }

    /// Writes what later processes find, where checkpoints outlive this one.
    pub(crate) fn count(&self, manifest: &Manifest) -> Result<(), String> {
        if self.durable { self.folder.write(manifest).map_err(text) } else { Ok(()) }
    }

    fn manifest(&self, job: &Job, content: &Content) -> Manifest {
        let ((rank, ranks), step) = (self.who.rank_of(), job.step);
        let regions = content.memory.then(|| self.spool.regions(step as i64).ok()).flatten();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Manifest {
            step,
            rank,
            ranks,
            run: job.run,
            bytes: regions.map_or(0, |head| head.regions.iter().map(|region| region.bytes).sum()),
            milliseconds: job.begun.elapsed().as_millis() as u64,
            written: now.map_or(0, |since| since.as_secs()),
            increment: None,
            frame: None,
            values: content.render(),
        }
    }

    /// Removes what scratch has of a part.
    pub(crate) fn remove(&self, step: u64, content: &Content) -> Result<(), String> {
        self.folder.remove(|one| one == step).map_err(text)?;
        if content.memory {
            discard(&self.spool, |one| one == step).map_err(text)?;
        }
        let path = self.routed(&content.name, names::unstep(step).1);
        gone(fs::remove_file(&path)).map_err(|cause| failed("the file", &path, "removed", &cause))
    }

    /// Whether the file of a part, if it has one, is in scratch with the length that it had.
    fn has_length(&self, version: u32, content: &Content) -> bool {
        let Some((bytes, _)) = content.file else { return true };
        let found = fs::symlink_metadata(self.routed(&content.name, version));
        found.is_ok_and(|found| found.is_file() && found.len() == bytes)
    }

    /// Whether the file of a part, if it has one, is in scratch as it was.
    pub(crate) fn has_file(&self, version: u32, content: &Content) -> bool {
        let is_same = |expected| {
            let path = self.routed(&content.name, version);
            !self.verify || summed(&path).is_ok_and(|found| found == expected)
        };
        self.has_length(version, content) && content.file.is_none_or(is_same)
    }
}

/// The address of a store as it is, and that of a folder from the root on.
fn absolute(address: &str) -> String {
    let path = (!address.contains("://")).then(|| std::path::absolute(address).ok()).flatten();
    path.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(address.to_owned())
}

/// Makes a file durable, and says how many bytes it has and what their checksum is.
fn sealed(path: &Path) -> io::Result<(u64, u64)> {
    File::open(path)?.sync_all()?;
    summed(path)
}

fn summed(path: &Path) -> io::Result<(u64, u64)> {
    let (mut file, mut sum, mut bytes) = (File::open(path)?, Checksum::new(), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok((bytes, sum.value()));
        }
        sum.update(&piece[..count]);
        bytes += count as u64;
    }
}

/// Writes a file, and makes it durable, as a whole or not at all.
pub(crate) fn whole_file(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), String>,
) -> io::Result<Result<(), String>> {
    let part = path.with_extension("dat.part");
    gone(fs::remove_file(&part))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let written = write(&mut file);
    if written.is_err() {
        gone(fs::remove_file(&part))?;
        return Ok(written);
    }
    file.sync_all()?;
    fs::rename(&part, path)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))?;
    Ok(written)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a folder for its owner alone, of which only the last part is missing at most.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

pub(crate) fn failed(what: &str, path: &Path, done: &str, cause: &io::Error) -> String {
    let advice = match cause.raw_os_error() {
        // ENOSPC, EDQUOT, EACCES and EPERM, ENOENT on Linux.
        Some(28 | 122) => " Free space there, or keep fewer checkpoints.",
        Some(1 | 13) => " Ask for permission, or choose another path.",
        Some(2) if what == "scratch" => " Make the folder that is to hold it.",
        _ => "",
    };
    format!("{what} ({}) cannot be {done}: {cause}.{advice}", path.display())
}

pub(crate) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
