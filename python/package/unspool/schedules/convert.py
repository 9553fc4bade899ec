"""Other objects as schedules, and schedules under test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import OptionError, ScheduleError
from .base import Counts, Schedule
from .native import Listed

__all__ = ["as_schedule", "check"]


def as_schedule(given: Any) -> Schedule:
    """What `unspool.adjoint` takes as a schedule: one of the package's, a schedule of the
    `checkpoint_schedules` package, or any iterable of actions, which is listed then.

    Raises:
        OptionError: it is none of these.
        ScheduleError: an action of a list breaks a rule.
    """
    if isinstance(given, Schedule):
        return given
    if any(kind.__module__.split(".")[0] == "checkpoint_schedules" for kind in type(given).__mro__):
        from unspool.interop.checkpoint_schedules import adapt

        return adapt(given)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return Listed(given)
    if given == "auto":
        raise OptionError(
            '"auto" needs the number of steps: write schedules.Auto(steps). Where that is not '
            "known before the forward pass ends, take schedules.OnlineRevolve(slots)."
        )
    message = (
        f"{given!r} is not a schedule: write one of unspool.schedules, such as "
        "Revolve(steps, slots), a list of actions, or a schedule of checkpoint_schedules."
    )
    raise OptionError(message)


def check(schedule: Any, *, steps: int | None = None, slots: int | None = None) -> Counts:
    """Follows a schedule with the interpreter, which refuses the first action that breaks a rule.

    The rules: what is needed is there, every step is reversed once, the last first, there are no
    more copies than slots, and nothing is left at the end.

    Arguments:
        schedule: anything that `as_schedule` takes.
        steps: where the forward pass ends, for a schedule that does not know it.
        slots: the most copies at a time, if that is less than the schedule says.

    Returns:
        What the schedule costs.

    Raises:
        ScheduleError: an action breaks a rule, or there is no `End`.
    """
    counts = as_schedule(schedule).counts(steps)
    if slots is not None and counts.peak > slots:
        raise ScheduleError(f"The schedule keeps {counts.peak} copies at a time, not {slots}.")
    return counts
