"""Part `node`: processes that share a node and one GPU, and begin together.

Each has its share of the host memory and of the device tier. With turns only one of them is inside
a registration at a time; without, all that want to; and as a comparison each gets its share by
cudaHostAlloc.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unspool.stats import size as size_text
from unspool_studies.bench.child import Job
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import Warmth, available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import room_for

__all__ = [
    "LIMIT",
    "Child",
    "NodeError",
    "Outcome",
    "cells_of",
    "child",
    "job_of",
    "run",
    "together",
]

COLUMNS = (
    "processes",
    "way",
    "first save ms",
    "ready ms",
    "last ready ms",
    "forward s",
    "reverse s",
    "all forward GB/s",
    "all reverse GB/s",
)

NOTES = (
    "first save, ready, forward, reverse: median over the processes, with the least and greatest; "
    "first save is from before the spool is made",
    "all: bytes of all processes over the time of the slowest; up to a quarter of a history stays "
    "in the device tier and need not cross the link",
    "pinned: cudaHostAlloc of the share, then plain copies one after the other",
)

#: Name of the way, what a process does, and what its environment says.
WAYS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("unspool", "spool", {}),
    ("unspool, no turns", "spool", {"UNSPOOL_REGISTER_TURNS": "0"}),
    ("pinned", "pinned", {}),
)

#: The longest that an answer of a process is waited for, in seconds.
LIMIT = 120.0

COMMAND = (sys.executable, "-m", "unspool_studies.bench.child")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one process has measured, in seconds."""

    first: float
    ready: float | None
    forward: float
    reverse: float


def job_of(plan: Plan, processes: int, way: str) -> Job:
    """What each of so many processes does."""
    checkpoints = max(1, -(-plan.node_history // plan.checkpoint))
    host = plan.share // processes
    # A quarter of the history at most, so that the sweep does cross the link.
    device = max(2, min(plan.device_tier // processes // plan.checkpoint, checkpoints // 4))
    held = host // room_for(1, plan.checkpoint)
    return Job(
        way,
        plan.device,
        room_for(device, plan.checkpoint),
        host,
        plan.checkpoint,
        max(1, min(checkpoints, held)),
    )


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A row for each number of processes and each way."""
    title = f"Processes that share one GPU and {size_text(plan.share)} of host memory"
    table = report.begin(Table("node", title, COLUMNS, notes=list(NOTES)))
    if not fits(plan.share, available_memory()):
        free = size_text(available_memory() or 0)
        table.note(f"left out: {free} of host memory are free")
        return report.show(table)
    warmth = Warmth(plan.touch_threads, plan.warm != 0)
    for processes in plan.processes:
        for name, way, environment in WAYS:
            if processes == 1 and environment:
                continue
            job = job_of(plan, processes, way)
            warmth.bring(plan.share)
            try:
                found = together(processes, (*COMMAND, job.text()), environment)
            except NodeError as error:
                table.note(f"{processes} processes, {name}: {error}")
                continue
            table.add(processes, name, *cells_of(job, found))
    table.note(str(warmth))
    report.show(table)


def cells_of(job: Job, found: Sequence[Outcome]) -> list[Cell]:
    """The figures of a row."""
    ready = [one.ready * 1e3 for one in found if one.ready is not None]
    total = len(found) * job.checkpoints * job.size
    forward = Sample.of(one.forward for one in found)
    reverse = Sample.of(one.reverse for one in found)
    return [
        Sample.of(one.first * 1e3 for one in found),
        Sample.of(ready) if ready else None,
        max(ready) if ready else None,
        forward,
        reverse,
        total / forward.high / 1e9,
        total / reverse.high / 1e9,
    ]


class NodeError(Exception):
    """A process failed or did not answer."""


def together(processes: int, command: Sequence[str], environment: dict[str, str]) -> list[Outcome]:
    """Starts processes, lets them do each phase at the same time, and collects what they say.

    Raises:
        NodeError: one of them failed or did not answer in time; all are ended.
    """
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(child(command, environment)) for _ in range(processes)]
        for one in children:
            one.hear_ready()
        starts, sweeps = (_phase(children, name) for name in ("start", "sweep"))
        return [
            Outcome(a["first"], a["ready"], b["forward"], b["reverse"])
            for a, b in zip(starts, sweeps, strict=True)
        ]


def _phase(children: list[Child], name: str) -> list[dict[str, Any]]:
    for one in children:
        one.tell(name)
    return [json.loads(one.hear()) for one in children]


class Child:
    """One process, spoken to line by line: never more than one answer is under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, word: str) -> None:
        """Sends a line. Raises: NodeError: the process has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise NodeError(self._why()) from error

    def hear_ready(self) -> None:
        """Waits until the process has begun. Raises: NodeError: it has not."""
        if (word := self.hear()) != "ready":
            raise NodeError(f"a process said {word!r} instead of being ready")

    def hear(self, limit: float = LIMIT) -> str:
        """Waits for a line. Raises: NodeError: none came within `limit` seconds, or none will."""
        assert self.process.stdout is not None
        there, _, _ = select.select([self.process.stdout], [], [], limit)
        if not there:
            raise NodeError(f"a process did not answer within {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise NodeError(self._why())
        return line.strip()

    def _why(self) -> str:
        assert self.process.stderr is not None
        self.process.wait(LIMIT)
        last = self.process.stderr.read().strip().splitlines()[-1:]
        return f"a process failed with {self.process.returncode}: {' '.join(last)}"


@contextlib.contextmanager
def child(command: Sequence[str], environment: dict[str, str]) -> Iterator[Child]:
    """Starts a process, and ends it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        yield Child(process)
    except BaseException:
        # What it does is not wanted any more, and nobody measures beside it.
        process.kill()
        raise
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Lets a process end by itself, and ends it when it does not."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
