"""What is measured of a program on one array: its time, how long its reads and writes take, and
what single faults take."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import unspool
from unspool.codecs import decode, encode
from unspool.errors import Error
from unspool.stats import PagingStats
from unspool.types import PagedArray
from unspool_studies.paging.model import Counts, Speeds
from unspool_studies.paging.programs import Array, Program, timed

__all__ = [
    "STORES",
    "Faults",
    "Latencies",
    "Outcome",
    "PagedOutcome",
    "PagingStudyError",
    "codec_speeds",
    "faults_of",
    "paged_runs",
    "plain_runs",
]

#: Where chunks are put aside: in memory, encoded without loss, or on a disk, as they are.
STORES = ("compressed", "disk")

#: Bytes of a line of a processor's cache.
LINE = 64

#: Bytes that a codec is given at a time: as in paging, so few that one thread works on them.
PIECE = 128 << 10

#: The most pieces of an array by which a codec is measured.
PIECES = 64

#: The seed of the order in which single faults are made.
SEED = 3


class PagingStudyError(Error, RuntimeError):
    """A program that cannot be measured here, or whose results differ."""


@dataclass(frozen=True)
class Latencies:
    """Nanoseconds that a line of 64 bytes takes on average.

    Attributes:
        read: when a plane is read that the program needs next.
        write: when the program stores a plane.
    """

    read: float
    write: float

    @property
    def read_speed(self) -> float:
        """Bytes that are read a second."""
        return 1e9 * LINE / self.read


@dataclass(frozen=True)
class Outcome:
    """What was measured of a program on an array.

    Attributes:
        seconds: of the shortest run.
        work: seconds of all processors in the run in which they are fewest.
        result: of the program.
        latencies: of its reads and writes, in runs of their own, the least of them.
    """

    seconds: float
    work: float
    result: float
    latencies: Latencies

    def best(self, other: Outcome) -> Outcome:
        """The least times of two measurements of one program."""
        read, write = (
            min(getattr(one.latencies, kind) for one in (self, other)) for kind in ("read", "write")
        )
        seconds, work = min(self.seconds, other.seconds), min(self.work, other.work)
        return Outcome(seconds, work, self.result, Latencies(read, write))


@dataclass(frozen=True)
class PagedOutcome(Outcome):
    """What was measured of a program on a paged array.

    Attributes:
        counts: of paging, in a run.
        alpha: one minus stored over raw bytes of all that was put aside.
        saved: the part of the array's bytes that are not in memory, neither as they were nor
            encoded, after the runs.
    """

    counts: Counts
    alpha: float
    saved: float


@dataclass(frozen=True)
class Faults:
    """Seconds of single faults in a drawn order, each of which has a chunk loaded.

    Attributes:
        read: what is evicted meanwhile has not changed.
        write: what is evicted meanwhile has changed.
    """

    read: float
    write: float


class _Watched:
    """An array whose planes are timed when a program takes or stores them."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self._seconds = {"read": 0.0, "write": 0.0}
        self._bytes = {"read": 0, "write": 0}

    def __getitem__(self, key: Any) -> Any:
        part = self._array[key]
        words = np.asarray(part).reshape(-1).view(np.uint64)
        begin = time.perf_counter()
        words.max()
        self._add("read", time.perf_counter() - begin, part.nbytes)
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        part = self._array[key]
        begin = time.perf_counter()
        part[...] = value
        self._add("write", time.perf_counter() - begin, part.nbytes)

    def _add(self, kind: str, seconds: float, nbytes: int) -> None:
        self._seconds[kind] += seconds
        self._bytes[kind] += nbytes

    def latencies(self) -> Latencies:
        """What a line took on average."""
        read, write = (1e9 * LINE * self._seconds[k] / self._bytes[k] for k in ("read", "write"))
        return Latencies(read, write)


def _latencies(program: Program, array: Array, rounds: int) -> Latencies:
    """The least of several runs."""
    found = []
    for _ in range(rounds):
        watched = _Watched(array)
        program.fill(watched)
        program.sweep(watched)
        found.append(watched.latencies())
    return Latencies(min(one.read for one in found), min(one.write for one in found))


def plain_runs(program: Program, rounds: int) -> tuple[Outcome, Array]:
    """A program on an ordinary array, and that array; of `rounds` runs the best one counts."""
    array = np.zeros(program.shape, program.dtype)
    program.fill(array)
    seconds, work, result = timed(program, array, rounds)
    return Outcome(seconds, work, result, _latencies(program, array, rounds)), array


def paged_runs(
    program: Program, resident: int, store: str, directory: Path, chunk: int, rounds: int
) -> tuple[PagedOutcome, PagedArray]:
    """A program on a paged array, and that array.

    Arguments:
        program: what is run.
        resident: bytes of the array in memory.
        store: of `STORES`.
        directory: for the disk.
        chunk: bytes that are moved at a time.
        rounds: as for `plain_runs`.

    Raises:
        PagingStudyError: chunks could not be put aside, or bytes were lost.
        OptionError: `resident` is less than four chunks.
        RefusedError: the kernel does not let this process answer page faults.
        StorageError: the disk cannot be opened.
    """
    aside: dict[str, Any] = (
        {"disk": directory, "host_memory": 0, "codec": None} if store == "disk" else {}
    )
    array = unspool.paged(program.shape, program.dtype, resident, chunk=chunk, **aside)
    program.fill(array)
    before = array.paging()
    seconds, work, result = timed(program, array, rounds)
    after = array.paging()
    latencies = _latencies(program, array, rounds)
    last = array.paging()
    if last.refusals or last.lost:
        raise PagingStudyError(
            f"{last.refusals} chunks could not be put aside and {last.lost} were lost "
            f"({last.last_refusal}): make room there, or give a smaller --paging-scale."
        )
    held = last.resident + last.stored_in_memory
    outcome = PagedOutcome(
        seconds=seconds,
        work=work,
        result=result,
        latencies=latencies,
        counts=_counts(before, after, rounds),
        alpha=1 - 1 / last.factor,
        saved=1 - held / program.nbytes,
    )
    return outcome, array


def _counts(before: PagingStats, after: PagingStats, rounds: int) -> Counts:
    loads, decoded, encoded = (
        (getattr(after, name) - getattr(before, name)) / rounds
        for name in ("loads", "bytes_decoded", "bytes_encoded")
    )
    return Counts(loads, decoded, encoded)


def faults_of(array: PagedArray) -> Faults:
    """What single faults on an array take. Its first byte of each chunk is not as it was after
    that.

    Raises:
        PagingStudyError: all of the array is in memory.
    """
    if array.paging().chunk_bytes == 0:
        raise PagingStudyError("all of the array is in memory, so that nothing faults")
    cells = np.asarray(array).reshape(-1).view(np.uint8)
    # After the first of two passes, what is in memory has been read only, or written.
    read, write = ([_pass(array, cells, writes) for _ in range(2)][1] for writes in (False, True))
    return Faults(read, write)


def _pass(array: PagedArray, cells: Array, writes: bool) -> float:
    """Touches all chunks in a drawn order; the time for each that had to be loaded."""
    before = array.paging()
    places = list(range(0, cells.size, before.chunk_bytes))
    random.Random(SEED + writes).shuffle(places)
    begin = time.perf_counter()
    for place in places:
        if writes:
            cells[place] = 1
        else:
            cells[place]
    seconds = time.perf_counter() - begin
    return seconds / (array.paging().loads - before.loads)


def codec_speeds(array: Array, memory: float) -> Speeds:
    """What the codec of paging does to the bytes of an array, by one thread.

    Arguments:
        array: in C order, of at least one piece.
        memory: bytes a second that come from memory.
    """
    raw, stored, encoding, decoding = 0, 0, 0.0, 0.0
    for piece in _pieces(array):
        begin = time.perf_counter()
        made = encode(piece, "lossless")
        middle = time.perf_counter()
        decode(made)
        decoding += time.perf_counter() - middle
        encoding += middle - begin
        raw += piece.nbytes
        # What does not get shorter is kept as it is.
        stored += min(made.nbytes, piece.nbytes)
    return Speeds(1 - stored / raw, raw / encoding, raw / decoding, memory)


def _pieces(array: Array) -> Iterator[Array]:
    """Evenly spread ones."""
    items = array.reshape(-1)
    length = PIECE // items.itemsize
    starts: Sequence[int] = range(0, items.size - length + 1, length)
    for start in starts[:: max(1, len(starts) // PIECES)]:
        yield items[start : start + length]
