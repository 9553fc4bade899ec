"""What checkpoints a path holds: a durable history, the folder of a run, or a place of copies.

For the commands that take them out. Nothing is changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ._restart.core import RestartCore
from ._restart.parts import Part, Place, holds_copies, holds_run, parts_in
from ._types import Disk
from ._unspool import Spool
from .errors import OptionError

__all__ = ["Part", "holds_history", "lost_of", "parts_of", "reading", "steps_of"]


def steps_of(place: Place) -> list[int]:
    """The checkpoints that can be taken out: those of a run or its copies that count, or all of a
    history.

    Raises:
        OptionError: it holds none.
    """
    if isinstance(place, Path) and not place.is_dir():
        raise OptionError(f"{place} is not a directory")
    if holds_run(place) or holds_copies(place):
        listed = RestartCore.listed if holds_run(place) else RestartCore.listed_remote
        of_run = listed(place if holds_run(place) else str(place))[0]
        return sorted({one["step"] for one in of_run if one["counts"]})
    if isinstance(place, str) or not holds_history(place):
        raise OptionError(
            f"{place} holds no durable checkpoints: no Checkpointer wrote it or copied to it, and "
            "no spool had it as Disk(..., durable=True)"
        )
    with reading(place) as spool:
        return spool.versions()


def parts_of(place: Place, step: int) -> list[Part]:
    """All parts of a checkpoint, by rank.

    Raises:
        UnknownVersionError: not all of them are there.
    """
    if holds_run(place) or holds_copies(place):
        return parts_in(place, step)
    return [Part(place, step, None)]


def lost_of(place: Place) -> dict[int, str]:
    """The versions of a history that are lost, and why."""
    if isinstance(place, str) or holds_run(place) or holds_copies(place):
        return {}
    with reading(place) as spool:
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
        spool = Spool(device="cpu", disk=Disk(directory, mode="r"))
    with spool:
        yield spool
