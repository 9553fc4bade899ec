"""Part `bounds`: what schedules are predicted to take, beside the least that they could take over
the same links. Nothing is measured: the core of a spool runs in virtual time, so the table is the
same on every machine, and shows where its decisions lose time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspool.advice import Link, Links, Rate, predict
from unspool.schedules import Revolve, Schedule, StoreAll, Uniform, ZCut
from unspool.stats import size as size_text
from unspool_studies.bench.bound import least_of
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import room_for

__all__ = ["CASES", "Case", "run"]

COLUMNS = (
    "schedule",
    "state",
    "device",
    "host",
    "disk",
    "step ms",
    "predicted s",
    "bound s",
    "of bound %",
    "save stall s",
    "restore stall s",
)

NOTES = (
    "in virtual time, at the speeds of one H100 with a fast disk: pinned copies of 55 GB/s each "
    "way, a disk that writes 5 GB/s and reads 6",
    "state: bytes; device, host: states that the tier holds; step: forward, a reverse step takes "
    "twice as long",
    "bound: the least time of the same steps and copies with perfect knowledge of the order",
)

#: Copies within the device, pinned copies, and a disk.
WITHIN, PINNED = Rate(1460e9, 5e-6), Rate(55e9, 10e-6)
WRITTEN, READ = Rate(5e9, 100e-6), Rate(6e9, 100e-6)
LINKS = Links(
    "cuda:0",
    ("device", "host", "disk"),
    WITHIN,
    WITHIN,
    (Link("device", "host", PINNED, PINNED), Link("host", "disk", WRITTEN, READ)),
)

STATE, LARGE = 128 << 20, 954 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """What is predicted.

    Attributes:
        schedule: of the adjoint.
        device: states that the device tier holds.
        host: states that the host tier holds.
        step: seconds of a forward step; one in reverse takes twice as long.
        disk: whether there is a disk below the host.
        state: bytes of a state.
        part: bytes of a copy that is only restored to reverse a step.
    """

    schedule: Schedule
    device: int
    host: int
    step: float
    disk: bool = False
    state: int = STATE
    part: int = STATE


def _cases() -> Iterator[Case]:
    for step in (0.0, 1e-3, 2e-3, 3e-3):
        yield Case(StoreAll(300), 32, 300, step)
    for device in (2, 4, 6):
        yield Case(Revolve(300, 6), device, 6, 1e-3)
    # GPUZIP's example: 541 steps that compute for 2.1 s in all, whole states and newest levels.
    zcut = ZCut(541, length=36)
    step = 2.1 / (zcut.counts().advances + 2 * 541)
    for device in (2, 4, 6, 20):
        for part in (LARGE, LARGE // 2):
            yield Case(zcut, device, 50, step, state=LARGE, part=part)
    for step in (3e-3, 10e-3):
        yield Case(StoreAll(300), 12, 96, step, disk=True)
        yield Case(Revolve(300, 20), 2, 4, step, disk=True)
        yield Case(Uniform(300, 20), 2, 4, step, disk=True)
        for device, host in ((2, 4), (4, 16), (6, 30)):
            yield Case(zcut, device, host, step, disk=True)


CASES = tuple(_cases())


def run(_plan: Plan, report: Report) -> None:
    """One table."""
    table = report.begin(Table("bounds", "Schedules in virtual time", COLUMNS, notes=list(NOTES)))
    for case in CASES:
        _add(case, table)
    report.show(table)


def _add(case: Case, table: Table) -> None:
    steps, sizes = (case.step, 2 * case.step), (case.state, case.part)
    links = LINKS if case.disk else LINKS.first(2)
    tiers = {name: room_for(count, case.state) for name, count in _held(case)}
    found = predict(
        case.schedule,
        case.state,
        steps[0],
        reverse_seconds=steps[1],
        reverse_bytes=case.part,
        links=links,
        device=links.device,
        **tiers,
    )
    least = least_of(found, links, steps, sizes)
    part = "" if case.part == case.state else f", {size_text(case.part)} to reverse"
    table.add(
        repr(case.schedule),
        size_text(case.state) + part,
        case.device,
        case.host,
        "yes" if case.disk else "no",
        case.step * 1e3,
        found.seconds,
        least,
        100 * least / found.seconds,
        found.save_stall_seconds,
        found.restore_stall_seconds,
    )


def _held(case: Case) -> Iterator[tuple[str, int]]:
    yield "device_memory", case.device
    yield "host_memory", case.host
    if case.disk:
        yield "disk", case.schedule.counts().peak
