"""What a call costs the host for arrays on a GPU: microseconds a call, while the GPU is idle.

Run it with the package and CuPy installed; PyTorch is measured too where it is there:

    python benches/gpu_calls.py
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import unspool

CALLS, ROUNDS = 200, 12


def microseconds(action: Callable[[int], object], settle: Callable[[], object]) -> float:
    """The best mean over rounds of many calls; the GPU is idle when a round begins."""
    best = float("inf")
    for _ in range(ROUNDS):
        settle()
        start = time.perf_counter()
        for call in range(CALLS):
            action(call)
        best = min(best, (time.perf_counter() - start) / CALLS * 1e6)
    settle()
    return best


def measure(library: str, array: Any, target: Any, settle: Callable[[], object]) -> None:
    with unspool.Spool(device="1GiB", on="cuda") as spool:
        spool.save(-1, array)

        def save_and_discard(call: int) -> None:
            spool.save(call, array)
            spool.discard(call)

        def write_and_discard(call: int) -> None:
            with spool.writing(call, tuple(array.shape), "float32"):
                pass
            spool.discard(call)

        def read(_call: int) -> None:
            with spool.reading(-1):
                pass

        both = microseconds(save_and_discard, settle)
        restore = microseconds(lambda _: spool.restore(-1, target), settle)
        written = microseconds(write_and_discard, settle)
        reading = microseconds(read, settle)
        strided = microseconds(lambda _: spool.restore(-1, target.T), settle)
    size = array.size * 4 if library == "CuPy" else array.numel() * 4
    print(
        f"{library:10}{size / (1 << 20):8.3f} MiB{both:10.1f}{restore:10.1f}{strided:12.1f}"
        f"{written:10.1f}{reading:10.1f}"
    )


def main() -> None:
    print("microseconds of host time a call")
    print(
        f"{'library':10}{'array':>12}{'save+disc':>10}{'restore':>10}{'transposed':>12}"
        f"{'writing':>10}{'reading':>10}"
    )
    cupy = importlib.import_module("cupy")
    idle = cupy.cuda.Device().synchronize
    for side in (16, 512):
        array = cupy.ones((side, side), "f4")
        measure("CuPy", array, cupy.zeros_like(array), idle)
        with cupy.cuda.Stream(non_blocking=True):
            measure("CuPy", array, cupy.zeros_like(array), idle)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return
    for side in (16, 512):
        tensor = torch.ones((side, side), device="cuda")
        measure("PyTorch", tensor, torch.zeros_like(tensor), torch.cuda.synchronize)


if __name__ == "__main__":
    main()
