"""Part `node`: processes that share a node and one GPU, and begin together.

Each has its share of the host memory and of the device tier. With turns only one of them is inside
a registration at a time; without, all that want to; and as a comparison each gets its share by
cudaHostAlloc.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from unspool.stats import size as size_text
from unspool_studies.bench.child import Job
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import Warmth, available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.processes import ProcessError, phase, started
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import room_for

__all__ = ["Outcome", "cells_of", "job_of", "run", "together"]

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
            except ProcessError as error:
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


def together(processes: int, command: Sequence[str], environment: dict[str, str]) -> list[Outcome]:
    """Starts processes, lets them do each phase at the same time, and collects what they say.

    Raises:
        ProcessError: one of them failed or did not answer in time; all are ended.
    """
    with started([command] * processes, environment) as children:
        starts, sweeps = (phase(children, name) for name in ("start", "sweep"))
        return [
            Outcome(a["first"], a["ready"], b["forward"], b["reverse"])
            for a, b in zip(starts, sweeps, strict=True)
        ]
