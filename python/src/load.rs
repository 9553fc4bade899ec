//! `load`: a restore into arrays that are made for it.

use std::ops::Range;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use unspool::gpu::Gpu;
use unspool::{Head, MadeBy, Region, Spool, Zfp};

use crate::array::{Label, take};
use crate::call::{head, restore_into};
use crate::codecs::ByteBuffer;
use crate::lend::{Block, DeviceBuffer, Items, arrange};
use crate::regions::TargetArray;
use crate::target::Target;
use crate::trees;
use crate::waiting::detached;

/// The library and the place of new arrays.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The library.
    pub to: &'a str,
    /// `"cpu"`, `"cuda"`, ...
    pub device: Option<&'a str>,
}

/// The arrays of `version`, as arrays of a library: one array, a tuple or a dictionary, as they
/// were saved.
///
/// # Errors
/// Those of the spool; `OptionError`, `MissingLibraryError` and `ArrayError` when the
/// library cannot hold such arrays.
pub fn load<'py>(
    py: Python<'py>,
    target: Target<'_>,
    version: i64,
    wanted: Wanted<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let maker = Maker::new(py, target, wanted)?;
    let (head, arrays) = restored(py, target, version, &maker)?;
    if trees::has_text(&head) {
        return maker.tree(&head, &arrays);
    }
    let finished = arrays.iter().map(|array| maker.finish(array));
    arrange(py, &head, finished.collect::<PyResult<_>>()?)
}

/// The arrays of `version` by name, as arrays of NumPy; of a tree also the text that says what it
/// is, as bytes.
///
/// # Errors
/// Those of [`load`], but for classes that are not loaded.
pub fn load_parts<'py>(
    py: Python<'py>,
    target: Target<'_>,
    version: i64,
) -> PyResult<Bound<'py, PyDict>> {
    let maker = Maker::new(py, target, Wanted { to: "numpy", device: None })?;
    let (head, arrays) = restored(py, target, version, &maker)?;
    let parts = PyDict::new(py);
    for (region, array) in head.regions.iter().zip(arrays) {
        let text = trees::describes(region);
        parts.set_item(&region.name, if text { array } else { maker.finish(&array)? })?;
    }
    Ok(parts)
}

/// Some arrays of `version`, or parts of them.
///
/// # Errors
/// Those of [`load`]; `OptionError` when there are none of these names, or no such parts.
pub fn some<'py>(
    spool: &Bound<'py, PyAny>,
    version: i64,
    names: &Bound<'py, PyTuple>,
    region: Option<&Bound<'py, PyAny>>,
    wanted: Wanted<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = spool.py();
    let helper = py.import(intern!(py, "unspool._partial"))?.getattr(intern!(py, "load"))?;
    helper.call1((spool, version, names, region, wanted.to, wanted.device))
}

/// Fills a buffer with parts of an array by its place in `version`, from a durable tier; false
/// where that does not have it.
///
/// # Errors
/// Those of the spool.
pub fn parts(
    py: Python<'_>,
    spool: &Spool,
    version: i64,
    (index, parts): (usize, &[Range<u64>]),
    into: PyBuffer<u8>,
) -> PyResult<bool> {
    let durable = detached(py, Some(version), || spool.durable(version))?;
    if !durable {
        return Ok(false);
    }
    let mut into = ByteBuffer::alone(into)?;
    let bytes = into.get_mut();
    detached(py, Some(version), || spool.stored(version)?.read_region(index, parts, bytes))?;
    Ok(true)
}

/// The checksums of the pieces of a payload; whether pieces are read alone; and of each array its
/// first byte there, the one after its last, and what it says of its codec.
pub type StoredWord = (Option<Vec<u64>>, bool, Vec<(u64, u64, Option<MadeWord>)>);

/// The kind of a codec, its bound or parameter, the floor of a pointwise bound, and the largest
/// error where it is known.
pub type MadeWord = (&'static str, f64, f64, Option<f64>);

/// What a durable tier has of `version`; `None` where it has nothing.
///
/// # Errors
/// Those of the spool.
pub fn stored(py: Python<'_>, spool: &Spool, version: i64) -> PyResult<Option<StoredWord>> {
    detached(py, Some(version), || {
        if !spool.durable(version)? {
            return Ok(None);
        }
        let frame = spool.stored(version)?;
        let places = frame.head().regions.iter().enumerate().map(|(index, region)| {
            let made = frame.made_by(index)?.map(made_word);
            Ok((region.range().start, region.range().end, made))
        });
        let places = places.collect::<Result<_, unspool::Error>>()?;
        let sums = frame.sums()?;
        let in_parts = sums.is_some() && !frame.may_be_packed();
        Ok(Some((sums, in_parts, places)))
    })
}

fn made_word(made: MadeBy) -> MadeWord {
    match made {
        MadeBy::Twine(said) => match said.mode {
            0 => ("lossless", 0.0, 0.0, Some(said.max_error)),
            1 => ("abs", said.bound, 0.0, Some(said.max_error)),
            _ => ("pointwise", said.bound, said.step, Some(said.max_error)),
        },
        MadeBy::Zfp(Zfp::Rate(rate)) => ("rate", rate, 0.0, None),
        MadeBy::Zfp(Zfp::Precision(planes)) => ("precision", f64::from(planes), 0.0, None),
        MadeBy::Zfp(Zfp::Tolerance(tolerance)) => ("tolerance", tolerance, 0.0, None),
        _ => ("other", 0.0, 0.0, None),
    }
}

/// A checkpoint in arrays that were made for it, not finished yet.
type Restored<'py> = (Arc<Head>, Vec<Bound<'py, PyAny>>);

fn restored<'py>(
    py: Python<'py>,
    target: Target<'_>,
    version: i64,
    maker: &Maker<'py, '_>,
) -> PyResult<Restored<'py>> {
    let head = head(py, target.spool, version)?;
    let arrays = head.regions.iter().map(|region| maker.allocate(region));
    let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
    {
        let targets = arrays.iter().zip(&head.regions).map(|(array, region)| {
            take(array, Label { call: "load", version, name: &region.name }, &target.intake())
        });
        let numbered = targets.enumerate();
        let targets = numbered.map(|(region, array)| Ok(TargetArray { region, array: array? }));
        let targets = targets.collect::<PyResult<Vec<_>>>()?;
        restore_into(py, target, version, &head, targets)?;
    }
    Ok((head, arrays))
}

/// Makes arrays of one library in one place.
struct Maker<'py, 'a> {
    helpers: Bound<'py, PyModule>,
    to: &'a str,
    /// The number of a GPU, or -1 for where the library makes its arrays by itself.
    device: Option<i64>,
    spool: &'a unspool::Spool,
}

impl<'py, 'a> Maker<'py, 'a> {
    fn new(py: Python<'py>, target: Target<'a>, wanted: Wanted<'a>) -> PyResult<Maker<'py, 'a>> {
        let helpers = py.import(intern!(py, "unspool._arrays"))?;
        let own = target.spool.gpu().map(Gpu::ordinal);
        let device = helpers.getattr(intern!(py, "device_for"))?;
        let device = device.call1((wanted.to, wanted.device, own))?.extract()?;
        Ok(Maker { helpers, to: wanted.to, device, spool: target.spool })
    }

    /// An array of the shape and dtype of `region`, whose content is unspecified.
    fn allocate(&self, region: &Region) -> PyResult<Bound<'py, PyAny>> {
        let py = self.helpers.py();
        if trees::describes(region) {
            return trees::text_memory(py, region);
        }
        if let (Some(Ok(ordinal)), "jax") = (self.device.map(u32::try_from), self.to) {
            let takes = self.helpers.getattr(intern!(py, "jax_takes"))?;
            if takes.call1((region.dtype.name(),))?.is_truthy()? {
                return self.device_memory(region, ordinal);
            }
        }
        let shape = PyTuple::new(py, &region.shape)?;
        let allocate = self.helpers.getattr(intern!(py, "allocate"))?;
        allocate.call1((shape, region.dtype.name(), self.to, self.device))
    }

    /// Memory of ours, which JAX takes over.
    fn device_memory(&self, region: &Region, ordinal: u32) -> PyResult<Bound<'py, PyAny>> {
        let py = self.helpers.py();
        let made = detached(py, None, || {
            let gpu = self.spool.gpu_of(ordinal)?;
            let block = Arc::new(Block::new(gpu.stream().handle()));
            DeviceBuffer::allocate(&gpu, Items::of(region), false, block)
        });
        Ok(Bound::new(py, made?.0)?.into_any())
    }

    /// The tree of these arrays.
    fn tree(&self, head: &Head, arrays: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
        let (py, mut text) = (self.helpers.py(), None);
        let found = PyDict::new(py);
        for (region, array) in head.regions.iter().zip(arrays) {
            if trees::describes(region) {
                text = Some(array);
            } else {
                found.set_item(&region.name, self.finish(array)?)?;
            }
        }
        text.map_or_else(|| Ok(found.clone().into_any()), |text| trees::build(text, &found))
    }

    fn finish(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let finish = self.helpers.getattr(intern!(self.helpers.py(), "finish"))?;
        finish.call1((array, self.to, self.device))
    }
}
