"""The copies of one adjoint run in a spool, with exact hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from unspool import Error, Spool
from unspool._adjoint import LOOKAHEAD
from unspool._adjoint.hints import Feeder
from unspool._adjoint.source import source_of
from unspool._history import checked
from unspool._unspool import Ahead
from unspool.errors import ClosedError, UnknownVersionError, VersionExistsError
from unspool.schedules import Schedule

__all__ = ["Keeper", "frame_bytes"]

_PAGE = 4096


def frame_bytes(arrays: Iterable[Any]) -> int:
    """The room to plan for one copy of these arrays in a tier, in bytes: their items, what
    alignment adds, and the head that a frame has on disk."""
    payload = sum(_nbytes(array) + 64 for array in arrays)
    return (payload // _PAGE + 3) * _PAGE


def _nbytes(array: Any) -> int:
    nbytes = getattr(array, "nbytes", None)
    return memoryview(array).nbytes if nbytes is None else int(nbytes)


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
        self._schedule: Schedule | None = None
        self._feeder: Feeder | None = None
        self.spool: Spool | None = None
        if spool is not None:
            self._use(checked("Revolver", spool))

    def steps(self, tier: str | None = None) -> list[int]:
        """The steps whose states are kept now, or kept in this tier, in ascending order."""
        return sorted(n for n, tiers in self._copies.items() if tier is None or tier in tiers)

    def begin(self, schedule: Schedule) -> None:
        """Begins a run whose restores will be those of this schedule."""
        self._schedule = schedule
        self._look_ahead()

    def end(self) -> None:
        """Ends a run: all of its restores were made."""
        self._schedule = self._feeder = None

    def save(self, step: int, arrays: Sequence[Any], tier: str | None = None) -> None:
        """Keeps a copy of the state before `step`, which is in these arrays."""
        if step not in self._copies:
            self._put(step, arrays)
        self._copies.setdefault(step, []).append(tier)
        self._prefer(step)

    def restore(self, step: int, arrays: Sequence[Any]) -> None:
        """Writes the state before `step` into these arrays."""
        if self.spool is not None and step not in self._bare:
            self.spool.restore(self._first + step, *arrays)
        if self._feeder is not None:
            self._feeder.restored()

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
        hinted = self._feeder is not None
        self.end()
        for kept in (self._copies, self._bare, self._preferred):
            kept.clear()
        if self.spool is None:
            return
        if hinted:
            with suppress(Error):
                self.spool.forget_hints()
        for step in left:
            with suppress(Error):
                self.spool.discard(self._first + step)

    def close(self) -> None:
        """Gives everything up, and closes the spool if it belongs to the Revolver."""
        self.drop()
        if self._owned and self.spool is not None:
            with suppress(ClosedError):
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
            self._look_ahead()
        assert self.spool is not None
        try:
            self.spool.save(self._first + step, *arrays)
        except (VersionExistsError, UnknownVersionError):
            raise  # Somebody else's.
        except BaseException:
            with suppress(Error):
                self.spool.discard(self._first + step)
            raise

    def _prefer(self, step: int) -> None:
        """Tells the spool the fastest tier in which the schedule keeps this state, when that is not
        what it was told before. At first it is the fastest of all."""
        tiers = self._copies[step]
        rank = min(self._tiers.index(t) if t in self._tiers else 0 for t in tiers)
        if rank == self._preferred.get(step, 0) or step in self._bare:
            return
        assert self.spool is not None
        self.spool._prefer(self._first + step, self._tiers[rank])
        self._preferred[step] = rank

    def _look_ahead(self) -> None:
        """Begins the dry run, as soon as there is a spool to tell."""
        if self.spool is not None and self._schedule is not None:
            twin = source_of(self._schedule).twin(self._schedule.steps)
            self._feeder = Feeder(self.spool, Ahead(self._first), twin, LOOKAHEAD)
