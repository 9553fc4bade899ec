"""Arrays on the driver that the tests put in the place of CUDA's: by ctypes, with each protocol.

The driver (`tests/fakecuda`) keeps device memory apart from that of the process: only its own
functions read and write it, and operations take effect in the order of their streams, at their
time. It is the library that the environment variable `UNSPOOL_CUDA_DRIVER` names.
"""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import fake_dlpack
import numpy as np

LEGACY = 1

# Bytes of each device.
MEMORY = 4 << 30


class Driver:
    """The functions of the driver; each one raises when the driver refuses."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        assert status == 0, f"{name} gave {status}"

    def control(self, name: str, *arguments: Any) -> int:
        """Calls a function that only this driver has."""
        if name.startswith("hold"):
            # Freeing memory waits for all work: an array of an earlier test that is collected while
            # a stream is held would wait for ever.
            gc.collect()
        function = getattr(self._library, f"fakecuda_{name}")
        function.restype = ctypes.c_uint64 if name in ("calls", "count") else ctypes.c_uint32
        return function(*arguments)

    def context(self, device: int = 0) -> None:
        """Makes the primary context of a device current on this thread."""
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def allocate(self, count: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(count, 1)))
        return address.value

    def free_memory(self) -> int:
        """The bytes of the current device that nobody has."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def stream(self) -> int:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value or 0

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def write(self, address: int, values: np.ndarray, stream: int | None = None) -> None:
        """Copies to the device: at once, or enqueued on a stream."""
        count = ctypes.c_size_t(values.nbytes)
        source = ctypes.c_void_p(values.ctypes.data)
        if stream is None:
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, count)
        else:
            handle = ctypes.c_void_p(stream)
            self.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, count, handle)

    def fill(self, address: int, byte: int, count: int, stream: int) -> None:
        """Sets bytes, enqueued on a stream."""
        place, number = ctypes.c_uint64(address), ctypes.c_size_t(count)
        self.call("cuMemsetD8Async", place, ctypes.c_ubyte(byte), number, ctypes.c_void_p(stream))

    def read(self, address: int, count: int) -> bytes:
        """What is there at this moment, past all streams."""
        buffer = ctypes.create_string_buffer(count)
        if count:
            status = self.control("peek", buffer, ctypes.c_uint64(address), ctypes.c_uint64(count))
            assert status == 0
        return buffer.raw

    def wait_for(self, waiting: int, awaited: int) -> None:
        """Makes one stream wait for what is on another so far."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 2)
        self.call("cuEventRecord", event, ctypes.c_void_p(awaited))
        self.call("cuStreamWaitEvent", ctypes.c_void_p(waiting), event, 0)
        self.call("cuEventDestroy_v2", event)


def load() -> Driver | None:
    """The driver that the environment names, with a current context; None when it names none."""
    path = os.environ.get("UNSPOOL_CUDA_DRIVER")
    if not path:
        return None
    driver = Driver(path)
    driver.control("set", b"memory", ctypes.c_uint64(MEMORY))
    driver.context()
    return driver


class Memory:
    """The memory of an array on the device: `values` in its strides, in a block of its own."""

    def __init__(self, driver: Driver, values: np.ndarray) -> None:
        self.driver = driver
        # The block has the bytes from the lowest to the highest item.
        low, high = np.lib.array_utils.byte_bounds(values) if values.size else (0, 0)
        base = values.ctypes.data if values.size else 0
        self.block = driver.allocate(high - low)
        self.address = self.block + (base - low)
        self.low, self.count = base - low, high - low
        self.shape, self.strides, self.dtype = values.shape, values.strides, values.dtype
        if values.size:
            whole = (ctypes.c_ubyte * self.count).from_address(low)
            driver.write(self.block, np.frombuffer(whole, np.uint8))

    def __del__(self) -> None:
        self.driver.free(self.block)

    def numpy(self) -> np.ndarray:
        """The items as they are now."""
        if not self.count:
            return np.zeros(self.shape, self.dtype)
        block = bytearray(self.driver.read(self.block, self.count))
        items = np.ndarray(self.shape, self.dtype, block, self.low, self.strides)
        return np.ascontiguousarray(items)


class CaiArray(Memory):
    """Speaks the CUDA array interface."""

    def __init__(
        self,
        driver: Driver,
        values: np.ndarray,
        stream: int | None = LEGACY,
        read_only: bool = False,
        **more: object,
    ) -> None:
        super().__init__(driver, values)
        self.stream, self.read_only, self.more = stream, read_only, more

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        dense = np.empty(self.shape, self.dtype).strides == self.strides
        return {
            "shape": self.shape,
            "strides": None if dense else self.strides,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.address, self.read_only),
            "stream": self.stream,
            "version": 3,
        } | self.more


class DlpackArray(Memory):
    """Speaks DLPack and its stream protocol; its own work is on `stream`."""

    def __init__(
        self, driver: Driver, values: np.ndarray, stream: int = LEGACY, kind: int = fake_dlpack.CUDA
    ) -> None:
        super().__init__(driver, values)
        self.stream, self.kind, self.asked = stream, kind, []
        self.exporter = fake_dlpack.Exporter(values, device=kind, address=self.address)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, *, stream: int | None = None, **options: object) -> object:
        self.asked.append(stream)
        if stream is not None and stream >= 0:
            assert stream != 0
            self.driver.wait_for(stream, self.stream)
        return self.exporter.__dlpack__(**options)
