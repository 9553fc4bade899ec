"""`Checkpointer(keep=)`: which checkpoints stay, here and in a remote place."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors
from unspool._restart.core import RestartCore
from unspool.types import Keep

LOSSES = [9.0, 1.0, None, 7.0, 6.0, 2.0, 5.0, 3.0, 8.0, 4.0]


def opened(path: Path, keep: Any, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "4MiB", "device": "cpu", "signals": (), **options}
    return flat.checkpointer(path / "run", keep=keep, **options)


def steps(path: Path) -> list[int]:
    return [one["step"] for one in RestartCore.listed(path / "run")[0] if one["counts"]]


def run(path: Path, keep: Any, numbers: Any, **options: Any) -> None:
    with opened(path, keep, **options) as checkpoints:
        checkpoints.restore(u=np.zeros(9))
        for step in numbers:
            checkpoints.save(step, u=np.full(9, float(step)), loss=LOSSES[step - 1])
            checkpoints.flush()


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (1, [10]),
        (Keep(3), [8, 9, 10]),
        (Keep(1, best=2, monitor="loss"), [2, 6, 10]),
        (Keep(1, best=1, monitor="loss", mode="max"), [1, 10]),
        (Keep(2, every=4), [4, 8, 9, 10]),
        (Keep(1, best=1, monitor="loss", every=3), [2, 3, 6, 9, 10]),
    ],
)
@pytest.mark.parametrize("increments", [False, 3])
def test_what_stays_is_the_same_over_restarts(
    keep: Any, left: list[int], increments: Any, tmp_path: Path
) -> None:
    for numbers in (range(1, 5), range(5, 11)):
        run(tmp_path, keep, numbers, increments=increments)
    found = steps(tmp_path)
    assert found == left or (increments and set(left) <= set(found))
    with opened(tmp_path, keep, increments=increments) as checkpoints:
        assert all((checkpoints.load(step)["u"] == step).all() for step in left)


def test_the_best_stay_in_a_remote_place_and_come_back(tmp_path: Path) -> None:
    keep, remote = Keep(1, best=1, monitor="loss"), tmp_path / "remote"
    # A close copies the last one.
    for numbers in (range(1, 3), range(3, 5)):
        run(tmp_path, keep, numbers, remote=remote)
    shutil.rmtree(tmp_path / "run")
    run(tmp_path, keep, range(5, 11), remote=remote)
    listed = RestartCore.listed_remote(str(remote))[0]
    assert listed[-1]["step"] == 10 and 2 in [one["step"] for one in listed]


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (0, "last=0"),
        (True, "keep=True"),
        (Keep(2, best=-1), "best=-1"),
        (Keep(2, best=1), "monitor"),
        (Keep(2, monitor="loss"), "monitor"),
        (Keep(2, best=1, monitor="loss", mode="best"), "mode="),
        (Keep(2, every=0), "every=0"),
        ("all", "keep='all'"),
    ],
)
def test_options_that_make_no_sense_are_refused(keep: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(errors.OptionError, match=said):
        opened(tmp_path, keep)


def test_a_save_without_what_is_monitored_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, Keep(best=1, monitor="loss")) as checkpoints:
        for wrong in ({}, {"los": 1.0}, {"loss": "low"}, {"loss": np.ones(1)}):
            with pytest.raises(errors.OptionError, match=r"loss=loss\.item\(\)"):
                checkpoints.save(1, u=np.ones(3), **wrong)
        checkpoints.save(1, u=np.ones(3), loss=np.float32(0.5))
        checkpoints.save(2, u=np.ones(3), loss=float("nan"))


def test_what_came_after_stays_until_the_next_save_counts(tmp_path: Path) -> None:
    u = np.zeros(9)
    with opened(tmp_path, 9) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, u=u + step)
        checkpoints.flush()
        assert checkpoints.restore(2, u=u) == 2
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    with opened(tmp_path, 9) as checkpoints:
        assert checkpoints.latest() == 5 and checkpoints.restore(2, u=u) == 2
        checkpoints.save(3, u=u)
        checkpoints.flush()
        assert steps(tmp_path) == [1, 2, 3] and checkpoints.latest() == 3
        with pytest.raises(errors.OptionError, match="restore or load the checkpoint to go on"):
            checkpoints.save(2, u=u)
