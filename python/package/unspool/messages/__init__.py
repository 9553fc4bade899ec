"""Messages between ranks, coded on the way: arrays of NumPy, CuPy and PyTorch over mpi4py or
`torch.distributed`.

from mpi4py import MPI
from unspool.messages import Channel

right = Channel(MPI.COMM_WORLD, peer=1, tag=7)
right.send(halo)

`import unspool` does not import this module. It imports neither mpi4py nor PyTorch by itself.
"""

from __future__ import annotations

from unspool.messages._channel import Channel, Request

__all__ = ["Channel", "Request"]
