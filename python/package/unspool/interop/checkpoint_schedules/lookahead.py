"""What comes next in a schedule, and what its copies will be used for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from unspool.schedules.actions import Action, Discard, Forward, Restore, Reverse, Save
from unspool.schedules.base import Schedule

__all__ = ["Lookahead", "only_reversed"]


class Lookahead:
    """An iterator over a schedule's actions that can be asked for those to come.

    Nothing is drawn before it is asked for: a schedule for an unknown number of steps takes a
    further action to mean that the last one was carried out in full.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._actions: Any = iter(schedule)
        self._drawn: deque[Action] = deque()

    def __iter__(self) -> Iterator[Action]:
        return self

    def __next__(self) -> Action:
        action: Action = self._drawn.popleft() if self._drawn else next(self._actions)
        return action

    def coming(self, count: int) -> list[Action]:
        """The next `count` actions, fewer at the end; they stay where they are."""
        while len(self._drawn) < count:
            action = next(self._actions, None)
            if action is None:
                break
            self._drawn.append(action)
        return [action for action, _ in zip(self._drawn, range(count), strict=False)]

    def finish(self, steps: int) -> None:
        """Tells the schedule the number of its steps."""
        self._actions.finish(steps)

    def run(self, forward: Forward) -> int:
        """Where a forward that was just taken ends, with those that follow it at once."""
        while (coming := self.coming(1)) and isinstance(coming[0], Forward):
            forward = coming[0]
            next(self)
        return forward.stop

    def releases(self, restore: Restore) -> bool:
        """Whether a restore that was just taken is the last of its copy: its discard comes next, or
        after the step that it is reversed for. That discard is taken out.
        """
        wanted = Discard(restore.step, restore.tier)
        coming = self.coming(2)
        if wanted not in coming:
            return False
        if coming[0] != wanted and not isinstance(coming[0], Reverse):
            return False
        self._drawn.remove(wanted)
        return True


def only_reversed(schedule: Schedule) -> Iterator[bool]:
    """For each save of a schedule, whether its copy is only restored in order to reverse."""
    flags = bytearray()
    saved: dict[tuple[int, str | None], int] = {}
    restored: list[tuple[int, str | None]] = []
    for action in schedule:
        if isinstance(action, Save):
            saved[action.step, action.tier] = len(flags)
            flags.append(True)
        elif isinstance(action, Restore):
            restored.append((action.step, action.tier))
            continue
        elif isinstance(action, Discard):
            continue
        if not isinstance(action, Reverse):
            for copy in restored:
                flags[saved[copy]] = False
        restored.clear()
    return map(bool, flags)
