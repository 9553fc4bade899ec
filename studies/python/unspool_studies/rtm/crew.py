"""Several processes that migrate the shots of one job: each has its own spool, and perhaps a GPU.

Each takes every n-th shot, one after another. What they send is stacked in the order of the shots,
so that the image is the same, bit for bit, as that of one process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from unspool.errors import Error
from unspool.stats import Stats
from unspool_studies.rtm.device import CupyDevice, failures_told
from unspool_studies.rtm.job import Job, Watch, migrate_again, plain_history, run
from unspool_studies.rtm.memory import peak_resident
from unspool_studies.rtm.merge import merged
from unspool_studies.rtm.outcome import Followed, Kernels, Migrated, Outcome, Shot, stack
from unspool_studies.rtm.progress import Silence

__all__ = ["CrewOutcome", "run_crew"]

#: Seconds from one message about progress to the next.
REFRESH = 0.2
#: Seconds that a process has to end after it was asked to.
PATIENCE = 20.0
#: The passes of a job: through spools, and again for a check.
THROUGH, AGAIN = "through", "again"


class CrewError(Error):
    """A process of the crew ended without a result."""


class Part(NamedTuple):
    """What one process has measured: as in `Outcome`, and by the clock of the machine."""

    stats: Stats
    followed: Followed
    times: Mapping[str, float]
    propagator: str
    kernels: Kernels | None
    begin: float
    end: float
    peak: int
    plain: str


@dataclass(frozen=True, eq=False)
class CrewOutcome:
    """What all processes have made and measured.

    Attributes:
        outcome: as of one process; statistics and times are sums.
        again: the image of the check, where one was wanted.
        seconds: from the beginning of the first to the end of the last migration.
        peak: the most memory of each process, added up, in bytes.
        plain: where the check kept the history.
    """

    outcome: Outcome
    again: Migrated | None
    seconds: float
    peak: int
    plain: str


def run_crew(job: Job, seats: Sequence[int | None], watch: Watch, check: bool) -> CrewOutcome:
    """Migrates every shot in as many processes as there are seats.

    Args:
        job: what to do; its device is not used.
        seats: for each process the number of its GPU, or None for the CPU.
        watch: hears of progress.
        check: whether each shot is migrated again with its history in plain arrays.

    Raises:
        Error: what a process has failed with; the others have then been stopped.
    """
    shots, context = job.shots, multiprocessing.get_context("spawn")
    threads = job.threads or max(1, len(os.sched_getaffinity(0)) // len(seats))
    crew: dict[Connection, Any] = {}
    try:
        for number, gpu in enumerate(seats):
            share = replace(job, device=None, threads=threads, only=shots[number :: len(seats)])
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(theirs, share, gpu, check), daemon=True)
            process.start()
            theirs.close()
            crew[ours] = process
        return _gather(job, crew, watch, check)
    finally:
        _dismiss(crew)


def _gather(job: Job, crew: Mapping[Connection, Any], watch: Watch, check: bool) -> CrewOutcome:
    found: dict[tuple[str, int], Shot] = {}
    parts: list[Part] = []
    for kind, value in _messages(crew):
        if kind == "stepped":
            watch.stepped(*value)
        elif kind == "finished":
            watch.finished(*value)
        elif kind == "done":
            parts.append(value)
        elif kind == "failed":
            raise value
        else:
            found[kind, value.number] = value
    migrated = stack(job.model.shape, (found[THROUGH, shot] for shot in job.shots))
    again = stack(job.model.shape, (found[AGAIN, shot] for shot in job.shots)) if check else None
    seconds = max(part.end for part in parts) - min(part.begin for part in parts)
    peak = sum(part.peak for part in parts)
    plain = " and ".join(dict.fromkeys(part.plain for part in parts))
    return CrewOutcome(_joined(parts, migrated), again, seconds, peak, plain)


def _messages(crew: Mapping[Connection, Any]) -> Iterator[tuple[str, Any]]:
    """Everything that the processes send, until each is done."""
    open_ends = set(crew)
    while open_ends:
        # A process that ends closes its end, which wakes this up.
        for end in wait(open_ends):
            assert isinstance(end, Connection)
            try:
                kind, value = end.recv()
            except EOFError:
                crew[end].join(PATIENCE)
                raise CrewError(
                    "a process of the migration ended before it was done (exit code "
                    f"{crew[end].exitcode}): was it killed, for want of memory perhaps?"
                ) from None
            if kind == "done":
                open_ends.discard(end)
            yield kind, value


def _joined(parts: Sequence[Part], migrated: Migrated) -> Outcome:
    times = {name: sum(part.times[name] for part in parts) for name in parts[0].times}
    kernels = _kernels([part.kernels for part in parts if part.kernels is not None])
    text = f"{len(parts)} processes, {parts[0].propagator}"
    stats = merged([part.stats for part in parts])
    followed = sum((part.followed for part in parts), Followed())
    return Outcome(migrated, {}, stats, followed, times, text, kernels)


def _kernels(kernels: Sequence[Kernels]) -> Kernels | None:
    if not kernels:
        return None
    steps, seconds = (sum(getattr(k, name) for k in kernels) for name in ("steps", "seconds"))
    slowest = min(k.copy_bandwidth for k in kernels)
    return replace(kernels[0], steps=steps, seconds=seconds, copy_bandwidth=slowest)


def _dismiss(crew: Mapping[Connection, Any]) -> None:
    """Ends what still runs: as Ctrl-C does, so that spools remove their files; then by force."""
    for process in crew.values():
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
    limit = time.monotonic() + PATIENCE
    for end, process in crew.items():
        end.close()
        process.join(max(0.0, limit - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _work(end: Connection, job: Job, gpu: int | None, check: bool) -> None:
    """What one process does: its shots, and what it found sent on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt, BrokenPipeError):
        try:
            with failures_told():
                if gpu is not None:
                    job = replace(job, device=CupyDevice(gpu))
                end.send(("done", _migrate(end, job, check)))
        except Error as error:
            end.send(("failed", error))
        except Exception:
            text = f"a process of the migration failed:\n{traceback.format_exc()}"
            end.send(("failed", CrewError(text)))


def _migrate(end: Connection, job: Job, check: bool) -> Part:
    plain = plain_history(job).memory if check else ""
    watch, begin = _Teller(end), time.monotonic()
    outcome = run(job, watch, keep_records=check, show=lambda shot: end.send((THROUGH, shot)))
    stop, peak = time.monotonic(), peak_resident()
    if check:
        migrate_again(job, outcome.records, watch, lambda shot: end.send((AGAIN, shot)))
    # The shots are with the parent by now; their sum would only be sent for nothing.
    figures = (outcome.stats, outcome.followed, outcome.times, outcome.propagator)
    return Part(*figures, outcome.kernels, begin, stop, peak, plain)


class _Teller(Silence):
    """Sends progress on, now and then."""

    def __init__(self, end: Connection) -> None:
        self._end, self._steps, self._told = end, 0, 0.0

    def stepped(self, shot: int, phase: str, steps: int) -> None:
        """A group of steps is done."""
        self._steps += steps
        now = time.monotonic()
        if now - self._told > REFRESH:
            self._end.send(("stepped", (shot, phase, self._steps)))
            self._steps, self._told = 0, now

    def finished(self, shot: int, seconds: float) -> None:
        """A shot is done."""
        self._end.send(("stepped", (shot, "", self._steps)))
        self._steps = 0
        self._end.send(("finished", (shot, seconds)))
