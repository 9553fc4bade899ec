"""Our schedules under the interface of checkpoint_schedules.

A save of ours is part of a Forward of theirs: it writes the restart data of the Forward's first
step. Reversing step n is a Forward over step n that writes the adjoint's data, then the Reverse. A
restore is a Copy, or a Move when nothing restores that copy again.

Restart data of theirs serves the steps of the Forward that wrote it, so a copy may be run on from
only as far as the next one that was saved. Most schedules of ours keep to that; those that do not
are refused when they are made, unless the user says that restart data is a whole state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import checkpoint_schedules as theirs
from unspool.errors import ScheduleError
from unspool.interop.checkpoint_schedules.lookahead import Lookahead, only_reversed
from unspool.schedules.actions import Action, Discard, Forward, Restore, Reverse, Save
from unspool.schedules.base import Schedule
from unspool.schedules.native import StoreAll, ZCut

__all__ = ["Offered"]

_WORK, _NONE = theirs.StorageType.WORK, theirs.StorageType.NONE


class _Copy:
    """A checkpoint in one of their storages.

    Attributes:
        restarts: whether the forward may start from it; it holds the adjoint's data otherwise.
        serves: the state up to which the forward may be run on from it.
        users: how many of our copies it stands for: two tiers of ours may be one storage.
    """

    def __init__(self, restarts: bool, serves: int, users: int) -> None:
        self.restarts = restarts
        self.serves = serves
        self.users = users


class Offered(theirs.CheckpointSchedule):  # type: ignore[misc]
    """A schedule of ours, to be iterated over once."""

    def __init__(
        self,
        schedule: Schedule,
        storages: Mapping[str | None, Any],
        used: Set[Any],
        adjoint_data: bool | None = None,
        whole_states: bool = False,
    ) -> None:
        super().__init__(schedule.steps)
        self._schedule = schedule
        self._storages = storages
        self._used = used
        self._whole_states = whole_states
        if adjoint_data is None:
            adjoint_data = isinstance(schedule, StoreAll | ZCut)
        # Made with the first action, so that an object of which none was taken can be copied.
        self._source: Lookahead
        self._adjoint_data = adjoint_data
        self._for_the_adjoint: Iterator[bool] = iter(())
        self._copies: dict[tuple[int, Any], _Copy] = {}
        self._pending: list[tuple[Save, bool]] = []  # With: is it only for the adjoint?
        self._at = 0  # The state in their working storage, for the forward.
        self._at_hand: int | None = None  # The step whose adjoint data is there.
        self._forward_ended = False
        self._exhausted = False

    @property
    def is_exhausted(self) -> bool:
        """Whether the adjoint sweep has ended; there is only one."""
        return self._exhausted

    def uses_storage_type(self, storage_type: Any) -> bool:
        """Whether copies may be kept there; the working storage always is used."""
        return storage_type == _WORK or storage_type in self._used

    def finalize(self, n: int) -> None:
        """Says how many steps there are, once the forward has done them."""
        if self._max_n is None and 1 <= n <= self._n:
            self._source.finish(n)
            self._at = n
        super().finalize(n)

    def _iterator(self) -> Iterator[Any]:
        self._source = Lookahead(self._schedule)
        if self._adjoint_data:
            self._for_the_adjoint = only_reversed(self._schedule)
        for action in self._source:
            yield from self._translated(action)
        self._exhausted = True
        yield theirs.EndReverse()

    def _translated(self, action: Action) -> Iterator[Any]:
        match action:
            case Save():
                self._pending.append((action, next(self._for_the_adjoint, False)))
            case Forward():
                known = self._max_n is not None
                yield from self._advance(self._source.run(action) if known else action.stop)
            case Restore():
                yield from self._load(action)
            case Reverse():
                yield from self._reverse(action.step)
            case Discard():
                yield from self._discard(action)

    # Forward.

    def _advance(self, stop: int) -> Iterator[Any]:
        """From the working state to state `stop`, writing what is to be saved."""
        yield from self._write(stop)
        if self._at < stop and not self._is_over():
            yield self._forward(stop, False, False, _WORK if self._forward_ended else _NONE)
        if self._is_over() and not self._forward_ended:
            self._forward_ended = True
            yield theirs.EndForward()

    def _is_over(self) -> bool:
        """Whether the forward is where it ends; `finalize` may have said so just now."""
        return self._max_n is not None and self._at == self._max_n

    def _write(self, stop: int) -> Iterator[Any]:
        """The pending saves of the working state: a Forward that writes one, and copies of it."""
        pending, self._pending = self._pending, []
        restarts = any(not adjoint for _, adjoint in pending)
        step, source = self._at, None
        for save, _ in pending:
            storage = self._storages[save.tier]
            copy = self._copies.get((step, storage))
            if copy is not None and (copy.restarts or not restarts):
                copy.users += 1
                continue
            if copy is not None:
                # It holds the adjoint's data; the forward is to start from it now.
                yield theirs.Move(step, storage, _NONE)
            users = 1 if copy is None else copy.users + 1
            self._copies[step, storage] = _Copy(restarts, stop, users)
            if source is None:
                source = storage
                yield self._forward(stop if restarts else step + 1, restarts, not restarts, storage)
            else:
                yield theirs.Copy(step, source, storage)

    def _forward(self, stop: int, restart: bool, adjoint: bool, storage: Any) -> Any:
        """One Forward of theirs."""
        start, self._at, self._n = self._at, stop, stop
        return theirs.Forward(start, stop, restart, adjoint, storage)

    def _end_forward(self) -> Iterator[Any]:
        """The rest of the forward, where a schedule goes back before its last step."""
        if self._max_n is None:
            raise ScheduleError("the schedule restores before the number of steps is known")
        yield from self._advance(self._max_n)

    # Copies.

    def _load(self, restore: Restore) -> Iterator[Any]:
        if Save(restore.step, restore.tier) in self._waiting():
            return
        if self._pending:
            yield from self._write(self._at + 1)
        if not self._forward_ended:
            yield from self._end_forward()
        storage = self._storages[restore.tier]
        if restore.step >= self._max_n - self._r:
            # Every step that it could serve was reversed.
            self._at = restore.step
            return
        copy = self._serving(restore, storage)
        released = self._source.releases(restore) and self._is_released(restore.step, storage)
        self._at, self._n = restore.step, restore.step
        self._at_hand = None if copy.restarts else restore.step
        yield (theirs.Move if released else theirs.Copy)(restore.step, storage, _WORK)

    def _serving(self, restore: Restore, storage: Any) -> _Copy:
        """The copy that is restored, if it can serve all that it may be used for."""
        copy = self._copies[restore.step, storage]
        left = self._max_n - self._r
        if copy.restarts and copy.serves < left and not self._whole_states:
            raise ScheduleError(
                f"{restore}: checkpoint_schedules restarts from that copy only up to state "
                f"{copy.serves}, where the next one was saved, and {left} steps are left to "
                "reverse; whole_states=True allows it where restart data is a whole state"
            )
        return copy

    def _waiting(self) -> list[Save]:
        """The saves of the working state that no Forward has written yet."""
        return [save for save, _ in self._pending]

    def _is_released(self, step: int, storage: Any) -> bool:
        """Takes one user from a copy; whether it was the last."""
        copy = self._copies[step, storage]
        copy.users -= 1
        if not copy.users:
            del self._copies[step, storage]
        return not copy.users

    def _discard(self, discard: Discard) -> Iterator[Any]:
        saved = Save(discard.step, discard.tier)
        if saved in self._waiting():
            del self._pending[self._waiting().index(saved)]
            return
        storage = self._storages[discard.tier]
        written = (discard.step, storage) in self._copies
        if written and self._is_released(discard.step, storage):
            yield theirs.Move(discard.step, storage, _NONE)

    # The adjoint.

    def _reverse(self, step: int) -> Iterator[Any]:
        # No step that is still to be reversed could be reached from these.
        self._pending.clear()
        if self._at_hand != step:
            yield from self._record(step)
        self._at_hand = None
        self._r += 1
        yield theirs.Reverse(step + 1, step, True)

    def _record(self, step: int) -> Iterator[Any]:
        """Computes the adjoint data of a step; that of the last step ends the forward."""
        if self._at != step:
            raise ScheduleError(f"step {step} is reversed from state {self._at}")
        yield self._forward(step + 1, False, True, _WORK)
        if not self._forward_ended:
            self._forward_ended = True
            yield theirs.EndForward()
