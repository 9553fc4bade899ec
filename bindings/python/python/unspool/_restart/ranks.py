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
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from ..errors import OptionError, WaitTimeoutError, shown

__all__ = ["Ranks", "ranks_of"]

#: How much longer than rank 0 the others wait, who hear from it which rank is missing.
_GRACE = 2.0


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
    """The ranks of a communicator of mpi4py, of which it makes one of its own."""

    def __init__(self, given: Any, seconds: float) -> None:
        self.rank, self.size = given.Get_rank(), given.Get_size()
        self._comm, made = given.Idup()
        end = time.monotonic() + seconds
        nap = _Nap()
        while not made.Test():
            if time.monotonic() > end:
                text = f"Not all {self.size} ranks opened a Checkpointer within {seconds:.0f} s."
                raise WaitTimeoutError(text)
            nap.take()
        # Messages that nobody has taken yet; their memory has to stay.
        self._sent: list[Any] = []

    def all_gather(self, message: bytes, seconds: float) -> list[bytes | None]:
        """What each rank gave: rank 0 gathers it, and gives it to all."""
        self._sent = [sent for sent in self._sent if not sent.test()[0]]
        if self.rank:
            self._sent.append(self._comm.isend(message, 0))
            answer = self._received([0], seconds * 1.1 + _GRACE)[0]
            if answer is None:
                return [None] + [message] * (self.size - 1)
            return list(answer)
        given = self._received(list(range(1, self.size)), seconds)
        everything = [message, *(given[rank] for rank in range(1, self.size))]
        self._sent += [self._comm.isend(everything, rank) for rank in range(1, self.size)]
        return everything

    def swap(self, message: bytes, to: int, source: int, seconds: float) -> bytes | None:
        """Gives a message to one rank; what another one gave, None when it did not in time."""
        self._sent = [sent for sent in self._sent if not sent.test()[0]]
        self._sent.append(self._comm.isend(message, to))
        answer: bytes | None = self._received([source], seconds)[source]
        return answer

    def _received(self, ranks: list[int], seconds: float) -> dict[int, Any]:
        """A message of each of these ranks, None for those that sent none in time."""
        found: dict[int, Any] = dict.fromkeys(ranks)
        missing, end, nap = set(ranks), time.monotonic() + seconds, _Nap()
        while missing and time.monotonic() < end:
            there = {rank for rank in missing if self._comm.iprobe(source=rank)}
            found |= {rank: self._comm.recv(source=rank) for rank in there}
            missing -= there
            if not there:
                nap.take()
        return found


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
