"""A small spool with the tiers that a plan is for, and some rounds of real work through it.

What is timed are real saves, flushes, prefetches and restores, so that checksums, calls and
everything else in them count. Nothing is synchronised with the disk, and nothing stays on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .._types import Debug, Disk
from .._unspool import Spool
from ..errors import WaitTimeoutError
from .sizes import OPTIONS, Tiers

#: Checkpoints of one round, and how many of them the fastest tier and those below it hold: more
#: than the caches of a CPU.
ROUND, FASTEST, MIDDLE = 14, 8, 10

#: Rounds at most; the first one writes every place for the first time and is kept apart.
ROUNDS = 4

#: Bytes of a tier beside those of a checkpoint: its head and its end, and each array in it.
ROOM, ARRAY_ROOM = 8192, 256

#: Versions of two rounds differ by at least this; that of the array on a GPU.
APART, ARRAY = 1000, 10**6

#: Seconds for which computing is timed, twice alone and beside transfers, and the most by which one
#: link is taken to slow it down: more is another program's doing.
BESIDE, SLOWEST = 0.15, 2.0

#: What computing is, when nobody says otherwise: one thread that copies so many bytes.
COPIED = 8 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """One transfer of a spool's trace that was completed.

    Attributes:
        lane: source and target, such as `"host-disk"`.
        version: of the checkpoint.
        bytes: that moved.
        begin, end: in seconds.
    """

    lane: str
    version: int
    bytes: int
    begin: float
    end: float


def read_spans(path: Path) -> list[Span]:
    """The transfers in a trace that `Spool.write_trace` has just written."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    lanes = (event for event in events if event["ph"] == "X" and "-" in event["cat"])
    return [
        Span(one["cat"], facts["version"], facts["bytes"], begin, begin + one["dur"] / 1e6)
        for one in lanes
        for facts, begin in [(one["args"], one["ts"] / 1e6)]
        if facts["outcome"] == "done" and facts["bytes"] > 0
    ]


def busy_seconds(spans: Iterable[Span]) -> float:
    """The time in which at least one of them was under way."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def rate_of(spans: Iterable[Span], wanted: Callable[[Span], bool]) -> float | None:
    """Bytes per second of all workers of a lane together; None without such a transfer."""
    chosen = [span for span in spans if wanted(span)]
    seconds = busy_seconds(chosen)
    return sum(span.bytes for span in chosen) / seconds if seconds > 0 else None


@dataclass
class Readings:
    """Seconds of calls: of the first round, and of later ones."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)

    def usual(self) -> float | None:
        """What a call takes: the median."""
        values = self.warm or self.cold
        return statistics.median(values) if values else None

    def least(self) -> float:
        """The shortest call, 0 when there was none."""
        return min(self.warm or self.cold, default=0.0)


class Probe:
    """One spool, some rounds of saves and restores through it, and what was seen."""

    def __init__(
        self,
        tiers: Tiers,
        size: int,
        array_bytes: int,
        limit: float,
        work: Callable[[], object] | None = None,
    ) -> None:
        self.names, self.size = tiers.names, size
        self.saves, self.restores = Readings(), Readings()
        self.spans: list[Span] = []
        # As many arrays as have the application's size: long copies are faster than short ones.
        self._arrays = max(1, round(size / array_bytes))
        self.where, self.moved, self.seconds = "cpu", 0, 0.0
        #: By how much each link slows computing down while it is busy.
        self.contention = [0.0] * (len(self.names) - 1)
        self._on, self._work = tiers.device, work
        self._single: dict[str, float] = {}
        self._options = _options(tiers, size, self._arrays)
        self._until = time.perf_counter() + limit

    @property
    def enough(self) -> bool:
        """Whether every direction has moved something."""
        return bool(self.saves.usual() and self.restores.usual() and all(self.rates().values()))

    def run(self, rounds: int) -> None:
        """Opens the spool, does at most so many rounds, and closes it."""
        left = max(0.1, self._until - time.perf_counter())
        with (
            tempfile.TemporaryDirectory(prefix="unspool-probe-") as folder,
            Spool(**self._options, device=self._on, timeout=left, debug=Debug(trace=True)) as spool,
        ):
            self.where = _where(spool)
            _wait_until_ready(spool, self._until)
            pieces = self.size // self._arrays, self._arrays
            with contextlib.suppress(WaitTimeoutError), _state(spool, pieces, self.where) as state:
                self._rounds(spool, state, rounds)
            trace = Path(folder, "trace.json")
            spool.write_trace(trace)
            self.spans = read_spans(trace)
            self._single = _single_rates(spool)

    def _rounds(self, spool: Spool, state: Any, rounds: int) -> None:
        begin = time.perf_counter()
        for number in range(rounds):
            self._round(spool, state, number)
            now = time.perf_counter()
            self.seconds, self.moved = now - begin, self.moved + ROUND * self.size
            # The first round says little: a second one is begun while there is any time.
            next_one = self.seconds / (number + 1) if number else 0.0
            if now + next_one > self._until:
                break
        if rounds > 1 and self.where == "cpu" and len(self.names) > 1:
            self.contention = self._contention(spool, state)

    def _round(self, spool: Spool, state: Any, number: int) -> None:
        """Copies alone, then everything through all tiers, restored in the order of saving."""
        versions = range(number * APART, number * APART + ROUND)
        self._copies(spool, state, number, versions[: FASTEST - 1])
        for version in versions:
            spool.save(version, *state)
        spool.flush()
        spool.expect(versions)
        _wait_until_prefetched(spool, self._until)
        for version in versions:
            spool.restore(version, *state)
        for version in versions:
            spool.discard(version)

    def _copies(self, spool: Spool, state: Any, number: int, versions: range) -> None:
        """Saves and restores in the fastest tier, from which these do not have to move."""
        spool.expect(versions, last=True)
        for version in versions:
            self._time(self.saves, number, partial(spool.save, version, *state))
        for version in versions:
            self._time(self.restores, number, partial(spool.restore, version, *state))
        for version in versions:
            spool.discard(version)

    def _time(self, readings: Readings, number: int, call: Callable[[], object]) -> None:
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        (readings.warm if number else readings.cold).append(max(took, 1e-9))

    def _contention(self, spool: Spool, state: Any) -> list[float]:
        """By how much computing takes longer while each link flushes saved checkpoints."""
        work = self._work or _copying()
        work()
        alone = [took for took, _ in _times(work, lambda: (False,), idle=True)]
        beside: dict[tuple[bool, ...], list[float]] = {}
        for number in range(ROUNDS, 2 * ROUNDS):
            versions = range(number * APART, number * APART + ROUND)
            for version in versions:
                spool.save(version, *state)
            for took, busy in _times(work, lambda: _busy(spool)):
                beside.setdefault(busy, []).append(took)
            for version in versions:
                spool.discard(version)
            if time.perf_counter() > self._until:
                break
        alone += [took for took, _ in _times(work, lambda: (False,), idle=True)]
        return _shares(len(self.names) - 1, _usual(alone), beside)

    def rates(self) -> dict[str, float | None]:
        """Bytes per second of each lane; None where nothing moved."""
        return {lane: self._rate(lane) for lane in _lanes(self.names)}

    def _rate(self, lane: str) -> float | None:
        """All workers together, without the first round; at least what one transfer reaches: spans
        include waits for the application's work on a GPU.
        """
        warm = rate_of(self.spans, lambda span: span.lane == lane and span.version >= APART)
        together = warm or rate_of(self.spans, lambda span: span.lane == lane)
        return None if together is None else max(together, self._single.get(lane, 0.0))


def _lanes(names: tuple[str, ...]) -> list[str]:
    pairs = list(itertools.pairwise(names))
    return [f"{a}-{b}" for a, b in pairs] + [f"{b}-{a}" for a, b in pairs]


def _single_rates(spool: Spool) -> dict[str, float]:
    """Bytes per second of one transfer of each lane, on average."""
    found: dict[str, float] = {}
    for link in spool.stats().links:
        ways = {f"{link.fast}-{link.slow}": link.flush, f"{link.slow}-{link.fast}": link.prefetch}
        found |= {
            lane: way.bytes / way.busy_seconds for lane, way in ways.items() if way.busy_seconds
        }
    return found


def _options(tiers: Tiers, size: int, arrays: int) -> dict[str, Any]:
    """The options of a spool with these tiers that holds one round."""
    room = size + ROOM + arrays * ARRAY_ROOM
    found: dict[str, Any] = {}
    for place, name in enumerate(tiers.names):
        last = place == len(tiers.names) - 1
        count = ROUND + 2 if last else FASTEST if place == 0 else MIDDLE
        # One more for the array of the application, on a GPU.
        found[OPTIONS[name]] = (count + (place == 0)) * room
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


def _wait_until_ready(spool: Spool, until: float) -> None:
    """Pinned memory is registered in the background: copies are slow before that."""
    spool.prepare()
    while time.perf_counter() < until:
        tiers = spool.stats().tiers
        if all(tier.ready is None or tier.ready >= (tier.capacity or 0) for tier in tiers):
            return
        time.sleep(0.001)


def _wait_until_prefetched(spool: Spool, until: float) -> None:
    """Restores that come at once read from slower tiers by themselves: where others keep all cores
    busy nothing would be prefetched, and nothing be known of its speed. Waits for one transfer of
    each link since the spool was opened.
    """
    while time.perf_counter() < until:
        if all(link.prefetch.transfers for link in spool.stats().links):
            return
        time.sleep(0.001)


@contextlib.contextmanager
def _state(spool: Spool, pieces: tuple[int, int], where: str) -> Iterator[tuple[Any, ...]]:
    """Some arrays of the application; on a GPU one, a checkpoint of the spool that is being
    written.
    """
    each, count = pieces
    if where == "cpu":
        yield tuple(bytearray(b"\1") * each for _ in range(count))
        return
    with spool.writing(ARRAY, each * count, "uint8") as buffer:
        yield (buffer,)
    spool.discard(ARRAY)


def _busy(spool: Spool) -> tuple[bool, ...]:
    """Which links flush now."""
    return tuple(link.flush.in_flight > 0 for link in spool.stats().links)


def _copying() -> Callable[[], object]:
    """Copies memory; no other thread of Python has to wait for it."""
    source, target = ctypes.create_string_buffer(COPIED), ctypes.create_string_buffer(COPIED)
    return lambda: ctypes.memmove(target, source, COPIED)


def _usual(times: list[float]) -> float:
    """The mean without the least and the greatest tenth: one unlucky reading says nothing."""
    cut = len(times) // 10
    return max(1e-9, statistics.fmean(sorted(times)[cut : len(times) - cut]))


def _times(
    work: Callable[[], object], look: Callable[[], tuple[bool, ...]], idle: bool = False
) -> list[tuple[float, tuple[bool, ...]]]:
    """Times of calls, each with the links that were busy from its begin to its end; for as long as
    any is, or in any case, but not too long.
    """
    found: list[tuple[float, tuple[bool, ...]]] = []
    until = time.perf_counter() + BESIDE
    busy = look()
    while time.perf_counter() < until and (idle or any(busy)):
        begin = time.perf_counter()
        work()
        took, before = time.perf_counter() - begin, busy
        busy = look()
        if busy == before:
            found.append((took, busy))
    return found


def _shares(links: int, alone: float, beside: dict[tuple[bool, ...], list[float]]) -> list[float]:
    """By how much each link slows computing: from times beside one busy link, then beside more."""
    found: dict[int, float] = {}
    for busy in sorted(beside, key=sum):
        new = [link for link in range(links) if busy[link] and link not in found]
        known = sum(found.get(link, 0.0) for link in range(links) if busy[link])
        more = _usual(beside[busy]) / alone - 1.0 - known
        for link in new:
            found[link] = min(max(0.0, more / len(new)), SLOWEST)
    return [found.get(link, 0.0) for link in range(links)]
