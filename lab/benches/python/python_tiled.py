"""What an array of tiles costs: a 3-D stencil of which 100 to 25 % fit into memory.

    python lab/benches/python/python_tiled.py [--mib 64] [--laps 3] [--deep 1] [--disk FOLDER]

A heat equation in place, tile by tile with the planes of its neighbours, `--deep` relaxations of a
tile before the next one; a sweep over all tiles is a lap. It runs on a plain array, on a file by
`np.memmap` (which the page cache of the machine keeps in memory where it can), and on
`unspool.tiled` with a host tier of a part of the array and the rest on a disk. There the order is
known (`expect(cycle=...)`) or not; without a codec and with the lossless one. With a codec the host
tier holds encoded tiles, so that more of them fit than the percentage says.

"back" counts the tiles that came back from the disk in a lap, "ahead" the restores that found
theirs in memory; "stall" is what the program waited for both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import unspool

Array = np.ndarray[Any, Any]
ROWS, SIDE = 8, 256
SHARES = (100, 75, 50, 25)


def wave(first: int, rows: int, planes: int) -> Array:
    z = np.linspace(0, 6, planes, dtype=np.float32)[first : first + rows]
    along = np.linspace(0, 6, SIDE, dtype=np.float32)
    return np.sin(z[:, None, None] + along[:, None]) * np.cos(along)


def relaxed(padded: Array, low: int, rows: int, deep: int) -> Array:
    """The rows from `low` on after some relaxations, the planes beside them as they are."""
    for _ in range(deep):
        inner = padded[1:-1, 1:-1, 1:-1]
        near = padded[:-2, 1:-1, 1:-1] + padded[2:, 1:-1, 1:-1]
        near += padded[1:-1, :-2, 1:-1] + padded[1:-1, 2:, 1:-1]
        near += padded[1:-1, 1:-1, :-2] + padded[1:-1, 1:-1, 2:]
        inner += (near - 6 * inner) * np.float32(0.1)
    return padded[low : low + rows]


def plain_lap(field: Array, deep: int) -> None:
    before = field[:0].copy()
    for first in range(0, len(field), ROWS):
        here = field[first : first + ROWS]
        padded = np.concatenate([before, here, field[first + ROWS : first + ROWS + 1]])
        before = here[-1:].copy()
        here[...] = relaxed(padded, min(first, 1), len(here), deep)


def tiled_lap(field: unspool.types.TiledArray, deep: int) -> None:
    for index, padded in field.sweep(halo=1):
        with field.tile(index, "w") as out:
            out[...] = relaxed(padded, min(index, 1), len(out), deep)


def timed(lap: Callable[[], None], laps: int) -> tuple[float, float]:
    """The shortest lap of some, and the least time of all processors in one."""
    times, works = [], []
    for _ in range(laps):
        begin, work = time.perf_counter(), time.process_time()
        lap()
        times.append(time.perf_counter() - begin)
        works.append(time.process_time() - work)
    return min(times), min(works)


def cases() -> Iterator[tuple[int, Any, bool]]:
    for codec in (None, "lossless"):
        for share in SHARES:
            for known in (False, True):
                yield share, codec, known


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="MiB of the array")
    parser.add_argument("--laps", type=int, default=3)
    parser.add_argument("--deep", type=int, default=1, help="relaxations of a tile in a lap")
    parser.add_argument("--disk", default=None, help="where the disk tier and the file are")
    options = parser.parse_args()
    planes = options.mib * 2**20 // (SIDE * SIDE * 4)
    print("| array | in memory | codec | order | a lap | to plain | cpu | back | ahead | stall |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        field = wave(0, planes, planes)
        plain = timed(lambda: plain_lap(field, options.deep), options.laps + 1)
        print(f"| plain | 100 % | | | {plain[0]:.2f} s | 1.00 | 1.00 | | | |", flush=True)
        path = Path(folder) / "field"
        mapped = np.memmap(path, np.float32, "w+", shape=(planes, SIDE, SIDE))
        mapped[...] = wave(0, planes, planes)
        took = timed(lambda: plain_lap(mapped, options.deep), options.laps + 1)
        assert np.array_equal(mapped, field), "the file differs from the plain array"
        print(f"| memmap | page cache | | | {ratios(took, plain)} | | | |", flush=True)
        for share, codec, known in cases():
            report(folder, (planes, share, codec, known), options, plain, field)


def ratios(took: tuple[float, float], plain: tuple[float, float]) -> str:
    return f"{took[0]:.2f} s | {took[0] / plain[0]:.2f} | {took[1] / plain[1]:.2f}"


def report(
    folder: str,
    case: tuple[int, int, Any, bool],
    options: Any,
    plain: tuple[float, float],
    expected: Array,
) -> None:
    planes, share, codec, known = case
    # At 100 % there is room for the tiles and for two versions of the one that is written.
    tile = ROWS * SIDE * SIDE * 4
    host = planes * SIDE * SIDE * 4 * share // 100 + (3 * tile if share == 100 else 0)
    shape = (planes, SIDE, SIDE)
    with unspool.tiled(
        shape, "f4", tile=ROWS, host_memory=host, disk=folder, codec=codec, device="cpu"
    ) as field:
        for index, a in field.sweep("w"):
            a[...] = wave(field.slices(index)[0].start, len(a), planes)
        if known:
            field.expect(cycle=range(field.tiles))
        # The first lap is not counted: what it finds is not what a lap leaves.
        tiled_lap(field, options.deep)
        before = field.spool.stats()
        took = timed(lambda: tiled_lap(field, options.deep), options.laps)
        after = field.spool.stats()
        back = after.links[0].prefetch.transfers - before.links[0].prefetch.transfers
        ahead = after.tiers[0].restores - before.tiers[0].restores
        stall = after.restore_stall_seconds + after.save_stall_seconds
        stall -= before.restore_stall_seconds + before.save_stall_seconds
        assert np.array_equal(field[...], expected), "the tiles differ from the plain array"
        print(
            f"| tiled | {share} % | {codec} | {'known' if known else 'by sweep'} | "
            f"{ratios(took, plain)} | {back / options.laps:.1f} of {field.tiles} | "
            f"{ahead / options.laps:.1f} | {stall / options.laps:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
