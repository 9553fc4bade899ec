"""One process of those that do shots on a node: `python -m unspool_studies.bench.orders_child N`,
with the number of its device.

It says `ready` when its context is made, is told its job as one line of JSON, and says what came
out as another. Where it meets the others it says `step` and waits for a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Experiment
from unspool_studies.bench.ways import ALL_WAYS, through

__all__ = ["STEP", "Job", "Shot", "work"]

#: Said where processes meet.
STEP = "step"


@dataclass(frozen=True, slots=True)
class Job:
    """What a process does.

    Attributes:
        way: its name.
        sizes: bytes of each checkpoint, by version.
        order: of restores.
        device: bytes of the device tier.
        host: bytes of the host tier.
        directory: of the disk tier, for this process alone.
        compute: seconds of each step.
        wait: whether the first restore waits until everything is flushed.
        limit: seconds after which it gives up.
        coupled: whether processes meet before every step, or only before the first.
    """

    way: str
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    device: int
    host: int
    directory: str
    compute: float
    wait: bool
    limit: float
    coupled: bool

    def text(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Shot:
    """What one process has measured.

    Attributes:
        bytes: of its history.
        save: seconds in all saves, by the device's clock.
        restore: seconds in all restores, likewise.
        forward: seconds of the pass of saves.
        backward: seconds of the pass of restores.
        wrong: restores that gave other bytes than were saved.
    """

    bytes: int
    save: float
    restore: float
    forward: float
    backward: float
    wrong: int


def work(cuda: Cuda, text: str, say: Callable[[str], None], hear: Callable[[], str]) -> None:
    """Does a job and says what came out.

    Raises:
        EOFError: the process that started this one is gone.
    """
    job = Job(**json.loads(text))

    def meet() -> None:
        say(STEP)
        if not hear():
            raise EOFError("nobody else is there")

    one = Experiment(
        tuple(job.sizes),
        tuple(job.order),
        job.device,
        job.host,
        Path(job.directory),
        job.compute,
        job.wait,
        timed=True,
        limit=job.limit,
        meet=meet,
        coupled=job.coupled,
    )
    way = next(way for way in ALL_WAYS if way.name == job.way)
    found = through(cuda, one, way)
    calls = sum(found.saves), sum(found.restores)
    shot = Shot(one.total, *calls, found.forward, found.backward, found.wrong)
    say(json.dumps(asdict(shot)))


def main() -> None:
    """Works for the process that started this one."""
    cuda = Cuda(int(sys.argv[1]))

    def say(text: str) -> None:
        print(text, flush=True)

    say("ready")
    work(cuda, sys.stdin.readline(), say, sys.stdin.readline)


if __name__ == "__main__":
    main()
