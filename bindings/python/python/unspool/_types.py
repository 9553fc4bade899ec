"""Small values that go into a spool and come out of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

__all__ = ["Disk", "Region"]


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk tier with options: `Spool(disk=Disk("/scratch", capacity="100GiB"))`.

    Attributes:
        path: the directory. An ephemeral spool makes a directory of its own in it and removes
            that when it is closed; a durable one keeps its checkpoints in it.
        capacity: the most bytes that they may take, as an integer or as text such as `"100GiB"`;
            None when only the file system sets a limit.
        durable: whether the checkpoints outlive the spool: `Spool.flush` and `Spool.close` then
            make them survive a crash of the machine, and opening the directory again finds them.
        compress: what checkpoints go through on their way to the disk, without any loss:
            `"zstd"`, `"lz4"` (faster, not as small), `"archive"` (smallest, and slow to write), or
            None.
    """

    path: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    capacity: int | float | str | None = None
    durable: bool = False
    compress: Literal["zstd", "lz4", "archive"] | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """One array of a checkpoint.

    Attributes:
        name: its name, or its position (`"0"`, `"1"`, ...) when it was saved by position.
        dtype: the type of its items, such as `"float32"`; `"opaqueN:..."` for items of N bytes
            that only the library which made them understands, with the format of the buffer
            protocol.
        shape: its dimensions, slowest first.
        nbytes: the bytes of its items.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
