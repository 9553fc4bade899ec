"""Schedules of theirs as ours: for a known number of steps, and for one found on the way."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from unspool.errors import ScheduleError
from unspool.interop.checkpoint_schedules.prune import Key, prune
from unspool.interop.checkpoint_schedules.translate import Translator
from unspool.schedules.actions import Action, Forward, Save
from unspool.schedules.base import Schedule
from unspool.schedules.native import Listed

__all__ = ["Known", "Online"]


class Known(Listed):
    """A schedule of theirs for a known number of steps, translated when it is made.

    Copies are discarded after their last use, which may be earlier than theirs are, and those that
    nobody restores are not made.
    """

    def __init__(self, source: Any, steps: int, tiers: Mapping[Any, str | None]) -> None:
        if steps < 1:
            raise ScheduleError(f"a schedule needs at least one step, not {steps}")
        super().__init__(prune(list(Translator(_copy(source), steps, tiers).actions())))
        self._name = type(source).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return Listed, (list(self),)

    def __repr__(self) -> str:
        return f"<{self._name} of checkpoint_schedules: {self.steps} steps, {self.slots} slots>"


class Online(Schedule):
    """A schedule of theirs whose number of steps is found while it runs.

    Attributes:
        steps: None: the number is not known.
        slots: None: the number of copies depends on that of the steps.
    """

    def __init__(self, source: Any, tiers: Mapping[Any, str | None]) -> None:
        self._source = source
        self._tiers = tiers
        self.steps = self.slots = None
        # What computes no adjoint is refused now, not after a long forward pass.
        Known(source, 1, tiers)

    def actions(self) -> _OnlineActions:
        """A new iterator, which is told the number of steps with `finish`."""
        return _OnlineActions(Translator(_copy(self._source), None, self._tiers))

    def __repr__(self) -> str:
        return f"<{type(self._source).__name__} of checkpoint_schedules, steps not known>"


class _OnlineActions:
    """The actions of a forward pass, one by one; those of the adjoint sweep once it has ended."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._forward = translator.actions()
        self._rest: Iterator[Action] | None = None
        self._last: Action | None = None
        self._kept: list[Key] = []

    def __iter__(self) -> _OnlineActions:
        return self

    def __next__(self) -> Action:
        if self._rest is not None:
            return next(self._rest)
        self._last = next(self._forward)
        if isinstance(self._last, Save):
            self._kept.append((self._last.step, self._last.tier))
        return self._last

    def finish(self, steps: int) -> None:
        """The forward pass has ended at state `steps`, which the last Forward reaches or passes."""
        if self._rest is not None:
            raise ScheduleError(f"the number of steps is known: {self._translator.steps}")
        last = self._last
        if not isinstance(last, Forward) or not max(last.start, 1) <= steps <= last.stop:
            raise ScheduleError(f"the forward pass cannot have ended at state {steps}: {last}")
        self._translator.finish(steps)
        self._rest = iter(prune(list(self._forward), self._kept))


def _copy(source: Any) -> Any:
    """A schedule of theirs to be used up, so that the user's own stays as it is."""
    try:
        return copy.deepcopy(source)
    except Exception as error:
        raise ScheduleError(
            f"this {type(source).__name__} cannot be copied, and its actions can be taken only "
            "once: define __deepcopy__, or hand in schedules.Listed(actions)"
        ) from error
