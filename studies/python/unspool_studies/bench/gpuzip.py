"""Part `gpuzip`: the example problem of GPUZIP, with snapshots cached in the device's memory.

GPUZIP (T. J. M. Maltempi, slides: checkpointing with prefetching and compression) migrates in three
dimensions by Revolve and by zCut: with synchronous copies between device and pinned host memory,
which are its baseline, and with two to six snapshots cached on the device. Here the same is done
with the kernels of `unspool-rtm --gpu`: each schedule with nothing kept, with everything in the
device's memory, with synchronous copies, and through a spool whose device tier holds a few states.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from unspool import schedules
from unspool.schedules import Schedule
from unspool.stats import size as size_text
from unspool_studies.bench.bound import Link, Pace, accesses_of, least_seconds
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.plain_adjoint import DeviceStore, Nowhere, PinnedStore, Store
from unspool_studies.bench.raw import Links, links
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import room_for
from unspool_studies.bench.wave_problem import (
    LEVELS,
    Problem,
    Reading,
    WrongImageError,
    plainly,
    through_spool,
)
from unspool_studies.rtm.device import CupyDevice, Device

__all__ = ["Experiment", "experiments_of", "run", "table_of"]

COLUMNS = (
    "way",
    "states on device",
    "s",
    "beyond computing s",
    "bound s",
    "of bound %",
    "stall s",
    "recomputed",
    "to host GB",
    "to device GB",
    "times baseline",
    "image",
)

NOTES = (
    "computing alone: the same steps with nothing saved; beyond: what saves and restores add to it",
    "synchronous copies, the baseline: to and from pinned memory on the propagator's stream, each "
    "waited for; stall: what the spool counts",
    "bound: the least time of the same steps, saves and restores over pinned copies, with perfect "
    "knowledge and without copies within the device; of bound: what of it is reached",
    "newest level: a copy that is only reversed holds one time level, all others hold both",
    "image: whether every bit is that of the first row that keeps its states",
)

#: What the slides say of 256^3, 300 steps, 6 snapshots, on another machine.
PUBLISHED = (
    "GPUZIP says of its own example: 2.20 s without a cache, 1.52 s with 6 slots, 1.16 s with "
    "lossy compression, on its machine"
)

#: What is said of an image.
SAME, DIFFERENT = "same", "DIFFERENT"

#: Of the device's free memory, so much may be used.
USABLE = 0.9


@dataclass(frozen=True)
class Experiment:
    """What is measured.

    Attributes:
        name: of the table.
        shape: cells of a field, with the absorbing layer.
        steps: time steps; each is a step of the schedule.
        schedule: makes the schedule.
        tiers: how many states the device tier holds, one row each.
        notes: what has to be known besides.
    """

    name: str
    shape: tuple[int, ...]
    steps: int
    schedule: Callable[[], Schedule]
    tiers: tuple[int, ...]
    notes: tuple[str, ...] = ()


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for Revolve and one for zCut.

    Raises:
        WrongImageError: one of the ways made another image than the others.
    """
    device = CupyDevice(plan.device)
    found = links(cuda, plan.checkpoint, plan.rounds)
    for experiment in experiments_of(plan):
        table = table_of(device, experiment, plan, report, found)
        report.show(table)
        wrong = [row[0] for row in table.rows if row[-1] == DIFFERENT]
        if wrong:
            raise WrongImageError(f"another image than that of the first way: {wrong}")
        device.give_back()


def experiments_of(plan: Plan) -> tuple[Experiment, Experiment]:
    """What the options ask for."""
    one = plan.gpuzip
    revolve = partial(schedules.Revolve, one.steps, one.snapshots)
    zcut = partial(schedules.ZCut, one.zcut_steps, length=one.zcut_length)
    return (
        Experiment("gpuzip-revolve", one.shape, one.steps, revolve, one.tiers, (PUBLISHED,)),
        Experiment("gpuzip-zcut", one.zcut_shape, one.zcut_steps, zcut, one.zcut_tiers),
    )


def table_of(
    device: Device,
    experiment: Experiment,
    plan: Plan,
    report: Report,
    found: Links | None = None,
) -> Table:
    """One schedule in every way; `found`: the speeds of the link, for the bound."""
    problem, schedule = Problem(device, experiment.shape, experiment.steps), experiment.schedule()
    counts = schedule.counts()
    title = (
        f"{schedule!r} on fields of {' x '.join(map(str, problem.shape))} cells: "
        f"{counts.advances:,} steps forward, {counts.saves:,} saves and {counts.restores:,} "
        f"restores of {size_text(problem.state_bytes)}, at most {counts.peak} kept"
    )
    notes = [*NOTES, *experiment.notes]
    table = report.begin(Table(experiment.name, title, COLUMNS, notes=notes))
    problem.warm_up()
    rates = None
    if found is not None:
        rates = found.rate("down").median * 1e9, found.rate("up").median * 1e9
        table.note("pinned copies: {:.1f} GB/s down, {:.1f} up".format(*(r / 1e9 for r in rates)))
    _Rows(problem, schedule, plan, table, rates).add_all(experiment.tiers)
    return table


class _Rows:
    """The rows of one table; the plain ones come first, the others are compared with those."""

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        plan: Plan,
        table: Table,
        rates: tuple[float, float] | None,
    ) -> None:
        self._problem, self._schedule, self._rates = problem, schedule, rates
        self._plan, self._table = plan, table
        self._counts = schedule.counts()
        self._alone = self._baseline = math.nan
        self._wanted = ""

    def add_all(self, tiers: Sequence[int]) -> None:
        """Every way."""
        found = self._readings(self._each(self._schedule, Nowhere()))
        self._alone = _seconds(found).median
        self._add("computing alone", found, image=None)
        self._synchronous()
        self._on_device()
        self._every_step()
        for newest in (False, True):
            for states in tiers:
                self._spool("unspool, newest level" if newest else "unspool", states, newest)

    def _synchronous(self) -> None:
        name, kept, problem = "synchronous copies", self._counts.peak, self._problem
        if self._host_holds(name, kept * problem.state_bytes):
            store = PinnedStore(problem.device, problem.shape, LEVELS, kept)
            found = self._readings(self._each(self._schedule, store))
            self._baseline = _seconds(found).median
            self._compare(name, found)

    def _on_device(self) -> None:
        name, kept, problem = "all states in device memory", self._counts.peak, self._problem
        if self._device_holds(name, kept * problem.state_bytes):
            store = DeviceStore(problem.device, problem.shape, LEVELS, kept)
            found = self._readings(self._each(self._schedule, store))
            self._compare(name, found, states=kept)

    def _every_step(self) -> None:
        """No step twice: the least that there is to compute."""
        name, problem, steps = "every step in device memory", self._problem, self._counts.steps
        if self._device_holds(name, steps * problem.state_bytes // LEVELS):
            store = DeviceStore(problem.device, problem.shape, 1, steps)
            found = self._readings(self._each(schedules.StoreAll(steps), store, whole=False))
            self._compare(name, found, states=steps, recomputed=0)

    def _spool(self, name: str, states: int, newest: bool) -> None:
        size, kept = self._problem.state_bytes, self._counts.peak
        if not self._device_holds(f"{name}, {states}", room_for(states, size)):
            return
        if not self._host_holds(f"{name}, {states}", room_for(kept, size)):
            return
        with closing(through_spool(self._problem, self._schedule, states, newest)) as readings:
            found = self._readings(readings)
        self._compare(name, found, states=states, bound=self._bound(states, newest))

    def _bound(self, states: int, newest: bool) -> float | None:
        if self._rates is None:
            return None
        counts, size = self._counts, self._problem.state_bytes
        forward = self._problem.forward_seconds()
        reverse = max(0.0, self._alone - counts.advances * forward) / counts.steps
        part = size // LEVELS if newest else size
        pace = Pace(forward, reverse)
        accesses, after = accesses_of(self._schedule.actions(), pace, size, part)
        return least_seconds(accesses, [Link(room_for(states, size), *self._rates)], after=after)

    def _each(self, schedule: Schedule, store: Store, whole: bool = True) -> Iterator[Reading]:
        while True:
            yield plainly(self._problem, schedule, store, whole)

    def _readings(self, readings: Iterable[Reading]) -> list[Reading]:
        """As many as fit into the time that a figure may take, one at least."""
        found: list[Reading] = []
        begin = time.perf_counter()
        for reading in islice(readings, self._plan.rounds):
            found.append(reading)
            if time.perf_counter() - begin > self._plan.budget:
                break
        return found

    def _compare(self, name: str, found: list[Reading], **figures: Any) -> None:
        """Adds a row whose image is looked at."""
        self._wanted = self._wanted or found[0].digest
        same = all(one.digest == self._wanted for one in found)
        self._add(name, found, image=SAME if same else DIFFERENT, **figures)

    def _add(
        self,
        name: str,
        found: list[Reading],
        *,
        image: str | None,
        states: int = 0,
        recomputed: int | None = None,
        bound: float | None = None,
    ) -> None:
        seconds = _seconds(found)
        stalls = [one.stall for one in found if one.stall is not None]
        self._table.add(
            name,
            states,
            seconds,
            seconds.map(lambda one: one - self._alone),
            bound,
            None if bound is None else seconds.map(lambda one: 100 * bound / one),
            Sample.of(stalls) if stalls else None,
            self._counts.recomputed_steps if recomputed is None else recomputed,
            found[-1].down / 1e9,
            found[-1].up / 1e9,
            self._baseline / seconds.median,
            image,
        )

    def _device_holds(self, name: str, count: int) -> bool:
        self._problem.device.give_back()
        free = self._problem.device.free_bytes()
        return count <= USABLE * free or self._left_out(name, count, free, "device")

    def _host_holds(self, name: str, count: int) -> bool:
        free = available_memory()
        return fits(count, free) or self._left_out(name, count, free or 0, "host")

    def _left_out(self, name: str, count: int, free: int, where: str) -> bool:
        wanted, there = size_text(count), size_text(free)
        self._table.note(f"{name}: left out, it takes {wanted}, and the {where} has {there} free")
        return False


def _seconds(found: Iterable[Reading]) -> Sample:
    return Sample.of(one.seconds for one in found)
