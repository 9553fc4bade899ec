"""What a schedule says: plain actions, each with an English reading.

Steps are counted from 0; *state n* is the state before step n. There is one working state, the one
that the application computes with; it is state 0 at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Action", "Discard", "End", "Forward", "Restore", "Reverse", "Save"]

Word: TypeAlias = tuple[int, int, int, str | None]
"""An action as the extension writes it: kind, first number, second number, tier."""


@dataclass(frozen=True, slots=True)
class Forward:
    """`Forward(10, 25)` is read as: the working state is state 10; advance it over the steps 10 to
    24, so that it becomes state 25.

    Attributes:
        start: the working state's step.
        stop: its step afterwards, larger than `start`.
    """

    start: int
    stop: int

    def __str__(self) -> str:
        return f"advance state {self.start} to state {self.stop}"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 0, self.start, self.stop, None


@dataclass(frozen=True, slots=True)
class Save:
    """`Save(10)` is read as: the working state is state 10; keep a copy of it.

    Attributes:
        step: the working state's step.
        tier: the tier that the copy should rest in, `"device"`, `"host"` or `"disk"`, or None when
            the schedule does not tell tiers apart. One state may be kept in several tiers at once.
    """

    step: int
    tier: str | None = None

    def __str__(self) -> str:
        return f"save state {self.step}{_where('on', self.tier)}"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 1, self.step, 0, self.tier


@dataclass(frozen=True, slots=True)
class Restore:
    """`Restore(10)` is read as: whatever the working state was, it is now state 10, from its copy,
    which stays.

    Attributes:
        step: the step whose state was saved.
        tier: the tier that it was saved with.
    """

    step: int
    tier: str | None = None

    def __str__(self) -> str:
        return f"restore state {self.step}{_where('from', self.tier)}"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 2, self.step, 0, self.tier


@dataclass(frozen=True, slots=True)
class Reverse:
    """`Reverse(10)` is read as: the working state is state 10; take the adjoint back over step 10.
    The working state is as it was afterwards, or worthless: no action relies on it.

    Attributes:
        step: the working state's step.
    """

    step: int

    def __str__(self) -> str:
        return f"reverse step {self.step}"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 3, self.step, 0, None


@dataclass(frozen=True, slots=True)
class Discard:
    """`Discard(10)` is read as: the copy of state 10 is not needed again.

    Attributes:
        step: the step whose state was saved.
        tier: the tier that it was saved with.
    """

    step: int
    tier: str | None = None

    def __str__(self) -> str:
        return f"discard state {self.step}{_where('from', self.tier)}"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 4, self.step, 0, self.tier


@dataclass(frozen=True, slots=True)
class End:
    """`End()` is read as: every step was reversed and no copy is kept; nothing follows."""

    def __str__(self) -> str:
        return "end"

    def word(self) -> Word:
        """The action as a plain tuple."""
        return 5, 0, 0, None


Action: TypeAlias = Forward | Save | Restore | Reverse | Discard | End

KINDS = (Forward, Save, Restore, Reverse, Discard, End)
FORWARD, SAVE, RESTORE, REVERSE, DISCARD, END = range(len(KINDS))


def named(words: Iterable[Word]) -> Iterator[Action]:
    """The actions of tuples."""
    for kind, first, second, tier in words:
        if kind == FORWARD:
            yield Forward(first, second)
        elif kind == REVERSE:
            yield Reverse(first)
        elif kind == END:
            yield End()
        else:
            yield (Save, Restore, Discard)[_KEEPERS[kind]](first, tier)


_KEEPERS = {SAVE: 0, RESTORE: 1, DISCARD: 2}


def _where(preposition: str, tier: str | None) -> str:
    return "" if tier is None else f" {preposition} {tier}"
