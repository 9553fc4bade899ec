"""What the driver adds to a program: microseconds an action, against the same calls in a bare loop.

Both sides save and restore the same tiny array the same number of times, so that what is left is
the driver: drawing actions, checking them, hints, clocks. The best of several rounds counts. Run it
with the package installed:

    python lab/benches/python_adjoint.py [--steps 20000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import unspool
from unspool.schedules import Discard, Forward, Restore, Reverse, Revolve, Save, Schedule, StoreAll


def best(action: Callable[[], object], rounds: int = 5) -> float:
    """The shortest time of a call, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def forward(state: np.ndarray, start: int, stop: int) -> None:
    """Takes no time."""


def reverse(state: np.ndarray, step: int) -> None:
    """Takes no time."""


def bare(schedule: Schedule, spool: unspool.Spool, state: np.ndarray) -> None:
    """The same calls without checks, hints and clocks."""
    for action in schedule:
        match action:
            case Forward(start, stop):
                forward(state, start, stop)
            case Save(step):
                spool.save(step, state)
            case Restore(step):
                spool.restore(step, state)
            case Reverse(step):
                reverse(state, step)
            case Discard(step):
                spool.discard(step)


def main() -> None:
    """Prints a line for each schedule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    state = np.zeros(8)
    print(f"{'schedule':34} {'actions':>9} {'bare':>8} {'driver':>8}  microseconds an action")
    with unspool.Spool(host_memory="64MiB") as spool:
        for schedule in (StoreAll(steps), Revolve(steps, 50), Revolve(steps, 5)):
            actions = sum(1 for _ in schedule)
            plain = best(lambda s=schedule: bare(s, spool, state))
            driven = best(lambda s=schedule: unspool.adjoint(s, spool, forward, reverse, state))
            per_action = [seconds / actions * 1e6 for seconds in (plain, driven)]
            print(f"{schedule!r:34} {actions:9,} {per_action[0]:8.2f} {per_action[1]:8.2f}")


if __name__ == "__main__":
    main()
