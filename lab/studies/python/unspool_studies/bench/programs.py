"""Part `beside`: what a program loses that launches kernels while a spool moves checkpoints.

Every launch takes a lock of the driver, and so does everything that a spool asks of it. A program
that launches small kernels without pause shows what is lost; one thread of Python launches about
50,000 a second.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from unspool_studies.bench.beside import Copier
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import moved, open_spool, ready, room_for, wait_until_ready

__all__ = ["Launches", "launched", "run"]

COLUMNS = ("beside", "of alone %", "longest ms", "alone", "seconds", "lost", "GB/s")

#: Launches between two events, and events that may be ahead of the device.
TOGETHER, AHEAD = 64, 8
#: Seconds of the device that a kernel takes: less than a launch takes.
KERNEL = 2e-6
#: Seconds that the program runs by itself, and that a new spool is left alone.
ALONE, SETTLED = 0.3, 0.2


@dataclass(frozen=True, slots=True)
class Launches:
    """What the program did.

    Attributes:
        count: kernels launched.
        seconds: until the last one was done.
        longest: seconds of the call that took longest.
    """

    count: int
    seconds: float
    longest: float

    @property
    def rate(self) -> float:
        """Launches a second."""
        return self.count / max(self.seconds, 1e-9)


def launched(cuda: Cuda, stream: Stream, is_over: Callable[[float], bool]) -> Launches:
    """Launches small kernels until `is_over` says so, which is given the seconds gone by."""
    events = [cuda.event() for _ in range(AHEAD)]
    longest, count, begin = 0.0, 0, time.perf_counter()
    for turn in itertools.count():
        for _ in range(TOGETHER):
            before = time.perf_counter()
            cuda.spin(KERNEL, stream)
            longest = max(longest, time.perf_counter() - before)
        count += TOGETHER
        cuda.record(events[turn % AHEAD], stream)
        if turn >= AHEAD - 1:
            cuda.wait_event(events[(turn + 1) % AHEAD])
        if (turn + 1) % AHEAD == 0 and is_over(time.perf_counter() - begin):
            break
    cuda.wait(stream)
    seconds = time.perf_counter() - begin
    for event in events:
        cuda.destroy_event(event)
    return Launches(count, seconds, longest)


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """One table: medians of rounds, in each of which the program also ran alone."""
    title = "A program that launches small kernels beside a spool"
    table = report.begin(Table("beside", title, COLUMNS))
    table.note("raw: copies to pinned memory from another thread, each waited for")
    table.note("lost: seconds that the launches would have taken less without what went on beside")
    stream = cuda.stream()
    launched(cuda, stream, lambda gone: gone > ALONE)
    for name, way in WAYS.items():
        rounds = [_round(cuda, plan, stream, way) for _ in range(plan.rounds)]
        table.add(name, *(Sample.of(list(column)) for column in zip(*rounds, strict=True)))
    report.show(table)


def _round(cuda: Cuda, plan: Plan, stream: Stream, way: Way) -> tuple[float, ...]:
    """The cells of one round."""
    with way(cuda, plan) as beside:
        alone = launched(cuda, stream, lambda gone: gone > ALONE)
        beside.begin()
        found = launched(cuda, stream, lambda _: beside.is_over())
    share = found.rate / alone.rate
    lost = (1 - share) * found.seconds
    longest = found.longest * 1e3, alone.longest * 1e3
    return 100 * share, *longest, found.seconds, lost, beside.count / 1e9 / found.seconds


@dataclass(frozen=True, slots=True)
class Beside:
    """What goes on beside the program.

    Attributes:
        count: its bytes.
        begin: begins it; it goes on by itself.
        is_over: whether it has ended.
    """

    count: int
    begin: Callable[[], object]
    is_over: Callable[[], bool]


#: Makes everything ready, and gives it back.
Way = Callable[[Cuda, Plan], AbstractContextManager[Beside]]


@contextmanager
def _raw(cuda: Cuda, plan: Plan) -> Iterator[Beside]:
    """Copies by hand."""
    size, count = plan.checkpoint, _count(plan)
    copier = Copier(cuda, size)
    thread = threading.Thread(target=copier.copy, args=(count,))
    try:
        yield Beside(count * size, thread.start, lambda: not thread.is_alive())
        thread.join()
    finally:
        copier.close()


@contextmanager
def _flush(cuda: Cuda, plan: Plan) -> Iterator[Beside]:
    """Checkpoints that go from the device to the host by themselves."""
    size, count = plan.checkpoint, _count(plan)
    room = room_for(count + 1, size)
    with open_spool(cuda, device_memory=room, host_memory=room) as spool:
        wait_until_ready(spool)
        array = cuda.array(size)

        def begin() -> None:
            for version in range(count):
                spool.save(version, array)

        yield Beside(count * size, begin, lambda: moved(spool.stats())[0] >= count * size)


@contextmanager
def _prefetch(cuda: Cuda, plan: Plan) -> Iterator[Beside]:
    """Checkpoints that come back to the device by themselves."""
    size, count = plan.checkpoint, _count(plan)
    room = room_for(count + 1, size)
    with open_spool(cuda, device_memory=room, host_memory=2 * room) as spool:
        wait_until_ready(spool)
        array = cuda.array(size)
        for version in range(2 * count):
            spool.save(version, array)
        spool.flush()
        begin = partial(spool.expect, range(count))
        # What the device still had of them does not come back.
        enough = max(1, count - 2) * size
        yield Beside(enough, begin, lambda: moved(spool.stats())[1] >= enough)


@contextmanager
def _prepare(cuda: Cuda, plan: Plan) -> Iterator[Beside]:
    """Host memory that is made ready for copies."""
    size = plan.arenas[0]
    with open_spool(cuda, host_memory=size) as spool:
        # As many bytes are made ready for every spool.
        time.sleep(SETTLED)
        thread = threading.Thread(target=spool.prepare)

        def is_over() -> bool:
            found, _ = ready(spool.stats())
            return not thread.is_alive() and (found is None or found >= size)

        yield Beside(size, thread.start, is_over)
        thread.join()


def _count(plan: Plan) -> int:
    """A quarter of the history, in checkpoints."""
    return max(1, plan.history // 4 // plan.checkpoint)


WAYS: dict[str, Way] = {
    "raw copies to the host": _raw,
    "a flush to the host": _flush,
    "a prefetch": _prefetch,
    "preparing host memory": _prepare,
}
