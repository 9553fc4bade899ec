"""Measures this machine's links by a small spool with the tiers that a plan is for.

What is timed are real saves, flushes, prefetches and restores of checkpoints as large as the
application's, at most `LARGEST`, so that checksums, calls and everything else in them count. A
first spool of very small checkpoints says how much can be moved in time. Nothing is synchronised
with the disk, and nothing stays on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from unspool._types import Disk
from unspool._unspool import Spool
from unspool.errors import OptionError, WaitTimeoutError
from unspool.planning.links import Link, Links, LinksError, Rate
from unspool.planning.sizes import Tiers
from unspool.planning.spans import Span, rate_of, read_spans

__all__ = ["LARGEST", "measure"]

#: The most bytes of a checkpoint of the probe, and those of its first spool.
LARGEST, SMALLEST = 32 << 20, 1 << 20

#: Checkpoints of one round, and how many of them the fastest tier and those below it hold.
ROUND, FASTEST, MIDDLE = 10, 4, 6

#: Rounds at most; the first one writes every place for the first time and is kept apart.
ROUNDS = 4

#: Versions of two rounds differ by at least this; that of the array on a GPU.
APART, ARRAY = 1000, 10**6

#: Seconds for which computing is timed, twice alone and beside transfers, and the most that these
#: are taken to slow it down: more is another program's doing.
BESIDE, SLOWEST = 0.15, 3.0

#: What computing is, when nobody says otherwise: one thread that copies so many bytes.
COPIED = 8 << 20


def measure(
    tiers: Tiers,
    checkpoint_bytes: int,
    limit: float = 2.0,
    work: Callable[[], object] | None = None,
) -> Links:
    """See `unspool.planning.measure_links`."""
    if "disk" in tiers.names and tiers.directory is None:
        raise OptionError(
            "The disk tier has no directory to measure: give one, as in "
            'disk=("/scratch", "200GiB"), or give links= of the machine that the plan is for.'
        )
    if not 0 < limit <= 600:
        raise OptionError(f"limit={limit!r}: seconds above 0 and at most 600.")
    begin = time.perf_counter()
    wanted = min(checkpoint_bytes, LARGEST)
    small = _Probe(tiers, min(wanted, SMALLEST), limit / 2)
    small.run(1)
    size = _affordable(small, wanted, limit - (time.perf_counter() - begin))
    large = small
    if size > small.size or small.enough:
        large = _Probe(tiers, size, max(0.1, limit - (time.perf_counter() - begin)), work)
        large.run(ROUNDS)
    return _links(small, large, begin)


def _affordable(small: _Probe, wanted: int, left: float) -> int:
    """Bytes of a checkpoint of which two rounds take no longer than what is left."""
    size = wanted
    rate = small.moved / max(small.seconds, 1e-6)
    while size > small.size and 2 * ROUND * size > left * rate:
        size //= 2
    return max(size, small.size)


@dataclass
class _Readings:
    """Seconds of calls, without stall: of the first round, and of later ones."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)

    def best(self) -> float | None:
        """What a call takes while little else goes on."""
        values = sorted(self.warm or self.cold)
        return values[len(values) // 4] if values else None


class _Probe:
    """One spool, some rounds of saves and restores through it, and what was seen."""

    def __init__(
        self,
        tiers: Tiers,
        size: int,
        limit: float,
        work: Callable[[], object] | None = None,
    ) -> None:
        self.names, self.size = tiers.names, size
        self.saves, self.restores = _Readings(), _Readings()
        self.spans: list[Span] = []
        self.slowdown, self.where, self.moved, self.seconds = 1.0, "cpu", 0, 0.0
        self._on, self._work = tiers.on, work
        self._options = _options(tiers, size)
        self._until = time.perf_counter() + limit

    @property
    def enough(self) -> bool:
        """Whether every direction has moved something."""
        return bool(self.saves.best() and self.restores.best() and all(self.rates().values()))

    def run(self, rounds: int) -> None:
        """Opens the spool, does at most so many rounds, and closes it."""
        left = max(0.1, self._until - time.perf_counter())
        with (
            tempfile.TemporaryDirectory(prefix="unspool-probe-") as folder,
            Spool(**self._options, on=self._on, timeout=left, trace=True) as spool,
        ):
            self.where = _where(spool)
            with contextlib.suppress(WaitTimeoutError), _array(spool, self.size, self.where) as u:
                self._rounds(spool, u, rounds)
            trace = Path(folder, "trace.json")
            spool.write_trace(trace)
            self.spans = read_spans(trace)

    def _rounds(self, spool: Spool, array: Any, rounds: int) -> None:
        begin = time.perf_counter()
        for number in range(rounds):
            self._round(spool, array, number)
            now = time.perf_counter()
            self.seconds, self.moved = now - begin, self.moved + ROUND * self.size
            if now + self.seconds / (number + 1) > self._until:
                break
        if rounds > 1 and self.where == "cpu" and len(self.names) > 1:
            self.slowdown = self._slowed(spool, array)

    def _round(self, spool: Spool, array: Any, number: int) -> None:
        """Saves, waits until all is in the slowest tier, restores in the same order."""
        versions = range(number * APART, number * APART + ROUND)
        for version in versions:
            self._time(self.saves, number, spool, partial(spool.save, version, array))
        spool.flush()
        spool.expect(versions)
        for version in versions:
            self._time(self.restores, number, spool, partial(spool.restore, version, array))
        for version in versions:
            spool.discard(version)

    def _time(
        self, readings: _Readings, number: int, spool: Spool, call: Callable[[], object]
    ) -> None:
        """Times a call. What a single tier makes a call wait is its own speed, and no stall."""
        before = _stall(spool)
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        waited = 0.0 if len(self.names) == 1 else _stall(spool) - before
        (readings.warm if number else readings.cold).append(max(took - waited, 1e-9))

    def _slowed(self, spool: Spool, array: Any) -> float:
        """How much longer computing takes while saved checkpoints are flushed."""
        work = self._work or _copying()
        work()
        alone = _times(work, lambda: True)
        beside: list[float] = []
        for number in range(ROUNDS, 2 * ROUNDS):
            versions = range(number * APART, number * APART + ROUND)
            for version in versions:
                spool.save(version, array)
            beside += _times(work, lambda: _in_flight(spool) > 0)
            for version in versions:
                spool.discard(version)
            if time.perf_counter() > self._until:
                break
        alone += _times(work, lambda: True)
        return min(max(1.0, _usual(beside) / _usual(alone)), SLOWEST) if beside else 1.0

    def rates(self) -> dict[str, float | None]:
        """Bytes per second of each lane; None where nothing moved."""
        return {lane: self._rate(lane) for lane in _lanes(self.names)}

    def _rate(self, lane: str) -> float | None:
        warm = rate_of(self.spans, lambda span: span.lane == lane and span.version >= APART)
        return warm or rate_of(self.spans, lambda span: span.lane == lane)


def _lanes(names: tuple[str, ...]) -> list[str]:
    pairs = list(itertools.pairwise(names))
    return [f"{a}-{b}" for a, b in pairs] + [f"{b}-{a}" for a, b in pairs]


def _options(tiers: Tiers, size: int) -> dict[str, Any]:
    """The options of a spool with these tiers that holds one round."""
    room = size + 8192
    found: dict[str, Any] = {}
    for place, name in enumerate(tiers.names):
        last = place == len(tiers.names) - 1
        count = ROUND + 2 if last else FASTEST if place == 0 else MIDDLE
        # One more for the array of the application, on a GPU.
        found[name] = (count + (place == 0)) * room
    if "disk" in found:
        assert tiers.directory is not None
        found["disk"] = Disk(tiers.directory, capacity=found["disk"])
    return found


def _where(spool: Spool) -> str:
    """`"cpu"`, or the GPU as in `"cuda:0"`."""
    for tier in spool.stats().tiers:
        found = re.search(r"CUDA device (\d+)$", tier.location)
        if found is not None:
            return f"cuda:{found[1]}"
    return "cpu"


@contextlib.contextmanager
def _array(spool: Spool, size: int, where: str) -> Iterator[Any]:
    """Memory of the application: on a GPU, a checkpoint of the spool that is being written."""
    if where == "cpu":
        yield bytearray(b"\1") * size
        return
    with spool.writing(ARRAY, size, "uint8") as buffer:
        yield buffer
    spool.discard(ARRAY)


def _stall(spool: Spool) -> float:
    stats = spool.stats()
    return stats.save_stall_seconds + stats.restore_stall_seconds


def _in_flight(spool: Spool) -> int:
    return sum(link.flush.in_flight for link in spool.stats().links)


def _copying() -> Callable[[], object]:
    """Copies memory; no other thread of Python has to wait for it."""
    source, target = ctypes.create_string_buffer(COPIED), ctypes.create_string_buffer(COPIED)
    return lambda: ctypes.memmove(target, source, COPIED)


def _usual(times: list[float]) -> float:
    """The mean without the least and the greatest tenth: one unlucky reading says nothing."""
    cut = len(times) // 10
    return max(1e-9, statistics.fmean(sorted(times)[cut : len(times) - cut]))


def _times(work: Callable[[], object], still: Callable[[], bool]) -> list[float]:
    """Times of calls for as long as `still` says, after each one, but not too long."""
    found: list[float] = []
    begin = now = time.perf_counter()
    while now - begin < BESIDE and still():
        work()
        now, before = time.perf_counter(), now
        if still():
            found.append(now - before)
    return found


def _links(small: _Probe, large: _Probe, begin: float) -> Links:
    """What both spools have shown; the clock said `begin` when all began."""
    rates = {lane: rate or small.rates()[lane] for lane, rate in large.rates().items()}
    save, restore = _copies(small, large)
    missing = [lane for lane, rate in rates.items() if not rate]
    if save is None or restore is None or missing:
        raise LinksError(
            f"The tiers {', '.join(large.names)} are too slow to be measured in the time given "
            f"({', '.join(missing) or 'saves'} moved nothing): raise limit=, or give links=."
        )
    latencies = {lane: _latency(small, lane, rate or 1.0) for lane, rate in rates.items()}

    def rate(lane: str) -> Rate:
        return Rate(rates[lane] or 1.0, latencies[lane])

    pairs = itertools.pairwise(large.names)
    links = tuple(Link(a, b, rate(f"{a}-{b}"), rate(f"{b}-{a}")) for a, b in pairs)
    return Links(
        on=large.where,
        tiers=large.names,
        save=save,
        restore=restore,
        links=links,
        slowdown=large.slowdown,
        first_touch=_first_touch(large, save),
        checkpoint_bytes=large.size,
        seconds=time.perf_counter() - begin,
    )


def _copies(small: _Probe, large: _Probe) -> tuple[Rate | None, Rate | None]:
    """Of the application's copies. On a GPU they are only enqueued: a call is their latency."""
    raw = _of_gpu(large.where, large.names[0])
    found: list[Rate | None] = []
    for place, few, many in ((0, small.saves, large.saves), (1, small.restores, large.restores)):
        short, long = few.best(), many.best()
        if short is None or long is None:
            found.append(None)
        elif raw is not None:
            found.append(Rate(raw[place], short))
        else:
            found.append(_line((small.size, short), (large.size, long)))
    return found[0], found[1]


def _line(small: tuple[int, float], large: tuple[int, float]) -> Rate:
    """The rate and the latency of two readings: bytes and seconds."""
    gained = large[0] - small[0]
    if gained <= 0 or large[1] <= small[1]:
        return Rate(large[0] / large[1])
    rate = max(gained / (large[1] - small[1]), large[0] / large[1])
    return Rate(rate, max(0.0, large[1] - large[0] / rate))


def _latency(small: _Probe, lane: str, rate: float) -> float:
    """What a transfer takes beside its bytes."""
    times = [span.end - span.begin for span in small.spans if span.lane == lane]
    return max(0.0, min(times) - small.size / rate) if times else 0.0


def _first_touch(probe: _Probe, save: Rate) -> float:
    """Seconds per byte that the first save into a place takes longer than a later one."""
    if probe.where != "cpu" or probe.names[0] == "disk" or not probe.saves.warm:
        return 0.0
    cold = min(probe.saves.cold[:FASTEST])
    return max(0.0, cold - save.seconds(probe.size)) / probe.size


def _of_gpu(where: str, tier: str) -> tuple[float, float] | None:
    """Bytes per second of copies from arrays on a GPU into a memory tier and back, by the events of
    the device.
    """
    from unspool.diagnosis import doctor

    if where == "cpu" or tier == "disk":
        return None
    for device in doctor(measure=True).devices:
        if where == f"cuda:{device.ordinal}" and device.speeds is not None:
            speeds = device.speeds
            if tier == "device":
                return speeds.within_device, speeds.within_device
            return speeds.device_to_host, speeds.host_to_device
    return None
