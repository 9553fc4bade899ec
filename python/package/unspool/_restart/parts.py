"""The parts of checkpoints, seen from outside: in the folder of a run, or in a place of copies."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from .._files import AnyPath, absolute
from .._types import Disk
from .._unspool import Spool
from ..errors import UnknownVersionError
from .core import Chains, ManifestOfPart, RestartCore
from .values import read

__all__ = ["CheckpointPart", "Part", "holds_copies", "holds_run", "parts", "parts_in", "whole"]

#: A directory, or the address of a remote place.
Place = Path | str


def holds_run(place: Place) -> bool:
    """Whether a Checkpointer has written there."""
    return isinstance(place, Path) and any(place.glob("rank-*-of-*/data"))


def holds_copies(place: Place) -> bool:
    """Whether a Checkpointer has copied to it; an address is taken for such a place."""
    return isinstance(place, str) or any(place.glob("rank-*-of-*/step-*.frame"))


class Part:
    """One rank's part of a checkpoint, or a checkpoint of a history, which has one.

    Attributes:
        step: the step of the checkpoint, or the version.
        manifest: what says that it counts; None in a history.
        place: the directory of the spool that has its arrays, or the remote place.
    """

    def __init__(
        self, place: Place, step: int, manifest: ManifestOfPart | None, *, copied: bool = False
    ) -> None:
        self.place, self.step, self.manifest, self._copied = place, step, manifest, copied

    @property
    def prefix(self) -> str:
        """What stands before names of arrays, so that those of several ranks differ."""
        if self.manifest is None or self.manifest.ranks == 1:
            return ""
        return f"rank-{self.manifest.rank:04}/"

    @contextmanager
    def opened(self) -> Iterator[Spool]:
        """A spool that has it in full. What else is damaged there is not warned of.

        Raises:
            CorruptCheckpointError, LostCheckpointError, StorageError: it cannot be had.
        """
        if self._copied and self.manifest is not None:
            with RestartCore.opened_remote(str(self.place), self.manifest) as spool:
                yield spool
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            spool = Spool(device="cpu", disk=Disk(self.place, mode="r"))
        with spool, whole(spool, self.step) as there:
            yield there


def parts_in(place: Place, step: int | None, seconds: float = 0.0) -> list[Part]:
    """All parts of a checkpoint in the folder of a run or in a place of copies, by rank; those that
    are not there yet are waited for so many seconds. Without a step it is the newest one of which
    all parts are there.

    Raises:
        UnknownVersionError: not all of them are there.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return _parts_in(place, step)
        except UnknownVersionError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.02)


def _parts_in(place: Place, step: int | None) -> list[Part]:
    if not holds_run(place) and holds_copies(place):
        copied = RestartCore.found_remote(str(place), step)
        return [Part(place, found.step, found, copied=True) for found, _ in copied]
    return [Part(Path(data), found.step, found) for found, data in RestartCore.found(place, step)]


def manifests_in(remote: str) -> list[ManifestOfPart]:
    """What rank 0 has written of each checkpoint in a remote place."""
    found: list[ManifestOfPart] = []
    for one in RestartCore.listed_remote(remote)[0]:
        with suppress(UnknownVersionError):
            parts = RestartCore.found_remote(remote, one["step"])
            found += [manifest for manifest, _ in parts if manifest.rank == 0]
    return found


class CheckpointPart(Mapping[str, Any]):
    """The arrays that one rank has saved, by name; NumPy has them. They are read together when one
    of them is first asked for, and are kept for as long as this object is.

    Attributes:
        step: the step of the checkpoint.
        rank: the rank that saved this part.
        ranks: the number of ranks that have a part.
        small: the small values; the text of a program in C, C++ or Fortran is under `values`.
    """

    def __init__(self, part: Part, manifest: ManifestOfPart) -> None:
        self.rank, self.ranks, self.step = manifest.rank, manifest.ranks, manifest.step
        self.small, _ = read(manifest.values)
        self._part = part

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        with self._part.opened() as spool:
            found: dict[str, Any] = spool.load(self.step)
            return found

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<part of rank {self.rank} of {self.ranks}, step {self.step}>"


@contextmanager
def whole(spool: Spool, step: int, chains: Chains | None = None) -> Iterator[Spool]:
    """A spool that has a step of `spool` in full: the same one, or one in memory where the step is
    stored as an increment. `chains` are those of the spool, for who asks for several steps.

    Raises:
        CorruptCheckpointError, LostCheckpointError, StorageError: it cannot be put together.
    """
    put_together = (chains or RestartCore.chains(spool)).put_together(step)
    if put_together is None:
        yield spool
        return
    with put_together:
        yield put_together


def parts(path: AnyPath, step: int | None) -> list[CheckpointPart]:
    """All parts of a checkpoint, by rank."""
    is_address = isinstance(path, str) and "://" in path
    place = path if isinstance(path, str) and is_address else absolute(path, "path")
    found = parts_in(place, step)
    return [CheckpointPart(part, part.manifest) for part in found if part.manifest is not None]
