//! Trees of arrays, numbers and texts as regions: the work is done by `unspool._trees`.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple, PyType};
use unspool::{Head, Region};

/// The region that says what a tree is.
pub const REGION: &str = "unspool.tree";

/// Arrays by name.
type Entries<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// What a call was given, if that is more than arrays.
///
/// # Errors
/// Whatever Python raises.
pub fn given<'py>(
    positional: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Some(named) = named.filter(|_| positional.is_empty()) {
        let found = holds_more(named.values().iter())?;
        return Ok(found.then(|| named.clone().into_any()));
    }
    if named.is_some() || !holds_more(positional.iter())? {
        return Ok(None);
    }
    match positional.len() {
        1 => positional.get_item(0).map(Some),
        _ => Ok(Some(positional.clone().into_any())),
    }
}

/// Whether one of the values is a tree, which its class says: each class is asked about once.
fn holds_more<'py>(values: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<bool> {
    let mut of_arrays: Vec<Bound<'py, PyType>> = Vec::new();
    for value in values {
        let class = value.get_type();
        if of_arrays.iter().any(|known| known.is(&class)) {
            continue;
        }
        if is_tree(&value, &class)? {
            return Ok(true);
        }
        of_arrays.push(class);
    }
    Ok(false)
}

fn is_tree(value: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = value.py();
    // SAFETY: `value` is a live object and Python is attached.
    if unsafe { ffi::PyObject_CheckBuffer(value.as_ptr()) } == 1
        || class.hasattr(intern!(py, "__dlpack__"))?
    {
        return Ok(false);
    }
    helper(py, "is_tree")?.call1((value,))?.extract()
}

fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "unspool._trees"))?.getattr(name)
}

/// The arrays of a tree by name, and what says how they hang together, unless names alone do.
///
/// # Errors
/// `ArrayError`.
pub fn flatten<'py>(
    tree: &Bound<'py, PyAny>,
) -> PyResult<(Entries<'py>, Option<Bound<'py, PyAny>>)> {
    helper(tree.py(), "flatten")?.call1((tree,))?.extract()
}

/// Whether a region says what the tree of its checkpoint is.
pub fn describes(region: &Region) -> bool {
    region.name == REGION
}

/// Whether a checkpoint is a tree.
pub fn has_text(head: &Head) -> bool {
    head.regions.iter().any(describes)
}

/// Whether the arrays of a checkpoint were given by position.
pub fn is_positional(head: &Head) -> bool {
    head.regions.iter().enumerate().all(|(i, region)| region.name == i.to_string())
}

/// Memory for the region that says what a tree is.
pub fn text_memory<'py>(py: Python<'py>, region: &Region) -> PyResult<Bound<'py, PyAny>> {
    let zeros = |_: &mut [u8]| Ok(());
    Ok(PyByteArray::new_with(py, region.bytes as usize, zeros)?.into_any())
}

/// The tree that `text` says, with these arrays.
///
/// # Errors
/// `ArrayError`.
pub fn build<'py>(
    text: &Bound<'py, PyAny>,
    arrays: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    helper(text.py(), "build")?.call1((text, arrays))
}

/// The arrays of a tree that is a part of what `text` says, or lacks some of it, under the names
/// that they were saved by; and what then writes everything else into the tree.
///
/// # Errors
/// `ArrayError`, when it is another tree.
pub fn assign<'py>(
    text: &Bound<'py, PyAny>,
    tree: &Bound<'py, PyAny>,
    regions: &Bound<'py, PyAny>,
) -> PyResult<(Entries<'py>, Bound<'py, PyAny>)> {
    helper(text.py(), "assign")?.call1((text, tree, regions))?.extract()
}

/// Writes the numbers and texts that `text` says into a tree whose arrays are restored.
///
/// # Errors
/// `ArrayError`, when it is another tree.
pub fn write_values(text: &Bound<'_, PyAny>, tree: &Bound<'_, PyAny>) -> PyResult<()> {
    let (_, write): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        helper(text.py(), "assign")?.call1((text, tree))?.extract()?;
    write.call0().map(drop)
}
