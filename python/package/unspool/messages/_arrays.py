"""Arrays of a message: what they are, their bytes in a room, and back.

An array of a GPU is encoded there, on the stream of its library, and its coded bytes alone come to
the host. One in main memory is encoded by all cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unspool._unspool import codec_decode, codec_encode, codec_room
from unspool.codecs.host import host_array, is_lossy_dtype, library
from unspool.codecs.values import Bound
from unspool.errors import ArrayError
from unspool.messages._header import CODED, PLAIN, SIZE, Header
from unspool.messages._rooms import DEVICES, Room

__all__ = ["Message"]

#: Arrays with fewer items are sent as they are: a stream is not smaller than they are.
FEW = 64


@dataclass(frozen=True, slots=True)
class Message:
    """An array that is sent or received.

    Attributes:
        array: the array itself.
        number: that of the message, for errors.
        dtype: the name of the type of its items.
        shape: its dimensions, slowest first.
        nbytes: the bytes of its items.
        ordinal: its GPU; None in main memory.
    """

    array: Any
    number: int
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    ordinal: int | None

    @classmethod
    def of(cls, array: Any, number: int, *, is_target: bool) -> Message:
        """The message with this array.

        Raises:
            ArrayError: it is not an array of numbers, or a target that cannot be written.
        """
        dtype, shape, nbytes, ordinal, writable = DEVICES.look(array, number)
        if dtype.startswith("opaque"):
            raise ArrayError(f"items of dtype {dtype} cannot be sent: give an array of numbers")
        if is_target and not writable:
            raise ArrayError("the array to receive into is read-only: give one that is writable")
        # An array without items lies nowhere, also one of a GPU.
        if is_target and nbytes and ordinal is None:
            _host_view(array)
        return cls(array, number, dtype, tuple(shape), nbytes, ordinal)

    def header(self) -> Header:
        """Its header, without what follows it."""
        return Header(self.number, self.dtype, self.shape, self.nbytes)

    def codec(self, bound: Bound | None) -> Bound | str | None:
        """What its bytes are encoded with; None for not at all."""
        if math.prod(self.shape) < FEW:
            return None
        return bound if bound is not None and is_lossy_dtype(self.dtype) else "lossless"

    def room(self, codec: Bound | str | None) -> int:
        """The most bytes of the whole message while it is encoded."""
        coded = 0 if codec is None else codec_room(self.dtype, self.shape, codec, None)
        return SIZE + max(self.nbytes, coded)

    def encode(self, room: Room, codec: Bound | str | None, seconds: float) -> tuple[int, int]:
        """Writes its bytes to the room, after the header: how they are coded, and how many."""
        if self.nbytes == 0:
            return PLAIN, 0
        if codec is not None:
            stored = self._encode(room, codec, seconds)
            if stored < self.nbytes:
                return CODED, stored
        return PLAIN, self._encode(room, None, seconds)

    def _encode(self, room: Room, codec: Bound | str | None, seconds: float) -> int:
        if self.ordinal is not None:
            place = (room.pinned, SIZE)
            return DEVICES.encode(self.array, self.number, codec, place, seconds)
        values = host_array(self.array)
        flat, space = values.reshape(-1).view("u1"), room.bytes[SIZE:]
        if codec is None:
            space[: flat.size] = flat
            return int(flat.size)
        return int(codec_encode(flat, self.dtype, self.shape, codec, None, space)[1])

    def decode(self, room: Room, coding: int, stored: int, seconds: float) -> None:
        """The inverse of `encode`: writes the array. On a GPU that is only enqueued."""
        if self.nbytes == 0:
            return
        codec = "lossless" if coding == CODED else None
        if self.ordinal is not None:
            place = (room.pinned, SIZE, stored)
            DEVICES.decode(self.array, self.number, codec, place, seconds)
            return
        view, data = _host_view(self.array), room.bytes[SIZE : SIZE + stored]
        dense = view if view.flags.c_contiguous else library().empty(view.shape, view.dtype)
        flat = dense.reshape(-1).view("u1")
        if codec is None:
            flat[:] = data
        else:
            codec_decode(data, self.dtype, self.shape, codec, None, flat)
        if dense is not view:
            view[...] = dense


def _host_view(array: Any) -> Any:
    """The memory of an array in main memory, as an array of NumPy.

    Raises:
        ArrayError: it does not lend its memory.
    """
    numpy = library()
    if isinstance(array, numpy.ndarray):
        return array
    if type(array).__module__.partition(".")[0] == "torch":
        import torch

        plain = array.detach()
        return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
    try:
        # What NumPy makes of other objects may be a copy.
        return numpy.asarray(memoryview(array))
    except TypeError as cause:
        kind = type(array).__name__
        raise ArrayError(
            f"a {kind} in main memory does not lend its memory to be written: receive into an "
            "array of NumPy, and convert that"
        ) from cause
