"""Whether the energy of a job with checkpoints is known from its first ones.

    python lab/benches/python/python_energy.py [--gib 4] [--codec none lossless] [--device cuda]

The model is that of `unspool.advise`, equations 5.5 to 5.8 of the dissertation: times of computing,
saving and restoring, by the mean power of each. All of these are fitted on the first checkpoints
and one restart; then the energy of the whole job is predicted, the job goes on, and at its end the
prediction stands beside what the counter says (the dissertation's Figure 5.12). `blocking` waits
for each checkpoint to be durable, `beside` computes on meanwhile, and then `save` is the power
while both go on. A restart closes the Checkpointer, opens it again and restores.

On a GPU the counter is NVML's of that GPU, and the job needs PyTorch; with `--device cpu` it is
RAPL's of the processors, which often only root may read. A line a job: watts of each phase, joules
predicted and counted, by how much the prediction is off, and by how much it would be had the times
been known; seconds predicted and measured. A job takes a minute or more.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import unspool
from unspool import _energy
from unspool.advice import Meter

GIB = 1 << 30
ARRAYS = 16
IDLE = 3.0


class OnGpu:
    """Computing that keeps a GPU busy, and a state there that it changes."""

    def __init__(self, size: int) -> None:
        import torch

        self.torch = torch
        make = torch.Generator(device="cuda").manual_seed(1)
        count = size // ARRAYS // 4
        self.state = {
            f"u{i}": torch.rand(count, generator=make, device="cuda") for i in range(ARRAYS)
        }
        self.left, self.right = (
            torch.rand(8192, 8192, generator=make, device="cuda").bfloat16() for _ in range(2)
        )

    def step(self, count: int) -> None:
        """Returns when the GPU has done it."""
        for _ in range(count):
            product = self.left @ self.right
        self.state[f"u{count % ARRAYS}"].add_(product[0, 0].float() * 1e-9)
        self.torch.cuda.synchronize()


class OnCpu:
    """The same in main memory."""

    def __init__(self, size: int) -> None:
        drawn = np.random.default_rng(1)
        count = size // ARRAYS // 4
        self.state = {f"u{i}": drawn.random(count, np.float32) for i in range(ARRAYS)}
        self.left, self.right = (drawn.random((512, 512), np.float32) for _ in range(2))

    def step(self, count: int) -> None:
        """Returns when it is done."""
        for _ in range(count):
            product = self.left @ self.right
        self.state[f"u{count % ARRAYS}"] += product[0, 0] * np.float32(1e-9)


@dataclass
class Job:
    """One job and its options."""

    work: Any
    folder: Path
    options: dict[str, Any]
    joules: Callable[[], float]
    per_step: int
    steps: int
    checkpoints: int
    fitted: int
    restarts: int
    blocking: bool

    def open(self) -> unspool.Checkpointer:
        """The Checkpointer of the job, opened for the first time or again."""
        return unspool.Checkpointer(self.folder, every=None, keep=1, **self.options)

    def run(self) -> str:
        """Runs it: its line of the table."""
        checkpoints = self.open()
        # The first checkpoint touches the memory of all tiers.
        checkpoints.save(0, **self.work.state)
        checkpoints.flush()
        begun, before = time.perf_counter(), self.joules()
        meter, prediction = Meter(self.joules), None
        for number in range(1, self.checkpoints + 1):
            self.interval(checkpoints, meter, number)
            if number in self.failures():
                checkpoints = self.restart(checkpoints, meter)
            if number == self.fitted:
                prediction = self.predict(meter)
        counted, seconds = self.joules() - before, time.perf_counter() - begun
        checkpoints.close()
        return self.line(prediction, meter, counted, seconds)

    def failures(self) -> list[int]:
        """After which checkpoints it is restarted: once while it is fitted, then evenly."""
        rest = self.checkpoints - self.fitted
        return [self.fitted + i * rest // self.restarts for i in range(self.restarts)]

    def interval(self, checkpoints: unspool.Checkpointer, meter: Meter, number: int) -> None:
        """Computes, and saves a checkpoint at the end."""
        left = self.steps
        # Long blocks: what a GPU takes between two of them, while counters are read, is in none.
        if checkpoints.spool.stats().unflushed > 0:
            with meter.during("save"):
                while left and checkpoints.spool.stats().unflushed > 0:
                    self.work.step(self.per_step)
                    left -= 1
        if left:
            with meter.during("app"):
                for _ in range(left):
                    self.work.step(self.per_step)
        with meter.during("save"):
            checkpoints.save(number, **self.work.state)
            if self.blocking:
                checkpoints.flush()

    def restart(self, checkpoints: unspool.Checkpointer, meter: Meter) -> unspool.Checkpointer:
        """As after a failure, but for what is computed again."""
        with meter.during("restore"):
            checkpoints.close()
            checkpoints = self.open()
            checkpoints.restore(**self.work.state)
            self.work.step(1)
        return checkpoints

    def predict(self, meter: Meter) -> tuple[Any, float, float]:
        """Powers, joules and seconds of the whole job, from its part so far."""
        scale = self.checkpoints / self.fitted
        seconds = {name: scale * meter.seconds[name] for name in ("app", "save")}
        seconds["restore"] = meter.seconds["restore"] * self.restarts
        return meter.power, meter.power.joules(**seconds), sum(seconds.values())

    def line(self, prediction: Any, meter: Meter, counted: float, seconds: float) -> str:
        """A line of the table."""
        power, predicted, foretold = prediction
        watts = (power.app, power.save, power.restore)
        off = 100.0 * (predicted / counted - 1.0)
        timed = 100.0 * (power.joules(**meter.seconds) / counted - 1.0)
        name = f"{'blocking' if self.blocking else 'beside'}, {self.options['codec'] or 'none'}"
        cells = "".join(f"{one:8.0f}" for one in watts)
        energy = f"{predicted:11,.0f}{counted:10,.0f}{off:+7.1f} %{timed:+7.1f} %"
        return f"{name:20}{cells}{energy}{foretold:9.1f}{seconds:8.1f}"


def counter_of(device: str) -> Callable[[], float]:
    """What the machine has taken so far, by the statistics of a spool."""
    spool = unspool.Spool(host_memory="1MiB", device=device)
    which = "gpu" if device == "cuda" else "processors"

    def joules() -> float:
        found = getattr(spool.stats().energy, which)
        if found is None:
            raise SystemExit(
                f"no energy of {device}: {'; '.join(_energy.counters().why) or 'not counted'}"
            )
        return float(found)

    joules()
    return joules


def paced(work: Any, warm: float) -> int:
    """How often to repeat the product for a step of about a quarter of a second, when warm."""
    end, count, rate = time.perf_counter() + warm, 1, 0.0
    while time.perf_counter() < end:
        begin = time.perf_counter()
        work.step(count)
        rate = count / (time.perf_counter() - begin)
        if count / rate < 0.2:
            count *= 2
    return max(1, round(rate * 0.25))


def main() -> None:
    parser = argparse.ArgumentParser(description="energy predicted from the first checkpoints")
    parser.add_argument("--gib", type=float, default=4, help="of a checkpoint")
    parser.add_argument("--codec", nargs="+", default=["none"], choices=["none", "lossless"])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--checkpoints", type=int, default=12)
    parser.add_argument("--fit", type=int, default=3, help="of them, those that are fitted on")
    parser.add_argument("--steps", type=int, default=14, help="of 0.25 s, before each")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument(
        "--warm", type=float, default=30, help="seconds of computing before: a cold GPU takes less"
    )
    parser.add_argument("--dir", type=Path, default=None, help="where checkpoints go")
    given = parser.parse_args()
    begin = time.perf_counter()
    _energy.counters().gpus()
    loaded = time.perf_counter() - begin
    size = int(given.gib * GIB) // ARRAYS // 4 * 4 * ARRAYS
    work: Any = OnGpu(size) if given.device == "cuda" else OnCpu(size)
    joules = counter_of(given.device)
    room = size + size // 64 + (64 << 20)
    tiers = (
        {"device_memory": room, "device": "cuda"} if given.device == "cuda" else {"device": "cpu"}
    )
    idle = Meter(joules)
    with idle.during("app"):
        time.sleep(IDLE)
    asked = []
    for _ in range(200):
        begin = time.perf_counter()
        joules()
        asked.append(time.perf_counter() - begin)
    print(f"counters found in {loaded * 1e3:.1f} ms, stats() in {statistics.median(asked):.1e} s")
    print(f"{size / GIB:.2f} GiB on {given.device}; at rest {idle.power.app:.0f} W")
    per_step = paced(work, given.warm)
    heads = f"{'watts: app':>28}{'save':>8}{'restore':>8}"
    print(f"{heads}{'J predicted':>11}{'counted':>10}{'off':>9}{'timed':>9}{'s pred.':>9}{'s':>8}")
    for codec in given.codec:
        for blocking in (True, False):
            with tempfile.TemporaryDirectory(dir=given.dir, prefix="energy-") as name:
                job = Job(
                    work=work,
                    folder=Path(name) / "run",
                    options={
                        **tiers,
                        "host_memory": room,
                        "codec": None if codec == "none" else codec,
                    },
                    joules=joules,
                    per_step=per_step,
                    steps=given.steps,
                    checkpoints=given.checkpoints,
                    fitted=given.fit,
                    restarts=given.restarts,
                    blocking=blocking,
                )
                print(job.run(), flush=True)


if __name__ == "__main__":
    main()
