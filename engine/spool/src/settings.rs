//! What a spool is opened with: plain values, no components.

use std::path::PathBuf;
use std::time::Duration;

use unspool_codec::Outer;
use unspool_core::{PolicyKind, TierKind};
use unspool_tiers::DiskMode;

use crate::coding::Codecs;
use crate::gpu::On;

/// The settings of a [`Spool`](crate::Spool). At least one of `device`, `host` and `disk` is
/// needed; every other field has a default that suits most runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Bytes of the device tier: an arena in the GPU's memory, or in main memory that stands for it
    /// where there is no GPU.
    pub device: Option<u64>,
    /// Bytes of the host tier: an arena in main memory, pinned for the GPU if there is one.
    pub host: Option<u64>,
    /// Which GPU, if any. Default: the current one, main memory without one.
    pub on: On,
    /// Whether a smaller device tier will do when the GPU has less memory free. Default: no.
    pub shrink_ok: bool,
    /// Whether every access to the arenas is checked to be ordered with the one it depends on, for
    /// debugging; what is found is an error at close. Default: no.
    pub check_order: bool,
    /// A file that receives every operation that the check of order sees, one line each; only with
    /// `check_order`. Default: none.
    pub order_trace: Option<PathBuf>,
    /// Folders to look into first for nvCOMP and for NVIDIA's run-time compiler, such as Python's
    /// `sys.path`. The compiler is needed for devices that no kernels were shipped for. Default:
    /// none.
    pub compiler_folders: Vec<PathBuf>,
    /// How the size of a tier was picked, in a sentence for people (`auto::Picked::sentence`): it
    /// is among the notes of that tier.
    pub picked: Vec<(TierKind, String)>,
    /// The disk tier.
    pub disk: Option<DiskSettings>,
    /// How the regions of checkpoints are encoded. Default: they are kept as they are.
    pub codec: Codecs,
    /// Whether every encoded region is decoded at once and compared with what was given; a value
    /// that is further away than its bound allows is then an error of that save. Default: no.
    pub check_codec: bool,
    /// Whether the order of restores is learned: what one iteration of a loop restored is announced
    /// in the next, as by [`Spool::expect`](crate::Spool::expect), once it has saved as much. What
    /// is announced otherwise goes first, and a program that departs from it again and again is
    /// left alone. Nothing is learned where there is one tier. Default: yes.
    pub learn: bool,
    /// How room is made in the arenas. Default: Score's sliding window.
    pub policy: PolicyKind,
    /// The longest that one call waits unless its [`Wait`](crate::Wait) says otherwise.
    /// Default: 300 s.
    pub timeout: Duration,
    /// Whether the checksum of what is read back from a store is compared. The head of a frame
    /// is always compared. Default: yes.
    pub verify: bool,
    /// Whether spans are kept for [`Spool::write_trace`](crate::Spool::write_trace): the first
    /// 2^20, which take about 120 MB. Default: no.
    pub trace: bool,
    /// A file that receives every decision of the core, one line each; it can be replayed.
    /// Default: none.
    pub record: Option<PathBuf>,
    /// The file in which the measured speeds of links are remembered from one spool to the next,
    /// such as [`rates_file`](crate::rates_file); what cannot be read or written there is no error.
    /// Default: none, nothing is remembered.
    pub rates: Option<PathBuf>,
    /// The most bytes in flight on one link in one direction; one transfer may always be.
    /// Default: 256 MiB.
    pub in_flight_bytes: u64,
    /// The most transfers in flight on one link in one direction. Default: 8.
    pub in_flight: u32,
    /// Threads for each direction of a link to a store: with two, the checksum of one checkpoint
    /// is computed while another is written. Default: 2.
    pub store_workers: usize,
    /// How often a failed transfer is tried again before its link counts as failing. Default: 4.
    pub max_retries: u32,
    /// The wait before the first retry; doubled for each further one. Default: 50 ms.
    pub retry_delay: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            device: None,
            host: None,
            on: On::default(),
            shrink_ok: false,
            check_order: false,
            order_trace: None,
            picked: Vec::new(),
            compiler_folders: Vec::new(),
            disk: None,
            codec: Codecs::default(),
            check_codec: false,
            learn: true,
            policy: PolicyKind::default(),
            timeout: Duration::from_secs(300),
            verify: true,
            trace: false,
            record: None,
            rates: None,
            in_flight_bytes: 256 << 20,
            in_flight: 8,
            store_workers: 2,
            max_retries: 4,
            retry_delay: Duration::from_millis(50),
        }
    }
}

/// The disk tier of a spool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskSettings {
    /// The directory; it is created when the one that is to contain it exists. An ephemeral spool
    /// makes a directory of its own in it and removes that at close; a durable one keeps its frames
    /// in it.
    pub path: PathBuf,
    /// The most bytes that the frames may take; `None` when only the file system sets a limit.
    pub capacity: Option<u64>,
    /// Whether the frames outlive the spool: [`Spool::flush`](crate::Spool::flush) then makes
    /// them survive a crash of the machine, and opening the directory again finds them.
    pub durable: bool,
    /// Whether the directory is only read: that of a durable spool, which may be somebody else's,
    /// on a read-only file system, or in use by its writer. Saves and discards are then refused,
    /// and nothing in it is written, locked or removed. Default: it is written.
    pub mode: DiskMode,
    /// The permissions of the files of a durable spool, as of `chmod`. Default: `0o600`.
    pub permissions: u32,
    /// What packs whole frames on their way to the disk; the tiers above keep them as they are.
    /// Default: nothing.
    pub compress: Option<Outer>,
}

impl DiskSettings {
    /// An ephemeral disk tier in the directory `path`, without a limit of its own.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        DiskSettings {
            path: path.into(),
            capacity: None,
            durable: false,
            mode: DiskMode::default(),
            permissions: 0o600,
            compress: None,
        }
    }
}
