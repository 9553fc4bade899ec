"""Processes of a group of PyTorch with Gloo, for tests."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import unspool

from rank_processes import finish

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no Gloo", allow_module_level=True)


def ranked(rank: int, size: int, work: Callable[..., None], path: Path, store: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size
    )
    work(path)
    torch.distributed.barrier()
    os._exit(0)


def start(size: int, work: Callable[..., None], path: Path) -> list[int | None]:
    context = multiprocessing.get_context("forkserver")
    store = str(path.with_suffix(f".store-{time.monotonic_ns()}"))
    context.set_forkserver_preload(["torch", "torch.distributed.tensor", "unspool"])
    processes = [
        context.Process(target=ranked, args=(rank, size, work, path, store)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    return finish(list(processes))


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    return unspool.Checkpointer(
        path, ranks="torch", every=1, host_memory="8MiB", device="cpu", timeout=30, **options
    )
