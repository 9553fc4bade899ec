"""Arrays of which several ranks have pieces: `unspool.types.Shard`, DTensors, and arrays of JAX
that lie on several processes.

A *box* is where a piece lies in the whole array: its first index along each axis, and its shape.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _arrays
from .errors import ArrayError

__all__ = ["Box", "Pieces", "Shard", "filled", "flaw", "overlap", "pieces_of", "put"]


class Shard:
    """A piece of an array that the ranks of a job have together, for `Checkpointer`: it can be
    restored with another number of ranks, or other pieces.

        u = Shard(np.zeros((250, 800)), shape=(1000, 800), offset=(250 * rank, 0))

    The pieces of all ranks cover the whole array, and none of it twice: without halos.

    Attributes:
        array: the piece, an array of any library.
        shape: the shape of the whole array.
        offset: the index of the first item of the piece in the whole array.

    Raises:
        ArrayError: the piece does not lie in an array of this shape.
    """

    __slots__ = ("array", "offset", "shape")

    def __init__(self, array: Any, shape: Sequence[int], offset: Sequence[int]) -> None:
        self.array, self.shape, self.offset = array, _whole(shape), _whole(offset)
        mine = tuple(getattr(array, "shape", ()))
        within = len(mine) == len(self.shape) == len(self.offset) and all(
            at >= 0 and at + length <= whole
            for at, length, whole in zip(self.offset, mine, self.shape, strict=True)
        )
        if not within:
            raise ArrayError(
                f"Shard: a piece of {mine} at {self.offset} does not lie in an array of "
                f"{self.shape}."
            )

    @property
    def nbytes(self) -> int:
        """The bytes of the piece."""
        return int(self.array.nbytes)

    def __repr__(self) -> str:
        return f"Shard({self.array!r}, shape={self.shape}, offset={self.offset})"


def _whole(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(each) for each in numbers)


class Box(NamedTuple):
    """Where a piece lies.

    Attributes:
        offset: its first index along each axis.
        shape: its shape.
    """

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def items(self) -> int:
        """The number of items in it."""
        return math.prod(self.shape)

    def common(self, other: Box) -> Box | None:
        """What lies in both; None where nothing does."""
        axes = list(zip(self.offset, self.shape, other.offset, other.shape, strict=True))
        first = tuple(max(at, theirs) for at, _, theirs, _ in axes)
        ends = [min(at + length, theirs + long) for at, length, theirs, long in axes]
        shape = tuple(end - start for start, end in zip(first, ends, strict=True))
        return Box(first, shape) if all(length > 0 for length in shape) else None

    def within(self, other: Box) -> tuple[slice, ...]:
        """The index of this box in an array that lies in `other`."""
        moved = [at - start for at, start in zip(self.offset, other.offset, strict=True)]
        return tuple(slice(at, at + length) for at, length in zip(moved, self.shape, strict=True))

    def __str__(self) -> str:
        ends = [at + length for at, length in zip(self.offset, self.shape, strict=True)]
        return f"[{', '.join(f'{at}:{end}' for at, end in zip(self.offset, ends, strict=True))}]"


class Pieces(NamedTuple):
    """What one process has of an array.

    Attributes:
        kind: `"shard"`, `"torch"` for a DTensor, or `"jax"`.
        shape: the shape of the whole array.
        boxes: where each piece lies.
        arrays: the pieces.
        replica: whether another process saves the same pieces.
    """

    kind: str
    shape: tuple[int, ...]
    boxes: list[Box]
    arrays: list[Any]
    replica: bool = False


def pieces_of(value: Any) -> Pieces | None:
    """What this process has of an array of which others may have more; None for anything else.

    Raises:
        ArrayError: the end of a sentence that begins with its place: it cannot be saved.
    """
    read = _reader(type(value))
    return None if read is None else read(value)


@functools.lru_cache(maxsize=256)
def _reader(kind: type) -> Any:
    if issubclass(kind, Shard):
        return _of_shard
    root = kind.__module__.partition(".")[0]
    if kind.__name__ == "DTensor" and root == "torch":
        return _of_dtensor
    return _of_jax if root in ("jax", "jaxlib") and kind.__name__ == "ArrayImpl" else None


def _of_shard(value: Shard) -> Pieces:
    box = Box(value.offset, tuple(value.array.shape))
    return Pieces("shard", value.shape, [box], [value.array])


def _of_dtensor(value: Any) -> Pieces:
    if any(place.is_partial() for place in value.placements):
        raise ArrayError(" is a DTensor of partial sums: redistribute it first")
    shape, here = tuple(value.shape), value.device_mesh.get_coordinate()
    if here is None:
        return Pieces("torch", shape, [], [])
    local, chunks = value.detach().to_local(), value.__create_chunk_list__()
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape):
        raise ArrayError(" is a DTensor of several pieces on one process: pass its to_local()")
    # Of what several processes have alike, the first one saves it.
    replica = any(
        at > 0 and place.is_replicate() for at, place in zip(here, value.placements, strict=True)
    )
    box = Box(tuple(chunks[0].offsets), tuple(local.shape))
    return Pieces("torch", shape, [box], [local], replica)


def _of_jax(value: Any) -> Pieces | None:
    """None for an array of which this process has everything."""
    if value.is_fully_addressable:
        return None
    mine = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    boxes = [_box_of(shard.index, value.shape) for shard in mine]
    return Pieces("jax", tuple(value.shape), boxes, [shard.data for shard in mine])


def _box_of(index: tuple[slice, ...], shape: Sequence[int]) -> Box:
    ranges = [range(length)[each] for each, length in zip(index, shape, strict=True)]
    return Box(tuple(each.start for each in ranges), tuple(len(each) for each in ranges))


def filled(like: Any, dtype: str, read: Any) -> Any:
    """An array like another one, of which `read(box)` gives any piece as an array of NumPy.

    Raises:
        ArrayError: it is no array that has pieces.
    """
    if isinstance(like, Shard):
        library = _library_of(like.array)
        place = getattr(like.array, "device", None) if library in ("torch", "cupy") else None
        box = Box(like.offset, tuple(like.array.shape))
        array = _arrays.converted(read(box), dtype, library, None)
        return Shard(array if place is None else _placed(array, place), like.shape, like.offset)
    if type(like).__name__ == "DTensor":
        made = sys.modules["torch"].empty_like(like.detach())
        pieces = _of_dtensor(made)
        for box, array in zip(pieces.boxes, pieces.arrays, strict=True):
            put(array, tuple(slice(None) for _ in box.shape), read(box), dtype)
        return made
    jax = sys.modules["jax"]
    return jax.make_array_from_callback(
        tuple(like.shape), like.sharding, lambda index: read(_box_of(index, like.shape))
    )


def _library_of(array: Any) -> str:
    root = type(array).__module__.partition(".")[0]
    return {"jaxlib": "jax"}.get(root, root if root in ("torch", "cupy", "jax") else "numpy")


def _placed(array: Any, device: Any) -> Any:
    if hasattr(array, "to"):
        return array.to(device)
    with device:
        return sys.modules["cupy"].array(array)


def put(array: Any, index: tuple[slice, ...], found: Any, dtype: str) -> None:
    """Writes an array of NumPy, called `dtype` in a checkpoint, into a part of another array.

    Raises:
        ArrayError: it is an array of JAX, which cannot be written.
    """
    library = _library_of(array)
    if library == "jax":
        raise ArrayError("An array of JAX cannot be written in place: use load(like=...).")
    if library == "numpy":
        sys.modules["numpy"].asarray(array)[index] = found
    elif library == "torch":
        with sys.modules["torch"].no_grad():
            array[index].copy_(_arrays.converted(found, dtype, "torch", None))
    else:
        with array.device:
            array[index] = _arrays.converted(found, dtype, "cupy", None)


def overlap(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """Two of these boxes that have items in common, or None."""
    order = sorted((at for at in range(len(boxes)) if boxes[at].items), key=boxes.__getitem__)
    for place, one in enumerate(order):
        if not boxes[one].shape:
            return (one, order[place + 1]) if place + 1 < len(order) else None
        end = boxes[one].offset[0] + boxes[one].shape[0]
        for other in order[place + 1 :]:
            if boxes[other].offset[0] >= end:
                break
            if boxes[one].common(boxes[other]) is not None:
                return one, other
    return None


def flaw(shape: tuple[int, ...], boxes: Sequence[Box], owners: Sequence[int]) -> str | None:
    """What keeps pieces from being an array of this shape, or None; `owners` are their ranks."""
    for box, owner in zip(boxes, owners, strict=True):
        if len(box.shape) != len(shape) or box.common(Box((0,) * len(shape), shape)) != box:
            return f"{box} of rank {owner} is not within {shape}"
    two = overlap(boxes)
    if two is not None:
        one, other = sorted(two, key=owners.__getitem__)
        return (
            f"{boxes[one]} of rank {owners[one]} and {boxes[other]} of rank {owners[other]} overlap"
        )
    missing = math.prod(shape) - sum(box.items for box in boxes)
    return f"{missing} items of {shape} are in no piece" if missing else None
