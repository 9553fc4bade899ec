"""Heads of frames in a durable directory: where payloads lie, and the checksums of their pieces.

Values are never read from here: `Spool` reads them and compares their checksums. A head that is
wrong makes a comparison read more, and no differing values equal.
"""

from __future__ import annotations

import functools
import math
import os
import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

from .._partial import PIECE
from ..codecs import Achieved

__all__ = ["Frame", "Frames", "Stream", "differing", "offsets_of"]

MAGIC = b"\x89UNSP\r\n\x1a"

NAME = re.compile("frame-[0-7][0-9a-f]{15}-[1-9a-f][0-9a-f]*")

#: The fields of a head up to the version of the checkpoint, and the packing of version 2.
HEAD, PACKING = struct.Struct("<8sIIQQQQq8x"), struct.Struct("<H6xQ")

#: The flag that says that checksums of pieces follow the payload.
PIECES = 1

#: Regions begin at multiples of it.
ALIGNMENT = 64

#: The headers of streams of Twine and zfp, as far as they are read here.
TWINE, ZFP = struct.Struct("<4s2xB9xdd24xd"), struct.Struct("<4s2xB17xd")


class Stream(NamedTuple):
    """What an encoded array says of the codec that made it.

    Attributes:
        kind: `"lossless"`, `"abs"`, `"pointwise"`, or the mode of zfp.
        bound: the bound or the parameter; 0.0 for none.
        floor: with `"pointwise"`, the magnitude below which values became 0.
        max_error: the largest error of a value, or None where it is not said.
    """

    kind: str
    bound: float
    floor: float
    max_error: float | None


class Frame(NamedTuple):
    """A frame in a file of its own.

    Attributes:
        path: the file.
        payload_at: the place of the payload in the file.
        payload_bytes: its bytes, as memory has them.
        checksum: the CRC-64 of the payload.
        sums_at: the place of the checksums of its pieces, or None.
        is_packed: whether the file has something shorter in place of the payload.
    """

    path: str
    payload_at: int
    payload_bytes: int
    checksum: int
    sums_at: int | None
    is_packed: bool

    def stream(self, codec: str, offset: int) -> Stream | None:
        """What the encoded array at a place of the payload says of its codec."""
        if self.is_packed or codec not in ("twine", "zfp"):
            return None
        found = _read(self.path, self.payload_at + offset, 64)
        if codec == "twine" and len(found) == TWINE.size and found[:4] == b"TWN1":
            _, mode, bound, step, error = TWINE.unpack(found)
            kind = ("lossless", "abs", "pointwise")[mode % 3]
            return Stream(kind, bound, step if kind == "pointwise" else 0.0, error)
        if codec == "zfp" and found[:4] == b"ZFP1":
            _, mode, bound = ZFP.unpack(found[: ZFP.size])
            return Stream(("rate", "precision", "tolerance")[mode % 3], bound, 0.0, None)
        return None


class Frames:
    """The frames of a directory that have files of their own, by version, as they are now."""

    def __init__(self, directory: Path) -> None:
        self._found: dict[int, Frame] = {}
        # Sorted by their ids: of two frames of one version the later one counts.
        for path in sorted(directory.glob("frame-*")):
            if NAME.fullmatch(path.name):
                self._see(path)

    def of(self, version: int) -> Frame | None:
        """The frame that was written last under a version."""
        return self._found.get(version)

    def _see(self, path: Path) -> None:
        head = _read(str(path), 0, HEAD.size + PACKING.size)
        if len(head) < HEAD.size + PACKING.size or head[:8] != MAGIC:
            return
        fields = HEAD.unpack(head[: HEAD.size])
        _, kind, flags, head_bytes, _, payload, checksum, version = fields
        coder, stored = PACKING.unpack(head[HEAD.size :]) if kind > 1 else (0, payload)
        sums_at = head_bytes + stored if flags & PIECES else None
        self._found[version] = Frame(
            str(path), head_bytes, payload, checksum, sums_at, is_packed=coder != 0
        )


@functools.lru_cache(maxsize=8)
def sums_of(frame: Frame) -> Any | None:
    """The checksums of all pieces of a frame, or None."""
    import numpy as np

    count = math.ceil(frame.payload_bytes / PIECE)
    if frame.sums_at is None:
        return np.array([frame.checksum], "<u8") if count == 1 else None
    found = _read(frame.path, frame.sums_at, 8 * count)
    return np.frombuffer(found, "<u8") if len(found) == 8 * count else None


def differing(a: tuple[Frame | None, int], b: tuple[Frame | None, int], count: int) -> list[range]:
    """Where `count` bytes may differ that begin at an offset in the payloads of two frames: of
    pieces, by their checksums. All of them, where these do not say it."""
    import numpy as np

    if count == 0:
        return []
    (one, first), (other, begin) = a, b
    if one is None or other is None or (first - begin) % PIECE:
        return [range(count)]
    if first == begin and one[2:4] == other[2:4]:
        # The same bytes, by the checksum of all of them.
        return []
    sums, others = sums_of(one), sums_of(other)
    if sums is None or others is None:
        return [range(count)]
    pieces = range(first // PIECE, -(-(first + count) // PIECE))
    shift = (begin - first) // PIECE
    mine = sums[pieces.start : pieces.stop]
    theirs = others[pieces.start + shift : pieces.stop + shift]
    if len(mine) != len(theirs):
        return [range(count)]
    edges = np.diff(np.concatenate(([False], mine != theirs, [False])).astype("i1"))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    begins = (starts + pieces.start) * PIECE - first
    ends = (stops + pieces.start) * PIECE - first
    return [
        range(max(low, 0), min(high, count))
        for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def offsets_of(achieved: dict[str, Achieved]) -> tuple[dict[str, int], int]:
    """The places of arrays in the payload of their frame, and the bytes of the payload."""
    found, end = {}, 0
    for name, about in achieved.items():
        found[name] = math.ceil(end / ALIGNMENT) * ALIGNMENT
        end = found[name] + about.stored_bytes
    return found, end


def _read(path: str, first: int, count: int) -> bytes:
    """So many bytes of a file, or fewer; none where it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, count, first)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
