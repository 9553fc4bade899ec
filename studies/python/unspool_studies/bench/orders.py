"""Part `orders`: the experiment of the paper on prefetching (Maurya et al., HPDC 2023, section
5.3): a history larger than device and host tier, saved once and restored once, in three orders,
with all hints, one, and none, beside unified memory.

As there, the restores begin right after the saves, and the measure is the throughput that the
application sees: the bytes over the time for which it was blocked, which is the time of the pass
less its computation.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import unspool
from unspool.planning import measure_links
from unspool.stats import Stats
from unspool.stats import size as size_text
from unspool_studies.bench.bound import Access, Link, least_seconds
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Application, Experiment, order_of
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.managed import Managed, NotManaged
from unspool_studies.bench.options import Plan
from unspool_studies.bench.raw import Links, device_seconds, links, within_device
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.bench.sizes import sizes_of
from unspool_studies.bench.tiers import FRAME, open_spool, tier, wait_until_ready
from unspool_studies.bench.unified import WAYS, UnifiedHistory, UnifiedWay

__all__ = ["Outcome", "SpoolWay", "bound_of", "rows_of", "run", "through_spool", "through_unified"]

COLUMNS = (
    "sizes",
    "order",
    "way",
    "save GB/s",
    "restore GB/s",
    "x unified",
    "forward s",
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
    "unified memory: at most the device tier's bytes of the history are on the device at once",
)


@dataclass(frozen=True, slots=True)
class SpoolWay:
    """One use of a spool.

    Attributes:
        name: for the table.
        hints: restores that are announced ahead; None: all of them, before the first save.
        disk: whether the host tier is smaller than the history.
    """

    name: str
    hints: int | None
    disk: bool = True


SPOOL_WAYS = (
    SpoolWay("unspool, all hints", None),
    SpoolWay("unspool, all hints, no disk", None, disk=False),
    SpoolWay("unspool, one hint", 1),
    SpoolWay("unspool, no hints", 0),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of one way.

    Attributes:
        forward: seconds of the forward pass.
        backward: seconds of the backward pass.
        stalls: of saves and restores, as the spool counts them.
        served: restores from the device, from the host and from the disk.
        disk: bytes that were written to the disk and read from it, in 1e9.
        wrong: restores that gave other bytes than were saved, by the mark in their middle.
    """

    forward: float
    backward: float
    stalls: tuple[float, float] | None
    served: tuple[int, ...] | None
    disk: tuple[float, float] | None
    wrong: int


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """One table."""
    host = plan.host_tier or plan.orders_host
    title = (
        f"{size_text(plan.orders_history)} saved and restored once, {plan.orders_compute * 1e3:g} "
        f"ms of compute a step, device tier {size_text(plan.device_tier)}, host tier "
        f"{size_text(host)}, the rest on disk in {plan.directory}"
    )
    table = report.begin(Table("orders", title, COLUMNS, notes=list(NOTES)))
    begin = time.perf_counter()
    speeds = _speeds(cuda, plan, table)
    alone = _compute_seconds(cuda, plan.orders_compute)
    for kind in plan.order_sizes:
        sizes = sizes_of(kind, plan.orders_history, plan.checkpoint)
        for name in plan.orders:
            order = order_of(name, len(sizes))
            experiment = Experiment(
                sizes, order, plan.device_tier, host, plan.directory, plan.orders_compute
            )
            if time.perf_counter() - begin > plan.orders_limit:
                table.note(f"no time was left for: {kind}, {name}")
                continue
            found = _outcomes(cuda, experiment, plan, table)
            bounds = {
                way.name: bound_of(experiment, alone, speeds[: 1 + way.disk])
                for way in SPOOL_WAYS
                if len(speeds) > way.disk
            }
            for row in rows_of(experiment, found, len(sizes) * alone, bounds):
                table.add(kind, name, *row)
    report.show(table)


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
            host=4 * size, disk=str(plan.directory), on="cpu", checkpoint_bytes=size
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


def _outcomes(cuda: Cuda, one: Experiment, plan: Plan, table: Table) -> dict[str, Outcome]:
    """What came out of each way that was asked for; what failed is named in a note."""
    found: dict[str, Outcome] = {}
    for way in (*SPOOL_WAYS, *WAYS):
        if plan.strategies and not any(word in way.name for word in plan.strategies):
            continue
        try:
            if isinstance(way, SpoolWay):
                found[way.name] = through_spool(cuda, one, way)
            else:
                found[way.name] = through_unified(cuda, one, way)
        except (unspool.Error, RuntimeError, OSError) as error:
            table.note(f"{way.name}: left out: {type(error).__name__}: {error}")
    return found


def rows_of(
    experiment: Experiment,
    found: dict[str, Outcome],
    alone: float,
    bounds: Mapping[str, float] | None = None,
) -> Iterator[list[Cell]]:
    """The row of each way, without the columns of the experiment; `alone` is the time of the
    compute of one pass, `bounds` are the least seconds of both by way.
    """

    def rate(seconds: float) -> float:
        blocked = seconds - alone
        return experiment.total / blocked / 1e9 if blocked > 1e-6 else math.nan

    known = [found[way.name] for way in WAYS if way.name in found]
    unified = max((rate(one.backward) for one in known), default=math.nan)
    for name, one in found.items():
        restores, both = rate(one.backward), one.forward + one.backward
        least = (bounds or {}).get(name)
        yield [
            name,
            rate(one.forward),
            restores,
            restores / unified,
            one.forward,
            one.backward,
            both,
            least,
            None if least is None else 100 * least / both,
            2 * alone,
            *(one.stalls or (None, None)),
            *(one.served or (None, None, None)),
            *(one.disk or (None, None)),
            one.wrong,
        ]


@contextmanager
def _application(cuda: Cuda, one: Experiment) -> Iterator[tuple[Application, Managed]]:
    managed = Managed(cuda)
    application = Application(cuda, managed, one)
    try:
        yield application, managed
    finally:
        application.close()


def through_spool(cuda: Cuda, one: Experiment, way: SpoolWay) -> Outcome:
    """Through a spool.

    Raises:
        OSError: there is too little memory or room on the disk.
        unspool.Error: the spool refused.
    """
    with (
        _application(cuda, one) as (application, _),
        open_spool(cuda, **_tiers(one, way)) as spool,
        cuda.current(application.stream),
    ):
        wait_until_ready(spool)
        hints = iter(one.order[1:])
        if way.hints is None:
            spool.expect(one.order, start=False)

        def save(version: int) -> None:
            spool.save(version, application.state[: one.sizes[version]])

        def restore(version: int) -> None:
            if way.hints == 1:
                spool.expect([version for version in [next(hints, None)] if version is not None])
            spool.restore(version, application.state[: one.sizes[version]])

        forward = application.forward(save)
        spool.start_prefetch()
        backward = application.backward(restore, way.hints)
        return Outcome(forward, backward, *_counted(spool.stats()), application.wrong())


def _tiers(one: Experiment, way: SpoolWay) -> dict[str, object]:
    """The options of the spool: the tiers, with room for what they keep beside the bytes."""
    mean = one.total // len(one.sizes)
    device = one.device + one.device // mean * FRAME
    host = one.host + one.host // mean * FRAME
    found: dict[str, object] = {"device": device, "discard_after_restore": True}
    if way.disk:
        free = shutil.disk_usage(one.directory).free
        if free < one.total:
            text = f"{one.directory} has {size_text(free)} free, {size_text(one.total)} are needed"
            raise OSError(text)
        return found | {"host": host, "disk": one.directory}
    host = one.total + len(one.sizes) * FRAME
    if not fits(host, available_memory()):
        raise OSError(f"{size_text(available_memory() or 0)} of host memory are free")
    return found | {"host": host}


def _counted(
    stats: Stats,
) -> tuple[tuple[float, float], tuple[int, ...], tuple[float, float] | None]:
    tiers = [tier(stats, name) for name in ("device", "host", "disk")]
    served = tuple(found.restores if found is not None else 0 for found in tiers)
    disk = next((link for link in stats.links if link.slow == "disk"), None)
    moved = (disk.flush.bytes / 1e9, disk.prefetch.bytes / 1e9) if disk is not None else None
    return (stats.save_stall_seconds, stats.restore_stall_seconds), served, moved


def through_unified(cuda: Cuda, one: Experiment, way: UnifiedWay) -> Outcome:
    """Through unified memory.

    Raises:
        NotManaged: there is too little memory, or the driver refuses.
    """
    if not fits(one.total, available_memory()):
        raise NotManaged(f"{size_text(available_memory() or 0)} of host memory are free")
    with _application(cuda, one) as (application, managed):
        places = (managed, cuda, application.stream)
        history = UnifiedHistory(*places, one.sizes, one.device, way)
        try:
            forward = application.forward(
                lambda version: history.save(version, application.address)
            )
            history.begin_restores(one.order)
            backward = application.backward(
                lambda version: history.restore(version, application.address), way.ahead
            )
            return Outcome(forward, backward, None, None, None, application.wrong())
        finally:
            history.close()
