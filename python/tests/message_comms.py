"""A communicator for the tests of `unspool.messages` that looks like one of mpi4py: messages are
kept until they are received, in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

Damage = Callable[[np.ndarray], np.ndarray | None]


class Wire:
    """What lies between two ranks: the bytes of messages by receiver and tag.

    Attributes:
        damage: changes the bytes of a message on its way; None for one that is lost.
        lengths: the lengths of all messages that were sent.
    """

    def __init__(self) -> None:
        self.damage: Damage = lambda data: data
        self.lengths: list[int] = []
        self._waiting: dict[tuple[int, int], deque[np.ndarray]] = {}

    def queue(self, rank: int, tag: int) -> deque[np.ndarray]:
        """The messages for a rank with a tag, in their order."""
        return self._waiting.setdefault((rank, tag), deque())


class Sent:
    """A message that was taken over at once."""

    def Test(self) -> bool:
        return True


class Posted:
    """A receive: the next message of its queue, when it is asked for."""

    def __init__(self, queue: deque[np.ndarray], data: np.ndarray) -> None:
        self._queue, self._data, self._done = queue, data, False

    def Test(self) -> bool:
        if not self._done and self._queue:
            message = self._queue.popleft()
            if message.size > self._data.size:
                raise RuntimeError("MPI_ERR_TRUNCATE: message truncated")
            self._data[: message.size] = message
            self._done = True
        return self._done


class FakeComm:
    """One of the two ends of a `Wire`."""

    def __init__(self, wire: Wire, rank: int) -> None:
        self._wire, self._rank = wire, rank

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return 2

    def Isend(self, data: np.ndarray, dest: int, tag: int) -> Sent:
        self._wire.lengths.append(data.size)
        changed = self._wire.damage(data.copy())
        if changed is not None:
            self._wire.queue(dest, tag).append(changed)
        return Sent()

    def Irecv(self, data: np.ndarray, source: int, tag: int) -> Posted:
        return Posted(self._wire.queue(self._rank, tag), data)
