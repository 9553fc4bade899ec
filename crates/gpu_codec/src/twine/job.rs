//! What is to be encoded and decoded, as callers say it.

use unspool_codec::twine::{Layout, Spec};

use crate::pending::Start;

/// One region of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct EncodeJob<'a> {
    /// The address of its first byte on the device. The values are dense, and lie at multiples of
    /// their size.
    pub source: u64,
    /// What is done with them.
    pub spec: JobSpec<'a>,
}

/// What is done with a region.
#[derive(Clone, Copy, Debug)]
pub enum JobSpec<'a> {
    /// It becomes a Twine stream.
    Twine(&'a Spec),
    /// It is copied as it is, from any address.
    Raw {
        /// Its length.
        bytes: u64,
    },
}

/// Regions that are stored one behind the other, each at a multiple of 64 from the first. What is
/// between them is zeros.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint<'a> {
    /// The regions; at least one.
    pub jobs: &'a [EncodeJob<'a>],
    /// Where the first one begins.
    pub start: Start<'a>,
    /// The address at or beyond which nothing is written.
    pub limit: u64,
}

/// One stream to decode.
#[derive(Clone, Copy, Debug)]
pub struct DecodeJob<'a> {
    /// The address of its first byte on the device, a multiple of 4.
    pub stream: u64,
    /// Its bytes.
    pub stored: u64,
    /// The array that it was made from.
    pub layout: &'a Layout,
    /// The address of the first byte of the dense array that it is written to, a multiple of the
    /// size of a value.
    pub target: u64,
}
