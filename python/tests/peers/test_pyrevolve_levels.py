"""The Revolver with copies in main memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool.interop.pyrevolve import DiskStorage, MultiLevelRevolver, NumpyStorage
from unspool.schedules import Save

from pyrevolve_problems import Problem

STEPS = 60


def multi(problem: Problem, *levels: Any, **options: Any) -> MultiLevelRevolver:
    return MultiLevelRevolver(
        problem, problem.forward, problem.reverse, problem.steps, list(levels), **options
    )


def memory(copies: int, **costs: float) -> NumpyStorage:
    return NumpyStorage(10, copies, np.float64, **costs)


def on_disk(copies: int, place: Path, **costs: float) -> DiskStorage:
    return DiskStorage(10, copies, np.float64, filedir=str(place), **costs)


@pytest.mark.parametrize("steps", [1, 2, 17, STEPS])
@pytest.mark.parametrize("which", ["memory", "disk", "both"])
def test_every_step_is_reversed_once_with_its_state(steps: int, which: str, tmp_path: Path) -> None:
    problem = Problem(steps)
    levels = {"memory": [memory(3)], "disk": [on_disk(5, tmp_path, wd=1, rd=1)]}
    levels["both"] = levels["memory"] + levels["disk"]
    with multi(problem, *levels[which]) as made:
        made.apply_forward()
        made.apply_reverse()
    assert problem.adjoint == list(reversed(range(steps)))
    assert list(tmp_path.iterdir()) == []


def test_each_level_holds_at_most_its_copies(tmp_path: Path) -> None:
    problem = Problem(STEPS)
    with multi(problem, memory(2), on_disk(4, tmp_path, wd=2, rd=2)) as made:
        assert dict(made.schedule.counts().tiers) == {"host": 2, "disk": 4}
        made.apply_forward()
        assert len(made.storage_ckps(0)) == 2
        assert len(made.storage_ckps(1)) == 4
        made.apply_reverse()


def test_costs_decide_where_copies_go(tmp_path: Path) -> None:
    def on_disk_for(cost: float) -> int:
        made = multi(Problem(STEPS), memory(3), on_disk(60, tmp_path, wd=cost, rd=cost))
        return sum(isinstance(action, Save) and action.tier == "disk" for action in made.schedule)

    assert on_disk_for(0.1) > on_disk_for(5) > on_disk_for(1000) == 0


def test_a_spool_of_the_user_is_told_where_copies_should_rest(tmp_path: Path) -> None:
    problem = Problem(STEPS)
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        made = multi(problem, memory(2), on_disk(9, tmp_path, wd=1, rd=1), spool=spool)
        made.apply_forward()
        spool.flush()
        assert spool.stats().tiers[1].copies >= len(made.storage_ckps(1)) > 0
        made.apply_reverse()
        assert spool.versions() == []


def test_the_makespan_adds_up_what_is_computed_and_copied(tmp_path: Path) -> None:
    problem = Problem(3)
    made = multi(problem, memory(3, wd=0.5, rd=0.25), uf=2, ub=3, up=10)
    assert made.makespan == 2 * 3 + 3 * 3 + 10 + 2 * (0.5 + 0.25)
    assert made.ratio == pytest.approx(2 / 3)


def test_levels_that_a_spool_does_not_have_are_refused(tmp_path: Path) -> None:
    for levels in ([], [memory(3), memory(4)], [on_disk(3, tmp_path)] * 2, ["disk"]):
        with pytest.raises(unspool.errors.OptionError, match="storage_list"):
            multi(Problem(5), *levels)
    with pytest.raises(unspool.errors.OptionError, match="keepfiles"):
        DiskStorage(10, 3, np.float64, keepfiles=True)
