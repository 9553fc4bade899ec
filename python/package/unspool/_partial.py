"""Some arrays of a checkpoint without the others, and parts of arrays without the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from . import _arrays, _trees
from ._types import Region
from .errors import OptionError

__all__ = ["Source", "box_of", "load", "region_of"]

#: Bytes of a piece that a frame has a checksum of: what is read at least.
PIECE = 1 << 16


def load(
    spool: Any, version: int, names: Sequence[str], region: Any, to: str, device: str | None
) -> Any:
    """What was saved under `version` by these names, or the part `region` of it.

    Raises:
        OptionError: nothing was saved under a name, or an array has no such region.
        All that `Spool.load` raises.
    """
    source = Source(spool, version, to, device)
    wanted = tuple(names) or source.only()
    found = {name: source.named(name, region) for name in wanted}
    return found[wanted[0]] if len(wanted) == 1 else found


def region_of(text: str) -> tuple[Any, ...]:
    """An index as text: `0:10,...,3`.

    Raises:
        ValueError: it is none.
    """
    return tuple(_index_of(each.strip()) for each in text.split(","))


def _index_of(text: str) -> Any:
    if text == "...":
        return ...
    ends = [int(end) if end.strip() else None for end in text.split(":")]
    return slice(*ends) if len(ends) > 1 else int(text)


class Source:
    """The arrays of one checkpoint."""

    def __init__(self, spool: Any, version: int, to: str, device: str | None) -> None:
        own = spool.device
        ordinal = int(own.partition(":")[2] or 0) if own.startswith("cuda") else None
        self.spool, self.version, self.to = spool, version, to
        self.device = _arrays.device_for(to, device, ordinal)
        self.regions: dict[str, tuple[int, Region]] = {
            each.name: (index, each) for index, each in enumerate(spool.regions(version))
        }
        self.whole: dict[str, Any] | None = None

    def only(self) -> tuple[str, ...]:
        """The name of the one array that there is.

        Raises:
            OptionError: there are more, or it is a tree.
        """
        if len(self.regions) == 1 and _trees.REGION not in self.regions:
            return tuple(self.regions)
        raise OptionError(f"load({self.version}, region=): name the array: one of {self._names()}.")

    def named(self, name: str, region: Any) -> Any:
        """What was saved under a name."""
        if name in self.regions and name != _trees.REGION:
            return self.array(name, region)
        if region is None and _trees.REGION in self.regions:
            entry = _trees.entry(self.bytes_of(_trees.REGION), name)
            if entry is not None:
                text, arrays = entry
                return _trees.build(text, {each: self.array(each, None) for each in arrays})
        what = "no array" if region is not None else "nothing"
        raise OptionError(
            f"load({self.version}, {name!r}): {what} was saved under this name, but "
            f"{self._names()}."
        )

    def array(self, name: str, region: Any) -> Any:
        """An array, or a part of it, in the library that was asked for."""
        index, about = self.regions[name]
        dtype = _arrays.numpy_dtype(about.dtype)
        if region is None:
            region = ...
        box = box_of(about.shape, region, f"load({self.version}, {name!r}, region={region!r})")
        axis = box.contiguous(dtype.itemsize)
        shape = box.shape(axis)
        into = _arrays.memory(math.prod(shape) * dtype.itemsize)
        if self.spool._read_parts(self.version, index, box.parts(axis, dtype.itemsize), into):
            found = into.view(dtype).reshape(shape)[box.within(axis)]
        else:
            found = self._held()[name][region]
        return _arrays.converted(found.reshape(found.shape), about.dtype, self.to, self.device)

    def bytes_of(self, name: str) -> bytes:
        index, about = self.regions[name]
        into = _arrays.memory(about.nbytes)
        there = self.spool._read_parts(self.version, index, [(0, about.nbytes)], into)
        return bytes(into if there else self._held()[name])

    def _held(self) -> dict[str, Any]:
        """All of it, as memory has it: what is in no durable tier."""
        if self.whole is None:
            self.whole = self.spool._load_parts(self.version)
        return self.whole

    def _names(self) -> str:
        shown = [repr(name) for name in self.regions if name != _trees.REGION][:8]
        more = len(self.regions) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more > 1 else "")


def tree_text(spool: Any, version: int) -> bytes | None:
    """What says which tree a checkpoint is; None for arrays alone."""
    source = Source(spool, version, "numpy", None)
    return source.bytes_of(_trees.REGION) if _trees.REGION in source.regions else None


class _Box:
    """The smallest block around a region, and the region in it."""

    def __init__(self, shape: tuple[int, ...], bounds: list[range], inner: tuple[Any, ...]) -> None:
        self.of, self.bounds, self.inner = shape, bounds, inner

    def contiguous(self, itemsize: int) -> int:
        """The axis along which runs are read: what is before it is walked index by index. The last
        one of which only some is wanted, as long as a run has a piece or more."""
        axis = 0
        for here, (length, bound) in enumerate(zip(self.of, self.bounds, strict=True)):
            run = len(bound) * math.prod(self.of[here + 1 :]) * itemsize
            if run < PIECE:
                break
            if len(bound) < length:
                axis = here
        return axis

    def parts(self, axis: int, itemsize: int) -> list[tuple[int, int]]:
        """The bytes of the runs, first and end of each."""
        if not self.of:
            return [(0, itemsize)]
        return [
            (start * itemsize, (start + length) * itemsize)
            for start, length in self._runs(axis)
            if length
        ]

    def _runs(self, axis: int) -> Iterator[tuple[int, int]]:
        strides = [math.prod(self.of[at + 1 :]) for at in range(len(self.of))]
        along = self.bounds[axis]
        length = len(along) * strides[axis]
        for place in product(*self.bounds[:axis]):
            start = sum(at * stride for at, stride in zip(place, strides, strict=False))
            yield start + (along.start * strides[axis] if len(along) else 0), length

    def shape(self, axis: int) -> tuple[int, ...]:
        """The shape of what the runs make."""
        return (*(len(bound) for bound in self.bounds[: axis + 1]), *self.of[axis + 1 :])

    def within(self, axis: int) -> tuple[Any, ...]:
        """The region in what the runs make."""
        bounds = self.bounds[axis + 1 :]
        whole = [
            _moved(index, bound.start)
            for index, bound in zip(self.inner[axis + 1 :], bounds, strict=True)
        ]
        return (*self.inner[: axis + 1], *whole)


def _moved(index: Any, by: int) -> Any:
    """An index within a block as one of the axis: the block begins at `by`."""
    if not isinstance(index, slice):
        return index + by
    # Without a stop it ends, backwards, with the first item of the block.
    stop = (-1 if index.stop is None else index.stop) + by
    return slice(index.start + by, stop if stop >= 0 else None, index.step)


def box_of(shape: tuple[int, ...], region: Any, call: str) -> _Box:
    """The block of a region.

    Raises:
        OptionError: it is not made of integers, slices and an ellipsis, or not within the array.
    """
    index = region if isinstance(region, tuple) else (region,)
    rest = len(shape) - sum(each is not Ellipsis for each in index)
    ellipses = sum(each is Ellipsis for each in index)
    if rest < 0 or ellipses > 1:
        raise OptionError(f"{call}: the array has the shape {shape}.")
    filled = [slice(None)] * rest
    at = next((at for at, each in enumerate(index) if each is Ellipsis), len(index))
    spread = (*index[:at], *filled, *index[at + ellipses :])
    bounds: list[range] = []
    inner: list[Any] = []
    for length, each in zip(shape, spread, strict=True):
        bound, within = _bounds(length, each, call)
        bounds.append(bound)
        inner.append(within)
    return _Box(shape, bounds, tuple(inner))


def _bounds(length: int, index: Any, call: str) -> tuple[range, Any]:
    """The block of an axis that an index needs, and the index in it."""
    if isinstance(index, slice):
        try:
            wanted = range(length)[index]
        except (TypeError, ValueError) as why:
            raise OptionError(f"{call}: {why}.") from None
        if not wanted:
            return range(0), slice(0, 0, 1)
        first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
        stop = wanted[-1] - first + (1 if wanted.step > 0 else -1)
        within = slice(wanted[0] - first, stop if stop >= 0 else None, wanted.step)
        return range(first, last + 1), within
    try:
        if isinstance(index, bool):
            raise TypeError
        place = range(length)[index]
    except (TypeError, IndexError):
        raise OptionError(
            f"{call}: {index!r} is no index of an axis of {length}: write integers, slices and an "
            "ellipsis, as np.s_[0:10, ..., 3]."
        ) from None
    return range(place, place + 1), 0
