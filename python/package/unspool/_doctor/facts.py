"""What `unspool.doctor()` finds: figures, and what is missing or poor."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

#: Copies to and from a device are poor below this; PCIe 3.0 with 16 lanes gives 12e9.
SLOW_LINK = 10e9


class Facts(SimpleNamespace):
    """Figures of one thing by their names, as the extension gives them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is missing or poor.

    Attributes:
        level: `"missing"`, `"poor"`, or `"note"` where nothing is wrong.
        about: what it is about: `"CUDA"`, `"device 0"`, `"main memory"`, `"disk"`, ...
        what: what was found.
        meaning: what that means for a spool.
        remedy: what to do about it.
    """

    level: str
    about: str
    what: str
    meaning: str
    remedy: str


def facts(found: Any) -> Any:
    """What the extension found, dictionaries as `Facts` and lists as tuples."""
    if isinstance(found, dict):
        return Facts(**{name: facts(value) for name, value in found.items()})
    return tuple(map(facts, found)) if isinstance(found, list | tuple) else found


def rate(bytes_per_second: float) -> str:
    """A rate for people: `55.1 GB/s`."""
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:,.1f} GB/s"
    return f"{bytes_per_second / 1e6:,.0f} MB/s"
