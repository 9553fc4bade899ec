"""Part `failures`: a job of real checkpoints and drawn failures, beside what was predicted for it.

Computing and failures happen in virtual time; checkpoints and restarts are those of the real
`Checkpointer`, in real files, and take the time that they take. A checkpoint that was not durable
when the failure came does not count: the one before it is restored.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from unspool import Checkpointer
from unspool.advice import Choice, Failures, Place, Waits, advise
from unspool.types import Stop
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table

__all__ = ["Job", "run"]

#: Seconds after a failure in which nothing happens.
QUEUE = 10.0


def run(plan: Plan, report: Report) -> None:
    """One table: a job that waits for its checkpoints, and one that does not."""
    asked = plan.advising
    title = f"{asked.work:g} s of computing, a failure every {asked.mtbf:g} s"
    columns = ("commit", "s between", "failures", "checkpoints", "blocked s", "durable s")
    shares = ("predicted %", "measured %", "from measured costs %")
    table = report.begin(Table("failures", title, (*columns, *shares)))
    state = np.random.default_rng(asked.seed).normal(size=asked.state // 4).astype("f4")
    for blocking in (True, False):
        with tempfile.TemporaryDirectory(dir=plan.directory) as folder:
            # Like a spool's, the files of the probe are as large as a few checkpoints.
            disk = Place.measured(folder, most=max(64 << 20, 4 * state.nbytes))
            waits = Waits(blocking=blocking, restart=QUEUE)
            choice = _predicted(state.nbytes, disk, asked, waits)
            job = Job(
                Path(folder) / "run", state, choice.interval, blocking, asked.mtbf, asked.seed
            )
            measured = job.run(asked.work)
        costs = job.costs()
        again = _predicted(
            state.nbytes, job.place(), asked, replace(waits, blocked=costs["blocked"])
        )
        table.add(
            "waited for" if blocking else "asynchronous",
            choice.interval,
            job.failures,
            len(job.blocked),
            costs["blocked"],
            costs["durable"],
            100 * choice.efficiency,
            100 * measured,
            100 * again.efficiency,
        )
    table.note("in virtual time, but checkpoints and restarts, which took what they took")
    table.note("predicted: from a probe of the disk before the run")
    report.show(table)


def _predicted(count: int, disk: Place, asked: Any, waits: Waits) -> Choice:
    failures = Failures(mtbf=asked.mtbf)
    return advise(count, disk, failures=failures, work=asked.work, waits=waits, codecs=[]).best


@dataclass
class Job:
    """A job that goes on from its checkpoints after failures that are drawn.

    Attributes:
        folder: of its checkpoints.
        state: what it saves.
        interval: seconds of computing between two checkpoints.
        blocking: whether it waits until a checkpoint is durable.
        mtbf: seconds between two failures.
        seed: of the failures.
        failures: how many there were.
        blocked: what each save made it wait, in seconds.
        durable: after how many seconds each one was durable.
        restarts: what each opening and restore took.
    """

    folder: Path
    state: np.ndarray
    interval: float
    blocking: bool
    mtbf: float
    seed: int
    failures: int = 0
    blocked: list[float] = field(default_factory=list)
    durable: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)

    def run(self, work: float) -> float:
        """Computes for so long; work over time."""
        self._draw, self._now, self._kept, self._step = Random(self.seed), 0.0, (0, 0.0), 0
        self._fails = self._drawn()
        while True:
            begin = time.perf_counter()
            with Checkpointer(
                self.folder, every=None, keep=3, stop=Stop(signals=())
            ) as checkpoints:
                if self.failures:
                    self._restore(checkpoints)
                    self._restarted(QUEUE + time.perf_counter() - begin)
                if self._stretch(checkpoints, work):
                    return work / self._now
            self._now, self.failures = self._fails, self.failures + 1
            self._fails = self._drawn()

    def _drawn(self) -> float:
        return self._now + self._draw.expovariate(1.0 / self.mtbf)

    def _restore(self, checkpoints: Checkpointer) -> None:
        """Reads the newest checkpoint that was durable when the job failed, if there was one."""
        step, done = self._kept
        if step:
            found = checkpoints.load(step)
            assert found["done"] == done and np.array_equal(found["u"], self.state)

    def _restarted(self, seconds: float) -> None:
        """A restart that fails is begun again."""
        self.restarts.append(seconds)
        while self._now + seconds > self._fails:
            self._now, self.failures = self._fails, self.failures + 1
            self._fails = self._drawn()
        self._now += seconds

    def _stretch(self, checkpoints: Checkpointer, work: float) -> bool:
        """Computes until the next failure; whether all is done before it."""
        done, saved, durable = self._kept[1], self._kept, self._now
        while True:
            # One commit at a time, and it computes meanwhile.
            part = min(max(self.interval, durable - self._now), work - done)
            if durable <= min(self._now + part, self._fails):
                self._kept = saved
            if self._now + part > self._fails:
                return False
            self._now, done = self._now + part, done + part
            if done >= work:
                return True
            saved, begun = (self._step + 1, done), self._now
            durable = begun + self._saved(checkpoints, done)
            self._now = begun + self.blocked[-1]

    def _saved(self, checkpoints: Checkpointer, done: float) -> float:
        """Saves; seconds until it is durable."""
        self._step += 1
        begin = time.perf_counter()
        checkpoints.save(self._step, u=self.state, done=done)
        returned = time.perf_counter() - begin
        checkpoints.flush()
        durable = time.perf_counter() - begin
        self.blocked.append(durable if self.blocking else returned)
        self.durable.append(durable)
        return durable

    def costs(self) -> dict[str, float]:
        """The means of what was measured, in seconds."""
        return {
            "blocked": statistics.fmean(self.blocked),
            "durable": statistics.fmean(self.durable),
            "restart": statistics.fmean(self.restarts) if self.restarts else QUEUE,
        }

    def place(self) -> Place:
        """The disk as it was for this job."""
        costs, count = self.costs(), float(self.state.nbytes)
        write = costs["durable"] - (0.0 if self.blocking else costs["blocked"])
        return Place(count / max(write, 1e-6), count / max(costs["restart"] - QUEUE, 1e-6))
