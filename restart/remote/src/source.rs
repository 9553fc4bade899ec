//! Where the bytes of an object that is put come from.

use std::fs::File;
use std::os::unix::fs::FileExt;

use unspool_core::Failure;
use unspool_tiers::TierError;

use crate::foot::{FOOT, Foot, Sum};

/// Bytes that can be read piece by piece, and once more after an interruption.
pub trait Source {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Fills `into` with those from `at` on.
    ///
    /// # Errors
    /// When they cannot be read, or are fewer.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError>;
}

/// Bytes in memory, one part after the other.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a>(&'a [&'a [u8]]);

impl<'a> Parts<'a> {
    /// These parts.
    #[must_use]
    pub fn of(parts: &'a [&'a [u8]]) -> Parts<'a> {
        Parts(parts)
    }
}

impl Source for Parts<'_> {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|part| part.len() as u64).sum()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        let (mut skip, mut done) = (at, 0);
        for part in self.0 {
            let begin = skip.min(part.len() as u64) as usize;
            skip -= begin as u64;
            let take = (part.len() - begin).min(into.len() - done);
            into[done..done + take].copy_from_slice(&part[begin..begin + take]);
            done += take;
        }
        if done == into.len() { Ok(()) } else { Err(short(at + done as u64)) }
    }
}

impl Source for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        Parts(&[self]).read(at, into)
    }
}

impl Source for File {
    fn bytes(&self) -> u64 {
        self.metadata().map_or(0, |found| found.len())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        self.read_exact_at(into, at).map_err(|cause| {
            TierError::new(Failure::Io, "put", "the source", "it cannot be read").with_cause(cause)
        })
    }
}

fn short(bytes: u64) -> TierError {
    let reason = format!("it ends after {bytes} bytes, which are fewer than it had");
    TierError::new(Failure::Io, "put", "the source", reason)
}

/// The bytes of an object as it is stored: those of its source, and its foot.
pub(crate) struct Whole<'a> {
    source: &'a dyn Source,
    bytes: u64,
    at: u64,
    sum: Sum,
}

impl<'a> Whole<'a> {
    pub(crate) fn of(source: &'a dyn Source) -> Whole<'a> {
        Whole { source, bytes: source.bytes(), at: 0, sum: Sum::new() }
    }

    /// The bytes of the object, its foot included.
    pub(crate) fn total(&self) -> u64 {
        self.bytes + FOOT as u64
    }

    /// The next `most` bytes, or those that are left; empty at the end.
    ///
    /// # Errors
    /// Those of the source.
    pub(crate) fn next(&mut self, most: usize) -> Result<Vec<u8>, TierError> {
        let len = (self.total() - self.at).min(most as u64) as usize;
        let mut piece = vec![0; len];
        let own = self.bytes.saturating_sub(self.at).min(len as u64) as usize;
        if own > 0 {
            self.source.read(self.at, &mut piece[..own])?;
            self.sum.add(&piece[..own]);
        }
        if own < len {
            let skip = (self.at + own as u64 - self.bytes) as usize;
            let foot = self.foot().render();
            piece[own..].copy_from_slice(&foot[skip..skip + len - own]);
        }
        self.at += len as u64;
        Ok(piece)
    }

    /// Begins at the first byte again.
    #[cfg(feature = "object-store")]
    pub(crate) fn restart(&mut self) {
        *self = Whole::of(self.source);
    }

    /// Whether all of it was read.
    pub(crate) fn is_read(&self) -> bool {
        self.at == self.total()
    }

    /// The foot, when all bytes before it were read.
    pub(crate) fn foot(&self) -> Foot {
        Foot { bytes: self.bytes, checksum: self.sum.value() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_from_anywhere() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"d", b"efgh"];
        let parts = Parts::of(&parts);
        for at in 0..8 {
            for len in 0..=8 - at {
                let mut into = vec![0; len];
                parts.read(at as u64, &mut into).unwrap();
                assert_eq!(into, b"abcdefgh"[at..at + len]);
            }
            assert!(parts.read(at as u64, &mut vec![0; 9 - at]).is_err());
        }
    }

    #[test]
    fn an_object_is_the_same_however_it_is_cut() {
        let bytes: Vec<u8> = (0..100).collect();
        let foot = Foot { bytes: 100, checksum: Sum::of(&bytes) };
        let expected = [&bytes[..], &foot.render()].concat();
        for most in [1, 7, 50, 99, 100, 101, 120, 148, 149, 1000] {
            let (parts, mut all) = ([&bytes[..]], Vec::new());
            let source = Parts::of(&parts);
            let mut whole = Whole::of(&source);
            loop {
                let piece = whole.next(most).unwrap();
                if piece.is_empty() {
                    break;
                }
                all.extend(piece);
            }
            assert_eq!(all, expected, "{most}");
        }
    }
}
