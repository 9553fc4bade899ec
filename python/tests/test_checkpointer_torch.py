"""`unspool.Checkpointer(ranks="torch")`: processes of `torch.distributed`."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import errors
from unspool._restart.core import RestartCore

from rank_processes import finish

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no Gloo", allow_module_level=True)


def ranked(rank: int, size: int, work: Callable[..., None], path: Path) -> None:
    store = f"file://{path}.store-{work.__name__}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
    work(path)
    os._exit(0)


def start(size: int, work: Callable[..., None], path: Path) -> list[int | None]:
    context = multiprocessing.get_context("spawn")
    arguments = [(rank, size, work, path) for rank in range(size)]
    processes = [context.Process(target=ranked, args=words) for words in arguments]
    for process in processes:
        process.start()
    return finish(list(processes))


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    return unspool.Checkpointer(
        path, ranks="torch", every=1, host_memory="4MiB", device="cpu", **options
    )


def save_two(path: Path) -> None:
    rank = torch.distributed.get_rank()
    with opened(path) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.step(step, u=torch.full((10,), step + rank))


def restore_both(path: Path) -> None:
    u, rank = torch.zeros(10, dtype=torch.int64), torch.distributed.get_rank()
    with opened(path) as checkpoints:
        assert checkpoints.restore(u=u) == 3
        assert (u == 3 + rank).all()


def hang(path: Path) -> None:
    checkpoints, rank = opened(path, timeout=3.0), torch.distributed.get_rank()
    checkpoints.save(1, u=np.ones(3))
    done = [path.with_suffix(f".done-{other}") for other in (0, 2)]
    if rank != 1:
        with pytest.raises(errors.WaitTimeoutError, match=r"rank 1 has not.* saves step 2"):
            checkpoints.save(2, u=np.ones(3))
        path.with_suffix(f".done-{rank}").touch()
    # Until both were told.
    while not all(one.exists() for one in done):
        time.sleep(0.01)


def test_processes_of_a_group_agree_on_what_counts(tmp_path: Path) -> None:
    assert start(2, save_two, tmp_path / "run") == [0, 0]
    found, _ = RestartCore.listed(tmp_path / "run")
    assert [(one["step"], one["counts"]) for one in found] == [(2, True), (3, True)]
    assert start(2, restore_both, tmp_path / "run") == [0, 0]


def test_a_process_that_does_not_answer_is_named_by_all_others(tmp_path: Path) -> None:
    assert start(3, hang, tmp_path / "run") == [0, 0, 0]


def trained(path: Path, end: int) -> tuple[int, list[float]]:
    """Trains a model over all ranks up to a step: where it began, and the parameters."""
    torch.set_num_threads(1)
    torch.manual_seed(torch.distributed.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 100))
    optim = torch.optim.AdamW(model.parameters(), 0.1)
    with opened(path, model=model, optim=optim, rng=True, keep=3) as checkpoints:
        first = step = checkpoints.restore() or 0
        while step < end:
            step += 1
            optim.zero_grad()
            model(torch.randn(8, 300)).square().mean().backward()
            optim.step()
            checkpoints.step(step)
    return first, torch.cat([one.flatten() for one in model.parameters()]).tolist()


def train_twice(path: Path) -> None:
    _, expected = trained(path.with_suffix(".plain"), 6)
    trained(path, 4)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 1:
        frames = path.glob("rank-0001-of-0002/data/frame-*")
        frame = max(frames, key=lambda one: int(one.name.split("-")[1].split(".")[0]))
        content = bytearray(frame.read_bytes())
        content[len(content) // 2] ^= 1
        frame.write_bytes(content)
    torch.distributed.barrier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert trained(path, 6) == (3, expected)


def test_a_model_over_processes_goes_back_on_all_of_them_where_one_has_lost_a_step(
    tmp_path: Path,
) -> None:
    assert start(2, train_twice, tmp_path / "run") == [0, 0]
