"""Schedules of the checkpoint_schedules package (PyPI): theirs driven here, ours offered there.

Only its interface is used: the actions, the base class, and what their documentation says of them.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Set
from typing import Any

from unspool.errors import MissingLibraryError, ScheduleError

try:
    import checkpoint_schedules as _theirs
except ImportError as error:
    raise MissingLibraryError(
        "the package checkpoint_schedules is not installed: pip install checkpoint-schedules"
    ) from error

from unspool.interop.checkpoint_schedules.adapted import Known, Online
from unspool.interop.checkpoint_schedules.offer import Offered
from unspool.interop.checkpoint_schedules.places import storages, tiers
from unspool.interop.checkpoint_schedules.prune import prune
from unspool.schedules.actions import Save
from unspool.schedules.base import Schedule
from unspool.schedules.given import whole
from unspool.schedules.native import (
    Listed,
    MultiLevel,
    OnlineRevolve,
    Revolve,
    StoreAll,
    Uniform,
    ZCut,
)

__all__ = ["adapt", "offer"]

#: Kinds that name no tiers, and that run on from a copy only as far as their actions can say.
_PLAIN = OnlineRevolve | Revolve | StoreAll | Uniform | ZCut


def adapt(
    schedule: Any, steps: int | None = None, storage_map: Mapping[Any, str | None] | None = None
) -> Schedule:
    """See `unspool.interop.from_checkpoint_schedules`."""
    if not isinstance(schedule, _theirs.CheckpointSchedule):
        raise TypeError(
            f"a CheckpointSchedule is needed, not {schedule!r}; unspool.adjoint takes schedules of "
            "unspool.schedules and lists of actions as they are"
        )
    name = type(schedule).__name__
    if schedule.n or schedule.r or hasattr(schedule, "iter"):
        raise ScheduleError(f"actions of this {name} were taken already: hand in a new one")
    known = schedule.max_n
    if steps is not None:
        steps = whole("from_checkpoint_schedules", "steps", steps)
    if steps is not None and known not in (None, steps):
        raise ScheduleError(f"this {name} is for {known} steps, not for {steps}: leave out steps=")
    places = tiers(storage_map or {})
    steps = steps if known is None else known
    return Online(schedule, places) if steps is None else Known(schedule, steps, places)


def offer(
    schedule: Schedule,
    storage: Any = "RAM",
    adjoint_data: bool | None = None,
    whole_states: bool = False,
) -> Offered:
    """See `unspool.interop.as_checkpoint_schedule`."""
    ours = _tidy(schedule)
    places = storages(storage)
    if isinstance(ours, OnlineRevolve) and not whole_states:
        raise ScheduleError(
            "OnlineRevolve gives up copies and runs on from those before them, but restart data of "
            "checkpoint_schedules serves only up to the next copy: say whole_states=True if yours "
            "is a whole state, or choose a schedule for a known number of steps"
        )

    def offered(used: Set[Any]) -> Offered:
        return Offered(ours, places, used, adjoint_data, whole_states)

    if isinstance(ours, _PLAIN):
        return offered({places[None]})
    if ours.steps is None:
        return offered({places[tier] for tier in ("device", "host", "disk", None)})
    used = {places[action.tier] for action in ours if isinstance(action, Save)}
    # What their actions cannot say is refused now, not in the middle of a long run.
    collections.deque(offered(used), maxlen=0)
    return offered(used)


def _tidy(ours: Schedule) -> Schedule:
    """A schedule whose copies go with their last use, as a Move says it."""
    if ours.steps is None or isinstance(ours, MultiLevel | _PLAIN):
        return ours
    # It is followed once, which refuses what breaks a rule.
    ours.counts()
    return Listed(prune(list(ours)))
