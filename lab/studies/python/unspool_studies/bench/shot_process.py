"""One process of a shot: `python -m unspool_studies.bench.shot_process TASK`.

It does a small shot first: what a process does only once, as loading code, belongs to no way. Then
it says `ready`, and does a shot for each line `shot` that it is told. After each it says for how
long it was blocked, as one line of JSON. It ends when its input does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.prepare import DEVICE_STRATEGIES, STRATEGIES
from unspool_studies.bench.shot import Blocked, Shot, run_spool, run_strategy
from unspool_studies.bench.sizes import shot_sizes

__all__ = ["SPOOL", "Task", "serve", "small", "work"]

#: The way that is not a strategy of the paper.
SPOOL = "unspool"

#: Bytes of a checkpoint of a small shot.
SMALL = 1 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """What a process does.

    Attributes:
        way: `SPOOL`, or the name of a strategy.
        ordinal: the device's number.
        process: its number among those of the shot.
        kind: of sizes, for `shot_sizes`.
        checkpoints: how many.
        size: the mean of their bytes.
        cache: bytes of the device tier.
        interval: seconds of compute before each save and each restore.
        touch_threads: threads that touch pages.
        turn: the file that the processes lock while they register memory.
    """

    way: str
    ordinal: int
    process: int
    kind: str
    checkpoints: int
    size: int
    cache: int
    interval: float
    touch_threads: int
    turn: str

    def text(self) -> str:
        """One word for a command line."""
        return json.dumps(asdict(self))

    def shot(self) -> Shot:
        """The shot of this process."""
        sizes = shot_sizes(self.kind, self.checkpoints, self.size, self.process)
        return Shot(sizes, self.cache, self.interval, self.touch_threads, Path(self.turn))


def work(
    cuda: Cuda, task: Task, phases: Iterable[str], say: Callable[[dict[str, Any]], None]
) -> None:
    """Does a shot for each phase, and says what came out."""
    shot = task.shot()
    for phase in phases:
        if phase != "shot":
            raise ValueError(f"there is no phase {phase!r}")
        say(asdict(_run(cuda, task.way, shot)))


def _run(cuda: Cuda, way: str, shot: Shot) -> Blocked:
    if way == SPOOL:
        return run_spool(cuda, shot)
    strategies = {one.name: one for one in (*STRATEGIES, *DEVICE_STRATEGIES)}
    return run_strategy(cuda, shot, strategies[way])


def small(shot: Shot) -> Shot:
    """One with few and small checkpoints, which fit into the device tier if those of `shot` do."""
    count = 4
    cache = SMALL * (count if shot.fits else count // 2)
    return replace(shot, sizes=(SMALL,) * count, cache=cache, interval=0.0)


def serve(cuda_of: Callable[[int], Cuda], text: str) -> None:
    """Works for the process that started this one, on a device that is made here."""
    task = Task(**json.loads(text))
    cuda = cuda_of(task.ordinal)
    _run(cuda, task.way, small(task.shot()))
    print("ready", flush=True)
    lines = (line.strip() for line in iter(sys.stdin.readline, ""))
    work(cuda, task, lines, lambda found: print(json.dumps(found), flush=True))


if __name__ == "__main__":
    serve(Cuda, sys.argv[1])
