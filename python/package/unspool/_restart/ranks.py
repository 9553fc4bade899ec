"""The ranks of a job as the Checkpointer needs them, found without importing anything.

An object with `rank`, `size` and `all_gather(message, seconds)`: each rank gives bytes and gets the
list of what all gave, with None for those that did not answer within so many seconds. With
`swap(message, to, source, seconds)` as well, which gives bytes to one rank and returns those of
another one, frames for partners do not go to all.
"""

from __future__ import annotations

import re
import sys
import time
from array import array
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, Protocol

from ..errors import OptionError, WaitTimeoutError, shown

__all__ = ["Ranks", "ranks_of"]

#: How long ranks that are here take to say so, in seconds, after the time of one of them is over.
_GRACE = 2.0

#: The tags of messages by which ranks find out who is missing.
_LATE, _ROLL, _HERE, _VERDICT = 7712, 7713, 7714, 7715


class Ranks(Protocol):
    """The ranks of a job."""

    rank: int
    size: int

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What each rank gave, by rank."""


class Alone:
    """A job of one rank."""

    rank, size = 0, 1

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What this rank gave."""
        return [message]


class Mpi:
    """The ranks of a communicator of mpi4py, of which it makes one of its own.

    They talk by nonblocking collectives of MPI. A rank whose time is over has rank 0 call the roll:
    every rank that waits in a call answers, and all of them return with the ranks that did not.
    """

    def __init__(self, given: Any, seconds: float) -> None:
        self._mpi = sys.modules["mpi4py.MPI"]
        self.rank, self.size = given.Get_rank(), given.Get_size()
        self._comm, made = given.Idup()
        end = time.monotonic() + seconds
        nap = _Nap()
        while not made.Test():
            if time.monotonic() > end:
                text = f"Not all {self.size} ranks opened a Checkpointer within {seconds:.0f} s."
                raise WaitTimeoutError(text)
            nap.take()
        # What MPI still uses: messages that nobody has taken yet, and calls that did not end.
        self._kept: list[Any] = []
        self._broken = False

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What each rank gave: lengths first, and then the messages."""
        self._check()
        end = time.monotonic() + seconds
        lengths = array("i", [0] * self.size)
        lengths[self.rank] = len(message)
        request = self._comm.Iallgather(self._mpi.IN_PLACE, lengths)
        if not self._ends(request, lengths, end):
            return self._roll(message)
        starts = [0, *accumulate(lengths)]
        everything = bytearray(starts[-1])
        places = [everything, list(lengths), starts[:-1], self._mpi.BYTE]
        request = self._comm.Iallgatherv([message, self._mpi.BYTE], places)
        if not self._ends(request, (message, places), end):
            return self._roll(message)
        return [bytes(everything[start:end]) for start, end in pairwise(starts)]

    def swap(self, message: bytes, to: int, source: int, seconds: float) -> bytes | None:
        """Gives a message to one rank; what another one gave, None when it did not in time."""
        self._check()
        end = time.monotonic() + seconds
        self._kept = [one for one in self._kept if isinstance(one, tuple) or not one.Test()]
        self._kept.append(self._comm.isend(message, to))
        nap = _Nap()
        while not self._comm.Iprobe(source=source, tag=0):
            if time.monotonic() > end or self._is_called():
                self._roll(message)
                return None
            nap.take()
        answer: bytes = self._comm.recv(source=source, tag=0)
        return answer

    def _ends(self, request: Any, used: Any, end: float) -> bool:
        """Waits for a request, until `end` or until the roll is called; whether it is done."""
        nap = _Nap()
        while not request.Test():
            if time.monotonic() > end or self._is_called():
                self._kept.append((request, used))
                return False
            nap.take()
        return True

    def _is_called(self) -> bool:
        """Whether the roll is to be called, on rank 0, or is called, on another one."""
        lead = self.rank == 0
        source = self._mpi.ANY_SOURCE if lead else 0
        return bool(self._comm.Iprobe(source=source, tag=_LATE if lead else _ROLL))

    def _roll(self, message: bytes) -> list[bytes | None]:
        """The message for each rank that is here, None for those that are missing: all but rank 0
        are here where that one does not call the roll. The communicator is not used after that.

        Raises:
            WaitTimeoutError: no rank is missing, but one came too late.
        """
        self._broken = True
        here = self._answered() if self.rank else self._called()
        if all(here):
            raise WaitTimeoutError(f"Not all {self.size} ranks came in time, but all are here now")
        return [message if one else None for one in here]

    def _check(self) -> None:
        if self._broken:
            text = "An earlier exchange between the ranks did not end, so there are no more"
            raise WaitTimeoutError(text)

    def _called(self) -> list[bool]:
        here, end, nap = [True] + [False] * (self.size - 1), time.monotonic() + _GRACE, _Nap()
        self._kept += [self._comm.isend(None, rank, tag=_ROLL) for rank in range(1, self.size)]
        while not all(here) and time.monotonic() < end:
            status = self._mpi.Status()
            if self._comm.Iprobe(tag=_HERE, status=status):
                self._comm.recv(source=status.Get_source(), tag=_HERE)
                here[status.Get_source()] = True
            else:
                nap.take()
        told = [rank for rank in range(1, self.size) if here[rank]]
        self._kept += [self._comm.isend(here, rank, tag=_VERDICT) for rank in told]
        return here

    def _answered(self) -> list[bool]:
        self._kept.append(self._comm.isend(None, 0, tag=_LATE))
        end, nap = time.monotonic() + 2 * _GRACE + 1, _Nap()
        while not self._comm.Iprobe(source=0, tag=_VERDICT):
            if self._comm.Iprobe(source=0, tag=_ROLL):
                self._comm.recv(source=0, tag=_ROLL)
                self._kept.append(self._comm.isend(None, 0, tag=_HERE))
            elif time.monotonic() > end:
                return [False] + [True] * (self.size - 1)
            nap.take()
        here: list[bool] = self._comm.recv(source=0, tag=_VERDICT)
        return here


class Torch:
    """The ranks of a process group of PyTorch, of which it makes two of its own, with Gloo: on the
    second one rank 0 tells the others who is missing.
    """

    def __init__(self, given: Any, seconds: float) -> None:
        self._distributed = sys.modules["torch.distributed"]
        members = self._distributed.get_process_group_ranks(given)
        self.rank = self._distributed.get_rank(given)
        self.size = self._distributed.get_world_size(given)
        self._members = members
        self._group, self._roll = (
            self._distributed.new_group(members, timeout=timedelta(seconds=limit), backend="gloo")
            for limit in (seconds, seconds + _GRACE)
        )

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What each rank gave; None for those that did not come to the barrier before."""
        limit = timedelta(seconds=seconds)
        try:
            self._distributed.monitored_barrier(self._group, limit, wait_all_ranks=True)
        except RuntimeError as why:
            missing = self._missing(str(why))
            return [None if rank in missing else message for rank in range(self.size)]
        everything: list[bytes | None] = [None] * self.size
        self._distributed.all_gather_object(everything, message, self._group)
        return everything

    def _missing(self, why: str) -> set[int]:
        """The ranks that rank 0 has missed, as PyTorch says to it alone; rank 0 where it says
        nothing.

        Raises:
            RuntimeError: PyTorch says something else.
        """
        flags = sys.modules["torch"].zeros(self.size, dtype=sys.modules["torch"].uint8)
        limit = timedelta(seconds=_GRACE)
        if self.rank == 0:
            named = re.search(r"Ranks? ([\d, ]+) failed to pass", why)
            if named is None:
                raise RuntimeError(why)
            flags[[int(rank) for rank in named[1].split(",")]] = 1
            there = [self._members[rank] for rank in range(1, self.size) if not flags[rank]]
            sent = [self._distributed.isend(flags, to, group=self._roll) for to in there]
            for one in sent:
                with suppress(RuntimeError):
                    one.wait(limit)
        else:
            try:
                self._distributed.irecv(flags, self._members[0], group=self._roll).wait(limit)
            except RuntimeError:
                flags[0] = 1
        return {rank for rank in range(self.size) if flags[rank]}


class _Nap:
    """Naps that become longer: a wait that is over soon ends soon."""

    def __init__(self) -> None:
        self._seconds = 2e-5

    def take(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(self._seconds * 1.5, 5e-3)


def ranks_of(given: Any, seconds: float) -> Ranks:
    """The ranks that the option `ranks` names.

    Raises:
        OptionError: it names none.
    """
    if given is None:
        return Alone()
    if isinstance(given, str) and given == "torch":
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            text = 'ranks="torch": call torch.distributed.init_process_group first.'
            raise OptionError(text)
        return Torch(distributed.group.WORLD, seconds)
    modules = {base.__module__.split(".")[0] for base in type(given).__mro__}
    if "mpi4py" in modules and hasattr(given, "Idup"):
        return Mpi(given, seconds)
    if "torch" in modules or type(given).__name__ == "ProcessGroup":
        return Torch(given, seconds)
    if all(hasattr(given, name) for name in ("rank", "size", "all_gather")):
        ranks: Ranks = given
        return ranks
    raise OptionError(
        f"ranks={shown(given)}: write None, a communicator of mpi4py such as MPI.COMM_WORLD, "
        'a process group of torch.distributed, or "torch" for its default one.'
    )
