"""The copies of one adjoint run in a spool, with exact hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from unspool import Error, ForkedError, OptionError, Spool
from unspool._unspool import Ahead
from unspool.schedules import Schedule
from unspool.schedules.base import Native

__all__ = ["Keeper", "frame_bytes"]

#: Restores that are announced ahead of the one that comes next: at least, and what is added then.
#: More than a fast tier has room for, and enough to see which restore of a copy is its last.
AHEAD = 1024
_BATCH = 128

_PAGE = 4096


def frame_bytes(arrays: Iterable[Any]) -> int:
    """The room to plan for one copy of these arrays in a tier, in bytes: their items, what
    alignment adds, and the head that a frame has on disk."""
    payload = sum(_nbytes(array) + 64 for array in arrays)
    return (payload // _PAGE + 3) * _PAGE


def _nbytes(array: Any) -> int:
    nbytes = getattr(array, "nbytes", None)
    return memoryview(array).nbytes if nbytes is None else int(nbytes)


def _refuse_discarding(spool: Spool) -> None:
    if getattr(spool, "discard_after_restore", False):
        raise OptionError(
            "spool= was opened with discard_after_restore=True: it would give up copies that are "
            "restored again. Open it without; each copy is discarded after its last use anyway."
        )


class Keeper:
    """Does what a schedule says about copies: `save`, `restore`, `discard`, by step.

    State n is version `first + n` of the spool. A state that a schedule keeps in two tiers at once
    is one version: the spool moves bytes between its tiers by itself; it is told which tier is the
    fastest that the schedule keeps it in, and discards it with the last of these copies. States
    without any array take no version.

    Arguments:
        open_spool: called at the first save with the arrays of that state; gives the spool.
        spool: the user's spool, which is used instead and not closed.
        first: the version of state 0.
    """

    def __init__(
        self, open_spool: Callable[[Sequence[Any]], Spool], spool: Spool | None, *, first: int
    ) -> None:
        self._open = open_spool
        self._owned = spool is None
        self._first = first
        #: For each state that is kept, the tiers of its copies; None where the schedule has none.
        self._copies: dict[int, list[str | None]] = {}
        self._bare: set[int] = set()
        #: The spool's tiers, fastest first: strings.
        self._tiers: list[Any] = []
        self._preferred: dict[int, int] = {}
        self._order: _Order | None = None
        self._announced = 0
        self.spool: Spool | None = None
        if spool is not None:
            _refuse_discarding(spool)
            self._use(spool)

    def steps(self, tier: str | None = None) -> list[int]:
        """The steps whose states are kept now, or kept in this tier, in ascending order."""
        return sorted(n for n, tiers in self._copies.items() if tier is None or tier in tiers)

    def begin(self, schedule: Schedule) -> None:
        """Begins a run whose restores will be those of this schedule."""
        self._order = _Order(schedule, self._first)
        self._announced = 0
        self._announce()

    def save(self, step: int, arrays: Sequence[Any], tier: str | None = None) -> None:
        """Keeps a copy of the state before `step`, which is in these arrays."""
        if step not in self._copies:
            self._put(step, arrays)
        self._copies.setdefault(step, []).append(tier)
        self._prefer(step)

    def restore(self, step: int, arrays: Sequence[Any]) -> None:
        """Writes the state before `step` into these arrays."""
        if self.spool is None:
            return
        self._announced -= 1
        if step not in self._bare:
            self.spool.restore(self._first + step, *arrays)
        self._announce()

    def discard(self, step: int, tier: str | None = None) -> None:
        """Gives up the copy of the state before `step` in this tier."""
        self._copies[step].remove(tier)
        if self._copies[step]:
            self._prefer(step)
            return
        del self._copies[step]
        self._preferred.pop(step, None)
        if step in self._bare:
            self._bare.remove(step)
        elif self.spool is not None:
            self.spool.discard(self._first + step)

    def drop(self) -> None:
        """Gives everything up that is left of a run. Nothing is raised: the spool may be the reason
        why the run has ended."""
        left = self._copies.keys() - self._bare
        announced, self._announced = self._announced, 0
        self._order = None
        for kept in (self._copies, self._bare, self._preferred):
            kept.clear()
        if self.spool is None:
            return
        if announced > 0:
            with suppress(Error):
                self.spool.forget_hints()
        for step in left:
            with suppress(Error):
                self.spool.discard(self._first + step)

    def close(self) -> None:
        """Gives everything up, and closes the spool if it belongs to the Revolver."""
        self.drop()
        if self._owned and self.spool is not None:
            with suppress(ForkedError):
                self.spool.close()

    def _use(self, spool: Spool) -> None:
        self.spool = spool
        self._tiers = [tier.name for tier in spool.stats().tiers]

    def _put(self, step: int, arrays: Sequence[Any]) -> None:
        if not arrays:
            self._bare.add(step)
            return
        if self.spool is None:
            self._use(self._open(arrays))
            self._announce()
        assert self.spool is not None
        self.spool.save(self._first + step, *arrays)

    def _prefer(self, step: int) -> None:
        """Tells the spool the fastest tier in which the schedule keeps this state, when that is not
        what it was told before. At first it is the fastest of all."""
        tiers = self._copies[step]
        rank = min(self._tiers.index(t) if t in self._tiers else 0 for t in tiers)
        if rank == self._preferred.get(step, 0) or step in self._bare:
            return
        assert self.spool is not None
        self.spool.prefer(self._first + step, self._tiers[rank])
        self._preferred[step] = rank

    def _announce(self) -> None:
        """Announces more restores when fewer than `AHEAD` of them are to come."""
        if self.spool is None or self._order is None or self._announced >= AHEAD:
            return
        versions, last = self._order.take(AHEAD + _BATCH - self._announced)
        if versions:
            self._announced += len(versions)
            self.spool.expect(versions, last=last)


class _Order:
    """The restores of a schedule, from a dry run of it."""

    def __init__(self, schedule: Schedule, first: int) -> None:
        self._ahead = Ahead(first)
        self._core = schedule.core if isinstance(schedule, Native) else None
        self._actions = iter(() if self._core is not None else schedule)

    def take(self, count: int) -> tuple[list[int], list[bool]]:
        """About the next `count` versions, and whether each is discarded when it was restored; none
        at the end."""
        if self._core is not None:
            return self._ahead.draw(self._core, count)
        versions: list[int] = []
        last: list[bool] = []
        while len(versions) < count:
            words = [action.word() for action in islice(self._actions, count)]
            if not words:
                break
            more = self._ahead.see(words)
            versions += more[0]
            last += more[1]
        return versions, last
