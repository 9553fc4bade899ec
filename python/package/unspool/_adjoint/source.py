"""Where the driver gets its actions from, and a second run of them for the dry run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from .._unspool import Ahead, ScheduleCore, Uses
from ..errors import ScheduleError
from ..schedules.actions import Action, Word
from ..schedules.base import BATCH, Native, Schedule, dry_run
from ..schedules.given import finish, word_of

__all__ = ["Source", "source_of"]

Hints = tuple[list[int], list[bool]]


class Twin(Protocol):
    """The rest of the actions, a second time."""

    def hints(self, ahead: Ahead, count: int) -> Hints:
        """The next hints, about `count` of them; none at the end."""

    def into(self, uses: Uses) -> None:
        """All actions that are left."""


class Source(Protocol):
    """The actions of one run."""

    def batch(self) -> list[Word]:
        """The next actions; none at the end. A `Forward` that may end early is the last one."""

    def finish(self, steps: int) -> None:
        """The forward pass has ended at state `steps`."""

    def twin(self, steps: int | None) -> Twin:
        """The actions that are left, where the number of steps is known by now."""


def source_of(schedule: Schedule) -> Source:
    """The actions of a schedule, from the first one on."""
    return _Drawn(schedule.core) if isinstance(schedule, Native) else _Iterated(schedule)


class _Drawn:
    """Those of the package's own schedules."""

    def __init__(self, core: ScheduleCore) -> None:
        self._core = core

    def batch(self) -> list[Word]:
        return self._core.take(BATCH)

    def finish(self, steps: int) -> None:
        self._core.finish(steps)

    def twin(self, steps: int | None) -> Twin:
        return _DrawnTwin(self._core.copy())


class _DrawnTwin:
    def __init__(self, core: ScheduleCore) -> None:
        self._core = core

    def hints(self, ahead: Ahead, count: int) -> Hints:
        return ahead.draw(self._core, count)

    def into(self, uses: Uses) -> None:
        uses.draw(self._core)


class _Iterated:
    """Those of a schedule in Python. Each is asked for when the one before it is done, since the
    schedule may look at what happens."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._actions = iter(schedule)
        self._taken = 0
        if iter(schedule) is self._actions:
            raise ScheduleError(
                f"iter({schedule!r}) gives the same iterator twice, so that the driver cannot see "
                "what comes: actions() must return a new one each time."
            )

    def batch(self) -> list[Word]:
        for action in self._actions:
            self._taken += 1
            return [word_of(action)]
        return []

    def finish(self, steps: int) -> None:
        finish(self._schedule, self._actions, steps)

    def twin(self, steps: int | None) -> Twin:
        if self._schedule.steps is not None:
            steps = None
        return _IteratedTwin(islice(dry_run(self._schedule, steps), self._taken, None))


class _IteratedTwin:
    def __init__(self, actions: Iterator[Action]) -> None:
        self._actions = actions

    def hints(self, ahead: Ahead, count: int) -> Hints:
        versions: list[int] = []
        lasts: list[bool] = []
        for action in self._actions:
            found, last = ahead.see([word_of(action)])
            versions += found
            lasts += last
            if len(versions) >= count:
                break
        return versions, lasts

    def into(self, uses: Uses) -> None:
        for action in self._actions:
            uses.see([word_of(action)])
