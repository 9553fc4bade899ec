"""Part `sweep`: a history that is larger than the device tier, saved and restored in reverse, with
so many milliseconds of compute in each step.

The compute is a kernel that waits on the device's clock; the application enqueues it and calls the
spool, and never waits for the device itself but at the end of a sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import unspool
from unspool.stats import Stats
from unspool.stats import size as size_text
from unspool_studies.bench.bound import Access, Link, least_seconds
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample, lost_share, share
from unspool_studies.bench.options import Plan
from unspool_studies.bench.raw import Links, device_seconds, links
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.tiers import FRAME, moved, open_spool, room_for, tier, wait_until_ready
from unspool_studies.bench.wavefields import states_of
from unspool_studies.rtm.codec import name_of_codec

__all__ = ["Pass", "Sweep", "cells_of", "run", "sweep_of", "sweep_passes"]

COLUMNS = (
    "compute ms",
    "pass",
    "s",
    "compute alone s",
    "bound s",
    "of bound %",
    "stall s",
    "stall %",
    "lost %",
    "link GB/s",
    "of pinned %",
    "history GB/s",
    "from device",
    "from host",
    "lead",
    "ratio",
    "states/GB",
)

NOTES = (
    "bound: the same transfers at the rates of these pinned copies with perfect knowledge of the "
    "order, no time between them and no copy within the device; of bound: what of it is reached",
    "stall: what the spool counts; lost: by how much the pass took longer than its compute alone, "
    "the copies within the device included",
    "link: bytes that crossed it until the end of the pass, over its time; of pinned: against a "
    "pinned copy in one direction, where the compute of a step is shorter than its copy",
    "kept: the checkpoints stay after their restore; else they are discarded by it",
    "lead: the median number of restores, from each on, whose bytes were in the device tier",
    "ratio: bytes of the states over those that were kept; states/GB: in 1e9 bytes of a tier",
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is done.

    Attributes:
        checkpoints: how many.
        size: bytes of each.
        device: bytes of the device tier.
        host: bytes of the host tier.
        compute: seconds of each step that were asked for.
        keep: whether checkpoints stay after their restore; else they are discarded, as an adjoint
            has no more use for them.
        codec: what becomes of them, as the option of a spool.
    """

    checkpoints: int
    size: int
    device: int
    host: int
    compute: float
    keep: bool = False
    codec: Any = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the history.

    Attributes:
        seconds: from its first call until the device is done.
        stall: seconds that the spool counts as such.
        moved: bytes that crossed the link in its direction meanwhile.
        hits: restores from the device tier and from the host tier.
    """

    seconds: float
    stall: float
    moved: int
    hits: tuple[int, int]


def sweep_of(plan: Plan, compute: float) -> Sweep:
    """The sweep that the options ask for: as many checkpoints as the history has, rounded up."""
    checkpoints = -(-plan.history // plan.checkpoint)
    slots = max(2, plan.device_tier // plan.checkpoint)
    host = plan.host_tier or room_for(checkpoints, plan.checkpoint)
    device = slots * (plan.checkpoint + FRAME)
    return Sweep(checkpoints, plan.checkpoint, device, host, compute, codec=plan.codec)


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table with two rows for each compute interval."""
    one = sweep_of(plan, 0.0)
    title = (
        f"A sweep of {one.checkpoints} checkpoints of {size_text(one.size)} "
        f"({one.checkpoints * one.size / 1e9:.1f} GB), device tier {size_text(one.device)}, "
        f"host tier {size_text(one.host)}, codec {name_of_codec(one.codec)}"
    )
    table = report.begin(Table("sweep", title, COLUMNS, notes=list(NOTES)))
    if not fits(one.host, available_memory()):
        table.note(f"left out: {size_text(available_memory() or 0)} of host memory are free")
        return report.show(table)
    found = links(cuda, one.size, plan.rounds)
    table.note(_about(found))
    for compute in plan.intervals:
        _add(cuda, plan, sweep_of(plan, compute), found, table)
    middle = sorted(plan.intervals)[len(plan.intervals) // 2]
    _add(cuda, plan, replace(sweep_of(plan, middle), keep=True), found, table)
    report.show(table)


def _about(found: Links) -> str:
    rates = [found.rate(way).median for way in ("down", "up", "both")]
    return "pinned copies: {:.1f} GB/s down, {:.1f} up, {:.1f} each when both run".format(*rates)


def _add(cuda: Cuda, plan: Plan, sweep: Sweep, found: Links, table: Table) -> None:
    """Both rows of one interval."""
    stream = cuda.stream()
    alone = sweep.checkpoints * _spin_seconds(cuda, stream, sweep.compute)
    passes: list[tuple[Pass, Pass]] = []
    states = states_of(cuda, sweep.size, sweep.codec is not None)
    options = {
        "device_memory": sweep.device,
        "host_memory": sweep.host,
        "codec": sweep.codec,
    }
    with open_spool(cuda, **options) as spool, cuda.current(stream):
        wait_until_ready(spool)
        if sweep.codec is not None:
            _prepare(spool, states[0])
        begin = time.perf_counter()
        while len(passes) < min(plan.rounds, 3) and (
            not passes or time.perf_counter() - begin < plan.budget
        ):
            passes.append(sweep_passes(cuda, spool, sweep, (stream, states)))
            for version in spool.versions():
                spool.discard(version)
        lead, ratio = spool.stats().prefetch_lead, spool.stats().codec.ratio
    bounds = bound_of(sweep, alone, found, ratio)
    for number, name in enumerate(("forward", "reverse")):
        readings = [pair[number] for pair in passes]
        cells = cells_of(sweep, readings, alone, found, name, bounds[number])
        back = number == 1
        hits: list[Cell] = list(passes[-1][1].hits) if back else [None, None]
        middle = lead.median if back and lead is not None else None
        kept = ", kept" if sweep.keep else ""
        density = ratio * 1e9 / sweep.size
        table.add(sweep.compute * 1e3, name + kept, *cells, *hits, middle, ratio, density)


def _prepare(spool: unspool.Spool, state: Any) -> None:
    """Has the kernels for such an array compiled before anything is timed."""
    spool.save(0, state)
    spool.restore(0, state.copy())
    wait_until_ready(spool)
    if 0 in spool:
        spool.discard(0)


def bound_of(sweep: Sweep, alone: float, found: Links, ratio: float) -> tuple[float, float]:
    """The bounds of both passes; `alone`: the time of all compute, `ratio`: that of a codec."""
    size, compute = max(1, round(sweep.size / ratio)), alone / sweep.checkpoints
    down, up = (found.rate(way).median * 1e9 for way in ("down", "up"))
    links = [Link(max(size, sweep.device), down, up)]
    versions = range(sweep.checkpoints)
    saves = [Access(version, size, compute, saves=True) for version in versions]
    # A step of the way back computes after its restore, so the first one computes nothing before.
    restores = [
        Access(version, size, compute if number else 0.0)
        for number, version in enumerate(reversed(versions))
    ]
    return (
        least_seconds(saves, links, kept=True),
        least_seconds(restores, links, after=compute),
    )


def cells_of(
    sweep: Sweep, passes: list[Pass], alone: float, found: Links, name: str, least: float
) -> list[Cell]:
    """What is computed from the readings of one direction."""
    raw = found.rate("down" if name == "forward" else "up")
    total = sweep.checkpoints * sweep.size
    link = Sample.of(one.moved / one.seconds / 1e9 for one in passes)
    is_long = sweep.compute < sweep.size / (raw.median * 1e9)
    return [
        Sample.of(one.seconds for one in passes),
        alone,
        least,
        Sample.of(100 * least / one.seconds for one in passes),
        Sample.of(one.stall for one in passes),
        Sample.of(share(one.stall, one.seconds) for one in passes),
        Sample.of(lost_share(one.seconds, alone) for one in passes) if alone else None,
        link,
        100 * link.median / raw.median if is_long else None,
        Sample.of(total / one.seconds / 1e9 for one in passes),
    ]


def _spin_seconds(cuda: Cuda, stream: Stream, compute: float) -> float:
    """What a step's compute really takes."""
    if compute == 0:
        return 0.0
    seconds, _ = device_seconds(cuda, stream, [lambda: cuda.spin(compute, stream)] * 5)
    return seconds / 5


def sweep_passes(
    cuda: Cuda, spool: unspool.Spool, sweep: Sweep, state: tuple[Stream, Sequence[Any]]
) -> tuple[Pass, Pass]:
    """Saves everything and restores it in reverse order."""
    stream, states = state

    def forward() -> None:
        for version in range(sweep.checkpoints):
            if sweep.compute:
                cuda.spin(sweep.compute, stream)
            spool.save(version, states[version * len(states) // sweep.checkpoints])

    def reverse() -> None:
        spool.expect(reversed(range(sweep.checkpoints)), once=not sweep.keep)
        for version in reversed(range(sweep.checkpoints)):
            spool.restore(version, states[version * len(states) // sweep.checkpoints])
            if sweep.compute:
                cuda.spin(sweep.compute, stream)

    return (
        _timed(cuda, spool, stream, forward, 0),
        _timed(cuda, spool, stream, reverse, 1),
    )


def _timed(
    cuda: Cuda, spool: unspool.Spool, stream: Stream, run: Callable[[], None], direction: int
) -> Pass:
    before, begin = spool.stats(), time.perf_counter()
    run()
    cuda.wait(stream)
    seconds, after = time.perf_counter() - begin, spool.stats()
    return Pass(
        seconds,
        _stall(after) - _stall(before),
        moved(after)[direction] - moved(before)[direction],
        (
            _hits(after, "device") - _hits(before, "device"),
            _hits(after, "host") - _hits(before, "host"),
        ),
    )


def _stall(stats: Stats) -> float:
    return stats.save_stall_seconds + stats.restore_stall_seconds


def _hits(stats: Stats, name: str) -> int:
    found = tier(stats, name)
    return found.restores if found is not None else 0
