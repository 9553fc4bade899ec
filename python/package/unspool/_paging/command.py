"""`unspool paging`: what paging would bring for the bytes of a file or of a running process."""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .._plan.sizes import bytes_of
from ..errors import OptionError

__all__ = ["add_options", "run_command"]

DESCRIPTION = """\
Takes a sample of the bytes of a file, or of the writable memory that a process has in use (pages
that are resident), encodes it, and says
how much memory paging would save when so much of it stays as it is, and what a sweep over all of it
would wait for. One thread encodes and decodes; paging has two to four, which work ahead of the
program.
"""

# Bytes that come from memory in a second.
MEMORY = 10e9
# Pages whose state is read at once.
AT_ONCE = 1 << 17


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool paging` understands."""
    parser.description = DESCRIPTION
    parser.add_argument("what", metavar="FILE|PID", help="a file, or the number of a process")
    parser.add_argument("--samples", type=int, default=64, metavar="N", help="of 128 KiB (64)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the places (1)")
    parser.add_argument("--disk", default="2GB", metavar="SIZE", help="read a second (2GB)")


def run_command(options: argparse.Namespace) -> int:
    """Prints the tables; returns the exit code."""
    from .estimate import PIECE, best_of, memory_saved, miss_seconds, try_codecs

    if options.samples < 1:
        raise OptionError("--samples: give at least 1.")
    disk = bytes_of("--disk", options.disk)
    regions = list(_regions(options.what))
    total = sum(end - start for start, end in regions)
    pieces = list(_pieces(options, regions, PIECE))
    if not pieces:
        raise OptionError(f"{options.what}: there are no {PIECE} bytes in a row to be looked at.")
    print(f"{total / 2**20:.1f} MiB, {len(pieces)} pieces of 128 KiB looked at\n")
    print("taken for    factor  encoded MB/s  decoded MB/s")
    samples = try_codecs(pieces)
    for one in samples:
        factor = 1 / max(1 - one.alpha, 1e-3)
        print(f"{one.kind:10} {factor:8.2f} {one.encoded / 1e6:13.0f} {one.decoded / 1e6:13.0f}")
    best = best_of(samples)
    print(f"\nwith {best.kind}; seconds that one sweep over all of it waits, at the most")
    print("in memory  saved  read only  written too  from a disk")
    for share in (1.0, 0.75, 0.5, 0.25):
        missed = (1 - share) * total
        reads = miss_seconds(best.alpha, missed, best.decoded, MEMORY)
        writes = reads + miss_seconds(best.alpha, missed, best.encoded, MEMORY)
        saved = memory_saved(best.alpha, total, share * total)
        print(f"{share:8.0%} {saved:7.0%} {reads:10.2f} {writes:12.2f} {missed / disk:12.2f}")
    return 0


def _regions(what: str) -> Iterator[tuple[int, int]]:
    """Where the bytes of a file, or the resident pages of the private writable memory of a process,
    are."""
    if not what.isdecimal():
        yield 0, Path(what).stat().st_size
        return
    for line in Path(f"/proc/{what}/maps").read_text().splitlines():
        place, rights, _, _, inode, *_ = line.split(maxsplit=5)
        if rights.startswith("rw") and rights.endswith("p") and inode == "0":
            start, end = (int(address, 16) for address in place.split("-"))
            yield from _resident(what, start, end)


def _resident(pid: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The runs of resident pages between two addresses of a process. Address space that was never
    touched, and what is swapped out, has none."""
    import numpy as np

    page = os.sysconf("SC_PAGE_SIZE")
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        # Each page has 64 bits, of which the highest says that it is resident.
        for first in range(start // page, end // page, AT_ONCE):
            count = min(AT_ONCE, end // page - first)
            pages = np.frombuffer(_read(file, 8 * first, 8 * count), np.uint64) >> np.uint64(63)
            edges = np.flatnonzero(np.diff(pages.astype(np.int8), prepend=0, append=0)) + first
            for low, high in edges.reshape(-1, 2).tolist():
                yield low * page, high * page


def _pieces(
    options: argparse.Namespace, regions: list[tuple[int, int]], size: int
) -> Iterator[bytes]:
    """Pieces from places that are drawn, each part of the bytes as likely as it is long."""
    places = [(start, (end - start) // size) for start, end in regions if end - start >= size]
    if not places:
        return
    draw = random.Random(options.seed)
    path = f"/proc/{options.what}/mem" if options.what.isdecimal() else options.what
    with open(path, "rb", buffering=0) as file:
        for start, count in draw.choices(places, [count for _, count in places], k=options.samples):
            piece = _read(file, start + draw.randrange(count) * size, size)
            # Memory may go while it is looked at.
            if len(piece) == size:
                yield piece


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    try:
        return os.pread(file.fileno(), size, offset)
    except OSError:
        return b""
