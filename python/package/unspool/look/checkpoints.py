"""Checkpoints at a path, held open for reading: a history, the folder of a run, or its copies.

All that looks inside goes through here, beside a program that writes or not. What is there is seen
as it was at the opening.
"""

from __future__ import annotations

import functools
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from .. import _arrays
from .._files import AnyPath, absolute
from .._history import at_death, close_quietly
from .._holdings import holds_history, steps_of
from .._partial import tree_text
from .._restart.core import Chains, RestartCore
from .._restart.gathered import Gathered
from .._restart.parts import Place, holds_copies, holds_run, parts_in, whole
from .._trees import shards_in
from .._types import Disk, Region
from .._unspool import Spool
from ..codecs import Achieved
from ..errors import LostCheckpointError, UnknownVersionError
from .frames import Frame, Stream
from .leaves import dims_of, is_text, leaves_of, leaves_of_values

__all__ = ["Array", "Checkpoints"]

#: The regions of a checkpoint that is stored as an increment.
INCREMENT = frozenset({"unspool.increment", "unspool.chunks"})


class Array(NamedTuple):
    """What is known of an array of a checkpoint before it is read.

    Attributes:
        region: its dtype and shape.
        achieved: its codec and its size there.
        at: its place among the arrays of its part.
        frame: what its checkpoint says of itself where it is stored.
    """

    region: Region
    achieved: Achieved
    at: int
    frame: Frame

    @property
    def form(self) -> tuple[str, tuple[int, ...]]:
        """Its dtype and shape."""
        return self.region.dtype, self.region.shape

    @property
    def is_in_parts(self) -> bool:
        """Whether parts of it can be read alone."""
        return self.achieved.codec == "raw" and self.frame.is_in_parts

    @property
    def text(self) -> str:
        """Its dtype and shape, as people read it."""
        return f"{self.region.dtype}[{', '.join(map(str, self.region.shape))}]"

    def stream(self) -> Stream | None:
        """What it says of the codec that made it."""
        return self.frame.stream(self.at)


class _Whole(NamedTuple):
    """An array of which ranks have saved pieces.

    Attributes:
        form: its dtype and shape.
        pieces: the names of the pieces, with their ranks.
    """

    form: tuple[str, tuple[int, ...]]
    pieces: list[str]


class _Part:
    """The durable directory of one rank, or of a history."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings():
            # What is lost is said by who looks.
            warnings.simplefilter("ignore", RuntimeWarning)
            self.spool = Spool(device="cpu", disk=Disk(directory, mode="r"))
        at_death(self, close_quietly, self.spool)

    @cached_property
    def chains(self) -> Chains:
        """Its checkpoints, put together."""
        chains: Chains = RestartCore.chains(self.spool)
        return chains


class _Held(NamedTuple):
    """A checkpoint that was put together or fetched, and what ends with it."""

    step: int
    spools: list[tuple[str, Spool]]
    stack: ExitStack


class Checkpoints:
    """The checkpoints at a path. Arrays of several ranks have the rank before their names, as
    `unspool export` writes them; `forms` and `read` also have the arrays of which ranks saved
    pieces, as whole ones.

    Attributes:
        place: a directory, or the address of a remote place.
        steps: those that can be read, in ascending order.
        has_manifests: whether a Checkpointer saved them, with small values.
        lost: the steps of a history that are lost, and why.
        faults: what is known to be lost or damaged, each as a sentence.

    Raises:
        OptionError: the path holds no checkpoints.
    """

    def __init__(self, path: AnyPath) -> None:
        is_address = isinstance(path, str) and "://" in path
        self.place: Place = str(path) if is_address else absolute(path, "path")
        self._key = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._held: _Held | None = None
        self._parts: dict[Path, _Part] = {}
        self.lost: dict[int, str] = {}
        self._known: dict[int, dict[str, _Whole]] = {}
        self._of_run = holds_run(self.place)
        self._of_copies = not self._of_run and holds_copies(self.place)
        if self._of_run:
            rows, self.faults = RestartCore.listed(self.place)
            self._ranks = {row["step"]: row["ranks"] for row in rows if row["counts"]}
            self.steps = sorted(self._ranks)
        elif self._of_copies or not holds_history(Path(self.place)):
            self.steps, self.faults = steps_of(self.place), []
        else:
            spool = self._part(Path(self.place)).spool
            self.steps, self.lost = spool.versions(), spool.lost()
            self.faults = [f"step {step}: {why}" for step, why in self.lost.items()]
        self._there = frozenset(self.steps)
        self.has_manifests = self._of_run or self._of_copies

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all that is open."""
        with self._lock:
            self._let_go()
            for part in self._parts.values():
                part.spool.close()
            self._parts = {}

    def __reduce__(self) -> Any:
        return _again, (self.place, self._key)

    def forms(self, step: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtypes and shapes of the arrays of a checkpoint, and of the text beside them. Arrays
        in pieces are there as whole ones alone."""
        with self._lock:
            found = {
                prefix + one.name: (one.dtype, one.shape)
                for prefix, spool, _ in self._spools(step)
                for one in spool.regions(step)
            }
            whole_arrays = self._whole_arrays(step)
        for one in whole_arrays.values():
            for piece in one.pieces:
                found.pop(piece, None)
        return found | {name: one.form for name, one in whole_arrays.items()}

    def about(self, step: int, name: str) -> Array:
        """What is known of an array, or of the first piece of a whole one."""
        found = self._whole_arrays(step).get(name)
        return self.arrays(step)[name if found is None else found.pieces[0]]

    def _whole_arrays(self, step: int) -> dict[str, _Whole]:
        """The arrays of which ranks have saved pieces."""
        with self._lock:
            if step not in self._known:
                self._known[step] = self._found_whole(step) if self.has_manifests else {}
            return self._known[step]

    def _found_whole(self, step: int) -> dict[str, _Whole]:
        found: dict[str, _Whole] = {}
        for prefix, spool, _ in self._spools(step):
            dtypes = {one.name: one.dtype for one in spool.regions(step)}
            for node in shards_in(text) if (text := tree_text(spool, step)) else ():
                pieces = [each["array"] for each in node["of"]]
                form = next((dtypes[one] for one in pieces), "uint8"), tuple(node["shape"])
                one = found.setdefault(node["shards"], _Whole(form, []))
                one.pieces.extend(prefix + piece for piece in pieces)
        # One without any item has no pieces.
        return {name: one for name, one in found.items() if one.pieces}

    def arrays(self, step: int) -> dict[str, Array]:
        """The arrays of a checkpoint by name, unread."""
        found = self.regions(step)
        return {name: about for name, about in found.items() if not is_text(name)}

    def regions(self, step: int) -> dict[str, Array]:
        """The arrays of a checkpoint, and the texts beside them, by name and unread."""
        found: dict[str, Array] = {}
        with self._lock:
            for prefix, spool, _ in self._spools(step):
                frame, achieved = Frame(spool, step), spool.achieved(step)
                for at, one in enumerate(spool.regions(step)):
                    found[prefix + one.name] = Array(one, achieved[one.name], at, frame)
        return found

    def read(self, step: int, name: str, region: Any = ...) -> Any:
        """An array of a checkpoint, or a part of it, as one of NumPy."""
        if name in self._whole_arrays(step):
            with Gathered(parts_in(self.place, step), 0, same=False) as gathered:
                return gathered.named([name], region, "numpy", None)[name]
        with self._having(step, name) as (spool, own):
            return spool.load(step, own, region=region)

    def read_bytes(self, step: int, name: str, at: int, first: int, end: int) -> Any:
        """Some bytes of an array, which is at a place among the arrays of its part."""
        into = _arrays.memory(end - first)
        with self._having(step, name) as (spool, own):
            if spool._read_parts(step, at, [(first, end)], into):
                return into
            whole_array = spool.load(step, own)
        return whole_array.reshape(-1).view("uint8")[first:end]

    def values(self, step: int) -> dict[str, Any]:
        """The numbers and texts of a checkpoint, by the ways to them."""
        found: dict[str, Any] = {}
        for prefix, text in self._texts(step):
            found |= {prefix + name: leaf for name, leaf in leaves_of(text).items()}
        for part in parts_in(self.place, step) if self.has_manifests else ():
            values = leaves_of_values(part.manifest.values if part.manifest else "")
            found |= {part.prefix + name: leaf for name, leaf in values.items()}
        return found

    def dims(self, step: int) -> dict[str, tuple[str, ...]]:
        """The names of dimensions that were saved with arrays, by the names of the arrays."""
        return {
            prefix + name: dims
            for prefix, text in self._texts(step)
            for name, dims in dims_of(text).items()
        }

    def _texts(self, step: int) -> list[tuple[str, bytes]]:
        """The texts of trees, by the prefixes of ranks."""
        with self._lock:
            return [
                (prefix, text)
                for prefix, spool, _ in self._spools(step)
                if (text := tree_text(spool, step)) is not None
            ]

    @contextmanager
    def _having(self, step: int, name: str) -> Iterator[tuple[Spool, str]]:
        """The spool that has an array, and its name there."""
        with self._lock:
            spool, own, part = self._find(step, name)
            if part is None:
                # It ends when another step is put together.
                yield spool, own
                return
        yield spool, own

    def _find(self, step: int, name: str) -> tuple[Spool, str, _Part | None]:
        for prefix, spool, part in self._spools(step):
            if name.startswith(prefix) and _has(spool, step, name.removeprefix(prefix)):
                return spool, name.removeprefix(prefix), part
        raise UnknownVersionError(f"{self.place}: step {step} has no array {name!r}.")

    def _spools(self, step: int) -> list[tuple[str, Spool, _Part | None]]:
        """The spools that have a checkpoint in full, by the prefixes of ranks, and where it lies.

        Raises:
            CorruptCheckpointError, LostCheckpointError, StorageError, UnknownVersionError: it
                cannot be had.
        """
        if step not in self._there:
            raise self._missing(step)
        parts = None if self._held and self._held.step == step else self._in_full(step)
        if parts is None:
            return [(prefix, spool, None) for prefix, spool in self._put_together(step)]
        return [(prefix, part.spool, part) for prefix, part in parts]

    def _in_full(self, step: int) -> list[tuple[str, _Part]] | None:
        """The directories that have a checkpoint; None where it has to be put together."""
        if self._of_copies:
            return None
        parts = [(prefix, self._part(data)) for prefix, data in self._directories(step)]
        in_full = all(
            {each.name for each in part.spool.regions(step)} != INCREMENT for _, part in parts
        )
        return parts if in_full else None

    def _directories(self, step: int) -> list[tuple[str, Path]]:
        """The directories of ranks."""
        place = Path(self.place)
        if not self._of_run:
            return [("", place)]
        ranks = self._ranks[step]
        names = [(f"rank-{rank:04}", f"-of-{ranks:04}") for rank in range(ranks)]
        return [(f"{a}/" if ranks > 1 else "", place / f"{a}{b}" / "data") for a, b in names]

    def _part(self, directory: Path) -> _Part:
        if directory not in self._parts:
            self._parts[directory] = _Part(directory)
        return self._parts[directory]

    def _put_together(self, step: int) -> list[tuple[str, Spool]]:
        """A checkpoint that is fetched, or stored as an increment; the one before is let go."""
        if self._held is not None and self._held.step == step:
            return self._held.spools
        self._let_go()
        with ExitStack() as stack:
            spools = [
                (prefix, stack.enter_context(opened)) for prefix, opened in self._openings(step)
            ]
            self._held = _Held(step, spools, stack.pop_all())
        return spools

    def _openings(self, step: int) -> Iterator[tuple[str, Any]]:
        if self._of_copies:
            for one in parts_in(self.place, step):
                yield one.prefix, one.opened()
            return
        for prefix, data in self._directories(step):
            part = self._part(data)
            yield prefix, whole(part.spool, step, part.chains)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.stack.close()

    def _missing(self, step: int) -> Exception:
        if step in self.lost:
            return LostCheckpointError(f"{self.place}: step {step}: {self.lost[step]}")
        return UnknownVersionError(f"{self.place} has no step {step}.")


@functools.lru_cache(maxsize=4)
def _again(place: Place, key: str) -> Checkpoints:
    """What another process has sent, opened once in this one however often it is sent."""
    return Checkpoints(place)


def _has(spool: Spool, step: int, name: str) -> bool:
    return any(each.name == name for each in spool.regions(step))
