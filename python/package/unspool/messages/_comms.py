"""Communicators of mpi4py and groups of `torch.distributed`, as a channel uses them: begin to send,
begin to receive, wait for at most so long."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Protocol

from unspool.errors import MissingLibraryError, OptionError

__all__ = ["Comm", "Handle", "comm_of"]

#: How often a request of MPI is asked without a pause, and the pauses in seconds after that.
EAGER, PAUSE = 1000, 50e-6


class Handle(Protocol):
    """A message on its way."""

    def wait(self, seconds: float) -> bool:
        """Whether it was complete after at most so long. Raises what the library raises."""


class Comm(Protocol):
    """The ranks that can be talked to."""

    rank: int
    size: int

    def isend(self, data: Any, peer: int, tag: int) -> Handle:
        """Begins to send an array of NumPy of bytes, which stays as it is until that is done."""

    def irecv(self, data: Any, peer: int, tag: int) -> Handle:
        """Begins to receive at most as many bytes as the array has."""


def comm_of(comm: Any) -> Comm:
    """A communicator of mpi4py, or a group of `torch.distributed`; None for its default group.

    Raises:
        OptionError: it is neither, or a group that has no memory of the host.
        MissingLibraryError: None is given, and PyTorch is not installed.
    """
    if hasattr(comm, "Isend") and hasattr(comm, "Irecv"):
        return MpiComm(comm)
    return TorchComm(comm)


class MpiHandle:
    """A request of mpi4py, asked again and again: MPI itself has no wait with a limit."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def wait(self, seconds: float) -> bool:
        """As `Handle.wait`."""
        end, asked = time.monotonic() + seconds, 0
        while not self._request.Test():
            asked += 1
            if asked >= EAGER:
                if time.monotonic() >= end:
                    return False
                time.sleep(PAUSE)
        return True


class MpiComm:
    """A communicator of mpi4py."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank = comm.Get_rank()
        between = getattr(comm, "Is_inter", bool)()
        self.size = comm.Get_remote_size() if between else comm.Get_size()

    def isend(self, data: Any, peer: int, tag: int) -> Handle:
        """As `Comm.isend`."""
        return MpiHandle(self._comm.Isend(data, dest=peer, tag=tag))

    def irecv(self, data: Any, peer: int, tag: int) -> Handle:
        """As `Comm.irecv`."""
        return MpiHandle(self._comm.Irecv(data, source=peer, tag=tag))


class TorchHandle:
    """A work of `torch.distributed`, which says that it was late by an error."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, seconds: float) -> bool:
        """As `Handle.wait`."""
        end = time.monotonic() + seconds
        try:
            # Less than a millisecond would be none, which means without a limit.
            self._work.wait(timeout=timedelta(milliseconds=max(1, int(seconds * 1000))))
        except RuntimeError:
            if time.monotonic() >= end:
                return False
            raise
        return True


class TorchComm:
    """A group of `torch.distributed` with the backend gloo (or mpi)."""

    def __init__(self, group: Any) -> None:
        try:
            import torch
            from torch import distributed
        except ImportError as missing:
            text = (
                "a Channel without a communicator is one of torch.distributed: `pip install torch`"
            )
            raise MissingLibraryError(text, name="torch") from missing
        if group is not None and not isinstance(group, distributed.ProcessGroup):
            kind = type(group).__name__
            raise OptionError(
                f"Channel({kind}): give a communicator of mpi4py, a group of torch.distributed, or "
                "None for its default group"
            )
        if not distributed.is_available() or not distributed.is_initialized():
            raise OptionError(
                "Channel(None): torch.distributed has no group yet: call init_process_group first"
            )
        if distributed.get_backend(group) == "nccl":
            raise OptionError(
                "Channel(group): the backend nccl sends arrays of fixed sizes from GPU to GPU, and "
                "coded messages have other sizes: make a group with new_group(backend='gloo')"
            )
        self._torch, self._distributed, self._group = torch, distributed, group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def _peer(self, peer: int) -> int:
        if self._group is None:
            return peer
        return int(self._distributed.get_global_rank(self._group, peer))

    def isend(self, data: Any, peer: int, tag: int) -> Handle:
        """As `Comm.isend`."""
        tensor = self._torch.from_numpy(data)
        send = self._distributed.isend
        return TorchHandle(send(tensor, self._peer(peer), group=self._group, tag=tag))

    def irecv(self, data: Any, peer: int, tag: int) -> Handle:
        """As `Comm.irecv`."""
        tensor = self._torch.from_numpy(data)
        receive = self._distributed.irecv
        return TorchHandle(receive(tensor, self._peer(peer), group=self._group, tag=tag))
