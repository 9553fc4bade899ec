"""The array of `unspool.paged`. It is imported when one is made: NumPy is not needed before."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._unspool import PagedMemory
from ..errors import ArrayError, OptionError, StorageError, shown
from ..stats import PagingStats

__all__ = ["PagedArray", "checked", "name_of"]

# An order that is given may be an iterator without an end.
_MOST_PARTS = 1 << 20

_NUMBERS = frozenset(
    """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
    complex128""".split()
)


def checked(shape: int | Sequence[int], dtype: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """The dtype, the shape and the bytes of an array.

    Raises:
        OptionError: there is no such array, or it would have Python objects in it.
    """
    try:
        dtype = np.dtype(dtype)
        shape = (shape,) if hasattr(shape, "__index__") else shape
        shape = tuple(operator.index(extent) for extent in shape)
    except (TypeError, ValueError, SyntaxError) as wrong:
        raise OptionError(f"paged(): {wrong}.") from None
    if dtype.hasobject:
        raise OptionError(
            f"paged(dtype={dtype}): Python objects cannot be put aside: their addresses are "
            "counted elsewhere. Use a dtype of fixed size."
        )
    nbytes = dtype.itemsize
    for extent in shape:
        if extent < 0:
            raise OptionError(f"paged(shape={shown(shape)}): no extent may be negative.")
        nbytes *= extent
    if nbytes > np.iinfo(np.intp).max:
        raise OptionError(f"paged(shape={shown(shape)}): it has more bytes than addresses can be.")
    return dtype, shape, nbytes


def name_of(dtype: np.dtype[Any]) -> str:
    """How Unspool calls the items of a dtype, for the codec."""
    if dtype.isnative and dtype.name in _NUMBERS:
        return dtype.name
    return f"opaque{dtype.itemsize}:{dtype.kind}"


class PagedArray(np.ndarray[Any, Any]):
    """A NumPy array of which a part is in memory at a time; `unspool.paged` makes it.

    Its views and slices are of this class and of the same memory. What is computed from it is an
    ordinary array. A forked child does not have its memory, and touching it there ends the child.
    """

    def __new__(cls, shape: tuple[int, ...], dtype: Any, memory: PagedMemory) -> PagedArray:
        return super().__new__(cls, shape, dtype, buffer=memory)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # What was computed lies in ordinary memory, unless it was computed in place.
        if isinstance(array, PagedArray) and _memory(array) is not None:
            return array
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def tofile(self, *args: Any, **options: Any) -> None:
        """As of an ordinary array, and by `numpy.save`; where the kernel may not fault on this
        memory, the error says what to do.

        Raises:
            StorageError: the kernel may not read what is not in memory: pin it, or copy it.
            OSError: the file cannot be written.
        """
        try:
            super().tofile(*args, **options)
        except OSError as why:
            memory = _memory(self)
            if memory is None or memory.stats()["kernel_faults"]:
                raise
            raise StorageError(
                f"{why}: the kernel may not read a part of a paged array that is not in memory. "
                "Write it in parts, each in `with array.pinned(slice(a, b)) as part:`, or save a "
                "copy: `numpy.array(array)`."
            ) from why

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)

    def expect(self, order: Any) -> None:
        """Takes the order in which the program will go through this array from now on, again and
        again, from its beginning. It is advice: another order is served as well, and one that the
        program does not keep is left.

        Args:
            order: `"sweep"` for all of it, from its first to its last item; or indices and slices
                of the first axis, such as `[*range(n), *reversed(range(n))]` for there and back;
                None forgets what was given, so that sweeps are found out again.

        Raises:
            OptionError: the order is empty, names what is not there, or has more than 2**20 parts.
            ArrayError: this array is not of paged memory.
        """
        memory = _needed(self)
        if order is None:
            memory.expect(None)
        elif isinstance(order, str):
            if order != "sweep":
                raise OptionError(f'expect({order!r}): write "sweep", or a list of indices.')
            memory.expect([_part(memory, self)])
        else:
            rows = [_row(item, len(self)) for item in _bounded(order)]
            memory.expect([_part(memory, self[row]) for row in rows])

    @contextlib.contextmanager
    def pinned(self, key: Any = ..., *, write: bool = True) -> Iterator[PagedArray]:
        """A block in which a part of this array is in memory, and stays: for system calls where the
        kernel may not fault on it (a read of a file into it, MPI, a copy to a GPU), for devices and
        files opened with `O_DIRECT`, which write to memory by themselves, and for code that may not
        wait.

        Args:
            key: the part, as for `array[key]`; all of it by default. All between its first and its
                last byte is pinned.
            write: whether the part is written to; False leaves what is clean clean.

        Raises:
            OptionError: the part is larger than what may be in memory, less one chunk.
            StorageError, CorruptCheckpointError: its bytes cannot be had back.
            ArrayError: this array is not of paged memory.
        """
        part = np.ndarray.__getitem__(self, key)
        memory = _needed(self)
        pin = memory.pin(*_part(memory, part), write)
        try:
            yield part
        finally:
            pin.release()

    def paging(self) -> PagingStats:
        """What paging has done so far for the memory of this array.

        Raises:
            ArrayError: this array is not of paged memory.
            ClosedError: this process is a child of the one that made the array.
        """
        return PagingStats(**_needed(self).stats())


def _memory(array: Any) -> PagedMemory | None:
    """The paged memory that an array is of, if it is."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, PagedMemory) else None


def _needed(array: PagedArray) -> PagedMemory:
    memory = _memory(array)
    if memory is None:
        raise ArrayError("This array is a copy in ordinary memory: ask the one that paged() made.")
    return memory


def _bounded(order: Any) -> Iterator[Any]:
    """The parts of an order, which may be an iterator that never ends."""
    try:
        parts = iter(order)
    except TypeError:
        raise OptionError(f'expect({order!r}): write "sweep", or a list of indices.') from None
    yield from itertools.islice(parts, _MOST_PARTS)
    for _ in parts:
        raise OptionError(
            f"expect(): more than {_MOST_PARTS:,} parts. An order is gone through again and again: "
            "give one round of it, and slices for rows that follow one another."
        )


def _row(item: Any, rows: int) -> slice:
    """An index or a slice of the first axis, as a slice."""
    if isinstance(item, slice):
        return item
    try:
        index = operator.index(item)
    except TypeError:
        raise OptionError(f"expect(): {item!r} is neither an index nor a slice.") from None
    if not -rows <= index < rows:
        raise OptionError(f"expect(): {index} is not an index of an axis of {rows}.")
    index %= rows
    return slice(index, index + 1)


def _part(memory: PagedMemory, array: Any) -> tuple[int, int]:
    """Where the first and the last byte of an array are in the memory that it is of."""
    if not isinstance(array, np.ndarray) or array.size == 0:
        return 0, 0
    low = high = array.ctypes.data - memory.address
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + array.itemsize
