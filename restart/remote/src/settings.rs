//! What a remote place is opened with.

use std::fmt;
use std::time::Duration;

/// How a remote place is used. Plain values with defaults.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The longest that one try of a request may take, its bytes included: a link that does not
    /// carry the pieces that are on their way in this time is too slow.
    pub request: Duration,
    /// The longest that a request, or one piece of a large object, may take with all of its tries.
    pub patience: Duration,
    /// The most tries after the first one.
    pub retries: usize,
    /// The bytes of a piece: larger objects are sent and fetched in four at once, which take so
    /// much memory. Stores want at least 5 MiB.
    pub piece: usize,
    /// Settings of the client of a store by name, as `object_store` has them (`aws_endpoint`, ...),
    /// in place of those in the environment.
    pub client: Vec<(String, String)>,
}

impl Default for Options {
    /// 60 s for a try and 180 s for all tries, 10 of them, and pieces of 8 MiB.
    fn default() -> Options {
        Options {
            request: Duration::from_secs(60),
            patience: Duration::from_secs(180),
            retries: 10,
            piece: 8 << 20,
            client: Vec::new(),
        }
    }
}

impl Options {
    /// The same, and nothing takes longer than the longest wait of a call.
    #[must_use]
    pub fn within(self, longest: Duration) -> Options {
        let (request, patience) = (self.request.min(longest), self.patience.min(longest));
        Options { request, patience, ..self }
    }
}

impl fmt::Debug for Options {
    /// Settings of the client by their names alone: some are credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { request, patience, retries, piece, client } = self;
        let names: Vec<&str> = client.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Options")
            .field("request", request)
            .field("patience", patience)
            .field("retries", retries)
            .field("piece", piece)
            .field("client", &names)
            .finish()
    }
}
