//! Saving and restoring recognisable bytes, on stacks that are small enough to spill at once.
#![allow(dead_code)]

use std::time::Duration;

use tempfile::TempDir;
use unspool::{
    DiskSettings, Dtype, Error, RegionSpec, RestoreTicket, Settings, Spool, Then, Use, Wait,
};
use unspool_testkit::{Pattern, first_difference};

/// Long enough for a slow machine; a wait that reaches it is a fault.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn wait() -> Wait<'static> {
    Wait::at_most(PATIENCE)
}

/// A spool and the directory of its disk.
pub struct Bench {
    pub spool: Spool,
    pub dir: TempDir,
}

/// Opens a spool with these arenas, and with a disk if `disk`.
pub fn bench(device: Option<u64>, host: Option<u64>, disk: bool, change: Change) -> Bench {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = disk.then(|| DiskSettings::new(dir.path()));
    let mut settings = Settings { device, host, disk, ..Settings::default() };
    change(&mut settings);
    Bench { spool: Spool::open(settings).expect("sound settings"), dir }
}

/// What is different from the defaults.
pub type Change = fn(&mut Settings);

/// One region of bytes.
pub fn bytes_spec(len: usize) -> Vec<RegionSpec> {
    vec![RegionSpec { name: "u".to_owned(), dtype: Dtype::UInt8, shape: vec![len as u64] }]
}

/// The content of `version` when it has `len` bytes.
pub fn content(version: i64, len: usize) -> Vec<u8> {
    Pattern(version as u64).bytes(0, len)
}

pub fn save(spool: &Spool, version: i64, len: usize) -> Result<(), Error> {
    let mut ticket = spool.save(version, bytes_spec(len), &wait())?;
    ticket.fill(0, |bytes| bytes.copy_from_slice(&content(version, len)))?;
    ticket.commit()
}

/// The bytes of region `index`, wherever it lies.
pub fn region(ticket: &RestoreTicket, index: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ticket.read(index, |region| bytes.extend_from_slice(region)).expect("a region");
    bytes
}

/// Restores `version` and compares every byte.
pub fn restore(spool: &Spool, version: i64, len: usize) -> Result<(), Error> {
    let ticket = spool.restore(version, &wait())?;
    let difference = first_difference(&region(&ticket, 0), &content(version, len));
    assert_eq!(difference, None, "version {version} of {len} bytes differs");
    assert_eq!(ticket.head().version, version);
    ticket.finish()
}

/// Entries of the restore order, each of a checkpoint that goes after it.
pub fn once(order: impl IntoIterator<Item = i64>) -> impl Iterator<Item = Use> {
    order.into_iter().map(|version| Use { version, then: Then::Goes })
}
