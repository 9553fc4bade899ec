r"""What learned hints are worth.

The time of the restores of a loop without hints, with `Spool(learn=True)`, and with `expect`, and
of an iteration that restores in another order.

Each iteration saves a history that is larger than the host tier, computes for a while between its
restores, and discards everything. What a restore waits for is the disk. Run it with the package
installed:

    python lab/benches/python/python_learn.py [--folder FOLDER] [--mib 8] [--count 48] \
        [--pause 0.01]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import unspool

#: How much of the history the host tier holds.
SHARE = 0.25


def iterate(
    spool: unspool.Spool, arrays: list[np.ndarray], order: list[int], expected: bool, pause: float
) -> float:
    """One iteration; the seconds in its restores."""
    for version, array in enumerate(arrays):
        spool.save(version, array)
    if expected:
        spool.expect(order, last=True)
    target, waited = np.empty_like(arrays[0]), 0.0
    for version in order:
        end = time.perf_counter() + pause
        while time.perf_counter() < end:
            pass
        begun = time.perf_counter()
        spool.restore(version, target)
        waited += time.perf_counter() - begun
        spool.discard(version)
    return waited


def measure(hints: str, orders: list[list[int]], options: argparse.Namespace) -> list[float]:
    """The seconds of restores in each iteration."""
    items = options.mib * (1 << 17)
    arrays = [np.random.default_rng(n).random(items) for n in range(options.count)]
    host = int(options.count * items * 8 * SHARE)
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        unspool.Spool(host_memory=host, disk=folder, device="cpu", learn=hints == "learn") as spool,
    ):
        return [iterate(spool, arrays, each, hints == "expect", options.pause) for each in orders]


def main() -> None:
    """Prints a line for each kind of hints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the disk tier is")
    parser.add_argument("--mib", type=int, default=8, help="of a checkpoint")
    parser.add_argument("--count", type=int, default=48, help="of checkpoints")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between two restores")
    options = parser.parse_args()
    backwards = list(range(options.count))[::-1]
    shuffled = np.random.default_rng(0).permutation(options.count).tolist()
    orders = [backwards, backwards, backwards, shuffled, shuffled]
    print("ms in restores, by iteration; the fourth one has another order")
    print(f"{'hints':8}" + "".join(f"{n + 1:>9}" for n in range(len(orders))))
    for hints in ("none", "learn", "expect"):
        found = measure(hints, orders, options)
        print(f"{hints:8}" + "".join(f"{seconds * 1e3:9.1f}" for seconds in found))


if __name__ == "__main__":
    main()
