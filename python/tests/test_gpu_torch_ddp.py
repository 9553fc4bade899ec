"""`unspool.torch` on two GPUs under PyTorch's DDP: each rank has the gradients of plain DDP."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks_of_ddp import run_ranks

from helpers import gpu_library

torch = gpu_library("torch")
pytestmark = pytest.mark.gpu


def test_two_gpus_have_the_gradients_of_plain_ddp(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"PyTorch sees {torch.cuda.device_count()} GPUs, and this needs two")
    # NVLink's multicast is not to be had everywhere; the deterministic mode wants the workspace.
    options = {"NCCL_NVLS_ENABLE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    run_ranks(2, tmp_path / "meet", "cuda", {**os.environ, **options})
