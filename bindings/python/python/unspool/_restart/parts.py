"""All parts of a checkpoint, for those who go on with another number of ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from .._files import AnyPath, absolute
from .._types import Disk
from .._unspool import Spool
from .core import Chains, RestartCore
from .values import read

__all__ = ["CheckpointPart", "parts", "whole"]


class CheckpointPart(Mapping[str, Any]):
    """The arrays that one rank has saved, by name; NumPy has them. They are read together when one
    of them is first asked for, and are kept for as long as this object is.

    Attributes:
        step: the step of the checkpoint.
        rank: the rank that saved this part.
        ranks: the number of ranks that have a part.
        small: the small values; the text of a program in C, C++ or Fortran is under `values`.
    """

    def __init__(self, rank: int, ranks: int, step: int, text: str, data: str) -> None:
        self.rank, self.ranks, self.step = rank, ranks, step
        self.small, _ = read(text)
        self._data = data

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        with warnings.catch_warnings():
            # What else is damaged there does not matter here.
            warnings.simplefilter("ignore", RuntimeWarning)
            spool = Spool(on="cpu", disk=Disk(self._data, mode="r"))
        with spool, whole(spool, self.step) as there:
            found: dict[str, Any] = there.load(self.step)
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
    return [CheckpointPart(*found) for found in RestartCore.found(absolute(path, "path"), step)]
