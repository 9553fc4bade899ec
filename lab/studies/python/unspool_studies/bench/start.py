"""Part `start`: how soon a spool with a large host arena takes its first checkpoint, and how soon
all of the arena is registered, beside the raw ways to get such memory.

Each way is measured alone, and once more while another thread copies to pinned memory without
pause: registering holds a lock of the driver, and copies wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import unspool
from unspool.stats import size as size_text
from unspool_studies.bench.beside import Copier, HeldUp
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.machine import MEMORY_NOTE, Warmth, available_memory, fits
from unspool_studies.bench.measure import Sample, gigabytes_per_second
from unspool_studies.bench.memory import Mapping, Touch, in_parallel, write_all, write_pages
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import open_spool, room_for, wait_until_ready

__all__ = ["WAYS", "Start", "Way", "run", "start_spool"]

COLUMNS = (
    "arena",
    "way",
    "memory",
    "first save after ms",
    "after opening ms",
    "all ready after ms",
    "GB/s",
    "copies held up ms",
    "longest ms",
)

NOTES = (
    "first save after: from before the spool is made until its first save returns; after opening: "
    "from when it was made; raw ways: until one copy into the memory is done",
    "copies held up: what a thread that copies 16 MiB to pinned memory again and again lost "
    "meanwhile, in a run of its own; longest: its longest copy",
    MEMORY_NOTE,
)

#: Arenas above this are not got in the slow ways, unless that is asked for.
LARGE = 20 << 30


@dataclass(frozen=True, slots=True)
class Way:
    """A raw way to get pinned memory.

    Attributes:
        name: for tables.
        touch: touch it first in this way; None: leave that to the driver.
        huge: ask for huge pages.
        pin: allocate and pin in one call.
        slow: several seconds for 16 GiB.
    """

    name: str
    touch: Touch | None = None
    huge: bool = False
    pin: bool = False
    slow: bool = True


WAYS = (
    Way("cudaHostAlloc", pin=True, slow=False),
    Way("register, untouched, 4 KiB"),
    Way("register, untouched, huge", huge=True),
    Way("memset, then register, 4 KiB", write_all),
    Way("touch, then register, 4 KiB", write_pages),
    Way("touch, then register, huge", write_pages, huge=True, slow=False),
)


@dataclass(frozen=True, slots=True)
class Start:
    """How soon something was usable, in seconds.

    Attributes:
        first: until the first save or copy was done.
        opened: until the spool was made; None for raw ways.
        ready: until everything was registered; None where that is not told.
    """

    first: float
    opened: float | None
    ready: float | None


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """One table; arenas that do not fit are named with the reason."""
    table = report.begin(Table("start", "Starting with a host arena", COLUMNS, notes=list(NOTES)))
    copier, warmth = Copier(cuda), Warmth(plan.touch_threads, plan.warm != 0)
    usual = copier.usual * 1e3
    table.note(f"a copy of 16 MiB takes {usual:.2f} ms when nothing else happens")
    for arena in plan.arenas:
        if fits(arena, available_memory()):
            _add_arena(cuda, plan, arena, (copier, warmth), table)
        else:
            free = size_text(available_memory() or 0)
            table.note(f"{size_text(arena)}: left out, {free} of host memory are free")
    copier.close()
    table.note(str(warmth))
    report.show(table)


def _add_arena(
    cuda: Cuda, plan: Plan, arena: int, tools: tuple[Copier, Warmth], table: Table
) -> None:
    stream = cuda.stream()
    for name, size, device in _spools(plan, arena):
        array = cuda.array(size)

        def once(size: int = size, device: int | None = device, array: Any = array) -> Start:
            return start_spool(cuda, (device, arena), array, stream)

        try:
            _add(table, plan, (arena, name), once, tools)
        except (unspool.Error, TypeError) as error:
            table.note(f"{name}, {size_text(arena)}: refused: {error}")
    for way in WAYS:
        if arena > LARGE and way.slow and not plan.everything:
            table.note(f"{size_text(arena)}: the slow raw ways only with --everything")
            continue
        _add(
            table,
            plan,
            (arena, way.name),
            partial(start_raw, cuda, way, arena, plan.touch_threads),
            tools,
        )


def _spools(plan: Plan, arena: int) -> list[tuple[str, int, int | None]]:
    """Names, bytes of the first checkpoint, bytes of the device tier."""
    large, small = min(plan.checkpoint, arena // 8), min(16 << 20, arena // 8)
    return [
        (f"unspool, device and host, {size_text(large)}", large, room_for(8, large)),
        (f"unspool, host only, {size_text(small)}", small, None),
    ]


def _add(
    table: Table,
    plan: Plan,
    place: tuple[int, str],
    once: Callable[[], Start],
    tools: tuple[Copier, Warmth],
) -> None:
    (arena, name), (copier, warmth) = place, tools
    found: dict[str, list[Start]] = {}
    begin = time.perf_counter()
    # What takes long is measured once, together with what it does to copies.
    slow = name == WAYS[0].name and arena > LARGE
    for reading in range(0 if slow else plan.rounds):
        if reading and time.perf_counter() - begin > plan.budget / 2:
            break
        memory = warmth.bring(arena)
        found.setdefault(memory, []).append(once())
    beside: list[Start] = []
    memory = warmth.bring(arena)
    held = copier.beside(lambda: beside.append(once()))
    # Beside copies it is measured last: with memory as it was then.
    found.setdefault(memory, beside)
    for one, readings in found.items():
        cells = cells_of(arena, readings, held if one == memory else None)
        table.add(size_text(arena), name, one, *cells)


def cells_of(arena: int, found: list[Start], held: HeldUp | None) -> list[Sample | float | None]:
    """The figures of a row; without those of copies beside it where there were none."""
    ready = [one.ready for one in found if one.ready is not None]
    opened = [one.first - one.opened for one in found if one.opened is not None]
    all_ready = Sample.of(ready) if ready else None
    return [
        _milli(Sample.of(one.first for one in found)),
        _milli(Sample.of(opened)) if opened else None,
        _milli(all_ready) if all_ready else None,
        gigabytes_per_second(arena, all_ready) if all_ready else None,
        held.lost * 1e3 if held else None,
        held.longest * 1e3 if held else None,
    ]


def _milli(sample: Sample) -> Sample:
    return sample.map(lambda seconds: seconds * 1e3)


def start_spool(cuda: Cuda, tiers: tuple[int | None, int], array: Any, stream: Stream) -> Start:
    """Makes a spool, saves one checkpoint, and waits until the arena is ready."""
    device, host = tiers
    options = (
        {"host_memory": host} if device is None else {"device_memory": device, "host_memory": host}
    )
    with cuda.current(stream):
        begin = time.perf_counter()
        spool = open_spool(cuda, **options)
        opened = time.perf_counter() - begin
        with spool:
            spool.save(0, array)
            first = time.perf_counter() - begin
            told = wait_until_ready(spool)
            ready = time.perf_counter() - begin
            cuda.wait(stream)
    return Start(first, opened, None if told is None else ready)


def start_raw(cuda: Cuda, way: Way, count: int, threads: int) -> Start:
    """Gets pinned memory in one of the raw ways and copies into it once."""
    stream, size = cuda.stream(), min(16 << 20, count)
    device = cuda.malloc(size)
    begin = time.perf_counter()
    address, release = _get(cuda, way, count, threads)
    ready = time.perf_counter() - begin
    cuda.down(address, device, size, stream)
    cuda.wait(stream)
    first = time.perf_counter() - begin
    release()
    cuda.free(device)
    return Start(first, None, ready)


def _get(cuda: Cuda, way: Way, count: int, threads: int) -> tuple[int, Callable[[], None]]:
    """The address of pinned memory, and what gives it back."""
    if way.pin:
        address = cuda.host_alloc(count)
        return address, lambda: cuda.free_host(address)
    mapping = Mapping(count, way.huge)
    if way.touch is not None:
        in_parallel(mapping, way.touch, threads)
    cuda.register(mapping.address, count)

    def release() -> None:
        cuda.unregister(mapping.address)
        mapping.close()

    return mapping.address, release
