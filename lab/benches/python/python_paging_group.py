r"""Ways to an array larger than a cgroup, side by side: time, and the peak by the kernel's count.

    sudo python lab/benches/python/python_paging_group.py [--mib 128] [--shares 50 25] \
        [--ways memmap paged tiled zram zswap disk] [--folder DIR] [--laps 4] [--digits 3]

An array of numbers that repeat (`repeats`) or do not get smaller (`random`) is filled, and then
gone through lap by lap, each plane being summed (`read`) or negated before (`update`). Each way
runs in a process of its own, in a memory cgroup with as much memory as the process takes besides
the array and so much of the array. `memmap` and `disk` have their file in `--folder`, which is to
be on a disk; `paged` and `tiled` have the order, and go to the same folder where encoded bytes do
not fit. What zram and zswap take is memory of the kernel, which no cgroup of version 1 counts.
Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import unspool
from python_paging_kernel import SWAPS, Group, Missing

PLANE = 1 << 20
#: Bytes that paging, and a spool of tiles, needs beside the array, for its threads.
THREADS = {"paged": 24 << 20, "tiled": 64 << 20}
DATA = ("repeats", "random")


def plane_of(data: str, z: int, digits: int) -> np.ndarray[Any, Any]:
    """The numbers of a plane: float64, a sine rounded to some digits, or random ones."""
    count = PLANE // 8
    if data == "random":
        return np.random.default_rng(z).random(count)
    return np.round(np.sin(np.arange(count) * 1e-3 + z), digits)


class Planes:
    """An array that NumPy indexes: plain, of a file, or paged."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def fill(self, data: str, digits: int) -> None:
        """Writes all of it."""
        for z in range(len(self.array)):
            self.array[z] = plane_of(data, z, digits)

    def lap(self, update: bool) -> float:
        """Goes through all of it; gives the sum."""
        total = 0.0
        for plane in self.array:
            if update:
                plane *= -1
            total += float(plane.sum())
        return total


class Tiles(Planes):
    """An array of tiles."""

    def fill(self, data: str, digits: int) -> None:
        """Writes all of it."""
        for i, tile in self.array.sweep("w"):
            for row, z in enumerate(range(self.array.shape[0])[self.array.slices(i)[0]]):
                tile[row] = plane_of(data, z, digits)

    def lap(self, update: bool) -> float:
        """Goes through all of it; gives the sum."""
        total = 0.0
        for _, tile in self.array.sweep("rw" if update else "r"):
            for plane in tile:
                if update:
                    plane *= -1
                total += float(plane.sum())
        return total


def factor(data: str, digits: int) -> float:
    """How many times smaller a plane gets, by the codec of paging or that of tiles."""
    plane = plane_of(data, 1, digits)
    by = [unspool.codecs.encode(plane, "lossless"), unspool.codecs.encode(plane, None, outer="lz4")]
    return max(plane.nbytes / made.nbytes for made in by)


def opened(way: str, smaller: float, shape: tuple[int, int], room: int, folder: str) -> Planes:
    """The array, with `room` bytes of memory; its planes compress `smaller` times."""
    whole = 8 * shape[0] * shape[1]
    if way == "memmap":
        return Planes(np.memmap(Path(folder) / "array", np.float64, "w+", shape=shape))
    if way == "paged":
        room -= THREADS["paged"]
        resident = (room - whole / smaller) / (1 - 1 / smaller) if smaller > 1 else 0
        if resident > whole / 16:
            return Planes(unspool.paged(shape, np.float64, int(resident), order="sweep"))
        kept = {"host_memory": 0, "disk": folder, "codec": None}
        return Planes(unspool.paged(shape, np.float64, room, order="sweep", **kept))
    if way == "tiled":
        field = unspool.tiled(
            shape, tile=2, host_memory=max(room - THREADS["tiled"], 16 << 20), disk=folder
        )
        field.expect(cycle=range(field.tiles))
        return Tiles(field)
    return Planes(np.zeros(shape))


def child(options: argparse.Namespace) -> None:
    """Runs in the cgroup and prints what came of it."""
    way, data, work = options.child
    (options.group / "cgroup.procs").write_text(str(os.getpid()))
    shape = (options.mib * 2**20 // PLANE, PLANE // 8)
    room = options.room or 8 * shape[0] * shape[1]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        planes = opened(way, factor(data, options.digits), shape, room, folder)
        planes.fill(data, options.digits)
        begin = time.perf_counter()
        results = [planes.lap(work == "update") for _ in range(options.laps)]
        took = (time.perf_counter() - begin) / options.laps
        if way == "tiled":
            planes.array.close()
        print(json.dumps({"took": took, "result": results[-1]}), flush=True)


def measure(case: list[str], room: int, options: argparse.Namespace, group: Group) -> Any:
    """What a way did in a process of its own, or the reason why it did nothing."""
    command = [sys.executable, __file__, "--child", *case, "--group", str(group.path)]
    for name in ("mib", "laps", "digits", "folder"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--room", str(room)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=options.limit, text=True)
    except subprocess.TimeoutExpired:
        return f"above {options.limit:.0f} s"
    if done.returncode == -signal.SIGKILL:
        return "out of memory"
    return json.loads(done.stdout) if done.returncode == 0 else f"failed: {done.returncode}"


def compare(data: str, work: str, options: argparse.Namespace) -> None:
    whole = options.mib << 20
    with Group() as group:
        plain = measure(["plain", data, work], 0, options, group)
        beside = group.peak() - whole
    print(f"| {data}, {work} | 100 % | plain | {plain['took']:.3f} s | {whole + beside >> 20} |")
    for share in options.shares:
        room = whole * share // 100
        for way in options.ways:
            size = (2 * whole, options.folder)
            with SWAPS[way](*size) if way in SWAPS else contextlib.nullcontext(), Group() as group:
                group.limit(room + beside)
                found = measure([way, data, work], room, options, group)
                peak = group.peak() >> 20
            same = isinstance(found, str) or found["result"] == plain["result"]
            assert same, f"{way}: {found} is not {plain}"
            cell = found if isinstance(found, str) else f"{found['took']:.3f} s"
            print(f"| {data}, {work} | {share} % | {way} | {cell} | {peak} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128, help="MiB of the array")
    parser.add_argument("--laps", type=int, default=4)
    parser.add_argument("--digits", type=int, default=3, help="of values that repeat")
    parser.add_argument("--shares", nargs="+", type=int, default=[50, 25])
    ways = ["memmap", "paged", "tiled", *SWAPS]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on a disk")
    parser.add_argument("--limit", type=float, default=60, help="seconds that a run may take")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--room", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    # Whoever ends the script gets the swap taken away as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for data in options.data:
        print(f"{data}: {factor(data, options.digits):.1f} times smaller\n")
        print(
            "| data, laps | in memory | way | a lap | peak, MiB |\n| --- | --- | --- | --- | --- |"
        )
        for work in ("read", "update"):
            try:
                compare(data, work, options)
            except (Missing, OSError) as wrong:
                print(f"| {data}, {work} | | | {wrong} | |", flush=True)


if __name__ == "__main__":
    main()
