"""What a worker does, whatever engine it belongs to: migrates the shots that it is handed.

From one shot to the next it keeps its propagators and its spool. They are closed when the job is
over, when a shot fails, and when the worker is told to stop.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import uuid4

from unspool.errors import DeviceError, Error
from unspool_studies.rtm.device import CupyDevice, count_devices, failures_told
from unspool_studies.rtm.errors import GpuError, MigrationError
from unspool_studies.rtm.job import Job, Migrator, plain_history
from unspool_studies.rtm.memory import peak_resident
from unspool_studies.rtm.outcome import Figures, Shot
from unspool_studies.rtm.progress import Silence

__all__ = ["CrewError", "Failed", "Found", "Order", "Part", "Seat", "leave", "sit", "work"]

#: Seconds from one message about progress to the next, and to the next look for a stop.
REFRESH = 0.2
#: Seconds that a worker waits before it hands back a shot that has failed on it.
PAUSE = 0.5
#: What a shot may fail with because of the machine that it is on.
MACHINE = (MemoryError, OSError, GpuError, DeviceError)


class CrewError(Error):
    """A worker, or what hands out the shots, ended without a result."""


@dataclass(frozen=True, eq=False)
class Order:
    """What each worker is told once.

    Attributes:
        job: what to do; its device is chosen by each worker.
        gpus: the numbers of the GPUs on the worker's machine that it may use, () for all that it
            sees, or None for the CPU.
        check: whether each shot is migrated again with its history in plain arrays.
        name: of the job, among all that a worker may serve.
    """

    job: Job
    gpus: tuple[int, ...] | None
    check: bool
    name: str = field(default_factory=lambda: f"unspool-rtm-{uuid4().hex}")


class Part(NamedTuple):
    """What a worker has measured with one spool, over so many shots, all of that spool so far."""

    shots: int
    figures: Figures
    peak: int
    plain: str


class Found(NamedTuple):
    """A shot that is done: through a spool, again for a check, and the figures of that spool."""

    worker: str
    spool: str
    shot: Shot
    again: Shot | None
    part: Part


class Failed(NamedTuple):
    """A shot that is not done.

    Attributes:
        worker: which had it.
        error: why; None where it had failed on this worker before and was handed back.
        elsewhere: whether another worker may be able to do it.
    """

    worker: str
    error: BaseException | None
    elsewhere: bool


@dataclass(eq=False)
class _Bench:
    """What migrates shots, one at a time, and how many it has done."""

    migrator: Migrator
    shots: int = 0
    name: str = field(default_factory=lambda: uuid4().hex)


class Seat(Silence):
    """What a worker keeps for one job: propagators and spools, one for each thread that works."""

    def __init__(self, order: Order, number: int, threads: int, tell: Callable[[int], bool]):
        """Opens nothing yet.

        Args:
            order: what to do.
            number: of this worker among those on its machine, which decides on its GPU.
            threads: of the propagator, where the job does not say.
            tell: is given the steps done since the last call; answers whether to stop.
        """
        self.stopped, self.busy = False, 0
        self._order, self._number, self._tell = order, number, tell
        self._job = replace(order.job, device=None, threads=order.job.threads or threads)
        self._idle: list[_Bench] = []
        self._steps, self._told = 0, 0.0

    def migrate(self, number: int) -> Found:
        """One shot. Threads may do so at the same time."""
        self.busy += 1
        bench = None
        try:
            with suppress(IndexError):
                bench = self._idle.pop()
            bench = bench or _Bench(self._open())
            found = self._migrate(bench, number)
            self._idle.append(bench)
            return found
        except BaseException:
            if bench is not None:
                bench.migrator.close()
            raise
        finally:
            self.busy -= 1
            self._tell(self._steps)
            self._steps = 0
            if self.stopped:
                self.leave()

    def _migrate(self, bench: _Bench, number: int) -> Found:
        migrator = bench.migrator
        shot, data = migrator.migrate(number, self)
        again, plain = None, ""
        if self._order.check:
            again, plain = migrator.again(number, data, self), plain_history(migrator.job).memory
        bench.shots += 1
        part = Part(bench.shots, migrator.figures(), peak_resident(), plain)
        return Found(worker(), bench.name, shot, again, part)

    def _open(self) -> Migrator:
        job, gpus = self._job, self._order.gpus
        directory = job.memory.directory
        if directory is not None and not directory.is_dir():
            raise MigrationError(
                f"--disk-dir {directory} is not a directory on {socket.gethostname()}"
            )
        if gpus is not None:
            numbers = gpus or range(count_devices())
            job = replace(job, device=CupyDevice(numbers[self._number % len(numbers)]))
        return Migrator(job)

    def stepped(self, shot: int, phase: str, steps: int) -> None:
        """A group of steps is done.

        Raises:
            BrokenExecutor: the job is over, or this worker is to end.
        """
        self._steps += steps
        now = time.monotonic()
        if now - self._told > REFRESH:
            self._told = now
            self.stopped |= self._tell(self._steps)
            self._steps = 0
        if self.stopped:
            raise BrokenExecutor(f"the worker {worker()} was stopped")

    def stop(self, *_: object) -> None:
        """What is at work stops at its next group of steps. A handler of signals, too."""
        self.stopped = True

    def leave(self) -> None:
        """Closes what is idle at once; what is at work stops at its next group of steps."""
        self.stop()
        while self._idle:
            self._idle.pop().migrator.close()


#: The jobs that this process works for.
_SEATS: dict[str, Seat] = {}


def worker() -> str:
    """The name of this process among all that work for a job."""
    return f"{socket.gethostname()}:{os.getpid()}"


def sit(order: Order, number: int, threads: int, tell: Callable[[int], bool]) -> Seat:
    """Makes this process a worker of a job; see `Seat`."""
    _SEATS[order.name] = seat = Seat(order, number, threads, tell)
    return seat


def leave(name: str) -> None:
    """The job is over."""
    seat = _SEATS.pop(name, None)
    if seat is not None:
        seat.leave()


def work(name: str, shot: int, avoid: frozenset[str]) -> Found | Failed:
    """Migrates one shot of a job, where it has not failed before.

    Args:
        name: of the job.
        shot: which.
        avoid: the workers that it has failed on.

    Raises:
        BrokenExecutor: this worker ends, or does not work for the job.
    """
    here = worker()
    if here in avoid:
        time.sleep(PAUSE)
        return Failed(here, None, True)
    seat = _SEATS.get(name)
    if seat is None or seat.stopped:
        time.sleep(PAUSE)
        raise BrokenExecutor(f"the worker {here} has no part in this job")
    try:
        with failures_told():
            return seat.migrate(shot)
    except BrokenExecutor:
        raise
    except Exception as error:
        elsewhere = isinstance(error, MACHINE) or isinstance(error.__cause__, MemoryError)
        if isinstance(error, Error | MemoryError | OSError):
            return Failed(here, error, elsewhere)
        text = f"the worker {here} failed:\n{traceback.format_exc()}"
        return Failed(here, CrewError(text), elsewhere)
