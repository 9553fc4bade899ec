"""Trainings in PyTorch that are killed at random moments, against one that nobody kills."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool._restart.core import RestartCore

torch = pytest.importorskip("torch")

#: The kills of each training; `UNSPOOL_TEST_KILLS=50` runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "4"))

#: The steps that count at least between two kills, and after the last one.
APART = 12

STEPS = APART * (KILLS + 2)


class Training:
    """A model with dropout, running means, a rate that changes, and data in a random order."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        np.random.seed(2)
        random.seed(3)
        nn = torch.nn
        layers = [nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2)]
        self.model = nn.Sequential(
            *layers, nn.Linear(64, 64, dtype=torch.float32), nn.Linear(64, 1)
        )
        self.optim = torch.optim.AdamW(self.model.parameters(), 1e-2, amsgrad=True)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.optim, 0.05, total_steps=STEPS + 1)
        self.data = torch.randn(256, 16, generator=torch.Generator().manual_seed(4))
        self.order: list[int] = []

    def step(self) -> None:
        if not self.order:
            self.order += np.random.permutation(256).tolist()
        x = self.data[[self.order.pop() for _ in range(32)]] * random.uniform(0.9, 1.1)
        self.optim.zero_grad()
        (self.model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        self.optim.step()
        self.sched.step()

    def digest(self) -> str:
        """A checksum of all bits that the rest of the training depends on."""
        found = hashlib.sha256(repr((self.order, self.sched.state_dict())).encode())
        states = (self.model.state_dict(), self.optim.state_dict()["state"])
        for tensor in (
            *states[0].values(),
            *(one for of in states[1].values() for one in of.values()),
        ):
            found.update(tensor.numpy().tobytes())
        found.update(repr((torch.rand(3).tolist(), np.random.rand(3), random.random())).encode())
        return found.hexdigest()


def train(path: Path, told: Path, options: dict[str, Any]) -> None:
    """Goes on with a training, and writes its digest at the end."""
    job = Training()
    with unspool.Checkpointer(
        path,
        every=1,
        host_memory="16MiB",
        device="cpu",
        model=job.model,
        optim=job.optim,
        sched=job.sched,
        order=job.order,
        rng=True,
        **options,
    ) as checkpoints:
        step = checkpoints.restore() or 0
        while step < STEPS:
            step += 1
            job.step()
            checkpoints.step(step)
    told.write_text(job.digest())


def counted(path: Path) -> int:
    found = RestartCore.listed(path)[0] if path.exists() else []
    return max((one["step"] for one in found if one["counts"]), default=0)


@pytest.mark.parametrize(
    "options",
    [{}, {"increments": 5}, {"codec": "lossless"}],
    ids=["in full", "as increments", "with a codec"],
)
def test_a_training_that_is_killed_ends_with_the_same_bits(
    options: dict[str, Any], tmp_path: Path
) -> None:
    plain = Training()
    for _ in range(STEPS):
        plain.step()
    expected, seed = plain.digest(), 7
    drawn = random.Random(seed)
    path, told = tmp_path / "run", tmp_path / "told"
    # PyTorch takes seconds to load, and here it has one thread.
    context = multiprocessing.get_context("fork")
    for kill in range(1, KILLS + 1):
        job = context.Process(target=train, args=(path, told, options))
        job.start()
        while job.is_alive() and counted(path) < kill * APART:
            time.sleep(0.01)
        time.sleep(drawn.uniform(0, 0.02))
        job.kill()
        job.join()
        assert job.exitcode in (0, -9), f"seed {seed}, kill {kill}"
    job = context.Process(target=train, args=(path, told, options))
    job.start()
    job.join(60)
    assert job.exitcode == 0 and told.read_text() == expected, f"seed {seed}"
