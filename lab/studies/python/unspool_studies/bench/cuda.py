"""The few CUDA operations that the measurements need, through CuPy's runtime bindings.

All of them release the interpreter's lock where the driver may block, so that threads which touch
or register memory run meanwhile. Addresses are plain integers. `Cuda` is replaced by a fake in
tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from unspool_studies.bench.mapped import MappedMemory

__all__ = ["Cuda", "NoCuda", "Stream"]

#: Waits `nanoseconds` on one thread of the device, by the device's own nanosecond clock.
SPIN = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
"""

#: A CuPy stream; `ptr` is its handle.
Stream = Any


class NoCuda(Exception):
    """There is no CuPy, no driver or no device; the text says which."""


class Cuda:
    """One device.

    Raises:
        NoCuda: it cannot be used.
    """

    def __init__(self, ordinal: int = 0) -> None:
        try:
            import cupy
            from cupy.cuda import runtime
        except ImportError as error:
            text = "figures of the GPU need CuPy: pip install cupy-cuda13x (or cupy-cuda12x)"
            raise NoCuda(f"{text}; {error}") from error
        self._cupy, self._runtime, self.ordinal = cupy, runtime, ordinal
        try:
            self.enter()
            self._properties = runtime.getDeviceProperties(ordinal)
        except runtime.CUDARuntimeError as error:
            raise NoCuda(f"device {ordinal} cannot be used: {error}") from error
        self._spin = cupy.RawKernel(SPIN, "spin")

    def enter(self) -> None:
        """Makes the device current on this thread: every thread has to, once."""
        self._runtime.setDevice(self.ordinal)

    @property
    def name(self) -> str:
        """The device and the versions of driver and CuPy."""
        device = self._properties["name"].decode()
        version = self._runtime.driverGetVersion()
        driver = f"{version // 1000}.{version % 1000 // 10}"
        return f"{device}, CUDA {driver}, CuPy {self._cupy.__version__}"

    @property
    def spool_options(self) -> dict[str, Any]:
        """The options that put a spool's tiers onto this device."""
        return {"device": f"cuda:{self.ordinal}"}

    def devices(self) -> int:
        """How many devices this process can use."""
        return int(self._runtime.getDeviceCount())

    def free_memory(self) -> int:
        """Bytes of device memory that are free."""
        return int(self._runtime.memGetInfo()[0])

    # Memory.

    def malloc(self, count: int) -> int:
        """Device memory."""
        return int(self._runtime.malloc(count))

    def free(self, address: int) -> None:
        """Gives device memory back."""
        self._runtime.free(address)

    def host_alloc(self, count: int) -> int:
        """Pinned host memory in one call (cudaHostAlloc, which is cuMemHostAlloc)."""
        return int(self._runtime.hostAlloc(count, self._runtime.hostAllocDefault))

    def free_host(self, address: int) -> None:
        """Gives pinned host memory back."""
        self._runtime.freeHost(address)

    def register(self, address: int, count: int) -> None:
        """Pins memory that exists (cudaHostRegister)."""
        self._runtime.hostRegister(address, count, 0)

    def unregister(self, address: int) -> None:
        """Undoes `register`; needs the address that was registered."""
        self._runtime.hostUnregister(address)

    def mapped(self, count: int, piece: int, host: bool) -> MappedMemory:
        """Memory that is backed piece by piece, of the device or of the host's nearest node."""
        return MappedMemory(self.ordinal, count, piece, host)

    def array(self, count: int) -> Any:
        """A CuPy array of bytes of its own, in memory that CuPy does not pool."""
        address = self.malloc(count)
        memory = self._cupy.cuda.UnownedMemory(address, count, _Owner(self, address), self.ordinal)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((count,), dtype="uint8", memptr=pointer)

    def address(self, array: Any) -> int:
        """Where an array lies."""
        return int(array.data.ptr)

    # Streams, copies and times.

    def stream(self) -> Stream:
        """A stream of its own that does not wait for the default one."""
        return self._cupy.cuda.Stream(non_blocking=True)

    @contextlib.contextmanager
    def current(self, stream: Stream) -> Iterator[None]:
        """Makes `stream` CuPy's current one."""
        with stream:
            yield

    def wait(self, stream: Stream) -> None:
        """Waits for everything on `stream`."""
        self._runtime.streamSynchronize(stream.ptr)

    def event(self) -> int:
        """An event that has a time."""
        return int(self._runtime.eventCreate())

    def record(self, event: int, stream: Stream) -> None:
        """Records `event` on `stream`."""
        self._runtime.eventRecord(event, stream.ptr)

    def wait_event(self, event: int) -> None:
        """Waits for `event`."""
        self._runtime.eventSynchronize(event)

    def hold(self, stream: Stream, event: int) -> None:
        """Lets `stream` wait for `event`, on the device."""
        self._runtime.streamWaitEvent(stream.ptr, event, 0)

    def elapsed(self, begin: int, end: int) -> float:
        """Seconds between two recorded events, by the device's clock."""
        self._runtime.eventSynchronize(end)
        return float(self._runtime.eventElapsedTime(begin, end)) / 1e3

    def destroy_event(self, event: int) -> None:
        """Gives an event back."""
        self._runtime.eventDestroy(event)

    def down(self, host: int, device: int, count: int, stream: Stream) -> None:
        """Enqueues a copy to the host."""
        kind = self._runtime.memcpyDeviceToHost
        self._runtime.memcpyAsync(host, device, count, kind, stream.ptr)

    def up(self, device: int, host: int, count: int, stream: Stream) -> None:
        """Enqueues a copy to the device."""
        kind = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(device, host, count, kind, stream.ptr)

    def between(self, to: int, source: int, count: int, stream: Stream) -> None:
        """Enqueues a copy of which only the driver knows where both ends are."""
        self._runtime.memcpyAsync(to, source, count, self._runtime.memcpyDefault, stream.ptr)

    def within(self, to: int, source: int, count: int, stream: Stream) -> None:
        """Enqueues a copy within the device."""
        kind = self._runtime.memcpyDeviceToDevice
        self._runtime.memcpyAsync(to, source, count, kind, stream.ptr)

    def fill(self, address: int, value: int, count: int, stream: Stream) -> None:
        """Enqueues writing one byte value everywhere."""
        self._runtime.memsetAsync(address, value, count, stream.ptr)

    def spin(self, seconds: float, stream: Stream) -> None:
        """Enqueues a kernel that takes this long, on one thread of the device."""
        with stream:
            nanoseconds = self._cupy.uint64(round(seconds * 1e9))
            self._spin((1,), (1,), (nanoseconds,))


class _Owner:
    """Frees the memory of an array when nothing names it any more."""

    def __init__(self, cuda: Cuda, address: int) -> None:
        self._cuda, self._address = cuda, address

    def __del__(self) -> None:
        # At the end of the process the driver may be gone already, and gives everything back.
        with contextlib.suppress(Exception):
            self._cuda.free(self._address)
