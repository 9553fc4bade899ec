"""What a call costs from Python: microseconds a call, and GB/s against a plain NumPy copy.

All rates of a size are measured in turns in the same run, so that what else the machine does
falls on all of them alike; the best of several rounds counts. Run it with the package installed:

    python lab/benches/python_calls.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import unspool

Action = Callable[[], object]


def microseconds(action: Action, calls: int, rounds: int) -> tuple[float, float]:
    """The best and the median time of a call, over rounds of many calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            action()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return min(times), statistics.median(times)


def trivial_calls(quick: bool) -> None:
    calls, rounds = (500, 5) if quick else (2_000, 15)
    state, other = np.zeros(8), np.zeros(8)
    with unspool.Spool(host_memory="64MiB") as spool:
        spool.save(-1, state)
        spool.save(-2, u=state, v=state)
        version = 0

        def save() -> None:
            nonlocal version
            spool.save(version, state)
            version += 1

        def save_and_discard() -> None:
            spool.save(-3, state)
            spool.discard(-3)

        def expect_and_forget() -> None:
            spool.expect([-1])
            spool.forget_hints()

        actions: dict[str, Action] = {
            "save 8 doubles": save,
            "restore 8 doubles": lambda: spool.restore(-1, state),
            "restore 2 x 8 doubles by name": lambda: spool.restore(-2, u=state, v=other),
            "save and discard 8 doubles": save_and_discard,
            "expect and forget a version": expect_and_forget,
            "version in spool": lambda: -1 in spool,
            "load 8 doubles": lambda: spool.load(-1),
            "regions": lambda: spool.regions(-1),
            "stats": spool.stats,
        }
        print(f"{'call':32}{'best':>8}{'median':>8}  microseconds")
        for name, action in actions.items():
            best, median = microseconds(action, calls, rounds)
            print(f"{name:32}{best:8.2f}{median:8.2f}")


def best_rates(actions: dict[str, Action], count: int, rounds: int) -> dict[str, float]:
    """The best GB/s of each action that moves `count` bytes, measured in turns."""
    best = dict.fromkeys(actions, 0.0)
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            best[name] = max(best[name], count / (time.perf_counter() - start) / 1e9)
    return best


def contiguous(sizes: list[int], rounds: int) -> None:
    print(f"\n{'contiguous':>12}{'numpy copy':>12}{'save':>8}{'restore':>9}{'load':>8}  GB/s")
    for size in sizes:
        state = np.random.default_rng(0).standard_normal(size // 8)
        target = np.empty_like(state)
        with unspool.Spool(host_memory=4 * size + (1 << 20)) as spool:
            spool.save(0, state)
            warm_up(spool, state)

            def save(spool: unspool.Spool = spool, state: np.ndarray = state) -> None:
                spool.save(1, state)

            def copy(target: np.ndarray = target, state: np.ndarray = state) -> None:
                np.copyto(target, state)

            best = dict.fromkeys(("copy", "save", "restore", "load"), 0.0)
            for _ in range(rounds):
                actions: dict[str, Action] = {
                    "copy": copy,
                    "save": save,
                    "restore": lambda s=spool, t=target: s.restore(0, t),
                    "load": lambda s=spool: s.load(0),
                }
                for name, rate in best_rates(actions, size, 1).items():
                    best[name] = max(best[name], rate)
                spool.discard(1)
        rates = f"{best['copy']:12.2f}{best['save']:8.2f}{best['restore']:9.2f}{best['load']:8.2f}"
        print(f"{size / (1 << 20):8.2f} MiB{rates}")


def warm_up(spool: unspool.Spool, state: np.ndarray) -> None:
    """Touches the arena's memory, as every history that wraps around it has."""
    for version in (1, 2):
        spool.save(version, state)
    for version in (1, 2):
        spool.discard(version)


def layouts(side: int) -> dict[str, np.ndarray]:
    """Views of about `side` x `side` items in layouts that are not C-contiguous."""

    def filled(*shape: int, dtype: str = "f4") -> np.ndarray:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.random.default_rng(0).integers(0, 256, count, "u1").view(dtype).reshape(shape)

    wide = filled(2 * side, 2 * side)
    return {
        "inside of a padded field": wide[8 : 8 + side, 8 : 8 + side],
        "every other item": wide[:side, ::2],
        "every other item, both axes": wide[::2, ::2],
        "reversed": wide[:side, :side][::-1, ::-1],
        "Fortran order": filled(side, side).T,
        "Fortran order, odd lengths": filled(side + 1, side - 1).T,
        "Fortran order, bytes": filled(side, 4 * side, dtype="u1").T,
        "Fortran order, doubles": filled(side, side // 2, dtype="f8").T,
        "Fortran order, complex doubles": filled(side // 2, side // 2, dtype="c16").T,
        "5-d, axes reversed": filled(side // 64, 8, 8, 8, side // 8).T,
    }


def strided(side: int, rounds: int) -> None:
    print(f"\n{'layout':30}{'to dense':>9}{'save':>8}{'from dense':>12}{'restore':>9}  GB/s")
    for name, view in layouts(side).items():
        dense = np.empty(view.shape, view.dtype)
        with unspool.Spool(host_memory=4 * dense.nbytes + (1 << 20)) as spool:
            spool.save(0, view)
            warm_up(spool, view)
            actions: dict[str, Action] = {
                "to": lambda d=dense, v=view: np.copyto(d, v),
                "save": lambda s=spool, v=view: s.save(1, v),
                "from": lambda d=dense, v=view: np.copyto(v, d),
                "restore": lambda s=spool, v=view: s.restore(0, v),
            }
            best = dict.fromkeys(actions, 0.0)
            for _ in range(rounds):
                for action, rate in best_rates(actions, dense.nbytes, 1).items():
                    best[action] = max(best[action], rate)
                spool.discard(1)
        print(
            f"{name:30}{best['to']:9.2f}{best['save']:8.2f}{best['from']:12.2f}"
            f"{best['restore']:9.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds")
    quick = parser.parse_args().quick
    trivial_calls(quick)
    largest = 26 if quick else 28
    contiguous([1 << power for power in range(16, largest + 1, 2)], 5 if quick else 15)
    strided(512 if quick else 2048, 5 if quick else 11)


if __name__ == "__main__":
    main()
