//! Memory that the system still has.

/// Whether the system would give `bytes` bytes now. They are not touched.
#[must_use]
pub fn has_memory(bytes: usize) -> bool {
    let mut memory = Vec::<u8>::new();
    let given = memory.try_reserve_exact(bytes).is_ok();
    // Without this the compiler may leave the whole allocation out.
    std::hint::black_box(&mut memory);
    given
}
