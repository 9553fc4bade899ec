"""Part `memory`: NumPy arrays into and out of a tier in main memory, beside `memcpy` of the same
bytes between memory that was touched before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import unspool
from unspool_studies.bench.measure import Sample, gigabytes_per_second, ratio, seconds_of
from unspool_studies.bench.memory import Mapping, write_pages
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import open_plain, room_for

__all__ = ["run"]

COLUMNS = (
    "MiB",
    "memcpy GB/s",
    "save GB/s",
    "save/raw %",
    "restore GB/s",
    "restore/raw %",
    "memcpy us",
    "save us",
    "restore us",
)

#: Bytes of memory that one round fills, and the most calls of one round.
ROOM, MOST_CALLS = 256 << 20, 64


def run(plan: Plan, report: Report) -> None:
    """A row for each size."""
    table = Table("memory", "Saves and restores in main memory, NumPy arrays", COLUMNS)
    table.note("memcpy, save and restore take turns; each call has a place of its own")
    for size in plan.sizes:
        if size <= ROOM:
            raw, save, restore = measured(size, plan.rounds)
            table.add(size / 2**20, *_cells(size, raw, save, restore))
    report.show(table)


def _cells(size: int, raw: Sample, save: Sample, restore: Sample) -> list[Sample | float]:
    rates = [gigabytes_per_second(size, one) for one in (raw, save, restore)]
    micros = [one.median * 1e6 for one in (raw, save, restore)]
    first, second = (100 * ratio(rate, rates[0]) for rate in rates[1:])
    return [rates[0], rates[1], first, rates[2], second, *micros]


def measured(size: int, rounds: int) -> tuple[Sample, Sample, Sample]:
    """Seconds of one memcpy, save and restore; the first round touches all memory."""
    count = max(2, min(MOST_CALLS, ROOM // size))
    state = np.full(size, 1, np.uint8)
    target = Mapping(size * count, huge=True)
    write_pages(target, 0, target.count)
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    with open_plain(host_memory=room_for(count + 1, size)) as spool:
        for number in range(rounds + 1):
            times = _round(spool, state, target, count)
            for readings, seconds in zip(found, times, strict=True):
                readings.extend([seconds] if number else [])
    target.close()
    raw, save, restore = map(Sample.of, found)
    return raw, save, restore


def _round(
    spool: unspool.Spool, state: np.ndarray, target: Mapping, count: int
) -> tuple[float, float, float]:
    """Seconds of one call of each, over `count` of each."""
    source, size = state.ctypes.data, state.nbytes

    def each(call: Callable[[int], object]) -> float:
        return seconds_of(lambda: [call(number) for number in range(count)]) / count

    raw = each(lambda n: ctypes.memmove(target.address + n * size, source, size))
    save = each(lambda n: spool.save(n, state))
    restore = each(lambda n: spool.restore(n, state))
    for number in range(count):
        spool.discard(number)
    return raw, save, restore
