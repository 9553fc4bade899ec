//! Several checkpoints by one call: `Spool.save_many`.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use unspool::Codecs;

use crate::copies::Copies;
use crate::errors::{Class, error};
use crate::regions::{Call, Given, specs};
use crate::target::Target;
use crate::waiting::waiting;

/// Saves checkpoints, given as a mapping from versions to arrays or as pairs of both. Gives the
/// versions.
///
/// # Errors
/// Those of taking the arrays in, and those of the spool.
pub fn save_many(
    target: Target<'_>,
    checkpoints: &Bound<'_, PyAny>,
    codec: Option<&Codecs>,
) -> PyResult<()> {
    let py = checkpoints.py();
    target.kept.sweep(py);
    let given = collect(checkpoints)?;
    let mut arrays = Vec::with_capacity(given.len());
    for (_, given) in &given {
        arrays.push(given.sources(&target.intake())?);
    }
    let regions = given.iter().zip(&arrays).map(|((_, given), arrays)| specs(given, arrays));
    let (regions, versions): (Vec<_>, Vec<i64>) =
        (regions.collect(), given.iter().map(|(version, _)| *version).collect());
    regions.iter().for_each(|regions: &Vec<_>| target.unseen.see(regions));
    let pieces: Vec<_> = arrays.iter().map(|arrays| target.pieces(arrays)).collect();
    let spool = target.spool;
    let marks = waiting(py, None, |wait| {
        let copies = pieces.iter().map(|pieces| Copies::new(spool, pieces));
        let mut copies = copies.collect::<Result<Vec<_>, _>>()?;
        copies.iter_mut().for_each(Copies::begin_all);
        let streams = copies.iter().map(Copies::streams).collect::<Result<Vec<_>, _>>()?;
        let mut batch = Vec::with_capacity(copies.len());
        let each = versions.iter().zip(regions).zip(copies.iter().zip(&streams));
        for ((version, regions), (copies, streams)) in each {
            let codec = codec.unwrap_or_else(|| spool.codecs());
            let mut checkpoint = spool.checkpoint_as(*version, regions, codec)?;
            // SAFETY: `arrays` lives until the copies are done: `copies` and `release` see to that.
            unsafe { copies.give(&mut checkpoint, streams) }?;
            batch.push(checkpoint);
        }
        let wait = copies.first().map_or(*wait, |first| first.wait(wait));
        spool.save_many(&mut batch, &wait)?;
        drop(batch);
        Copies::finish_all(copies)
    })?;
    for (arrays, marks) in arrays.into_iter().zip(marks) {
        target.release(py, arrays, marks);
    }
    Ok(())
}

/// The most checkpoints of one call: an iterator may never end.
const MOST: usize = 1 << 17;

/// The versions, each of which is there once, and their arrays.
fn collect<'py>(checkpoints: &Bound<'py, PyAny>) -> PyResult<Vec<(i64, Given<'py>)>> {
    let py = checkpoints.py();
    let refused = |why: String| error(py, Class::Array, format!("save_many: {why}"));
    let entries = match checkpoints.cast::<PyDict>() {
        Ok(mapping) => mapping.items().into_any(),
        Err(_) => checkpoints.clone(),
    };
    let mut seen = HashSet::new();
    let one = |entry: PyResult<Bound<'py, PyAny>>| {
        let entry = entry?;
        let (version, arrays): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            entry.extract().map_err(|_| wrong(&entry))?;
        if seen.len() == MOST {
            return Err(refused(format!(
                "more than {MOST} checkpoints in one call. Save them by several calls."
            )));
        }
        let version = crate::version::version(&version)?;
        if !seen.insert(version) {
            return Err(refused(format!(
                "version {version} is there twice, and nothing was saved. Give each version once."
            )));
        }
        Ok((version, given(version, &arrays)?))
    };
    let entries = entries.try_iter().map_err(|_| wrong(checkpoints))?;
    entries.map(one).collect()
}

fn wrong(entry: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "save_many: a value of type {} is there in place of pairs of a version and its arrays: \
         write {{0: u, 1: (u, v)}} or [(0, u), (1, (u, v))].",
        entry.get_type()
    );
    error(entry.py(), Class::Array, text)
}

/// The arrays of one checkpoint: one, a sequence of them, or a dictionary with their names.
fn given<'py>(version: i64, arrays: &Bound<'py, PyAny>) -> PyResult<Given<'py>> {
    let (py, call) = (arrays.py(), Call { name: "save_many", version });
    if let Ok(named) = arrays.cast::<PyDict>() {
        return Given::collect(call, &PyTuple::empty(py), Some(named));
    }
    let positional = match (arrays.cast::<PyTuple>(), arrays.cast::<PyList>()) {
        (Ok(tuple), _) => tuple.clone(),
        (_, Ok(list)) => list.to_tuple(),
        _ => PyTuple::new(py, [arrays])?,
    };
    Given::collect(call, &positional, None)
}
