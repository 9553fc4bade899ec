"""One shot of the paper on fast starts: so many checkpoints, a few milliseconds of compute between
them, saved and then restored in reverse order, with a buffer that is prepared in one of its ways.

The measure is the paper's (Maurya et al., HiPC 2022, section V-C): the time for which the
application is blocked, in preparing, in saves and in restores. A save or restore ends when the copy
within the device is done. As there, the application sleeps for the compute interval; checkpoints
are flushed first in, first out; a checkpoint that was restored makes room for the next prefetch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import unspool
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.memory import byte_at
from unspool_studies.bench.prepare import LIMIT, Buffer, DirectPin, Strategy, TouchThenRegister
from unspool_studies.bench.tiers import open_spool, ready, room_for

__all__ = ["Blocked", "Shot", "run_spool", "run_strategy"]


@dataclass(frozen=True, slots=True)
class Shot:
    """What is done.

    Attributes:
        checkpoints: how many.
        size: bytes of each.
        cache: bytes of the device tier.
        interval: seconds of compute before each save and each restore.
        touch_threads: threads that touch pages, for strategies that do not say.
    """

    checkpoints: int
    size: int
    cache: int
    interval: float
    touch_threads: int

    @property
    def total(self) -> int:
        """Bytes of the history."""
        return self.checkpoints * self.size

    @property
    def slots(self) -> int:
        """Checkpoints that the device tier holds."""
        return max(1, self.cache // self.size)


@dataclass(frozen=True, slots=True)
class Blocked:
    """For how long the application was blocked, in seconds.

    Attributes:
        start: before the first save could begin.
        saves: in saves.
        restores: in restores.
        forward: the whole forward pass took this long, with its computation.
        registered: all host memory was registered so long after the beginning; None: never told.
        wrong: restores that gave other bytes than were saved, by one byte of each.
    """

    start: float
    saves: float
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
        self.state = cuda.array(shot.size)
        self._probe = cuda.host_alloc(1)
        self.wrong = 0

    def forward(self, save: Callable[[int], None]) -> float:
        """All saves; the seconds for which they blocked."""
        blocked = 0.0
        for version in range(self._shot.checkpoints):
            time.sleep(self._shot.interval)
            address = self._cuda.address(self.state)
            self._cuda.fill(address, pattern(version), self._shot.size, self.stream)
            self._cuda.wait(self.stream)
            blocked += self._timed(save, version)
        return blocked

    def backward(self, restore: Callable[[int], None]) -> float:
        """All restores, last version first; the seconds for which they blocked."""
        blocked = 0.0
        for version in reversed(range(self._shot.checkpoints)):
            blocked += self._timed(restore, version)
            self.wrong += self._byte() != pattern(version)
            time.sleep(self._shot.interval)
        return blocked

    def close(self) -> None:
        """Gives the array back."""
        del self.state
        self._cuda.free_host(self._probe)

    def _timed(self, call: Callable[[int], None], version: int) -> float:
        begin = time.perf_counter()
        call(version)
        self._cuda.wait(self.stream)
        return time.perf_counter() - begin

    def _byte(self) -> int:
        middle = self._cuda.address(self.state) + self._shot.size // 2
        self._cuda.down(self._probe, middle, 1, self.stream)
        self._cuda.wait(self.stream)
        return byte_at(self._probe)


class _Cache:
    """The device tier of a strategy: slots in turn, one thread that flushes, one that prefetches.

    Checkpoint k lies in slot k modulo their number, in both directions: the prefetch of k waits
    for the restore of k + slots, and the save of k + slots for the flush of k.
    """

    def __init__(self, cuda: Cuda, shot: Shot, application: _Application) -> None:
        self._cuda, self._shot, self._application = cuda, shot, application
        self._memory = cuda.malloc(shot.slots * shot.size)
        self._buffer: Buffer | None = None
        self._changed = threading.Condition()
        self._saved = self._flushed = 0
        self._restored = shot.checkpoints
        # The lowest version that has come back: those of the last slots have never gone.
        self._back = max(0, shot.checkpoints - shot.slots)
        self._failed: BaseException | None = None
        self._workers: list[threading.Thread] = []

    def begin(self, buffer: Buffer) -> None:
        """Flushes go there."""
        self._buffer = buffer
        self._start(self._flush_all)

    def turn_round(self) -> None:
        """Saves are over, restores begin."""
        self._start(self._prefetch_all)

    def save(self, version: int) -> None:
        """Copies the state into its slot, when that is free."""
        self._wait(lambda: self._flushed > version - self._shot.slots)
        state = self._cuda.address(self._application.state)
        self._cuda.within(self._slot(version), state, self._shot.size, self._application.stream)
        self._cuda.wait(self._application.stream)
        self._tell(saved=version + 1)

    def restore(self, version: int) -> None:
        """Copies the slot into the state, when its bytes are there."""
        self._wait(lambda: self._back <= version)
        state = self._cuda.address(self._application.state)
        self._cuda.within(state, self._slot(version), self._shot.size, self._application.stream)
        self._cuda.wait(self._application.stream)
        self._tell(restored=version)

    def close(self) -> None:
        """Ends the workers, which have nothing left to do after a whole shot."""
        with self._changed:
            self._failed = self._failed or RuntimeError("the shot was ended")
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(LIMIT)
        self._cuda.free(self._memory)

    def _slot(self, version: int) -> int:
        return self._memory + version % self._shot.slots * self._shot.size

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
        assert self._buffer is not None
        size = self._shot.size
        for version in range(max(0, self._shot.checkpoints - self._shot.slots)):
            self._wait(partial(self._is_saved, version))
            with self._buffer.flushing(version * size, (version + 1) * size):
                place = self._buffer.address + version * size
                self._cuda.down(place, self._slot(version), size, stream)
                self._cuda.wait(stream)
            self._tell(flushed=version + 1)

    def _prefetch_all(self, stream: Any) -> None:
        assert self._buffer is not None
        size = self._shot.size
        for version in reversed(range(max(0, self._shot.checkpoints - self._shot.slots))):
            self._wait(partial(self._has_room_for, version))
            place = self._buffer.address + version * size
            self._cuda.up(self._slot(version), place, size, stream)
            self._cuda.wait(stream)
            self._tell(back=version)

    def _is_saved(self, version: int) -> bool:
        return self._saved > version

    def _has_room_for(self, version: int) -> bool:
        return self._restored <= version + self._shot.slots

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
    """One shot with a buffer that is prepared in one of the paper's ways."""
    application = _Application(cuda, shot)
    begin = time.perf_counter()
    buffer: Buffer = (
        DirectPin(cuda, shot.total)
        if strategy.pin
        else TouchThenRegister(cuda, shot.total, strategy, shot.touch_threads)
    )
    cache = _Cache(cuda, shot, application)
    start = time.perf_counter() - begin
    cache.begin(buffer)
    try:
        saves = application.forward(cache.save)
        forward = time.perf_counter() - begin
        cache.turn_round()
        restores = application.backward(cache.restore)
        return Blocked(start, saves, restores, forward, buffer.wait(), application.wrong)
    finally:
        cache.close()
        buffer.close()
        application.close()


def run_spool(cuda: Cuda, shot: Shot) -> Blocked:
    """The same shot through a spool."""
    application = _Application(cuda, shot)
    begin = time.perf_counter()
    spool = open_spool(
        cuda,
        device=room_for(shot.slots, shot.size),
        host=room_for(shot.checkpoints, shot.size),
        discard_after_restore=True,
    )
    start = time.perf_counter() - begin
    with spool, _Watch(spool, begin) as watch, cuda.current(application.stream):
        saves = application.forward(lambda version: spool.save(version, application.state))
        forward = time.perf_counter() - begin
        spool.expect(reversed(range(shot.checkpoints)))
        restores = application.backward(lambda version: spool.restore(version, application.state))
    wrong = application.wrong
    application.close()
    return Blocked(start, saves, restores, forward, watch.registered, wrong)


class _Watch:
    """Sees from beside when the host tier is registered.

    Attributes:
        registered: seconds from the beginning until all was registered, or None.
    """

    def __init__(self, spool: unspool.Spool, begin: float) -> None:
        self.registered: float | None = None
        self._spool, self._begin = spool, begin
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
            registered, capacity = ready(self._spool.stats())
            if registered is not None and registered >= capacity:
                self.registered = time.perf_counter() - self._begin
                return
