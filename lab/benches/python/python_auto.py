"""How good `schedules.Auto` is: its time against the best of up to twelve schedules given by hand.

Programs are random by a seed: states of 1 to 64 MiB, steps of 10 us to 20 ms, memory for some of
the states, with and without a disk. Each schedule runs once in a spool of its own; the three
fastest ones, `Auto` and what that has chosen, by hand, then run in turns for some seconds, and the
shortest time of each counts. With `--gpu` the arrays are those of CuPy, on the first GPU. Run it
with the package and NumPy installed:

    python lab/benches/python/python_auto.py [--seed 1] [--seconds 220] [--disk .] [--gpu]
"""

from __future__ import annotations

import argparse
import importlib
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import unspool
from unspool.schedules import Auto, MultiLevel, Revolve, Schedule, StoreAll, Uniform, ZCut
from unspool.stats import size as sized
from unspool.stats import time as timed

#: Seconds of a program without repeated steps, from and to, and the fewest and the most steps.
SECONDS, FEWEST, MOST = (0.1, 0.8), 12, 1500

#: Bytes per second of a copy on the CPU and on a GPU, for the number of steps of a program.
COPY = 4e9, 50e9

#: Turns of the fastest ones, from and to, and the seconds that those beyond the fewest may take.
TURNS, PATIENCE = (3, 12), 6.0


class Steps:
    """Steps that take about so long, on the CPU or a GPU, and change a few values of the state."""

    def __init__(self, seconds: float, count: int, gpu: bool) -> None:
        self.xp: Any = importlib.import_module("cupy") if gpu else np
        self.u = self.xp.zeros(count, np.float32)
        self.field = self.xp.ones(1 << 20 if gpu else 1 << 9, np.float32)
        self.seen: list[Any] = []
        self.rounds = 1
        self._calibrate(seconds)

    def _calibrate(self, seconds: float) -> None:
        for _ in range(3):
            begun, times = time.perf_counter(), 20
            for _ in range(times):
                self.work()
            self.synchronize()
            took = (time.perf_counter() - begun) / times
            self.rounds = max(1, round(self.rounds * seconds / took))

    def work(self) -> None:
        """What a step computes."""
        for _ in range(self.rounds):
            self.xp.sqrt(self.field, out=self.field)

    def synchronize(self) -> None:
        """Waits for a GPU."""
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()

    def forward(self, u: Any, start: int, stop: int) -> None:
        """Takes the steps."""
        for step in range(start, stop):
            self.work()
            u[:8] = step + 1

    def reverse(self, u: Any, step: int) -> None:
        """Takes one back, and notes what it was given."""
        self.work()
        self.seen.append(u[:1] - step)

    def run(self, schedule: Schedule, spool: unspool.Spool) -> tuple[float, Any]:
        """Seconds of an adjoint, and its report."""
        self.u[:], self.seen = 0, []
        self.synchronize()
        begun = time.perf_counter()
        report = unspool.adjoint(schedule, spool, self.forward, self.reverse, self.u)
        self.synchronize()
        seconds = time.perf_counter() - begun
        if any(float(off[0]) for off in self.seen):
            raise SystemExit(f"{schedule!r}: a step was reversed from another state")
        return seconds, report


@dataclass(frozen=True)
class Program:
    """What is drawn.

    Attributes:
        state: bytes of a state.
        step: seconds of a step.
        steps: their number.
        kept: states that memory holds.
        fast: those of the faster tier, where there are two.
        disk: whether there is a disk.

    """

    state: int
    step: float
    steps: int
    kept: int
    fast: int
    disk: bool

    @classmethod
    def draw(cls, chance: random.Random, gpu: bool) -> Program:
        """The next one."""
        state = int(2 ** chance.uniform(20, 26)) // 4096 * 4096
        step = 10 ** chance.uniform(-5, math.log10(0.02))
        seconds = math.exp(chance.uniform(*map(math.log, SECONDS)))
        steps = int(seconds / (2 * step + 2 * state / COPY[gpu]))
        steps = min(max(FEWEST, steps), MOST, (4 << 30) // state)
        kept = max(3, int(steps * 2 ** chance.uniform(-5, 0.3)))
        fast = chance.choice([0, max(2, kept // 4)])
        return cls(state, step, steps, kept, fast, chance.random() < 0.5)

    def tiers(self, folder: str, gpu: bool) -> dict[str, Any]:
        """The options of its spool."""
        room = self.state + 4096
        fast, slow = (self.fast or self.kept // 2, self.kept) if gpu else (self.fast, self.kept)
        found: dict[str, Any] = {"host_memory": slow * room, "device": "cuda" if gpu else "cpu"}
        if fast:
            found |= {"device_memory": fast * room, "host_memory": max(1, slow - fast) * room}
        if self.disk:
            found["disk"] = (folder, self.steps * (room + 4096))
        return found

    def by_hand(self, gpu: bool) -> list[Schedule]:
        """Up to twelve schedules that somebody may write for it."""
        steps, kept = self.steps, min(self.kept - 1, self.steps - 1)
        fast = (self.fast or self.kept // 2) if gpu else self.fast
        makers: list[Callable[[], Schedule]] = [lambda: StoreAll(steps)]
        for slots in sorted({max(1, kept // 3), kept, max(1, fast - 1)}):
            makers.append(lambda slots=slots: Revolve(steps, slots))
        makers.append(lambda: Uniform(steps, kept))
        for length in sorted({2, 4, 8, 16, 36, max(2, math.isqrt(steps))}):
            makers.append(lambda length=length: ZCut(steps, length=length))
        if self.disk or fast:
            disk = {"disk": steps} if self.disk else {}
            host = {"device": fast, "host": max(1, kept - fast)} if fast else {"host": kept}
            costs = {"disk": self.state / 1e9, "host": self.state / 5e9}
            named = {name: costs[name] for name in {**host, **disk} if name in costs}
            makers.append(
                lambda: MultiLevel(
                    steps,
                    **host,
                    **disk,
                    write_seconds=named,
                    read_seconds=named,
                    step_seconds=self.step,
                )
            )
        return [make() for make in makers][:12]


def seconds_of(
    program: Program, steps: Steps, schedule: Schedule, options: argparse.Namespace
) -> tuple[float, Any]:
    """One run in a spool of its own; no time where it has no room."""
    with unspool.Spool(**program.tiers(options.disk, options.gpu)) as spool:
        try:
            return steps.run(schedule, spool)
        except (unspool.errors.CapacityError, unspool.errors.ScheduleError):
            return math.inf, None


def regret(program: Program, options: argparse.Namespace) -> float:
    """Prints a row; by how much `Auto` took longer than the best one."""
    steps = Steps(program.step, program.state // 4, options.gpu)
    auto = Auto(program.steps)
    runs: dict[int, list[float]] = {}
    hands = [auto, *program.by_hand(options.gpu)]
    choice = None
    for number, schedule in enumerate(list(hands)):
        seconds, report = seconds_of(program, steps, schedule, options)
        runs[number] = [seconds]
        choice = choice or report.choice
    fastest = sorted(range(1, len(hands)), key=lambda number: runs[number][0])[:3]
    again = len(hands)
    hands.append(choice.schedule)
    runs[again] = []
    begun = time.perf_counter()
    for turn in range(TURNS[1]):
        if turn >= TURNS[0] and time.perf_counter() - begun > PATIENCE:
            break
        for number in (0, again, *fastest):
            runs[number].append(seconds_of(program, steps, hands[number], options)[0])
    best = min([again, *fastest], key=lambda number: min(runs[number]))
    mine, same, theirs = (min(runs[number]) for number in (0, again, best))
    fast = program.fast
    place = f"{fast}+{max(1, program.kept - fast)}" if fast else str(program.kept)
    row = (
        f"{sized(program.state):>10}",
        f"{timed(program.step):>8}",
        f"{program.steps:>6,}",
        f"{place:>8}{' +disk' if program.disk else '':6}",
        f"{timed(theirs):>8}",
        f"{timed(mine):>8}",
        f"{timed(same):>8}",
        f"{mine / theirs - 1:>+7.1%}",
        f"{brief(choice.schedule):34}",
        brief(hands[best]),
    )
    print(" ".join(row), flush=True)
    return mine / theirs - 1


def brief(schedule: Schedule) -> str:
    """As it is written, without costs."""
    return repr(schedule).split(", write_seconds")[0].replace("steps=", "")[:34]


def main() -> None:
    """Prints a row for each program, and how many are near the best."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=60, help="at most")
    parser.add_argument("--seconds", type=float, default=220, help="after which none is begun")
    parser.add_argument("--disk", default=".", help="a folder for the disk tier")
    parser.add_argument("--gpu", action="store_true", help="arrays of CuPy on the first GPU")
    options = parser.parse_args()
    chance, begun, found = random.Random(options.seed), time.perf_counter(), []
    heads = ("state", "step", "steps", "states", "best", "auto", "by hand", "regret")
    widths = (10, 8, 6, 14, 8, 8, 8, 7)
    print(*(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)), "chosen, best")
    while len(found) < options.programs and time.perf_counter() - begun < options.seconds:
        found.append(regret(Program.draw(chance, options.gpu), options))
    within = [sum(one <= share for one in found) for share in (0.05, 0.15)]
    print(
        f"{len(found)} programs of seed {options.seed}: worst {max(found):+.1%}, median "
        f"{statistics.median(found):+.1%}, within 5 %: {within[0]}, within 15 %: {within[1]}"
    )


if __name__ == "__main__":
    main()
