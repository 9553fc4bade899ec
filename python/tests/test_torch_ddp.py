"""`unspool.torch` in two processes of PyTorch's DDP: each has the gradients of plain DDP."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ranks_of_ddp import run_ranks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no Gloo", allow_module_level=True)


def test_two_processes_have_the_gradients_of_plain_ddp(tmp_path: Path) -> None:
    run_ranks(2, tmp_path / "meet", "cpu", {**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
