"""What chunks would leave of a checkpoint whose ends a rolling hash finds, beside chunks in place.

    python lab/benches/python/python_rolling.py [--only NAME] [--states 2]

`fixed` is what increments of arrays without a codec do: chunks of an array from its beginning, of
which those count that are not the chunk in their place in the state before. `rolling` cuts where a
hash of the last 64 bytes (a gear hash) begins with zeros, at a quarter to four times of the length
named; chunks count that the state before has nowhere, in no array, and each of them once. So it
finds what has moved, too. Both for chunks of 64 KiB and of 4 KiB. Percent of the bytes of the
state, the mean over states after the first; each chunk costs 16 bytes for its hash or its place on
top, which is counted. Two programs whose arrays change their lengths come with the others.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
from collections.abc import Callable, Iterator

import numpy as np
from python_increments import MIB, PROGRAMS, State

#: Bytes of a hash, or of a name of a chunk.
ENTRY = 16

#: Bytes that are hashed at once.
PIECE = 4 * MIB

#: A random number for each value of a byte.
GEAR = np.random.default_rng(9).integers(0, 1 << 64, 256, np.uint64)


def leaving() -> Iterator[State]:
    """Atoms of which some leave: those that follow move up."""
    drawn = np.random.default_rng(10)
    ids = np.arange(500_000)
    charges, x = drawn.standard_normal(len(ids)), drawn.standard_normal((len(ids), 3))
    while True:
        yield {"ids": ids, "charges": charges, "x": x}
        stays = np.ones(len(ids), bool)
        stays[drawn.integers(0, len(ids), 20)] = False
        ids, charges, x = ids[stays], charges[stays], x[stays]
        x = x + 0.01


def growing() -> Iterator[State]:
    """A table in order of its keys, into which some rows are put."""
    drawn = np.random.default_rng(11)
    keys = np.sort(drawn.integers(0, 1 << 60, 400_000))
    rows = drawn.standard_normal((len(keys), 8), np.float32)
    while True:
        yield {"keys": keys, "rows": rows}
        new = np.sort(drawn.integers(0, 1 << 60, 20))
        at = np.searchsorted(keys, new)
        keys = np.insert(keys, at, new)
        rows = np.insert(rows, at, drawn.standard_normal((len(new), 8), np.float32), axis=0)


MORE: dict[str, Callable[[], Iterator[State]]] = {
    "atoms that leave": leaving,
    "a sorted table that grows": growing,
}


def gear(data: np.ndarray) -> np.ndarray:
    """A hash of the 64 bytes up to each byte: the numbers of all, each shifted by its distance."""
    found = GEAR[data]
    for width in (1, 2, 4, 8, 16, 32):
        found[width:] += found[:-width] << np.uint64(width)
    return found


def ends(data: np.ndarray, mean: int) -> list[int]:
    """Where the chunks of these bytes end."""
    shift = np.uint64(65 - mean.bit_length())
    candidates: list[int] = []
    for at in range(0, len(data), PIECE):
        before = min(at, 63)
        hashes = gear(data[at - before : at + PIECE])[before:]
        candidates += (np.flatnonzero(hashes >> shift == 0) + at + 1).tolist()
    found, last = [], 0
    for end in [*candidates, len(data)]:
        while end - last > 4 * mean:
            last += 4 * mean
            found.append(last)
        if end - last >= mean // 4 or (end == len(data) > last):
            last = end
            found.append(last)
    return found


def hashed(data: np.ndarray, at: list[int]) -> list[tuple[bytes, int]]:
    """The hash and the length of each chunk."""
    pairs = zip([0, *at], at, strict=False)
    return [(hashlib.blake2b(data[a:b], digest_size=ENTRY).digest(), b - a) for a, b in pairs]


def fixed(now: State, before: State, length: int) -> int:
    """The bytes of chunks that differ from those in their place."""
    total = 0
    for key, array in now.items():
        chunks = [
            hashed(data, [*range(length, len(data), length), len(data)])
            for data in (as_bytes(array), as_bytes(before[key]))
        ]
        missing = [(b"", 0)] * len(chunks[0])
        total += sum(
            ENTRY + (size if old != new else 0)
            for (new, size), (old, _) in zip(chunks[0], chunks[1] + missing, strict=False)
        )
    return total


def rolling(now: State, before: State, mean: int) -> int:
    """The bytes of chunks that the state before has nowhere."""
    known = {key for data in map(as_bytes, before.values()) for key, _ in cut(data, mean)}
    total = 0
    for data in map(as_bytes, now.values()):
        for key, size in cut(data, mean):
            total += ENTRY + (0 if key in known else size)
            known.add(key)
    return total


def cut(data: np.ndarray, mean: int) -> list[tuple[bytes, int]]:
    """The chunks that the rolling hash finds."""
    return hashed(data, ends(data, mean))


def as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def measure(name: str, states: Iterator[State], count: int) -> None:
    """A line of the table."""
    before = {key: array.copy() for key, array in next(states).items()}
    found: list[list[float]] = []
    for _ in range(count):
        now = {key: array.copy() for key, array in next(states).items()}
        total = sum(array.nbytes for array in now.values())
        ways = [(way, length) for length in (1 << 16, 1 << 12) for way in (fixed, rolling)]
        found.append([100 * way(now, before, length) / total for way, length in ways])
        before = now
    means = [statistics.mean(column) for column in zip(*found, strict=True)]
    cells = [name, f"{total / MIB:.0f}", *(f"{mean:.1f}" for mean in means)]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--states", type=int, default=2)
    options = parser.parse_args()
    print("| program | MiB | fixed 64K | rolling 64K | fixed 4K | rolling 4K |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, program in (PROGRAMS | MORE).items():
        if options.only is None or options.only in name:
            measure(name, program(), options.states)


if __name__ == "__main__":
    main()
