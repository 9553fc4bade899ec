"""The 64 bytes in front of the bytes of a message, which say what these are.

Integers are little-endian: magic (4 bytes), version (1), coding (1), dimensions (2), number of the
message in its channel (8), bytes of the array (8), bytes that follow (8), their checksum (8), name
of the dtype (16, filled with zeros), checksum of the shape (4), checksum of all before (4).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

from unspool._unspool import codec_checksum
from unspool.errors import MessageError

__all__ = ["CODED", "PLAIN", "SIZE", "Header", "check_bytes"]

MAGIC, VERSION = b"UNSC", 1
PLAIN, CODED = 0, 1
LAYOUT = struct.Struct("<4sBBHQQQQ16sII")
SIZE = LAYOUT.size
LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Header:
    """What one message says of itself."""

    number: int
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    coding: int = PLAIN
    stored: int = 0
    checksum: int = 0

    def of(self, coding: int, data: Any) -> Header:
        """The same with what follows it."""
        return replace(self, coding=coding, stored=len(data), checksum=codec_checksum(data))

    def packed(self) -> bytes:
        """The bytes."""
        fields = (MAGIC, VERSION, self.coding, len(self.shape), self.number, self.nbytes)
        rest = (self.stored, self.checksum, self.dtype.encode(), _digest(self.shape), 0)
        whole = LAYOUT.pack(*fields, *rest)
        return whole[:-4] + struct.pack("<I", codec_checksum(whole[:-4]) & LOW)

    def received(self, data: bytes) -> Header:
        """The header that came where this one, without what was stored, was expected.

        Raises:
            MessageError: it is damaged, of another sender, or of another array.
        """
        magic, version, coding, dims, number, nbytes, stored, checksum, dtype, shape, own = (
            LAYOUT.unpack(data)
        )
        if magic != MAGIC:
            raise MessageError(
                "what came is not a message of a Channel: send it with one, or receive it with "
                "the communicator itself"
            )
        if own != codec_checksum(data[:-4]) & LOW:
            raise MessageError("its header is damaged: its checksum differs")
        if version != VERSION or coding not in (PLAIN, CODED):
            raise MessageError(
                f"its header has version {version} and coding {coding}, which this release of "
                "Unspool does not know: install the same one on all ranks"
            )
        name = dtype.rstrip(b"\0").decode(errors="replace")
        found, wanted = (name, dims, nbytes), (self.dtype, len(self.shape), self.nbytes)
        if found != wanted or shape != _digest(self.shape):
            raise MessageError(
                f"an array of {name} with {dims} dimensions and {nbytes} bytes was sent, and one "
                f"of {self.dtype} of the shape {self.shape} and {self.nbytes} bytes is to be "
                "received: give an array of the same dtype and shape on both sides"
            )
        if number != self.number:
            raise MessageError(
                f"message {number} came where message {self.number} was expected: use one Channel "
                "on each side for a peer and a tag, and nothing else with that tag"
            )
        if stored > nbytes or (coding == PLAIN and stored != nbytes):
            raise MessageError(f"its header tells of {stored} bytes for an array of {nbytes}")
        return replace(self, coding=coding, stored=stored, checksum=checksum)


def check_bytes(header: Header, data: Any) -> None:
    """Compares the bytes of a message with the checksum in its header.

    Raises:
        MessageError: they differ.
    """
    if codec_checksum(data) != header.checksum:
        raise MessageError(
            f"its {header.stored} bytes are not those that were sent: their checksum differs"
        )


def _digest(shape: tuple[int, ...]) -> int:
    return codec_checksum(struct.pack(f"<{len(shape)}Q", *shape)) & LOW
