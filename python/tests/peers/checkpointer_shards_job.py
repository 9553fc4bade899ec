"""A job of `mpirun`: `checkpointer_shards_job.py FOLDER STEPS`.

A field lies on a grid of ranks. The job goes on where one of any number of ranks was, checks every
item of the field, and saves so many steps.
"""

import sys

import numpy as np
import unspool
from mpi4py import MPI
from unspool.types import Shard

COMM = MPI.COMM_WORLD
SHAPE = (37, 23, 5)
FIELD = np.random.default_rng(7).normal(size=SHAPE)


def box() -> tuple[slice, ...]:
    """The part of this rank."""
    grid = COMM.Create_cart(MPI.Compute_dims(COMM.size, 2))
    ends = [
        slice(length * at // ranks, length * (at + 1) // ranks)
        for length, at, ranks in zip(SHAPE, grid.coords, grid.dims, strict=False)
    ]
    return (*ends, slice(0, SHAPE[2]))


def main(folder: str, steps: str) -> None:
    mine = box()
    u = Shard(np.zeros_like(FIELD[mine]), SHAPE, [each.start for each in mine])
    with unspool.Checkpointer(
        folder, ranks=COMM, every=1, host_memory="4MiB", device="cpu", timeout=60, u=u
    ) as checkpoints:
        first = checkpoints.restore() or 0
        assert np.array_equal(u.array, FIELD[mine] * first)
        if first:
            assert checkpoints.values() == {"step": first}
            assert np.array_equal(checkpoints.load(first, "u"), FIELD * first)
        for step in range(first + 1, first + int(steps) + 1):
            u.array[...] = FIELD[mine] * step
            checkpoints.step(step, step=step)
    print(f"rank {COMM.rank} of {COMM.size} went from {first}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
