"""`unspool copy`: checkpoints into another folder, where they count as they did."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._holdings import Part, holds_history, parts_of, reading, steps_of
from ._restart.command import holds_run
from ._restart.core import RestartCore
from ._restart.parts import whole
from ._trees import REGION, Apart
from ._types import Disk
from ._unspool import Spool
from .errors import OptionError, StorageError

__all__ = ["copy"]


def copy(options: argparse.Namespace, choose: Callable[[str, list[int]], list[int]]) -> int:
    """Copies checkpoints; returns 0.

    Arrays are read, their checksums compared, and saved anew without a codec. The parts of a
    checkpoint of a run count when all of their arrays are durable.

    Raises:
        OptionError: there is no such checkpoint, or one is in the other folder already.
        CorruptCheckpointError, LostCheckpointError, StorageError: one could not be read or written.
    """
    path, to = options.directory, options.to
    steps = choose(options.steps, steps_of(path))
    is_run = holds_run(path)
    if to.exists() and (holds_history(to) if is_run else holds_run(to)):
        kinds = ("the folder of a run", "a history")
        raise OptionError(f"{path} is {kinds[not is_run]}, and {to} is {kinds[is_run]}")
    known = set(steps_of(to)) if to.exists() and (holds_run(to) or holds_history(to)) else set()
    there = sorted(known & set(steps))
    if there and not options.force:
        raise OptionError(f"{to} has {there[0]} already: --force replaces it")
    to.mkdir(exist_ok=True)
    for step in steps:
        for part in parts_of(path, step):
            _copy_part(part, step, to)
    print(f"{len(steps)} checkpoint{'' if len(steps) == 1 else 's'} copied to {to}")
    return 0


def _copy_part(part: Part, step: int, to: Path) -> None:
    """One rank's part, or the checkpoint of a history."""
    if part.rank is None:
        with _opened(to) as into, _taken(part.data, step) as apart:
            into.save(step, apart, overwrite=True)
            into.flush()
        return
    source, folder = part.data.parent, to / part.data.parent.name
    folder.mkdir(mode=0o700, exist_ok=True)
    # The spool holds the lock: a run that goes on is not disturbed.
    with _opened(folder / "data") as into, _taken(part.data, step) as apart:
        (folder / _manifest(step)).unlink(missing_ok=True)
        _sync(folder)
        into.save(step, apart, overwrite=True)
        into.flush()
        _copy_manifest(source / _manifest(step), folder / _manifest(step))


@contextmanager
def _opened(directory: Path) -> Iterator[Spool]:
    """A durable directory to write to, of which what is damaged stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        spool = Spool(on="cpu", disk=Disk(directory, durable=True))
    with spool:
        yield spool


@contextmanager
def _taken(source: Path, step: int) -> Iterator[Apart]:
    """The arrays of a checkpoint where they lie, with what says how they hang together."""
    with reading(source) as data, whole(data, step) as spool:
        is_tree = any(region.name == REGION for region in spool.regions(step))
        text = bytes(spool._load_parts(step)[REGION]) if is_tree else None
        with spool.reading(step) as arrays:
            yield Apart(arrays if isinstance(arrays, dict) else dict(_numbered(arrays)), text)


def _numbered(arrays: Any) -> list[tuple[str, Any]]:
    several = arrays if isinstance(arrays, tuple) else (arrays,)
    return [(str(number), array) for number, array in enumerate(several)]


def _manifest(step: int) -> str:
    return f"step-{step}.manifest"


def _copy_manifest(source: Path, target: Path) -> None:
    """By the rules of the format: under another name, synced, renamed, and the folder synced."""
    part = target.with_suffix(".part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            # What was an increment there is in full here.
            file.write(RestartCore.in_full(source.read_bytes()))
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
        _sync(target.parent)
    except OSError as why:
        raise StorageError(f"{target} cannot be written: {why}") from why


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
