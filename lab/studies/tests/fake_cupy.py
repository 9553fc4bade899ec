"""As much of CuPy as `CupyDevice` uses, in plain memory: its kernels are those of the shim."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
from unspool_studies.rtm import device
from unspool_studies.rtm.device import COMPILER_OPTIONS, FILES, kernel_text

from kernel_shim import ShimDevice


class Array(np.ndarray):
    """An array of the fake device: only `get` brings it to NumPy."""

    def get(self, out=None):
        copied = np.asarray(self).copy()
        if out is None:
            return copied
        out[...] = copied
        return out

    def set(self, values):
        assert type(values) is np.ndarray
        np.asarray(self)[...] = values


class Event:
    def record(self, stream):
        assert stream is Stream.current
        self.at = time.perf_counter()

    def synchronize(self):
        assert self.at > 0


class Stream:
    current: ClassVar[Stream | None] = None

    def __init__(self, non_blocking):
        assert non_blocking, "the default stream would wait for the spool's own"
        self.captured = None

    def use(self):
        Stream.current = self

    def synchronize(self):
        assert self is Stream.current

    def begin_capture(self, mode):
        assert mode == "relaxed"
        self.captured = []

    def end_capture(self):
        launches, self.captured = self.captured, None
        assert launches, "nothing was enqueued on the stream that was captured"

        def launch(stream):
            assert stream is self
            for kernel, *arguments in launches:
                kernel(*arguments)

        return SimpleNamespace(launch=launch)


class RawModule:
    """Compiles nothing: gives the kernel that the shim has compiled from the same text."""

    kernels: ClassVar[dict] = {}

    def __init__(self, code, options):
        assert options == COMPILER_OPTIONS
        self._names = [name for name in FILES if kernel_text(name) == code]

    def get_function(self, name):
        assert name in self._names
        kernel = self.kernels[name]

        def launch(*arguments):
            if Stream.current.captured is None:
                kernel(*arguments)
            else:
                Stream.current.captured.append((kernel, *arguments))

        return launch


class Device:
    used: ClassVar[list] = []

    def __init__(self, ordinal):
        self._ordinal = ordinal
        self.mem_info = (1 << 32, 1 << 33)

    def use(self):
        self.used.append(self._ordinal)


class CUDARuntimeError(RuntimeError):
    pass


def _zeros(shape, dtype):
    assert dtype == np.float32
    return ShimDevice({}).zeros(shape).view(Array)


def _asarray(array):
    assert type(array) is np.ndarray
    return ShimDevice({}).load(array).view(Array)


def install(monkeypatch, kernels, devices=1):
    """Makes `import cupy` find this, with so many devices, until the test ends."""
    monkeypatch.setattr(RawModule, "kernels", kernels)
    monkeypatch.setattr(Device, "used", [])
    monkeypatch.setattr(device, "_STREAMS", {})
    runtime = SimpleNamespace(
        getDeviceCount=lambda: devices,
        getDeviceProperties=lambda ordinal: {"name": f"fake {ordinal}".encode()},
        CUDARuntimeError=CUDARuntimeError,
        streamCaptureModeRelaxed="relaxed",
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=Device,
        Event=Event,
        Stream=Stream,
        get_elapsed_time=lambda begin, end: 1e3 * (end.at - begin.at),
    )
    pool = SimpleNamespace(free_bytes=lambda: 1 << 20, free_all_blocks=lambda: None)
    fake = SimpleNamespace(
        cuda=cuda,
        zeros=_zeros,
        asarray=_asarray,
        copyto=lambda to, of: np.copyto(np.asarray(to), np.asarray(of)),
        RawModule=RawModule,
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pool,
    )
    pinned = SimpleNamespace(empty_pinned=lambda shape, dtype: np.empty(shape, dtype))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupyx", pinned)
    return fake
