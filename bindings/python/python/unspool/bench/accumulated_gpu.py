"""Part `accumulated-gpu`: the synthetic ensemble of accumulated compression (HiPC 2023) on a GPU.

Hand-made pipelines with the cache as one arena: every step waits as long as computing would, copies
the checkpoint into the cache, compresses with nvCOMP where the schedule says so, and a second
stream carries the results into pinned memory. The cache's room is kept by events: a step waits on
the device for the transfers that make its room. These pipelines are there for their time: bytes
that are on their way may be overwritten by later checkpoints, which are all equal. Beside them
spools with the same device tier, which save raw and encoded, and flush.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unspool.accumulate import NVCOMP
from unspool.accumulate import plan as plan_for
from unspool.bench.accumulated import Case, cases_of
from unspool.bench.accumulated_options import Accumulated
from unspool.bench.cuda import Cuda
from unspool.bench.measure import Sample
from unspool.bench.options import Plan
from unspool.bench.report import Cell, Report, Table
from unspool.bench.tiers import FRAME, open_spool, wait_until_ready
from unspool.planning.links import Rate

__all__ = ["Pipeline", "run"]

NOTES = (
    "GB/s of checkpoints over the time of a run, to the end of the last transfer; median of runs",
    "nvCOMP through its Python package, which waits for every call; in a pipeline made by hand",
    "spool: Spool(device=cache, host=...) with the codec, saves and a flush",
    "model: what the plan for nvCOMP says",
)

#: Runs of each figure, besides one that is not counted.
ROUNDS = 3


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for ratios, for rates and for caches."""
    asked = plan.accumulated
    link = Rate(_link(cuda, asked.size))
    bench = Pipeline(cuda, asked)
    for name, cases in cases_of(asked).items():
        columns = (
            name, "pipeline raw", "nvCOMP single", "nvCOMP accumulated", "model", "schedule",
            "spool raw", "spool lossless", "spool range=1e-3",
        )  # fmt: skip
        title = f"{asked.checkpoints} checkpoints of {asked.size:,} bytes, GB/s"
        table = report.begin(Table(f"accumulated-gpu-{name}", title, columns, notes=list(NOTES)))
        table.note(f"pinned copies of this size: {link.bytes_per_second / 1e9:.1f} GB/s")
        if bench.problem:
            table.note(f"no nvCOMP here: {bench.problem}")
        for case in cases:
            table.add(case.name, *_row(bench, case, link))
        report.show(table)


def _link(cuda: Cuda, size: int) -> float:
    """Bytes a second of copies to the host of this size, one behind the other."""
    stream = cuda.stream()
    device, host = cuda.malloc(size), cuda.host_alloc(size)
    try:
        for count in (2, 32):
            begin = time.perf_counter()
            for _ in range(count):
                cuda.down(host, device, size, stream)
            cuda.wait(stream)
        return 32 * size / (time.perf_counter() - begin)
    finally:
        cuda.free(device)
        cuda.free_host(host)


def _row(bench: Pipeline, case: Case, link: Rate) -> list[Cell]:
    from unspool import Bound

    count, data = len(case.profile.checkpoints), case.profile.raw_bytes

    def rate(call: Callable[[], float]) -> Sample:
        seconds = [call() for _ in range(ROUNDS + 1)][1:]
        return Sample.of(data / one / 1e9 for one in seconds)

    found = plan_for(case.profile, codec=NVCOMP, cache=case.cache, link=link)
    cells: list[Cell] = [rate(lambda: bench.follow(case, "U" * count))]
    if bench.problem:
        cells += [None, None]
    else:
        cells += [
            rate(lambda decisions=text: bench.follow(case, decisions))
            for text in ("C" * count, found.best.decisions)
        ]
    cells += [found.best.throughput / 1e9, _counts(found.best.counts)]
    for codec in (None, "lossless", Bound(range=1e-3)):
        cells.append(rate(lambda codec=codec: bench.spool(case, codec)))
    return cells


def _counts(counts: Any) -> str:
    return " ".join(f"{count}{letter}" for letter, count in counts.items() if count)


@dataclass(slots=True)
class _Sent:
    """Something that is on its way: its bytes, what marks its end, and what owns its memory."""

    size: int
    event: Any
    owner: Any


class Pipeline:
    """Follows schedules by hand.

    Attributes:
        problem: why nvCOMP cannot be used; "" where it can.
    """

    def __init__(self, cuda: Cuda, asked: Accumulated) -> None:
        import cupy

        self._cuda, self._cupy, self._asked = cuda, cupy, asked
        self._app, self._copies = cuda.stream(), cuda.stream()
        self._state = cuda.array(asked.size)
        most = max(asked.cache, *asked.caches)
        self._arena = cuda.array(most)
        self._pinned = cuda.host_alloc(asked.size * asked.checkpoints)
        self._sent: deque[_Sent] = deque()
        self._used = self._held = self._down = 0
        self._ratio = 0.0
        self.problem = ""
        try:
            from nvidia import nvcomp

            self._nvcomp = nvcomp
            self._codec = nvcomp.Codec(algorithm="Bitcomp", cuda_stream=self._app.ptr)
        except Exception as why:  # the package may be there and its library not
            self.problem = f"{type(why).__name__}: {why}"

    def fill(self, ratio: float) -> None:
        """Makes the checkpoint: one value in `ratio` is random, the rest are zeros."""
        if ratio == self._ratio:
            return
        cupy, self._ratio = self._cupy, ratio
        values = self._state.view("float32")
        values[...] = 0
        few = max(1, int(values.size / ratio))
        values[:few] = cupy.random.default_rng(1).random(few, dtype="float32")
        cupy.cuda.runtime.deviceSynchronize()

    def follow(self, case: Case, decisions: str) -> float:
        """Seconds of a run."""
        self.fill(self._ratio_of(case))
        self._sent.clear()
        self._used = self._held = self._down = 0
        with self._cuda.current(self._app):
            self._cuda.wait(self._app)
            begin = time.perf_counter()
            for one, decision in zip(case.profile.checkpoints, decisions, strict=True):
                self._cuda.spin(one.interval, self._app)
                self._step(decision, one.raw, case.cache)
            self._cuda.wait(self._app)
            self._cuda.wait(self._copies)
            return time.perf_counter() - begin

    def _ratio_of(self, case: Case) -> float:
        return round(case.profile.ratio, 3)

    def _step(self, decision: str, size: int, cache: int) -> None:
        base = self._cuda.address(self._arena)
        if decision == "U":
            place = self._room(size, cache)
            self._cuda.within(base + place, self._cuda.address(self._state), size, self._app)
            return self._send(base + place, size, None)
        # Held checkpoints lie one behind the other at the arena's start: they are one input.
        worst = (self._held + size) // 300 + 4096 if decision in "CX" else 0
        needed = size + (self._held + size + worst if decision in "CX" else 0)
        self._room(needed, cache)
        source = self._cuda.address(self._state)
        self._cuda.within(base + self._held, source, size, self._app)
        self._held += size
        if decision == "A":
            return None
        packed = self._pack(self._held)
        self._held = 0
        return self._send(
            int(packed.__cuda_array_interface__["data"][0]), self._size(packed), packed
        )

    def _pack(self, count: int) -> Any:
        source = self._nvcomp.as_array(self._arena[:count])
        return self._codec.encode(source)

    @staticmethod
    def _size(packed: Any) -> int:
        return int(packed.buffer_size)

    def _room(self, needed: int, cache: int) -> int:
        """Lets the application wait, on the device, for the transfers that make room; a place."""
        while self._sent and self._used + self._held + needed > cache:
            oldest = self._sent.popleft()
            self._used -= oldest.size
            self._app.wait_event(oldest.event)
        # Where the bytes lie does not matter to the time; they must not leave the arena.
        return min(self._used + self._held, self._arena.nbytes - needed) // 256 * 256

    def _send(self, address: int, size: int, owner: Any) -> None:
        ready = self._cupy.cuda.Event(disable_timing=True)
        ready.record(self._app)
        self._copies.wait_event(ready)
        self._cuda.down(self._pinned + self._down, address, size, self._copies)
        done = self._cupy.cuda.Event(disable_timing=True)
        done.record(self._copies)
        self._down += size
        self._used += size
        self._sent.append(_Sent(size, done, owner))

    def spool(self, case: Case, codec: Any) -> float:
        """Seconds of the same run with a spool, to the end of its flush."""
        self.fill(self._ratio_of(case))
        host = len(case.profile.checkpoints) * (self._asked.size + FRAME)
        array = self._state.view("float32")
        options = {"device": case.cache, "host": host, "codec": codec}
        with open_spool(self._cuda, **options) as spool, self._cuda.current(self._app):
            wait_until_ready(spool)
            begin = time.perf_counter()
            for version, one in enumerate(case.profile.checkpoints):
                self._cuda.spin(one.interval, self._app)
                spool.save(version, array)
            self._cuda.wait(self._app)
            spool.flush()
            return time.perf_counter() - begin
