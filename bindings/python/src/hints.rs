//! What `Spool.expect` is given: versions, and which of them are restored for the last time.

use std::collections::HashSet;

use pyo3::prelude::*;
use unspool::Use;

use crate::errors::{Class, error};

/// One entry for each version, in order.
///
/// `last` is as the docstring of `expect` says.
pub(crate) fn uses(
    versions: &Bound<'_, PyAny>,
    last: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Use>> {
    let py = versions.py();
    let versions: Vec<i64> = collect(versions)?;
    let last = match last {
        None => vec![false; versions.len()],
        Some(all) => match all.extract::<bool>() {
            Ok(true) => final_entries(&versions),
            Ok(false) => vec![false; versions.len()],
            Err(_) => collect(all)?,
        },
    };
    if last.len() != versions.len() {
        let (flags, count) = (last.len(), versions.len());
        let text = format!(
            "last= has {flags} truth values for {count} versions: give one for each, or True for \
             all."
        );
        return Err(error(py, Class::Option, text));
    }
    Ok(versions.into_iter().zip(last).map(|(version, last)| Use { version, last }).collect())
}

fn collect<T>(items: &Bound<'_, PyAny>) -> PyResult<Vec<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    items.try_iter()?.map(|item| item?.extract()).collect()
}

/// Marks the last entry of every version.
fn final_entries(versions: &[i64]) -> Vec<bool> {
    let mut later = HashSet::new();
    let mut last: Vec<bool> = versions.iter().rev().map(|v| later.insert(*v)).collect();
    last.reverse();
    last
}
