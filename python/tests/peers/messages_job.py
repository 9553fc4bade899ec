"""A rank of `test_messages_ranks.py`: a ring in which each rank sends to the next one, over mpi4py
or `torch.distributed`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import numpy as np
from unspool import Bound
from unspool.errors import Error
from unspool.messages import Channel

ROUNDS = 12


def arrays(rank: int, seed: int = 0) -> list[np.ndarray]:
    """What a rank sends: drawn sizes, dtypes and shapes, some smooth and some not."""
    rng = np.random.default_rng([seed, rank])
    made = []
    for _ in range(ROUNDS):
        dtype = rng.choice(["float32", "float64", "int32", "complex64", "uint8"])
        shape = tuple(rng.integers(0, 60, rng.integers(1, 4)))
        values = rng.normal(size=shape)
        if rng.random() < 0.7:
            values = np.asarray(values.cumsum()).reshape(shape)
        made.append((100 * values).astype(dtype))
    return made


def ring(comm: Any, rank: int, size: int, tensor: Any) -> None:
    """Sends to the next rank and receives from the one before; compares."""
    to_next = Channel(comm, (rank + 1) % size, tag=5, timeout=250)
    from_last = Channel(comm, (rank - 1) % size, tag=5, timeout=250)
    for mine, theirs in zip(arrays(rank), arrays((rank - 1) % size), strict=True):
        # Strided targets as well.
        out = np.zeros((*theirs.shape, 2), theirs.dtype)[..., 0]
        request = from_last.irecv(tensor(out))
        to_next.send(tensor(mine))
        request.wait()
        assert out.tobytes() == theirs.tobytes()


def bounded(comm: Any, rank: int, tensor: Any) -> None:
    """A smooth array with a bound: fewer bytes, and no value further off."""
    bound, values = 1e-3, np.sin(np.linspace(0, 9, 90_000, dtype="f4")).reshape(300, 300)
    if rank > 1:
        return
    channel = Channel(comm, 1 - rank, bound=Bound(abs=bound), timeout=250)
    out = np.zeros_like(values)
    if rank == 0:
        channel.send(tensor(values))
        assert channel.wire_bytes < channel.sent_bytes // 3
    else:
        channel.recv(tensor(out))
        assert np.abs(out - values).max() <= bound


def fault(comm: Any, rank: int, what: str) -> None:
    """Rank 0 does what it should not, and rank 1 says what it sees of that."""
    if rank == 1:
        # Only where nothing comes is the time over.
        Channel(comm, 0, timeout=1 if what == "silent" else 250).recv(np.zeros(20))
    elif what == "foreign":
        comm.Send(np.arange(20.0), dest=1)
    elif what == "long":
        Channel(comm, 1).send(np.random.default_rng(0).normal(size=1000))
    elif what == "dead":
        os._exit(0)


def torch_ranks(rank: int, size: int, store: str) -> None:
    """Initialises `torch.distributed` with gloo, which meets in the file `store`."""
    from torch import distributed

    options = {"rank": rank, "world_size": size, "timeout": timedelta(seconds=250)}
    distributed.init_process_group("gloo", init_method=f"file://{store}", **options)


def main(what: str, over: str, rank: str = "0", size: str = "0", store: str = "") -> None:
    comm, tensor, own, ranks = None, np.asarray, int(rank), int(size)
    if over == "mpi":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        own, ranks = comm.Get_rank(), comm.Get_size()
    else:
        import torch

        torch_ranks(own, ranks, store)
        tensor = torch.from_numpy
    try:
        if what == "ring":
            ring(comm, own, ranks, tensor)
            bounded(comm, own, tensor)
        else:
            fault(comm, own, what)
        print(f"rank {own}: done", flush=True)
    except Error as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    if comm is not None and what == "silent":
        # Rank 0 stays until rank 1 has told what it saw.
        comm.Recv(np.zeros(1), 1) if own == 0 else comm.Send(np.zeros(1), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
