"""The GPU that a propagator computes on, through CuPy, which is imported when one is opened."""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

import numpy as np
from unspool_studies.rtm.clock import Span
from unspool_studies.rtm.errors import GpuError, MigrationError
from unspool_studies.rtm.model import Floats

__all__ = [
    "CupyDevice",
    "Device",
    "KernelTime",
    "Launch",
    "count_devices",
    "failures_told",
    "kernel_text",
]

#: Starts a kernel on the current stream: blocks and threads along x, y and z, and its arguments.
Launch = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], None]

#: The kernels by the file that holds them.
FILES = {
    "advance_2d": "acoustic_2d.cu",
    "advance_3d": "acoustic_3d.cu",
    "inject": "points.cu",
    "record": "points.cu",
    "finish_rows": "points.cu",
    "correlate": "points.cu",
}
#: Only what the text says is fused: the same bits as on the CPU.
COMPILER_OPTIONS = ("--fmad=false",)
#: Stretches of kernels whose time has not been read yet, at most.
UNREAD = 256
#: One stretch of so many is timed: a mark costs the host as much as a kernel.
SAMPLED = 8
#: Where the exceptions of CuPy and of its view of CUDA come from.
LIBRARIES = ("cupy", "cupy_backends", "cupyx")
#: Bytes of the array whose copy measures the memory bandwidth, and how often it is copied.
PROBE_BYTES, PROBE_COPIES = 256 << 20, 8

#: The stream of each device: one for all that a process does there, so that all is in order.
_STREAMS: dict[int, Any] = {}

MISSING = (
    "--gpu needs CuPy, and {reason}: pip install 'unspool-studies[cuda13]' for a driver of CUDA "
    "13, 'unspool-studies[cuda12]' for one of CUDA 12 (they bring cupy-cuda13x and cupy-cuda12x)"
)


@dataclass(frozen=True)
class KernelTime:
    """The time of the kernels that take steps, injecting and recording included.

    Attributes:
        steps: steps taken.
        seconds: the device's time for them, gaps between kernels included; from a sample of them.
    """

    steps: int
    seconds: float


class Device(Protocol):
    """Memory and kernels of one device; work is enqueued in order on one stream."""

    #: For people.
    name: str
    #: The spool's option `on`.
    on: str

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """A float32 array of zeros."""

    def load(self, array: np.ndarray) -> Any:
        """A copy on the device."""

    def fetch(self, array: Any) -> np.ndarray:
        """A copy in NumPy's memory, when all that was enqueued is done."""

    def pinned(self, shape: tuple[int, ...]) -> Floats:
        """A float32 array in host memory that the device reads and writes at full speed."""

    def download(self, array: Any, to: Floats) -> None:
        """Copies to an array of `pinned`; done when it returns."""

    def upload(self, array: Any, of: Floats) -> None:
        """Copies from an array of `pinned`; done when it returns."""

    def kernel(self, name: str) -> Launch:
        """One of the kernels."""

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Something that enqueues the same kernels with the same arguments, at less cost.

        `enqueue` may start kernels and nothing else, and each of them has run before.
        """

    def free_bytes(self) -> int:
        """Memory that arrays may still take."""

    def give_back(self) -> None:
        """Lets others have what arrays no longer take, of the device's memory and of pinned."""

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second while an array is copied on the device, measured."""

    def timed(self, steps: int) -> Any:
        """A context in which the kernels of so many steps are enqueued."""

    def kernel_time(self) -> KernelTime:
        """The time of all steps so far, when they are done."""

    def keep_spans(self) -> None:
        """From now on remembers when kernels ran."""

    def spans(self) -> list[Span]:
        """When they ran, by the system's monotonic clock."""


def kernel_text(name: str) -> str:
    """The CUDA C++ of one kernel and those beside it."""
    file = resources.files("unspool_studies.rtm") / "kernels" / FILES[name]
    return file.read_text(encoding="utf-8")


def count_devices() -> int:
    """How many GPUs CuPy sees.

    Raises:
        MigrationError: CuPy is missing, or there is no GPU; the text says what to do.
    """
    cupy = _cupy()
    try:
        found = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MigrationError(
            f"--gpu needs a GPU, and CUDA finds none: {error}; `unspool doctor` says what is "
            "missing; without --gpu the CPU computes"
        ) from error
    if found == 0:
        raise MigrationError("--gpu needs a GPU, and there is none; without --gpu the CPU computes")
    return found


@contextmanager
def failures_told() -> Iterator[None]:
    """Turns what CuPy and CUDA raise into an error that says what to do."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in LIBRARIES:
            raise
        raise GpuError(
            f"the GPU failed: {error}; `unspool doctor` looks for the cause, and without --gpu the "
            "CPU computes"
        ) from error


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        reason = "it is not installed" if error.name == "cupy" else f"it does not load ({error})"
        raise MigrationError(MISSING.format(reason=reason)) from error
    return cupy


class CupyDevice:
    """A CUDA device. It becomes the current one of this thread, with a stream of its own."""

    def __init__(self, ordinal: int = 0) -> None:
        """Opens device `ordinal`.

        Raises:
            MigrationError: CuPy or the device is missing.
        """
        found = count_devices()
        if not 0 <= ordinal < found:
            raise MigrationError(f"there is no GPU {ordinal}: CUDA sees {found}, numbered from 0")
        self._cupy = _cupy()
        self._device = self._cupy.cuda.Device(ordinal)
        self._device.use()
        if ordinal not in _STREAMS:
            _STREAMS[ordinal] = self._cupy.cuda.Stream(non_blocking=True)
        self._stream = _STREAMS[ordinal]
        self._enter()
        properties = self._cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.name: str = properties["name"].decode()
        self.on: str = f"cuda:{ordinal}"
        self._unread: deque[tuple[int, Any, Any]] = deque()
        self._steps = self._stretches = self._timed = 0
        self._seconds = 0.0
        self._anchor: Any = None
        self._anchored, self._spans = 0, list[Span]()

    def _enter(self) -> None:
        """Makes device and stream current again: another device may have been used meanwhile."""
        self._device.use()
        self._stream.use()

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """A float32 array of zeros."""
        with self._room(4 * math.prod(shape)):
            return self._cupy.zeros(shape, np.float32)

    def load(self, array: np.ndarray) -> Any:
        """A copy on the device."""
        with self._room(array.nbytes):
            return self._cupy.asarray(np.ascontiguousarray(array))

    def fetch(self, array: Any) -> np.ndarray:
        """A copy in NumPy's memory."""
        self._enter()
        return np.asarray(array.get())

    def pinned(self, shape: tuple[int, ...]) -> Floats:
        """A float32 array in pinned host memory."""
        from cupyx import empty_pinned

        return np.asarray(empty_pinned(shape, np.float32))

    def download(self, array: Any, to: Floats) -> None:
        """Copies to pinned memory."""
        array.get(out=to)
        self._stream.synchronize()

    def upload(self, array: Any, of: Floats) -> None:
        """Copies from pinned memory."""
        array.set(of)
        self._stream.synchronize()

    def kernel(self, name: str) -> Launch:
        """One of the kernels, compiled for this device when it is first asked for."""
        # CuPy keeps what it has compiled, so that a second call costs next to nothing.
        module = self._cupy.RawModule(code=kernel_text(name), options=COMPILER_OPTIONS)
        return module.get_function(name)  # type: ignore[no-any-return]

    @contextmanager
    def _room(self, wanted: int) -> Iterator[None]:
        """Says with figures when the device has no room for an array."""
        self._enter()
        try:
            yield
        except MemoryError as error:
            raise MigrationError(
                f"the GPU {self.name} has {self.free_bytes() / 1e9:.2f} GB free, and an array of "
                f"{wanted / 1e9:.2f} GB is wanted: take a smaller model or --device, or see who "
                "else uses the GPU (nvidia-smi)"
            ) from error

    def free_bytes(self) -> int:
        """What the driver has, and what CuPy's pool keeps unused."""
        free, _ = self._device.mem_info
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    def give_back(self) -> None:
        """Empties CuPy's pools."""
        self._enter()
        self._cupy.get_default_memory_pool().free_all_blocks()
        self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def copy_bandwidth(self) -> float:
        """Bytes read and written a second, the best of a few copies."""
        count = min(PROBE_BYTES, self.free_bytes() // 8) // 4
        one, other = self.zeros((count,)), self.zeros((count,))
        best = 0.0
        for _ in range(PROBE_COPIES):
            begin = self._mark()
            self._cupy.copyto(other, one)
            end = self._mark()
            end.synchronize()
            seconds = self._cupy.cuda.get_elapsed_time(begin, end) / 1e3
            best = max(best, 2 * one.nbytes / seconds)
        del one, other
        self._cupy.get_default_memory_pool().free_all_blocks()
        return best

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of the kernels: one launch for all of them."""
        # Relaxed: what the spool's threads do meanwhile is not part of it and does no harm.
        self._stream.begin_capture(self._cupy.cuda.runtime.streamCaptureModeRelaxed)
        try:
            enqueue()
        finally:
            graph = self._stream.end_capture()
        return functools.partial(graph.launch, self._stream)

    @contextmanager
    def timed(self, steps: int) -> Iterator[None]:
        """Marks both ends on the stream now and then; the time between is read when it is known."""
        self._enter()
        left_out = self._anchor is None and self._stretches % SAMPLED != 0
        self._steps += steps
        self._stretches += 1
        if left_out:
            yield
            return
        begin = self._mark()
        yield
        self._unread.append((steps, begin, self._mark()))
        if len(self._unread) > UNREAD:
            self._read_one()

    def kernel_time(self) -> KernelTime:
        """The time of all steps so far."""
        while self._unread:
            self._read_one()
        return KernelTime(self._steps, self._seconds * self._steps / max(self._timed, 1))

    def keep_spans(self) -> None:
        """From now on remembers when kernels ran: a mark ties the device's clock to the host's."""
        self._anchor = self._mark()
        self._anchor.synchronize()
        self._anchored, self._spans = time.monotonic_ns(), []

    def spans(self) -> list[Span]:
        """When they ran."""
        self.kernel_time()
        return self._spans

    def _read_one(self) -> None:
        steps, begin, end = self._unread.popleft()
        end.synchronize()
        seconds = self._cupy.cuda.get_elapsed_time(begin, end) / 1e3
        self._timed += steps
        self._seconds += seconds
        if self._anchor is not None:
            first, last = (self._on_the_clock(mark) for mark in (begin, end))
            self._spans.append(Span("compute", f"{steps} steps", first, last))

    def _on_the_clock(self, mark: Any) -> int:
        milliseconds = self._cupy.cuda.get_elapsed_time(self._anchor, mark)
        return self._anchored + round(1e6 * float(milliseconds))

    def _mark(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record(self._stream)
        return event
