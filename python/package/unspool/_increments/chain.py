"""The states of a history in the order in which they were saved, each built on the one after it.

The newest state is held in memory as whole numbers. It becomes a checkpoint of the spool when the
next one is saved: its difference to that, or all of it. Invariants: the newest state is whole;
every other one has its checkpoint; a state that is a difference has one above; a state that was
discarded is there only if the one below it is a difference.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from .._arrays import allocate, finish
from .._unspool import Spool
from ..errors import (
    CorruptCheckpointError,
    Error,
    LostCheckpointError,
    OptionError,
    StorageError,
    UnknownVersionError,
)
from .numbers import Form, Place, on_stream

__all__ = ["Chain", "Layout", "State", "Where"]

#: What the restore of a checkpoint raises that is damaged or gone.
UNREADABLE = (CorruptCheckpointError, LostCheckpointError, StorageError, UnknownVersionError)

#: The first of the versions in the spool for states whose own is in use there.
SPARE = -1 << 63

#: Where whole numbers lie: the place of each array, and the stream that they are computed on.
Where = tuple[tuple[Place, ...], int | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of a state: their names and forms, whether the names are those of the caller, and
    the text of what holds them, if names alone do not say it."""

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    by_name: bool
    text: bytes | None


@dataclass(slots=True, eq=False)
class State:
    """One state.

    Attributes:
        where: where its arrays were.
        key: the version of its checkpoint in the spool.
        below, above: the states saved before and after it.
        alive: whether it was not discarded.
        whole: whether it can be had without the one above.
        stored: whether its checkpoint in the spool is of use.
        run: how many differences in a row end with it.
        tier: the tier in which it should rest, if one was named.
    """

    version: int
    layout: Layout
    where: Where
    key: int = 0
    below: State | None = None
    above: State | None = None
    alive: bool = True
    whole: bool = True
    stored: bool = False
    run: int = 0
    tier: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The whole numbers of a state."""

    state: State
    where: Where
    numbers: list[Any]


class Chain:
    """States and their checkpoints in a spool."""

    def __init__(self, spool: Spool, full: int) -> None:
        self._spool, self._every = spool, full
        self._newest: State | None = None
        # The whole numbers of the newest state (not kept of one that was stored in full and is the
        # newest again), and of the one that was restored last.
        self._top: Held | None = None
        self._cursor: Held | None = None

    def push(self, new: State, numbers: list[Any]) -> None:
        """Adds a state. When the checkpoint of the one before cannot be saved, nothing is added."""
        held = Held(new, new.where, numbers)
        try:
            self._store(held)
        except Error as error:
            error.add_note(
                f"Version {new.version} is not saved: the state before it is stored first."
            )
            raise
        new.key, new.below = self._free(new.version), self._newest
        if self._newest is not None:
            self._newest.above = new
        self._newest, self._top, self._cursor = new, held, None

    def settle(self) -> None:
        """Stores the newest state in full."""
        if self._top is not None:
            places, stream = self._top.where
            with on_stream(stream, places):
                self._store(None)

    def prefer(self, state: State, tier: str) -> None:
        """Has a state rest in a tier, from when it is stored."""
        if state.stored:
            self._spool._prefer(state.key, tier)
        elif tier not in {one.name for one in self._spool.stats().tiers}:
            raise OptionError(f"This spool has no {tier} tier. Open it with one, or name another.")
        state.tier = tier

    def discard(self, state: State) -> None:
        """Removes a state, when none is built on it, and those that were waiting for that."""
        state.alive = False
        found: State | None = state
        while found and not found.alive and (found.below is None or found.below.whole):
            below, above = found.below, found.above
            if below is not None:
                below.above = above
            if above is not None:
                above.below = below
            else:
                self._newest, self._top = below, None
            if self._cursor is not None and self._cursor.state is found:
                self._cursor = None
            self._remove(found)
            found = above

    def numbers(self, state: State, where: Where) -> list[Any]:
        """The whole numbers of a state, in arrays of the places named."""
        if self._top is not None and self._top.where != where:
            self.settle()
            self._top = None
        held = [one for one in (self._top, self._cursor) if one and one.where == where]
        known = {one.state: one.numbers for one in held}
        at = state
        while at not in known and not at.whole and at.above is not None:
            at = at.above
        found = known[at] if at in known else self._read(at, state, where)
        while at is not state and at.below is not None:
            at = at.below
            less = self._read(at, state, where)
            # In place of what was read: new memory takes longer than the sum.
            pairs = zip(less, found, strict=True)
            found = [operator.iadd(operator.imul(one, -1), other) for one, other in pairs]
        self._cursor = Held(state, where, found)
        self._make_newest(self._cursor)
        return found

    def _store(self, after: Held | None) -> None:
        """Stores the newest state: as its difference to the one after it, or in full."""
        held = self._top
        # A difference that is stored already is to a state that was not added after it.
        if held is None or (held.state.stored and held.state.whole):
            return
        state, numbers, below = held.state, held.numbers, held.state.below
        run = 0 if below is None or below.whole else below.run + 1
        whole = run >= self._every - 1 or after is None or not _alike(held, after)
        if after is not None and not whole:
            numbers = list(map(operator.sub, after.numbers, numbers))
        # There is something under this version if an earlier try was interrupted.
        self._spool.save(state.key, *numbers, codec="lossless", overwrite=True)
        state.whole, state.stored, state.run = whole, True, run
        if state.tier is not None:
            self._spool._prefer(state.key, state.tier)

    def _read(self, at: State, wanted: State, where: Where) -> list[Any]:
        """The checkpoint of a state, which is read for another one or itself."""
        pairs = zip(at.layout.forms, where[0], strict=True)
        targets = [(form, place) for form, place in pairs for _ in range(form.arrays)]
        arrays = [allocate(form.shape or (1,), form.whole, *place) for form, place in targets]
        try:
            self._spool.restore(at.key, *arrays)
        except UNREADABLE as why:
            kind = LostCheckpointError if isinstance(why, UnknownVersionError) else type(why)
            text = f"The checkpoint of version {at.version} cannot be read: {why}"
            if at is not wanted:
                text = f"Version {wanted.version} is built on version {at.version}. {text}"
            raised = kind(text)
            raised.retryable = why.retryable
            raise raised from why
        return [finish(one, *place) for one, (_, place) in zip(arrays, targets, strict=True)]

    def _make_newest(self, held: Held) -> None:
        """Removes the states above this one if all of them were discarded."""
        state, above = held.state, held.state.above
        while above is not None and not above.alive:
            above = above.above
        if above is not None or state is self._newest:
            return
        gone, state.above = state.above, None
        self._newest, self._top = state, held
        if not state.whole:
            # What is held takes the place of the difference, which nothing is added to any more.
            state.whole, state.stored = True, False
            self._remove(state)
        while gone is not None:
            self._remove(gone)
            gone = gone.above

    def _free(self, version: int) -> int:
        """The version in the spool of a new state: another one than its own where that is in use by
        a state that was discarded, and that others are built on."""
        if version in self._spool:
            version = SPARE
            while version in self._spool:
                version += 1
        return version

    def _remove(self, state: State) -> None:
        """Takes the checkpoint of a state out of the spool."""
        if state.key in self._spool:
            self._spool.discard(state.key)


def _alike(one: Held, other: Held) -> bool:
    """Whether two states can be subtracted."""
    mine, others = one.state.layout, other.state.layout
    return one.where == other.where and (mine.names, mine.forms) == (others.names, others.forms)
