"""The raw operations: what the driver and the memory of this machine do by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.measure import Sample, gigabytes_per_second, repeat, seconds_of
from unspool_studies.bench.memory import Mapping, Touch, in_parallel, write_all, write_pages
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table

__all__ = ["Links", "device_seconds", "links", "run", "within_device"]

#: Host time that one enqueued call is given, generously, while the device is kept waiting.
A_CALL = 60e-6

#: The most calls that are enqueued after one wait: a stream has room for about a thousand.
MOST_CALLS = 100


def device_seconds(
    cuda: Cuda, stream: Stream, calls: Sequence[Callable[[], object]]
) -> tuple[float, list[float]]:
    """Seconds of device time for all calls, and host seconds of each.

    The device is first kept waiting by a kernel, so that all calls are enqueued before the first
    one begins: what is measured is the device's time, not the speed of this program.
    """
    begin, end = cuda.event(), cuda.event()
    cuda.spin(1e-3 + A_CALL * len(calls), stream)
    cuda.record(begin, stream)
    hosts = [seconds_of(call) for call in calls]
    cuda.record(end, stream)
    seconds = cuda.elapsed(begin, end)
    for event in (begin, end):
        cuda.destroy_event(event)
    return seconds, hosts


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one kind.

    Attributes:
        device: device seconds of a call, one reading a round.
        host: host seconds of a call, one reading a call.
    """

    device: Sample
    host: Sample


def rounds_of(
    cuda: Cuda, stream: Stream, rounds: int, make: Callable[[], Sequence[Callable[[], object]]]
) -> Calls:
    """Several rounds of calls; `make` prepares those of one round. The first round is a warm-up."""
    device, host = [], []
    for number in range(rounds + 1):
        calls = make()
        seconds, times = device_seconds(cuda, stream, calls)
        cuda.wait(stream)
        if number:
            device.append(seconds / len(calls))
            host += times
    return Calls(Sample.of(device), Sample.of(host))


def repetitions(size: int, room: int) -> int:
    """Copies of one round: as many as fit into `room` bytes of the device, and into a stream."""
    return max(2, min(MOST_CALLS, room // size))


def within_device(cuda: Cuda, size: int, count: int, rounds: int, back: bool = False) -> Calls:
    """Copies of `size` bytes from one place to `count` others, as saves make them; `back`: from
    those to the one, as restores do.
    """
    stream = cuda.stream()
    state, tier = cuda.malloc(size), cuda.malloc(size * count)
    places = [tier + size * number for number in range(count)]
    ends = [(state, place) if back else (place, state) for place in places]
    calls = [lambda to=to, of=of: cuda.within(to, of, size, stream) for to, of in ends]
    try:
        return rounds_of(cuda, stream, rounds, lambda: calls)
    finally:
        cuda.free(state)
        cuda.free(tier)


@dataclass(frozen=True, slots=True)
class Links:
    """Seconds for one pinned copy.

    Attributes:
        size: bytes of the copy.
        down: to the host, alone.
        up: to the device, alone.
        both: until both are done when they begin together.
    """

    size: int
    down: Sample
    up: Sample
    both: Sample

    def rate(self, direction: str) -> Sample:
        """GB/s of `"down"`, `"up"`, or each of `"both"`."""
        return gigabytes_per_second(self.size, getattr(self, direction))


def links(cuda: Cuda, size: int, rounds: int) -> Links:
    """Pinned copies in one direction and in both at once, several in a row on each stream."""
    streams = cuda.stream(), cuda.stream()
    device, host = cuda.malloc(2 * size), cuda.host_alloc(2 * size)
    row = max(1, min(8, (1 << 30) // size))

    def timed(down: bool, up: bool) -> float:
        begin = time.perf_counter()
        for _ in range(row):
            if down:
                cuda.down(host, device, size, streams[0])
            if up:
                cuda.up(device + size, host + size, size, streams[1])
        for stream in streams:
            cuda.wait(stream)
        return (time.perf_counter() - begin) / row

    try:
        timed(True, True)
        found = [repeat(partial(timed, *ways), rounds) for ways in DIRECTIONS]
        return Links(size, *found)
    finally:
        cuda.free(device)
        cuda.free_host(host)


#: Down alone, up alone, both.
DIRECTIONS = (True, False), (False, True), (True, True)


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """All raw figures, without a spool."""
    report.show(_device_table(cuda, plan))
    report.show(_link_table(cuda, plan))
    report.show(_host_table(cuda, plan, report))


def _device_table(cuda: Cuda, plan: Plan) -> Table:
    title = "Copies within the device (cudaMemcpyAsync)"
    columns = ("MiB", "copies", "to", "device us", "GB/s", "host us a call", "p90")
    table = Table("raw-device", title, columns)
    for size in plan.sizes:
        count = repetitions(size, plan.copies_room)
        for back in (False, True):
            calls = within_device(cuda, size, count, plan.rounds, back)
            micro = calls.device.map(lambda seconds: seconds * 1e6)
            host = calls.host.map(lambda seconds: seconds * 1e6)
            rate = gigabytes_per_second(size, calls.device)
            to = "one place" if back else "many places"
            table.add(size / 2**20, count, to, micro, rate, host.median, host.p90)
    return table


def _link_table(cuda: Cuda, plan: Plan) -> Table:
    columns = ("MiB", "down GB/s", "up GB/s", "each of both GB/s")
    table = Table("raw-links", "Pinned copies (cudaHostAlloc)", columns)
    for size in sorted({16 << 20, plan.checkpoint, 1 << 30}):
        found = links(cuda, size, plan.rounds)
        table.add(size / 2**20, *(found.rate(way) for way in ("down", "up", "both")))
    return table


def _host_table(cuda: Cuda, plan: Plan, report: Report) -> Table:
    """Host memory: pinned, touched, registered, copied to; alone."""
    count = plan.raw_buffer
    title = f"Host memory of {count / 2**30:.3g} GiB"
    table = report.begin(Table("raw-host", title, ("operation", "ms", "GB/s")))

    def add(name: str, seconds: Sample) -> None:
        table.add(name, seconds.map(lambda s: s * 1e3), gigabytes_per_second(count, seconds))

    add("cudaHostAlloc", repeat(lambda: _pin(cuda, count), plan.rounds, plan.budget))
    for huge in (False, True):
        for touch, threads in _touches(plan):
            _add_touched(cuda, plan, huge, (touch, threads), add)
        pages = "huge pages" if huge else "4 KiB pages"
        untouched = repeat(partial(_register, cuda, count, huge), plan.rounds, plan.budget)
        add(f"register, {pages}, untouched", untouched)
        cold, warm = _pageable(cuda, count, huge)
        add(f"copy down, not registered, {pages}, untouched", cold)
        add(f"copy down, not registered, {pages}, touched", warm)
    return table


def _touches(plan: Plan) -> list[tuple[Touch, int]]:
    return [(write_pages, 1), (write_pages, plan.touch_threads), (write_all, plan.touch_threads)]


def _add_touched(
    cuda: Cuda,
    plan: Plan,
    huge: bool,
    how: tuple[Touch, int],
    add: Callable[[str, Sample], None],
) -> None:
    touch, threads = how
    pages = "huge pages" if huge else "4 KiB pages"
    verb = "memset" if touch is write_all else "touch"
    touching, registering = [], []

    def once() -> float:
        mapping = Mapping(plan.raw_buffer, huge)
        touching.append(seconds_of(lambda: in_parallel(mapping, touch, threads)))
        registering.append(seconds_of(lambda: cuda.register(mapping.address, mapping.count)))
        cuda.unregister(mapping.address)
        mapping.close()
        return touching[-1] + registering[-1]

    repeat(once, plan.rounds, plan.budget)
    add(f"{verb}, {pages}, {threads} threads", Sample.of(touching))
    if verb == "touch" and threads > 1:
        add(f"register, {pages}, touched", Sample.of(registering))


def _pin(cuda: Cuda, count: int) -> float:
    begin = time.perf_counter()
    address = cuda.host_alloc(count)
    seconds = time.perf_counter() - begin
    cuda.free_host(address)
    return seconds


def _register(cuda: Cuda, count: int, huge: bool) -> float:
    mapping = Mapping(count, huge)
    seconds = seconds_of(lambda: cuda.register(mapping.address, count))
    cuda.unregister(mapping.address)
    mapping.close()
    return seconds


def _pageable(cuda: Cuda, count: int, huge: bool) -> tuple[Sample, Sample]:
    """Seconds to copy into memory that is not registered: untouched, then touched."""
    stream, device = cuda.stream(), cuda.malloc(count)
    mapping = Mapping(count, huge)

    def copy() -> float:
        begin = time.perf_counter()
        cuda.down(mapping.address, device, count, stream)
        cuda.wait(stream)
        return time.perf_counter() - begin

    cold = copy()
    warm = repeat(copy, 3, 2.0)
    cuda.free(device)
    mapping.close()
    return Sample.of([cold]), warm
