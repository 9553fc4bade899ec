"""What every schedule can do: iterate anew, say what it costs, say what it restores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .._unspool import Interpreter, ScheduleCore
from ..errors import ScheduleError
from .actions import Action, Forward, Restore, named
from .given import figure, finish, whole, word_of

__all__ = ["Actions", "Counts", "Native", "Schedule", "dry_run", "ending"]

# Actions that are drawn from the extension at a time.
BATCH = 512


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule costs, as its actions say.

    Attributes:
        steps: the number of steps.
        advances: steps advanced over by `Forward`; the pass in which a step is reversed is not
            counted, and nobody advances over the last step.
        saves: copies made.
        restores: copies read.
        reverses: steps reversed.
        discards: copies given up.
        peak: the most copies at a time, in all tiers together.
        tiers: the most copies at a time in each tier that the schedule names.
    """

    steps: int
    advances: int
    saves: int
    restores: int
    reverses: int
    discards: int
    peak: int
    tiers: Mapping[str, int]

    @property
    def recomputed_steps(self) -> int:
        """Steps advanced over more than once: storing everything needs `steps - 1` advances."""
        return max(0, self.advances - (self.steps - 1))


class Schedule:
    """Which states of an adjoint to keep, to restore, and to compute again.

    Iterating gives the actions (`unspool.schedules.actions`); each `iter()` begins anew, which is
    what makes a dry run possible. Subclasses define `steps`, `slots` and `actions`.

    Attributes:
        steps: the number of steps, or None when it is not known before the forward pass ends. The
            iterators then have a method `finish(steps)`, to be called after a `Forward` was carried
            out as far as the forward pass goes, before the next action is asked for.
        slots: the most copies at a time, in all tiers together, or None when that is not known.
    """

    # Properties of this class would be taken for defaults by the dataclasses that define them.
    steps: Any
    slots: Any

    def actions(self) -> Iterator[Action]:
        """A new iterator over all actions."""
        message = f"{type(self).__name__} does not define actions(): it must give an iterator."
        raise ScheduleError(message)

    def __iter__(self) -> Iterator[Action]:
        actions = self.actions()
        if not hasattr(actions, "__next__"):
            raise ScheduleError(
                f"{type(self).__name__}.actions() gave a {type(actions).__name__}: it must give a "
                "new iterator over the actions each time; a generator is one."
            )
        return actions

    def counts(self, steps: int | None = None) -> Counts:
        """What the whole schedule costs, by a dry run that also checks it.

        Arguments:
            steps: where the forward pass ends, for a schedule whose `steps` is None.

        Raises:
            ScheduleError: an action breaks a rule, or the number of steps is not known.
        """
        interpreter = Interpreter(figure(self, "steps"), figure(self, "slots"))
        for action in dry_run(self, steps):
            stop = _stop_of(action, steps) if self.steps is None else None
            _, fault = interpreter.see([word_of(action)])
            if fault is not None:
                raise ScheduleError(f"This is not a valid schedule: {fault}.")
            if stop is not None:
                interpreter.stopped_at(stop)
        interpreter.finish()
        return Counts(**interpreter.counts())

    def restores(self, steps: int | None = None) -> Iterator[int]:
        """The steps whose states are restored, in order and with repeats.

        Arguments:
            steps: where the forward pass ends, for a schedule whose `steps` is None.

        Raises:
            ScheduleError: the number of steps is not known.
        """
        return (action.step for action in dry_run(self, steps) if isinstance(action, Restore))


class Actions(Iterator[Action]):
    """The actions of one of the package's own schedules, drawn from the extension in batches."""

    __slots__ = ("_core", "_named")

    def __init__(self, core: ScheduleCore) -> None:
        self._core = core
        batches: Callable[[], list[Any]] = lambda: core.take(BATCH)  # noqa: E731
        self._named = named(chain.from_iterable(iter(batches, [])))

    @property
    def steps(self) -> int | None:
        """The number of steps, or None while it is not known."""
        return self._core.steps

    def __next__(self) -> Action:
        return next(self._named)

    def finish(self, steps: int) -> None:
        """The forward pass has ended with the working state being state `steps`.

        Raises:
            ScheduleError: the number of steps was known, or the working state cannot be that one.
        """
        core = self._core
        core.finish(steps)
        # With nothing to do before the end, the batches ended there; now there are more.
        batches: Callable[[], list[Any]] = lambda: core.take(BATCH)  # noqa: E731
        self._named = named(chain.from_iterable(iter(batches, [])))


class Native(Schedule):
    """A schedule whose actions the extension makes: about ten million a second by themselves."""

    _made: ScheduleCore

    @property
    def core(self) -> ScheduleCore:
        """The extension's part, before its first action; each call gives another one."""
        return self._made.copy()

    def actions(self) -> Actions:
        """A new iterator over all actions."""
        return Actions(self.core)

    def counts(self, steps: int | None = None) -> Counts:
        """What the whole schedule costs, by a dry run that also checks it.

        Arguments:
            steps: where the forward pass ends, for a schedule whose `steps` is None.

        Raises:
            ScheduleError: the number of steps is not known.
        """
        return Counts(**self._made.counts(ending(self, steps)))


def dry_run(schedule: Schedule, steps: int | None) -> Iterator[Action]:
    """All actions, with the forward pass ending at `steps` where the schedule does not know."""
    steps = ending(schedule, steps)
    actions = iter(schedule)
    if schedule.steps is not None:
        yield from actions
        return
    if steps is None:
        message = (
            "The number of steps is not known before the forward pass ends: give `steps` to see "
            "what the schedule does when it ends there."
        )
        raise ScheduleError(message)
    stopped = False
    for action in actions:
        yield action
        if not stopped and _stop_of(action, steps) is not None:
            finish(schedule, actions, steps)
            stopped = True


def ending(schedule: Schedule, steps: int | None) -> int | None:
    """The number of steps of a dry run, as far as it is known."""
    known = figure(schedule, "steps")
    if steps is None:
        return known
    steps = whole(type(schedule).__name__, "steps", steps)
    if known not in (None, steps):
        raise ScheduleError(f"{schedule!r} is for {known} steps, not for {steps}.")
    return steps


def _stop_of(action: Action, steps: int | None) -> int | None:
    """The end of the forward pass, if this action reaches it."""
    reaches = isinstance(action, Forward) and steps is not None and action.stop >= steps
    return steps if reaches else None
