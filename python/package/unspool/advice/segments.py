"""How a loop keeps what its gradient needs: decided from sizes alone.

A backward pass takes the steps from the last to the first. What a step saves for it is kept, or
forgotten and recomputed with its segment from the state at which that begins. The steps of a loop
are `count` segments of equal length, whose states wait in memory or in a spool, and then perhaps a
last piece, of which everything is kept: it is gone when the first segment is recomputed. So the
most bytes at once are those of the waiting states and of the longest piece. With a last piece,
inputs and outputs of the loop are in two arrays, which are copies.

Nothing here knows JAX, moves a byte or reads a clock.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..stats import size, table

__all__ = ["Cut", "ScanReport", "Sizes", "Way", "balanced", "best", "least"]


class Way(enum.StrEnum):
    """Where the states wait at which recomputed segments begin."""

    KEEP = "keep"
    RECOMPUTE = "recompute"
    SPOOL = "recompute, states in a spool"


#: The time that a segment takes for its state, in steps: it is copied twice, or crosses the link
#: twice. For a wave on an H100 that is 1.3 steps, or 2 to 13, as some of it hides behind computing.
PRICE = {Way.KEEP: 0, Way.RECOMPUTE: 1, Way.SPOOL: 8}

#: The fewest segments. XLA has no loop for a single one, sees that the same is computed twice, and
#: keeps it.
FEWEST = {Way.RECOMPUTE: 2, Way.SPOOL: 1}

#: States of a spool that are in memory at once: one is saved or restored while another is used.
STAGED = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a loop takes.

    Attributes:
        steps: their number.
        saved: bytes that one step saves for its gradient.
        state: bytes of the carry.
        fixed: bytes that are there in any case: of the step that is running, and what is saved once
            for all steps.
        rows: bytes of the inputs and outputs of all steps.
        shared: whether a spool would be in the same memory. It may then take half of it.
    """

    steps: int
    saved: int
    state: int
    fixed: int = 0
    rows: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a loop.

    Attributes:
        way: where states wait.
        count: the number of recomputed segments.
        segment: steps in each of them.
        kept: the last steps, of which everything is kept; 0 where segments are all.
    """

    way: Way
    count: int
    segment: int
    kept: int

    @property
    def recomputed(self) -> int:
        """The steps that are computed once more."""
        return self.count * self.segment

    @property
    def cost(self) -> int:
        """The time beyond that of the loop with everything kept, in steps."""
        return self.recomputed + self.count * PRICE[self.way]

    def bytes(self, of: Sizes) -> int:
        """The most at once."""
        waiting, parts = self.count, 1
        if self.way is Way.SPOOL:
            waiting, parts = min(waiting, STAGED), 1 + of.shared
        pieces = parts * (waiting * of.state + max(self.kept, self.segment) * of.saved)
        return of.fixed + pieces + (of.rows if self.count and self.kept else 0)


def best(of: Sizes, budget: int, ways: Sequence[Way]) -> Cut | None:
    """The fastest cut within `budget` bytes, or None where nothing fits. Everything is kept where
    that fits, and otherwise states wait in one of these ways. A larger budget is never slower."""
    room = budget - of.fixed
    if of.steps * of.saved <= room:
        return _all(of)
    cuts = [
        cut for way in ways for cut in (_even(way, of, budget), _uneven(way, of, room - of.rows))
    ]
    return min((cut for cut in cuts if cut is not None), key=lambda cut: cut.cost, default=None)


def least(of: Sizes, ways: Sequence[Way]) -> int:
    """The smallest budget in which something fits."""
    budgets = range(_all(of).bytes(of) + 1)
    return bisect.bisect_left(budgets, True, key=lambda each: best(of, each, ways) is not None)


def balanced(of: Sizes) -> int:
    """The budget for one segment that takes as many bytes as all waiting states: together they
    are fewest. Copies of inputs and outputs have room."""
    steps = math.isqrt(of.steps * of.state // max(of.saved, 1))
    pieces = STAGED * of.state + min(max(steps, 1), of.steps) * of.saved
    return of.fixed + of.rows + pieces


def _all(of: Sizes) -> Cut:
    return Cut(Way.KEEP, 0, 0, of.steps)


def _even(way: Way, of: Sizes, budget: int) -> Cut | None:
    """The fewest segments without a last piece."""
    cuts = (Cut(way, count, of.steps // count, 0) for count in _divisors(of.steps))
    fits = (cut for cut in cuts if cut.count >= FEWEST[way] and cut.bytes(of) <= budget)
    return next(fits, None)


@functools.lru_cache
def _divisors(steps: int) -> list[int]:
    small = [each for each in range(1, math.isqrt(steps) + 1) if steps % each == 0]
    return sorted({*small, *(steps // each for each in small)})


def _uneven(way: Way, of: Sizes, room: int) -> Cut | None:
    """The fastest cut into segments and a last piece."""
    if of.saved == 0:
        return None
    found: Cut | None = None
    # Fewer segments would be longer than the room.
    fewest = -(-of.steps // max(room // of.saved, 1)) - 1
    for count in itertools.count(max(fewest, FEWEST[way])):
        here = room // 2 if of.shared and way is Way.SPOOL else room
        waiting = min(count, STAGED) if way is Way.SPOOL else count
        longest = (here - waiting * of.state) // of.saved
        if longest < 1 or count >= of.steps:
            break
        if found is not None and of.steps - longest + count * PRICE[way] >= found.cost:
            break
        segment = -(-(of.steps - longest) // count)
        one = Cut(way, count, segment, of.steps - count * segment)
        if segment <= longest and (found is None or one.cost < found.cost):
            found = one
    return found


@dataclass(frozen=True, slots=True)
class ScanReport:
    """How a loop keeps what its gradient needs, and what other budgets would gain; `print` it.

    Attributes:
        budget: bytes.
        sizes: what the loop takes.
        cut: what was chosen.
        ways: what could be chosen besides keeping everything.
    """

    budget: int
    sizes: Sizes
    cut: Cut
    ways: tuple[Way, ...]

    @property
    def expected_bytes(self) -> int:
        """The most bytes at once of what is kept for the gradient."""
        return self.cut.bytes(self.sizes)

    @property
    def kept_bytes(self) -> int:
        """The bytes of everything: a budget with which nothing is recomputed."""
        return _all(self.sizes).bytes(self.sizes)

    def __str__(self) -> str:
        of = self.sizes
        head = (
            f"{of.steps:,} steps within {size(self.budget)}: a state has {size(of.state)}, and a "
            f"step saves {size(of.saved)} for its gradient"
        )
        cuts = [(self.budget, self.cut), *self._others()]
        rows = [("budget", "bytes at once", "recomputed", "segments", "way")]
        return f"{head}\n\n{table([*rows, *(_row(of, *cut) for cut in cuts)])}"

    def _others(self) -> list[tuple[int, Cut]]:
        """Other budgets, and what would be chosen with them."""
        budgets = {self.budget // 2, self.budget * 2, self.budget * 4, self.kept_bytes}
        tried = [(each, best(self.sizes, each, self.ways)) for each in sorted(budgets)]
        return [(each, cut) for each, cut in tried if cut is not None and cut != self.cut]


def _row(of: Sizes, budget: int, cut: Cut) -> tuple[str, ...]:
    segments = f"{cut.count:,} x {cut.segment:,}" if cut.count else "-"
    recomputed = f"{100 * cut.recomputed / max(of.steps, 1):.0f} %"
    return size(budget), size(cut.bytes(of)), recomputed, segments, str(cut.way)
