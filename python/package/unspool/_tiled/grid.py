"""How an array is cut into tiles. Nothing here knows what is in them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from .._unspool import size_in_bytes
from ..errors import ArrayError, OptionError

__all__ = ["Grid", "Part", "grid_of", "ranges_of"]

#: A tile, which of its items, and where these are in what was asked for.
Part = tuple[int, tuple[slice, ...], tuple[slice, ...]]


class Grid:
    """Tiles of one shape, numbered in C order; those at the ends may be smaller."""

    def __init__(self, shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
        self.shape, self.tile = shape, tile
        self.counts = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
        self.tiles = math.prod(self.counts)

    def slices(self, index: int) -> tuple[slice, ...]:
        """Where a tile is in the array."""
        places = []
        for extent, size, count in zip(
            reversed(self.shape), reversed(self.tile), reversed(self.counts), strict=True
        ):
            index, along = divmod(index, count)
            places.append(slice(along * size, min((along + 1) * size, extent)))
        return tuple(reversed(places))

    def shape_of(self, index: int) -> tuple[int, ...]:
        """The shape of a tile."""
        return tuple(place.stop - place.start for place in self.slices(index))

    def parts(self, ranges: Sequence[range]) -> Iterator[Part]:
        """The parts of tiles that a box of the array consists of. Its ranges ascend."""
        along = [_cuts(one, size) for one, size in zip(ranges, self.tile, strict=True)]
        for cuts in itertools.product(*along):
            index = 0
            for (number, _, _), count in zip(cuts, self.counts, strict=True):
                index = index * count + number
            yield index, tuple(cut[1] for cut in cuts), tuple(cut[2] for cut in cuts)


def _cuts(wanted: range, size: int) -> list[tuple[int, slice, slice]]:
    """The tiles along one axis that a range touches: the items there, and where they come."""
    cuts, taken = [], 0
    while taken < len(wanted):
        number = wanted[taken] // size
        rest = wanted[taken:]
        count = min(len(rest), -(-((number + 1) * size - rest.start) // rest.step))
        low, high = rest.start - number * size, rest[count - 1] - number * size
        cuts.append((number, slice(low, high + 1, rest.step), slice(taken, taken + count)))
        taken += count
    return cuts


def grid_of(shape: Any, tile: Any, itemsize: int) -> Grid:
    """The tiles of an array, as `unspool.tiled` describes them.

    Raises:
        OptionError: there is no such array, or it cannot be cut so.
    """
    extents = _extents("shape", shape)
    if any(extent < 0 for extent in extents):
        raise OptionError(f"tiled(shape={shape!r}): no extent may be negative.")
    if isinstance(tile, str) or hasattr(tile, "__index__"):
        rows = _rows(tile, math.prod(extents[1:]) * itemsize)
        wanted = (rows, *extents[1:])[: len(extents)]
    else:
        wanted = _extents("tile", tile)
    if len(wanted) != len(extents):
        raise OptionError(
            f"tiled(tile={tile!r}): an array of {len(extents)} axes has tiles of {len(extents)}."
        )
    sizes = tuple(min(want, max(n, 1)) for want, n in zip(wanted, extents, strict=True))
    if any(want < 1 for want, n in zip(wanted, extents, strict=True) if n):
        raise OptionError(f"tiled(tile={tile!r}): a tile has at least one item along each axis.")
    return Grid(extents, tuple(max(size, 1) for size in sizes))


def _rows(tile: Any, row: int) -> int:
    if not isinstance(tile, str):
        return operator.index(tile)
    try:
        return max(size_in_bytes(tile) // max(row, 1), 1)
    except ValueError as wrong:
        raise OptionError(f"tiled(tile={tile!r}): {wrong}.") from None


def _extents(name: str, value: Any) -> tuple[int, ...]:
    try:
        many = (value,) if hasattr(value, "__index__") else value
        return tuple(operator.index(extent) for extent in many)
    except TypeError as wrong:
        raise OptionError(f"tiled({name}={value!r}): {wrong}.") from None


def ranges_of(key: Any, shape: tuple[int, ...]) -> tuple[list[range], list[int], tuple[slice, ...]]:
    """What a key of integers and slices asks for: ascending ranges along all axes, the axes that
    integers take away, and how the others are turned around.

    Raises:
        ArrayError: the key has something else, or is beyond the array.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if sum(one is Ellipsis for one in keys) > 1:
        raise ArrayError("array[...]: only one ellipsis is possible.")
    here = next((n for n, one in enumerate(keys) if one is Ellipsis), len(keys))
    missing = len(shape) - (len(keys) - (here < len(keys)))
    if missing < 0:
        raise ArrayError(f"array[{key!r}]: the array has {len(shape)} axes.")
    keys[here : here + 1] = [slice(None)] * missing
    ranges, gone, turns = [], [], []
    for axis, (one, extent) in enumerate(zip(keys, shape, strict=True)):
        if isinstance(one, slice):
            wanted = range(*one.indices(extent))
            turns.append(slice(None, None, 1 if wanted.step > 0 else -1))
            ranges.append(wanted if wanted.step > 0 else wanted[::-1])
        else:
            ranges.append(_single(one, extent))
            gone.append(axis)
    return ranges, gone, tuple(turns)


def _single(key: Any, extent: int) -> range:
    try:
        index = operator.index(key)
    except TypeError:
        raise ArrayError(
            f"array[{key!r}]: only integers, slices and ... are possible here; work on the tiles."
        ) from None
    if isinstance(key, bool) or not -extent <= index < extent:
        raise ArrayError(f"array[{key!r}] is not an index of an axis of {extent}.")
    index %= extent
    return range(index, index + 1)
