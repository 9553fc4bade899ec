"""A device in plain memory with the interface of `unspool_studies.bench.cuda.Cuda`.

Copies take effect when they are enqueued and take no time of the device; kernels take the time that
they are asked for, on the device's clock only. What is given back twice, or never, is noticed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading

import numpy as np


class FakeStream:
    """A stream: its clock, in seconds."""

    def __init__(self, number):
        self.ptr, self.now = number, 0.0


class FakeMapped:
    """Memory that is backed piece by piece."""

    def __init__(self, cuda, count, piece):
        self._cuda, self.count, self._piece = cuda, count, piece
        self.address, self.mapped = cuda.malloc(count), 0

    def grow(self):
        piece = min(self._piece, self.count - self.mapped)
        self.mapped += piece
        return piece > 0

    def close(self):
        self._cuda.free(self.address)


class FakeCuda:
    """One device."""

    name = "a device in plain memory"
    #: A spool of the CPU: there is no device that it could use.
    spool_options = {"device": "cpu"}  # noqa: RUF012

    def __init__(self, ordinal=0):
        self.ordinal, self._lock = ordinal, threading.Lock()
        self._memory, self._registered, self._events = {}, {}, {}
        self._numbers = itertools.count(1)
        self.copied = 0

    @property
    def leaked(self):
        """What was not given back, in numbers of objects."""
        return len(self._memory) + len(self._registered) + len(self._events)

    def enter(self):
        pass

    def devices(self):
        return 2

    def free_memory(self):
        return 1 << 30

    def malloc(self, count):
        array = np.zeros(count, np.uint8)
        with self._lock:
            self._memory[array.ctypes.data] = array
        return array.ctypes.data

    def free(self, address):
        with self._lock:
            del self._memory[address]

    host_alloc, free_host = malloc, free

    def mapped(self, count, piece, host):
        return FakeMapped(self, count, min(piece, 1 << 20))

    def register(self, address, count):
        with self._lock:
            assert address not in self._registered
            self._registered[address] = count

    def unregister(self, address):
        with self._lock:
            del self._registered[address]

    def array(self, count):
        return np.zeros(count, np.uint8)

    def address(self, array):
        return array.ctypes.data

    def stream(self):
        return FakeStream(next(self._numbers))

    @contextlib.contextmanager
    def current(self, stream):
        yield

    def wait(self, stream):
        assert isinstance(stream, FakeStream)

    def event(self):
        number = next(self._numbers)
        self._events[number] = None
        return number

    def record(self, event, stream):
        self._events[event] = stream.now

    def wait_event(self, event):
        assert self._events[event] is not None, "an event that was never recorded"

    def hold(self, stream, event):
        stream.now = max(stream.now, self._events[event])

    def elapsed(self, begin, end):
        return max(1e-6, self._events[end] - self._events[begin])

    def destroy_event(self, event):
        del self._events[event]

    def down(self, host, device, count, stream):
        ctypes.memmove(host, device, count)
        with self._lock:
            self.copied += count

    def up(self, device, host, count, stream):
        self.down(device, host, count, stream)

    between = within = down

    def fill(self, address, value, count, stream):
        ctypes.memset(address, value, count)

    def spin(self, seconds, stream):
        stream.now += seconds
