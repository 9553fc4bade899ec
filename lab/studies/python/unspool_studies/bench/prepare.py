"""How a buffer is made ready for copies: the strategies of the paper on fast starts.

Maurya et al., "Towards Efficient Cache Allocation for High-Frequency Checkpointing", HiPC 2022,
sections IV-A, IV-B (Figure 1) and V-B. Of the host buffer:

- direct pin: everything is allocated and pinned in one call, before the first checkpoint;
- concurrent touch: threads touch pages in ascending order, and a flush waits until its pages are
  there; what was touched is registered in one call at the end. With pages of 4 KiB and `memset` it
  is the paper's "incremental memset";
- sequential touch: threads touch pages only while nothing is flushed; a flush goes to its pages
  whether they were touched or not; one call registers everything at the end;
- of several processes one registers at a time, or all "in parallel" (section IV-A);
- unified memory: device tier and host buffer are one allocation, which page faults bring to the
  device.

Of the device tier: one call before the first checkpoint, or "mapped" in chunks of 1 GiB, and a save
waits until its bytes are there. A host buffer that is mapped in chunks on the nearest NUMA node is
not in the paper.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.memory import Mapping, Touch, write_all, write_pages

__all__ = [
    "DEVICE_STRATEGIES",
    "STRATEGIES",
    "Buffer",
    "Direct",
    "Host",
    "Mapped",
    "Strategy",
    "TouchThenRegister",
    "Toucher",
]

#: Bytes that a thread touches between two looks at whether it shall pause.
PIECE = 4 << 20

#: Bytes that are mapped at once: the paper's for a device (section V-B), and a checkpoint's for the
#: host, whose pages take longer.
DEVICE_CHUNK, HOST_CHUNK = 1 << 30, 128 << 20

#: The longest that anything here is waited for, in seconds.
LIMIT = 300.0


class Host(enum.Enum):
    """What a host buffer is."""

    PIN = "allocated and pinned in one call"
    TOUCH = "touched, then registered"
    NODE = "mapped in chunks on a NUMA node"
    UNIFIED = "unified memory, with the device tier"
    NONE = "not there: the device tier holds everything"


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to prepare a host buffer and a device tier.

    Attributes:
        name: for tables.
        host: what the host buffer is.
        huge: ask for huge pages.
        everything: write every byte (`memset`), not one of each page.
        sequential: touch only while nothing is flushed.
        parallel: processes register at the same time, not one after the other.
        mapped: the device tier is mapped in chunks, not allocated in one call.
        threads: how many touch; 0 for the option `--touch-threads`.
        slow: a shot takes 10 s and more; left out of a run that does not name it.
    """

    name: str
    host: Host = Host.TOUCH
    huge: bool = True
    everything: bool = False
    sequential: bool = False
    parallel: bool = False
    mapped: bool = False
    threads: int = 0
    slow: bool = False


#: Where the history does not fit into the device tier.
STRATEGIES = (
    Strategy("direct pin", Host.PIN),
    Strategy("incremental memset, 4 KiB", huge=False, everything=True),
    Strategy("concurrent touch, 4 KiB", huge=False),
    Strategy("concurrent touch, 4 KiB, parallel", huge=False, parallel=True),
    Strategy("sequential touch, 4 KiB", huge=False, sequential=True, slow=True),
    Strategy(
        "sequential touch, 4 KiB, parallel", huge=False, sequential=True, parallel=True, slow=True
    ),
    Strategy("concurrent touch, huge"),
    Strategy("concurrent touch, huge, parallel", parallel=True),
    Strategy("concurrent touch, huge, mapped device tier", mapped=True),
    Strategy("sequential touch, huge", sequential=True),
    Strategy("sequential touch, huge, parallel", sequential=True, parallel=True),
    Strategy("sequential touch, huge, mapped device tier", sequential=True, mapped=True),
    Strategy("sequential touch, huge, 1 thread", sequential=True, threads=1, slow=True),
    Strategy("host NUMA node", Host.NODE),
    Strategy("unified memory", Host.UNIFIED),
)

#: Where it does: only the device tier is prepared.
DEVICE_STRATEGIES = (
    Strategy("cudaMalloc", Host.NONE),
    Strategy("mapped device tier", Host.NONE, mapped=True),
)


class Buffer(Protocol):
    """Memory that may not be ready yet."""

    address: int

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Around a copy into some bytes: waits until it may begin."""

    def wait(self) -> float:
        """Waits until everything is ready; seconds from the beginning until then."""

    def close(self) -> None:
        """Gives everything back."""


class Direct:
    """Allocated, and pinned, before the constructor returns."""

    def __init__(
        self, allocate: Callable[[int], int], release: Callable[[int], None], count: int
    ) -> None:
        begin = time.perf_counter()
        self._release, self.address = release, allocate(count)
        self._took = time.perf_counter() - begin

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Nothing to wait for."""
        return contextlib.nullcontext()

    def wait(self) -> float:
        """It has been ready from the beginning."""
        return self._took

    def close(self) -> None:
        """Gives the memory back."""
        self._release(self.address)


class Toucher:
    """Hands out the pieces of a mapping in ascending order, and knows what is done.

    A piece that is handed out is written to, so nobody else may write there until it is done:
    `wait_for` waits for exactly that, and `pause` waits for all pieces that are handed out.
    """

    def __init__(self, count: int, piece: int = PIECE) -> None:
        self._count, self._piece = count, piece
        self._next, self._pauses = 0, 0
        self._out: set[int] = set()
        self._changed = threading.Condition()

    def take(self) -> tuple[int, int] | None:
        """The next piece, when nobody has paused; None at the end."""
        with self._changed:
            _wait(self._changed, lambda: self._pauses == 0, "the end of a flush")
            begin = self._next
            if begin >= self._count:
                return None
            self._next = min(begin + self._piece, self._count)
            self._out.add(begin)
            return begin, self._next

    def done(self, begin: int) -> None:
        """The piece that begins there is touched."""
        with self._changed:
            self._out.remove(begin)
            self._changed.notify_all()

    def prefix(self) -> int:
        """All bytes before this one are touched."""
        return min(self._out, default=self._next)

    def wait_for(self, end: int) -> None:
        """Waits until everything before `end` is touched."""
        with self._changed:
            _wait(self._changed, lambda: self.prefix() >= end, "pages that are touched")

    @contextlib.contextmanager
    def paused(self, end: int) -> Iterator[None]:
        """Nothing is touched meanwhile, and nothing before `end` later."""
        with self._changed:
            self._pauses += 1
            _wait(self._changed, lambda: not self._out, "threads that touch pages")
            self._next = max(self._next, end)
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()


def _wait(changed: threading.Condition, true: Callable[[], bool], what: str) -> None:
    if not changed.wait_for(true, LIMIT):
        raise TimeoutError(f"waited {LIMIT:.0f} s for {what}")


class _InBackground:
    """What a thread of its own makes ready, and its failure."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._begin = time.perf_counter()
        self._took: float | None = None
        self._failed: BaseException | None = None
        self._last = threading.Thread(target=self._guarded)

    def wait(self) -> float:
        """Waits until everything is ready; seconds from the beginning until then."""
        self._last.join(LIMIT)
        if self._failed is not None:
            raise self._failed
        if self._took is None:
            raise TimeoutError(f"waited {LIMIT:.0f} s for memory that is prepared")
        return self._took

    def _guarded(self) -> None:
        try:
            self._cuda.enter()
            self._prepare()
            self._took = time.perf_counter() - self._begin
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failed = error

    def _prepare(self) -> None:
        raise NotImplementedError


class Mapped(_InBackground):
    """Mapped piece by piece in the background, of the device or on a NUMA node of the host."""

    def __init__(self, cuda: Cuda, count: int, host: bool = False) -> None:
        super().__init__(cuda)
        self._memory = cuda.mapped(count, HOST_CHUNK if host else DEVICE_CHUNK, host)
        self.address = self._memory.address
        self._changed = threading.Condition()
        self._last.start()

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Waits until the bytes are mapped."""
        with self._changed:
            _wait(self._changed, partial(self._there, end), "memory that is mapped")
        if self._failed is not None:
            raise self._failed
        return contextlib.nullcontext()

    def close(self) -> None:
        """Gives the memory back."""
        self._last.join(LIMIT)
        self._memory.close()

    def _there(self, end: int) -> bool:
        return self._memory.mapped >= end or self._failed is not None

    def _prepare(self) -> None:
        while self._memory.grow():
            with self._changed:
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            super()._fail(error)
            self._changed.notify_all()


class TouchThenRegister(_InBackground):
    """Touched in the background, then registered in one call.

    Args:
        turn: a file that is locked meanwhile, where the strategy is not a parallel one, so that of
            several processes one registers at a time; None: there is one process alone.
    """

    def __init__(
        self, cuda: Cuda, count: int, strategy: Strategy, threads: int, turn: Path | None = None
    ) -> None:
        super().__init__(cuda)
        self._strategy, self._turn = strategy, None if strategy.parallel else turn
        self._mapping = Mapping(count, strategy.huge)
        self.address = self._mapping.address
        self._toucher = Toucher(count)
        touch: Touch = write_all if strategy.everything else write_pages
        count_of_threads = strategy.threads or threads
        self._threads = [
            threading.Thread(target=self._touch, args=(touch,)) for _ in range(count_of_threads)
        ]
        self._last.start()

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Waits for touched pages, or stops touching meanwhile."""
        if self._strategy.sequential:
            return self._toucher.paused(end)
        self._toucher.wait_for(end)
        return contextlib.nullcontext()

    def close(self) -> None:
        """Unregisters it and gives the memory back."""
        self.wait()
        self._cuda.unregister(self.address)
        self._mapping.close()

    def _touch(self, touch: Touch) -> None:
        while (piece := self._toucher.take()) is not None:
            touch(self._mapping, *piece)
            self._toucher.done(piece[0])

    def _prepare(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        with _locked(self._turn):
            self._cuda.register(self.address, self._mapping.count)


@contextlib.contextmanager
def _locked(file: Path | None) -> Iterator[None]:
    """Holds the lock of a file, for which other processes wait."""
    if file is None:
        yield
        return
    with file.open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
