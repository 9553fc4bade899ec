"""A job of `mpirun`: `checkpointer_job.py FOLDER STEPS [RANK STEP [HOW]]`.

It goes on where it was, for so many steps. One rank is killed at a step, or silent from then on.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import unspool
from mpi4py import MPI
from unspool.types import Copies

RANK = MPI.COMM_WORLD.Get_rank()


def state(step: int) -> np.ndarray:
    return np.arange(1000.0) * (step + 1) + RANK


def main(
    folder: str, steps: str, victim: str = "-1", last: str = "-1", how: str = "killed"
) -> None:
    u = np.zeros(1000)
    options = {
        "every": 1,
        "host_memory": "4MiB",
        "device": "cpu",
        "timeout": 2.0 if how == "silent" else 60.0,
    }
    if how == "partner":
        options["copies"] = Copies(partner="auto")
    with unspool.Checkpointer(folder, ranks=MPI.COMM_WORLD, **options) as checkpoints:
        first = checkpoints.restore(u=u) or 0
        assert not first or (u == state(first)).all()
        for step in range(first + 1, first + int(steps) + 1):
            if (RANK, step) == (int(victim), int(last)):
                checkpoints.flush()
                if how in ("killed", "partner"):
                    os.kill(os.getpid(), signal.SIGKILL)
                done = Path(folder, "told")
                while not done.exists():
                    time.sleep(0.01)
                MPI.COMM_WORLD.Abort(3)
            try:
                checkpoints.step(step, u=state(step), step=step)
            except unspool.errors.WaitTimeoutError as told:
                print(f"rank {RANK}: {told}", flush=True)
                if RANK == 0:
                    time.sleep(0.5)
                    Path(folder, "told").touch()
                time.sleep(20)
        print(f"rank {RANK} went from {first} to {step}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
