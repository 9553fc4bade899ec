"""What checkpoints a path holds, whether it is a durable history or the folder of a run.

For the commands that take them out. Nothing is changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ._restart.command import holds_run
from ._restart.core import RestartCore
from ._types import Disk
from ._unspool import Spool
from .errors import OptionError

__all__ = ["Part", "holds_history", "lost_of", "parts_of", "reading", "steps_of"]


class Part(NamedTuple):
    """One rank's part of a checkpoint, or a checkpoint of a history, which has one.

    Attributes:
        data: the directory of the spool that has its arrays.
        rank: the rank, or None in a history.
        ranks: the number of ranks that have a part.
        values: the small values, as the text that was saved with it; None in a history.
    """

    data: Path
    rank: int | None = None
    ranks: int = 1
    values: str | None = None

    @property
    def prefix(self) -> str:
        """What stands before names of arrays, so that those of several ranks differ."""
        return f"rank-{self.rank:04}/" if self.ranks > 1 else ""


def steps_of(path: Path) -> list[int]:
    """The checkpoints that can be taken out: those of a run that count, or all of a history.

    Raises:
        OptionError: it holds none.
    """
    if not path.is_dir():
        raise OptionError(f"{path} is not a directory")
    if holds_run(path):
        return sorted({one["step"] for one in RestartCore.listed(path)[0] if one["counts"]})
    if not holds_history(path):
        raise OptionError(
            f"{path} holds no durable checkpoints: no Checkpointer wrote it, and no spool had it "
            "as Disk(..., durable=True)"
        )
    with reading(path) as spool:
        return spool.versions()


def parts_of(path: Path, step: int) -> list[Part]:
    """All parts of a checkpoint, by rank.

    Raises:
        UnknownVersionError: not all of them are there.
    """
    if not holds_run(path):
        return [Part(path)]
    found = RestartCore.found(path, step)
    return [Part(Path(data), rank, ranks, text) for rank, ranks, _, text, data in found]


def lost_of(path: Path) -> dict[int, str]:
    """The versions of a history that are lost, and why."""
    if holds_run(path):
        return {}
    with reading(path) as spool:
        return spool.lost()


def holds_history(directory: Path) -> bool:
    """Whether a spool has had it as a durable directory."""
    names = ("unspool.manifest", "unspool.lock")
    patterns = ("frame-*", "pack-*")
    there = any((directory / name).exists() for name in names)
    return there or any(any(directory.glob(pattern)) for pattern in patterns)


@contextmanager
def reading(directory: Path) -> Iterator[Spool]:
    """A history for reading. What is lost in it is not warned of: the commands say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        spool = Spool(on="cpu", disk=Disk(directory, mode="r"))
    with spool:
        yield spool
