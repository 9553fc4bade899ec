"""What this machine is and has."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

import unspool
from unspool.stats import size as size_text
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.measure import seconds_of
from unspool_studies.bench.memory import Mapping, in_parallel, write_pages
from unspool_studies.rtm.memory import available_memory

__all__ = [
    "FIRST",
    "MEMORY_NOTE",
    "TOUCHED",
    "USED",
    "Warmth",
    "about",
    "available_memory",
    "fits",
    "require_memory",
    "warm_memory",
]

#: Of what is free, so much may be used: the rest of the machine goes on.
USABLE = 0.9

#: The longest that freed memory is waited for, in seconds, and the share that has to be back.
SETTLED, BACK = 5.0, 0.98

#: What the memory of a reading was: touched just before it; more than the readings before had used,
#: and cold on a machine that was just started; or freed by one of them.
TOUCHED, FIRST, USED = "touched", "first use", "used before"

MEMORY_NOTE = (
    f"memory: {TOUCHED} just before the reading; or with --warm 0, {FIRST!r} where no reading of "
    f"this part had used so much, cold on a machine that was just started, else {USED!r}"
)


def about(cuda: Cuda | None) -> dict[str, Any]:
    """Versions and sizes that belong to every figure."""
    return {
        "unspool": unspool.__version__,
        "device": cuda.name if cuda else None,
        "device_memory_free_bytes": cuda.free_memory() if cuda else None,
        "host_memory_available_bytes": available_memory(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def fits(count: int, available: int | None) -> bool:
    """Whether a buffer of so many bytes leaves the machine enough.

    Always with UNSPOOL_CHECK_FREE=0 in the environment, as for a spool: some machines get more
    memory while they use it.
    """
    if available is None or os.environ.get("UNSPOOL_CHECK_FREE") == "0":
        return True
    return count <= USABLE * available


def require_memory(count: int) -> None:
    """Refuses a buffer of so many bytes that would not leave the machine enough.

    Raises:
        OSError: there is too little memory.
    """
    available = available_memory()
    if not fits(count, available):
        text = f"{size_text(available or 0)} of host memory are free, {size_text(count)} are needed"
        raise OSError(text)


def warm_memory(count: int, threads: int) -> float:
    """Touches `count` bytes of this machine's memory and gives them back; seconds that took.

    The memory of a virtual machine is slow when it is touched for the first time, and again when
    the host has taken it back meanwhile.
    """
    mapping = Mapping(count, huge=True)
    seconds = seconds_of(lambda: in_parallel(mapping, write_pages, threads))
    mapping.close()
    return seconds


class Warmth:
    """Brings the memory of this machine into the same state before every reading: what the reading
    before has freed is free again, and what is free was touched just now.
    """

    def __init__(self, threads: int, warm: bool = True) -> None:
        self._threads, self._warm = threads, warm
        self._rates: list[float] = []
        self._before = available_memory()
        self._most = 0

    def begin(self) -> None:
        """Processes were started or have ended: what is free now has to be free again."""
        self._before = available_memory()

    def bring(self, count: int) -> str:
        """Before a reading that uses `count` bytes; what its memory was before: `TOUCHED`, or where
        that is not wanted `FIRST` or `USED`.
        """
        first, self._most = count > self._most, max(count, self._most)
        begin = time.perf_counter()
        while self._before is not None and time.perf_counter() - begin < SETTLED:
            if (available_memory() or 0) > BACK * self._before:
                break
            time.sleep(0.01)
        self._before = available_memory()
        if not self._warm:
            return FIRST if first else USED
        self._rates.append(count / warm_memory(count, self._threads) / 1e9)
        return TOUCHED

    def __str__(self) -> str:
        if not self._rates:
            return "memory was not touched before each reading: it may have been cold"
        ends = f"{min(self._rates):.1f} to {max(self._rates):.1f} GB/s"
        return f"before each reading its memory was touched and freed: at {ends}, cold where slow"
