"""Part `accumulated-gpu`: the wavefields of a migration in several processes at the same time, each
on a GPU of its own: the weak scaling of accumulated compression (HiPC 2023, section IV).

`python -m unspool_studies.accumulated.weak TASK` is one of these processes. It says `ready` when
its waves can be computed, does what a line names, and says what came out as a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from unspool_studies.accumulated import rtm
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.processes import Process, ProcessError, phase, started
from unspool_studies.bench.report import Cell, Report, Table

__all__ = ["Task", "run", "work"]

#: What a process does with nothing saved.
MADE = "made"

COLUMNS = ("frequency", "processes", "MB each", "made GB/s", *(name for name, _, _ in rtm.ALL))

NOTES = (
    "GB/s of checkpoints of a process over the time of a run, to the end of the last transfer, the "
    "median of its runs: of the processes the median, with the least and the greatest",
    "all processes begin each approach at the same time, each on a GPU of its own",
)

COMMAND = (sys.executable, "-m", "unspool_studies.accumulated.weak")


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is for.

    Attributes:
        ordinal: of its device.
        frequency: of the source, in Hz.
        cache: bytes of its device tier.
        together: checkpoints that a spool encodes together.
    """

    ordinal: int
    frequency: float
    cache: int
    together: int

    def text(self) -> str:
        """One word for a command line."""
        return json.dumps(asdict(self))


def run(cuda: Cuda, asked: Accumulated, report: Report) -> None:
    """A row for each frequency and each number of processes."""
    table = report.begin(
        Table(
            "accumulated-gpu-processes", "A migration on several GPUs", COLUMNS, notes=list(NOTES)
        )
    )
    for frequency in asked.frequencies:
        for processes in asked.processes:
            if processes > cuda.devices():
                table.note(f"{processes} processes left out: here are {cuda.devices()} GPUs")
                continue
            try:
                table.add(*_row(asked, frequency, processes, table))
            except ProcessError as why:
                table.note(f"{frequency:g} Hz, {processes} processes left out: {why}")
    report.show(table)


def _row(asked: Accumulated, frequency: float, processes: int, table: Table) -> list[Cell]:
    tasks = (
        Task(number, frequency, asked.cache, asked.together).text() for number in range(processes)
    )
    with started([(*COMMAND, task) for task in tasks], {}) as found:
        size, made = _phase(found, MADE, table)
        approaches = [_phase(found, name, table)[1] for name, _, _ in rtm.ALL]
    return [f"{frequency:g} Hz", processes, size / 1e6, made, *approaches]


def _phase(processes: list[Process], name: str, table: Table) -> tuple[int, Sample | None]:
    """Bytes of a checkpoint, and the rates of all processes; none where one of them has none."""
    said = phase(processes, name)
    for why in {one["why"] for one in said if one["why"]}:
        table.note(f"{name} {why}")
    if not all(one["seconds"] for one in said):
        return said[0]["size"], None
    rates = (one["size"] * one["count"] / median(one["seconds"]) / 1e9 for one in said)
    return said[0]["size"], Sample.of(rates)


def work(
    cuda: Cuda, forward: rtm.Forward, task: Task, names: Iterable[str], say: Callable[[Any], None]
) -> None:
    """Does what is named, and says what came out.

    Raises:
        KeyError: no approach has that name.
    """
    ways = {name: (codec, accumulates) for name, codec, accumulates in rtm.ALL}
    for name in names:
        seconds, why = [], ""
        if name == MADE:
            seconds = [forward.once() for _ in range(rtm.ROUNDS + 1)][1:]
        else:
            options = rtm.options_of(task.cache, task.together, forward, *ways[name])
            seconds, _, why = rtm.runs_of(cuda, forward, options)
        say({"size": forward.size, "count": forward.count, "seconds": seconds, "why": why})


def serve(cuda_of: Callable[[int], Cuda], text: str) -> None:
    """Works for the process that started this one, on a device that is made here."""
    task = Task(**json.loads(text))
    cuda = cuda_of(task.ordinal)
    forward = rtm.Forward(rtm.CupyDevice(task.ordinal), task.frequency)
    print("ready", flush=True)
    lines = (line.strip() for line in iter(sys.stdin.readline, ""))
    work(cuda, forward, task, lines, lambda found: print(json.dumps(found), flush=True))


if __name__ == "__main__":
    serve(Cuda, sys.argv[1])
