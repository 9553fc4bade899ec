"""What `unspool.IncrementalSpool` stores of a history, beside a spool with the same bound.

    python lab/benches/python/python_histories.py [--only NAME] [--states 48] [--every 16]

Each history is saved state by state and restored in reverse order, into memory. The bound is 1e-4
of the range of the first state. Bytes are percent of those of the arrays, all states together:
`plain` is `Spool(codec=Bound(abs=...))`, `increments` that history with one state in `every` stored
in full. Times are medians over the states, in milliseconds; `discarding` is a restore and the
discard after it, as `unspool.adjoint` does them, the others leave all states in place.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter as clock
from typing import Any

import numpy as np
import unspool
from python_deltas import late, phase_field, propagators, wave
from python_increments import State

HISTORIES: dict[str, Callable[[int], Iterator[State]]] = {
    "phase field, mixed": lambda _: phase_field(1, 10),
    "phase field, phases apart": lambda _: phase_field(1, 180),
    "the same, every tenth step": lambda _: phase_field(10, 180),
    "the same in float32, every step": lambda _: phase_field(1, 180, "float32"),
    "quantum control, 1,000 steps": lambda _: propagators(1000),
    "wave, late, every step": lambda _: late(wave(1), 900),
    "wave, late, every tenth step": lambda _: late(wave(10), 90),
}


def changing(states: Iterator[State], count: int) -> list[State]:
    """The first states, with the arrays that change."""
    taken = [
        {name: array.copy() for name, array in one.items() if array.dtype.kind == "f"}
        for one in itertools.islice(states, count)
    ]
    names = [name for name in taken[0] if (taken[0][name] != taken[-1][name]).any()]
    return [{name: one[name] for name in names} for one in taken]


def measure(states: list[State], history: Any) -> tuple[float, list[float]]:
    """The stored share of the bytes, and the times to save, to restore, and with discards."""
    times: list[list[float]] = [[], [], []]

    def timed(row: list[float], call: Callable[[], None]) -> None:
        begun = clock()
        call()
        row.append(1e3 * (clock() - begun))

    target = {name: np.empty_like(array) for name, array in states[0].items()}
    for version, state in enumerate(states):
        timed(times[0], lambda: history.save(version, **state))  # noqa: B023
    history.flush()
    codec = history.stats().codec
    share = 100 * codec.stored_bytes / (len(states) * sum(a.nbytes for a in states[0].values()))
    for version in reversed(range(len(states))):
        timed(times[1], lambda: history.restore(version, **target))  # noqa: B023

    def last(version: int) -> None:
        history.restore(version, **target)
        history.discard(version)

    for version in reversed(range(len(states))):
        timed(times[2], lambda: last(version))  # noqa: B023
    return share, [statistics.median(row) for row in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--states", type=int, default=48)
    parser.add_argument("--every", type=int, default=16)
    options = parser.parse_args()
    kinds = [f"{what}: {kind}" for what in ("save", "restore", "discarding") for kind in "pi"]
    print("| history | MiB | plain % | increments % | " + " | ".join(kinds) + " |")
    print("| --- |" + " ---: |" * (3 + len(kinds)))
    for name, make in HISTORIES.items():
        if options.only not in name:
            continue
        states = changing(make(options.states), options.states)
        spans = {key: float(np.ptp(array)) for key, array in states[0].items()}
        bounds = {key: unspool.Bound(abs=1e-4 * span) for key, span in spans.items()}
        size = sum(array.nbytes for array in states[0].values())
        room = max(64 << 20, 2 * size * options.states)
        with unspool.Spool(host_memory=room, codec=bounds, device="cpu") as spool:
            plain, first = measure(states, spool)
        opened = unspool.Spool(host_memory=room, device="cpu")
        with unspool.IncrementalSpool(opened, bounds, full=options.every) as spool:
            small, second = measure(states, spool)
        pairs = itertools.chain.from_iterable(zip(first, second, strict=True))
        cells = [f"{size / (1 << 20):.1f}", f"{plain:.1f}", f"{small:.1f}"]
        cells += [f"{one:.1f}" for one in pairs]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
