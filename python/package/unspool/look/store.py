"""A read-only store of Zarr, version 3, over checkpoints.

What describes groups and arrays is made by Zarr itself, in memory; chunks are read from the
checkpoints when they are asked for.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore

from .._files import AnyPath
from .checkpoints import Checkpoints
from .dims import Dims
from .layout import Layout, Numbers, Variable

__all__ = ["CheckpointStore"]

#: The bytes of a chunk, where an array can be read in parts, and the numbers of one.
CHUNK, NUMBERS = 1 << 20, 1024


class _Chunks(NamedTuple):
    """An array in chunks.

    Attributes:
        source: what has it.
        shape: its dimensions, that of the steps first.
        chunk: the shape of a chunk.
        dtype: that of its bytes.
    """

    source: Variable | Numbers | np.ndarray
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: Any

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each dimension."""
        pairs = zip(self.shape, self.chunk, strict=True)
        return tuple(math.ceil(length / chunk) for length, chunk in pairs)

    def ends(self) -> Iterator[str]:
        """The end of the key of each chunk."""
        for place in itertools.product(*map(range, self.grid)):
            yield "/".join(("c", *map(str, place)))


class CheckpointStore(Store):
    """What `unspool.look.zarr_store` returns.

    Attributes:
        left_out: what is at the path and not in the store, each as a sentence.
    """

    supports_writes = supports_deletes = False
    supports_listing = True

    def __init__(
        self, path: AnyPath, *, dims: Dims = None, dim: str = "step", read_only: bool = True
    ) -> None:
        super().__init__(read_only=read_only)
        self._options = (str(path), dims, dim)
        self._checkpoints = Checkpoints(path)
        layout = Layout(self._checkpoints, dims, dim, ())
        self.left_out = layout.left_out
        self._documents = MemoryStore()
        self._arrays: dict[str, _Chunks] = {}
        group = zarr.create_group(self._documents, zarr_format=3)
        for steps, along in layout.dims.items():
            data = np.array(steps, "int64")
            chunks = _Chunks(data, data.shape, (max(len(data), 1),), data.dtype)
            self._add(group, along, chunks, (along,), {})
        for name, one in layout.variables.items():
            shape = len(one.steps), *one.shape
            self._add(group, name, _Chunks(one, shape, _cut(one), one.dtype), one.dims, one.attrs)
        for name, numbers in layout.numbers.items():
            if numbers.dtype == "object":
                self.left_out.append(f"{name}: texts along the steps are not in a store of Zarr")
                continue
            length, dtype = len(numbers.steps), np.dtype(numbers.dtype)
            chunks = _Chunks(numbers, (length,), (min(length, NUMBERS),), dtype)
            self._add(group, name, chunks, (numbers.dim,), {})

    def _add(
        self, group: Any, name: str, chunks: _Chunks, dims: Sequence[str], attrs: dict[str, Any]
    ) -> None:
        """Has Zarr describe an array, where it can."""
        try:
            with warnings.catch_warnings():
                # On dtypes that have no specification yet: nothing is stored.
                warnings.simplefilter("ignore")
                group.create_array(
                    name,
                    shape=chunks.shape,
                    chunks=chunks.chunk,
                    dtype=chunks.dtype,
                    fill_value=None,
                    compressors=None,
                    filters=None,
                    dimension_names=dims,
                    attributes=attrs,
                )
        except (TypeError, ValueError) as why:
            self.left_out.append(f"{name}: Zarr has no place for it: {why}")
            return
        self._arrays[name] = chunks

    def __eq__(self, value: object) -> bool:
        return type(value) is type(self) and self._options == value._options

    def __repr__(self) -> str:
        return f"CheckpointStore({self._options[0]!r})"

    def __reduce__(self) -> Any:
        path, dims, dim = self._options
        return _again, (type(self), path, dims, dim, self.read_only)

    def close(self) -> None:
        """Closes what is open."""
        self._checkpoints.close()
        super().close()

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: Any = None
    ) -> Buffer | None:
        """A document or a chunk; None where there is none."""
        await self._ensure_open()
        prototype = prototype or default_buffer_prototype()
        found = await self._documents.get(key, prototype, byte_range)
        place = None if found is not None else self._place(key)
        if place is None:
            return found
        content = await asyncio.to_thread(self._read, *place)
        return prototype.buffer.from_bytes(_ranged(content, byte_range))

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Parts of documents and chunks."""
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether there is a document or a chunk."""
        return await self._documents.exists(key) or self._place(key) is not None

    async def set(self, key: str, value: Buffer) -> None:
        """Refused: the store is read-only."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Refused: the store is read-only."""
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        for key in [key async for key in self._documents.list()]:
            yield key
        for name, chunks in self._arrays.items():
            for key in chunks.ends():
                yield f"{name}/{key}"

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin so."""
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """What follows a prefix, up to the next `/`."""
        below = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        found: dict[str, None] = {}
        async for key in self._documents.list_dir(below.rstrip("/")):
            found[key] = None
        for name, chunks in self._arrays.items():
            if f"{name}/".startswith(below) or below.startswith(f"{name}/"):
                found |= dict.fromkeys(_children(name, chunks, below))
        for key in found:
            yield key

    def _place(self, key: str) -> tuple[str, tuple[int, ...]] | None:
        """The array and the chunk that a key names."""
        name, mark, rest = key.rpartition("/c/")
        chunks = self._arrays.get(name) if mark else None
        numbers = rest.split("/")
        if chunks is None or not all(one.isdecimal() and one.isascii() for one in numbers):
            return None
        place = tuple(map(int, numbers))
        inside = len(place) == len(chunks.grid) and all(
            at < count for at, count in zip(place, chunks.grid, strict=True)
        )
        return (name, place) if inside and "/".join(map(str, place)) == rest else None

    def _read(self, name: str, place: tuple[int, ...]) -> bytes:
        """The bytes of a chunk, filled up with zeros at the end of the array."""
        one = self._arrays[name]
        starts = [at * length for at, length in zip(place, one.chunk, strict=True)]
        bounds = [
            slice(first, min(first + length, end))
            for first, length, end in zip(starts, one.chunk, one.shape, strict=True)
        ]
        found = self._values(one.source, bounds)
        if found.shape != one.chunk:
            whole = np.zeros(one.chunk, one.dtype)
            whole[tuple(slice(length) for length in found.shape)] = found
            found = whole
        return np.ascontiguousarray(found).tobytes()

    def _values(self, source: Any, bounds: Sequence[slice]) -> Any:
        if isinstance(source, np.ndarray):
            return source[bounds[0]]
        steps = source.steps[bounds[0]]
        if isinstance(source, Numbers):
            return np.array(source.values(steps), source.dtype)
        region = tuple(bounds[1:]) or ...
        return np.stack([self._checkpoints.read(step, source.name, region) for step in steps])


def _again(kind: type[CheckpointStore], path: str, dims: Dims, dim: str, read_only: bool) -> Any:
    return kind(path, dims=dims, dim=dim, read_only=read_only)


def _cut(one: Variable) -> tuple[int, ...]:
    """The shape of a chunk: one step, of which slices are cut where they can be read alone."""
    chunk = [max(length, 1) for length in one.shape]
    if one.is_in_parts:
        for axis in range(len(chunk)):
            rest = math.prod(chunk[axis + 1 :]) * one.dtype.itemsize
            chunk[axis] = max(1, min(chunk[axis], CHUNK // max(rest, 1)))
            if rest <= CHUNK:
                break
    return (1, *chunk)


def _children(name: str, chunks: _Chunks, below: str) -> Iterator[str]:
    """What follows a prefix in the keys of an array."""
    way = f"{name}/"
    if way.startswith(below):
        first = way[len(below) :].partition("/")[0]
        yield from (first,) if first else ("c",)
        return
    done = below[len(way) :].rstrip("/").split("/")
    level = len(done) - 1
    if done[0] == "c" and level < len(chunks.grid):
        yield from map(str, range(chunks.grid[level]))


def _ranged(content: bytes, part: ByteRequest | None) -> bytes:
    if isinstance(part, RangeByteRequest):
        return content[part.start : part.end]
    if isinstance(part, OffsetByteRequest):
        return content[part.offset :]
    if isinstance(part, SuffixByteRequest):
        return content[-part.suffix :] if part.suffix else b""
    return content
