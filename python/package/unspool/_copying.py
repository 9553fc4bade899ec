"""`unspool copy`: checkpoints into another folder, where they count as they did."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._files import same
from ._holdings import Part, holds_history, parts_of, steps_of
from ._restart.command import check_children
from ._restart.core import RestartCore
from ._restart.parts import Place, holds_copies, holds_run
from ._trees import REGION, Apart
from ._types import Disk
from ._unspool import Spool
from .errors import Error, OptionError, StorageError

__all__ = ["copy"]

#: The beginning of the name of a folder with what is to replace a checkpoint.
BESIDE = ".unspool-copy-"

RUN, COPIES, HISTORY = "the folder of a run", "a place of copies", "a history"


def copy(options: argparse.Namespace, choose: Callable[[str, list[int]], list[int]]) -> int:
    """Copies checkpoints; returns 0.

    Arrays are read, their checksums compared, and saved anew without a codec. The parts of a
    checkpoint of a run count when all of their arrays are durable. What is replaced goes when what
    replaces it is durable, in a folder beside it, which the next copy takes it from where this one
    is interrupted.

    Raises:
        OptionError: there is no such checkpoint, one is in the other folder already, or the other
            folder is the same one or of another kind.
        CorruptCheckpointError, LostCheckpointError, StorageError: one could not be read or written.
    """
    path, to = options.directory, _folder(options.to)
    _finish(to)
    steps = choose(options.steps, steps_of(path))
    # An increment goes before what it builds on.
    parts = {step: parts_of(path, step) for step in sorted(steps, reverse=True)}
    of_run = next(iter(parts.values()))[0].manifest is not None
    known = _known(path, to, of_run)
    there = sorted(known & set(steps))
    if there and not options.force:
        raise OptionError(f"{to} has {there[0]} already: --force replaces it")
    for of_step in parts.values():
        _check_apart(path, of_step, to)
    if of_run and to.is_dir():
        _check_run(to, _ranks(parts.values()), there)
    to.mkdir(exist_ok=True)
    for step, of_step in parts.items():
        _replace(of_step, step, to) if step in known else _add(of_step, to)
    print(f"{len(steps)} checkpoint{'' if len(steps) == 1 else 's'} copied to {to}")
    return 0


def _folder(text: str) -> Path:
    if "://" in text:
        raise OptionError(
            f"{text}: copy writes to a folder; `remote` of a Checkpointer copies there"
        )
    return Path(text)


def _known(path: Place, to: Path, of_run: bool) -> set[int]:
    """The checkpoints in the other folder.

    Raises:
        OptionError: it is of another kind.
    """
    kind = _kind(to) if to.exists() else None
    if kind is None:
        return set()
    if kind != (RUN if of_run else HISTORY):
        raise OptionError(f"{path} is {_kind(path)}, and {to} is {kind}: choose another folder")
    # Also those that do not count on all ranks: their parts would be replaced.
    return {one["step"] for one in RestartCore.listed(to)[0]} if of_run else set(steps_of(to))


def _kind(place: Place) -> str | None:
    """What a place holds, in words."""
    if holds_run(place):
        return RUN
    if holds_copies(place):
        return COPIES
    return HISTORY if isinstance(place, Path) and holds_history(place) else None


def _check_apart(path: Place, parts: Iterable[Part], to: Path) -> None:
    """Refuses to copy a directory onto itself, by whatever name it goes."""
    pairs = [(path, to), *((part.place, _data(part, to)) for part in parts)]
    for source, target in pairs:
        if isinstance(source, Path) and same(source, target):
            raise OptionError(f"{target} is {source} itself: choose another folder")


def _ranks(parts: Iterable[list[Part]]) -> set[int]:
    """The numbers of ranks of checkpoints."""
    return {part.manifest.ranks for of_step in parts for part in of_step if part.manifest}


def _check_run(to: Path, ranks: set[int], replaced: list[int]) -> None:
    """Refuses what a run in the other folder could not be gone on from afterwards.

    Raises:
        OptionError: it has parts of another number of ranks, or increments to what is replaced.
        StorageError: a process has a part of it open.
    """
    others = {one["ranks"] for one in RestartCore.listed(to)[0]} - ranks
    if others or len(ranks) > 1:
        has = ", ".join(map(str, sorted(others or ranks)))
        raise OptionError(
            f"{to} has or would have checkpoints of {has} ranks beside those of {min(ranks)}, and "
            "no run could go on from there: choose another folder"
        )
    check_children(to, set(replaced), "replace")
    for data in to.glob("rank-*-of-*/data"):
        # Who has it open is asked before anything is replaced.
        with _opened(data):
            pass


def _replace(parts: list[Part], step: int, to: Path) -> None:
    """Puts a checkpoint in place of another one, which stays until all of it is beside it."""
    beside = Path(tempfile.mkdtemp(prefix=BESIDE, dir=to))
    with _held(beside):
        try:
            _add(parts, beside)
            whole = parts_of(beside, step)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        _move(whole, beside, to)
        shutil.rmtree(beside)


def _move(parts: list[Part], beside: Path, to: Path) -> None:
    try:
        _add(parts, to)
    except Error as why:
        text = f"The whole copy of step {parts[0].step} is in {beside}: the next copy moves it."
        raise StorageError(f"{why} {text}") from why


def _finish(to: Path) -> None:
    """Ends what an interrupted copy has left: what is whole beside a checkpoint that was removed
    for it takes its place, and everything else goes."""
    for beside in sorted(to.glob(f"{BESIDE}*")):
        with _held(beside) as is_free:
            if not is_free:
                continue
            for step in _counting(beside) - _counting(to):
                _move(parts_of(beside, step), beside, to)
            shutil.rmtree(beside)


def _counting(path: Path) -> set[int]:
    return set() if _kind(path) is None else set(steps_of(path))


@contextmanager
def _held(beside: Path) -> Iterator[bool]:
    """Keeps other processes off a folder beside checkpoints; whether none has it."""
    descriptor = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = True
    except OSError:
        # It is held, or the file system has no locks.
        is_free = False
    try:
        yield is_free
    finally:
        os.close(descriptor)


def _add(parts: Iterable[Part], to: Path) -> None:
    """Copies a checkpoint, in place of what is there of it."""
    for part in parts:
        data = _data(part, to)
        if part.manifest is not None:
            data.parent.mkdir(mode=0o700, exist_ok=True)
        # The spool holds the lock: a run that goes on is not disturbed.
        with _opened(data) as into, _taken(part) as apart:
            manifest = data.parent / f"step-{part.step}.manifest"
            if part.manifest is not None:
                manifest.unlink(missing_ok=True)
                _sync(data.parent)
            into.save(part.step, apart, overwrite=True)
            into.flush()
            if part.manifest is not None:
                # What was an increment there is in full here.
                _write(manifest, part.manifest.in_full())


def _data(part: Part, to: Path) -> Path:
    """The directory of the arrays of a part in another folder."""
    manifest = part.manifest
    if manifest is None:
        return to
    return to / f"rank-{manifest.rank:04}-of-{manifest.ranks:04}" / "data"


@contextmanager
def _opened(directory: Path) -> Iterator[Spool]:
    """A durable directory to write to, of which what is damaged stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        spool = Spool(device="cpu", disk=Disk(directory, durable=True))
    with spool:
        yield spool


@contextmanager
def _taken(part: Part) -> Iterator[Apart]:
    """The arrays of a checkpoint where they lie, with what says how they hang together."""
    step = part.step
    with part.opened() as spool:
        is_tree = any(region.name == REGION for region in spool.regions(step))
        text = bytes(spool._load_parts(step)[REGION]) if is_tree else None
        with spool.reading(step) as arrays:
            yield Apart(arrays if isinstance(arrays, dict) else dict(_numbered(arrays)), text)


def _numbered(arrays: Any) -> list[tuple[str, Any]]:
    several = arrays if isinstance(arrays, tuple) else (arrays,)
    return [(str(number), array) for number, array in enumerate(several)]


def _write(target: Path, manifest: bytes) -> None:
    """By the rules of the format: under another name, synced, renamed, and the folder synced."""
    part = target.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(manifest)
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
