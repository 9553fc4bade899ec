"""The extension module. Import its names from `unspool`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex, final, overload

from ._types import Debug, Disk, Region
from .codecs.values import Achieved, Codec, Codecs
from .stats import Stats

__version__: str

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Size = int | float | str
# A handle, or a stream of CuPy or PyTorch or with `__cuda_stream__`.
_Stream = Any

class Spool:
    """One history of checkpoints, with its tiers and the workers that move them.

    A checkpoint is one or several arrays under an integer, its version, usually the time step. It
    never changes. It is saved into the fastest tier with room and flows to the slower ones by
    itself; what `expect` announces comes back to the fastest tier before it is restored. The tiers
    together may be much smaller than the history, as long as the slowest one can hold it.

    The order in which room is made is that of Score (Maurya et al., "GPU-Enabled Asynchronous
    Multi-level Checkpoint Caching and Prefetching", HPDC 2023, Algorithm 1).

    All methods may be called from several threads. While one waits or copies, other Python threads
    run, and Ctrl-C ends the wait. Arrays that another thread writes while they are being saved are
    saved as some mixture of old and new items. Calls on a closed spool raise `ClosedError`.

    Arguments:
        device_memory: the size of the device tier: memory of the GPU, or main memory that stands
            for it. Sizes are integers in bytes, or text with a unit: `"512MiB"` is 512 * 2**20
            bytes, `"1.5GB"` is 1,500,000,000, and `"auto"` takes a share of what is free; `repr`
            and `stats` say how much that was.
        host_memory: the size of the host tier: main memory, pinned if there is a GPU.
        disk: the disk tier: a directory, a pair such as `("/scratch", "100GiB")`, or a `Disk`.
            Without any of the three, the host tier is `"auto"`, and a disk tier is in `TMPDIR`, or
            else in `/var/tmp`, if that is on a disk: a tier for what memory does not hold.
        device: the place of the device tier: `"cuda"` or `"cuda:1"` for a GPU, `"cpu"` for main
            memory. `"auto"` takes the GPU that is current on this thread, or else, if there is a
            device tier, the first one; main memory where there is no GPU.
        learn: announce restores as `expect` does, from what earlier iterations of a loop restored;
            what `expect` itself announces goes first.
        timeout: the longest that one call waits, in seconds.
        verify: compare the checksum of what is read back from disk.
        shrink_ok: be content with a smaller device tier when the GPU has less memory free, with a
            `RuntimeWarning`.
        codec: what is done with the bytes of every array (see the guide on compression): None keeps
            them, `"lossless"` loses nothing, a `Bound` holds for every value of floating point
            (integers are then taken without loss), `Zfp` is for exchange with other programs,
            `"auto"` chooses for each checkpoint among those that lose nothing, on a GPU those of
            nvCOMP too, by what was measured. A mapping has one for each array by name (by position,
            `0`), and `"*"` for all others; `close` warns of a name that no array had.
        debug: a `Debug`, for those who look for a fault.

    Raises:
        OptionError: an option makes no sense or does not exist.
        StorageError: a tier cannot be made: no memory, no such directory, no permission.
        DeviceError: the machine has no GPU of that name, or CUDA refused.
    """

    def __new__(
        cls,
        device_memory: _Size | Literal["auto"] | None = None,
        host_memory: _Size | Literal["auto"] | None = None,
        disk: _Path | tuple[_Path, _Size] | Disk | None = None,
        *,
        device: str = "auto",
        shrink_ok: bool = False,
        codec: Codecs = None,
        learn: bool = True,
        timeout: float = 300.0,
        verify: bool = True,
        debug: Debug | None = None,
    ) -> Self: ...
    @overload
    def save(
        self,
        version: SupportsIndex,
        /,
        *arrays: Any,
        stream: _Stream = None,
        codec: Codecs = None,
        overwrite: bool = False,
        donate: bool = False,
    ) -> None: ...
    @overload
    def save(
        self,
        version: SupportsIndex,
        /,
        *,
        stream: _Stream = None,
        codec: Codecs = None,
        overwrite: bool = False,
        donate: bool = False,
        **named: Any,
    ) -> None:
        """Saves arrays under `version`: `save(3, u, v)` or `save(3, u=u, v=v)`; numbers and texts
        may stand beside them, and what holds all of it may be given: `save(3, {"u": u, "t": 0.1})`.

        The arrays may be of any shape, dtype and layout: those of NumPy, CuPy, PyTorch and JAX, and
        everything with the buffer protocol, DLPack or the CUDA array interface. They may be changed
        as soon as this returns. Waits when there is no room, until some was made.

        Arrays on a GPU are copied on the current stream of their library, or on `stream`: a stream
        of CuPy or PyTorch, an object with `__cuda_stream__`, or the handle as an integer. This
        returns when the copy is enqueued; what is enqueued there later may change them. An array
        that is called `stream`, `codec`, `overwrite` or `donate` has to be given by position.

        `codec` takes the place of the spool's for this checkpoint; here `"raw"` keeps the bytes.
        Arrays on a GPU are encoded there, on the same stream. Where the device tier has room for
        fewer than eight checkpoints without a codec, this may wait until they are.

        Dictionaries (`OrderedDict`, `defaultdict`, `Counter` too), lists, deques, sets, tuples,
        named tuples, dataclasses, and an `xarray.Dataset` or `DataArray` may hold arrays, numbers,
        texts, True, False, None, enumerations, and one another. `load` gives the same back. Arrays
        are regions with the way to them as names: `"model/u"`. Pass other subclasses as `dict(it)`.

        With `overwrite=True`, what was saved under `version` before is discarded first, and is gone
        also when this save fails. With `donate=True` the array is given away, and nobody writes to
        it any more: one dense array on the GPU of the device tier that no codec encodes is not
        copied. Its memory is the copy, and the spool lets go of it in stream order.

        Raises:
            VersionExistsError: the version is already saved.
            UnknownVersionError: another thread is saving it.
            ArrayError: an argument is not an array that can be read here; no array was given; or
                some arrays were given by position and some by name; or one to donate is read-only.
            DeviceError: an array or the stream is of another GPU than the spool; CUDA refused; the
                stream is being captured; or there is no CUDA driver for an array on a GPU.
            CapacityError: the arrays are larger than every tier, or nothing in full ones can go.
            OptionError: `stream` is not a stream, or `codec` not a codec.
            CorruptCheckpointError: with `check_codec`, what was encoded breaks its bound.
            WaitTimeoutError, StorageError, ClosedError.
        """

    def save_many(
        self,
        checkpoints: Mapping[int, Any] | Iterable[tuple[SupportsIndex, Any]],
        /,
        *,
        stream: _Stream = None,
        codec: Codecs = None,
    ) -> None:
        """Saves several checkpoints by one call: `save_many({3: u, 4: (u, v)})`, or pairs as in
        `save_many([(3, u), (4, {"u": u, "v": v})])`.

        The arrays of each are one array, a tuple or a list of them, or a dictionary with their
        names, as `load` returns them, and are taken as by `save`. Those of a GPU are encoded by one
        launch, so that many small checkpoints cost little more than one.

        Each is saved as a whole or not at all. When some are not, the exception is that of the
        first one, and its attribute `unsaved` lists their versions: these can be given again. After
        one for which there is no room, those that follow are not tried.

        Raises:
            ArrayError: an entry is not a pair of a version and arrays, a version is there twice, or
                there are more than 131,072 entries. Nothing was saved.
            All that `save` raises.
        """

    @overload
    def restore(self, version: SupportsIndex, /, *arrays: Any, stream: _Stream = None) -> None: ...
    @overload
    def restore(self, version: SupportsIndex, /, *, stream: _Stream = None, **named: Any) -> None:
        """Copies what was saved under `version` into arrays: `restore(3, u, v)` or
        `restore(3, u=u, v=v)`, in the way in which it was saved. Of arrays that were saved by name,
        some may be given: the others stay as they are. This counts as one restore all the same.

        Into what holds arrays, numbers and texts, as `save` takes it, the arrays are copied, and
        then the numbers and texts are written: where a tuple or a frozen dataclass holds them, they
        have to be those that were saved. The outermost dictionary may lack keys; others may not. An
        empty dictionary or list gets new arrays of the same library, with a `RuntimeWarning`.

        The arrays have the shapes and dtypes of those that were saved; their layout and their
        library may differ. Waits for data that is still on its way. The checkpoint stays, unless
        its restores were announced with `once=True`. After an error in the middle of a copy
        the arrays hold unspecified values.

        Arrays on a GPU are written on the current stream of their library, or on `stream`, as in
        `save`: what is enqueued there later sees the data. For libraries whose stream is not known
        this waits until the data is there.

        Raises:
            UnknownVersionError: no checkpoint has this version.
            ArrayError: the number or the names of the arrays, or what holds them, differ from what
                was saved; an array has another shape or dtype, is read-only (as those of JAX are),
                has items that share memory, or cannot be written here.
            DeviceError, OptionError: as for `save`.
            CorruptCheckpointError, LostCheckpointError: the bytes are not those that were saved.
            WaitTimeoutError, StorageError, ClosedError.
        """

    def load(
        self,
        version: SupportsIndex,
        /,
        *names: str,
        region: Any = None,
        to: Literal["numpy", "cupy", "torch", "jax"] = "numpy",
        device: str | None = None,
    ) -> Any:
        """What was saved under `version`, as new arrays of the library `to`: `"numpy"`, `"cupy"`,
        `"torch"` or `"jax"`.

        They are made on `device`: `"cpu"`, `"cuda"` or `"cuda:0"` and so on. Without it, those of
        CuPy, PyTorch and JAX are made on the GPU of the spool, if it has one.

        With `names` it is only these arrays, or entries of the dictionary that was saved: the
        value of one, a dictionary of several. `region` is a part of an array, as an index of NumPy:
        `load(7, "u", region=np.s_[0:10, ..., 3])`. From a durable tier only that is read, in pieces
        of 64 KiB; encoded arrays are read whole. Such a look is no restore.

        Returns:
            One array when one was saved by position, a tuple when several were, a dictionary when
            they were saved by name; and what holds them where that was saved. Nothing is unpickled:
            the module of a dataclass has to be imported, and its object is made field by field.

        Raises:
            OptionError: there is no library `to` here, or it has no arrays on `device`; nothing was
                saved under one of `names`, or an array has no such `region`.
            DeviceError: the spool is on another GPU.
            MissingLibraryError: it, or `ml_dtypes` for bfloat16 in NumPy, is not installed.
            ArrayError: it has no such dtype; or the class of a dataclass is not loaded.
            All that `restore` raises for a version.
        """

    def _expect_bytes(self, bytes: int) -> None: ...
    def _read_parts(self, version: int, index: int, parts: Any, into: Any, /) -> bool: ...
    def _stored(self, version: int, /) -> Any | None: ...
    def _load_parts(self, version: SupportsIndex, /) -> dict[str, Any]: ...
    @overload
    def writing(
        self,
        version: SupportsIndex,
        shape: int | Sequence[int],
        dtype: Any,
        /,
        *,
        stream: _Stream = None,
        to: Literal["numpy", "cupy", "torch"] | None = None,
    ) -> Writing: ...
    @overload
    def writing(
        self,
        version: SupportsIndex,
        /,
        *,
        stream: _Stream = None,
        to: Literal["numpy", "cupy", "torch"] | None = None,
        **named: tuple[int | Sequence[int], Any],
    ) -> Writing:
        """A `with` block in which checkpoint `version` is computed in the spool's own memory:
        `with spool.writing(3, (100, 100), "float32") as u:`, or several arrays by name, as in
        `spool.writing(3, u=(shape, dtype), v=(shape, dtype))`, which gives a dictionary.

        The block gives a `DeviceBuffer` for a device tier on a GPU and a `HostBuffer` otherwise,
        or with `to` an array of that library (`"cupy"`, `"torch"` or `"numpy"`) over the same
        memory. What is in it at first is unspecified. Leaving the block saves the checkpoint, as it
        is when the work on `stream` is done; leaving it by an exception gives it up. Without
        `stream`, that is the work on the current streams of CuPy and PyTorch, or else on the legacy
        default stream. Where the device tier is full of what cannot be given up yet, the memory is
        a temporary one of the GPU, and leaving the block copies it.

        After the block the memory is the spool's again: an array over it is not unmapped, but what
        it shows is unspecified, and what is written through it would change a checkpoint. The array
        of `to="numpy"` becomes read-only. Other arrays, and views that were made of it, stay as
        they are: with `check_order` the next restore of a checkpoint that was changed so in main
        memory is a `CorruptCheckpointError`.

        Raises:
            ArrayError: a shape or a dtype is missing.
            OptionError: a shape, a dtype, `stream` or `to` makes no sense.
            CapacityError: it is larger than the fastest tier; use `save`.
            All that `save` raises for a version, when the block is entered or left.
        """
    def reading(
        self,
        version: SupportsIndex,
        /,
        *,
        stream: _Stream = None,
        to: Literal["numpy", "cupy", "torch", "jax"] | None = None,
    ) -> Reading:
        """A `with` block in which checkpoint `version` is read in the spool's own memory:
        `with spool.reading(3) as u:`.

        The block gives what `load` would return, as `DeviceBuffer`s for a device tier on a GPU and
        `HostBuffer`s otherwise, or with `to` as arrays of that library over the same memory. They
        must not be written. A checkpoint that is not in the fastest tier when its turn comes is
        copied to temporary memory. Leaving the block counts as a restore that ends when the work on
        `stream` is done (without it, as for `writing`); leaving it by an exception does not count.

        After the block the memory is the spool's again: arrays over it are not unmapped, but what
        they show is unspecified.

        Raises:
            OptionError: `stream` or `to` makes no sense.
            All that `restore` raises for a version, when the block is entered or left.
        """
    def regions(self, version: SupportsIndex, /) -> tuple[Region, ...]:
        """The names, dtypes and shapes of what was saved under `version`. Nothing is moved.

        Raises:
            UnknownVersionError, ClosedError.
        """

    def achieved(self, version: SupportsIndex, /) -> dict[str, Achieved]:
        """What the codecs did with the arrays of `version`: for each one by name, or by position as
        `"0"`, `"1"`, ..., its sizes and its error.

        Waits for encoders on a GPU that are not done yet.

        Raises:
            UnknownVersionError, WaitTimeoutError, ClosedError.
        """

    def expect(
        self,
        versions: Iterable[SupportsIndex],
        /,
        *,
        once: bool = False,
        last: bool | Iterable[bool] | None = None,
    ) -> None:
        """Announces restores, in this order, after those that were announced before.

        A version may be announced several times, and before it is saved. Others are served, too.

        With `once=True` every version is discarded when the last restore of it that is announced
        here is done. Such checkpoints are not moved to slower tiers while there is room. Where some
        are not saved yet, nothing is brought back before the first restore.

        The spool looks at most 16,384 restores ahead. An iterator or a range may be longer, or
        never end: more is taken from it as restores are made, and what it raises then is raised by
        a restore, before that has begun, and ends the announcement. With `once=True` and with
        `last=True` it has to end, and is taken as a whole.

        `last=True` is for a caller who discards: it says that every version is discarded by a call
        of `discard` after the last restore that is announced here; an iterable of truth values says
        it of each restore. It is advice: nothing is lost when that call does not come.

        Raises:
            OptionError: `versions` is not an iterable of integers, or `last` not one of truth
                values; `last` is not as long as `versions`, or stands beside `once`; or there is no
                end where one is needed.
            CapacityError: the announced restores do not fit into memory.
            ClosedError.
        """

    def forget_hints(self) -> None:
        """Forgets everything that `expect` has announced. Raises: ClosedError."""
    def prepare(self) -> None:
        """Takes all main memory of the tiers now and waits for it; else it is taken at first use.

        Raises: CapacityError, where the machine has less left; ClosedError.
        """

    def _prefer(self, version: SupportsIndex, tier: str, /) -> None: ...
    def discard(self, version: SupportsIndex, /) -> None:
        """Frees what was saved under `version`, in every tier. The version may be saved again. Of
        one that is `lost()`, what is left is removed, and later openings do not miss it.

        Raises:
            UnknownVersionError, StorageError, ClosedError.
        """

    def truncate(self, *, after: SupportsIndex) -> None:
        """Discards later versions, the last one first. Raises: StorageError, ClosedError."""
    def clear(self) -> None:
        """Discards all checkpoints. Raises: ClosedError."""
    def latest(self) -> int | None:
        """The greatest version that is saved and not discarded, or None.

        Raises:
            ClosedError.
        """

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until every checkpoint is in the slowest tier that can hold it.

        On a durable disk they survive a crash of the machine from then on. `timeout` is the longest
        wait in seconds, that of the spool if it is None; `stats().unflushed` says what is still to
        come, also to other threads during the wait.

        Raises:
            CapacityError: a checkpoint is larger than the durable disk.
            CapacityError, StorageError, WaitTimeoutError, ClosedError.
            OptionError: `timeout` makes no sense.
        """

    def versions(self) -> list[int]:
        """The saved versions, in ascending order.

        Raises:
            ClosedError.
        """

    def lost(self) -> dict[int, str]:
        """The versions that an earlier run made durable and that are damaged or missing, each with
        the file and what is wrong with it. `discard` forgets one of them, and removes what is left
        of it; saving it again replaces it.

        Raises:
            ClosedError.
        """

    def durable(self, version: SupportsIndex, /) -> bool:
        """Whether `version` survives a crash of the machine.

        Raises:
            UnknownVersionError, ClosedError.
        """

    def stats(self) -> Stats:
        """What the spool has done so far. Also answered when it is closed.

        Raises:
            ClosedError.
        """

    def write_trace(self, path: _Path, /) -> None:
        """Writes what happened when to a file that https://ui.perfetto.dev shows.

        Also answered when the spool is closed.

        Raises:
            OptionError: the spool was not opened with `trace=True`.
            StorageError: the file cannot be written.
            ClosedError.
        """

    def close(self, *, timeout: float | None = None, discard_unflushed: bool = False) -> None:
        """Ends the work and gives everything back; a second call does nothing.

        A durable spool first writes everything to its disk, within `timeout` seconds (that of the
        spool if it is None). What it cannot write is not lost: this raises, the attribute `unsaved`
        of the exception lists the versions that are not durable, and the spool stays open as it
        was, so that it can be closed again. With `discard_unflushed` they are given up instead, and
        a `RuntimeWarning` lists them. Ctrl-C ends the wait; the spool then stays open, too.

        Calls of other threads that wait meanwhile get a `ClosedError`. Leaving a `with` block
        closes a spool as well; after an exception, and at the end of the program, what cannot be
        written is given up.

        Raises:
            CapacityError, StorageError, WaitTimeoutError: something could not be made durable.
            OptionError: `timeout` makes no sense.
            ClosedError.
        """

    @property
    def closed(self) -> bool:
        """Whether the spool was closed."""

    @property
    def device(self) -> str:
        """Where the device tier is, and what the host tier is pinned for: `"cpu"`, or a GPU such as
        `"cuda:0"`.
        """

    @property
    def codec(self) -> Any:
        """The codec that the spool was opened with, or None."""

    @property
    def learn(self) -> bool:
        """Whether the spool was opened with `learn`."""

    def __getitem__(self, version: SupportsIndex, /) -> Any:
        """As `load(version)`."""

    def __iter__(self) -> Iterator[int]:
        """The saved versions, in ascending order; those of the moment at which this begins."""

    def __contains__(self, version: object, /) -> bool:
        """Whether `version` is saved and not discarded."""

    def __len__(self) -> int:
        """The number of checkpoints that are saved and not discarded."""

    def __bool__(self) -> Literal[True]:
        """True: an empty spool is still a spool."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _class: type[BaseException] | None,
        raised: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> Literal[False]:
        """Closes the spool. What goes wrong then does not hide an exception of the block: it is
        added to it as a note.
        """

@final
class Writing:
    """A `with` block in which a checkpoint is computed in place; see `Spool.writing`."""

    def __enter__(self) -> Any:
        """Waits for room and gives it: one buffer, or a dictionary of them."""
    def __exit__(
        self,
        _class: type[BaseException] | None,
        raised: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> Literal[False]:
        """Saves the checkpoint, ordered after what is enqueued; after an exception gives it up."""

@final
class Reading:
    """A `with` block in which a checkpoint is read where it lies; see `Spool.reading`."""

    def __enter__(self) -> Any:
        """Waits for the checkpoint and gives it: one buffer, a tuple or a dictionary of them."""
    def __exit__(
        self,
        _class: type[BaseException] | None,
        raised: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> Literal[False]:
        """The restore counts, once what is enqueued is done; after an exception it does not."""

@final
class HostBuffer:
    """Memory of a spool in main memory: dense items in C order.

    It becomes an array of another library without a copy: `numpy.asarray(buffer)`,
    `torch.from_dlpack(buffer)`, and whatever else takes DLPack or the buffer protocol. It may only
    be used while the `with` block of `Spool.writing` or `Spool.reading` that gave it is open.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions, slowest first."""
    @property
    def dtype(self) -> str:
        """The name of the type of its items, such as `"float32"`."""
    @property
    def nbytes(self) -> int:
        """The bytes of its items."""
    @property
    def device(self) -> str:
        """Where it lies: `"cpu"`."""
    @property
    def ptr(self) -> int:
        """The address of its first item."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Version 3 of NumPy's interface; items that it has no name for are raw bytes."""
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A fresh DLPack capsule."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU as DLPack numbers it."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class DeviceBuffer:
    """Memory of a spool on a GPU: dense items in C order.

    It becomes an array of another library without a copy: `cupy.asarray(buffer)`,
    `torch.from_dlpack(buffer)`, and whatever else takes DLPack or the CUDA array interface. It may
    only be used while the `with` block of `Spool.writing` or `Spool.reading` that gave it is open.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions, slowest first."""
    @property
    def dtype(self) -> str:
        """The name of the type of its items, such as `"float32"`."""
    @property
    def nbytes(self) -> int:
        """The bytes of its items."""
    @property
    def device(self) -> str:
        """Where it lies, such as `"cuda:0"`."""
    @property
    def ptr(self) -> int:
        """The address of its first item."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface. The current streams of CuPy and PyTorch wait for the data;
        where neither is in use, the interface names the stream on which it is ready.
        """
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A fresh DLPack capsule; what is enqueued on `stream` from now on finds the data."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """The device as DLPack numbers it."""
    def __array__(self, *_arguments: Any, **_options: Any) -> None: ...

@final
class Exporter:
    """An empty buffer of items with a given format: what NumPy needs to see to name the dtype."""

    def __new__(cls, format: str, itemsize: int) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def close_all() -> None:
    """Closes every spool that is still open, and warns of what could not be made durable."""

def trim() -> int:
    """Gives back host memory that closed spools of this process have left; returns its bytes.

    Host memory for a GPU is touched and registered with the driver, which takes long. That of a
    closed spool is kept for the next one: for at most a minute, never more than the machine has
    free memory left, and only until another spool needs the room.
    """

def size_in_bytes(text: str, /) -> int:
    """The bytes of a size as text. A `ValueError` ends a sentence that says what to write."""

def duration_in_seconds(text: str) -> float: ...
def automatic_rule(ranks: int) -> tuple[float, float]: ...
def examine(
    disk: str | None, cuda: bool, measure: bool, folders: Sequence[str], limit: float
) -> dict[str, Any]:
    """What this machine has, as nested dictionaries. `folders`: where the compiler for kernels may
    be; `limit`: seconds that the driver, and then the disk, may take to answer.
    """

_Errors = tuple[int, float, float, int]

def codecs_of(value: Any, place: str) -> tuple[Codec, dict[str, Codec]]:
    """The codec of all arrays and those of single ones, of what `codec=` was given at `place`."""

def codec_room(dtype: str, shape: Sequence[int], codec: Any, outer: str | None) -> int: ...
def codec_encode(
    source: Any, dtype: str, shape: Sequence[int], codec: Any, outer: str | None, target: Any
) -> tuple[str, int, _Errors, bool]: ...
def codec_checksum(data: Any) -> int: ...
def codec_decode(
    stored: Any, dtype: str, shape: Sequence[int], codec: Any, outer: str | None, target: Any
) -> None: ...

_Word = tuple[int, int, int, str | None]

@final
class BatchCore:
    def __init__(self, spool: Spool, together: Any, has_plan: bool) -> None: ...
    @property
    def most(self) -> tuple[int, int]: ...
    def save(
        self,
        version: int,
        arrays: tuple[Any, ...],
        named: dict[str, Any],
        stream: Any,
        codec: Any,
        together: bool,
    ) -> None: ...
    def hand_over(self, version: int | None = None, timeout: float | None = None) -> None: ...
    def waits(self) -> list[int]: ...
    def regions(self, version: int) -> list[Any]: ...
    def end(self) -> None: ...

class ScheduleCore:
    """A schedule that is somewhere in its actions.

    `unspool.schedules` makes them; every iteration has one of its own.
    """

    @staticmethod
    def store_all(steps: int) -> ScheduleCore: ...
    @staticmethod
    def revolve(steps: int, slots: int) -> ScheduleCore: ...
    @staticmethod
    def online_revolve(slots: int) -> ScheduleCore: ...
    @staticmethod
    def uniform(steps: int, slots: int) -> ScheduleCore: ...
    @staticmethod
    def z_cut(steps: int, knob: str, value: int) -> ScheduleCore:
        """`knob`: what `value` is: `"cuts"`, `"length"` or `"slots"`."""

    @staticmethod
    def multi_level(
        steps: int, levels: Sequence[tuple[str, int | None, float, float]], step_seconds: float
    ) -> ScheduleCore:
        """`levels`: of each tier its name, its slots or None, seconds to write and to read."""

    @staticmethod
    def trace(text: str) -> ScheduleCore:
        """A text in GPUZIP's format."""

    @staticmethod
    def listed(words: Iterable[_Word]) -> ScheduleCore:
        """Actions as tuples; they are checked."""

    def copy(self) -> ScheduleCore:
        """Another one that is as far as this one."""

    @property
    def steps(self) -> int | None:
        """The number of steps, or None while it is not known."""

    @property
    def slots(self) -> int:
        """The most copies that it keeps at a time."""

    def take(self, count: int) -> list[_Word]:
        """The next `count` actions, fewer at the end. As long as the number of steps is not known a
        `Forward` is the last one: it may end early.
        """

    def finish(self, steps: int) -> None:
        """The forward pass has ended with the working state being state `steps`."""

    def counts(self, steps: int | None = None) -> dict[str, Any]:
        """What all actions that are left cost; this one stays where it is. `steps`: where the
        forward pass ends, for a schedule that does not know it.
        """

@final
class Interpreter:
    """Follows a schedule action by action and refuses the first one that breaks a rule."""

    def __new__(cls, steps: int | None = None, slots: int | None = None) -> Self: ...
    def see(self, words: Iterable[_Word]) -> tuple[int, str | None]: ...
    def stopped_at(self, steps: int) -> None: ...
    def finish(self) -> None: ...
    def counts(self) -> dict[str, Any]: ...

@final
class Ahead:
    """Turns the actions of a schedule into what `Spool.expect` takes.

    `first`: the version of state 0; `at_end`: the version of the state that the driver keeps while
    it takes the last step, which is restored at the first `Reverse`.
    """

    def __new__(cls, first: int, at_end: int | None = None) -> Self: ...
    def keep(self, steps: Iterable[int]) -> None: ...
    def see(self, words: Iterable[_Word]) -> tuple[list[int], list[bool]]: ...
    def draw(self, core: ScheduleCore, count: int) -> tuple[list[int], list[bool]]: ...

@final
class Uses:
    """Of every state that was kept, whether a `Forward` or a `Save` ever relies on it."""

    def __new__(cls, at_end: bool = False) -> Self: ...
    def keep(self, steps: Iterable[int]) -> None: ...
    def see(self, words: Iterable[_Word]) -> None: ...
    def draw(self, core: ScheduleCore) -> None: ...
    def only_reversed(self, number: int) -> bool: ...

# What `unspool.Checkpointer`, `unspool.paged` and `unspool.messages` are made of.
RestartCore: Any
PagedMemory: Any
PagedPin: Any
MessageDevices: Any

def trace_text(words: Iterable[_Word]) -> str:
    """A schedule in GPUZIP's text format, which has no tiers and no discards.

    Raises:
        ScheduleError: an item is not an action, or the text would have too many lines: one for
        each step of a `Forward`.
    """

def plan_accumulation(asked: Mapping[str, Any], /) -> dict[str, Any]: ...
def follow_accumulation(asked: Mapping[str, Any], decisions: Sequence[str], /) -> Any: ...
def forecast(
    schedule: ScheduleCore, job: Mapping[str, Any], sample: ScheduleCore | None = None
) -> dict[str, Any]:
    """Predicts what the schedule costs on the machine and with the spool that `job` describes.

    `sample`: a shorter schedule of the same shape, run instead of one that is too long.
    """

# What `unspool.jax` is made of.
def jax_handlers() -> list[tuple[str, int, int]]: ...
def jax_loop(spools: Sequence[Spool], codec: Any = None) -> int: ...
def jax_may_join(number: int) -> bool: ...
def jax_forget(spool: Spool | None = None) -> int: ...
def jax_drop(number: int) -> None: ...
def jax_give_up(number: int) -> None: ...
def jax_tidied_by(asked: Any) -> Any: ...
def jax_tidy(live: set[int], of_python: bool, alone: bool, run: int | None) -> None: ...
