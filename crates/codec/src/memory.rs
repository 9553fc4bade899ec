//! Memory that may not be there: it is asked for before it is taken, because an allocation that
//! fails ends the process.
//!
//! The answer holds for the moment: another thread may take what was there. It turns a limit that
//! is reached step by step (`ulimit -v`, strict overcommit) into an error.

/// Whether the system would give `bytes` bytes now. They are not touched.
#[must_use]
pub fn has_memory(bytes: usize) -> bool {
    let mut memory = Vec::<u8>::new();
    let given = memory.try_reserve_exact(bytes).is_ok();
    // Without this the compiler may leave the whole allocation out.
    std::hint::black_box(&mut memory);
    given
}

/// A copy of `bytes`, if there is memory for it.
#[must_use]
pub fn copied(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

/// So many zeros, if there is memory for them.
#[must_use]
pub fn zeros(len: usize) -> Option<Vec<u8>> {
    // Fresh pages are zeros already, so that nothing is written.
    has_memory(len).then(|| vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::{copied, has_memory, zeros};

    #[test]
    fn what_no_machine_has_is_not_there() {
        assert!(has_memory(1 << 20) && !has_memory(usize::MAX >> 1) && !has_memory(usize::MAX));
        assert!(zeros(usize::MAX >> 1).is_none());
        assert_eq!(zeros(3), Some(vec![0; 3]));
        assert_eq!(copied(&[1, 2]), Some(vec![1, 2]));
    }
}
