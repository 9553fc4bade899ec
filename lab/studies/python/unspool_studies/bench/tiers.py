"""What a spool's statistics say about its tiers, and how spools are opened here."""

from __future__ import annotations

import time
from typing import Any

import unspool
from unspool.accumulate import Batched
from unspool.stats import Stats, TierStats
from unspool_studies.bench.cuda import Cuda

__all__ = [
    "FRAME",
    "moved",
    "open_plain",
    "open_spool",
    "ready",
    "room_for",
    "tier",
    "wait_until_ready",
]

#: The options that keep a spool's tiers in main memory.
PLAIN: dict[str, Any] = {"device": "cpu"}

#: Room for what a tier keeps beside the bytes of a checkpoint.
FRAME = 64 << 10


def room_for(checkpoints: int, size: int) -> int:
    """Bytes of a tier that holds so many checkpoints of that size."""
    return checkpoints * (size + FRAME)


def open_spool(cuda: Cuda, *, together: Any = None, **options: Any) -> Any:
    """A spool on this device, with host memory that is prepared anew, as in a new process; with
    `together`, a `Batched` in front of it."""
    unspool.trim()
    spool = unspool.Spool(**options, **cuda.spool_options)
    return spool if together is None else Batched(spool, together)


def open_plain(**options: Any) -> unspool.Spool:
    """A spool in main memory, whatever else the machine has."""
    return unspool.Spool(**options, **PLAIN)


def tier(stats: Stats, name: str) -> TierStats | None:
    """The tier with that name."""
    return next((tier for tier in stats.tiers if tier.name == name), None)


def ready(stats: Stats, name: str = "host") -> tuple[int | None, int]:
    """Bytes of a tier that are copied at full speed (of the host's: registered with the driver),
    and its capacity. None where the tier does not say.
    """
    found = tier(stats, name)
    if found is None:
        return None, 0
    return found.ready, found.capacity or 0


def wait_until_ready(spool: unspool.Spool, limit: float = 120.0) -> float | None:
    """Prepares all memory tiers and waits until they, and the kernels of its codecs, are ready;
    seconds that took, None where no tier says.

    Raises:
        TimeoutError: they are not within `limit` seconds.
    """
    begin = time.perf_counter()
    spool.prepare()
    while True:
        stats = spool.stats()
        found = [ready(stats, name) for name in ("device", "host")]
        known = [(got, of) for got, of in found if got is not None]
        if all(got >= of for got, of in known):
            return time.perf_counter() - begin if known else None
        if time.perf_counter() - begin > limit:
            raise TimeoutError(f"the memory of the tiers is not ready after {limit:.0f} s")
        time.sleep(0.0005)


def moved(stats: Stats) -> tuple[int, int]:
    """Bytes flushed from the fastest tier and prefetched into it so far."""
    if not stats.links:
        return 0, 0
    return stats.links[0].flush.bytes, stats.links[0].prefetch.bytes
