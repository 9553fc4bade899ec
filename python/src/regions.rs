//! The arrays of a call: positional or by name, and how they meet the regions of a checkpoint.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use unspool::{Head, Region, RegionSpec};

use crate::array::{Access, Array, Intake, Label, is_immutable, stream_alive, take, tuple};
use crate::errors::{Class, error};
use crate::lend::DeviceBuffer;
use crate::trees;

/// The call that an error is about.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The method.
    pub name: &'static str,
    /// The version that it named.
    pub version: i64,
}

impl Call {
    fn label(self, name: &str) -> Label<'_> {
        Label { call: self.name, version: self.version, name }
    }

    fn mismatch(self, py: Python<'_>, what: &str) -> PyErr {
        let message = format!("{}({}): {what}", self.name, self.version);
        error(py, Class::Array, message)
    }
}

/// Arrays with the names under which they are kept: their own, or `"0"`, `"1"`, ... by position.
#[derive(Debug)]
pub struct Given<'py> {
    call: Call,
    by_name: bool,
    entries: Vec<(String, Bound<'py, PyAny>)>,
    /// The tree that they are of, and what says so.
    tree: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
}

/// An array that a region is restored into.
#[derive(Debug)]
pub struct TargetArray {
    /// The number of the region.
    pub region: usize,
    /// The array.
    pub array: Array,
}

impl<'py> Given<'py> {
    /// The arrays of a call.
    ///
    /// # Errors
    /// `ArrayError` when there are none, or some of both kinds.
    pub fn collect(
        call: Call,
        positional: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Given<'py>> {
        let py = positional.py();
        let named = named.filter(|named| !named.is_empty());
        if let Some(tree) = trees::given(positional, named)? {
            return Given::of_tree(call, tree);
        }
        match (positional.is_empty(), named) {
            (false, None) => {
                let entries = positional.iter().enumerate();
                let entries = entries.map(|(i, array)| (i.to_string(), array)).collect();
                Ok(Given { call, by_name: false, entries, tree: None })
            }
            (true, Some(named)) => {
                let entries = named.iter().map(|(name, array)| {
                    let name = name.extract().map_err(|_| {
                        let shown = name.repr().map_or_else(|_| String::new(), |r| r.to_string());
                        call.mismatch(py, &format!("the name {shown} is not Unicode."))
                    });
                    Ok((name?, array))
                });
                Given::by_name(call, entries.collect::<PyResult<_>>()?, py)
            }
            (true, None) => Err(call.mismatch(py, "no array was given.")),
            (false, Some(_)) => Err(call.mismatch(
                py,
                "some arrays were given by position and some by name; give all of them the same \
                 way.",
            )),
        }
    }

    fn by_name(
        call: Call,
        entries: Vec<(String, Bound<'py, PyAny>)>,
        py: Python<'py>,
    ) -> PyResult<Given<'py>> {
        if entries.iter().any(|(name, _)| name == trees::REGION) {
            let what = format!("{:?} is the name of what says what a tree is.", trees::REGION);
            return Err(call.mismatch(py, &what));
        }
        Ok(Given { call, by_name: true, entries, tree: None })
    }

    /// Arrays of a part of a tree, by the names that they were saved by.
    pub fn of_part(call: Call, entries: Vec<(String, Bound<'py, PyAny>)>) -> Given<'py> {
        Given { call, by_name: true, entries, tree: None }
    }

    /// The tree that was given, where it is a part of what was saved, or lacks some of its arrays.
    pub fn part_of(&self, head: &Head) -> Option<&Bound<'py, PyAny>> {
        let (tree, _) = self.tree.as_ref()?;
        (trees::has_text(head) && !self.fits(head)).then_some(tree)
    }

    /// Whether there is an array to restore.
    pub fn has_arrays(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The arrays of a tree, and what says how they hang together, which is written or read as one
    /// region more.
    fn of_tree(call: Call, tree: Bound<'py, PyAny>) -> PyResult<Given<'py>> {
        let py = tree.py();
        let (entries, text) = trees::flatten(&tree).map_err(|raised| {
            // The text of an error of ours says where in the tree, and not in which call.
            match raised.is_instance_of::<pyo3::exceptions::PyTypeError>(py) {
                true => call.mismatch(py, &raised.value(py).to_string()),
                false => raised,
            }
        })?;
        match text {
            None => Given::by_name(call, entries, py),
            Some(text) => Ok(Given { call, by_name: true, entries, tree: Some((tree, text)) }),
        }
    }

    /// What says what tree was saved, as far as `head` is one and a tree was given.
    fn text_target(&self, head: &Head) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        let found = head.regions.iter().enumerate().find(|(_, region)| trees::describes(region));
        let Some(((index, region), (tree, _))) = found.zip(self.tree.as_ref()) else {
            return Ok(None);
        };
        Ok(Some((index, trees::text_memory(tree.py(), region)?)))
    }

    /// Borrows all arrays to be read.
    ///
    /// # Errors
    /// `ArrayError`, `DeviceError`.
    pub fn sources(&self, intake: &Intake<'_>) -> PyResult<Vec<Array>> {
        self.named().map(|(name, array)| take(array, self.call.label(name), intake)).collect()
    }

    /// Refuses to give away what is not the caller's.
    ///
    /// # Errors
    /// `ArrayError` for an array that is read-only.
    pub fn check_own(&self, py: Python<'py>, arrays: &[Array]) -> PyResult<()> {
        let refused = |array: &Array| array.access() == Access::ReadOnly;
        let Some((name, _)) =
            self.named().zip(arrays).find(|(_, array)| refused(array)).map(|f| f.0)
        else {
            return Ok(());
        };
        let label = self.call.label(name);
        let message = format!(
            "{label} cannot be given away: it is read-only, so its memory is somebody else's. Save \
             it without donate=True."
        );
        Err(error(py, Class::Array, message))
    }

    /// Whether one array was given, and it does not lie in memory that a spool lends.
    pub fn is_of_others(&self) -> bool {
        let ours = |object: &Bound<'py, PyAny>| object.cast::<DeviceBuffer>().is_ok();
        matches!(&self.entries[..], [(_, object)] if !ours(object))
    }

    /// What keeps the current stream of the library of the first array alive, where that is needed.
    pub fn stream_alive(&self) -> Option<Py<PyAny>> {
        self.entries.first().and_then(|(_, object)| stream_alive(object))
    }

    /// Everything that is saved, by name.
    fn named(&self) -> impl Iterator<Item = (&str, &Bound<'py, PyAny>)> {
        let text = self.tree.iter().map(|(_, text)| (trees::REGION, text));
        self.entries.iter().map(|(name, array)| (name.as_str(), array)).chain(text)
    }

    /// Borrows all arrays to be written, in the order of the regions of `head`, and calls `work`
    /// with them; afterwards the numbers and texts of a tree are written.
    ///
    /// # Errors
    /// The classes of `ArrayError`, when they are not arrays that these regions fit into.
    pub fn restore(
        &self,
        py: Python<'py>,
        head: &Head,
        intake: &Intake<'_>,
        work: impl FnOnce(Vec<TargetArray>) -> PyResult<()>,
    ) -> PyResult<()> {
        self.check_names(py, head)?;
        let mut targets = Vec::with_capacity(head.regions.len());
        let all = self.entries.iter().map(|(name, object)| (name.as_str(), object));
        let by_name = LazyCell::new(|| all.collect::<HashMap<_, _>>());
        for (index, region) in head.regions.iter().enumerate() {
            // Mostly all are given, in their order.
            let (name, object) = match self.entries.get(index) {
                Some((name, object)) if *name == region.name => (name.as_str(), object),
                _ => match by_name.get_key_value(region.name.as_str()) {
                    Some((name, object)) => (*name, *object),
                    None => continue,
                },
            };
            let label = self.call.label(name);
            let array = take(object, label, intake)?;
            check_target(object, &array, region, label)?;
            targets.push(TargetArray { region: index, array });
        }
        check_disjoint(py, self.call, &targets)?;
        let text = self.text_target(head)?;
        if let Some((region, memory)) = &text {
            let array = take(memory, self.call.label(trees::REGION), intake)?;
            targets.push(TargetArray { region: *region, array });
        }
        work(targets)?;
        if let (Some((_, text)), Some((tree, _))) = (text, &self.tree) {
            trees::write_values(&text, tree)?;
        }
        Ok(())
    }

    /// By name some of the arrays may be given; by position, and in a tree, all of them.
    fn check_names(&self, py: Python<'py>, head: &Head) -> PyResult<()> {
        if self.fits(head) { Ok(()) } else { Err(self.wrong_names(py, head)) }
    }

    fn fits(&self, head: &Head) -> bool {
        let same_kind = trees::is_positional(head) != self.by_name;
        let text = usize::from(trees::has_text(head));
        let kept = || head.regions.iter().map(|region| region.name.as_str());
        let names = LazyCell::new(|| kept().collect::<HashSet<_>>());
        let known = |(index, (name, _)): (usize, &(String, _))| {
            head.regions.get(index).is_some_and(|region| region.name == *name)
                || names.contains(name.as_str())
        };
        let all = self.entries.len() == head.regions.len() - text;
        let fits = match &self.tree {
            Some(_) => all && text == 1,
            None => all || self.by_name,
        };
        same_kind && fits && self.entries.iter().enumerate().all(known)
    }

    fn wrong_names(&self, py: Python<'py>, head: &Head) -> PyErr {
        let names: Vec<&str> = self.entries.iter().map(|(name, _)| name.as_str()).collect();
        let given = wording(self.by_name, &names);
        let arrays = head.regions.iter().filter(|region| !trees::describes(region));
        let kept: Vec<&str> = arrays.map(|region| region.name.as_str()).collect();
        let kept = wording(!trees::is_positional(head), &kept);
        let some = if trees::is_positional(head) { "" } else { ", or some of them by name" };
        let what =
            format!("{given} given, but the checkpoint has {kept}; give the same ones{some}.");
        self.call.mismatch(py, &what)
    }
}

fn wording(by_name: bool, names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    if by_name && names.is_empty() {
        return "no array".to_owned();
    }
    if by_name {
        return format!("the array{plural} named {}", names.join(", "));
    }
    format!("{} array{plural} by position", names.len())
}

/// What a save has to make room for.
pub fn specs(given: &Given<'_>, arrays: &[Array]) -> Vec<RegionSpec> {
    let named = given.named().zip(arrays);
    let spec = |((name, _), array): ((&str, _), &Array)| RegionSpec {
        name: name.to_owned(),
        dtype: array.dtype().clone(),
        shape: array.shape().iter().map(|&extent| extent as u64).collect(),
    };
    named.map(spec).collect()
}

/// The regions of a checkpoint as `unspool.types.Region` objects.
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

fn check_target(
    object: &Bound<'_, PyAny>,
    target: &Array,
    region: &Region,
    label: Label<'_>,
) -> PyResult<()> {
    let py = object.py();
    if *target.dtype() != region.dtype {
        let (here, there) = (target.dtype(), &region.dtype);
        let message = format!(
            "{label} has dtype {here}, and was saved with dtype {there}. Nothing is converted: \
             pass an array of that dtype."
        );
        return Err(error(py, Class::Array, message));
    }
    if !target.shape().iter().map(|&extent| extent as u64).eq(region.shape.iter().copied()) {
        let (here, there) = (tuple(target.shape()), tuple(&region.shape));
        let message = format!(
            "{label} has shape {here}, and was saved with shape {there}. Pass an array of that \
             shape, or use load({}).",
            label.version
        );
        return Err(error(py, Class::Array, message));
    }
    check_access(object, target, label)?;
    if target.walk().may_overlap() {
        let message = format!(
            "{label} has elements that share memory (a broadcast or sliding view), so that they \
             cannot all be restored. Pass an array whose elements are apart."
        );
        return Err(error(py, Class::Array, message));
    }
    Ok(())
}

fn check_access(object: &Bound<'_, PyAny>, target: &Array, label: Label<'_>) -> PyResult<()> {
    let version = label.version;
    let why = match target.access() {
        Access::Writable | Access::Unknown => return Ok(()),
        _ if is_immutable(object) => {
            let module = object.get_type().module()?.to_string();
            let to = if module.starts_with("jax") { ", to=\"jax\"" } else { "" };
            format!("never changes once it is made: use array = spool.load({version}{to}) instead")
        }
        Access::Copied => {
            "lends only a copy of its memory: pass an array that lends its own".to_owned()
        }
        Access::ReadOnly | Access::Immutable => {
            format!("is read-only: pass one that can be written, or use load({version})")
        }
    };
    Err(error(object.py(), Class::Array, format!("{label} {why}.")))
}

/// Two targets must not share memory: one of them would be wrong afterwards. Views that only
/// interleave (such as `u[::2]` and `u[1::2]`) are left to the caller.
fn check_disjoint(py: Python<'_>, call: Call, targets: &[TargetArray]) -> PyResult<()> {
    if targets.len() < 2 {
        return Ok(());
    }
    let mut ranges: Vec<(usize, usize)> =
        targets.iter().filter_map(|target| dense_range(&target.array)).collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        let message = format!(
            "{}({}): two of the arrays share memory, so that they cannot both be restored. Pass \
             arrays that are apart.",
            call.name, call.version
        );
        return Err(error(py, Class::Array, message));
    }
    Ok(())
}

/// The addresses of an array that fills all of them.
fn dense_range(array: &Array) -> Option<(usize, usize)> {
    let walk = array.walk();
    let (low, high) = walk.span();
    let full = walk.bytes() > 0 && (high - low) as usize == walk.bytes();
    let first = array.data().addr().wrapping_add_signed(low);
    full.then(|| (first, first + walk.bytes()))
}
