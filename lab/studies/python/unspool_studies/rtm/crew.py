"""Several workers that migrate the shots of one job: processes, MPI ranks or Dask workers.

An engine hands each free worker its next shot. What comes back is summed in the order of the shots,
so that the image is the same, bit for bit, as that of one process.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from unspool import Spool
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.job import Watch
from unspool_studies.rtm.merge import merged
from unspool_studies.rtm.outcome import Figures, Followed, Kernels, Migrated, Outcome, Stack
from unspool_studies.rtm.seat import REFRESH, CrewError, Failed, Found, Order, Part, work

__all__ = ["CrewOutcome", "Engine", "counted", "run_crew"]

#: Shots for each worker between the next one to be summed and the last one handed out: so many
#: images wait in memory at most.
AHEAD = 4
#: Workers that a shot is done on before its failure is that of the job.
TRIES = 2
#: Deaths of workers at one shot that end the job.
DEATHS = 3


class Engine(Protocol):
    """Hands shots out to workers as they get free."""

    #: What each of its workers is, for people.
    kind: str

    def hire(self, order: Order) -> AbstractContextManager[object]:
        """Workers for a job; at the end they are told to stop, and waited for a bounded time."""

    def workers(self) -> int:
        """How many there are now.

        Raises:
            Error: there have been none for a while.
        """

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Has a free worker call `task`.

        Raises:
            BrokenExecutor: there are no workers any more.
        """

    def steps(self) -> int:
        """Steps that the workers have told of since the last call."""

    def close(self) -> None:
        """Lets go of the workers, whether they were hired or not."""


@dataclass(frozen=True, eq=False)
class CrewOutcome:
    """What all workers have made and measured.

    Attributes:
        outcome: as of one process; statistics and times are sums.
        again: the image of the check, where one was wanted.
        seconds: from the first word of a worker to the last one summed, with the check.
        peak: the most memory of each worker, added up, in bytes.
        plain: where the check kept the history.
    """

    outcome: Outcome
    again: Migrated | None
    seconds: float
    peak: int
    plain: str


def run_crew(order: Order, engine: Engine, watch: Watch) -> CrewOutcome:
    """Migrates every shot of a job.

    Args:
        order: what to do.
        engine: hands out the shots.
        watch: hears of progress.

    Raises:
        Error: what a shot has failed with; the workers have then been told to stop.
    """
    with order.job.stack() as through:
        before = through.done
        with engine.hire(order):
            crew = _Crew(order, engine, watch, through)
            crew.migrate()
            seconds = time.monotonic() - crew.begin
    parts = list(crew.parts.values()) or [_nothing()]
    workers = len({name for name, _ in crew.parts})
    outcome = _joined(parts, crew.through.migrated(), counted(workers, engine.kind))
    outcome = replace(outcome, before=before)
    again = crew.again.migrated() if order.check else None
    peaks = {name: part.peak for (name, _), part in crew.parts.items()}
    plain = " and ".join(dict.fromkeys(part.plain for part in parts))
    return CrewOutcome(outcome, again, seconds, sum(peaks.values()), plain)


@dataclass(frozen=True)
class _Attempt:
    """A shot that is handed out: where it has failed before, and why."""

    shot: int
    avoid: frozenset[str] = frozenset()
    error: BaseException | None = None


class _Crew:
    """The shots of a job on their way through an engine, and the sums of those that are done."""

    def __init__(self, order: Order, engine: Engine, watch: Watch, through: Stack) -> None:
        self.through, self.again = through, Stack(order.job.model.shape)
        self.parts: dict[tuple[str, str], Part] = {}
        self._name, self._engine, self._watch = order.name, engine, watch
        left = order.job.shots[through.done :]
        self._coming, self._unsummed = deque(left), deque(left)
        self._running: dict[Future[Found | Failed], _Attempt] = {}
        self._waiting: dict[int, Found] = {}
        self._deaths = Counter[int]()
        self.begin, self._silent = time.monotonic(), True

        if through.done:
            watch.stepped(0, "", order.job.steps_done(through.done))

    def migrate(self) -> None:
        """All shots that are not done."""
        while self._unsummed:
            self._hand_out()
            done, _ = wait(self._running, REFRESH, FIRST_COMPLETED)
            steps = self._engine.steps()
            if self._silent:
                # Processes take a second to start, which others have done before.
                self.begin, self._silent = time.monotonic(), not (steps or done)
            self._watch.stepped(0, "", steps)
            for future in done:
                self._take(self._running.pop(future), future)
            self._sum()

    def _hand_out(self) -> None:
        room = AHEAD * max(1, self._engine.workers())
        while self._coming and len(self._unsummed) - len(self._coming) < room:
            self._submit(_Attempt(self._coming.popleft()))

    def _submit(self, attempt: _Attempt) -> None:
        try:
            future = self._engine.submit(work, self._name, attempt.shot, attempt.avoid)
        except BrokenExecutor as error:
            raise self._given_up(attempt.shot, error) from error
        self._running[future] = attempt

    def _take(self, attempt: _Attempt, future: Future[Found | Failed]) -> None:
        try:
            found = future.result()
        except BrokenExecutor as error:
            self._deaths[attempt.shot] += 1
            if self._deaths[attempt.shot] >= DEATHS:
                raise self._given_up(attempt.shot, error) from error
            self._submit(attempt)
            return
        except Exception as error:
            raise self._given_up(attempt.shot, error) from error
        if isinstance(found, Failed):
            self._again(attempt, found)
            return
        known = self.parts.get((found.worker, found.spool))
        # What was done later may come first.
        if known is None or known.shots < found.part.shots:
            self.parts[found.worker, found.spool] = found.part
        self._waiting[attempt.shot] = found
        self._watch.finished(attempt.shot, found.shot.seconds)

    def _again(self, attempt: _Attempt, failed: Failed) -> None:
        error, avoid = failed.error or attempt.error, attempt.avoid | {failed.worker}
        assert error is not None, "a worker hands back only what has failed on it"
        if not failed.elsewhere or len(avoid) >= min(TRIES, self._engine.workers()):
            raise error
        self._submit(_Attempt(attempt.shot, avoid, error))

    def _given_up(self, shot: int, error: Exception) -> CrewError:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return CrewError(
            f"what had shot {shot + 1} ended before it was done ({why}): was a {self._engine.kind} "
            "killed, for want of memory perhaps, or the whole job from outside?"
        )

    def _sum(self) -> None:
        while self._unsummed and self._unsummed[0] in self._waiting:
            found = self._waiting.pop(self._unsummed.popleft())
            self.through.add(found.shot)
            if found.again is not None:
                self.again.add(found.again)


def counted(count: int, kind: str) -> str:
    """`1 process`, `2 processes`."""
    plural = "" if count == 1 else "es" if kind.endswith("s") else "s"
    return f"{count} {kind}{plural}"


def _nothing() -> Part:
    """The figures of a job whose shots were all done before."""
    with Spool(host_memory="1MiB", device="cpu") as spool:
        stats = spool.stats()
    return Part(0, Figures(stats, Followed(), Clock().times(), "nothing to do", None), 0, "")


def _joined(parts: Sequence[Part], migrated: Migrated, who: str) -> Outcome:
    figures = [part.figures for part in parts]
    times = {name: sum(one.times[name] for one in figures) for name in figures[0].times}
    kernels = _kernels(one.kernels for one in figures)
    stats = merged([one.stats for one in figures])
    followed = sum((one.followed for one in figures), Followed())
    text = f"{who}, {figures[0].propagator}"
    return Outcome(migrated, {}, stats, followed, times, text, kernels)


def _kernels(some: Iterable[Kernels | None]) -> Kernels | None:
    kernels = [one for one in some if one is not None]
    if not kernels:
        return None
    steps, seconds = (sum(getattr(k, name) for k in kernels) for name in ("steps", "seconds"))
    slowest = min(k.copy_bandwidth for k in kernels)
    return replace(kernels[0], steps=steps, seconds=seconds, copy_bandwidth=slowest)
