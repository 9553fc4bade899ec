"""The engine of one machine: processes of `concurrent.futures`, each perhaps with a GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from unspool_studies.rtm.seat import Order, Seat, sit

__all__ = ["Processes"]

#: Seconds that processes have to end after they were told to.
PATIENCE = 20.0
#: Seconds between two looks at whether a process is idle.
AGAIN = 0.05


class _Worker(SpawnProcess):
    """A process that Ctrl-C does not reach: the leader alone decides what it means."""

    def start(self) -> None:
        """Starts it, with a mask that it inherits."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Spawning(SpawnContext):
    """Starts processes, and knows all that it has started."""

    def __init__(self) -> None:
        self.started: list[_Worker] = []

    def Process(self, *arguments: Any, **options: Any) -> _Worker:  # type: ignore[override]
        """Makes a process."""
        self.started.append(_Worker(*arguments, **options))
        return self.started[-1]


class _Board:
    """What all processes see. Each writes to its own place, so that no lock is needed."""

    def __init__(self, context: SpawnContext, count: int, over: Connection) -> None:
        """`over` has an end when the job is over."""
        self.count, self.over = count, over
        self.steps, self.taken = context.RawArray("q", count), context.Value("i", 0)

    def take(self) -> int:
        """A place for this process."""
        with self.taken:
            place: int = self.taken.value % self.count
            self.taken.value += 1
        return place


class Processes:
    """As many processes as were asked for. Those that die are replaced."""

    kind = "process"

    def __init__(self, count: int) -> None:
        """Starts none yet."""
        self._count, self._told = count, 0

    @contextmanager
    def hire(self, order: Order) -> Iterator[None]:
        """Workers for a job."""
        self._context = _Spawning()
        over, self._running = self._context.Pipe(duplex=False)
        self._order, self._board = order, _Board(self._context, self._count, over)
        self._pool = self._new_pool()
        try:
            yield
        finally:
            self._dismiss()

    def workers(self) -> int:
        """How many there are now."""
        return self._count

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Has a free process call `task`."""
        try:
            return self._pool.submit(_call, task, *arguments)
        except BrokenExecutor:
            # One death breaks a pool.
            self._pool = self._new_pool()
            return self._pool.submit(_call, task, *arguments)

    def steps(self) -> int:
        """Steps that the processes have told of since the last call."""
        before, self._told = self._told, sum(self._board.steps)
        return self._told - before

    def close(self) -> None:
        """Nothing is left of them after `hire`."""

    def _new_pool(self) -> ProcessPoolExecutor:
        start = (self._order, self._board)
        return ProcessPoolExecutor(self._count, self._context, _begin, start)

    def _dismiss(self) -> None:
        """Ends what still runs: by asking, so that spools remove their files; then by force."""
        started = [one for one in self._context.started if one.is_alive()]
        self._running.close()
        limit = time.monotonic() + PATIENCE
        for process in started:
            wait([process.sentinel], max(0.0, limit - time.monotonic()))
            process.kill()
        # The pool joins them.
        self._pool.shutdown(cancel_futures=True)


#: What this process is, where it is one of a pool.
_HERE: list[Seat] = []


def _begin(order: Order, board: _Board) -> None:
    """What a process does first."""
    place = board.take()

    def tell(steps: int) -> bool:
        board.steps[place] += steps
        return False

    threads = max(1, len(os.sched_getaffinity(0)) // board.count)
    _HERE.append(sit(order, place, threads, tell))
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_job, args=[board.over], daemon=True).start()


def _end_with_job(over: Connection) -> None:
    """Waits for the end of the job, or of the leader, which may be killed, and ends this process. A
    signal would not do: whoever has started the command may have blocked it.
    """
    leader = multiprocessing.parent_process()
    assert leader is not None
    wait([leader.sentinel, over])
    seat = _HERE[0]
    # What is at work stops at its next group of steps, and ends the process.
    seat.stopped = True
    while seat.busy:
        time.sleep(AGAIN)
    _exit(seat)


def _end(*_: object) -> None:
    seat = _HERE[0]
    seat.stopped = True
    if not seat.busy:
        _exit(seat)


def _exit(seat: Seat) -> None:
    seat.leave()
    # A queue may wait for a process that is not there any more.
    os._exit(1)


def _call(task: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return task(*arguments)
    finally:
        if _HERE[0].stopped:
            _exit(_HERE[0])
