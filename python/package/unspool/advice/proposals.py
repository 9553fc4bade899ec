"""Schedules that are worth a forecast, for the tiers that there are.

A schedule that fits into the faster tiers is proposed for a spool with only those: what no slower
tier is needed for, none has to carry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from .. import schedules
from .links import Links
from .plans import Problem
from .sizes import Tiers

#: What is compared, by the names of classes in `unspool.schedules`.
KINDS = ("StoreAll", "Revolve", "Uniform", "ZCut", "MultiLevel")

#: Lengths of zCut's cuts: that of the published figures (33 to 41), and shorter ones, for little
#: computing and much memory.
PUBLISHED, SHORT = 36, (2, 4, 8, 16)

#: The most steps for which multi-level schedules are made: that takes a second and more.
MANY = 50_000

#: Shares of the costs of waiting for a tier that multi-level schedules are made for.
COSTS = (1.0, 0.25)

#: A copy that takes longer than so many steps is dear.
DEAR = 0.25

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

    def room(self, problem: Problem) -> int:
        """The bytes that they have."""
        return self.states * problem.state_held + self.parts * problem.reverse_held

    def fits(self, problem: Problem, tiers: Tiers, on_gpu: bool) -> bool:
        """Whether the tiers hold all of them together: states first, parts in what is left."""
        states, parts = self.states, self.parts
        for name in tiers.names:
            left = problem.left_in(name, tiers)
            room = tiers.room(name, problem.state_held, on_gpu)
            here = min(states, left // room)
            states, left = states - here, left - here * room
            parts -= min(parts, left // tiers.room(name, problem.reverse_held, on_gpu))
        return states == 0 and parts == 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """One schedule on one spool.

    Attributes:
        kind: the name of its class in `unspool.schedules`.
        name: for people.
        make: makes the schedule of so many steps.
        need: the most that it keeps at a time.
        tiers: those of the spool.
        fits: whether they hold that.
    """

    kind: str
    name: str
    make: Callable[[int], Any]
    need: Need
    tiers: Tiers
    fits: bool


def proposals(
    problem: Problem, tiers: Tiers, links: Links, kinds: Container[str] = KINDS
) -> list[Proposal]:
    """What is worth a forecast, and what does not fit; each of it once, of these kinds."""
    maker = _Maker(problem, tiers, links)
    found = {proposal.name: proposal for proposal in maker.all() if proposal.kind in kinds}
    return list(found.values())


class _Maker:
    """Makes the proposals for one problem."""

    def __init__(self, problem: Problem, tiers: Tiers, links: Links) -> None:
        self.problem, self.tiers, self.links = problem, tiers, links
        self.prefixes = [tiers.first(count) for count in range(1, len(tiers.names) + 1)]
        #: States that fit into the one, the two, ... fastest tiers, as many as are of use.
        most = problem.steps - 1
        self.slots = [min(problem.slots(part, links), most) for part in self.prefixes]

    def all(self) -> Iterator[Proposal]:
        steps = self.problem.steps
        yield self._placed("StoreAll", f"({steps})", schedules.StoreAll, Need(0, steps - 1))
        for slots in self._counts():
            yield self._with_slots(schedules.Revolve, slots)
        for slots in self._counts() if self._dear() else self._useful(set(self.slots)):
            yield self._with_slots(schedules.Uniform, slots)
        for length in self._lengths():
            yield self._placed(
                "ZCut",
                f"({steps}, length={length})",
                partial(schedules.ZCut, length=length),
                Need(-(-steps // length), length - 1),
            )
        for share in COSTS:
            yield from self._levels(schedules.MultiLevel, share)

    def _with_slots(self, kind: Any, slots: int) -> Proposal:
        words = f"({self.problem.steps}, {slots})"
        return self._placed(kind.__name__, words, lambda steps: kind(steps, slots), Need(slots))

    def _counts(self) -> list[int]:
        """Numbers of slots: what fits into the fastest tiers, into all, and some between."""
        found = set(self.slots)
        for few, many in pairwise(self.slots):
            # Less the fastest tier: that one is left to what is read ahead of time.
            spare = many - self.slots[0] if many < self.problem.steps - 1 else many
            found |= {spare, *_between(max(few, 1), many)}
        if self._dear():
            found |= {self.slots[-1] >> power for power in range(1, self.slots[-1].bit_length())}
        return self._useful(found)

    def _dear(self) -> bool:
        """Whether copies take so long, compared with steps, that fewer of them may be faster than
        as many as fit."""
        problem, links = self.problem, self.links
        size = problem.state_bytes
        seconds = problem.save_seconds(links, size) + links.first_touch * problem.state_held
        return seconds > DEAR * problem.step_seconds

    def _useful(self, counts: set[int]) -> list[int]:
        """Some slots, and fewer than what `StoreAll` keeps: at least one number."""
        return sorted(slots for slots in counts if 0 < slots < self.problem.steps - 1) or [1]

    def _lengths(self) -> list[int]:
        """Lengths of zCut's cuts: those of the least memory and of the published figures, those of
        which the inside fits into a faster tier, and those whose starts no link holds up.
        """
        problem, links = self.problem, self.links
        ratio = problem.state_bytes / problem.reverse_bytes
        found = {*SHORT, PUBLISHED, round(math.sqrt(problem.steps * ratio))}
        for name in self.tiers.names[:-1] or self.tiers.names:
            inside = self.tiers.slots(name, problem.reverse_held, links.on_gpu)
            found |= {inside - 2, inside // 2}
        for link in links.links:
            seconds = link.flush.seconds(problem.state_held)
            hidden = math.ceil(seconds / max(problem.step_seconds, seconds / problem.steps))
            found |= {hidden, 2 * hidden}
        return sorted(length for length in found if 2 <= length < problem.steps)

    def _levels(self, kind: Any, share: float) -> Iterator[Proposal]:
        """Multi-level Revolve where there are several tiers, at a share of what it costs to wait
        for each: a spool hides the rest behind the steps.
        """
        problem, links = self.problem, self.links
        slots = {name: problem.slots_in(name, self.tiers, links) for name in self.tiers.names}
        kept = {name: min(count, problem.steps) for name, count in slots.items() if count}
        if len(kept) < 2 or problem.steps > MANY:
            return
        words = ", ".join(f"{name}={count}" for name, count in kept.items())
        costs = "" if share == 1 else f", at {share:.0%} of the costs"
        make = partial(
            kind,
            **kept,
            write_seconds={name: share * problem.write_seconds(links, name) for name in kept},
            read_seconds={name: share * problem.read_seconds(links, name) for name in kept},
            step_seconds=problem.step_seconds,
        )
        words = f"({problem.steps}, {words}{costs})"
        need = Need(sum(kept.values()))
        yield Proposal("MultiLevel", f"MultiLevel{words}", make, need, self.tiers, True)

    def _placed(self, kind: str, words: str, make: Callable[[int], Any], need: Need) -> Proposal:
        """In the fewest tiers that hold it; in all of them if none do."""
        for tiers in self.prefixes:
            if need.fits(self.problem, tiers, self.links.on_gpu):
                return Proposal(kind, kind + words, make, need, tiers, True)
        return Proposal(kind, kind + words, make, need, self.tiers, False)


def _between(few: int, many: int) -> list[int]:
    """Numbers between two, each about the same multiple of the one before."""
    if many <= few + 1:
        return []
    count = min(BETWEEN, max(1, round(math.log2(many / few))))
    factor = (many / few) ** (1 / count)
    return sorted({round(few * factor**power) for power in range(1, count)} - {few, many})
