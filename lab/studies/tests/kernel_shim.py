"""The CUDA kernels of `unspool_studies.rtm` on the CPU: the same text, compiled as C++.

Blocks and threads become loops around the kernel. That is sound for kernels whose threads neither
share memory nor wait for each other, which is all that there are.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import numpy as np
from unspool_studies.rtm.device import FILES, KernelTime, kernel_text

#: Stands before the text of a kernel.
BEFORE = """
#include <cmath>
#include <cstddef>
#include <utility>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
struct dim3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;
"""
#: Stands after it: calls a kernel with pointers to its arguments, as cuLaunchKernel does.
BEHIND = """
template <class... P, std::size_t... I>
static void once(void (*kernel)(P...), void **a, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<P> *>(a[I])...);
}
template <class... P>
static void launch(void (*kernel)(P...), const unsigned *g, const unsigned *b, void **a) {
    gridDim = {g[0], g[1], g[2]}, blockDim = {b[0], b[1], b[2]};
    for (blockIdx.z = 0; blockIdx.z < g[2]; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < g[1]; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < g[0]; blockIdx.x++)
    for (threadIdx.z = 0; threadIdx.z < b[2]; threadIdx.z++)
    for (threadIdx.y = 0; threadIdx.y < b[1]; threadIdx.y++)
    for (threadIdx.x = 0; threadIdx.x < b[0]; threadIdx.x++)
        once(kernel, a, std::index_sequence_for<P...>());
}
"""
ENTRY = """
extern "C" void launch_{name}(const unsigned *g, const unsigned *b, void **a) {{
    launch({name}, g, b, a);
}}
"""
OPTIONS = ["-std=c++17", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC"]
OPTIONS += ["-Wno-unknown-pragmas", "-march=native"]

COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")


def build(folder: Path) -> dict[str, object]:
    """Compiles every kernel; each is then called with a grid, a block and arguments."""
    kernels = {}
    for file in sorted(set(FILES.values())):
        names = [name for name, its in FILES.items() if its == file]
        source = folder / f"{file}.cpp"
        entries = "".join(ENTRY.format(name=name) for name in names)
        source.write_text(BEFORE + kernel_text(names[0]) + BEHIND + entries)
        library = source.with_suffix(".so")
        command = [COMPILER, *OPTIONS, "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        loaded = ctypes.CDLL(str(library))
        kernels |= {name: _launcher(getattr(loaded, f"launch_{name}")) for name in names}
    return kernels


def _launcher(function):
    def launch(grid, block, arguments):
        values = [_value(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        function((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), pointers)

    return launch


def _value(argument):
    """What a kernel is given: arrays by their address, numbers by their own bits."""
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    assert isinstance(argument, np.generic), f"{argument!r} has no fixed type"
    return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())


class ShimDevice:
    """A device that is plain memory and the CPU: what `CupyDevice` is on a GPU."""

    name = "a shim"
    on = "cpu"

    def __init__(self, kernels):
        self._kernels = kernels
        self._steps, self._captured = 0, []
        self.free = 1 << 40

    def zeros(self, shape):
        # As aligned as device memory is: what is read four at a time lies at 16 bytes.
        count = int(np.prod(shape))
        plain = np.zeros(count + 16, np.float32)
        skip = -plain.ctypes.data % 64 // 4
        return plain[skip : skip + count].reshape(shape)

    def load(self, array):
        if array.dtype != np.float32:
            return np.ascontiguousarray(array).copy()
        loaded = self.zeros(array.shape)
        loaded[...] = array
        return loaded

    def fetch(self, array):
        return array.copy()

    def pinned(self, shape):
        return self.zeros(shape)

    def download(self, array, to):
        to[...] = array

    def upload(self, array, of):
        array[...] = of

    def kernel(self, name):
        kernel = self._kernels[name]

        def launch(*arguments):
            if self._captured:
                self._captured[-1].append((kernel, *arguments))
            else:
                kernel(*arguments)

        return launch

    def capture(self, enqueue):
        launches = []
        self._captured.append(launches)
        enqueue()
        self._captured.pop()
        return lambda: [kernel(*arguments) for kernel, *arguments in launches]

    def free_bytes(self):
        return self.free

    def give_back(self):
        """Nothing is kept from others."""

    def copy_bandwidth(self):
        return 1e10

    @contextmanager
    def timed(self, steps):
        yield
        self._steps += steps

    def keep_spans(self):
        """Nothing to keep: this device computes at once."""

    def spans(self):
        return []

    def kernel_time(self):
        return KernelTime(self._steps, 1e-3 * self._steps)


def sources() -> list[str]:
    """The names of all files of kernels in the package."""
    folder = resources.files("unspool_studies.rtm") / "kernels"
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".cu"))
