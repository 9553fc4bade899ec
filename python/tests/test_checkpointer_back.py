"""Runs that go back now and then, with some checkpoints that stay for good, killed at random."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool.types import Keep

#: The jobs that are killed; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "12"))

KEEP = Keep(2, best=1, monitor="loss", every=20)


def content(step: int, number: int) -> np.ndarray:
    return np.random.default_rng([step, number]).random(20_000)


def tell(path: Path, said: dict[str, Any]) -> None:
    path.with_suffix(".new").write_text(json.dumps(said))
    path.with_suffix(".new").replace(path)


def work(path: Path, told: Path, seed: int, options: dict[str, Any]) -> None:
    """Saves, goes back at times, and tells what counts: the number of the last save, and of the one
    that it has gone back to."""
    drawn, u = random.Random(seed), np.zeros(20_000)
    before = json.loads(told.read_text()) if told.exists() else {"number": 0, "back": 0}
    with unspool.Checkpointer(
        path, every=1, keep=KEEP, host_memory="4MiB", device="cpu", u=u, **options
    ) as checkpoints:
        step = checkpoints.restore() or 0
        number = checkpoints.values().get("number", 0)
        # What came after may be gone in part where the next save was about to replace it.
        assert number >= before["back"], (number, before)
        assert not step or (u == content(step, number)).all()
        number = max(number, before["number"])
        while True:
            if step > 3 and drawn.random() < 0.2:
                step = drawn.choice(checkpoints.steps())
                assert checkpoints.restore(step, u=u) == step
                back = checkpoints.values()["number"]
                assert (u == content(step, back)).all()
                tell(told, {"number": number, "back": back})
            for _ in range(drawn.randint(1, 4)):
                step, number = step + 1, number + 1
                u[:] = content(step, number)
                checkpoints.save(step, number=number, loss=drawn.random())
            checkpoints.flush()
            tell(told, {"number": number, "back": number})


@pytest.mark.parametrize("options", [{}, {"increments": 4}], ids=["in full", "as increments"])
def test_killed_runs_that_go_back_find_what_counted(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path, told, seed = tmp_path / "run", tmp_path / "told", 11
    context, drawn = multiprocessing.get_context("fork"), random.Random(seed)
    for kill in range(KILLS):
        job = context.Process(target=work, args=(path, told, seed + kill, options))
        job.start()
        job.join(drawn.uniform(0.05, 0.35))
        assert job.is_alive(), f"seed {seed}, job {kill}"
        job.kill()
        job.join()
    assert json.loads(told.read_text())["number"] > KILLS
