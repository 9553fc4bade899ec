"""Counters of energy: NVML's of each GPU, and RAPL's of the processors.

NVML is the library of NVIDIA's driver, loaded when it is asked for; RAPL is read from files of the
kernel, which many systems let only root read.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from unspool.errors import MissingLibraryError

__all__ = ["Meter"]

#: Where the kernel has the counters of processors, in microjoules.
RAPL = Path("/sys/class/powercap")


class Meter:
    """Everything on this machine that counts the energy it takes.

    Raises:
        MissingLibraryError: there is nothing, or none of it can be read.
    """

    def __init__(self, root: Path = RAPL, library: str = "libnvidia-ml.so.1") -> None:
        why: list[str] = []
        self._counters = [*_gpus(library, why), *_processors(root, why)]
        if not self._counters:
            raise MissingLibraryError(
                f"the power of this machine cannot be measured: {'; '.join(why)}. Give it as "
                "unspool.advising.Power(watts)."
            )

    def watts(self, seconds: float) -> float:
        """The mean power of all counters, in watts, over the next `seconds`."""
        begin = time.perf_counter()
        before = [read() for read, _ in self._counters]
        time.sleep(seconds)
        joules = 0.0
        for (read, wraps), start in zip(self._counters, before, strict=True):
            joules += spent(start, read(), wraps)
        return joules / (time.perf_counter() - begin)


def spent(before: float, after: float, wraps: float) -> float:
    """Joules between two readings of a counter that begins again at `wraps`."""
    return after - before if after >= before else after - before + wraps


Counter = tuple[Callable[[], float], float]


def _gpus(name: str, why: list[str]) -> list[Counter]:
    """The GPUs whose driver counts millijoules: those since Volta."""
    try:
        nvml = ctypes.CDLL(name)
    except OSError:
        why.append("there is no NVML (the driver of NVIDIA GPUs)")
        return []
    count, found = ctypes.c_uint(), []
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        why.append("NVML does not answer")
        return []
    for place in range(count.value):
        handle, joules = ctypes.c_void_p(), ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(handle)):
            continue
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(joules)) == 0:
            found.append((_gpu(nvml, handle), 2.0**64 / 1e3))
    if not found:
        why.append("no GPU counts its energy")
    return found


def _gpu(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> Callable[[], float]:
    def read() -> float:
        joules = ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(joules)):
            raise MissingLibraryError("NVML has stopped counting the energy of a GPU.")
        return joules.value / 1e3

    return read


def _processors(root: Path, why: list[str]) -> list[Counter]:
    """The packages of processors; what they consist of is counted in them."""
    found: list[Counter] = []
    for folder in sorted(root.glob("intel-rapl:*")):
        if folder.name.count(":") != 1:
            continue
        try:
            wraps = int((folder / "max_energy_range_uj").read_text()) / 1e6
            _microjoules(folder)
        except PermissionError:
            why.append("RAPL (the counters of processors) is only for root here")
            return []
        except (OSError, ValueError):
            continue
        found.append((partial(_microjoules, folder), wraps))
    if not found:
        why.append("there is no RAPL (the counters of processors)")
    return found


def _microjoules(folder: Path) -> float:
    return int((folder / "energy_uj").read_text()) / 1e6
