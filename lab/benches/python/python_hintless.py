"""Spools without hints, beside a program with synchronous copies.

Everything is saved, with some computing a step, and restored in one order: both passes are timed.
The program with synchronous copies keeps what fits into as much memory as the host tier has, in
the order of its saves, and reads and writes one file past the page cache for the rest. Sizes and
irregular orders come from a seed.

    python lab/benches/python/python_hintless.py [--folder DIR] [--mib 16] [--count 64]
        [--share 0.5] [--pause 0.005] [--rounds 5] [--iterations 1]
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import unspool

PAGE = 4096


@dataclass(frozen=True)
class Cell:
    """A history: the bytes of each checkpoint, and the order of the restores."""

    sizes: list[int]
    order: list[int]
    host: int


class Copies:
    """Synchronous copies into memory, and into a file for what does not fit there."""

    def __init__(self, cell: Cell, folder: str) -> None:
        begins = np.cumsum([0, *cell.sizes]).tolist()
        self._begins, self._sizes = begins, cell.sizes
        self._held = sum(end <= cell.host for end in begins[1:])
        self._memory = np.empty(begins[self._held], np.uint8)
        self._memory[:] = 0
        self._page = mmap.mmap(-1, max(cell.sizes))
        self._buffer = np.frombuffer(self._page, np.uint8)
        self._buffer[:] = 0
        flags = os.O_CREAT | os.O_RDWR | os.O_DIRECT
        self._file = os.open(os.path.join(folder, "history"), flags, 0o600)

    def save(self, version: int, array: np.ndarray) -> None:
        """Returns when the bytes are in memory or in the file."""
        begin, size = self._begins[version], self._sizes[version]
        if version < self._held:
            self._memory[begin : begin + size] = array
            return
        self._buffer[:size] = array
        self._move(os.pwritev, begin, size)

    def restore(self, version: int, array: np.ndarray) -> None:
        """Returns when the bytes are in the array."""
        begin, size = self._begins[version], self._sizes[version]
        if version < self._held:
            array[:] = self._memory[begin : begin + size]
            return
        self._move(os.preadv, begin, size)
        array[:] = self._buffer[:size]

    def discard(self, version: int) -> None:
        """The next save of the version overwrites it."""

    def moved(self) -> float:
        """Nothing is flushed."""
        return float("nan")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _move(self, call, begin: int, size: int) -> None:
        done, place = 0, begin - self._begins[self._held]
        while done < size:
            with memoryview(self._page)[done:size] as view:
                done += call(self._file, [view], place + done)


class Spooled:
    """A spool with a host tier and a disk."""

    def __init__(self, cell: Cell, folder: str) -> None:
        self._spool = unspool.Spool(host_memory=cell.host, disk=folder, device="cpu")
        self.save, self.restore = self._spool.save, self._spool.restore
        self.discard, self.close = self._spool.discard, self._spool.close

    def moved(self) -> float:
        """GB that were flushed."""
        return sum(link.flush.bytes for link in self._spool.stats().links) / 1e9


def compute(pause: float) -> None:
    end = time.perf_counter() + pause
    while time.perf_counter() < end:
        pass


def run(way: type, cell: Cell, options: argparse.Namespace) -> tuple[list[float], float]:
    """The seconds of each pass, and the GB that were flushed."""
    source = np.random.default_rng(1).integers(0, 256, max(cell.sizes), np.uint8)
    target = np.zeros_like(source)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        history, passes = way(cell, folder), []
        try:
            for _ in range(options.iterations):
                begun = time.perf_counter()
                for version, size in enumerate(cell.sizes):
                    compute(options.pause)
                    source[:8] = version
                    history.save(version, source[:size])
                saved = time.perf_counter()
                for version in cell.order:
                    history.restore(version, target[: cell.sizes[version]])
                    assert target[0] == version, "another checkpoint"
                    compute(options.pause)
                passes += [saved - begun, time.perf_counter() - saved]
                for version in range(len(cell.sizes)):
                    history.discard(version)
            return passes, history.moved()
        finally:
            history.close()


def cells(options: argparse.Namespace) -> dict[tuple[str, str], Cell]:
    random, mean = np.random.default_rng(options.seed), options.mib << 20
    units = random.integers(1, 8, options.count) * (mean // 4)
    sizes = {
        "uniform": [mean] * options.count,
        "variable": (units // PAGE * PAGE).tolist(),
    }
    forwards = list(range(options.count))
    orders = {
        "sequential": forwards,
        "reverse": forwards[::-1],
        "irregular": random.permutation(options.count).tolist(),
    }
    host = int(options.share * options.count * mean)
    return {
        (names, called): Cell(sizes[names], order, host)
        for names in sizes
        for called, order in orders.items()
    }


def main() -> None:
    """Prints a line for each way in each cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the disk tier and the file are")
    parser.add_argument("--mib", type=int, default=16, help="of a checkpoint")
    parser.add_argument("--count", type=int, default=64, help="of checkpoints")
    parser.add_argument("--share", type=float, default=0.5, help="of the history in memory")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds of computing a step")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each cell")
    parser.add_argument("--iterations", type=int, default=1, help="of the loop in each run")
    parser.add_argument("--seed", type=int, default=0, help="of sizes and irregular orders")
    options = parser.parse_args()
    print("seconds of all passes: median, best and worst; of the last two passes; GB flushed")
    for (sizes, order), cell in cells(options).items():
        found = {way: [] for way in (Copies, Spooled)}
        for _ in range(options.rounds):
            for way, runs in found.items():
                runs.append(run(way, cell, options))
        for way, runs in found.items():
            both = sorted(sum(passes) for passes, _ in runs)
            last = [statistics.median(p[at] for p, _ in runs) for at in (-2, -1)]
            moved = statistics.median(moved for _, moved in runs)
            print(
                f"{sizes:9}{order:11}{way.__name__:8}{statistics.median(both):8.2f}{both[0]:8.2f}"
                f"{both[-1]:8.2f}   {last[0]:6.2f}{last[1]:6.2f}{moved:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
