//! The class `unspool.Spool`.

mod closing;
mod own;
mod saving;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use unspool::{Codecs, ErrorKind, Settings, TierKind, Unflushed};

use crate::codecs::UnseenNames;
use crate::debug::Debug;
use crate::energy::Energy;
use crate::errors::{Class, about, error, from_spool};
use crate::front::Front;
use crate::given;
use crate::gpu::{self, KeptArrays};
use crate::hints::RestoreOrder;
use crate::jax::leftovers;
use crate::lend::{Blocks, Reading, Writing, Written, described};
use crate::load::{StoredWord, Wanted};
use crate::opening::{self, Opened, Sizes};
use crate::panics::guarded;
use crate::version::version;
use crate::waiting::{detached, waiting_for};
use crate::{call, codecs, live, load, many, options, regions, stats};

/// One history of checkpoints, with its tiers and the workers that move them.
///
/// A checkpoint is one or several arrays under an integer, its version, usually the time step. It
/// never changes. It is saved into the fastest tier with room and flows to the slower ones by
/// itself; what `expect` announces comes back to the fastest tier before it is restored. The tiers
/// together may be much smaller than the history, as long as the slowest one can hold it.
///
/// The order in which room is made is that of Score (Maurya et al., "GPU-Enabled Asynchronous
/// Multi-level Checkpoint Caching and Prefetching", HPDC 2023, Algorithm 1).
///
/// All methods may be called from several threads. While one waits or copies, other Python threads
/// run, and Ctrl-C ends the wait. Arrays that another thread writes while they are being saved are
/// saved as some mixture of old and new items. Calls on a closed spool raise `ClosedError`.
///
/// Arguments:
///     device_memory: the size of the device tier: memory of the GPU, or main memory that stands
///         for it. Sizes are integers in bytes, or text with a unit: `"512MiB"` is 512 * 2**20
///         bytes, `"1.5GB"` is 1,500,000,000, and `"auto"` takes a share of what is free; `repr`
///         and `stats` say how much that was.
///     host_memory: the size of the host tier: main memory, pinned if there is a GPU.
///     disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, or a `Disk`.
///         Without any of the three, the host tier is `"auto"`, and a disk tier is in `TMPDIR`, or
///         else in `/var/tmp`, if that is on a disk: a tier for what memory does not hold.
///     device: the place of the device tier: `"cuda"` or `"cuda:1"` for a GPU, `"cpu"` for main
///         memory. `"auto"` takes the GPU that is current on this thread, or else, if there is a
///         device tier, the first one; main memory where there is no GPU.
///     learn: announce restores as `expect` does, from what earlier iterations of a loop restored;
///         what `expect` itself announces goes first.
///     timeout: the longest that one call waits, in seconds.
///     verify: compare the checksum of what is read back from disk.
///     shrink_ok: be content with a smaller device tier when the GPU has less memory free, with a
///         `RuntimeWarning`.
///     codec: what is done with the bytes of every array (see the guide on compression): None keeps
///         them, `"lossless"` loses nothing, a `Bound` holds for every value of floating point
///         (integers are then taken without loss), `Zfp` is for exchange with other programs,
///         `"auto"` chooses for each checkpoint among those that lose nothing, on a GPU those of
///         nvCOMP too, by what was measured. A mapping has one for each array by name (by position,
///         `0`), and `"*"` for all others; `close` warns of a name that no array had.
///     debug: a `Debug`, for those who look for a fault.
///
/// Raises:
///     OptionError: an option makes no sense or does not exist.
///     StorageError: a tier cannot be made: no memory, no such directory, no permission.
///     DeviceError: the machine has no GPU of that name, or CUDA refused.
#[pyclass(module = "unspool", frozen, weakref, subclass)]
#[derive(Debug)]
pub struct Spool {
    front: Arc<Front>,
    /// The tiers in words.
    tiers: String,
    /// Whether the fastest tier is the device tier.
    has_device_tier: bool,
    learn: bool,
    /// Arrays whose copies are under way.
    kept: KeptArrays,
    /// Checksums of what was computed in place, with `check_order`.
    written: Arc<Written>,
    /// The blocks of `writing` and `reading` that are open.
    blocks: Arc<Blocks>,
    /// Names of the codecs that no array had yet.
    unseen: UnseenNames,
    /// Restores that were announced, and of which the spool knows a window.
    order: RestoreOrder,
    /// As it was given.
    codec: Option<Py<PyAny>>,
    energy: Energy,
}

#[pymethods]
impl Spool {
    #[new]
    #[pyo3(signature = (device_memory=None, host_memory=None, disk=None, *, device="auto",
                        shrink_ok=false, codec=None, learn=true, timeout=300.0, verify=true,
                        debug=None, **others))]
    #[expect(clippy::too_many_arguments, reason = "each one is an option of the Python class")]
    fn new(
        py: Python<'_>,
        device_memory: Option<&Bound<'_, PyAny>>,
        host_memory: Option<&Bound<'_, PyAny>>,
        disk: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::place)] device: &str,
        #[pyo3(from_py_with = given::shrink_ok)] shrink_ok: bool,
        codec: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::learn)] learn: bool,
        #[pyo3(from_py_with = given::timeout)] timeout: f64,
        #[pyo3(from_py_with = given::verify)] verify: bool,
        debug: Option<&Bound<'_, PyAny>>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Spool> {
        options::no_others(py, others)?;
        let debug = debug.map_or_else(|| Ok(Debug::default()), Debug::of)?;
        let sizes = Sizes {
            device: options::arena("device_memory", device_memory)?,
            host: options::arena("host_memory", host_memory)?,
        };
        let settings = Settings {
            on: options::device(py, device)?,
            shrink_ok,
            compiler_folders: options::compiler_folders(py),
            check_order: debug.check_order,
            order_trace: debug.order_trace,
            disk: disk.map_or(Ok(None), options::disk)?,
            codec: codec.map_or_else(
                || Ok(Codecs::default()),
                |codec| codecs::codecs(codec, "Spool(codec=...)"),
            )?,
            check_codec: debug.check_codec,
            learn,
            policy: debug.policy,
            timeout: options::timeout(py, timeout)?,
            verify,
            trace: debug.trace,
            record: debug.record,
            rates: unspool::rates_file(),
            ..Settings::default()
        };
        let unseen = UnseenNames::of(&settings.codec);
        guarded(py, || {
            let Opened { spool, tiers, energy, warnings } = opening::opened(py, settings, sizes)?;
            let front = Arc::new(Front::of(Arc::new(spool)));
            live::remember(&front);
            let spool = Spool {
                front,
                tiers,
                has_device_tier: sizes.device.is_some(),
                learn,
                kept: KeptArrays::default(),
                written: Arc::new(Written::new(debug.check_order)),
                blocks: Arc::default(),
                unseen,
                order: RestoreOrder::default(),
                codec: codec.map(|codec| codec.clone().unbind()),
                energy,
            };
            for warning in warnings {
                let warning = CString::new(warning)?;
                PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &warning, 1)?;
            }
            Ok(spool)
        })
    }

    /// Saves arrays under `version`: `save(3, u, v)` or `save(3, u=u, v=v)`; numbers and texts may
    /// stand beside them, and what holds all of it may be given: `save(3, {"u": u, "t": 0.1})`.
    ///
    /// The arrays may be of any shape, dtype and layout: those of NumPy, CuPy, PyTorch and JAX, and
    /// everything with the buffer protocol, DLPack or the CUDA array interface. They may be changed
    /// as soon as this returns. Waits when there is no room, until some was made.
    ///
    /// Arrays on a GPU are copied on the current stream of their library, or on `stream`: a stream
    /// of CuPy or PyTorch, an object with `__cuda_stream__`, or the handle as an integer. This
    /// returns when the copy is enqueued; what is enqueued there later may change them. An array
    /// that is called `stream`, `codec`, `overwrite` or `donate` has to be given by position.
    ///
    /// `codec` takes the place of the spool's for this checkpoint; here `"raw"` keeps the bytes.
    /// Arrays on a GPU are encoded there, on the same stream. Where the device tier has room for
    /// fewer than eight checkpoints without a codec, this may wait until they are.
    ///
    /// Dictionaries (`OrderedDict`, `defaultdict`, `Counter` too), lists, deques, sets, tuples,
    /// named tuples, dataclasses, and an `xarray.Dataset` or `DataArray` may hold arrays, numbers,
    /// texts, True, False, None, enumerations, and one another. `load` gives the same back. Arrays
    /// are regions with the way to them as names: `"model/u"`. Pass other subclasses as `dict(it)`.
    ///
    /// With `overwrite=True`, what was saved under `version` before is discarded first, and is gone
    /// also when this save fails. With `donate=True` the array is given away, and nobody writes to
    /// it any more: one dense array on the GPU of the device tier that no codec encodes is not
    /// copied. Its memory is the copy, and the spool lets go of it in stream order.
    ///
    /// Raises:
    ///     VersionExistsError: the version is already saved.
    ///     UnknownVersionError: another thread is saving it.
    ///     ArrayError: an argument is not an array that can be read here; no array was given; or
    ///         some arrays were given by position and some by name; or one to donate is read-only.
    ///     DeviceError: an array or the stream is of another GPU than the spool; CUDA refused; the
    ///         stream is being captured; or there is no CUDA driver for an array on a GPU.
    ///     CapacityError: the arrays are larger than every tier, or nothing in full ones can go.
    ///     OptionError: `stream` is not a stream, or `codec` not a codec.
    ///     CorruptCheckpointError: with `check_codec`, what was encoded breaks its bound.
    ///     WaitTimeoutError, StorageError, ClosedError.
    #[pyo3(signature = (version, /, *arrays, stream=None, codec=None, overwrite=false, donate=false,
                        **named))]
    #[expect(clippy::too_many_arguments, reason = "each one is an argument in Python")]
    fn save(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = version)] version: i64,
        arrays: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
        codec: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::overwrite)] overwrite: bool,
        #[pyo3(from_py_with = given::donate)] donate: bool,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let how = saving::Arguments { stream, codec, overwrite, donate };
        saving::save(slf, version, &how, arrays, named)
    }

    /// Saves several checkpoints by one call: `save_many({3: u, 4: (u, v)})`, or pairs as in
    /// `save_many([(3, u), (4, {"u": u, "v": v})])`.
    ///
    /// The arrays of each are one array, a tuple or a list of them, or a dictionary with their
    /// names, as `load` returns them, and are taken as by `save`. Those of a GPU are encoded by one
    /// launch, so that many small checkpoints cost little more than one.
    ///
    /// Each is saved as a whole or not at all. When some are not, the exception is that of the
    /// first one, and its attribute `unsaved` lists their versions: these can be given again. After
    /// one for which there is no room, those that follow are not tried.
    ///
    /// Raises:
    ///     ArrayError: an entry is not a pair of a version and arrays, a version is there twice, or
    ///         there are more than 131,072 entries. Nothing was saved.
    ///     All that `save` raises.
    #[pyo3(signature = (checkpoints, /, *, stream=None, codec=None))]
    fn save_many(
        &self,
        checkpoints: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        codec: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let target = self.target(stream)?;
        let codec = codec.map(|codec| codecs::codecs(codec, "save_many(codec=...)")).transpose()?;
        guarded(checkpoints.py(), || many::save_many(target, checkpoints, codec.as_ref()))
    }

    /// Copies what was saved under `version` into arrays: `restore(3, u, v)` or
    /// `restore(3, u=u, v=v)`, in the way in which it was saved. Of arrays that were saved by name,
    /// some may be given: the others stay as they are. This counts as one restore all the same.
    ///
    /// Into what holds arrays, numbers and texts, as `save` takes it, the arrays are copied, and
    /// then the numbers and texts are written: where a tuple or a frozen dataclass holds them, they
    /// have to be those that were saved. The outermost dictionary may lack keys; others may not. An
    /// empty dictionary or list gets new arrays of the same library, with a `RuntimeWarning`.
    ///
    /// The arrays have the shapes and dtypes of those that were saved; their layout and their
    /// library may differ. Waits for data that is still on its way. The checkpoint stays, unless
    /// its restores were announced with `once=True`. After an error in the middle of a copy
    /// the arrays hold unspecified values.
    ///
    /// Arrays on a GPU are written on the current stream of their library, or on `stream`, as in
    /// `save`: what is enqueued there later sees the data. For libraries whose stream is not known
    /// this waits until the data is there.
    ///
    /// Raises:
    ///     UnknownVersionError: no checkpoint has this version.
    ///     ArrayError: the number or the names of the arrays, or what holds them, differ from what
    ///         was saved; an array has another shape or dtype, is read-only (as those of JAX are),
    ///         has items that share memory, or cannot be written here.
    ///     DeviceError, OptionError: as for `save`.
    ///     CorruptCheckpointError, LostCheckpointError: the bytes are not those that were saved.
    ///     WaitTimeoutError, StorageError, ClosedError.
    #[pyo3(signature = (version, /, *arrays, stream=None, **named))]
    fn restore(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = version)] version: i64,
        arrays: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let target = this.target(stream)?;
        this.call(py, version, || {
            this.order.restoring(py, this.spool())?;
            call::restore(target, version, arrays, named)
        })
    }

    /// What was saved under `version`, as new arrays of the library `to`: `"numpy"`, `"cupy"`,
    /// `"torch"` or `"jax"`.
    ///
    /// They are made on `device`: `"cpu"`, `"cuda"` or `"cuda:0"` and so on. Without it, those of
    /// CuPy, PyTorch and JAX are made on the GPU of the spool, if it has one.
    ///
    /// With `names` it is only these arrays, or entries of the dictionary that was saved: the
    /// value of one, a dictionary of several. `region` is a part of an array, as an index of NumPy:
    /// `load(7, "u", region=np.s_[0:10, ..., 3])`. From a durable tier only that is read, in pieces
    /// of 64 KiB; encoded arrays are read whole. Such a look is no restore.
    ///
    /// Returns:
    ///     One array when one was saved by position, a tuple when several were, a dictionary when
    ///     they were saved by name; and what holds them where that was saved. Nothing is unpickled:
    ///     the module of a dataclass has to be imported, and its object is made field by field.
    ///
    /// Raises:
    ///     OptionError: there is no library `to` here, or it has no arrays on `device`; nothing was
    ///         saved under one of `names`, or an array has no such `region`.
    ///     DeviceError: the spool is on another GPU.
    ///     MissingLibraryError: it, or `ml_dtypes` for bfloat16 in NumPy, is not installed.
    ///     ArrayError: it has no such dtype; or the class of a dataclass is not loaded.
    ///     All that `restore` raises for a version.
    #[pyo3(signature = (version, /, *names, region=None, to="numpy", device=None))]
    fn load<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = version)] version: i64,
        names: &Bound<'py, PyTuple>,
        region: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = given::to)] to: &str,
        #[pyo3(from_py_with = given::device)] device: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if region.is_some() || !names.is_empty() {
            return load::some(slf.as_any(), version, names, region, Wanted { to, device });
        }
        slf.get().loaded(py, version, Wanted { to, device })
    }

    /// Says that so many bytes of the host tier will be used soon.
    #[pyo3(name = "_expect_bytes")]
    fn expect_bytes(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        detached(py, None, || self.spool().expect_bytes(bytes))
    }

    /// Fills a buffer with parts of the bytes of an array of `version`, one after the other, from a
    /// durable tier; false where that does not have it. It is no restore.
    #[pyo3(signature = (version, index, parts, into, /))]
    #[pyo3(name = "_read_parts")]
    fn read_parts(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        index: usize,
        parts: Vec<(u64, u64)>,
        into: PyBuffer<u8>,
    ) -> PyResult<bool> {
        let parts: Vec<Range<u64>> = parts.into_iter().map(|(start, end)| start..end).collect();
        self.call(py, version, || load::parts(py, self.spool(), version, (index, &parts), into))
    }

    /// What a durable tier has of `version`.
    #[pyo3(signature = (version, /))]
    #[pyo3(name = "_stored")]
    fn stored(&self, py: Python<'_>, version: i64) -> PyResult<Option<StoredWord>> {
        self.call(py, version, || load::stored(py, self.spool(), version))
    }

    /// The arrays of `version` by name, as arrays of NumPy; of a tree also the region
    /// `unspool.tree`, as bytes.
    #[pyo3(signature = (version, /))]
    #[pyo3(name = "_load_parts")]
    fn load_parts<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, version, || {
            self.order.restoring(py, self.spool())?;
            load::load_parts(py, self.target(None)?, version)
        })
    }

    /// A `with` block in which checkpoint `version` is computed in the spool's own memory:
    /// `with spool.writing(3, (100, 100), "float32") as u:`, or several arrays by name, as in
    /// `spool.writing(3, u=(shape, dtype), v=(shape, dtype))`, which gives a dictionary.
    ///
    /// The block gives a `DeviceBuffer` for a device tier on a GPU and a `HostBuffer` otherwise,
    /// or with `to` an array of that library (`"cupy"`, `"torch"` or `"numpy"`) over the same
    /// memory. What is in it at first is unspecified. Leaving the block saves the checkpoint, as it
    /// is when the work on `stream` is done; leaving it by an exception gives it up. Without
    /// `stream`, that is the work on the current streams of CuPy and PyTorch, or else on the legacy
    /// default stream. Where the device tier is full of what cannot be given up yet, the memory is
    /// a temporary one of the GPU, and leaving the block copies it.
    ///
    /// After the block the memory is the spool's again: an array over it is not unmapped, but what
    /// it shows is unspecified, and what is written through it would change a checkpoint. The array
    /// of `to="numpy"` becomes read-only. Other arrays, and views that were made of it, stay as
    /// they are: with `check_order` the next restore of a checkpoint that was changed so in main
    /// memory is a `CorruptCheckpointError`.
    ///
    /// Raises:
    ///     ArrayError: a shape or a dtype is missing.
    ///     OptionError: a shape, a dtype, `stream` or `to` makes no sense.
    ///     CapacityError: it is larger than the fastest tier; use `save`.
    ///     All that `save` raises for a version, when the block is entered or left.
    #[pyo3(signature = (version, shape=None, dtype=None, /, *, stream=None, to=None, **named))]
    #[expect(clippy::too_many_arguments, reason = "each one is an argument in Python")]
    fn writing(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        stream: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::maybe_to)] to: Option<String>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Writing> {
        let handle = gpu::handle(stream.as_ref())?;
        let regions = described(version, shape, dtype, named, py);
        let regions = regions.map_err(|raised| about(py, raised, Some(version)))?;
        self.unseen.see(&regions);
        let given = (handle, stream.map(Bound::unbind));
        Ok(Writing::new(self.in_place(), version, regions, given, to))
    }

    /// A `with` block in which checkpoint `version` is read in the spool's own memory:
    /// `with spool.reading(3) as u:`.
    ///
    /// The block gives what `load` would return, as `DeviceBuffer`s for a device tier on a GPU and
    /// `HostBuffer`s otherwise, or with `to` as arrays of that library over the same memory. They
    /// must not be written. A checkpoint that is not in the fastest tier when its turn comes is
    /// copied to temporary memory. Leaving the block counts as a restore that ends when the work on
    /// `stream` is done (without it, as for `writing`); leaving it by an exception does not count.
    ///
    /// After the block the memory is the spool's again: arrays over it are not unmapped, but what
    /// they show is unspecified.
    ///
    /// Raises:
    ///     OptionError: `stream` or `to` makes no sense.
    ///     All that `restore` raises for a version, when the block is entered or left.
    #[pyo3(signature = (version, /, *, stream=None, to=None))]
    fn reading(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        stream: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = given::maybe_to)] to: Option<String>,
    ) -> PyResult<Reading> {
        self.order.restoring(py, self.spool())?;
        let handle = gpu::handle(stream.as_ref())?;
        let given = (handle, stream.map(Bound::unbind));
        Ok(Reading::new(self.in_place(), version, given, to))
    }

    /// The names, dtypes and shapes of what was saved under `version`. Nothing is moved.
    ///
    /// Raises:
    ///     UnknownVersionError, ClosedError.
    #[pyo3(signature = (version, /))]
    pub(crate) fn regions<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, version, || regions::describe(py, &*call::head(py, self.spool(), version)?))
    }

    /// What the codecs did with the arrays of `version`: for each one by name, or by position as
    /// `"0"`, `"1"`, ..., its sizes and its error.
    ///
    /// Waits for encoders on a GPU that are not done yet.
    ///
    /// Raises:
    ///     UnknownVersionError, WaitTimeoutError, ClosedError.
    #[pyo3(signature = (version, /))]
    fn achieved<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.call(py, version, || {
            let found = detached(py, Some(version), || self.spool().achieved(version))?;
            stats::achieved(py, &found)
        })
    }

    /// Announces restores, in this order, after those that were announced before.
    ///
    /// A version may be announced several times, and before it is saved. Others are served, too.
    ///
    /// With `once=True` every version is discarded when the last restore of it that is announced
    /// here is done. Such checkpoints are not moved to slower tiers while there is room. Where some
    /// are not saved yet, nothing is brought back before the first restore.
    ///
    /// The spool looks at most 16,384 restores ahead. An iterator or a range may be longer, or
    /// never end: more is taken from it as restores are made, and what it raises then is raised by
    /// a restore, before that has begun, and ends the announcement. With `once=True` and with
    /// `last=True` it has to end, and is taken as a whole.
    ///
    /// `last=True` is for a caller who discards: it says that every version is discarded by a call
    /// of `discard` after the last restore that is announced here; an iterable of truth values says
    /// it of each restore. It is advice: nothing is lost when that call does not come.
    ///
    /// Raises:
    ///     OptionError: `versions` is not an iterable of integers, or `last` not one of truth
    ///         values; `last` is not as long as `versions`, or stands beside `once`; or there is no
    ///         end where one is needed.
    ///     CapacityError: the announced restores do not fit into memory.
    ///     ClosedError.
    #[pyo3(signature = (versions, /, *, once=false, last=None))]
    fn expect(
        &self,
        py: Python<'_>,
        versions: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = given::once)] once: bool,
        last: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        guarded(py, || self.order.announce(self.spool(), versions, once, last))
    }

    /// Forgets everything that `expect` has announced. Raises: ClosedError.
    fn forget_hints(&self, py: Python<'_>) -> PyResult<()> {
        self.order.forget();
        guarded(py, || detached(py, None, || self.spool().forget_hints()))
    }

    /// Takes all main memory of the tiers now and waits for it; else it is taken at first use.
    ///
    /// Raises: CapacityError, where the machine has less left; ClosedError.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || detached(py, None, || self.spool().prepare()))
    }

    /// Says that `version` should rest in `tier`, `"device"`, `"host"` or `"disk"`, or a slower
    /// one, until a restore of it is announced and near. It is flushed there without delay, and
    /// goes first where a faster tier needs room.
    #[pyo3(name = "_prefer", signature = (version, tier, /))]
    fn prefer(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
        tier: &str,
    ) -> PyResult<()> {
        let kinds = [TierKind::Device, TierKind::Host, TierKind::Disk];
        let Some(kind) = kinds.into_iter().find(|kind| kind.name() == tier) else {
            let text =
                format!("There is no tier {tier:?}: there are \"device\", \"host\" and \"disk\".");
            return Err(error(py, Class::Option, text));
        };
        guarded(py, || {
            py.detach(|| self.spool().prefer(version, kind)).map_err(|error| {
                // It is the tier that is wrong then, not an array of this version.
                let named = (error.kind() != ErrorKind::Invalid).then_some(version);
                from_spool(py, &error, named)
            })
        })
    }

    /// Frees what was saved under `version`, in every tier. The version may be saved again. Of one
    /// that is `lost()`, what is left is removed, and later openings do not miss it.
    ///
    /// Raises:
    ///     UnknownVersionError, StorageError, ClosedError.
    #[pyo3(signature = (version, /))]
    fn discard(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.call(py, version, || detached(py, Some(version), || this.spool().discard(version)))
    }

    /// Discards later versions, the last one first. Raises: StorageError, ClosedError.
    #[pyo3(signature = (*, after))]
    fn truncate(slf: &Bound<'_, Self>, #[pyo3(from_py_with = version)] after: i64) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let lost = detached(py, None, || this.spool().lost())?.into_keys();
        let versions: BTreeSet<i64> = this.versions(py)?.into_iter().chain(lost).collect();
        for version in versions.into_iter().rev().take_while(|version| *version > after) {
            Self::discard(slf, version)?;
        }
        Ok(())
    }

    /// Discards all checkpoints. Raises: ClosedError.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        own::clear(slf)
    }

    /// The greatest version that is saved and not discarded, or None.
    ///
    /// Raises:
    ///     ClosedError.
    fn latest(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(self.versions(py)?.last().copied())
    }

    /// Waits until every checkpoint is in the slowest tier that can hold it.
    ///
    /// On a durable disk they survive a crash of the machine from then on. `timeout` is the longest
    /// wait in seconds, that of the spool if it is None; `stats().unflushed` says what is still to
    /// come, also to other threads during the wait.
    ///
    /// Raises:
    ///     CapacityError: a checkpoint is larger than the durable disk.
    ///     CapacityError, StorageError, WaitTimeoutError, ClosedError.
    ///     OptionError: `timeout` makes no sense.
    #[pyo3(signature = (*, timeout=None))]
    fn flush(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = given::maybe_timeout)] timeout: Option<f64>,
    ) -> PyResult<()> {
        let timeout = timeout.map(|seconds| options::timeout(py, seconds)).transpose()?;
        guarded(py, || waiting_for(py, None, timeout, |wait| self.spool().flush(wait)))
    }

    /// The saved versions, in ascending order.
    ///
    /// Raises:
    ///     ClosedError.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        leftovers::tidy(py)?;
        guarded(py, || detached(py, None, || self.spool().versions()))
    }

    /// The versions that an earlier run made durable and that are damaged or missing, each with the
    /// file and what is wrong with it. `discard` forgets one of them, and removes what is left of
    /// it; saving it again replaces it.
    ///
    /// Raises:
    ///     ClosedError.
    fn lost(&self, py: Python<'_>) -> PyResult<BTreeMap<i64, String>> {
        guarded(py, || detached(py, None, || self.spool().lost()))
    }

    /// Whether `version` survives a crash of the machine.
    ///
    /// Raises:
    ///     UnknownVersionError, ClosedError.
    #[pyo3(signature = (version, /))]
    fn durable(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<bool> {
        self.call(py, version, || detached(py, Some(version), || self.spool().durable(version)))
    }

    /// What the spool has done so far. Also answered when it is closed.
    ///
    /// Raises:
    ///     ClosedError.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || stats::of(py, self.spool(), &self.energy))
    }

    /// As `stats`, without energy: its counters take milliseconds to be read.
    #[pyo3(name = "_stats")]
    fn quick_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(py, || stats::of(py, self.spool(), &Energy::default()))
    }

    /// Writes what happened when to a file that https://ui.perfetto.dev shows.
    ///
    /// Also answered when the spool is closed.
    ///
    /// Raises:
    ///     OptionError: the spool was not opened with `trace=True`.
    ///     StorageError: the file cannot be written.
    ///     ClosedError.
    #[pyo3(signature = (path, /))]
    fn write_trace(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let path = options::path("path", path)?;
        guarded(py, || detached(py, None, || self.spool().write_trace(&path)))
    }

    /// Ends the work and gives everything back; a second call does nothing.
    ///
    /// A durable spool first writes everything to its disk, within `timeout` seconds (that of the
    /// spool if it is None). What it cannot write is not lost: this raises, the attribute `unsaved`
    /// of the exception lists the versions that are not durable, and the spool stays open as it
    /// was, so that it can be closed again. With `discard_unflushed` they are given up instead, and
    /// a `RuntimeWarning` lists them. Ctrl-C ends the wait; the spool then stays open, too.
    ///
    /// Calls of other threads that wait meanwhile get a `ClosedError`. Leaving a `with` block
    /// closes a spool as well; after an exception, and at the end of the program, what cannot be
    /// written is given up.
    ///
    /// Raises:
    ///     CapacityError, StorageError, WaitTimeoutError: something could not be made durable.
    ///     OptionError: `timeout` makes no sense.
    ///     ClosedError.
    #[pyo3(signature = (*, timeout=None, discard_unflushed=false))]
    fn close(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = given::maybe_timeout)] timeout: Option<f64>,
        discard_unflushed: bool,
    ) -> PyResult<()> {
        let timeout = timeout.map(|seconds| options::timeout(slf.py(), seconds)).transpose()?;
        match discard_unflushed {
            true => closing::close_and_discard(slf, timeout),
            false => closing::close(slf, timeout, Unflushed::Keep),
        }
    }

    /// Whether the spool was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.spool().is_closed()
    }

    /// Where the device tier is, and what the host tier is pinned for: `"cpu"`, or a GPU such as
    /// `"cuda:0"`.
    #[getter]
    fn device(&self) -> String {
        opening::place(self.spool())
    }

    /// The codec that the spool was opened with, or None.
    #[getter]
    fn codec(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.codec.as_ref().map(|codec| codec.clone_ref(py))
    }

    /// Whether the spool was opened with `learn`.
    #[getter]
    fn learn(&self) -> bool {
        self.learn
    }

    /// Whether `version` is saved and not discarded.
    fn __contains__(&self, py: Python<'_>, version: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(version) = version.extract() else {
            return Ok(false);
        };
        guarded(py, || detached(py, Some(version), || self.spool().contains(version)))
    }

    /// The number of checkpoints that are saved and not discarded.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.versions(py)?.len())
    }

    /// As `load(version)`.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = version)] version: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.loaded(py, version, Wanted { to: "numpy", device: None })
    }

    /// The saved versions, in ascending order; those of the moment at which this begins.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.versions(py)?)?.try_iter()
    }

    /// An empty spool is still a spool.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        self.shown(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the spool. After an exception of the block what cannot be made durable is given up;
    /// that and all else that goes wrong then is added to the exception as a note.
    fn __exit__(
        slf: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        closing::exit(slf, raised).map(|()| false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.order.traverse(&visit)
    }

    fn __clear__(&self) {
        self.order.forget();
    }

    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = "A spool holds memory, files and threads of this process, so that it cannot \
                       be copied, pickled or sent to another one. Open a spool in each process.";
        Err(error(py, Class::Option, message))
    }
}
