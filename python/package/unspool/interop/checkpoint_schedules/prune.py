"""What a list of actions does not need: saves that nobody restores, copies past their last use,
restores that nothing follows from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unspool.schedules.actions import Action, Discard, End, Forward, Restore, Save

__all__ = ["Key", "prune"]

#: A copy: its step and its tier.
Key = tuple[int, str | None]


def prune(actions: Sequence[Action], kept: Iterable[Key] = ()) -> list[Action]:
    """The same actions with only the saves and restores that are used, and discards after the last
    uses.

    Arguments:
        actions: a valid list; its discards do not matter.
        kept: copies that are there before the first action. Those that nobody restores are
            discarded at the start.
    """
    used, backwards = _backwards(actions)
    unused = [Discard(step, tier) for step, tier in kept if (step, tier) not in used]
    return _joined([*unused, *reversed(backwards)])


def _backwards(actions: Sequence[Action]) -> tuple[set[Key], list[Action]]:
    """The actions from the last to the first, and the copies used before they are saved."""
    used: set[Key] = set()
    found: list[Action] = []
    for place in range(len(actions) - 1, -1, -1):
        action = actions[place]
        if isinstance(action, Discard):
            continue
        if isinstance(action, Restore) and found and isinstance(found[-1], Restore | End):
            continue  # Nothing is done with what it brings.
        if isinstance(action, Save):
            if (action.step, action.tier) not in used or _stays(actions, place, action):
                continue
            used.remove((action.step, action.tier))
        if isinstance(action, Restore) and (action.step, action.tier) not in used:
            used.add((action.step, action.tier))
            found.append(Discard(action.step, action.tier))
        found.append(action)
    return used, found


def _stays(actions: Sequence[Action], place: int, save: Save) -> bool:
    """Whether a save follows the restore of that very copy, which may as well stay."""
    return place > 0 and actions[place - 1] == Restore(save.step, save.tier)


def _joined(actions: Iterable[Action]) -> list[Action]:
    """Forwards that follow each other become one."""
    joined: list[Action] = []
    for action in actions:
        last = joined[-1] if joined else None
        if isinstance(action, Forward) and isinstance(last, Forward) and last.stop == action.start:
            joined[-1] = Forward(last.start, action.stop)
        else:
            joined.append(action)
    return joined
