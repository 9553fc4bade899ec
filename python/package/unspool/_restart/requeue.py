"""Another run of a job that was asked to stop: what the batch system is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import warnings
from collections.abc import Callable

__all__ = ["AGAIN", "Told", "requeue"]

#: The exit code of a run that is to be started again: EX_TEMPFAIL of sysexits.h.
AGAIN = 75

#: The longest wait for the batch system, in seconds.
_PATIENCE = 60.0


class Told:
    """Hears the signals that ask a run to stop.

    Attributes:
        numbers: those that came.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self.numbers: set[int] = set()

    def __call__(self, number: int) -> None:
        self.numbers.add(number)
        self._stop()

    @property
    def cancelled(self) -> bool:
        """Whether somebody who does not want another run may have asked for the end."""
        return self.numbers == {signal.SIGTERM}


def requeue() -> None:
    """Asks Slurm for another run of this job; what goes wrong is a `RuntimeWarning`."""
    job = _job()
    if job is None:
        return
    command = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        why = (done.stderr or done.stdout).strip() if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why is not None:
        warnings.warn(
            f"Job {job} was not requeued: {' '.join(command)}: {why}. The program may still say so "
            f"by the exit code {AGAIN}.",
            RuntimeWarning,
            stacklevel=4,
        )


def _job() -> str | None:
    array = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    if all(array):
        return "_".join(map(str, array))
    return os.environ.get("SLURM_JOB_ID")
