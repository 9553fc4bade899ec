"""Whether `unspool.Gradient` keeps what it promises, and in how many bytes.

For each problem and target: the true error of a second gradient as a part of the target, the bytes
of its states beside lossless ones and beside those of one fixed bound. That bound is the largest of
1e-1, 1e-2, ... of the range with which all problems that are not refused hold their target. Run it
in the repository with the package installed:

    python lab/benches/python/python_gradient.py [--targets 1e-2 1e-4 1e-6] [--revolve]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import unspool
from unspool.schedules import Revolve, StoreAll

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "python"))

from gradient_problems import PROBLEMS

SLOTS = 12


class Ran(NamedTuple):
    """One gradient."""

    gradient: np.ndarray
    report: Any
    stored: int
    seconds: float


def run(make: Any, codec: Any, revolve: bool) -> Ran:
    """The gradient of a problem with a codec."""
    one = make()
    schedule = Revolve(one.steps, SLOTS) if revolve else StoreAll(one.steps)
    begun = time.perf_counter()
    with unspool.Spool(host_memory="1GiB", device="cpu") as spool:
        report = unspool.adjoint(
            schedule,
            spool,
            one.forward,
            one.reverse,
            one.state,
            at_end=one.at_end,
            adjoint_state=one.adjoint_state,
            access=unspool.types.Access(codec=codec),
        )
        stored = spool.stats().codec.stored_bytes
    seconds = time.perf_counter() - begun
    return Ran(one.adjoint_state["gradient"].copy(), report, stored, seconds)


def apart(one: Ran, exact: Ran) -> float:
    """The error of a gradient."""
    return float(np.linalg.norm(one.gradient - exact.gradient) / np.linalg.norm(exact.gradient))


def main() -> None:
    """Prints a table for each target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4, 1e-6])
    parser.add_argument("--revolve", action="store_true", help=f"Revolve with {SLOTS} slots")
    parser.add_argument("--only", nargs="+", default=list(PROBLEMS))
    options = parser.parse_args()
    warnings.simplefilter("ignore", unspool.types.FidelityWarning)
    exacts = {name: run(PROBLEMS[name], "lossless", options.revolve) for name in options.only}
    fixed = {name: [] for name in options.only}
    for name, each in fixed.items():
        for decades in range(1, 15):
            bound = unspool.Bound(range=10.0**-decades)
            each.append(run(PROBLEMS[name], bound, options.revolve))
    for target in options.targets:
        table(target, exacts, fixed, options.revolve)


def table(target: float, exacts: dict[str, Ran], fixed: dict[str, list[Ran]], rev: bool) -> None:
    """The lines of one target."""
    found = {}
    for name, exact in exacts.items():
        order = unspool.Gradient(target, of="gradient")
        first = run(PROBLEMS[name], order, rev)
        found[name] = order, first, run(PROBLEMS[name], order, rev), exact
    kept = [name for name, (order, *_) in found.items() if order.learned and order.learned.bounds]
    safe = next(
        (n for n in range(14) if all(apart(fixed[k][n], exacts[k]) <= target for k in kept)), None
    )
    print(
        f"\ntarget {target:g}, fixed bound {'lossless' if safe is None else f'range=1e-{safe + 1}'}"
    )
    print(
        "| problem | bound | error / target | of lossless | of the fixed bound | trials | first |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    shares = []
    for name, (order, first, second, exact) in found.items():
        if name not in kept:
            why = order.learned.why if order.learned else "no bound"
            print(f"| {name} | refused: {why[:60]} | | | | | |")
            continue
        bound = order.learned.bounds[0][1]
        off = apart(second, exact) / target
        # Where no bound is safe for all, they would have to be lossless.
        beside = exact if safe is None else fixed[name][safe]
        shares.append(second.stored / beside.stored)
        print(
            f"| {name} | {bound.kind}={bound.value:.1e} | {off:.2f} "
            f"| {second.stored / exact.stored:.3f} | {shares[-1]:.2f} "
            f"| {first.report.fidelity.trials} | {first.seconds / exact.seconds:.1f} |",
            flush=True,
        )
    if shares:
        print(f"median of the fixed bound: {statistics.median(shares):.2f}")


if __name__ == "__main__":
    main()
