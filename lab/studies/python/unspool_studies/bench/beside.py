"""What an operation does to copies that another thread makes meanwhile."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unspool_studies.bench.cuda import Cuda

__all__ = ["Copier", "HeldUp", "held_up"]

#: Bytes of one copy: 0.3 ms on PCIe 5.
COPY = 16 << 20

#: Undisturbed copies before anything is measured.
BEFORE = 50


@dataclass(frozen=True, slots=True)
class HeldUp:
    """What one thread that copies without pause has seen.

    Attributes:
        copies: how many copies it made.
        longest: the longest one, in seconds.
        lost: the time above that of undisturbed copies, in seconds.
    """

    copies: int
    longest: float
    lost: float


def held_up(times: Sequence[float], usual: float) -> HeldUp:
    """What those copies lost against undisturbed ones, which take `usual` seconds."""
    lost = sum(max(0.0, time - usual) for time in times)
    return HeldUp(len(times), max(times, default=0.0), lost)


class Copier:
    """Copies from the device into pinned memory on a stream of its own, again and again."""

    def __init__(self, cuda: Cuda, count: int = COPY) -> None:
        self._cuda, self._count = cuda, count
        self._stream = cuda.stream()
        self._device, self._host = cuda.malloc(count), cuda.host_alloc(count)
        self.usual = statistics.median(self._once() for _ in range(BEFORE))

    def close(self) -> None:
        """Gives its memory back."""
        self._cuda.free(self._device)
        self._cuda.free_host(self._host)

    def beside(self, run: Callable[[], object]) -> HeldUp:
        """Runs `run` while another thread copies; what the copies lost."""
        times: list[float] = []
        end, begun = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._copy_until, args=(end, begun, times))
        thread.start()
        try:
            begun.wait(10.0)
            run()
        finally:
            end.set()
            thread.join()
        return held_up(times, self.usual)

    def copy(self, times: int) -> None:
        """Makes so many copies in the calling thread, and waits for each."""
        self._cuda.enter()
        for _ in range(times):
            self._once()

    def _copy_until(self, end: threading.Event, begun: threading.Event, times: list[float]) -> None:
        self._cuda.enter()
        while not end.is_set():
            times.append(self._once())
            begun.set()

    def _once(self) -> float:
        begin = time.perf_counter()
        self._cuda.down(self._host, self._device, self._count, self._stream)
        self._cuda.wait(self._stream)
        return time.perf_counter() - begin
