//! Objects beyond the machine: in an object store (`s3://`, `gs://`, `az://`), or in a directory
//! that other machines see as well, such as one of a parallel file system.
//!
//! A [`Remote`] is one such place. It keeps opaque bytes under names.
//!
//! ```
//! use unspool_remote::{Options, Parts, Remote};
//!
//! # let path = std::env::temp_dir().join(format!("unspool-remote-{}", std::process::id()));
//! # let place = path.to_str().unwrap();
//! let remote = Remote::open(place, &Options::default())?;
//! remote.put("rank-0/frame", &Parts::of(&[b"some ", b"bytes"]), None)?;
//! assert_eq!(remote.get("rank-0/frame")?, b"some bytes");
//! assert_eq!(remote.list("rank-0/")?[0].bytes, 10);
//! remote.delete("rank-0/frame")?;
//! # let _ = std::fs::remove_dir_all(path);
//! # Ok::<(), unspool_remote::TierError>(())
//! ```
//!
//! What holds throughout:
//! - An object is there as a whole or not at all. It ends with a foot that has its length and its
//!   checksum, so that what is cut off, or what a server gives out as longer or shorter than it is,
//!   is not taken for it.
//! - Every wait for a server ends, after tries whose number and time are bounded; or at once, by
//!   [`Remote::stop`].
//! - A large upload that was interrupted, also by the end of the process, goes on where it was.
//! - No credential is in an error text.

#![forbid(unsafe_code)]

mod directory;
mod fault;
mod foot;
mod names;
mod place;
mod remote;
mod settings;
mod source;
#[cfg(feature = "object-store")]
mod store;

pub use remote::{Entry, Remote};
pub use settings::Options;
pub use source::{Parts, Source};
pub use unspool_core::Failure;
pub use unspool_tiers::TierError;
