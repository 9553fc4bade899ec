"""Small values that go into a spool and come out of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from .errors import OptionError, shown

__all__ = ["Debug", "Disk", "Region", "record_of"]

_T = TypeVar("_T")


def record_of(name: str, given: Any, kind: type[_T]) -> _T:
    """The record of options that was given, or the usual one.

    Raises:
        OptionError: it is of another class.
    """
    if given is not None and not isinstance(given, kind):
        raise OptionError(f"{name}={shown(given)}: give a {kind.__name__}(...).")
    return kind() if given is None else cast("_T", given)


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk tier with options: `Spool(disk=Disk("/scratch", capacity="100GiB"))`.

    Attributes:
        path: the directory; it is created when the one that is to contain it exists. An ephemeral
            spool makes a directory of its own in it and removes that when it is closed; a durable
            one keeps its checkpoints in it.
        capacity: the most bytes that they may take, as an integer or as text such as `"100GiB"`;
            None when only the file system sets a limit.
        durable: whether the checkpoints outlive the spool: `Spool.flush` and `Spool.close` then
            make them survive a crash of the machine, and opening the directory again finds them.
            What is damaged or missing then is named by a `RuntimeWarning`, in `Stats.notes`, and by
            the error of its restore.
        mode: `"r"` reads a durable directory and changes nothing in it: it may belong to somebody
            else, lie on a read-only file system, or be written by another spool meanwhile. What
            is in it is looked at once, when the spool is opened; `save` and `discard` raise a
            `StorageError`. `"a"` reads and adds.
        permissions: those of the files of a durable spool, whatever the umask is: `0o640` lets the
            group read them. What an ephemeral spool writes is for its user alone.
        compress: what checkpoints go through on their way to the disk, without any loss:
            `"zstd"`, `"lz4"` (faster, not as small), `"archive"` (smallest, and slow to write), or
            None.
    """

    path: str | bytes | os.PathLike[str] | os.PathLike[bytes]
    capacity: int | float | str | None = None
    durable: bool = False
    mode: Literal["a", "r"] = "a"
    permissions: int = 0o600
    compress: Literal["zstd", "lz4", "archive"] | None = None


@dataclass(frozen=True, slots=True)
class Debug:
    """What a spool checks, writes down or does otherwise for those who look for a fault.

    `Spool(..., debug=Debug(check_order=True))`. All of it costs time.

    Attributes:
        check_order: look for accesses to the arenas that are not ordered with those they depend
            on. What is found on a GPU is a `DeviceError` at `close`; a checkpoint in main memory
            that was written through an array of its `writing` block after the block had ended is a
            `CorruptCheckpointError` when it is read.
        order_trace: a file that receives what `check_order` sees.
        check_codec: decode what was encoded on the spot and compare: twice as costly, each alone.
        record: a file that receives every decision, one line each, to be replayed later.
        policy: how room is made in memory: `"score"`, `"lru"`, `"fifo"`, or `"belady"`, which is
            best where all restores are expected before the first one. The last three are meant for
            comparisons.
        trace: keep what happened when, for `Spool.write_trace`.
    """

    check_order: bool = False
    order_trace: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None
    check_codec: bool = False
    record: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None
    policy: Literal["score", "lru", "fifo", "belady"] = "score"
    trace: bool = False


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
