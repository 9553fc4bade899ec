//! The 64-bit checksum of payloads and heads.

/// The checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The same checksum for bytes that come in pieces, however they are cut.
#[derive(Clone, Default)]
pub struct Checksum(xxhash_rust::xxh3::Xxh3);

impl Checksum {
    /// A checksum that has seen nothing.
    #[must_use]
    pub fn new() -> Checksum {
        Checksum::default()
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything taken so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({:#018x})", self.value())
    }
}
