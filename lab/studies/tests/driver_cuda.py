"""The interface of `unspool_studies.bench.cuda.Cuda` on the driver of the tests, by ctypes.

Copies and kernels of the spool go through the same driver, so that what is measured here orders
them as it orders them on a GPU: what is enqueued takes effect later, in any order that streams and
events allow. The driver's memory of a device is apart from that of the process. Kernels take no
time.
"""

import contextlib
import ctypes
import threading

from unspool_studies.bench.mapped import MappedMemory

import fake_gpu


class Stream:
    """A stream; `ptr` is its handle."""

    def __init__(self, driver):
        self.ptr = driver.stream()


class Array:
    """Bytes on the device, which may be a part of others."""

    def __init__(self, cuda, address, count, owner=None):
        self._cuda, self.address, self._count, self._owner = cuda, address, count, owner

    def __getitem__(self, part):
        begin, end, _ = part.indices(self._count)
        return Array(self._cuda, self.address + begin, end - begin, self._owner or self)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (self._count,),
            "strides": None,
            "typestr": "|u1",
            "data": (self.address, False),
            "stream": self._cuda.used.ptr,
            "version": 3,
        }

    def __del__(self):
        if self._owner is None:
            self._cuda.free(self.address)


class DriverCuda:
    """One device of the driver."""

    def __init__(self, ordinal=0):
        self.ordinal, self._lock = ordinal, threading.Lock()
        self._driver = fake_gpu.load()
        self.enter()
        self.name, self.used = f"a driver in plain memory, {ordinal}", self.stream()
        self.held = self.events = 0

    @property
    def spool_options(self):
        return {"device": f"cuda:{self.ordinal}"}

    @property
    def leaked(self):
        """What was not given back, in numbers of objects."""
        return self.held + self.events

    def enter(self):
        self._driver.context(self.ordinal)

    def devices(self):
        count = ctypes.c_int()
        self._driver.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def free_memory(self):
        return self._driver.free_memory()

    def malloc(self, count):
        return self._counted(self._driver.allocate(count), 1)

    def free(self, address):
        self._driver.free(self._counted(address, -1))

    def host_alloc(self, count):
        address = ctypes.c_void_p()
        self._driver.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(count), 0)
        return self._counted(address.value, 1)

    def free_host(self, address):
        self._driver.call("cuMemFreeHost", ctypes.c_void_p(self._counted(address, -1)))

    def register(self, address, count):
        place = ctypes.c_void_p(self._counted(address, 1))
        self._driver.call("cuMemHostRegister_v2", place, ctypes.c_size_t(count), 0)

    def unregister(self, address):
        self._driver.call("cuMemHostUnregister", ctypes.c_void_p(self._counted(address, -1)))

    def mapped(self, count, piece, host):
        return MappedMemory(self.ordinal, count, min(piece, 2 << 20), host)

    def array(self, count):
        return Array(self, self.malloc(count), count)

    def address(self, array):
        return array.address

    def stream(self):
        return Stream(self._driver)

    @contextlib.contextmanager
    def current(self, stream):
        before, self.used = self.used, stream
        yield
        self.used = before

    def wait(self, stream):
        self._driver.call("cuStreamSynchronize", ctypes.c_void_p(stream.ptr))

    def event(self):
        event = ctypes.c_void_p()
        self._driver.call("cuEventCreate", ctypes.byref(event), 0)
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

    def between(self, to, source, count, stream):
        self._copy("cuMemcpyAsync", ctypes.c_uint64(to), source, count, stream)

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
        arguments = (ctypes.c_uint64(source), ctypes.c_size_t(count), ctypes.c_void_p(stream.ptr))
        self._driver.call(name, to, *arguments)

    def _counted(self, address, by):
        with self._lock:
            self.held += by
        return address


class Copies:
    """What the application needs of unified memory, where no way uses it: copies."""

    def __init__(self, cuda):
        self._cuda = cuda

    def copy(self, to, source, count, stream):
        self._cuda.within(to, source, count, stream)
