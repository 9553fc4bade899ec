"""Steps of a stack of layers within budgets of memory, by `unspool.torch.budget` and by others.

One row for each budget: milliseconds a step of all kept, of `torch.utils.checkpoint` on every
layer, of `save_on_cpu(pin_memory=True)`, of `unspool.torch.offload`, and of `unspool.torch.budget`
with what it expected and chose. On a GPU, the layers are those of a language model in bfloat16, and
the batch is such that 16 of them save about 24 GiB; on a CPU they are small, and budgets are the
same parts of what they save. Gradients are compared with those of all kept, bit for bit, in a step
of PyTorch's deterministic mode. A second table has ratios: of `budget` to all kept, of what it
expected to what came, and of its peak to the budget with what all kept takes besides; and of
`offload` to the larger of all kept and its bytes over the link, away and back. Run it with the
package and PyTorch installed:

    python lab/benches/python/python_torch_budget.py [--layers 16] [--steps 5] [--json budget.json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import unspool.torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from unspool.stats import size

# The deterministic mode of matrix products on a GPU.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

#: Budgets, of the 24 parts that everything is.
PARTS = (24, 20, 16, 12, 8, 4)

#: Steps before those that are timed: `budget` measures two of them.
WARM = 4


#: Seconds of a step, and GiB at most; None where there was no room.
Run = tuple[float, float] | None


class Layer(torch.nn.Module):
    """Attention and a gated layer."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(width) for _ in range(2)])
        self.mix = torch.nn.ModuleList(
            [torch.nn.Linear(width, width, bias=False) for _ in range(4)]
        )
        self.gate, self.up = (torch.nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer of (batch, sequence, width)."""
        h = self.norms[0](x)
        q, k, v = (mix(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for mix in self.mix[:3])
        a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix[3](a.transpose(1, 2).flatten(2))
        h = self.norms[1](x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


class Stack(torch.nn.Module):
    """Layers, one after the other, each under checkpoint if that is asked for."""

    def __init__(self, layers: int, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(width, inner, heads) for _ in range(layers)])
        self.repeat = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All layers of (batch, sequence, width)."""
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.repeat else layer(x)
        return x


class Bench:
    """One model and one batch."""

    def __init__(self, options: argparse.Namespace) -> None:
        gpu = torch.cuda.is_available()
        self.device, self.steps = torch.device("cuda" if gpu else "cpu"), options.steps
        width, inner, heads = (4096, 11008, 32) if gpu else (128, 344, 4)
        self.shape = (2048, 4096) if gpu else (128, 128)
        torch.manual_seed(0)
        dtype = torch.bfloat16 if gpu else torch.float32
        self.net = Stack(options.layers, width, inner, heads).to(self.device, dtype)
        one = self.saved(self.batch(1, dtype))
        many = options.batch or (
            max(1, round(options.layers / 16 * 24 * 2**30 / one)) if gpu else 4
        )
        self.x = self.batch(many, dtype)
        self.total = self.saved(self.x)
        self.expected: list[torch.Tensor] | None = None
        self.points: list[dict[str, Any]] = []
        self.rates = link() if gpu else None

    def batch(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Random sequences."""
        return torch.randn(count, *self.shape, device=self.device, dtype=dtype)

    def saved(self, x: torch.Tensor) -> int:
        """The bytes that autograd saves of one layer, for all layers."""
        seen: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            seen[storage._cdata] = storage.nbytes()
            return tensor.detach()

        layer = self.net.layers[0]
        with saved_tensors_hooks(pack, lambda tensor: tensor):
            # As of a layer in the middle, which is given what another one has computed.
            layer(x.detach().requires_grad_())
        weights = {each.untyped_storage()._cdata for each in layer.parameters()}
        return len(self.net.layers) * sum(n for key, n in seen.items() if key not in weights)

    def step(self, context: AbstractContextManager[Any]) -> None:
        """One step, without an optimiser."""
        self.net.zero_grad()
        with context:
            loss = self.net(self.x).float().square().mean()
        loss.backward()

    def run(
        self, name: str, limit: int | None, make: Callable[[], AbstractContextManager[Any]]
    ) -> Run:
        """Seconds of a step, and on a GPU the most bytes that were allocated."""
        gc.collect()
        context = make()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        try:
            times = [self.timed(context) for _ in range(WARM + self.steps)][WARM:]
        except torch.OutOfMemoryError:
            return None
        seconds, most = statistics.median(times), 0.0
        if self.device.type == "cuda":
            most = torch.cuda.max_memory_allocated() / 2**30
        label = "" if limit is None else size(limit)
        point = {"panel": f"PyTorch {torch.__version__}", "method": name, "label": label}
        self.points.append({**point, "seconds": seconds, "gib": most})
        self.compare(context)
        return seconds, most

    def timed(self, context: AbstractContextManager[Any]) -> float:
        """Seconds of a step."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        self.step(context)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    def compare(self, context: AbstractContextManager[Any]) -> None:
        """Takes one more step, whose gradients are those of the first run.

        A GPU adds up in one order then, as its attention does in no other mode.
        """
        torch.use_deterministic_algorithms(True)
        self.step(context)
        torch.use_deterministic_algorithms(False)
        found = [each.grad for each in self.net.parameters()]
        if self.expected is None:
            pinned = self.device.type == "cuda"
            self.expected = [
                torch.empty_like(each, device="cpu", pin_memory=pinned) for each in found
            ]
            for one, other in zip(found, self.expected, strict=True):
                other.copy_(one)
        pairs = zip(found, self.expected, strict=True)
        if not all(torch.equal(one, other.to(self.device)) for one, other in pairs):
            raise SystemExit("gradients differ from those of all kept")

    def bound(self, limit: int, kept: float) -> float:
        """The least seconds of a step whose tensors beyond a budget go away and come back."""
        if self.rates is None:
            return kept
        return max(kept, sum(max(0, self.total - limit) / rate for rate in self.rates))


def link() -> tuple[float, float]:
    """Bytes per second of copies from the GPU into pinned memory, and back."""
    here = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    there = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)

    def rate(one: torch.Tensor, other: torch.Tensor) -> float:
        one.copy_(other)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(8):
            one.copy_(other, non_blocking=True)
        torch.cuda.synchronize()
        return 8 * one.nbytes / (time.perf_counter() - begin)

    return rate(there, here), rate(here, there)


def text(run: Run) -> str:
    """Milliseconds of a step, and the most memory, as in the first table."""
    if run is None:
        return "no room"
    seconds, most = run
    return f"{seconds * 1e3:.1f}" + (f" ({most:.1f})" if most else "")


def ratios(bench: Bench, kept: Run, rows: list[tuple[int, Run, Run, Any]]) -> None:
    """Prints the second table, and whether more memory is ever slower."""
    if kept is None:
        return
    print("budget / all kept, expected / measured, peak / (budget + rest); offload / bound")
    times = []
    for limit, offloaded, ours, expected in rows:
        parts = [f"{size(limit):>12}"]
        if ours is not None:
            times.append(ours[0])
            parts.append(f"{ours[0] / kept[0]:8.3f}")
            parts.append(f"{(expected or ours[0]) / ours[0]:8.3f}")
            rest = kept[1] - bench.total / 2**30
            parts.append(f"{ours[1] / (limit / 2**30 + rest):8.3f}" if ours[1] else " " * 8)
        if offloaded is not None:
            parts.append(f"{offloaded[0] / bench.bound(limit, kept[0]):8.3f}")
        print(" ".join(parts))
    worst = max((more / less for more, less in itertools.pairwise(times)), default=1.0)
    print(f"a larger budget takes at most {worst:.3f} times what a smaller one does", end="")
    print(": monotone within 2 %" if worst <= 1.02 else ": not monotone")


def main() -> None:
    """Prints a row for each budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--batch", type=int, help="sequences in a batch")
    parser.add_argument("--steps", type=int, default=5, help="that are timed")
    parser.add_argument("--parts", type=int, nargs="+", default=PARTS, help="of 24: the budgets")
    parser.add_argument("--ours", action="store_true", help="only beside all kept")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    bench = Bench(options)
    kind = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    print(f"{kind}, PyTorch {torch.__version__}, {len(bench.net.layers)} layers, ", end="")
    print(f"batch {tuple(bench.x.shape)} of {bench.x.dtype}: {size(bench.total)} saved")
    print("milliseconds a step" + (" (GiB at most)" if bench.device.type == "cuda" else ""))
    kept = bench.run("all kept", None, nullcontext)
    repeated: Run = None
    moved: Run = None
    rows = []
    if not options.ours:
        bench.net.repeat = True
        repeated = bench.run("checkpoint", None, nullcontext)
        bench.net.repeat = False
        pinned = bench.device.type == "cuda"
        moved = bench.run("save_on_cpu", None, lambda: save_on_cpu(pin_memory=pinned))
    columns = [text(kept), *("-" if options.ours else text(each) for each in (repeated, moved))]
    head = ("budget", "all kept", "checkpoint", "save_on_cpu", "offload", "budget", "expected")
    print(" ".join(f"{each:>16}" for each in head), " chosen")
    for part in options.parts:
        # What is kept takes a little more than its bytes, since memory is given in blocks: where
        # all of it is to fit, the budget has 2 % more.
        limit = bench.total * part // 24 + (bench.total // 50 if part == 24 else 0)
        offloaded = bench.run(
            "offload", limit, lambda b=limit: unspool.torch.offload(bench.net, budget=b)
        )
        with unspool.torch.budget(bench.net, limit) as blocks:
            ours = bench.run("budget", limit, nullcontext)
            report = blocks.report
        # Its spool has to be gone before the next one asks how much memory is free.
        del blocks
        wanted = report.expected_seconds
        expected = "-" if wanted is None else f"{wanted * 1e3:.1f}"
        row = (size(limit), *columns, text(offloaded), text(ours), expected)
        print(" ".join(f"{each:>16}" for each in row), "", str(report).splitlines()[0], flush=True)
        rows.append((limit, offloaded, ours, wanted))
    ratios(bench, kept, rows)
    if options.json is not None:
        title = f"A step of {len(bench.net.layers)} layers that save {size(bench.total)}"
        found = {"title": title, "machine": kind, "points": bench.points}
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
