"""The parts of all ranks of a checkpoint, as one source: arrays of which each rank has saved a
piece are put together for any others, and everything else has to be the same on all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any, NamedTuple, Self

from .. import _arrays, _partial, _shards
from .._pieces import Node, without_like
from .._shards import Box, Pieces
from .._trees import Apart, assign, build, entry, shards_in, text_of
from .._types import Region
from .._unspool import Spool
from ..errors import ArrayError, CorruptCheckpointError, Error, LostCheckpointError, OptionError
from .parts import Part
from .values import read

__all__ = ["Gathered", "check_pieces", "sharded_in"]


class _Piece(NamedTuple):
    """A piece of an array.

    Attributes:
        rank: the rank that saved it.
        name: its region in the part of that rank.
        box: where it lies in the whole array.
    """

    rank: int
    name: str
    box: Box


class _Array(NamedTuple):
    """An array of which ranks have saved pieces."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    pieces: list[_Piece]


def sharded_in(spool: Any, step: int) -> list[dict[str, Any]]:
    """The arrays of which a part has pieces, as nodes of its text."""
    text = _partial.tree_text(spool, step)
    return [] if text is None else shards_in(text)


def check_pieces(spool: Spool, step: int, target: Any) -> None:
    """Refuses a target that has other pieces of arrays than a part.

    Raises:
        MovedError: it has.
    """
    text = _partial.tree_text(spool, step)
    if text is not None:
        assign(text, target, spool.regions(step))


class Gathered:
    """All parts of one checkpoint.

    With `same`, this rank saved one of them, and its own part has what is in no pieces. Else it is
    that of another number of ranks, and what is in no pieces has to be the same in all parts.

    Raises:
        CorruptCheckpointError, LostCheckpointError: a part cannot be read, which is named.
    """

    def __init__(self, parts: Sequence[Part], rank: int, *, same: bool) -> None:
        self._parts, self._same, self.step = parts, same, parts[0].step
        self._base = rank % len(parts)
        self._opened = ExitStack()
        self._spools: dict[int, Spool] = {}
        self._arrays: dict[str, _Array] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()

    # What a spool has.

    @property
    def device(self) -> str:
        """Where arrays are made that nothing else is said of."""
        return self._spool(self._base).device

    def regions(self, step: int) -> tuple[Region, ...]:
        """The regions of the part that has what is in no pieces."""
        found: tuple[Region, ...] = self._of(self._base, lambda spool: spool.regions(step))
        return found

    def restore(self, step: int, target: Any) -> None:
        """As `Spool.restore`, from all parts.

        Raises:
            ArrayError: the target is not what was saved; parts differ; or pieces overlap or lack.
        """
        text = self._texts[self._base]
        if text is None:
            for name in target:
                self.check_same(name)
            self._of(self._base, lambda spool: spool.restore(step, target))
            return
        for name in target if type(target) is dict else self._names:
            self.check_same(name)
        arrays, write = assign(text, target, self.regions(step), self)
        if arrays:
            plain = Apart(dict(arrays), None)
            self._of(self._base, lambda spool: spool.restore(step, plain))
        write()

    def load(self, step: int, *, to: Any, device: str | None) -> Any:
        """As `Spool.load`, of a checkpoint that is no tree.

        Raises:
            OptionError: it is a tree.
        """
        if self._texts[self._base] is not None:
            raise OptionError(
                f"load({step}, to={to!r}): other ranks have saved it, with arrays that ranks have "
                "pieces of, or trees: leave `to` out, or name what is to be loaded."
            )
        for name in self._names:
            self.check_same(name)
        return self._of(self._base, lambda spool: spool.load(step, to=to, device=device))

    def named(
        self, names: Sequence[str], region: Any, to: str, device: str | None
    ) -> dict[str, Any]:
        """What was saved under names, or a part of it: of an array in pieces, the whole array."""
        return {name: self._named(name, region, to, device) for name in names}

    def _named(self, name: str, region: Any, to: str, device: str | None) -> Any:
        text = self._texts[self._base]
        if name in self._nodes[self._base]:
            return self._region(self._array(name), region, to, device)
        found = None if text is None else entry(text, name)
        if found is None:
            self._check_array(name)
        else:
            for node in shards_in(found[0]):
                raise without_like(node)
            self.check_same(name)
        return self._of(
            self._base, lambda spool: _partial.load(spool, self.step, [name], region, to, device)
        )

    def _region(self, array: _Array, region: Any, to: str, device: str | None) -> Any:
        call = f"load({self.step}, {array.name!r}, region={region!r})"
        box = _partial.box_of(array.shape, ... if region is None else region, call)
        wanted = Box(tuple(each.start for each in box.bounds), tuple(map(len, box.bounds)))
        found = self._read(array, wanted)[box.inner]
        place = _arrays.device_for(to, device, None)
        return _arrays.converted(found.reshape(found.shape), array.dtype, to, place)

    # One part by itself.

    def tree_of(self, rank: int, name: str) -> Any:
        """What one part has under a name, with the names of regions in place of arrays; None where
        it has nothing."""
        small, text = self._small[rank][0], self._texts[rank]
        found = None if text is None else entry(text, name)
        return small.get(name) if found is None else build(found[0], {one: one for one in found[1]})

    def part(self, rank: int, name: str, index: Any) -> Any:
        """A region of one part, or some of it, as an array of PyTorch."""
        return self._of(
            rank, lambda spool: _partial.Source(spool, self.step, "torch", "cpu").array(name, index)
        )

    def region(self, rank: int, name: str) -> Region:
        """What a region of one part is."""
        return self._source(rank).regions[name][1]

    # What `assign` asks for.

    def check(self, node: Node, pieces: Pieces) -> None:
        """Refuses pieces of another shape or dtype, and those of JAX."""
        array = self._array(node["shards"])
        for each in pieces.arrays:
            if array.pieces and not _is_of(each, array.dtype):
                raise ArrayError(
                    f"{array.name} was saved as {array.dtype}, and is {each.dtype} here."
                )
            if pieces.kind == "jax":
                raise ArrayError(
                    f"{array.name}: an array of JAX cannot be written in place: use load(like=...)."
                )

    def write(self, node: Node, pieces: Pieces) -> None:
        """Fills pieces."""
        array = self._array(node["shards"])
        for box, target in zip(pieces.boxes, pieces.arrays, strict=True):
            self._fill(array, box, target)

    def made(self, node: Node, like: Any) -> Any:
        """A new array with the pieces of `like`."""
        array = self._array(node["shards"])
        shape = tuple(getattr(like, "shape", ()))
        if shape != array.shape:
            raise ArrayError(f"like: {array.name} was an array of {array.shape}, not of {shape}.")
        if not array.pieces:
            # It has no items.
            return like
        inner = like.array if isinstance(like, _shards.Shard) else like
        if not _is_of(inner, array.dtype):
            raise ArrayError(
                f"like: {array.name} was saved as {array.dtype}, not as {inner.dtype}."
            )
        return _shards.filled(like, array.dtype, lambda box: self._read(array, box))

    # Parts that are to be the same.

    @property
    def values(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The small values and the states of random numbers; those that differ are left out."""
        small, states = (
            {name: one for name, one in of.items() if name not in self._differing_values[at]}
            for at, of in enumerate(self._small[self._base])
        )
        return small, states

    @property
    def text(self) -> str:
        """The same, as the text of a manifest."""
        return text_of({"values": self.values[0], "random": self.values[1]})

    def check_values(self, names: Sequence[str] | None) -> None:
        """Refuses small values, by name or all of them, that differ between ranks.

        Raises:
            ArrayError: some differ.
        """
        for at, differing in enumerate(self._differing_values):
            for name in differing if names is None else differing.keys() & set(names):
                if at == 0 or names is not None:
                    what = "the random numbers that" if at else "the value that"
                    raise self._differing(name, differing[name], what)

    @cached_property
    def _differing_values(self) -> tuple[dict[str, int], dict[str, int]]:
        """The small values and random numbers that differ from those of another rank, and it."""
        found: tuple[dict[str, int], dict[str, int]] = ({}, {})
        for rank, small in enumerate([] if self._same else self._small):
            for at, (mine, theirs) in enumerate(zip(self._small[self._base], small, strict=True)):
                for name in mine.keys() | theirs.keys():
                    if _plain(mine.get(name, ...)) != _plain(theirs.get(name, ...)):
                        found[at].setdefault(name, rank)
        return found

    @cached_property
    def _small(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [read(part.manifest.values if part.manifest else "") for part in self._parts]

    def check_same(self, name: str) -> None:
        """Refuses what was saved under a name and is in no pieces where ranks have others of it.

        Raises:
            ArrayError: they have.
        """
        if self._same:
            return
        mine = self._plain_of(self._base, name)
        for rank in range(len(self._parts)):
            if rank != self._base:
                theirs = self._plain_of(rank, name)
                if mine and not theirs:
                    raise ArrayError(f"{name}: rank {rank} has saved nothing by this name.")
                for found in mine.keys() | theirs.keys():
                    if mine.get(found) != theirs.get(found):
                        raise self._differing(name, rank, "what")

    def _check_array(self, name: str) -> None:
        for rank in range(0 if self._same else len(self._parts)):
            if self._bytes(rank, name) != self._bytes(self._base, name):
                raise self._differing(name, rank, "what")

    def _plain_of(self, rank: int, name: str) -> dict[str, Any]:
        """What a part has under a name besides pieces: its text and the bytes of its arrays."""
        text = self._texts[rank]
        if text is None:
            found_bytes = self._bytes(rank, name)
            return {} if found_bytes is None else {name: found_bytes}
        found = entry(text, name)
        if found is None:
            return {}
        nodes, arrays = shards_in(found[0]), list(found[1])
        for array in (each["array"] for node in nodes for each in node["of"]):
            arrays.remove(array)
        content = json.dumps(_blank(json.loads(found[0])), sort_keys=True)
        return {"": content, **{f"/{array}": self._bytes(rank, array) for array in arrays}}

    def _bytes(self, rank: int, name: str) -> tuple[str, tuple[int, ...], bytes] | None:
        source = self._source(rank)
        if name not in source.regions:
            return None
        about = source.regions[name][1]
        return about.dtype, about.shape, self._of(rank, lambda _: source.bytes_of(name))

    def _differing(self, name: str, rank: int, what: str) -> ArrayError:
        base = self._base
        return ArrayError(
            f"{name}: {what} rank {min(base, rank)} has saved differs from that of rank "
            f"{max(base, rank)}, and this run has another number of ranks than the "
            f"{len(self._parts)} that saved it: restore the other names, or take the parts of all "
            "ranks from Checkpointer.parts."
        )

    # Arrays in pieces.

    @cached_property
    def _texts(self) -> list[bytes | None]:
        return [self._of(rank, self._text_of) for rank in range(len(self._parts))]

    def _text_of(self, spool: Spool) -> bytes | None:
        return _partial.tree_text(spool, self.step)

    @cached_property
    def _nodes(self) -> list[dict[str, dict[str, Any]]]:
        """The arrays in pieces of each part, by name."""
        return [
            {} if text is None else {node["shards"]: node for node in shards_in(text)}
            for text in self._texts
        ]

    @property
    def _names(self) -> list[str]:
        """The names in the outermost dictionary of the part that has what is in no pieces."""
        text = self._texts[self._base]
        if text is None:
            return [region.name for region in self.regions(self.step)]
        return list(json.loads(text)["tree"]["dict"])

    def _array(self, name: str) -> _Array:
        """An array in pieces, of which everything is there once.

        Raises:
            ArrayError: it is not.
        """
        if name not in self._arrays:
            self._arrays[name] = self._put_together(name)
        return self._arrays[name]

    def _put_together(self, name: str) -> _Array:
        pieces: list[_Piece] = []
        forms: dict[tuple[tuple[int, ...], str | None], int] = {}
        for rank, nodes in enumerate(self._nodes):
            if name not in nodes:
                raise ArrayError(f"{name}: rank {rank} has saved nothing in pieces by this name.")
            node = nodes[name]
            shape = tuple(node["shape"])
            forms.setdefault((shape, None), rank)
            for at, each in zip(node["at"], node["of"], strict=True):
                about = self._source(rank).regions[each["array"]][1]
                forms.setdefault((shape, about.dtype), rank)
                pieces.append(_Piece(rank, each["array"], Box(tuple(at), tuple(about.shape))))
        return _Array(name, *self._form(name, forms), pieces=self._whole(name, shape, pieces))

    def _form(
        self, name: str, forms: Mapping[tuple[tuple[int, ...], str | None], int]
    ) -> tuple[tuple[int, ...], str]:
        """The shape and the dtype that all ranks have saved."""
        shapes = {shape: rank for (shape, dtype), rank in forms.items() if dtype is None}
        dtypes = {dtype: rank for (_, dtype), rank in forms.items() if dtype is not None}
        for what, found in (("shape", shapes), ("dtype", dtypes)):
            if len(found) > 1:
                (one, first), (other, second) = list(found.items())[:2]
                raise ArrayError(
                    f"{name}: its {what} is {one} on rank {first}, and {other} on rank {second}: "
                    "save it with the same one on all ranks."
                )
        return next(iter(shapes)), next(iter(dtypes), "uint8")

    def _whole(self, name: str, shape: tuple[int, ...], pieces: list[_Piece]) -> list[_Piece]:
        wrong = _shards.flaw(shape, [one.box for one in pieces], [one.rank for one in pieces])
        if wrong is not None:
            raise ArrayError(
                f"{name}: {wrong}: the pieces that ranks save cover an array once, without halos."
            )
        return pieces

    def _read(self, array: _Array, box: Box) -> Any:
        """A piece as an array of NumPy."""
        dtype = _arrays.numpy_dtype(array.dtype)
        found = _arrays.memory(box.items * dtype.itemsize).view(dtype).reshape(box.shape)
        self._fill(array, box, found)
        return found

    def _fill(self, array: _Array, box: Box, target: Any) -> None:
        for piece in array.pieces:
            common = piece.box.common(box)
            if common is not None:
                index = common.within(piece.box)
                found = self._of(piece.rank, self._reading(piece, index))
                _shards.put(target, common.within(box), found, array.dtype)

    def _reading(self, piece: _Piece, index: tuple[slice, ...]) -> Callable[[Spool], Any]:
        return lambda _: self._source(piece.rank).array(piece.name, index)

    # Parts.

    def _source(self, rank: int) -> _partial.Source:
        return _partial.Source(self._spool(rank), self.step, "numpy", None)

    def _of(self, rank: int, take: Callable[[Spool], Any]) -> Any:
        """What is taken from a part; an error of its bytes names it."""
        try:
            return take(self._spool(rank))
        except (CorruptCheckpointError, LostCheckpointError) as why:
            raise self._lost(rank, why) from why

    def _spool(self, rank: int) -> Spool:
        if rank not in self._spools:
            try:
                self._spools[rank] = self._opened.enter_context(self._parts[rank].opened())
            except (CorruptCheckpointError, LostCheckpointError) as why:
                raise self._lost(rank, why) from why
        return self._spools[rank]

    def _lost(self, rank: int, why: Error) -> Error:
        place = self._parts[rank].place
        return LostCheckpointError(
            f"The part of rank {rank} of {len(self._parts)} of step {self.step}, in {place}, "
            f"cannot be read: {why}"
        )


def _plain(value: Any) -> str:
    return "" if value is ... else json.dumps(value, sort_keys=True)


def _is_of(array: Any, dtype: str) -> bool:
    """Whether an array has the dtype that is called so in a checkpoint."""
    if type(array).__module__.partition(".")[0] == "torch":
        return str(array.dtype) == f"torch.{dtype}"
    return bool(_arrays.numpy_dtype(dtype) == array.dtype)


def _blank(spelled: Any) -> Any:
    """A text without what says where pieces are, and on which GPU arrays were."""
    if isinstance(spelled, list):
        return [_blank(each) for each in spelled]
    if not isinstance(spelled, dict):
        return spelled
    if "shards" in spelled:
        return {"shards": spelled["shards"]}
    left_out = ("on",) if "array" in spelled else ()
    return {name: _blank(part) for name, part in spelled.items() if name not in left_out}
