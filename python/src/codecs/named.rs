//! Arrays that a mapping of codecs names: a name that never comes is mostly a slip of the pen, and
//! its codec would never be used.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use unspool::{Codecs, RegionSpec};

use crate::errors::{Class, error};

/// The names of a spool's codecs that no array had yet.
#[derive(Debug, Default)]
pub struct UnseenNames(Mutex<Unseen>);

#[derive(Debug, Default)]
struct Unseen {
    names: BTreeSet<String>,
    saved: bool,
}

impl UnseenNames {
    /// All names of `codecs`.
    pub fn of(codecs: &Codecs) -> UnseenNames {
        let names = codecs.by_region.keys().cloned().collect();
        UnseenNames(Mutex::new(Unseen { names, saved: false }))
    }

    /// These arrays are saved.
    pub fn see(&self, regions: &[RegionSpec]) {
        let mut unseen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unseen.saved = true;
        for region in regions {
            unseen.names.remove(&region.name);
        }
    }

    /// What is to be said about names that never came, once.
    pub fn warning(&self) -> Option<String> {
        let mut unseen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = std::mem::take(&mut unseen.names).into_iter().collect();
        let names = Some(names.join(", ")).filter(|names| unseen.saved && !names.is_empty())?;
        Some(format!(
            "Spool(codec=...) names {names}, and no array of that name was saved, so that its \
             codec was never used."
        ))
    }
}

/// Refuses codecs of one save for arrays that it has not.
///
/// # Errors
/// `OptionError`.
pub fn check(py: Python<'_>, codecs: Option<&Codecs>, regions: &[RegionSpec]) -> PyResult<()> {
    let Some(codecs) = codecs.filter(|codecs| !codecs.by_region.is_empty()) else { return Ok(()) };
    let known: Vec<&str> = regions.iter().map(|region| region.name.as_str()).collect();
    let names: HashSet<&str> = known.iter().copied().collect();
    let Some(name) = codecs.by_region.keys().find(|name| !names.contains(name.as_str())) else {
        return Ok(());
    };
    let message = format!(
        "save(codec=...): it names {name}, and the arrays are {}: give the codec to one of these, \
         or leave it out.",
        known.join(", ")
    );
    Err(error(py, Class::Option, message))
}
