"""Schedules made by chance: any order of actions that keeps the rules."""

from __future__ import annotations

import random
from collections.abc import Iterator

from unspool.schedules import Action, Discard, End, Forward, Restore, Reverse, Save

TIERS = [None, "device", "host", "disk"]


class Maker:
    """Writes actions down, and remembers what is kept."""

    def __init__(self, steps: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps, self.keenness = steps, self.random.random()
        self.kept: list[tuple[int, str | None]] = []

    def actions(self) -> Iterator[Action]:
        """A whole schedule."""
        yield from self.save(0, certainly=True)
        yield from self.advance(0, self.steps - 1)
        for step in reversed(range(self.steps)):
            if step < self.steps - 1 or self.random.random() < 0.3:
                yield from self.come_back(step)
            yield from self.discard_some(step)
            yield Reverse(step)
        yield from [Discard(*copy) for copy in self.kept]
        yield End()

    def save(self, step: int, certainly: bool = False) -> Iterator[Action]:
        """Keeps the working state, in no, one or several tiers."""
        for tier in self.random.sample(TIERS, 4):
            if (certainly or self.random.random() < self.keenness / 2) and (
                (step, tier) not in self.kept
            ):
                self.kept.append((step, tier))
                yield Save(step, tier)
                certainly = False

    def advance(self, start: int, stop: int) -> Iterator[Action]:
        """Goes on in pieces, and may save after each."""
        while start < stop:
            end = self.random.randint(start + 1, stop)
            yield Forward(start, end)
            yield from self.save(end)
            start = end

    def come_back(self, step: int) -> Iterator[Action]:
        """Restores some state, maybe several in vain, and advances to `step`."""
        useful = [copy for copy in self.kept if copy[0] <= step]
        for copy in self.random.choices(useful, k=self.random.choice([1, 1, 1, 2, 3])):
            yield Restore(*copy)
        gone = copy[0] > 0 and self.random.random() < 0.3
        if gone:
            self.kept.remove(copy)
            yield Discard(*copy)
        yield from self.save(copy[0])
        yield from self.advance(copy[0], step)

    def discard_some(self, step: int) -> Iterator[Action]:
        """Gives up what is of no use any more, and sometimes what would be."""
        for copy in list(self.kept):
            useless = copy[0] >= step
            if copy[0] > 0 and (useless or self.random.random() < 0.1):
                self.kept.remove(copy)
                yield Discard(*copy)


def random_schedule(steps: int, seed: int) -> list[Action]:
    """A valid list of actions, the same one for the same numbers."""
    return list(Maker(steps, seed).actions())
