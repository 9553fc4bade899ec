r"""What the kernel's own swap costs for the programs of `python_paging.py`, beside plain memory.

    sudo python lab/benches/python/python_paging_kernel.py [--mib 48] [--swap zram ...] \
        [--only cg ...]

Each program runs in its own process, in a cgroup with a memory limit: 75, 50 or 25 % of the size of
its array, plus the memory that it uses apart from the array, which a run without a limit measures.
The rest goes to a swap of this script, which is removed in the end: `zram` in compressed memory,
`disk` in a file in `--folder`, `zswap` in compressed memory before that file. Other programs of the
machine may use the swap meanwhile. Needs root, a memory cgroup (version 1 or 2), and a kernel that
has these; a cell says what is not there. A run above `--limit` seconds is ended.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from python_paging import SHARES, keep_temporaries
from unspool_studies.paging.programs import PROGRAMS, timed

ZSWAP = Path("/sys/module/zswap/parameters/enabled")
ZRAM = Path("/sys/class/zram-control")


class Missing(Exception):
    """Something that this machine has not."""


class Group:
    """A memory cgroup of the script."""

    def __init__(self) -> None:
        first = Path("/sys/fs/cgroup/memory")
        self._old = first.is_dir()
        self.path = (first if self._old else Path("/sys/fs/cgroup")) / "unspool-paging"

    def __enter__(self) -> Group:
        try:
            self.path.mkdir()
        except OSError as wrong:
            raise Missing(f"no memory cgroup: {wrong}") from None
        return self

    def __exit__(self, *raised: object) -> None:
        self.path.rmdir()

    def limit(self, size: int | None) -> None:
        """Sets the limit, or takes it away."""
        name = "memory.limit_in_bytes" if self._old else "memory.max"
        none = "-1" if self._old else "max"
        (self.path / name).write_text(none if size is None else str(size))

    def peak(self) -> int:
        """The most bytes that its processes had."""
        name = "memory.max_usage_in_bytes" if self._old else "memory.peak"
        return int((self.path / name).read_text())


@contextlib.contextmanager
def swap_on(device: str) -> Iterator[None]:
    """A swap area on a block device or a file, before all others."""
    call("mkswap", device)
    call("swapon", "--priority", "100", device)
    try:
        yield
    finally:
        call("swapoff", device)


@contextlib.contextmanager
def zram(size: int, _folder: str) -> Iterator[None]:
    """A swap in compressed memory."""
    if not (ZRAM / "hot_add").exists():
        raise Missing("the kernel has no zram")
    number = (ZRAM / "hot_add").read_text().strip()
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text(str(size))
        with swap_on(f"/dev/zram{number}"):
            yield
    finally:
        (ZRAM / "hot_remove").write_text(number)


@contextlib.contextmanager
def disk(size: int, folder: str) -> Iterator[None]:
    """A swap in a file."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with swap_on(file.name):
            yield


@contextlib.contextmanager
def zswap(size: int, folder: str) -> Iterator[None]:
    """A swap in a file, before which the kernel keeps pages compressed in memory."""
    if not ZSWAP.exists():
        raise Missing("the kernel has no zswap")
    before = ZSWAP.read_text().strip()
    with disk(size, folder):
        ZSWAP.write_text("Y")
        try:
            yield
        finally:
            ZSWAP.write_text(before)


SWAPS = {"zram": zram, "zswap": zswap, "disk": disk}


def call(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as wrong:
        raise Missing(f"{command[0]} failed: {wrong}") from None


def child(name: str, mib: int, rounds: int, group: Path) -> None:
    """Runs a program in the cgroup and prints what came of it."""
    program = PROGRAMS[name](mib)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    array = np.zeros(program.shape, program.dtype)
    program.fill(array)
    took, work, result = timed(program, array, rounds)
    print(json.dumps({"took": took, "work": work, "result": result, "whole": program.nbytes}))


def measure(name: str, options: argparse.Namespace, group: Group) -> dict[str, Any] | str:
    """The result of a program that ran in its own process, or the reason why it has none."""
    child = ["--child", name, "--mib", options.mib, "--rounds", options.rounds]
    command = [sys.executable, __file__, *map(str, child), "--group", str(group.path)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=options.limit, text=True)
    except subprocess.TimeoutExpired:
        return f"above {options.limit:.0f} s"
    if done.returncode == -signal.SIGKILL:
        return "out of memory"
    done.check_returncode()
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def compare(swap: str, name: str, options: argparse.Namespace) -> None:
    with Group() as group:
        plain = measure(name, options, group)
        if isinstance(plain, str):
            print(f"| {name} | plain | {swap} | {plain} | | |", flush=True)
            return
        overhead = group.peak() - plain["whole"]
    print(f"| {name} | plain | | {plain['took']:.2f} s | 1.00 | 1.00 |", flush=True)
    for share in SHARES[1:]:
        with Group() as group:
            group.limit(overhead + plain["whole"] * share // 100)
            found = measure(name, options, group)
        if isinstance(found, str):
            cells = f"{found} | |"
        else:
            assert found["result"] == plain["result"], f"{name}: another result"
            cells = f"{found['took']:.2f} s | {found['took'] / plain['took']:.2f} | "
            cells += f"{found['work'] / plain['work']:.2f}"
        print(f"| {name} | {share} % | {swap} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=48, help="MiB of the array")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--swap", nargs="+", choices=SWAPS, default=list(SWAPS))
    parser.add_argument("--folder", default=None, help="where a file for swap is made")
    parser.add_argument("--limit", type=float, default=60, help="seconds that a run may take")
    parser.add_argument("--child", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.mib, options.rounds, options.group)
        return
    keep_temporaries()
    # Whoever ends the script gets the swap taken away as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("| program | in memory | swap | time | to plain | cpu |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for swap in options.swap:
        try:
            with SWAPS[swap](2 * options.mib * 2**20, options.folder or tempfile.gettempdir()):
                for name in options.only:
                    compare(swap, name, options)
        except (Missing, OSError) as wrong:
            print(f"| all | | {swap} | {wrong} | | |", flush=True)


if __name__ == "__main__":
    main()
