r"""The gradient of a wave in three dimensions by the ways of PyTorch, of JAX and of this project.

Seconds of a gradient, the memory of the GPU that it takes, and for loops through a spool where the
time goes: how long the host was busy before it had nothing to do but wait for the GPU, and how long
of that it waited for room and for data. A loop without the spool that computes the same steps again
stands beside each, as `checkpoint`. Gradients are compared with those of all kept. A process uses
one framework, on its first GPU where it has one; on a CPU, choose a smaller problem. Run it with
the package and that framework installed:

    python lab/benches/python/python_loops.py torch [--json loops-torch.json]
    python lab/benches/python/python_loops.py jax [--json loops-jax.json]
    python lab/benches/python/python_loops.py torch --points 24 --steps 60 --device-memory 1MiB \
        --host-memory 64MiB
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import unspool

# JAX would take most of a GPU's memory for itself, and leave none for a device tier.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

#: Lengths of segments.
SEGMENTS = (32, 4, 1)

#: The speed, in cells a step.
SPEED = 0.4


def bend(field: Any, roll: Callable[..., Any]) -> Any:
    """The sum of second differences along all axes."""
    around = sum(roll(field, by, axis) for axis in range(3) for by in (1, -1))
    return around - 6 * field


def wave(speed: Any, roll: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A step; what is recorded is a line through the middle."""
    middle = speed.shape[0] // 2

    def step(carry: Any, _: Any) -> Any:
        before, now = carry
        after = 2 * now - before + speed**2 * bend(now, roll)
        return (now, after), after[middle, middle, ::3]

    return step


class Torch:
    """The ways of PyTorch."""

    def __init__(self, points: int, steps: int, spool: unspool.Spool) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.loops: Any = importlib.import_module("unspool.torch")
        self.steps, self.spool = steps, spool
        self.gpu = self.torch.cuda.is_available()
        place = {"device": "cuda" if self.gpu else "cpu"}
        self.speed = self.torch.full((points,) * 3, SPEED, requires_grad=True, **place)
        self.pulse = pulse(self.torch.linspace(-1, 1, points, **place), self.torch)
        self.machine = self.torch.cuda.get_device_name() if self.gpu else "CPU"
        self.version = f"PyTorch {self.torch.__version__}"
        self.expected: Any = None

    def ways(self) -> dict[tuple[str, str], Callable[[], Any]]:
        """The loops by name and option."""
        scan, adjoint = self.loops.scan, self.loops.adjoint
        found: dict[tuple[str, str], Any] = {("all kept", ""): self.kept}
        for every in SEGMENTS:
            found["checkpoint", f"every={every}"] = partial(self.checkpointed, every)
            options = {"length": self.steps, "segment": every, "spool": self.spool}
            found["scan", f"every={every}"] = partial(scan, **options)
        options = {"length": self.steps, "params": [self.speed], "spool": self.spool}
        found["adjoint", ""] = partial(adjoint, **options)
        return found

    def kept(self, step: Any, carry: Any) -> Any:
        """A plain loop."""
        ys = []
        for _ in range(self.steps):
            carry, y = step(carry, None)
            ys.append(y.clone())
        return carry, self.torch.stack(ys)

    def checkpointed(self, every: int, step: Any, carry: Any) -> Any:
        """A loop whose segments are computed again, without a spool."""
        checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint

        def segment(carry: Any, count: int) -> Any:
            ys = []
            for _ in range(count):
                carry, y = step(carry, None)
                ys.append(y.clone())
            return carry, ys

        ys: list[Any] = []
        for first in range(0, self.steps, every):
            count = min(every, self.steps - first)
            carry, more = checkpoint(segment, carry, count, use_reentrant=False)
            ys += more
        return carry, self.torch.stack(ys)

    def gradient(self, loop: Any) -> dict[str, float]:
        """One gradient, and what it took."""
        gc.collect()
        if self.gpu:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()
        self.speed.grad = None
        self.wait()
        begin = time.perf_counter()
        _, record = loop(wave(self.speed, self.torch.roll), (self.pulse, self.pulse))
        enqueued = time.perf_counter()
        self.wait()
        middle = time.perf_counter()
        record.square().sum().backward()
        back = time.perf_counter()
        self.wait()
        end = time.perf_counter()
        most = self.torch.cuda.max_memory_allocated() if self.gpu else 0
        return {
            "seconds": end - begin,
            "forward": middle - begin,
            "host": (enqueued - begin) + (back - middle),
            "framework_gib": most / 2**30,
        }

    def wait(self) -> None:
        """Waits for the GPU."""
        if self.gpu:
            self.torch.cuda.synchronize()

    def difference(self) -> float:
        """How far the last gradient is from the first one, as a share of it."""
        found = self.speed.grad.to("cpu", copy=True)
        if self.expected is None:
            self.expected = found
        return float((found - self.expected).norm() / self.expected.norm())


class Jax:
    """The ways of JAX."""

    def __init__(self, points: int, steps: int, spool: unspool.Spool, budget: str) -> None:
        self.jax: Any = importlib.import_module("jax")
        self.numpy: Any = importlib.import_module("jax.numpy")
        self.loops: Any = importlib.import_module("unspool.jax")
        self.steps, self.spool, self.budget = steps, spool, budget
        self.speed = self.numpy.full((points,) * 3, SPEED)
        self.pulse = pulse(self.numpy.linspace(-1, 1, points), self.numpy)
        self.machine = str(self.jax.devices()[0].device_kind)
        self.version = f"JAX {self.jax.__version__}"
        self.compiled: dict[Any, Any] = {}
        self.found: Any = None
        self.expected: Any = None

    def ways(self) -> dict[tuple[str, str], Callable[[], Any]]:
        """The loops by name and option."""
        found: dict[tuple[str, str], Any] = {("all kept", ""): self.kept}
        for every in SEGMENTS:
            found["checkpoint", f"every={every}"] = partial(self.checkpointed, every)
            options = {"length": self.steps, "segment": every, "spool": self.spool}
            found["scan", f"every={every}"] = partial(self.loops.scan, **options)
        # What is chosen where nothing is said, within a budget, and where a spool is given.
        alone = partial(self.loops.scan, length=self.steps, report=print)
        found["scan", "auto"] = alone
        found["scan", self.budget] = partial(alone, budget=self.budget)
        found["scan", "spool"] = partial(alone, spool=self.spool)
        return found

    def kept(self, step: Any, carry: Any) -> Any:
        """JAX's own loop."""
        return self.jax.lax.scan(step, carry, length=self.steps)

    def checkpointed(self, every: int, step: Any, carry: Any) -> Any:
        """JAX's own loops, of which segments are computed again."""
        scan, segments = self.jax.lax.scan, self.steps // every
        inner = self.jax.checkpoint(lambda carry, _: scan(step, carry, length=every))
        carry, ys = scan(inner, carry, length=segments)
        ys = ys.reshape(-1, *ys.shape[2:])
        if self.steps % every:
            carry, more = scan(step, carry, length=self.steps % every)
            ys = self.numpy.concatenate([ys, more])
        return carry, ys

    def gradient(self, loop: Any) -> dict[str, float]:
        """One gradient, and what it took; it is compiled before that."""
        if loop not in self.compiled:

            def loss(speed: Any, pulse: Any) -> Any:
                _, record = loop(wave(speed, self.numpy.roll), (pulse, pulse))
                return self.numpy.sum(record**2)

            traced = self.jax.jit(self.jax.grad(loss)).lower(self.speed, self.pulse)
            self.compiled = {loop: traced.compile()}
        made = self.compiled[loop]
        begin = time.perf_counter()
        self.found = made(self.speed, self.pulse)
        enqueued = time.perf_counter()
        self.found.block_until_ready()
        end = time.perf_counter()
        memory = made.memory_analysis()
        most = memory.temp_size_in_bytes + memory.argument_size_in_bytes
        most += memory.output_size_in_bytes
        return {
            "seconds": end - begin,
            "host": enqueued - begin,
            "framework_gib": most / 2**30,
        }

    def difference(self) -> float:
        """How far the last gradient is from the first one, as a share of it."""
        if self.expected is None:
            self.expected = self.found
        norm = self.numpy.linalg.norm
        return float(norm(self.found - self.expected) / norm(self.expected))


def pulse(x: Any, framework: Any) -> Any:
    """What the wave begins with."""
    line = framework.exp(-((x / 0.05) ** 2))
    return line[:, None, None] * line[None, :, None] * line[None, None, :]


def measured(framework: Any, loop: Any, rounds: int) -> list[dict[str, float]]:
    """What each of several gradients took, after one that is not counted."""
    found = []
    for turn in range(rounds + 1):
        before = framework.spool.stats()
        one = framework.gradient(loop)
        after = framework.spool.stats()
        one["save_stall"] = after.save_stall_seconds - before.save_stall_seconds
        one["restore_stall"] = after.restore_stall_seconds - before.restore_stall_seconds
        one["saved_gib"] = (after.saved_bytes - before.saved_bytes) / 2**30
        first = after.tiers[0]
        spooled = one["saved_gib"] > 0 and first.name == "device"
        one["gib"] = one["framework_gib"] + (first.peak / 2**30 if spooled else 0.0)
        if turn:
            found.append(one)
    return found


def run(framework: Any, only: list[str] | None, rounds: int) -> list[dict[str, Any]]:
    """The figures of all ways, which are printed on the way."""
    points = []
    for (name, option), loop in framework.ways().items():
        if only is not None and name not in only:
            continue
        try:
            found = measured(framework, loop, rounds)
        except RuntimeError as error:
            # PyTorch's and JAX's errors have no common class for this.
            if "out of memory" not in str(error).lower():
                raise
            print(f"{name:12}{option:10} no room", flush=True)
            continue
        apart = framework.difference()
        print(row(name, option, found, apart), flush=True)
        best = min(found, key=lambda one: one["seconds"])
        all_seconds = [one["seconds"] for one in found]
        labels = {"panel": framework.version, "method": name, "label": option}
        points.append({**labels, **best, "apart": apart, "rounds": all_seconds})
    return points


def row(name: str, option: str, rounds: list[dict[str, float]], apart: float) -> str:
    """A line of the table."""
    best = min(rounds, key=lambda one: one["seconds"])
    line = f"{name:12}{option:10}"
    for key in ("gib", "forward", "host", "save_stall", "restore_stall", "saved_gib"):
        line += f"{best[key]:10.3f}" if key in best else f"{'-':>10}"
    return f"{line}{apart:10.1e}  " + " ".join(f"{one['seconds']:.3f}" for one in rounds)


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=["torch", "jax"])
    parser.add_argument("--points", type=int, default=192, help="along each axis")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2, help="that are timed, of each way")
    parser.add_argument("--device-memory", default="2GiB", help="of the spool, on a GPU")
    parser.add_argument("--host-memory", default="60GiB", help="of the spool")
    parser.add_argument("--budget", default="2GiB", help="of the scan of JAX without a spool")
    parser.add_argument("--only", help="names of ways, with commas between")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    given = parser.parse_args()
    try:
        tiers = {"device_memory": given.device_memory, "host_memory": given.host_memory}
        spool = unspool.Spool(**tiers, device="cuda")
    except unspool.Error:
        spool = unspool.Spool(host_memory=given.host_memory, device="cpu")
    made = {"torch": Torch, "jax": partial(Jax, budget=given.budget)}[given.framework]
    with spool:
        framework = made(given.points, given.steps, spool)
        state = 2 * 4 * given.points**3 / 2**20
        print(f"{framework.machine}, {framework.version}, {given.points}^3 points, ", end="")
        print(f"{given.steps} steps, a state of {state:.0f} MiB; seconds and GiB")
        heads = ("GiB", "forward", "host", "save wait", "data wait", "saved", "apart")
        print(f"{'way':22}" + "".join(f"{head:>10}" for head in heads) + "  each round")
        only = None if given.only is None else given.only.split(",")
        points = run(framework, only, given.rounds)
    if given.json is not None:
        title = f"The gradient of {given.steps:,} steps of a wave of {given.points}^3 points"
        found = {"title": title, "machine": framework.machine, "points": points}
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
