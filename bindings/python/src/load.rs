//! `load`: a restore into arrays that are made for it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use unspool::Head;

use crate::array::{Label, take};
use crate::call::{Target, head, restore_into};
use crate::regions::is_positional;

/// The arrays of `version`, as arrays of the library `to`: one array, a tuple or a dictionary,
/// as they were saved.
///
/// # Errors
/// Those of the spool; `OptionError`, `MissingLibraryError` and `UnsupportedArrayError` when the
/// library cannot hold such arrays.
pub fn load<'py>(
    py: Python<'py>,
    target: Target<'_>,
    version: i64,
    to: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let head = head(py, target.spool, version)?;
    let helpers = py.import(intern!(py, "unspool._arrays"))?;
    let arrays = allocate(&helpers, &head, to)?;
    {
        let targets = arrays.iter().zip(&head.regions).map(|(array, region)| {
            take(array, Label { call: "load", version, name: &region.name }, &target.intake())
        });
        let targets = targets.collect::<PyResult<Vec<_>>>()?;
        restore_into(py, target, version, &head, targets)?;
    }
    let finish = helpers.getattr(intern!(py, "finish"))?;
    let finished = arrays.iter().map(|array| finish.call1((array, to)));
    arrange(py, &head, finished.collect::<PyResult<_>>()?)
}

/// Arrays of the right shapes and dtypes, whose content is unspecified.
fn allocate<'py>(
    helpers: &Bound<'py, PyModule>,
    head: &Head,
    to: &str,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = helpers.py();
    let allocate = helpers.getattr(intern!(py, "allocate"))?;
    let new = |region: &unspool::Region| {
        let shape = PyTuple::new(py, &region.shape)?;
        allocate.call1((shape, region.dtype.name(), to))
    };
    head.regions.iter().map(new).collect()
}

fn arrange<'py>(
    py: Python<'py>,
    head: &Head,
    mut arrays: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if !is_positional(head) {
        let named = PyDict::new(py);
        for (region, array) in head.regions.iter().zip(arrays) {
            named.set_item(&region.name, array)?;
        }
        return Ok(named.into_any());
    }
    if arrays.len() == 1 {
        return Ok(arrays.remove(0));
    }
    Ok(PyTuple::new(py, arrays)?.into_any())
}

/// The regions of a checkpoint as `unspool.Region` objects.
///
/// # Errors
/// Whatever Python raises when it makes the objects.
pub fn describe<'py>(py: Python<'py>, head: &Head) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import(intern!(py, "unspool._types"))?.getattr(intern!(py, "Region"))?;
    let regions = PyList::empty(py);
    for region in &head.regions {
        let shape = PyTuple::new(py, &region.shape)?;
        let made = class.call1((&region.name, region.dtype.name(), shape, region.bytes))?;
        regions.append(made)?;
    }
    Ok(regions.to_tuple().into_any())
}
