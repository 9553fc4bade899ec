"""Gradients of loops on a CPU: the defaults beside what somebody writes by hand.

Two programs: an acoustic wave in NumPy, whose states go to `unspool.adjoint`, and a reaction of
Gray and Scott in PyTorch. Each way runs in a process of its own, in turns; the gradient is compared
with that of all kept. Printed are the median and the range of the seconds of a gradient after a
first one, and the growth of resident memory at most, in MiB. By hand there are: everything kept, a
plain file in the page cache, states at equal distances (with as many as the memory holds), and in
PyTorch `torch.utils.checkpoint` and hooks that put saved tensors into files. Run it with the
package, NumPy and PyTorch installed:

    python lab/benches/python/python_cpu.py [--programs wave,scott] [--rounds 5] [--mib 256]

Deepwave and Devito are compared by `examples/deepwave_fwi.py` and `examples/devito_history.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import unspool
from unspool.schedules import Auto


class Wave:
    """A wave whose state is its last two fields; the gradient is by the squared speed."""

    def __init__(self, points: int, steps: int, memory: int, folder: str) -> None:
        self.steps, self.memory, self.folder = steps, memory, folder
        noise = np.random.default_rng(1)
        self.speed = noise.uniform(0.1, 0.2, (points, points)).astype(np.float32)
        self.start = noise.normal(size=(2, points, points)).astype(np.float32)
        self.gradient, self.adjoint = np.zeros_like(self.speed), np.zeros_like(self.start)

    def forward(self, u: np.ndarray, start: int, stop: int) -> None:
        """Takes the steps start to stop - 1, in place."""
        for _ in range(start, stop):
            u[0] = 2 * u[1] - u[0] + self.speed * laplacian(u[1])
            u[:] = u[::-1].copy()

    def at_end(self, u: np.ndarray) -> None:
        """The derivative of half the sum of squares of the last field."""
        self.adjoint[0], self.adjoint[1] = 0, u[1]

    def reverse(self, u: np.ndarray, step: int) -> None:
        """Takes one step back from its state."""
        v = self.adjoint[1].copy()
        self.gradient += v * laplacian(u[1])
        self.adjoint[1] = self.adjoint[0] + 2 * v + laplacian(self.speed * v)
        self.adjoint[0] = -v

    def by(self, keep: Callable[[int, np.ndarray], None], back: Callable[[int], np.ndarray]) -> Any:
        """A gradient whose every state is kept by one call and comes back from another."""
        u = self.start.copy()
        for step in range(self.steps):
            keep(step, u)
            self.forward(u, step, step + 1)
        self.at_end(u)
        for step in reversed(range(self.steps)):
            self.reverse(back(step), step)

    def kept(self) -> None:
        """Everything in memory."""
        states: list[Any] = []
        self.by(lambda _, u: states.append(u.copy()), lambda _: states.pop())

    def file(self) -> None:
        """Everything in a file, as a program does it that knows nothing else."""
        target = np.empty_like(self.start)
        with open(Path(self.folder) / "states", "w+b", buffering=0) as file:

            def back(step: int) -> np.ndarray:
                file.seek(step * target.nbytes)
                file.readinto(target)
                return target

            self.by(lambda _, u: file.write(u), back)

    def apart(self) -> None:
        """States at equal distances, and those of the segment that is reversed."""
        length = math.isqrt(self.steps - 1) + 1
        u, kept = self.start.copy(), {}
        for begin in range(0, self.steps, length):
            kept[begin] = u.copy()
            self.forward(u, begin, min(begin + length, self.steps))
        self.at_end(u)
        for begin in reversed(kept):
            u, states = kept[begin], []
            for step in range(begin, min(begin + length, self.steps)):
                states.append(u.copy())
                self.forward(u, step, step + 1)
            while states:
                self.reverse(states.pop(), begin + len(states))

    def spooled(self, **tiers: Any) -> None:
        """What the guide shows."""
        u = self.start.copy()
        with unspool.Spool(device="cpu", **tiers) as spool:
            call = self.forward, self.reverse, u
            report = unspool.adjoint(Auto(self.steps), spool, *call, at_end=self.at_end)
        print(repr(report.choice.schedule).split(", write")[0], file=sys.stderr)

    def ways(self) -> dict[str, Callable[[], None]]:
        """By their names."""
        disk = Path(self.folder) / "spool"
        disk.mkdir(exist_ok=True)
        all_of_it = self.steps * (self.start.nbytes + 4096)
        return {
            "all kept": self.kept,
            "plain file": self.file,
            "equal distances": self.apart,
            "Auto, memory": lambda: self.spooled(host_memory=self.memory),
            "Auto, memory and disk": lambda: self.spooled(host_memory=self.memory, disk=str(disk)),
            "Auto, all fits": lambda: self.spooled(host_memory=all_of_it),
        }

    def run(self, way: str) -> np.ndarray:
        """The gradient."""
        self.gradient[:] = 0
        self.ways()[way]()
        return self.gradient


def laplacian(u: np.ndarray) -> np.ndarray:
    """With zeros around."""
    found = -4 * u
    found[1:] += u[:-1]
    found[:-1] += u[1:]
    found[:, 1:] += u[:, :-1]
    found[:, :-1] += u[:, 1:]
    return found


class Scott:
    """Two substances that react and diffuse; the gradient is by the rates at every point."""

    def __init__(self, points: int, steps: int, memory: int, folder: str) -> None:
        import torch

        self.torch, self.steps, self.memory, self.folder = torch, steps, memory, folder
        torch.manual_seed(1)
        self.feed = (0.03 + 0.01 * torch.rand(points, points)).requires_grad_()
        self.start = torch.rand(2, points, points)

    def step(self, c: Any, _: Any = None) -> Any:
        """A step, as a loop's body that has no output."""
        u, v = c
        reaction = u * v * v
        u = u + 0.16 * self._laplacian(u) - reaction + self.feed * (1 - u)
        v = v + 0.08 * self._laplacian(v) + reaction - (self.feed + 0.06) * v
        return self.torch.stack([u, v]), None

    def _laplacian(self, u: Any) -> Any:
        roll = self.torch.roll
        return roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u

    def plain(self, begin: int = 0, stop: int | None = None, c: Any = None) -> Any:
        """The loop."""
        c = self.start if c is None else c
        for _ in range(begin, self.steps if stop is None else stop):
            c, _ = self.step(c)
        return c

    def checkpointed(self) -> Any:
        """Segments by `torch.utils.checkpoint`."""
        from torch.utils.checkpoint import checkpoint

        c, length = self.start, math.isqrt(self.steps - 1) + 1
        for begin in range(0, self.steps, length):
            stop = min(begin + length, self.steps)
            run = lambda c, begin=begin, stop=stop: self.plain(begin, stop, c)  # noqa: E731
            c = checkpoint(run, c, use_reentrant=False)
        return c

    def files(self) -> Any:
        """Saved tensors in files, as PyTorch's tutorial on hooks has it."""
        numbers = iter(range(1 << 60))

        def pack(tensor: Any) -> Path:
            path = Path(self.folder) / f"saved-{next(numbers)}"
            self.torch.save(tensor, path)
            return path

        hooks = self.torch.autograd.graph.saved_tensors_hooks
        with hooks(pack, self.torch.load):
            return self.plain()

    def scanned(self, **options: Any) -> Any:
        """`unspool.torch.scan`."""
        from unspool.torch import scan

        return scan(self.step, self.start, length=self.steps, **options)[0]

    def adjoined(self, **tiers: Any) -> Any:
        """`unspool.torch.adjoint`."""
        from unspool.torch import adjoint

        if not tiers:
            return adjoint(self.step, self.start, length=self.steps, params=[self.feed])[0]
        spool = unspool.Spool(device="cpu", **tiers)
        call = {"length": self.steps, "params": [self.feed], "spool": spool}
        return adjoint(self.step, self.start, **call)[0]

    def ways(self) -> dict[str, Callable[[], Any]]:
        """By their names."""
        return {
            "all kept": self.plain,
            "checkpoint": self.checkpointed,
            "hooks, files": self.files,
            "scan": self.scanned,
            "scan, memory": lambda: self.scanned(budget=self.memory),
            "adjoint": self.adjoined,
            "adjoint, memory": lambda: self.adjoined(host_memory=self.memory),
        }

    def run(self, way: str) -> np.ndarray:
        """The gradient."""
        self.feed.grad = None
        self.ways()[way]().square().sum().backward()
        for path in Path(self.folder).glob("saved-*"):
            path.unlink()
        return self.feed.grad.numpy()


PROGRAMS = {"wave": Wave, "scott": Scott}


def one(options: argparse.Namespace) -> None:
    """In a process of its own: a way, twice, and what the second one took."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        kind = PROGRAMS[options.programs]
        points, steps = getattr(options, options.programs)
        program = kind(points, steps, options.mib << 20, folder)
        before = resident("VmRSS")
        program.run(options.way)
        begun, processor = time.perf_counter(), time.process_time()
        gradient = program.run(options.way)
        found = {
            "seconds": time.perf_counter() - begun,
            "processor": time.process_time() - processor,
            "mib": (resident("VmHWM") - before) / 1024,
            "sum": [float(np.abs(gradient).sum(dtype=np.float64)), gradient.tobytes().hex()[:64]],
        }
    print(json.dumps(found))


def resident(name: str) -> int:
    """KiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def compare(name: str, options: argparse.Namespace) -> None:
    """Prints a row for each way."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        ways = list(PROGRAMS[name](16, 4, 1 << 20, folder).ways())
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            call = [sys.executable, __file__, *sys.argv[1:], "--programs", name, "--way", way]
            done = subprocess.run(call, capture_output=True, text=True, check=True)
            runs[way].append(json.loads(done.stdout) | {"said": done.stderr.strip()})
    truth = runs["all kept"][0]["sum"]
    print(f"{name}: {getattr(options, name)[0]} points a side, {getattr(options, name)[1]} steps")
    print(f"{'way':24}{'seconds':>9}{'least':>8}{'most':>8}{'processor':>11}{'MiB':>8}  gradient")
    for way, found in runs.items():
        seconds = sorted(run["seconds"] for run in found)
        processor = statistics.median(run["processor"] for run in found)
        mib = max(run["mib"] for run in found)
        same = "the same" if all(run["sum"] == truth for run in found) else "OTHER"
        row = f"{statistics.median(seconds):9.2f}{seconds[0]:8.2f}{seconds[-1]:8.2f}"
        said = found[-1]["said"].splitlines()[-1:]
        print(f"{way:24}{row}{processor:11.2f}{mib:8.0f}  {same}", *said, flush=True)


def main() -> None:
    """Prints a table for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="wave,scott")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=256, help="for states")
    parser.add_argument("--wave", nargs=2, type=int, default=(1000, 200), help="points and steps")
    parser.add_argument("--scott", nargs=2, type=int, default=(400, 200), help="points and steps")
    parser.add_argument("--folder", help="for files")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        one(options)
        return
    for name in options.programs.split(","):
        compare(name, options)


if __name__ == "__main__":
    main()
