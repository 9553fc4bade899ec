"""How a host buffer is made ready for copies: the strategies of the paper on fast starts.

Maurya et al., "Towards Efficient Cache Allocation for High-Frequency Checkpointing", HiPC 2022,
sections IV-A, IV-B (Figure 1) and V-B:

- direct pin: everything is allocated and pinned in one call, before the first checkpoint;
- concurrent touch: threads touch pages in ascending order, and a flush waits until its pages are
  there; what was touched is registered in one call at the end. With pages of 4 KiB and `memset` it
  is the paper's "incremental memset";
- sequential touch: threads touch pages only while nothing is flushed; a flush goes to its pages
  whether they were touched or not; one call registers everything at the end.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.memory import Mapping, Touch, write_all, write_pages

__all__ = ["STRATEGIES", "Buffer", "DirectPin", "Strategy", "TouchThenRegister", "Toucher"]

#: Bytes that a thread touches between two looks at whether it shall pause.
PIECE = 4 << 20

#: The longest that anything here is waited for, in seconds.
LIMIT = 300.0


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to prepare a buffer.

    Attributes:
        name: for tables.
        pin: allocate and pin it in one call.
        huge: ask for huge pages.
        everything: write every byte (`memset`), not one of each page.
        sequential: touch only while nothing is flushed.
        threads: how many touch; 0 for the option `--touch-threads`.
        slow: a shot takes 10 s and more; left out of a run that does not name it.
    """

    name: str
    pin: bool = False
    huge: bool = True
    everything: bool = False
    sequential: bool = False
    threads: int = 0
    slow: bool = False


STRATEGIES = (
    Strategy("direct pin", pin=True),
    Strategy("incremental memset, 4 KiB", huge=False, everything=True),
    Strategy("concurrent touch, 4 KiB", huge=False),
    Strategy("sequential touch, 4 KiB", huge=False, sequential=True, slow=True),
    Strategy("concurrent touch, huge"),
    Strategy("sequential touch, huge", sequential=True),
    Strategy("sequential touch, huge, 1 thread", sequential=True, threads=1, slow=True),
)


class Buffer(Protocol):
    """A host buffer that may not be ready yet."""

    address: int

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Around a copy into some bytes: waits until it may begin."""

    def wait(self) -> float:
        """Waits until everything is registered; seconds from the beginning until then."""

    def close(self) -> None:
        """Gives everything back."""


class DirectPin:
    """Allocated and pinned before the constructor returns."""

    def __init__(self, cuda: Cuda, count: int) -> None:
        begin = time.perf_counter()
        self._cuda, self.address = cuda, cuda.host_alloc(count)
        self._took = time.perf_counter() - begin

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Nothing to wait for."""
        return contextlib.nullcontext()

    def wait(self) -> float:
        """It has been ready from the beginning."""
        return self._took

    def close(self) -> None:
        """Gives the memory back."""
        self._cuda.free_host(self.address)


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


class TouchThenRegister:
    """Touched in the background, then registered in one call."""

    def __init__(self, cuda: Cuda, count: int, strategy: Strategy, threads: int) -> None:
        self._cuda, self._strategy = cuda, strategy
        self._begin = time.perf_counter()
        self._mapping = Mapping(count, strategy.huge)
        self.address = self._mapping.address
        self._toucher = Toucher(count)
        self._took: float | None = None
        self._failed: BaseException | None = None
        touch: Touch = write_all if strategy.everything else write_pages
        count_of_threads = strategy.threads or threads
        self._threads = [
            threading.Thread(target=self._touch, args=(touch,)) for _ in range(count_of_threads)
        ]
        self._last = threading.Thread(target=self._register)
        self._last.start()

    def flushing(self, begin: int, end: int) -> contextlib.AbstractContextManager[None]:
        """Waits for touched pages, or stops touching meanwhile."""
        if self._strategy.sequential:
            return self._toucher.paused(end)
        self._toucher.wait_for(end)
        return contextlib.nullcontext()

    def wait(self) -> float:
        """Waits for the registration."""
        self._last.join(LIMIT)
        if self._failed is not None:
            raise self._failed
        if self._took is None:
            raise TimeoutError(f"waited {LIMIT:.0f} s for a registration")
        return self._took

    def close(self) -> None:
        """Unregisters it and gives the memory back."""
        self.wait()
        self._cuda.unregister(self.address)
        self._mapping.close()

    def _touch(self, touch: Touch) -> None:
        while (piece := self._toucher.take()) is not None:
            touch(self._mapping, *piece)
            self._toucher.done(piece[0])

    def _register(self) -> None:
        try:
            self._cuda.enter()
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                thread.join()
            self._cuda.register(self.address, self._mapping.count)
            self._took = time.perf_counter() - self._begin
        except BaseException as error:
            self._failed = error
