"""What this machine is and has."""

from __future__ import annotations

import os
import platform
from typing import Any

import unspool
from unspool.bench.cuda import Cuda
from unspool.rtm.memory import available_memory

__all__ = ["about", "available_memory", "fits"]

#: Of what is free, so much may be used: the rest of the machine goes on.
USABLE = 0.9


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
