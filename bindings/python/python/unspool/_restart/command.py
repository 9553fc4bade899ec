"""`unspool ls`, `verify` and `rm` on the folder of a run that a Checkpointer has written."""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import stats
from .._types import Disk
from .._unspool import Spool
from ..errors import OptionError
from .core import Chains, RestartCore

__all__ = ["Choose", "holds_copies", "holds_run", "list_run", "remove_steps", "verify_run"]

#: Chooses among the steps that are there by a text such as `10:20`.
Choose = Callable[[str, list[int]], list[int]]

#: What is wrong with a version of a spool, if anything.
Fault = Callable[[Spool, int, Chains], str | None]


def holds_run(path: Path) -> bool:
    """Whether a Checkpointer has written there."""
    return any(path.glob("rank-*-of-*/data"))


def holds_copies(place: Path | str) -> bool:
    """Whether a Checkpointer has copied to it; an address is taken for such a place."""
    return isinstance(place, str) or any(place.glob("rank-*-of-*/step-*.frame"))


def list_run(options: argparse.Namespace, choose: Choose) -> int:
    """Lists the checkpoints of a run."""
    found, damaged = _listed(options.directory, options.versions, choose)
    if options.json:
        _print_json(options.directory, checkpoints=found, damaged=damaged)
        return 0
    rows = [("step", "ranks", "bytes", "durable after", "written", "")]
    rows += [
        (
            str(one["step"]),
            f"{len(one['has'])} of {one['ranks']}",
            stats.size(one["nbytes"]),
            f"{one['seconds']:.2f} s",
            f"{datetime.fromtimestamp(one['written'], UTC):%Y-%m-%d %H:%M:%S}",
            ("counts" if one["counts"] else _lacking(one)) + _increment(one),
        )
        for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
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
    if options.json:
        _print_json(path, steps=sorted(wanted), parts=parts, damaged=damaged)
    else:
        for text in damaged:
            print(text)
        print(f"{parts} parts of {len(wanted)} steps read, {len(damaged)} damaged or missing")
    return 1 if damaged else 0


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
    for one in RestartCore.listed(path)[0]:
        if one["step"] not in steps and (needed := steps.intersection(one["increment_to"])):
            raise OptionError(
                f"step {one['step']} is an increment to step {min(needed)}: remove both, or neither"
            )
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
    path: Path | str, text: str | None, choose: Choose
) -> tuple[list[dict[str, Any]], list[str]]:
    if holds_copies(path):
        found, damaged = RestartCore.listed_remote(str(path))
    else:
        found, damaged = RestartCore.listed(path)
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
        spool = Spool(on="cpu", disk=disk)
    with spool:
        yield spool


def _increment(one: dict[str, Any]) -> str:
    if not one["increment_to"]:
        return ""
    parents = ", ".join(map(str, one["increment_to"]))
    return f", {stats.size(one['stored'])} stored as an increment to {parents}"


def _lacking(one: dict[str, Any]) -> str:
    lacking = sorted(set(range(one["ranks"])) - set(one["has"]))
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return f"lacks rank {', '.join(map(str, lacking[:3]))}{more}"


def _print_json(directory: Path | str, **fields: Any) -> None:
    print(json.dumps({"directory": str(directory), **fields}, indent=2))
