"""Schedules: which states of an adjoint to keep, to restore, and to compute again.

A schedule is an iterable of plain actions (`Forward`, `Save`, `Restore`, `Reverse`, `Discard`,
`End`), which `unspool.adjoint` carries out on a spool. Each `iter()` begins anew.

    from unspool.schedules import Revolve

    schedule = Revolve(steps=1000, slots=20)
    print(schedule.counts().recomputed_steps)
    for action in schedule:
        print(action)
"""

from ..errors import ScheduleError
from .actions import Action, Discard, End, Forward, Restore, Reverse, Save
from .auto import Auto
from .base import Actions, Counts, Schedule
from .convert import as_schedule, check
from .native import (
    Listed,
    MultiLevel,
    OnlineRevolve,
    Revolve,
    StoreAll,
    Trace,
    Uniform,
    ZCut,
    to_trace,
)
from .stop import Stop

__all__ = [
    "Action",
    "Actions",
    "Auto",
    "Counts",
    "Discard",
    "End",
    "Forward",
    "Listed",
    "MultiLevel",
    "OnlineRevolve",
    "Restore",
    "Reverse",
    "Revolve",
    "Save",
    "Schedule",
    "ScheduleError",
    "Stop",
    "StoreAll",
    "Trace",
    "Uniform",
    "ZCut",
    "as_schedule",
    "check",
    "to_trace",
]
