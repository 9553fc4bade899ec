"""How far `unspool.adjoint(check=n)` is from the truth.

The effect of a bound on the gradient, as it is estimated from n exact states, beside the difference
of two whole runs.

The problems are those of the tests: a wave, a nonlinear transport, and one whose gradient is made
of what a bound takes away. Run it in the repository with the package installed:

    python lab/benches/python/python_fidelity.py [--check 4 16 40]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import unspool
from unspool.schedules import Revolve, StoreAll

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "python"))

from checked_problems import burgers, tails, wave

SCHEDULES = {"StoreAll": StoreAll, "Revolve, 8": lambda steps: Revolve(steps, 8)}


def main() -> None:
    """Prints a line for each problem, schedule, bound and number of states."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=int, nargs="+", default=[4, 16, 40])
    counts = parser.parse_args().check
    warnings.simplefilter("ignore", unspool.types.FidelityWarning)
    print(
        f"{'problem':9}{'schedule':12}{'bound':>9}{'true':>9}  estimate / true (worst), by states"
    )
    for make in (wave, burgers, tails):
        for name, schedule in SCHEDULES.items():
            exact = make()
            exact.run(schedule(exact.steps), None)
            for bound in (1e-3, 1e-5):
                line = f"{make.__name__:9}{name:12}{bound:9.0e}"
                for count in [0, *counts]:
                    one = make()
                    codec = unspool.Bound(range=bound)
                    report = one.run(schedule(one.steps), codec, check=count)
                    lossy, right = (each.adjoint_state["gradient"] for each in (one, exact))
                    true = np.linalg.norm(lossy - right) / np.linalg.norm(lossy)
                    if report.fidelity is None:
                        line += f"{true:9.1e}  "
                        continue
                    effect = report.fidelity.arrays["gradient"]
                    ratios = (effect.estimate / true, effect.worst / true)
                    line += f"{count:4}: {ratios[0]:5.2f} ({ratios[1]:6.2f})"
                print(line)


if __name__ == "__main__":
    main()
