"""Schedules that are worth a forecast, for the tiers that there are.

A schedule that fits into the faster tiers is proposed for a spool with only those: what no slower
tier is needed for, none has to carry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from unspool.planning.links import Links
from unspool.planning.problem import Problem
from unspool.planning.sizes import Tiers

__all__ = ["Need", "Proposal", "proposals", "stores_all"]

#: Lengths of zCut's cuts that the published figures imply (33 to 41).
PUBLISHED = 36

#: The most numbers of slots between what fits into the faster tiers and into all.
BETWEEN = 5


@dataclass(frozen=True, slots=True)
class Need:
    """The most copies that a schedule keeps at a time.

    Attributes:
        states: whole states.
        parts: copies of what a reverse step reads.
    """

    states: int
    parts: int = 0

    def room(self, problem: Problem, tiers: Tiers, name: str, on_gpu: bool) -> int:
        """The bytes that they take in a tier."""
        state = tiers.room(name, problem.state_bytes, on_gpu)
        return self.states * state + self.parts * tiers.room(name, problem.reverse_bytes, on_gpu)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One schedule on one spool.

    Attributes:
        name: for people.
        make: makes the schedule: an object of `unspool.schedules`.
        need: the most that it keeps at a time.
        tiers: those of the spool.
        fits: whether they hold that.
    """

    name: str
    make: Callable[[], Any]
    need: Need
    tiers: Tiers
    fits: bool


def proposals(problem: Problem, tiers: Tiers, links: Links) -> list[Proposal]:
    """What is worth a forecast, and what does not fit; each of it once."""
    maker = _Maker(problem, tiers, links)
    found = {proposal.name: proposal for proposal in maker.all()}
    return list(found.values())


class _Maker:
    """Makes the proposals for one problem."""

    def __init__(self, problem: Problem, tiers: Tiers, links: Links) -> None:
        self.problem, self.tiers, self.links = problem, tiers, links
        self.prefixes = [tiers.first(count) for count in range(1, len(tiers.names) + 1)]
        #: States that fit into the one, the two, ... fastest tiers, as many as are of use.
        self.slots = [min(problem.slots(part, links), problem.steps) for part in self.prefixes]

    def all(self) -> Iterator[Proposal]:
        from unspool import schedules

        steps = self.problem.steps
        yield self._placed(f"StoreAll({steps})", lambda: schedules.StoreAll(steps), Need(0, steps))
        yield from self._with_slots("Revolve", schedules.Revolve, self._counts())
        yield from self._with_slots("Uniform", schedules.Uniform, sorted(set(self.slots)))
        for length in self._lengths():
            yield self._cut(schedules.ZCut, length)
        yield from self._levels(schedules.MultiLevel)

    def _with_slots(
        self, name: str, kind: Callable[[int, int], Any], counts: list[int]
    ) -> Iterator[Proposal]:
        steps = self.problem.steps
        for slots in counts or [1]:
            slots = max(1, slots)
            yield self._placed(
                f"{name}({steps}, {slots})",
                lambda slots=slots: kind(steps, slots),  # type: ignore[misc]
                Need(slots),
            )

    def _counts(self) -> list[int]:
        """Numbers of slots: what fits into the fastest tiers, into all, and some between."""
        found = {slots for slots in self.slots if slots}
        for few, many in zip(self.slots, self.slots[1:], strict=False):
            found |= set(_between(max(few, 1), many))
        return sorted(found)

    def _lengths(self) -> list[int]:
        """Lengths of zCut's cuts: the least memory, the published ones, and what makes the inside
        of a cut fit into each of the tiers but the slowest.
        """
        problem, links = self.problem, self.links
        ratio = problem.state_bytes / problem.reverse_bytes
        found = {PUBLISHED, round(math.sqrt(problem.steps * ratio))}
        for name in self.tiers.names[:-1] or self.tiers.names:
            inside = self.tiers.slots(name, problem.reverse_bytes, links.on_gpu)
            found |= {inside - 2, inside // 2}
        return sorted(length for length in found if 2 <= length < problem.steps)

    def _cut(self, kind: Callable[..., Any], length: int) -> Proposal:
        steps = self.problem.steps
        return self._placed(
            f"ZCut({steps}, length={length})",
            lambda: kind(steps, length=length),
            Need(-(-steps // length), length - 1),
        )

    def _levels(self, kind: Callable[..., Any]) -> Iterator[Proposal]:
        """Multi-level Revolve where there are several tiers, at what each costs if one waits."""
        if len(self.tiers.names) < 2:
            return
        links, size = self.links, self.problem.state_bytes
        slots = {name: self.tiers.slots(name, size, links.on_gpu) for name in self.tiers.names}
        kept = {name: min(count, self.problem.steps) for name, count in slots.items() if count}
        if not kept:
            return
        words = ", ".join(f"{name}={count}" for name, count in kept.items())
        yield Proposal(
            f"MultiLevel({self.problem.steps}, {words})",
            lambda: kind(
                self.problem.steps,
                **kept,
                write_seconds={name: links.write_seconds(name, size) for name in kept},
                read_seconds={name: links.read_seconds(name, size) for name in kept},
                step_seconds=self.problem.step_seconds,
            ),
            Need(max(kept.values())),
            self.tiers,
            True,
        )

    def _placed(self, name: str, make: Callable[[], Any], need: Need) -> Proposal:
        """In the fewest tiers that hold it; in all of them if none do."""
        for tiers in self.prefixes:
            if stores_all(self.problem, tiers, self.links, need):
                return Proposal(name, make, need, tiers, True)
        return Proposal(name, make, need, self.tiers, False)


def stores_all(problem: Problem, tiers: Tiers, links: Links, need: Need) -> bool:
    """Whether one of the tiers holds all of it: bytes move on to where there is room for them."""
    return any(
        need.room(problem, tiers, name, links.on_gpu) <= tiers.capacity[name]
        for name in tiers.names
    )


def _between(few: int, many: int) -> list[int]:
    """Numbers between two, each about the same multiple of the one before."""
    if many <= few + 1:
        return []
    count = min(BETWEEN, max(1, round(math.log2(many / few))))
    factor = (many / few) ** (1 / count)
    return sorted({round(few * factor**power) for power in range(1, count)} - {few, many})
