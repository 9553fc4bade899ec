"""Part `node` with shots: processes that do the experiment of part `orders` at the same time, each
on a GPU of its own where there are as many, in step and not (Maurya et al., HPDC 2023, section
5.4.6 and Figure 9).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unspool.stats import size as size_text
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.orders import Case, cases_of
from unspool_studies.bench.orders_child import STEP, Job, Shot
from unspool_studies.bench.processes import LIMIT, ProcessError, started
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.ways import Way, host_memory, named

__all__ = ["cells_of", "job_of", "run", "shots"]

COLUMNS = (
    "processes",
    "GPUs",
    "in step",
    "sizes",
    "order",
    "way",
    "save GB/s",
    "restore GB/s",
    "all save GB/s",
    "all restore GB/s",
    "forward s",
    "backward s",
    "wrong",
)

NOTES = (
    "GB/s: bytes of a process over its time in saves and in restores, by the device's clock: "
    "median over the processes, with the least and greatest; all: their sum",
    "in step: all processes wait for each other before every step, of both passes; that wait is in "
    "no rate, but in the seconds",
    "sizes, tiers and history are those of each process; each has other variable sizes and another "
    "irregular order",
)

COMMAND = (sys.executable, "-m", "unspool_studies.bench.orders_child")


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A row for each number of processes and each way, in step and not.

    Raises:
        SizesError: a file of sizes cannot be used.
    """
    title = f"Shots of several processes on {cuda.devices()} GPUs"
    table = report.begin(Table("node-shots", title, COLUMNS, notes=list(NOTES)))
    for processes in plan.processes:
        gpus = min(processes, cuda.devices())
        numbers = [(plan.device + number) % cuda.devices() for number in range(processes)]
        commands = [(*COMMAND, str(number)) for number in numbers]
        for cases in zip(*(cases_of(plan, number) for number in range(processes)), strict=True):
            for way in named(plan.strategies):
                for coupled in (False, True)[: 1 + (processes > 1)]:
                    row = (processes, gpus, "yes" if coupled else "no")
                    where = (*row, cases[0].kind, cases[0].order, way.name)
                    try:
                        found = _shots(commands, cases, way, coupled)
                    except (ProcessError, OSError) as error:
                        table.note(f"{', '.join(map(str, where))}: left out: {error}")
                        continue
                    table.add(*where, *cells_of(found))
    report.show(table)


def _shots(
    commands: Sequence[Sequence[str]], cases: Sequence[Case], way: Way, coupled: bool
) -> list[Shot]:
    """The shots of one cell.

    Raises:
        ProcessError: a process failed or did not answer in time.
        OSError: there is too little memory, or no folder can be made.
    """
    count = sum(host_memory(way, case.experiment) for case in cases)
    if not fits(count, available := available_memory()):
        raise OSError(
            f"{size_text(available or 0)} of host memory are free, {size_text(count)} are needed"
        )
    with tempfile.TemporaryDirectory(
        prefix="unspool-bench-", dir=cases[0].experiment.directory
    ) as folder:
        jobs = []
        for number, case in enumerate(cases):
            own = Path(folder) / str(number)
            own.mkdir()
            jobs.append(job_of(case, way, own, coupled))
        return shots(commands, jobs)


def job_of(case: Case, way: Way, directory: Path, coupled: bool) -> Job:
    """What a process does, with a folder of its own."""
    one = case.experiment
    tiers = (one.device, one.host, str(directory))
    return Job(way.name, one.sizes, one.order, *tiers, one.compute, one.wait, one.limit, coupled)


def shots(commands: Sequence[Sequence[str]], jobs: Sequence[Job]) -> list[Shot]:
    """Starts a process for each job, and lets them meet where they want to: one that is done is
    not waited for any more.

    Raises:
        ProcessError: one of them failed or did not answer in time; all are ended.
    """
    limit = max(job.limit for job in jobs) + LIMIT
    with started(commands, {}) as children:
        for one, job in zip(children, jobs, strict=True):
            one.tell(job.text())
        found: dict[int, Shot] = {}
        while len(found) < len(children):
            left = [number for number in range(len(children)) if number not in found]
            words = [children[number].hear(limit) for number in left]
            for number, word in zip(left, words, strict=True):
                if word == STEP:
                    children[number].tell("on")
                else:
                    found[number] = Shot(**json.loads(word))
        return [found[number] for number in range(len(children))]


def cells_of(found: Sequence[Shot]) -> list[Cell]:
    """The figures of a row."""
    saves = [one.bytes / max(one.save, 1e-9) / 1e9 for one in found]
    restores = [one.bytes / max(one.restore, 1e-9) / 1e9 for one in found]
    return [
        Sample.of(saves),
        Sample.of(restores),
        sum(saves),
        sum(restores),
        Sample.of(one.forward for one in found),
        Sample.of(one.backward for one in found),
        sum(one.wrong for one in found),
    ]
