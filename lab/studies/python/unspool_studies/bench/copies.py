"""Part `copies`: saves and restores that stay in the device tier, beside copies of the same bytes.

Every copy, raw or of the spool, has a place of its own in the device tier, so that none finds its
target in a cache because of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import unspool
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.libraries import Library, libraries
from unspool_studies.bench.measure import Sample, gigabytes_per_second, ratio
from unspool_studies.bench.options import Plan
from unspool_studies.bench.raw import Calls, device_seconds, repetitions, within_device
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import open_spool, room_for

__all__ = ["Both", "device_cells", "run"]

COLUMNS = (
    "MiB",
    "raw GB/s",
    "save GB/s",
    "save/raw %",
    "raw back GB/s",
    "restore GB/s",
    "restore/raw %",
)
CALL_COLUMNS = (
    "MiB",
    "arrays",
    "raw us",
    "raw p90",
    "save us",
    "save p90",
    "restore us",
    "restore p90",
)


@dataclass(frozen=True, slots=True)
class Both:
    """Saves and restores of one size, or the raw copies that they amount to."""

    save: Calls
    restore: Calls


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """Two tables: device time, and host time a call."""
    title = "Saves and restores in the device tier: device time"
    device = Table("copies", title, COLUMNS)
    device.note("raw: cudaMemcpyAsync from one place of the device to many, raw back: from many to")
    device.notes[-1] += " one; all calls of a round are enqueued before the first copy begins"
    calls = Table("calls", "The same: host time a call, in microseconds", CALL_COLUMNS)
    calls.note("raw: cudaMemcpyAsync from Python through CuPy")
    kinds = libraries(cuda)
    for size in plan.sizes:
        _add_size(cuda, plan, size, kinds, (device, calls))
    report.show(device)
    report.show(calls)


def _add_size(
    cuda: Cuda, plan: Plan, size: int, kinds: list[Library], tables: tuple[Table, Table]
) -> None:
    count = repetitions(size, plan.copies_room)
    raw = within_device(cuda, size, count, plan.rounds)
    back = within_device(cuda, size, count, plan.rounds, back=True)
    for number, library in enumerate(kinds):
        ours = through_spool(cuda, library, (size, count), plan.rounds)
        if number == 0:
            tables[0].add(size / 2**20, *device_cells(size, Both(raw, back), ours))
        cells = [_micro(calls) for calls in (raw, ours.save, ours.restore)]
        tables[1].add(size / 2**20, library.name, *(cell for pair in cells for cell in pair))


def device_cells(size: int, raw: Both, ours: Both) -> list[Sample | float]:
    """Rates and ratios: saves against copies to many places, restores against those back."""
    cells: list[Sample | float] = []
    for plain, spool in ((raw.save, ours.save), (raw.restore, ours.restore)):
        rates = [gigabytes_per_second(size, calls.device) for calls in (plain, spool)]
        cells += [*rates, 100 * ratio(rates[1], rates[0])]
    return cells


def _micro(calls: Calls) -> tuple[float, float]:
    return calls.host.median * 1e6, calls.host.p90 * 1e6


def through_spool(cuda: Cuda, library: Library, sizes: tuple[int, int], rounds: int) -> Both:
    """Saves and restores of an array; the first round is a warm-up."""
    size, count = sizes
    stream, array = cuda.stream(), library.array(size)
    saves, restores = _Collected(), _Collected()
    device = room_for(count + 1, size)
    with open_spool(cuda, device_memory=device) as spool, library.current(stream):
        for number in range(rounds + 1):
            save = [lambda v=version: spool.save(v, array) for version in range(count)]
            restore = [lambda v=version: spool.restore(v, array) for version in range(count)]
            saves.take(number, _measured(cuda, stream, save))
            restores.take(number, _measured(cuda, stream, restore))
            _forget(spool, count)
    return Both(saves.calls(), restores.calls())


def _measured(
    cuda: Cuda, stream: Stream, calls: Sequence[Callable[[], object]]
) -> tuple[float, list[float]]:
    seconds, hosts = device_seconds(cuda, stream, calls)
    cuda.wait(stream)
    return seconds / len(calls), hosts


def _forget(spool: unspool.Spool, count: int) -> None:
    for version in range(count):
        spool.discard(version)


class _Collected:
    """Readings of all rounds but the first."""

    def __init__(self) -> None:
        self._device: list[float] = []
        self._host: list[float] = []

    def take(self, number: int, measured: tuple[float, list[float]]) -> None:
        if number:
            self._device.append(measured[0])
            self._host += measured[1]

    def calls(self) -> Calls:
        return Calls(Sample.of(self._device), Sample.of(self._host))
