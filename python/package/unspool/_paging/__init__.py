"""`unspool.paged`: NumPy arrays larger than memory."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .._files import AnyPath, absolute
from .._types import Disk
from .._unspool import PagedMemory, size_in_bytes
from ..errors import MissingLibraryError, OptionError, shown

if TYPE_CHECKING:
    from ..codecs import Bound
    from .array import PagedArray

__all__ = ["paged"]

Order = Literal["sweep"] | Sequence[int | slice]


def paged(
    shape: int | Sequence[int],
    dtype: Any = float,
    resident: int | float | str = "4GiB",
    *,
    codec: Bound | Literal["lossless", "lz4", "zstd"] | None = "lossless",
    order: Order | None = None,
    disk: Disk | AnyPath | None = None,
    host_memory: int | float | str | None = None,
    chunk: int | str | None = None,
    threads: int | None = None,
    user_mode_only: bool = False,
) -> PagedArray:
    """A NumPy array of zeros of which at most `resident` bytes are in memory at a time; the rest is
    kept encoded, in memory or on a disk, and comes back when it is touched, or before.

    The array is an ordinary one: what takes NumPy arrays takes it, from any thread, and views and
    slices are of the same memory. It is given back when the last of them is gone. An array that is
    not larger than `resident` is ordinary memory.

    Args:
        shape: its shape, in C order.
        dtype: its dtype; any but those with Python objects.
        resident: the most bytes of it in memory, as an integer or as text such as `"4GiB"`; at
            least four chunks. Besides, each thread works in one to two chunks.
        codec: how chunks are encoded: `"lossless"` (Twine or LZ4 for numbers, LZ4 for booleans,
            structured and all other dtypes), `"lz4"`, `"zstd"`, None for not at all, or a bound of
            the values by themselves (`Bound(abs=...)`, `Bound(pointwise=...)`) for floats. With a
            bound, every time that a chunk is written to and encoded again may add the bound once
            more to any of its values; `PagingStats.lossy_most` counts how often that was.
        order: the order in which the program will go through the array, as for
            `PagedArray.expect`.
        disk: a directory, or a `Disk` with one and a `capacity`, for encoded chunks beyond
            `host_memory`.
        host_memory: the most bytes of encoded chunks in memory; None for no limit.
        chunk: bytes that are moved at a time, a multiple of the page of 4 KiB; None for 256 KiB to
            2 MiB, as suits `resident`.
        threads: threads that answer page faults; None for 2 to 4, as suits the machine.
        user_mode_only: do not let system calls fault on the array even where the kernel allows
            that.

    Raises:
        OptionError: an argument makes no sense.
        RefusedError: the kernel does not let this process answer page faults.
        CapacityError: there is no memory for it.
        StorageError: the disk cannot be opened.
        MissingLibraryError: NumPy is not installed.
    """
    try:
        array = importlib.import_module("unspool._paging.array")
    except ModuleNotFoundError as missing:
        raise MissingLibraryError("paged() makes a NumPy array: pip install numpy.") from missing
    options = {
        "codec": codec,
        "disk": _disk(disk),
        "host": None if host_memory is None else _size("host_memory", host_memory),
        "chunk": None if chunk is None else _size("chunk", chunk),
        "threads": threads,
        "user_mode_only": user_mode_only,
    }
    dtype, shape, nbytes = array.checked(shape, dtype)
    memory = PagedMemory(nbytes, array.name_of(dtype), _size("resident", resident), **options)
    made = array.PagedArray(shape, dtype, memory)
    if order is not None:
        made.expect(order)
    return made


def _size(name: str, value: int | float | str) -> int:
    if isinstance(value, str):
        try:
            return size_in_bytes(value)
        except ValueError as wrong:
            raise OptionError(f"paged({name}={shown(value)}): {wrong}.") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1 << 63:
        raise OptionError(f'paged({name}={shown(value)}): give bytes, or text such as "4GiB".')
    return int(value)


def _disk(disk: Disk | AnyPath | None) -> tuple[str, int | None] | None:
    if disk is None:
        return None
    if not isinstance(disk, Disk):
        return str(absolute(disk, "disk")), None
    if disk.durable or disk.mode != "a" or disk.compress is not None:
        raise OptionError(
            f"paged(disk={disk!r}): what is put there is gone with the array and encoded already; "
            "give a Disk with a path and a capacity only."
        )
    return str(absolute(disk.path, "disk")), None if disk.capacity is None else _size(
        "disk", disk.capacity
    )
