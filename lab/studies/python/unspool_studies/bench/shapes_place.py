"""Where cases of the part `shapes` are measured: a GPU, or main memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from unspool.codecs.host import numpy_dtype
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.machine import available_memory
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.tiers import open_plain, open_spool

__all__ = ["OnCpu", "OnGpu", "Place", "Reading", "reading"]

#: The device is kept busy before a call for so much longer than the host takes for it, so that the
#: call's own time is not part of the device's; at most for `AHEAD_MOST` seconds.
AHEAD, AHEAD_LEAST, AHEAD_MOST = 2.0, 100e-6, 50e-3

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of one kind of call.

    Attributes:
        device: between its first and its last work on the device; of main memory the whole call.
        call: until it returns.
        whole: until its work is done.
    """

    device: Sample
    call: Sample
    whole: Sample


class Place(Protocol):
    """Where a case is measured."""

    @property
    def xp(self) -> Any:
        """The library that makes the data: NumPy or CuPy."""

    @property
    def stream(self) -> Any:
        """On which a spool works; None in main memory."""

    def free(self) -> int:
        """Bytes that may be used."""

    def open(self, room: int) -> Any:
        """A spool with one tier."""

    def given(self, array: Any, dtype: str) -> Any:
        """What the spool is given for an array of the library."""

    def back(self, given: Any, array: Any) -> Any:
        """What is in it now, as an array of the library."""

    def host(self, run: Call) -> tuple[float, float]:
        """Seconds until a call returns, and until its work is done."""

    def device(self, run: Call, ahead: float) -> float:
        """Seconds of a call's work by the device's clock; it is busy for `ahead` seconds before."""

    def tidy(self) -> None:
        """After a case."""


def reading(place: Place, run: Call, undo: Call, rounds: int, budget: float) -> Reading:
    """Measures a call several times; `undo` is called after each, and its time does not count."""

    def each(once: Callable[[], Any]) -> list[Any]:
        found, begin = [], time.perf_counter()
        while not found or (len(found) < rounds and time.perf_counter() - begin < budget):
            found.append(once())
            undo()
        return found

    hosts = each(lambda: place.host(run))
    call, whole = (Sample.of(one) for one in zip(*hosts, strict=True))
    ahead = min(AHEAD_MOST, AHEAD_LEAST + AHEAD * call.median)
    return Reading(Sample.of(each(lambda: place.device(run, ahead))), call, whole)


class OnCpu:
    """NumPy arrays, a tier in main memory, and all cores."""

    xp, stream = np, None

    def free(self) -> int:
        """See `Place`."""
        return available_memory() or 1 << 30

    def open(self, room: int) -> Any:
        """See `Place`."""
        return open_plain(host_memory=room)

    def given(self, array: Any, dtype: str) -> Any:
        """See `Place`."""
        return array.view(numpy_dtype(dtype)) if dtype == "bfloat16" else array

    def back(self, _given: Any, array: Any) -> Any:
        """See `Place`."""
        return array

    def host(self, run: Call) -> tuple[float, float]:
        """See `Place`."""
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        return seconds, seconds

    def device(self, run: Call, _ahead: float) -> float:
        """See `Place`; the call again."""
        return self.host(run)[1]

    def tidy(self) -> None:
        """See `Place`."""


class OnGpu:
    """CuPy arrays and a tier on their device; all work is on one stream, which is current."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda, self._stream = cuda, cuda.stream()
        self._events = cuda.event(), cuda.event()
        self.xp = self._library()

    def _library(self) -> Any:
        import cupy

        # CuPy's own pool splits what it holds: a small array keeps a large piece, until nothing is
        # left for the next case. That of the driver gives back what is not used.
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
        return cupy

    @property
    def stream(self) -> Any:
        """See `Place`."""
        return self._stream.ptr

    def current(self) -> Any:
        """Makes the stream CuPy's current one."""
        return self._cuda.current(self._stream)

    def free(self) -> int:
        """See `Place`."""
        return self._cuda.free_memory()

    def open(self, room: int) -> Any:
        """See `Place`."""
        return open_spool(self._cuda, device_memory=room)

    def given(self, array: Any, dtype: str) -> Any:
        """See `Place`; bfloat16 by PyTorch where it is installed, for it tells other libraries."""
        if dtype != "bfloat16":
            return array
        try:
            import torch
        except ImportError:
            return array.view(numpy_dtype(dtype))
        return torch.from_dlpack(array.view("int16")).view(torch.bfloat16)

    def back(self, _given: Any, array: Any) -> Any:
        """See `Place`."""
        return array

    def host(self, run: Call) -> tuple[float, float]:
        """See `Place`."""
        self._cuda.wait(self._stream)
        begin = time.perf_counter()
        run()
        called = time.perf_counter()
        self._cuda.wait(self._stream)
        return called - begin, time.perf_counter() - begin

    def device(self, run: Call, ahead: float) -> float:
        """See `Place`."""
        begin, end = self._events
        self._cuda.spin(ahead, self._stream)
        self._cuda.record(begin, self._stream)
        run()
        self._cuda.record(end, self._stream)
        return self._cuda.elapsed(begin, end)

    def tidy(self) -> None:
        """See `Place`."""

    def close(self) -> None:
        """Gives the events back."""
        self._cuda.wait(self._stream)
        for event in self._events:
            self._cuda.destroy_event(event)
