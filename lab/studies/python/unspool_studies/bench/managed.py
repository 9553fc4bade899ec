"""Unified memory: what CuPy does not offer, or not for every driver.

CuPy 14 under CUDA 13 names every place as a device, so the host cannot be one: prefetches and
advice go to the driver itself, by the calls that take a location (CUDA 12.2 and later). Advice and
prefetches are those of the CUDA driver API, section "Unified Addressing".
"""

from __future__ import annotations

import ctypes

from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.driver import ON_DEVICE, ON_HOST, Driver, DriverError, Location

__all__ = ["Managed", "NotManaged"]

#: Copies `units` units of 16 bytes; page faults are those of the threads that touch a page.
COPY = r"""
extern "C" __global__ void copy_units(uint4 *to, const uint4 *from, unsigned long long units) {
    unsigned long long step = (unsigned long long)blockDim.x * gridDim.x;
    for (unsigned long long k = blockIdx.x * blockDim.x + threadIdx.x; k < units; k += step) {
        to[k] = from[k];
    }
}
"""

#: Bytes that the kernel copies at a time.
UNIT = 16

#: Blocks and threads of the kernel: enough of both to fill any device.
BLOCKS, THREADS = 1056, 256

PREFERRED_LOCATION, ACCESSED_BY = 3, 5
CONCURRENT_ACCESS = 89


class NotManaged(DriverError):
    """This driver or device has no such use of unified memory; the text says which."""


class Managed:
    """Unified memory of one device.

    Raises:
        DriverError: it cannot be used here, from each function.
    """

    def __init__(self, cuda: Cuda) -> None:
        import cupy
        from cupy.cuda import runtime

        self._cuda, self._cupy, self._runtime = cuda, cupy, runtime
        self._copy = cupy.RawKernel(COPY, "copy_units")
        self._driver = Driver()
        if not runtime.deviceGetAttribute(CONCURRENT_ACCESS, cuda.ordinal):
            raise NotManaged("host and device cannot use unified memory at the same time here")

    def allocate(self, count: int) -> int:
        """Unified memory, never more than the card has free: none of it has to be evicted.

        Raises:
            NotManaged: the card has less free.
        """
        free = self._cuda.free_memory()
        if count > free:
            raise NotManaged(f"{count} bytes of unified memory are more than the {free} free here")
        return int(self._runtime.mallocManaged(count))

    def free(self, address: int) -> None:
        """Gives it back."""
        self._runtime.free(address)

    def copy(self, to: int, source: int, count: int, stream: Stream) -> None:
        """Enqueues a copy by a kernel; all three are multiples of 16."""
        assert (to | source | count) % UNIT == 0
        units = self._cupy.uint64(count // UNIT)
        blocks = min(BLOCKS, -(-count // UNIT // THREADS))
        with stream:
            place, origin = (self._cupy.uint64(address) for address in (to, source))
            self._copy((blocks,), (THREADS,), (place, origin, units))

    def wait_for(self, stream: Stream, event: int) -> None:
        """What is enqueued on `stream` from now on waits for `event`."""
        self._runtime.streamWaitEvent(stream.ptr, event)

    def to_device(self, address: int, count: int, stream: Stream) -> None:
        """Enqueues the migration to the device."""
        self._prefetch(address, count, Location(ON_DEVICE, self._cuda.ordinal), stream)

    def to_host(self, address: int, count: int, stream: Stream) -> None:
        """Enqueues the migration to the host."""
        self._prefetch(address, count, Location(ON_HOST, 0), stream)

    def discard(self, address: int, count: int, stream: Stream) -> None:
        """Enqueues that the bytes are not needed any more and need not be copied anywhere."""
        place, size = ctypes.c_uint64(address), ctypes.c_size_t(count)
        arguments = (ctypes.byref(place), ctypes.byref(size), ctypes.c_size_t(1))
        flags, on = ctypes.c_ulonglong(0), ctypes.c_void_p(stream.ptr)
        self._driver.call("cuMemDiscardBatchAsync", *arguments, flags, on)

    def read_in_place(self, address: int, count: int) -> None:
        """Advice: the bytes stay on the host, and the device reads them across the link."""
        for advice, location in (
            (PREFERRED_LOCATION, Location(ON_HOST, 0)),
            (ACCESSED_BY, Location(ON_DEVICE, self._cuda.ordinal)),
        ):
            where = (ctypes.c_uint64(address), ctypes.c_size_t(count))
            self._driver.call("cuMemAdvise_v2", *where, ctypes.c_int(advice), location)

    def _prefetch(self, address: int, count: int, location: Location, stream: Stream) -> None:
        where = (ctypes.c_uint64(address), ctypes.c_size_t(count), location)
        on = ctypes.c_void_p(stream.ptr)
        self._driver.call("cuMemPrefetchAsync_v2", *where, ctypes.c_uint(0), on)
