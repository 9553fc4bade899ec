"""What this machine has, so that a job is refused before it fails."""

from __future__ import annotations

import resource
from pathlib import Path

__all__ = ["available_memory", "peak_resident"]

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def peak_resident() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available_memory() -> int | None:
    """Bytes that a process may still take without swapping, or None where nobody says.

    The least of what the kernel holds available and what the control group still allows.
    """
    found = [amount for amount in (_available(), _allowed()) if amount is not None]
    return min(found, default=None)


def _available() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    kibibytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kibibytes[0]) * 1024 if kibibytes else None


def _allowed() -> int | None:
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = (CGROUP / "memory.current").read_text().strip()
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None
