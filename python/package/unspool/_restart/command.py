"""`unspool ls`, `verify` and `rm` on the folder of a run that a Checkpointer has written."""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from .. import stats
from .._types import Disk
from .._unspool import Spool
from ..errors import (
    CorruptCheckpointError,
    LostCheckpointError,
    OptionError,
    StorageError,
    UnknownVersionError,
)
from .core import Chains, RestartCore
from .looking import age
from .parts import Place, holds_run, parts_in

__all__ = ["Choose", "check_children", "list_run", "remove_steps", "verify_run"]

#: Chooses among the steps that are there by a text such as `10:20`.
Choose = Callable[[str, list[int]], list[int]]

#: What may be wrong with a part.
UNREADABLE = (CorruptCheckpointError, LostCheckpointError, StorageError, UnknownVersionError)

#: What is wrong with a version of a spool, if anything.
Fault = Callable[[Spool, int, Chains], str | None]


def list_run(options: argparse.Namespace, choose: Choose) -> int:
    """Lists the checkpoints of a run."""
    found, damaged = _listed(options.directory, options.versions, choose)
    if options.json:
        _print_json(options.directory, checkpoints=found, damaged=damaged)
        return 0
    rows = [("step", "ranks", "bytes", "durable after", "written", "age", "")]
    rows += [
        (
            str(one["step"]),
            f"{len(one['has'])} of {one['ranks']}",
            stats.size(one["nbytes"]),
            f"{one['seconds']:.2f} s",
            _date(one["written"]),
            age(one["written"]),
            ("counts" if one["counts"] else _lacking(one)) + _increment(one),
        )
        for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for *cells, last in rows:
        padded = [text.rjust(width) for text, width in zip(cells, widths, strict=True)]
        print("  ".join([*padded, last]).rstrip())
    for text in damaged:
        print(text)
    return 0


def verify_run(options: argparse.Namespace, choose: Choose, fault: Fault) -> int:
    """Reads every part of every checkpoint of a run; 1 when something is damaged or missing."""
    path = options.directory
    found, damaged = _listed(path, options.versions, choose)
    wanted = {one["step"] for one in found}
    if holds_run(path):
        parts = _verify_folder(path, found, damaged, fault)
    else:
        parts = _verify_copies(path, found, damaged)
    if options.json:
        _print_json(path, steps=sorted(wanted), parts=parts, damaged=damaged)
    else:
        for text in damaged:
            print(text)
        print(f"{parts} parts of {len(wanted)} steps read, {len(damaged)} damaged or missing")
    return 1 if damaged else 0


def _verify_folder(
    path: Path, found: list[dict[str, Any]], damaged: list[str], fault: Fault
) -> int:
    """Adds what is wrong to `damaged`; the number of parts that were read."""
    parts = 0
    for data, rank, ranks in _folders(path):
        held = [one for one in found if one["ranks"] == ranks and rank in one["has"]]
        with _opened(Disk(data, mode="r")) as spool:
            there, chains = set(spool.versions()), RestartCore.chains(spool)
            lost = spool.lost()
            for one in held:
                step = one["step"]
                parts += 1
                is_there = step in there
                why = fault(spool, step, chains) if is_there else lost.get(step, "it is not there")
                if why:
                    damaged.append(f"rank {rank} of {ranks}, step {step}: {why}")
    return parts


def _verify_copies(place: Place, found: list[dict[str, Any]], damaged: list[str]) -> int:
    """As `_verify_folder`, for a place of copies."""
    parts = 0
    for step in (one["step"] for one in found if one["counts"]):
        for part in parts_in(place, step):
            parts += 1
            try:
                with part.opened() as spool, spool.reading(step):
                    pass
            except UNREADABLE as why:
                damaged.append(f"{part.prefix.rstrip('/') or 'rank 0'}, step {step}: {why}")
    return parts


def check_children(path: Path, steps: set[int], what: str) -> None:
    """Refuses to do away with steps that others are increments to.

    Raises:
        OptionError: others are.
    """
    for one in RestartCore.listed(path)[0]:
        if one["step"] not in steps and (needed := steps.intersection(one["increment_to"])):
            raise OptionError(
                f"step {one['step']} is an increment to step {min(needed)} in {path}: {what} both, "
                "or neither"
            )


def remove_steps(options: argparse.Namespace, choose: Choose) -> int:
    """Removes checkpoints of a run on all ranks that are in this folder, and copies of them in the
    folders of other ranks and in the remote place, by which they would come back at a restart.

    Raises:
        OptionError: there is no such step, or no run.
        StorageError: a process of the run still has its part open; it was not touched. Or the
            remote place with copies cannot be had; what has copies there was not touched.
    """
    path = options.directory
    if not holds_run(path):
        raise OptionError(f"{path} holds no checkpoints of a run (unspool clean --discard?)")
    steps = {one["step"] for one in _listed(path, options.steps, choose)[0]}
    check_children(path, steps, "remove")
    kept, remote = 0, Counter[str]()
    for data, rank, ranks in _folders(path):
        # The spool holds the lock: a run that goes on is not disturbed.
        with _opened(Disk(data, durable=True)) as spool:
            # An increment goes before what it builds on.
            for step in sorted(steps, reverse=True):
                if not options.keep_copies:
                    # First, so that what cannot be removed there is here still.
                    of_others, place = RestartCore.remove_copies(path, rank, ranks, step)
                    kept += of_others
                    remote.update([] if place is None else [place])
                RestartCore.remove(path, rank, ranks, step)
                if step in spool or step in spool.lost():
                    spool.discard(step)
    print(f"{_counted(len(steps), 'checkpoint')} removed")
    if kept:
        print(f"{_counted(kept, 'copy', 'copies')} that ranks kept for others removed")
    for place, count in sorted(remote.items()):
        print(f"{_counted(count, 'copy', 'copies')} in {place} removed")
    return 0


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _listed(
    path: Place, text: str | None, choose: Choose
) -> tuple[list[dict[str, Any]], list[str]]:
    if holds_run(path):
        found, damaged = RestartCore.listed(path)
    else:
        found, damaged = RestartCore.listed_remote(str(path))
    if text is not None:
        chosen = set(choose(text, sorted({one["step"] for one in found})))
        found = [one for one in found if one["step"] in chosen]
    return found, damaged


def _folders(path: Path) -> Iterator[tuple[Path, int, int]]:
    """The directories of ranks, with the rank and the number of ranks."""
    for data in sorted(path.glob("rank-*-of-*/data")):
        rank, _, ranks = data.parent.name.removeprefix("rank-").partition("-of-")
        if rank.isdecimal() and ranks.isdecimal():
            yield data, int(rank), int(ranks)


@contextmanager
def _opened(disk: Disk) -> Iterator[Spool]:
    """A spool of which what is lost is told here, and not warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        spool = Spool(device="cpu", disk=disk)
    with spool:
        yield spool


def _increment(one: dict[str, Any]) -> str:
    if not one["increment_to"]:
        return ""
    parents = ", ".join(map(str, one["increment_to"]))
    return f", {stats.size(one['stored'])} stored as an increment to {parents}"


def _lacking(one: dict[str, Any]) -> str:
    # There may be more ranks than can be counted one by one, in a file that somebody made up.
    count, has = one["ranks"] - len(one["has"]), set(one["has"])
    lacking = islice((rank for rank in range(one["ranks"]) if rank not in has), 3)
    more = f" and {count - 3} more" if count > 3 else ""
    return f"lacks rank {', '.join(map(str, lacking))}{more}"


def _date(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"


def _print_json(directory: Place, **fields: Any) -> None:
    print(json.dumps({"directory": str(directory), **fields}, indent=2))
