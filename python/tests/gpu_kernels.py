"""Work for a GPU that takes long, so that what does not wait for it shows."""

from __future__ import annotations

import functools
from typing import Any

SLOW_FILL = r"""
extern "C" __global__ void slow_fill(
    unsigned char* items, long long count, int value, long long cycles
) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    for (long long i = threadIdx.x; i < count; i += blockDim.x) items[i] = value;
}
"""

# About a tenth of a second on every GPU of today.
CYCLES = 200_000_000


@functools.cache
def _kernel() -> Any:
    import cupy

    return cupy.RawKernel(SLOW_FILL, "slow_fill")


def slow_fill(array: Any, value: int, cycles: int = CYCLES) -> None:
    """Sets every byte of an array of CuPy, at the end of a long wait on the current stream."""
    import cupy

    memory = array.view(cupy.uint8)
    _kernel()((1,), (256,), (memory, memory.size, value, cycles))


def warm_up(array: Any) -> None:
    """Compiles the kernel and waits until it has run."""
    import cupy

    slow_fill(array, 0, 1)
    cupy.cuda.get_current_stream().synchronize()
