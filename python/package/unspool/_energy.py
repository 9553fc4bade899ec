"""Counters of energy: NVML's of each GPU, and RAPL's of the processors.

NVML is the library of NVIDIA's driver, loaded when a spool on a GPU or an advice first asks; RAPL
is read from files of the kernel, which many systems let only root read. Nothing here raises because
a counter is missing or stops: what cannot be known is None.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from unspool.stats import EnergyStats

__all__ = ["Counter", "Counters", "counters", "since_now", "total"]

#: Where the kernel has the counters of processors, in microjoules.
RAPL = Path("/sys/class/powercap")

#: NVML as Linux knows it.
NVML = "libnvidia-ml.so.1"

#: The longest that NVML is waited for, in seconds: statistics have no energy of a GPU until then.
LONGEST = 10.0

#: A reading of NVML that is younger than this, in seconds, serves once more: the counter itself
#: lags by as much, and to read it takes milliseconds that registrations of host memory wait for.
REST = 0.1

#: More than a package of processors takes, in watts: it says for how long none may stay unread.
MOST_WATTS = 1000.0

Read = Callable[[], float | None]


class Counter:
    """Joules since it was made, from a reading that may begin again at 0.

    Arguments:
        read: the reading, in joules; None where it fails.
        wraps: the joules at which it begins again; None where it never does.
        rest: it is not read again within so many seconds.
    """

    def __init__(self, read: Read, wraps: float | None = None, rest: float = 0.0) -> None:
        self.wraps = wraps
        self._read, self._lock, self._rest = read, threading.Lock(), rest
        self._last, self._joules = read(), 0.0
        self._read_at = time.monotonic()

    def joules(self) -> float | None:
        """Joules since it was made; None from the first reading on that fails or goes back."""
        with self._lock:
            if self._last is not None and time.monotonic() - self._read_at < self._rest:
                return self._joules
            now = None if self._last is None else self._read()
            self._read_at = time.monotonic()
            if now is None or self._last is None or (now < self._last and self.wraps is None):
                self._last = None
                return None
            self._joules += now - self._last
            if now < self._last:
                self._joules += self.wraps or 0.0
            self._last = now
            return self._joules


def total(parts: Iterable[Counter]) -> float | None:
    """Joules of all parts together; None where there are none, or one of them has stopped."""
    found = [part.joules() for part in parts]
    known = [joules for joules in found if joules is not None]
    return sum(known) if known and len(known) == len(found) else None


class Counters:
    """The counters of this machine, as one process sees them.

    Attributes:
        processors: one for each package; what a package consists of is counted in it.
        why: why some cannot be read, for people.
    """

    def __init__(self, root: Path = RAPL, library: str = NVML) -> None:
        self.why: list[str] = []
        self.processors = _packages(root, self.why)
        self._library, self._finding = library, threading.Lock()
        self._by_address: dict[str, Counter | None] = {}
        self._keep_up()

    def gpu(self, address: str) -> Counter | None:
        """That of the GPU with this address on the PCI bus, such as `"0000:3B:00.0"`."""
        with self._finding:
            if address not in self._by_address:
                self._by_address[address] = self._gpu_of(address.encode())
            return self._by_address[address]

    def has_looked_for(self, address: str) -> bool:
        """Whether `gpu` answers at once for this address."""
        return address in self._by_address

    def gpus(self) -> list[Counter]:
        """Those of all GPUs that count their energy: since Volta they do."""
        if (nvml := self._nvml) is None:
            return []
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        by_index = nvml.nvmlDeviceGetHandleByIndex_v2
        found = [_counter_of(nvml, by_index, place) for place in range(count.value)]
        known = [counter for counter in found if counter is not None]
        if not known:
            self.why.append("no GPU counts its energy")
        return known

    def _gpu_of(self, address: bytes) -> Counter | None:
        if (nvml := self._nvml) is None:
            return None
        return _counter_of(nvml, nvml.nvmlDeviceGetHandleByPciBusId_v2, address)

    @functools.cached_property
    def _nvml(self) -> ctypes.CDLL | None:
        """NVML, ready; it stays for as long as the process."""
        try:
            nvml = ctypes.CDLL(self._library)
            _ = nvml.nvmlDeviceGetTotalEnergyConsumption
            failed = nvml.nvmlInit_v2()
        except (OSError, AttributeError):
            self.why.append("there is no NVML (the driver of NVIDIA GPUs)")
            return None
        if failed:
            self.why.append("NVML does not answer")
        return None if failed else nvml

    def _keep_up(self) -> None:
        """Reads the processors' counters often enough that none goes around twice unseen, beside
        the program: some go around in a minute or two."""
        ranges = [counter.wraps for counter in self.processors if counter.wraps]
        if ranges:
            job = partial(_read_on, self.processors, min(ranges) / MOST_WATTS / 2.0)
            # At the end of an interpreter there are no threads any more.
            with suppress(RuntimeError):
                threading.Thread(target=job, name="unspool-energy", daemon=True).start()


def counters() -> Counters:
    """The counters as this process reads them."""
    return _of_process(os.getpid())


@functools.cache
def _of_process(_: int) -> Counters:
    # The thread that reads on does not come along into a process that was forked.
    return Counters()


def since_now(address: str | None) -> Callable[[], EnergyStats]:
    """A function that says what was taken since this call: by the GPU with this address on the PCI
    bus, and by the processors.

    To look for a GPU's counter takes tens of milliseconds, once a process. It is done beside the
    program, and what the GPU takes until then is not counted.
    """
    known = counters()
    of_gpu = _since([]) if address is None else _since_found(known, address)
    of_processors = _since(known.processors)
    return lambda: EnergyStats(gpu=of_gpu(), processors=of_processors())


def _since_found(known: Counters, address: str) -> Read:
    """Joules of a GPU since its counter was found, which a thread looks for the first time."""
    found: list[Read] = []

    def look() -> None:
        counter = known.gpu(address)
        found.append(_since([] if counter is None else [counter]))

    if known.has_looked_for(address):
        look()
        return found[0]
    until = time.monotonic() + LONGEST
    thread = threading.Thread(target=look, name="unspool-energy", daemon=True)
    # At the end of an interpreter there are no threads any more.
    with suppress(RuntimeError):
        thread.start()

    def taken() -> float | None:
        if thread.is_alive():
            thread.join(max(0.0, until - time.monotonic()))
        return found[0]() if found else None

    return taken


def _since(parts: list[Counter]) -> Read:
    before = total(parts)

    def taken() -> float | None:
        now = None if before is None else total(parts)
        return None if now is None or before is None else now - before

    return taken


def _read_on(parts: list[Counter], seconds: float) -> None:
    """Reads until none answers any more."""
    pause = threading.Event()
    while [part for part in parts if part.joules() is not None]:
        pause.wait(seconds)


def _counter_of(nvml: ctypes.CDLL, find: Callable[..., int], key: int | bytes) -> Counter | None:
    """That of the GPU that a function of NVML finds by this key, if it has one."""
    handle = ctypes.c_void_p()
    if find(key, ctypes.byref(handle)):
        return None
    read = partial(_joules, nvml, handle)
    return None if read() is None else Counter(read, rest=REST)


def _joules(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> float | None:
    millijoules = ctypes.c_ulonglong()
    failed = nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
    return None if failed else millijoules.value / 1e3


def _packages(root: Path, why: list[str]) -> list[Counter]:
    found: list[Counter] = []
    for folder in sorted(root.glob("intel-rapl:*")):
        if folder.name.count(":") != 1:
            continue
        try:
            wraps = int((folder / "max_energy_range_uj").read_text()) / 1e6
            (folder / "energy_uj").read_text()
        except PermissionError:
            why.append("RAPL (the counters of processors) is only for root here")
            return []
        except (OSError, ValueError):
            continue
        found.append(Counter(partial(_of_package, folder / "energy_uj"), wraps))
    if not found:
        why.append("there is no RAPL (the counters of processors)")
    return found


def _of_package(file: Path) -> float | None:
    try:
        return int(file.read_text()) / 1e6
    except (OSError, ValueError):
        return None
