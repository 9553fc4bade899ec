"""Memory of the host in which messages lie while they are sent and received.

For arrays of a GPU it is pinned, which is slow to make: rooms are used again. One that a GPU still
decodes from is waited for before its next use. A room that was not given back, because the
library that sends or receives did not end in time, is kept for ever: that library may still use it.
"""

from __future__ import annotations

from unspool._unspool import MessageDevices
from unspool.codecs.host import library

__all__ = ["DEVICES", "Room", "Rooms"]

#: The GPUs of this process.
DEVICES = MessageDevices()

#: How many rooms a channel keeps for later.
KEPT = 8


class Room:
    """Memory for one message.

    Attributes:
        ordinal: the GPU for which it is pinned; None for plain memory.
        pinned: the memory as the extension takes it; None for plain memory.
        bytes: all of it, as an array of NumPy.
    """

    def __init__(self, ordinal: int | None, size: int) -> None:
        numpy = library()
        self.ordinal, self.pinned = ordinal, None
        if ordinal is None:
            self.bytes = numpy.empty(size, "u1")
        else:
            self.pinned = DEVICES.room(ordinal, size)
            self.bytes = numpy.frombuffer(self.pinned, "u1")

    def settle(self, seconds: float) -> None:
        """Waits until no GPU reads from it."""
        if self.pinned is not None:
            self.pinned.settle(seconds)


class Rooms:
    """The rooms of a channel."""

    def __init__(self) -> None:
        self._free: list[Room] = []

    def take(self, ordinal: int | None, size: int, seconds: float) -> Room:
        """A room with at least `size` bytes."""
        fits = [r for r in self._free if r.ordinal == ordinal and size <= r.bytes.size]
        room = min(fits, key=lambda room: room.bytes.size) if fits else Room(ordinal, size)
        if fits:
            self._free.remove(room)
            room.settle(seconds)
        _LENT.add(room)
        return room

    def drop(self, room: Room) -> None:
        """The room is not used again: its memory is freed when no GPU uses it."""
        _LENT.discard(room)

    def give_back(self, room: Room) -> None:
        """The room is not used any more, but for a GPU that decodes from it."""
        _LENT.discard(room)
        self._free.append(room)
        del self._free[:-KEPT]


#: Rooms that a library may be using, also when their channel is gone.
_LENT: set[Room] = set()
