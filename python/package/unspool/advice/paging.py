"""`unspool paging`: what paging would bring for the bytes of a file or of a running process.

It is the model of D. Ibtesham's dissertation (2017, chapter 3), with factors and speeds that are
measured on a sample of the bytes. There alpha is one minus encoded over raw bytes, W the bytes of a
program and D those that stay in memory as they are.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..codecs.coding import decode, encode
from ..codecs.host import library
from ..errors import OptionError
from .coding import Coded
from .sizes import bytes_of

#: Bytes that a chunk is encoded by, as paging does it.
PIECE = 128 << 10
#: What the bytes are taken for. LZ4 stands for all that is not a number.
KINDS = ("float64", "float32", "int64", "int32", "lz4")
#: Bytes that come from memory in a second.
MEMORY = 10e9
#: Pages whose state is read at once.
AT_ONCE = 1 << 17


def memory_saved(alpha: float, program: float, resident: float) -> float:
    """The part of a program's memory that is saved (Tables 3.4 to 3.6):
    alpha (W - D) / W."""
    return alpha * max(program - resident, 0.0) / program if program else 0.0


def miss_seconds(alpha: float, nbytes: float, codec: float, memory: float) -> float:
    """How long a miss takes (Equation 3.1): the bytes at the speed of the codec, and what is left
    of them at that of memory, both in bytes a second."""
    return nbytes / codec + (1 - alpha) * nbytes / memory


def try_codecs(pieces: Iterable[bytes]) -> list[Coded]:
    """What codecs make of the same pieces, of `PIECE` bytes each, taken for every kind of item; by
    one thread."""
    arrays = [library().frombuffer(piece, "u1") for piece in pieces]
    return [_try(kind, arrays) for kind in KINDS]


def _try(kind: str, arrays: list[Any]) -> Coded:
    raw = sum(array.nbytes for array in arrays)
    stored, encoding, decoding = 0, 0.0, 0.0
    for array in arrays:
        begin = time.perf_counter()
        if kind == "lz4":
            made = encode(array, None, outer="lz4")
        else:
            made = encode(array.view(kind), "lossless")
        middle = time.perf_counter()
        decode(made)
        encoding += middle - begin
        decoding += time.perf_counter() - middle
        # What does not get shorter is kept as it is.
        stored += min(made.nbytes, array.nbytes)
    return Coded(kind, None, raw / stored, raw / encoding, raw / decoding, "measured")


def paging_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool paging` understands."""
    parser.description = """\
Takes a sample of the bytes of a file, or of the writable memory that a process has in use (pages
that are resident), encodes it, and says
how much memory paging would save when so much of it stays as it is, and what a sweep over all of it
would wait for. One thread encodes and decodes; paging has two to four, which work ahead of the
program. To page the large allocations of a program in C or Fortran: `unspool paging run --resident
25% -- ./program`, with the package unspool-paging (pip install unspool-paging).
"""
    parser.add_argument("what", metavar="FILE|PID", help="a file, or the number of a process")
    parser.add_argument("--samples", type=int, default=64, metavar="N", help="of 128 KiB (64)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the places (1)")
    parser.add_argument("--disk", default="2GB", metavar="SIZE", help="read a second (2GB)")


def run_paging(options: argparse.Namespace) -> int:
    """Prints the tables; returns the exit code."""
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
        speeds = f"{one.encode / 1e6:13.0f} {one.decode / 1e6:13.0f}"
        print(f"{one.name:10} {min(one.ratio, 1e3):8.2f} {speeds}")
    best = max(samples, key=lambda one: one.ratio)
    print(f"\nwith {best.name}; seconds that one sweep over all of it waits, at the most")
    print("in memory  saved  from memory  from a disk")
    for share in (1.0, 0.75, 0.5, 0.25):
        missed = (1 - share) * total
        # What makes room is encoded, whether it was written to or not.
        waited = sum(
            miss_seconds(best.saved, missed, codec, MEMORY) for codec in (best.decode, best.encode)
        )
        saved = memory_saved(best.saved, total, share * total)
        print(f"{share:8.0%} {saved:7.0%} {waited:12.2f} {missed / disk:12.2f}")
    print(
        "\nsaved: the rest is encoded. One to two chunks (256 KiB to 2 MiB) a thread come on top."
    )
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
    np = library()
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
