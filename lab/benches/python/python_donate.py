"""Arrays that are given away, and tensors that leave a GPU, with PyTorch on a GPU.

First, milliseconds for which a GPU is busy with saves that stay in the device tier, copied and
given away (`donate=True`), and the memory of the GPU that they take beside the spool's own. Then
milliseconds of whole steps under `unspool.torch.offload`, with the gradients compared bit for bit,
and what the host waits for: it enqueues a forward pass on a GPU that is kept busy, and is asked
whether it has come to the end of the pass before the GPU has begun with it. Run it with the package
and PyTorch installed:

    python lab/benches/python/python_donate.py [--mib 64] [--layers 32]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import unspool
import unspool.torch

#: Saves of the first part.
SAVES = 24

#: Cycles for which a GPU is kept busy: about two seconds.
BUSY = 4_000_000_000


def enqueued_ms(work: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds of the GPU and of the host for calls that enqueue `work`."""
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    began = time.perf_counter()
    work()
    host = 1e3 * (time.perf_counter() - began)
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last), host


def saves(count: int, donate: bool) -> None:
    """Saves arrays of `count` bytes into a device tier that has room for all."""
    room = (SAVES + 1) * count
    with unspool.Spool(device_memory=room, host_memory=room, device="cuda") as spool:
        # The tier is there, and the kernels of PyTorch are.
        spool.save(-1, torch.zeros(count, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        made = [
            torch.full((count,), version, dtype=torch.uint8, device="cuda")
            for version in range(SAVES)
        ]

        def work() -> None:
            for version in range(SAVES):
                spool.save(version, made[version], donate=donate)

        gpu, host = enqueued_ms(work)
        made.clear()
        kept = torch.cuda.memory_allocated() - before
        print(
            f"{'given' if donate else 'copied':>7}: GPU {gpu / SAVES:.3f} ms a save, host "
            f"{1e3 * host / SAVES:.0f} us, {kept / 2**20:.0f} MiB of PyTorch kept"
        )
        for version in reversed(range(SAVES)):
            assert bool((spool.load(version, to="torch") == version).all())
        spool.clear()
        assert torch.cuda.memory_allocated() <= before, "everything given was let go of"


def through(count: int) -> None:
    """Gives away more than the device tier holds."""
    with unspool.Spool(
        device_memory=4 * count, host_memory=(SAVES + 1) * count, device="cuda"
    ) as spool:
        most = 0
        for version in range(SAVES):
            array = torch.full((count,), version, dtype=torch.uint8, device="cuda")
            spool.save(version, array, donate=True)
            del array
            most = max(most, torch.cuda.memory_allocated())
        for version in reversed(range(SAVES)):
            assert bool((spool.load(version, to="torch") == version).all())
    print(f"through a tier of 4 arrays: right, {most / 2**20:.0f} MiB of PyTorch at most")


class Layers:
    """A stack of layers that each save one tensor."""

    def __init__(self, layers: int, count: int) -> None:
        width = 4096
        self.layers, self.saved = layers, layers * count
        self.weight = torch.randn(width, width, device="cuda", dtype=torch.bfloat16) / 64
        self.weight.requires_grad_()
        self.x = torch.randn(count // 2 // width, width, device="cuda", dtype=torch.bfloat16)

    def forward(self, keep: Any) -> torch.Tensor:
        """The loss, with what autograd saves in `keep`."""
        with keep:
            u = self.x
            for _ in range(self.layers):
                u = torch.tanh(u @ self.weight)
            return u.float().square().mean()

    def step(self, keep: Any) -> torch.Tensor:
        """The gradient."""
        return torch.autograd.grad(self.forward(keep), self.weight)[0]


def is_ahead(net: Layers, keep: Any) -> tuple[bool, float]:
    """Whether the host ends a forward pass before the GPU begins with it, and its milliseconds."""
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY)
    began = torch.cuda.Event()
    began.record()
    start = time.perf_counter()
    loss = net.forward(keep)
    host = 1e3 * (time.perf_counter() - start)
    ahead = not began.query()
    del loss
    return ahead, host


def offloads(net: Layers) -> None:
    """Steps within half of what is saved, with each kind of spool."""
    budget, tier = net.saved // 2, net.saved // 8
    expected = net.step(contextlib.nullcontext())

    def timed(keep: Any) -> str:
        times = []
        for _ in range(6):
            gpu, _ = enqueued_ms(lambda: check(net.step(keep)))
            times.append(gpu)
        ahead, host = is_ahead(net, keep)
        words = "does not wait" if ahead else "WAITS"
        return f"{statistics.median(times[2:]):.0f} ms a step; the host {words} ({host:.0f} ms)"

    def check(found: torch.Tensor) -> None:
        assert torch.equal(found, expected), "another gradient"

    print(f"all kept: {timed(contextlib.nullcontext())}")
    for name, device in (("host", None), ("device and host", tier)):
        with unspool.Spool(device_memory=device, host_memory=2 * net.saved, device="cuda") as spool:
            # Main memory that is not registered yet makes a copy wait.
            spool.prepare()
            keep = unspool.torch.offload(budget=budget, spool=spool)
            print(f"offload, {name}: {timed(keep)}")
            torch.cuda.synchronize()
            assert len(spool) == 0, "what was dropped is gone"


def main() -> None:
    """Prints all parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=64, help="of an array, and of a saved tensor")
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    count = options.mib << 20
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {options.mib} MiB")
    saves(count, donate=False)
    saves(count, donate=True)
    through(count)
    offloads(Layers(options.layers, count))


if __name__ == "__main__":
    main()
