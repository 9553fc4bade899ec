"""The messages between this rank and another one, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unspool.codecs.values import Bound
from unspool.errors import (
    CorruptCheckpointError,
    Error,
    MessageError,
    OptionError,
    WaitTimeoutError,
)
from unspool.messages._arrays import Message
from unspool.messages._comms import Handle, comm_of
from unspool.messages._header import SIZE, check_bytes
from unspool.messages._rooms import Room, Rooms

__all__ = ["Channel", "Request"]


class Channel:
    """Sends arrays to one rank and receives arrays from it, coded with Twine on the way.

    The other rank has a `Channel` too, with the same tag; each array is received into one of the
    same dtype and shape. Without a bound the bytes that come are those that were sent. An array
    of a GPU is encoded there, on the current stream of its library; the host waits for the size of
    the coded bytes and for their copy to pinned memory, and for nothing else: a receive only
    enqueues the decoding. MPI need not know of GPUs. What coding would not shrink is sent as it
    is, with 64 bytes in front, as is every message.

    Messages with this tag on this communicator are those of the channel only, as the header of
    each has its number. Calls wait where those of the communicator would: two ranks that both
    `send` before they `recv` may wait for each other; begin with `isend` or `irecv` then. One
    thread uses a channel at a time. After an error of a message that was on its way the channel
    does not go on, as what comes next is not known.

    The codec is Twine (docs/reference/twine.md). Coding messages follows Ibtesham, "Improving Large
    Scale Application Performance via Data Movement Reduction" (2017), chapter 4.

    Arguments:
        comm: a communicator of mpi4py, a group of `torch.distributed` with the backend gloo, or
            None for its default group.
        peer: the other rank in `comm`.
        tag: the tag of the messages.
        bound: how far each floating-point value that is received may be from the one that was
            sent, by this rank; the sender keeps its own values. None for no difference; integers
            have none in any case.
        timeout: the longest wait of a call in seconds.

    Attributes:
        sent_bytes: the bytes of the arrays that were sent.
        wire_bytes: the bytes of the messages that these became, headers included.

    Raises:
        OptionError: an argument makes no sense.
        MissingLibraryError: `comm` is None and PyTorch is not installed, or NumPy is not.
    """

    def __init__(
        self,
        comm: Any,
        peer: int,
        *,
        tag: int = 0,
        bound: Bound | None = None,
        timeout: float = 600.0,
    ) -> None:
        if bound is not None and not isinstance(bound, Bound):
            raise OptionError(
                f"Channel(bound={bound!r}): write None, or a bound such as Bound(range=1e-4)"
            )
        if not (math.isfinite(timeout) and timeout > 0):
            raise OptionError(f"Channel(timeout={timeout!r}): write seconds above 0, such as 60")
        self._comm = comm_of(comm)
        if isinstance(peer, bool) or not isinstance(peer, int) or not 0 <= peer < self._comm.size:
            raise OptionError(
                f"Channel(peer={peer!r}): write a rank from 0 to {self._comm.size - 1}"
            )
        if isinstance(tag, bool) or not isinstance(tag, int) or tag < 0:
            raise OptionError(f"Channel(tag={tag!r}): write a number from 0")
        self.peer, self.tag, self.bound, self.timeout = peer, tag, bound, timeout
        self.sent_bytes = self.wire_bytes = 0
        self._rooms = Rooms()
        self._sent = self._received = 0
        self._broken: str | None = None

    def __repr__(self) -> str:
        return f"<unspool.messages.Channel of rank {self._comm.rank} with {self._name()}>"

    def send(self, array: Any, timeout: float | None = None) -> None:
        """Sends an array; when it returns the array may be changed.

        Arguments:
            array: of numbers, of NumPy, CuPy or PyTorch, in any strides.
            timeout: in place of the channel's.

        Raises:
            ArrayError: it is not an array of numbers.
            MessageError: the communicator has failed, or an earlier message has.
            DeviceError: the GPU has failed.
            WaitTimeoutError: the other rank did not receive it in time.
        """
        self.isend(array, timeout).wait(timeout)

    def isend(self, array: Any, timeout: float | None = None) -> Request:
        """Encodes an array and begins to send it; the array may be changed at once.

        The request that is returned has to be waited for.

        Arguments:
            array: as for `send`.
            timeout: for the GPU to encode it, in place of the channel's.

        Raises:
            ArrayError, MessageError, DeviceError: as for `send`.
            WaitTimeoutError: the GPU did not come to it in time.
        """
        limit = self._begin(timeout)
        message = Message.of(array, self._sent, is_target=False)
        codec = message.codec(self.bound)
        room = self._rooms.take(message.ordinal, message.room(codec), limit)
        try:
            coding, stored = message.encode(room, codec, limit)
        except BaseException:
            self._rooms.drop(room)
            raise
        data = room.bytes[: SIZE + stored]
        data[:SIZE] = memoryview(message.header().of(coding, data[SIZE:]).packed())
        self._sent += 1
        self.sent_bytes += message.nbytes
        self.wire_bytes += data.size
        handle = self._on_its_way(message, room, self._comm.isend, data)
        return Request(self, message, room, handle, is_received=False)

    def recv(self, out: Any, timeout: float | None = None) -> None:
        """Receives into `out`.

        On a GPU the values are there for what is enqueued afterwards on the current stream of the
        array's library; the host does not wait for them.

        Arguments:
            out: an array that may be written, of the dtype and the shape of the one that is sent,
                of NumPy, CuPy or PyTorch, in any strides.
            timeout: in place of the channel's.

        Raises:
            ArrayError: `out` is not an array of numbers, or read-only.
            MessageError: what came is damaged, of another dtype or shape, out of order, longer
                than `out` (the backend gloo ends the process then) or not of a channel; or the
                communicator has failed, or an earlier message has.
            DeviceError: the GPU has failed.
            WaitTimeoutError: nothing came in time.
        """
        self.irecv(out).wait(timeout)

    def irecv(self, out: Any) -> Request:
        """Begins to receive; `out` has the values once the request was waited for, which has to be.

        Arguments:
            out: as for `recv`.

        Raises:
            ArrayError, MessageError, DeviceError: as for `recv`; of what comes, by the request.
        """
        limit = self._begin(None)
        message = Message.of(out, self._received, is_target=True)
        room = self._rooms.take(message.ordinal, message.room(None), limit)
        data = room.bytes[: SIZE + message.nbytes]
        # A message that is shorter than a header leaves these bytes.
        data[:SIZE] = 0
        self._received += 1
        handle = self._on_its_way(message, room, self._comm.irecv, data)
        return Request(self, message, room, handle, is_received=True)

    def _begin(self, timeout: float | None) -> float:
        if self._broken is not None:
            raise MessageError(
                f"the channel with {self._name()} has ended: {self._broken}. Make another one, "
                "with another tag"
            )
        return self.timeout if timeout is None else timeout

    def _name(self) -> str:
        return f"rank {self.peer}, tag {self.tag}"

    def _on_its_way(
        self, message: Message, room: Room, begin: Callable[..., Handle], data: Any
    ) -> Handle:
        try:
            return begin(data, self.peer, self.tag)
        except Exception as cause:
            self._rooms.drop(room)
            raise self._ended(message, MessageError(f"it could not begin: {cause}")) from cause

    def _ended(self, message: Message, cause: Error) -> Error:
        """The error of a message, with whose it is; the channel does not go on after it."""
        whose = f"rank {self._comm.rank}: message {message.number} with {self._name()}"
        error = type(cause)(f"{whose}: {cause}")
        self._broken = f"message {message.number}: {cause}"
        return error


class Request:
    """A message that was begun by `Channel.isend` or `Channel.irecv`."""

    def __init__(
        self, channel: Channel, message: Message, room: Room, handle: Handle, *, is_received: bool
    ) -> None:
        self._channel, self._message, self._handle = channel, message, handle
        self._room: Room | None = room
        self._is_received = is_received
        self._failed: Error | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the message is sent, or until it is received and `out` has its values.

        Arguments:
            timeout: in seconds, in place of the channel's.

        Raises:
            MessageError, DeviceError, WaitTimeoutError: as for `Channel.send` and `Channel.recv`.
                A second call raises it again.
        """
        if self._failed is not None:
            raise self._failed
        if self._room is None:
            return
        limit = self._channel.timeout if timeout is None else timeout
        try:
            self._complete(limit)
            self._taken(self._room, limit)
        except Error as cause:
            self._failed = self._channel._ended(self._message, cause)
            raise self._failed from cause
        self._room = None

    def _complete(self, limit: float) -> None:
        try:
            is_done = self._handle.wait(limit)
        except Exception as cause:
            raise MessageError(f"the communicator has failed: {cause}") from cause
        if not is_done:
            verb = "came" if self._is_received else "was taken"
            raise WaitTimeoutError(
                f"nothing {verb} in {limit:g} s: see whether the other rank is alive and has come "
                "to this message, or give a longer timeout"
            )

    def _taken(self, room: Room, limit: float) -> None:
        """Gives the room back, from which what has come is decoded before."""
        try:
            if self._is_received:
                self._decode(room, limit)
        except BaseException:
            self._channel._rooms.drop(room)
            raise
        self._channel._rooms.give_back(room)

    def _decode(self, room: Room, limit: float) -> None:
        header = self._message.header().received(room.bytes[:SIZE].tobytes())
        check_bytes(header, room.bytes[SIZE : SIZE + header.stored])
        try:
            self._message.decode(room, header.coding, header.stored, limit)
        except CorruptCheckpointError as cause:
            raise MessageError(f"its bytes cannot be decoded: {cause}") from cause
