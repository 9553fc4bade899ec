"""A device with the interface of `unspool_studies.bench.cuda.Cuda` on the driver that the tests put
in the place of CUDA's: what is enqueued takes effect later, in any order that streams and events
allow. Kernels take no time.
"""

from __future__ import annotations

import contextlib
import ctypes
import types

import numpy as np

TIMED, PORTABLE = 0, 1


class DriverArray:
    """Bytes of the device, on the stream that is current when a library asks."""

    def __init__(self, cuda, address, count):
        self._cuda, self.address, self.count = cuda, address, count

    def __getitem__(self, part):
        assert isinstance(part, slice) and not part.start and part.stop <= self.count
        return DriverArray(self._cuda, self.address, part.stop)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (self.count,),
            "strides": None,
            "typestr": "|u1",
            "descr": np.dtype("u1").descr,
            "data": (self.address, False),
            "stream": self._cuda.used.ptr,
            "version": 3,
        }


class DriverCuda:
    """One device of the driver."""

    ordinal, devices = 0, 1
    name = "a driver in plain memory"
    spool_options = {"on": "cuda:0"}  # noqa: RUF012

    def __init__(self, driver):
        self._driver = driver
        self._arrays, self._held = [], set()
        self.used = None
        self.events = 0

    @property
    def leaked(self):
        """What was not given back, in numbers of objects, but for arrays."""
        return len(self._held) + self.events

    def enter(self):
        self._driver.context()

    def free_memory(self):
        return self._driver.free_memory()

    def malloc(self, count):
        address = self._driver.allocate(count)
        self._held.add(address)
        return address

    def free(self, address):
        self._held.remove(address)
        self._driver.free(address)

    def host_alloc(self, count):
        address = ctypes.c_void_p()
        size, flags = ctypes.c_size_t(count), ctypes.c_uint(PORTABLE)
        self._driver.call("cuMemHostAlloc", ctypes.byref(address), size, flags)
        self._held.add(address.value)
        return address.value

    def free_host(self, address):
        self._held.remove(address)
        self._driver.call("cuMemFreeHost", ctypes.c_void_p(address))

    def array(self, count):
        return DriverArray(self, self._driver.allocate(count), count)

    def address(self, array):
        return array.address

    def stream(self):
        return types.SimpleNamespace(ptr=self._driver.stream())

    @contextlib.contextmanager
    def current(self, stream):
        before, self.used = self.used, stream
        yield
        self.used = before

    def wait(self, stream):
        self._driver.call("cuStreamSynchronize", ctypes.c_void_p(stream.ptr))

    def event(self):
        event = ctypes.c_void_p()
        self._driver.call("cuEventCreate", ctypes.byref(event), TIMED)
        self.events += 1
        return event.value

    def record(self, event, stream):
        self._driver.call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream.ptr))

    def wait_event(self, event):
        self._driver.call("cuEventSynchronize", ctypes.c_void_p(event))

    def hold(self, stream, event):
        where = ctypes.c_void_p(stream.ptr), ctypes.c_void_p(event)
        self._driver.call("cuStreamWaitEvent", *where, 0)

    def elapsed(self, begin, end):
        self.wait_event(end)
        found = ctypes.c_float()
        ends = ctypes.c_void_p(begin), ctypes.c_void_p(end)
        self._driver.call("cuEventElapsedTime", ctypes.byref(found), *ends)
        return max(1e-6, found.value / 1e3)

    def destroy_event(self, event):
        self.events -= 1
        self._driver.call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def down(self, host, device, count, stream):
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), device, count, stream)

    def up(self, device, host, count, stream):
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(device), host, count, stream)

    def within(self, to, source, count, stream):
        self._copy("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), source, count, stream)

    def fill(self, address, value, count, stream):
        self._driver.fill(address, value, count, stream.ptr)

    def spin(self, seconds, stream):
        pass

    def read(self, address, count):
        """What is there at this moment."""
        return self._driver.read(address, count)

    def _copy(self, name, to, source, count, stream):
        origin, size = ctypes.c_uint64(source), ctypes.c_size_t(count)
        self._driver.call(name, to, origin, size, ctypes.c_void_p(stream.ptr))


class Copies:
    """What the application needs of unified memory, where no way uses it: copies."""

    def __init__(self, cuda):
        self._cuda = cuda

    def copy(self, to, source, count, stream):
        self._cuda.within(to, source, count, stream)
