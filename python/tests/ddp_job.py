"""One rank of a job of PyTorch's DDP, whose gradients are those of plain DDP: for
`test_torch_ddp.py` and `test_gpu_torch_ddp.py`.

    python ddp_job.py RANK SIZE FILE cpu | cuda
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as ranks
import unspool
from torch.nn.parallel import DistributedDataParallel
from unspool.torch import budget, offload, scan

from torch_programs import Block, plain

#: A rank that waits for a lost one gives up after so many seconds.
PATIENCE = 120

Step = Callable[[], list[torch.Tensor]]


class Loop(torch.nn.Module):
    """Steps with one weight, as a plain loop or through a spool."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.options: dict[str, Any] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(u: torch.Tensor, _: Any) -> Any:
            return torch.dropout(torch.tanh(u @ self.weight), 0.1, True), None

        if self.options is None:
            return plain(step, x, None, 12)[0]
        return scan(step, x, length=12, **self.options)[0]


def gradients(net: torch.nn.Module, x: torch.Tensor, keep: Any) -> list[torch.Tensor]:
    """Those of one step, which DDP has averaged over the ranks."""
    torch.manual_seed(5)
    net.zero_grad()
    with keep:
        loss = net(x).square().mean()
    loss.backward()
    return [each.grad.clone() for each in net.parameters()]


def check(place: torch.device, rank: int, size: int, spool: unspool.Spool) -> None:
    """Compares every way with plain DDP."""
    torch.manual_seed(0)
    width = 64
    stack = torch.nn.Sequential(*(Block(width) for _ in range(4)), Loop(width)).to(place)
    net = DistributedDataParallel(stack, device_ids=[place] if place.type == "cuda" else None)
    torch.manual_seed(rank + 1)
    x = torch.randn(2, 16, width, device=place)
    expected = gradients(net, x, contextlib.nullcontext())
    # Both ranks have the same averages, of different batches.
    seen = [torch.empty_like(expected[0]) for _ in range(size)]
    ranks.all_gather(seen, expected[0])
    assert all(torch.equal(each, seen[0]) for each in seen)

    def same(what: str, found: list[torch.Tensor]) -> None:
        pairs = zip(found, expected, strict=True)
        assert all(torch.equal(*pair) for pair in pairs), f"{what}: other gradients"
        gc.collect()
        assert len(spool) == 0, f"{what}: {len(spool)} left in the spool"

    loop = stack[-1]
    loop.options = {"segment": 5, "spool": spool}
    same("scan", gradients(net, x, contextlib.nullcontext()))
    loop.options = {"segment": 5, "spool": spool, "codec": "lossless", "check": 2}
    same("scan(check=2)", gradients(net, x, contextlib.nullcontext()))
    loop.options = None
    keep = offload(net, budget=0, min_bytes=0, spool=spool)
    for _ in range(3):
        same("offload", gradients(net, x, keep))
    with budget(net, "1MiB", spool=spool):
        for _ in range(4):
            same("budget", gradients(net, x, contextlib.nullcontext()))


def main() -> None:
    rank, size, file, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    if kind == "cuda":
        torch.cuda.set_device(rank)
        # A GPU adds up in one order then, as its attention does in no other mode.
        torch.use_deterministic_algorithms(True)
    place = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    patience = datetime.timedelta(seconds=PATIENCE)
    backend = "nccl" if kind == "cuda" else "gloo"
    ranks.init_process_group(
        backend, init_method=f"file://{file}", rank=rank, world_size=size, timeout=patience
    )
    tiers = {"device_memory": "2MiB", "device": str(place)} if kind == "cuda" else {"device": "cpu"}
    try:
        with unspool.Spool(host_memory="64MiB", **tiers) as spool:
            check(place, rank, size, spool)
    finally:
        ranks.destroy_process_group()
    print("equal")


if __name__ == "__main__":
    main()
