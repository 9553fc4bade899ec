"""MultiLevel against H-Revolve and Disk-Revolve as checkpoint_schedules has them.

Their cost model is ours: copies in memory are free, those on disk are written and read at a price,
and a step costs one. The step that records a reversal is counted there and not here. H-Revolve is
as cheap as ours, always; Disk-Revolve writes to disk in the forward pass only, and periodic
Disk-Revolve at equal distances, so that ours is never more expensive and sometimes cheaper.
"""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any

import pytest
from unspool.schedules import Forward, MultiLevel, Restore, Save

pytestmark = pytest.mark.peer

SIZES = [(2, 1), (6, 2), (13, 1), (25, 3), (60, 2), (100, 5)]
PRICES = [(0.5, 0.5), (1, 2), (2, 1), (5, 5), (10, 2)]


def theirs(schedule: Any, write: float, read: float) -> float:
    """What a two-level schedule of theirs costs, by its actions."""
    from checkpoint_schedules import schedule as words

    disk, cost = words.StorageType.DISK, 0.0
    for action in schedule:
        match action:
            case words.Forward():
                cost += action.n1 - action.n0 - action.write_adj_deps
                cost += write * (action.write_ics and action.storage == disk)
            case words.Copy() | words.Move():
                cost += read * (action.from_storage == disk) + write * (action.to_storage == disk)
            case words.EndReverse():
                return cost
    raise AssertionError("it does not end")


def ours(steps: int, slots: int, on_disk: float, write: float, read: float) -> float:
    """What ours costs, by its actions."""
    prices = {"write_seconds": {"disk": write}, "read_seconds": {"disk": read}}
    schedule = MultiLevel(steps, host=slots, disk=on_disk, step_seconds=1.0, **prices)
    cost = 0.0
    for action in schedule:
        match action:
            case Forward():
                cost += action.stop - action.start
            case Save(tier="disk"):
                cost += write
            case Restore(tier="disk"):
                cost += read
    return cost


@pytest.mark.parametrize("write, read", PRICES)
@pytest.mark.parametrize("steps, slots", SIZES)
def test_h_revolve_is_as_cheap(steps: int, slots: int, write: float, read: float) -> None:
    from checkpoint_schedules import HRevolve

    for on_disk in (1, 2, 5):
        schedule = HRevolve(steps, slots, on_disk, wd=write, rd=read)
        assert ours(steps, slots, on_disk, write, read) == pytest.approx(
            theirs(schedule, write, read)
        )


@pytest.mark.parametrize("write, read", PRICES)
@pytest.mark.parametrize("steps, slots", SIZES)
def test_disk_revolve_is_not_cheaper(steps: int, slots: int, write: float, read: float) -> None:
    from checkpoint_schedules import DiskRevolve, PeriodicDiskRevolve

    cheapest = ours(steps, slots, math.inf, write, read)
    for kind in (DiskRevolve, PeriodicDiskRevolve):
        with contextlib.redirect_stdout(io.StringIO()):  # the periodic one prints its period
            schedule = kind(steps, slots, wd=write, rd=read)
        assert cheapest <= theirs(schedule, write, read) + 1e-9
