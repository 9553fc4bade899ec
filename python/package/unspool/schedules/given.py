"""What people give: figures, actions, iterators; refused in words where they make no sense."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

from ..errors import ScheduleError
from .actions import Action

__all__ = ["ended", "figure", "finish", "whole", "word_of"]


def word_of(action: Action) -> Any:
    """The action as the extension takes it.

    Raises:
        ScheduleError: it is not an action.
    """
    try:
        return action.word()
    except (AttributeError, TypeError):
        message = (
            f"{action!r} is not an action: write those of unspool.schedules, such as Forward(0, 1)."
        )
        raise ScheduleError(message) from None


def whole(name: str, argument: str, value: SupportsIndex | float) -> int:
    """A count that the extension can take.

    Raises:
        ScheduleError: it is none.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < 1 << 63:
        raise ScheduleError(
            f"{name}({argument}={value!r}): write a whole number from 0 to 2**63 - 1."
        )
    return number


def figure(schedule: Any, name: str) -> int | None:
    """The `steps` or the `slots` that a schedule says it has.

    Raises:
        ScheduleError: it does not say it, or that is not a number.
    """
    kind = type(schedule).__name__
    try:
        value = getattr(schedule, name)
    except AttributeError as error:
        raise ScheduleError(
            f"{kind} does not define {name}: it must be a number, or None when it is not known."
        ) from error
    return None if value is None else whole(kind, name, value)


def finish(schedule: Any, actions: Any, steps: int) -> None:
    """Tells the iterator of a schedule that the forward pass has ended.

    Raises:
        ScheduleError: it cannot be told.
    """
    if not hasattr(actions, "finish"):
        raise ScheduleError(
            f"{schedule!r} does not know its number of steps, but its iterator has no method "
            "finish(steps)."
        )
    actions.finish(steps)


def ended(given: Iterable[Action]) -> Iterable[Action]:
    """The same actions, if they are known to come to an end: those of a schedule that waits to be
    told its number of steps go on for ever.

    Raises:
        ScheduleError: they are such ones.
    """
    if getattr(given, "steps", 0) is None:
        raise ScheduleError(
            f"{given!r} does not know its number of steps, so that a list of its actions has no "
            "end: give the schedule itself to unspool.adjoint, or take one for a known number, "
            "such as Revolve(steps, slots)."
        )
    return given
