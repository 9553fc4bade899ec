"""Part `orders`: the experiment of the paper on prefetching (Maurya et al., HPDC 2023, section
5.3): a history larger than device and host tier, saved once and restored once, in three orders,
with all hints, one, and none, beside unified memory and what people would use instead.

The restores begin right after the saves (Figure 6), or when everything is flushed (Figure 5). The
measure is the throughput that the application sees: the bytes over the time for which it was
blocked, which is the time of the pass less its computation. Several computes of a step and several
device tiers make a table of their own (Figure 8); a plot shows each restore (Figure 7).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import unspool
from unspool.advice import measure_links
from unspool.stats import size as size_text
from unspool_studies.bench.bound import Access, Link, least_seconds
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Experiment, order_of
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.orders_tables import Found, grid_of, series_of
from unspool_studies.bench.raw import Links, device_seconds, links, within_device
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.sizes import SEED, sizes_of, traced_sizes
from unspool_studies.bench.unified import UnifiedWay
from unspool_studies.bench.ways import Outcome, SpoolWay, Way, named, through
from unspool_studies.rtm.codec import name_of_codec

__all__ = ["COLUMNS", "Case", "bound_of", "cases_of", "rate_of", "row_of", "run"]

COLUMNS = (
    "sizes",
    "order",
    "step ms",
    "tier",
    "way",
    "save GB/s",
    "restore GB/s",
    "x unified",
    "forward s",
    "flush s",
    "backward s",
    "both s",
    "bound s",
    "of bound %",
    "compute s",
    "save stall s",
    "restore stall s",
    "device",
    "host",
    "disk",
    "to disk GB",
    "from disk GB",
    "wrong",
)

NOTES = (
    "GB/s: bytes over the time blocked, which is the time of the pass less its compute",
    "x unified: the restores against those of the best way of unified memory here",
    "bound: the least time of both passes over pinned copies and the disk as it was measured, with "
    "perfect knowledge; of bound: what of it is reached",
    "stall: what the spool counts; device, host, disk: restores that were served from there",
    "disk GB: flushed to it and prefetched from it; a restore may also read from it by itself",
    "unified memory is given no disk: what is not on the device is in host memory; so 'no disk' is "
    "the way that compares like with like",
    "ADIOS2 goes through the page cache, which is host memory beyond the host tier",
    "step ms: compute of a step; tier: bytes of the history that may be on the device",
    "flush s: between the passes, until everything is flushed; in no other figure",
    "unified memory: at most the device tier's bytes of the history are on the device at once",
    "with --codec, what a spool keeps is smaller: it has no bound, and GB/s are of the arrays",
    "of several runs (--rounds) the median, the least and the greatest",
)


@dataclass(frozen=True, slots=True)
class Case:
    """What all ways do, once.

    Attributes:
        kind: of sizes: one of `SIZES`, or the file that they are from.
        order: of restores, by its name.
        experiment: all of it.
    """

    kind: str
    order: str
    experiment: Experiment


def cases_of(plan: Plan, number: int = 0) -> Iterator[Case]:
    """What a plan asks for; `number` is that of the process, each of which has variable sizes and
    an irregular order of its own.

    Raises:
        SizesError: a file of sizes cannot be used.
    """
    host = plan.host_tier or plan.orders_host
    seed = SEED + number
    for kind, sizes in _sizes(plan, number):
        devices = plan.orders_device or (plan.device_tier,)
        varied = itertools.product(plan.orders, plan.orders_wait, plan.orders_compute, devices)
        for name, wait, compute, device in varied:
            order = order_of(name, len(sizes), seed)
            where = (device, host, plan.directory, compute)
            timed, limit = plan.orders_plot is not None, plan.orders_cell_limit
            one = Experiment(sizes, order, *where, wait == "yes", timed, limit, codec=plan.codec)
            yield Case(kind, name, one)


def _sizes(plan: Plan, number: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The kinds of sizes with the bytes of each checkpoint, of the process with this number."""
    if plan.orders_traces:
        file = plan.orders_traces[number % len(plan.orders_traces)]
        yield file.name, traced_sizes(file)
        return
    for kind in plan.order_sizes:
        yield kind, sizes_of(kind, plan.orders_history, plan.checkpoint, SEED + number)


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """One table; another of the restores where they are drawn, and one of rates where compute or
    device tier vary.

    Raises:
        SizesError: a file of sizes cannot be used.
    """
    cases = list(cases_of(plan))
    table = report.begin(Table("orders", _title(plan), COLUMNS, notes=list(NOTES)))
    until = time.perf_counter() + plan.orders_limit
    speeds = _speeds(cuda, plan, table)
    found: list[Found] = []
    for case in cases:
        if time.perf_counter() > until:
            table.note(f"no time was left for: {case.kind}, {case.order}")
            continue
        found += _rows(cuda, case, plan, table, speeds, until)
    report.show(table)
    for other in (grid_of(found), series_of(found)):
        if other is not None:
            report.show(other)
    if plan.orders_plot is not None:
        from unspool_studies.bench.orders_plot import draw

        draw(found, plan.orders_plot)
    if plan.orders_bars is not None:
        from unspool_studies.bench import orders_bars

        orders_bars.draw(found, plan.orders_bars)


def _title(plan: Plan) -> str:
    size = size_text(plan.orders_history)
    history = f"{size}" if not plan.orders_traces else "a history with the sizes of a file"
    host = size_text(plan.host_tier or plan.orders_host)
    codec = "" if plan.codec is None else f"; wavefields, codec {name_of_codec(plan.codec)}"
    return (
        f"{history} saved and restored once, through the device tier, a host tier of {host}, the "
        f"rest on disk in {plan.directory}{codec}"
    )


def _rows(
    cuda: Cuda,
    case: Case,
    plan: Plan,
    table: Table,
    speeds: Sequence[tuple[float, float]],
    until: float,
) -> Iterator[Found]:
    """Adds the rows of all ways. Unified memory goes first: the others are compared with the best
    of it.

    Arguments:
        speeds: bytes a second down and up, of each link.
        until: no further round of runs begins after that time.
    """
    one, unified = case.experiment, math.nan
    step = _compute_seconds(cuda, one.compute)
    alone = step * len(one.sizes)
    place = (case.kind, case.order, one.compute * 1e3, size_text(one.device))
    ways = sorted(named(plan.strategies), key=lambda way: not isinstance(way, UnifiedWay))
    for way, outcomes in _runs(cuda, case, ways, plan.rounds, until, table):
        saves = Sample.of(rate_of(one, found.forward, alone) for found in outcomes)
        restores = Sample.of(rate_of(one, found.backward, alone) for found in outcomes)
        if isinstance(way, UnifiedWay):
            best = restores.median
            unified = max(best, unified) if unified == unified else best
        least = None
        plain = not one.wait and one.codec is None
        if isinstance(way, SpoolWay) and plain and len(speeds) > way.disk:
            least = bound_of(one, step, speeds[: 1 + way.disk])
        table.add(*place, *row_of(one, way.name, outcomes, alone, unified, least))
        yield Found(case.kind, case.order, one, way.name, outcomes[-1], saves, restores)


def _runs(
    cuda: Cuda, case: Case, ways: Sequence[Way], rounds: int, until: float, table: Table
) -> Iterator[tuple[Way, list[Outcome]]]:
    """What came out of each way, after its last run. All ways take turns, so that what a machine
    does meanwhile meets them alike; one that fails is left out from there on, and after `until` no
    further round begins.
    """
    found: list[tuple[Way, list[Outcome]]] = [(way, []) for way in ways]
    for number in range(rounds):
        if number and time.perf_counter() > until:
            table.note(f"{case.kind}, {case.order}: time for {number} of {rounds} runs")
            yield from ((way, outcomes) for way, outcomes in found if outcomes)
            return
        for way, outcomes in found:
            if len(outcomes) == number:
                outcome = _outcome(cuda, case, way, table)
                outcomes += [] if outcome is None else [outcome]
            if number == rounds - 1 and outcomes:
                yield way, outcomes


def _compute_seconds(cuda: Cuda, compute: float) -> float:
    """What a step's compute really takes."""
    if not compute:
        return 0.0
    stream = cuda.stream()
    seconds, _ = device_seconds(cuda, stream, [lambda: cuda.spin(compute, stream)] * 5)
    return seconds / 5


def _speeds(cuda: Cuda, plan: Plan, table: Table) -> list[tuple[float, float]]:
    """Bytes a second down and up: of pinned copies, and of the disk where it can be measured."""
    size = plan.checkpoint
    found = links(cuda, size, 3)
    table.note(_about_copies(cuda, size, found))
    speeds = [(found.rate("down").median * 1e9, found.rate("up").median * 1e9)]
    try:
        disk = measure_links(
            host_memory=4 * size, disk=str(plan.directory), device="cpu", checkpoint_bytes=size
        ).links[0]
    except unspool.Error as error:
        table.note(f"the disk is not measured, so ways with it have no bound: {error}")
        return speeds
    speeds.append((disk.flush.bytes_per_second, disk.prefetch.bytes_per_second))
    table.note("the disk: {:.1f} GB/s written, {:.1f} read".format(*(s / 1e9 for s in speeds[1])))
    return speeds


def _about_copies(cuda: Cuda, size: int, found: Links) -> str:
    down, up = (1e3 * size / found.rate(way).median / 1e9 for way in ("down", "up"))
    within = within_device(cuda, size, 4, 3).device.median
    return (
        f"a pinned copy of {size_text(size)} takes {down:.2f} ms to the host and {up:.2f} ms to "
        f"the device, one within the device {within * 1e3:.2f} ms: no way can show more than "
        f"{size / within / 1e9:,.0f} GB/s"
    )


def bound_of(one: Experiment, compute: float, speeds: Sequence[tuple[float, float]]) -> float:
    """The least seconds of both passes; `compute`: of a step, `speeds`: of each link."""
    rooms = (one.device, one.host)
    between = [Link(room, *speed) for room, speed in zip(rooms, speeds, strict=False)]
    saves = [Access(version, size, compute, saves=True) for version, size in enumerate(one.sizes)]
    # A step of the way back computes after its restore.
    restores = [
        Access(version, one.sizes[version], compute if number else 0.0)
        for number, version in enumerate(one.order)
    ]
    return least_seconds([*saves, *restores], between, after=compute)


def _outcome(cuda: Cuda, case: Case, way: Way, table: Table) -> Outcome | None:
    """What came out of one way; one that fails is named in a note."""
    try:
        return through(cuda, case.experiment, way)
    except (unspool.Error, RuntimeError, OSError, MemoryError) as error:
        table.note(f"{way.name}: left out: {type(error).__name__}: {error}")
        return None


def row_of(
    experiment: Experiment,
    name: str,
    outcomes: Sequence[Outcome],
    alone: float,
    unified: float = math.nan,
    least: float | None = None,
) -> list[Cell]:
    """The row of a way, without the columns of the experiment.

    Arguments:
        outcomes: of its runs, at least one.
        alone: seconds of the compute of one pass.
        unified: GB/s of the restores of the best way of unified memory.
        least: the least seconds of both passes.
    """
    runs = (_figures(experiment, one, alone, unified, least) for one in outcomes)
    wrong = sum(one.wrong for one in outcomes)
    return [name, *map(_together, zip(*runs, strict=True)), wrong]


def _figures(
    experiment: Experiment, one: Outcome, alone: float, unified: float, least: float | None
) -> list[float | None]:
    restores, both = rate_of(experiment, one.backward, alone), one.forward + one.backward
    return [
        rate_of(experiment, one.forward, alone),
        restores,
        restores / unified,
        one.forward,
        one.flush,
        one.backward,
        both,
        least,
        None if least is None else 100 * least / both,
        2 * alone,
        *(one.stalls or (None, None)),
        *(one.served or (None, None, None)),
        *(one.disk or (None, None)),
    ]


def _together(values: Sequence[float | None]) -> Cell:
    """One figure of several runs; what is the same in all of them stands alone."""
    first = values[0]
    if len(set(values)) == 1:
        return first
    known = [value for value in values if value is not None and value == value]
    return Sample.of(known) if len(known) == len(values) else None


def rate_of(experiment: Experiment, seconds: float, alone: float) -> float:
    """GB/s of a pass over the time for which it was blocked."""
    blocked = seconds - alone
    return experiment.total / blocked / 1e9 if blocked > 1e-6 else math.nan
