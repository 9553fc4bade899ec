//! Memory that may not be there: it is asked for before it is taken, because an allocation that
//! fails ends the process.
//!
//! The answer holds for the moment: another thread may take what was there. It turns a limit that
//! is reached step by step (`ulimit -v`, strict overcommit) into an error.

use rayon::prelude::*;

use crate::workers::{self, WorkFor};

pub use crate::free::has_memory;

/// A copy of `bytes`, if there is memory for it.
#[must_use]
pub fn copied(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// Bytes that a thread copies at a time: fewer are done before another thread has begun.
const PART: usize = 4 << 20;

/// Copies `from` to `to`, which has as many bytes. One thread does not reach what the memory of a
/// machine can do: many bytes are copied by the threads of the codecs.
///
/// # Panics
/// When the lengths differ.
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "a copy has as many bytes");
    // A thread of a pool would do other work of that pool while it waits, under the caller's locks.
    let parts = if rayon::current_thread_index().is_some() { 1 } else { from.len() / PART };
    workers::share(WorkFor::Urgent, parts, |shared| match shared {
        true => {
            let parts = to.par_chunks_mut(PART).zip(from.par_chunks(PART));
            parts.for_each(|(to, from)| to.copy_from_slice(from));
        }
        false => to.copy_from_slice(from),
    });
}

/// So many zeros, if there is memory for them.
#[must_use]
pub fn zeros(len: usize) -> Option<Vec<u8>> {
    // Fresh pages are zeros already, so that nothing is written.
    has_memory(len).then(|| vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::{PART, copied, copy, has_memory, zeros};

    #[test]
    fn a_copy_has_the_bytes_whoever_makes_it() {
        for len in [0, 1, PART - 1, PART, 2 * PART, 3 * PART + 5] {
            let from: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let mut to = vec![255; len];
            copy(&from, &mut to);
            assert!(from == to, "{len} bytes");
        }
    }

    #[test]
    fn what_no_machine_has_is_not_there() {
        assert!(has_memory(1 << 20) && !has_memory(usize::MAX >> 1) && !has_memory(usize::MAX));
        assert!(zeros(usize::MAX >> 1).is_none());
        assert_eq!(zeros(3), Some(vec![0; 3]));
        assert_eq!(copied(&[1, 2]), Some(vec![1, 2]));
    }
}
