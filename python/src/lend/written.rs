//! What blocks have written in place, by its checksum: an array that outlives its block still
//! reaches the memory, and what is written through it then changes a checkpoint.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use unspool::{Error, Head, RestoreTicket, SaveTicket};
use unspool_codec::checksum;

/// The checksums of checkpoints that were computed in main memory, kept with `check_order` only.
#[derive(Debug)]
pub struct Written(Option<Mutex<HashMap<i64, Arc<WrittenCheckpoint>>>>);

/// The checksums of one checkpoint.
#[derive(Debug)]
pub struct WrittenCheckpoint {
    /// Says whether the version was discarded and saved again meanwhile.
    head: Arc<Head>,
    sums: Vec<Option<u64>>,
}

impl Written {
    /// Keeps checksums if `kept`, else does nothing.
    pub fn new(kept: bool) -> Written {
        Written(kept.then(Mutex::default))
    }

    /// The checksums of what is in a block that ends.
    pub fn seal(&self, ticket: &mut SaveTicket) -> Option<WrittenCheckpoint> {
        self.0.as_ref()?;
        let head = Arc::clone(ticket.head());
        let sums = 0..head.regions.len();
        let sums = sums.map(|index| ticket.host_region(index).map(|bytes| checksum(bytes)));
        Some(WrittenCheckpoint { sums: sums.collect(), head })
    }

    /// Keeps the checksums of `version`, which was saved.
    pub fn keep(&self, version: i64, sealed: Option<WrittenCheckpoint>) {
        if let (Some(all), Some(sealed)) = (&self.0, sealed) {
            all.lock().unwrap_or_else(PoisonError::into_inner).insert(version, Arc::new(sealed));
        }
    }

    /// The name of a region of `version` that has changed since its block ended.
    ///
    /// # Errors
    /// Those of reading what lies in a slower tier.
    pub fn changed(&self, version: i64, ticket: &RestoreTicket) -> Result<Option<String>, Error> {
        let Some(all) = &self.0 else { return Ok(None) };
        let known = all.lock().unwrap_or_else(PoisonError::into_inner).get(&version).cloned();
        let Some(sealed) = known.filter(|known| Arc::ptr_eq(&known.head, ticket.head())) else {
            return Ok(None);
        };
        for (index, sum) in sealed.sums.iter().enumerate() {
            let Some(sum) = *sum else { continue };
            let mut found = sum;
            ticket.read(index, |bytes| found = checksum(bytes))?;
            if found != sum {
                return Ok(Some(sealed.head.regions[index].name.clone()));
            }
        }
        Ok(None)
    }
}

/// What the error about it says.
pub fn overwritten(version: i64, name: &str) -> String {
    format!(
        "Array {name:?} of version {version} was written after the block of writing({version}) had \
         ended, through an array that outlived it. Write inside of the block only, and take a copy \
         of what is needed later. What comes back is not what was saved: discard the version."
    )
}
