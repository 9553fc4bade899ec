"""One shot of the paper on fast starts: so many checkpoints, a few milliseconds of compute between
them, saved and then restored in reverse order, with a buffer that is prepared in one of its ways.

The measure is the paper's (Maurya et al., HiPC 2022, section V-C): the time for which the
application is blocked, in preparing, in saves and in restores. A save or restore ends when the copy
within the device is done. As there, the application sleeps for the compute interval; checkpoints
are flushed first in, first out; a checkpoint that was restored makes room for the next prefetch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import unspool
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.layout import Layout, layout_of
from unspool_studies.bench.managed import Managed
from unspool_studies.bench.memory import byte_at
from unspool_studies.bench.prepare import (
    LIMIT,
    Buffer,
    Direct,
    Host,
    Mapped,
    Strategy,
    TouchThenRegister,
)
from unspool_studies.bench.tiers import FRAME, open_spool, ready
from unspool_studies.bench.unified import WAYS, UnifiedHistory

__all__ = ["Blocked", "Shot", "run_spool", "run_strategy"]


@dataclass(frozen=True, slots=True)
class Shot:
    """What is done.

    Attributes:
        sizes: bytes of each checkpoint, by version.
        cache: bytes of the device tier; a larger checkpoint makes it larger.
        interval: seconds of compute before each save and each restore.
        touch_threads: threads that touch pages, for strategies that do not say.
        turn: the file that processes lock while they register memory; None: there is one alone.
    """

    sizes: tuple[int, ...]
    cache: int
    interval: float
    touch_threads: int
    turn: Path | None = None

    @property
    def checkpoints(self) -> int:
        """How many."""
        return len(self.sizes)

    @property
    def total(self) -> int:
        """Bytes of the history."""
        return sum(self.sizes)

    @property
    def device(self) -> int:
        """Bytes of the device tier: of the cache or, where that is more, of a checkpoint."""
        return max(self.cache, *self.sizes)

    @property
    def fits(self) -> bool:
        """Whether the device tier holds the history: the paper's "large-device"."""
        return self.total <= self.device


@dataclass(frozen=True, slots=True)
class Blocked:
    """For how long the application was blocked, in seconds.

    Attributes:
        start: before the first save could begin.
        saves: in saves.
        longest: in the longest of them.
        restores: in restores.
        forward: the whole forward pass took this long, with its computation.
        registered: all host memory was registered, or where there is none all device memory
            mapped, so long after the beginning; None: never told.
        wrong: restores that gave other bytes than were saved, by one byte of each.
    """

    start: float
    saves: float
    longest: float
    restores: float
    forward: float
    registered: float | None
    wrong: int

    @property
    def checkpointing(self) -> float:
        """The paper's first measure: preparing and saving."""
        return self.start + self.saves

    @property
    def total(self) -> float:
        """The paper's second measure: preparing, saving and restoring."""
        return self.start + self.saves + self.restores


def pattern(version: int) -> int:
    """The value of every byte of a checkpoint."""
    return version % 251 + 1


class _Application:
    """Computes, saves and restores one array, and counts how long it was blocked."""

    def __init__(self, cuda: Cuda, shot: Shot) -> None:
        self._cuda, self._shot = cuda, shot
        self.stream = cuda.stream()
        state = cuda.array(max(shot.sizes))
        self.address = cuda.address(state)
        self.states = [state[:size] for size in shot.sizes]
        self._probe = cuda.host_alloc(1)
        self.longest = 0.0
        self.wrong = 0

    def forward(self, save: Callable[[int], None]) -> float:
        """All saves; the seconds for which they blocked."""
        blocked = 0.0
        for version, size in enumerate(self._shot.sizes):
            time.sleep(self._shot.interval)
            self._cuda.fill(self.address, pattern(version), size, self.stream)
            self._cuda.wait(self.stream)
            took = self._timed(save, version)
            self.longest = max(self.longest, took)
            blocked += took
        return blocked

    def backward(self, restore: Callable[[int], None]) -> float:
        """All restores, last version first; the seconds for which they blocked."""
        blocked = 0.0
        for version in reversed(range(self._shot.checkpoints)):
            blocked += self._timed(restore, version)
            self.wrong += self._byte(version) != pattern(version)
            time.sleep(self._shot.interval)
        return blocked

    def close(self) -> None:
        """Gives the array back."""
        self.states.clear()
        self._cuda.free_host(self._probe)

    def _timed(self, call: Callable[[int], None], version: int) -> float:
        begin = time.perf_counter()
        call(version)
        self._cuda.wait(self.stream)
        return time.perf_counter() - begin

    def _byte(self, version: int) -> int:
        middle = self.address + self._shot.sizes[version] // 2
        self._cuda.down(self._probe, middle, 1, self.stream)
        self._cuda.wait(self.stream)
        return byte_at(self._probe)


class _Cache:
    """The device tier of a strategy: one thread that flushes, one that prefetches.

    A checkpoint has the same place in both directions. The save of one waits for the flush of those
    that had its bytes before, its prefetch for the restore of those that had them after.
    """

    def __init__(
        self, cuda: Cuda, shot: Shot, application: _Application, layout: Layout, memory: Buffer
    ) -> None:
        self._cuda, self._shot, self._application = cuda, shot, application
        self._layout, self._memory = layout, memory
        self._flushed_ones = layout.flushed
        self._starts = list(itertools.accumulate(shot.sizes, initial=0))
        self._buffer: Buffer | None = None
        self._down, self._up = cuda.down, cuda.up
        self._changed = threading.Condition()
        # Versions below are saved, and flushed unless they stay; those from here on have come back,
        # and are restored.
        self._saved = self._flushed = 0
        self._back = self._restored = shot.checkpoints
        self._failed: BaseException | None = None
        self._workers: list[threading.Thread] = []

    def begin(self, buffer: Buffer | None) -> None:
        """Flushes go there; None: there are none."""
        if isinstance(buffer, Mapped):
            # Of such memory the driver alone knows whether it is the host's.
            self._down = self._up = self._cuda.between
        if buffer is None and self._flushed_ones:
            raise RuntimeError("the device tier does not hold the history, and there is no other")
        self._buffer = buffer
        self._start(self._flush_all)

    def turn_round(self) -> None:
        """Saves are over, restores begin."""
        self._start(self._prefetch_all)

    def save(self, version: int) -> None:
        """Copies the state to its place, when that is free."""
        self._wait(lambda: self._flushed > self._layout.before[version])
        place, size = self._layout.places[version], self._shot.sizes[version]
        stream = self._application.stream
        with self._memory.flushing(place, place + size):
            self._cuda.within(self._place(version), self._application.address, size, stream)
            self._cuda.wait(stream)
        self._tell(saved=version + 1)

    def restore(self, version: int) -> None:
        """Copies the place into the state, when its bytes are there."""
        if self._layout.after[version] < self._shot.checkpoints:
            self._wait(lambda: self._back <= version)
        size, stream = self._shot.sizes[version], self._application.stream
        self._cuda.within(self._application.address, self._place(version), size, stream)
        self._cuda.wait(stream)
        self._tell(restored=version)

    def close(self) -> None:
        """Ends the workers, which have nothing left to do after a whole shot."""
        with self._changed:
            self._failed = self._failed or RuntimeError("the shot was ended")
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(LIMIT)

    def _place(self, version: int) -> int:
        return self._memory.address + self._layout.places[version]

    def _start(self, work: Callable[[Any], None]) -> None:
        worker = threading.Thread(target=self._guard, args=(work,))
        self._workers.append(worker)
        worker.start()

    def _guard(self, work: Callable[[Any], None]) -> None:
        try:
            self._cuda.enter()
            work(self._cuda.stream())
        except BaseException as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    def _flush_all(self, stream: Any) -> None:
        """All but what stays in the device tier until it is restored."""
        for version in self._flushed_ones:
            assert self._buffer is not None
            self._wait(partial(self._is_saved, version))
            begin, end = self._starts[version : version + 2]
            with self._buffer.flushing(begin, end):
                place = self._buffer.address + begin
                self._down(place, self._place(version), end - begin, stream)
                self._cuda.wait(stream)
            self._tell(flushed=version + 1)

    def _prefetch_all(self, stream: Any) -> None:
        for version in reversed(self._flushed_ones):
            assert self._buffer is not None
            self._wait(partial(self._has_room_for, version))
            begin, end = self._starts[version : version + 2]
            place = self._buffer.address + begin
            self._up(self._place(version), place, end - begin, stream)
            self._cuda.wait(stream)
            self._tell(back=version)

    def _is_saved(self, version: int) -> bool:
        return self._saved > version

    def _has_room_for(self, version: int) -> bool:
        return self._restored <= self._layout.after[version]

    def _wait(self, true: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: true() or self._failed is not None, LIMIT):
                raise TimeoutError(f"waited {LIMIT:.0f} s for a copy of this shot")
            if self._failed is not None:
                raise self._failed

    def _tell(self, **figures: int) -> None:
        with self._changed:
            for name, value in figures.items():
                setattr(self, f"_{name}", value)
            self._changed.notify_all()


def run_strategy(cuda: Cuda, shot: Shot, strategy: Strategy) -> Blocked:
    """One shot with memory that is prepared in one of the paper's ways.

    Raises:
        DriverError: the driver refuses such memory.
        RuntimeError: the strategy has no host buffer and the device tier does not hold everything.
    """
    if strategy.host is Host.UNIFIED:
        return _run_unified(cuda, shot)
    application, layout = _Application(cuda, shot), layout_of(shot.sizes, shot.device)
    with contextlib.ExitStack() as stack:
        stack.callback(application.close)
        begin = time.perf_counter()
        buffer = _host_buffer(cuda, shot, strategy)
        if buffer is not None:
            stack.callback(buffer.close)
        memory: Buffer = (
            Mapped(cuda, shot.device)
            if strategy.mapped
            else Direct(cuda.malloc, cuda.free, shot.device)
        )
        stack.callback(memory.close)
        cache = _Cache(cuda, shot, application, layout, memory)
        stack.callback(cache.close)
        start = time.perf_counter() - begin
        cache.begin(buffer)
        saves = application.forward(cache.save)
        forward = time.perf_counter() - begin
        cache.turn_round()
        restores = application.backward(cache.restore)
        last = (buffer or memory).wait()
        longest, wrong = application.longest, application.wrong
        return Blocked(start, saves, longest, restores, forward, last, wrong)


def _host_buffer(cuda: Cuda, shot: Shot, strategy: Strategy) -> Buffer | None:
    match strategy.host:
        case Host.PIN:
            return Direct(cuda.host_alloc, cuda.free_host, shot.total)
        case Host.NODE:
            return Mapped(cuda, shot.total, host=True)
        case Host.TOUCH:
            return TouchThenRegister(cuda, shot.total, strategy, shot.touch_threads, shot.turn)
        case _:
            return None


def _run_unified(cuda: Cuda, shot: Shot) -> Blocked:
    """The same shot in unified memory: page faults bring everything, as in the paper."""
    managed, application = Managed(cuda), _Application(cuda, shot)
    with contextlib.ExitStack() as stack:
        stack.callback(application.close)
        # The first copy compiles a kernel, which belongs to no measurement.
        managed.copy(application.address, application.address, 16, application.stream)
        cuda.wait(application.stream)
        begin = time.perf_counter()
        where = (managed, cuda, application.stream)
        history = UnifiedHistory(*where, shot.sizes, shot.device, WAYS[0])
        stack.callback(history.close)
        start = time.perf_counter() - begin
        saves = application.forward(lambda version: history.save(version, application.address))
        forward = time.perf_counter() - begin
        history.begin_restores(tuple(reversed(range(shot.checkpoints))))
        restores = application.backward(
            lambda version: history.restore(version, application.address)
        )
        longest, wrong = application.longest, application.wrong
        return Blocked(start, saves, longest, restores, forward, None, wrong)


def run_spool(cuda: Cuda, shot: Shot) -> Blocked:
    """The same shot through a spool.

    Raises:
        unspool.Error: the spool refused.
    """
    application = _Application(cuda, shot)
    # Room for what a tier keeps beside the bytes of as many checkpoints as it holds.
    held = max(1, shot.device * shot.checkpoints // shot.total)
    tiers = {"device_memory": shot.device + held * FRAME}
    if not shot.fits:
        tiers["host_memory"] = shot.total + shot.checkpoints * FRAME
    begin = time.perf_counter()
    spool = open_spool(cuda, **tiers)
    start = time.perf_counter() - begin
    name = "device" if shot.fits else "host"
    with spool, _Watch(spool, begin, name) as watch, cuda.current(application.stream):
        saves = application.forward(lambda one: spool.save(one, application.states[one]))
        forward = time.perf_counter() - begin
        spool.expect(reversed(range(shot.checkpoints)), once=True)
        restores = application.backward(lambda one: spool.restore(one, application.states[one]))
    application.close()
    # Else the spool's memory would be kept for the next one.
    unspool.trim()
    longest, wrong = application.longest, application.wrong
    return Blocked(start, saves, longest, restores, forward, watch.registered, wrong)


class _Watch:
    """Sees from beside when a tier is ready.

    Attributes:
        registered: seconds from the beginning until all was registered or mapped, or None.
    """

    def __init__(self, spool: unspool.Spool, begin: float, name: str) -> None:
        self.registered: float | None = None
        self._spool, self._begin, self._name = spool, begin, name
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.005):
            registered, capacity = ready(self._spool.stats(), self._name)
            if registered is not None and registered >= capacity:
                self.registered = time.perf_counter() - self._begin
                return
