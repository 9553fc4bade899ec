"""What a plan says, as plain figures: `unspool.plan` returns a `Plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unspool._plan.links import Links
from unspool._plan.problem import Problem
from unspool._plan.sizes import Tiers
from unspool.errors import Error

__all__ = ["Candidate", "LeftOut", "LinkBytes", "NoPlanError", "Plan", "WhatIf"]

#: How much longer may be little longer.
LITTLE = 1.05


class NoPlanError(Error, ValueError):
    """No schedule can be carried out with these tiers."""


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """What a link carries.

    Attributes:
        fast: the name of the faster tier.
        slow: the name of the slower tier.
        flushed: bytes to the slower tier.
        prefetched: bytes to the faster tier.
    """

    fast: str
    slow: str
    flushed: int
    prefetched: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule on a spool, and what it was predicted to cost.

    Attributes:
        name: the schedule as it is written in Python.
        schedule: the schedule itself, an object of `unspool.schedules`, for `unspool.adjoint`.
        tiers: the tiers of the spool that it needs, fastest first.
        options: the keywords of that `Spool`; a disk without a place is called "DIRECTORY". The
            codec is there if the plan was given it as `codec=`.
        seconds: of the whole computation: the sum of the four figures below.
        compute_seconds: forward and reverse steps, slowed by what moves beside them.
        copy_seconds: copies between the application and the spool.
        save_stall_seconds: waits of saves for room.
        restore_stall_seconds: waits of restores for their data.
        forward_steps: forward steps, repeated ones included.
        recomputed_steps: forward steps beyond one pass.
        saves: how often a state is saved.
        restores: how often one is restored.
        peak_copies: the most copies that are kept at a time.
        peak_bytes: the most bytes in use, by tier.
        links: bytes over each link.
        lead: how many restores had their data ready ahead of time: the median.
    """

    name: str
    schedule: Any
    tiers: tuple[str, ...]
    options: Mapping[str, Any]
    seconds: float
    compute_seconds: float
    copy_seconds: float
    save_stall_seconds: float
    restore_stall_seconds: float
    forward_steps: int
    recomputed_steps: int
    saves: int
    restores: int
    peak_copies: int
    peak_bytes: Mapping[str, int]
    links: tuple[LinkBytes, ...]
    lead: int | None

    @property
    def stall_seconds(self) -> float:
        """All waits."""
        return self.save_stall_seconds + self.restore_stall_seconds

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers, without the schedule."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del plain["schedule"]
        links = [
            {name: getattr(link, name) for name in link.__dataclass_fields__} for link in self.links
        ]
        return plain | {
            "tiers": list(self.tiers),
            "options": {name: _plain(value) for name, value in self.options.items()},
            "peak_bytes": dict(self.peak_bytes),
            "links": links,
            "stall_seconds": self.stall_seconds,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int | str) else str(value)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A schedule that was not predicted.

    Attributes:
        name: the schedule as it is written in Python.
        reason: why, with what it needs and what there is.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Schedules for one computation on one machine, the fastest first; `print` it for a table.

    Attributes:
        problem: the computation.
        tiers: what there is.
        links: how fast bytes move, as measured or given.
        candidates: what was predicted, the fastest first, at least one.
        left_out: what was not, and why.
    """

    problem: Problem
    tiers: Tiers
    links: Links
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def best(self) -> Candidate:
        """The one to take."""
        return self.candidates[0]

    @property
    def simpler(self) -> Candidate | None:
        """The fastest one that needs fewer tiers, if it takes at most 5 % longer."""
        for one in self.candidates:
            if len(one.tiers) < len(self.best.tiers):
                return one if one.seconds <= LITTLE * self.best.seconds else None
        return None

    @property
    def sentence(self) -> str:
        """What to take and what it costs."""
        from unspool._plan.text import sentence

        return sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`."""
        problem = {name: getattr(self.problem, name) for name in self.problem.__dataclass_fields__}
        compression = self.problem.compression
        return {
            **problem,
            "compression": None if compression is None else compression.to_dict(),
            "tiers": dict(self.tiers.capacity),
            "best": self.best.name,
            "simpler": None if self.simpler is None else self.simpler.name,
            "sentence": self.sentence,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "left_out": [{"name": one.name, "reason": one.reason} for one in self.left_out],
            "links": self.links.to_dict(),
        }

    def __str__(self) -> str:
        from unspool._plan.text import report

        return report(self)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The best that can be done with another size of one tier.

    Attributes:
        tier: its name.
        capacity: its size, in bytes; 0: without that tier.
        best: what would be taken, or None where nothing fits.
    """

    tier: str
    capacity: int
    best: Candidate | None

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers."""
        best = None if self.best is None else self.best.to_dict()
        return {"tier": self.tier, "capacity": self.capacity, "best": best}
