"""A schedule that `unspool.adjoint` chooses while it runs; and two in one, for when it has to
choose again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import ScheduleError
from .actions import Action, Discard, End, Forward, Restore, Reverse, Save
from .base import Schedule
from .given import whole

__all__ = ["After", "Auto"]


@dataclass(frozen=True)
class Auto(Schedule):
    """The fastest schedule for the spool that `unspool.adjoint` is given, chosen while it runs.

    The first two to eight steps are timed one at a time, with their states saved unless that takes
    much longer than a step. A plan (`unspool.plan`) is then made from these times, the room that
    the spool has left, the rates of its links, and what its codec made of these states. The run
    goes on by the best schedule for all steps: no step is taken more often than it says.
    `AdjointReport.choice` has it.

    Where a copy has no room, as when a codec stores later states in more bytes than the first ones,
    all copies but that of state 0 are given up, and another schedule is chosen for what is left.

    Its actions are not known before the run: it cannot be iterated over.

    Attributes:
        steps: the number of steps. Where that is not known, take `OnlineRevolve(slots)`.

    Raises:
        ScheduleError: there are no steps.
    """

    steps: int
    slots: None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not whole("Auto", "steps", self.steps):
            raise ScheduleError("Auto(steps=0): there are no steps.")

    def actions(self) -> Iterator[Action]:
        """Raises: ScheduleError, always."""
        raise ScheduleError(
            f"{self!r} is chosen while unspool.adjoint runs, so that its actions are not known: "
            "the report of a run has them as choice.schedule, and unspool.plan compares schedules "
            "before one."
        )


class After(Schedule):
    """A way on from a state that was reached with no copy but that of state 0: the steps from there
    by one schedule, and then those before it, from state 0, by another one.
    """

    def __init__(self, before: Schedule, after: Schedule) -> None:
        self.before, self.after = before, after
        self.steps, self.slots = before.steps + after.steps, None

    def __repr__(self) -> str:
        return f"<{self.after!r} from state {self.before.steps:,} on, {self.before!r} before it>"

    def actions(self) -> Iterator[Action]:
        """A new iterator over all actions."""
        middle, before = self.before.steps, iter(self.before)
        opening = next(before)
        # A single step begins with no save.
        start = opening if isinstance(opening, Save) else Save(0)
        yield start
        yield Forward(0, middle)
        yield from (_later(one, middle) for one in self.after if not isinstance(one, End))
        yield Restore(0, start.tier)
        if opening is not start:
            yield Discard(0)
            yield opening
        yield from before


def _later(action: Action, by: int) -> Action:
    """The same for later steps."""
    if isinstance(action, Forward):
        return Forward(action.start + by, action.stop + by)
    if isinstance(action, Save | Restore | Discard):
        return type(action)(action.step + by, action.tier)
    return Reverse(action.step + by) if isinstance(action, Reverse) else action
