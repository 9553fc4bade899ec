"""Problems whose gradient a codec with a bound changes.

What `unspool.adjoint(check=n)` says of it is compared with the difference of two whole runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import unspool
from unspool.schedules import Schedule


class Checked(NamedTuple):
    """What a run needs."""

    steps: int
    state: Any
    forward: Callable[[Any, int, int], None]
    reverse: Callable[[Any, int], None]
    at_end: Callable[[Any], None]
    adjoint_state: dict[str, Any]

    def run(self, schedule: Schedule, codec: Any, check: int = 0, **options: Any) -> Any:
        """Drives it through a spool with this codec; the report."""
        with unspool.Spool(host_memory="64MiB", device="cpu", codec=codec) as spool:
            options |= {"at_end": self.at_end, "adjoint_state": self.adjoint_state}
            report = unspool.adjoint(
                schedule, spool, self.forward, self.reverse, self.state, check=check, **options
            )
            assert len(spool) == 0 and spool.stats().hints == 0
        return report


def _around(u: Any) -> Any:
    return np.roll(u, -1) - 2 * u + np.roll(u, 1)


def wave(steps: int = 400, cells: int = 400) -> Checked:
    """A wave in one dimension; the gradient by its speed."""
    x = np.linspace(0, 1, cells)
    speed = 0.6 + 0.3 * np.sin(7 * x)
    state = np.tile(np.exp(-(((x - 0.3) / 0.03) ** 2)), (2, 1))
    after, gradient = np.zeros((2, cells)), np.zeros(cells)
    seen = np.exp(-(((x - 0.6) / 0.02) ** 2))

    def forward(levels: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            new = 2 * levels[1] - levels[0] + speed**2 * _around(levels[1])
            levels[0], levels[1] = levels[1], new

    def at_end(levels: Any) -> None:
        after[:], gradient[:] = 0, 0
        after[1] = seen * levels[1]

    def reverse(levels: Any, step: int) -> None:
        old, new = after.copy()
        gradient[:] += 2 * speed * _around(levels[1]) * new
        after[0], after[1] = -new, old + 2 * new + _around(speed**2 * new)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, state, forward, reverse, at_end, held)


def burgers(steps: int = 300, cells: int = 200) -> Checked:
    """A nonlinear transport, whose adjoint depends on the states; the gradient by its viscosity."""
    width = 2 * np.pi / cells
    x, dt, viscosity = np.arange(cells) * width, 0.05 * width, np.full(cells, 0.1)
    state = np.sin(x) + 0.5 * np.cos(2 * x)
    after, gradient = np.zeros(cells), np.zeros(cells)

    def slope(u: Any) -> Any:
        return (np.roll(u, -1) - np.roll(u, 1)) / (2 * width)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u += dt * (viscosity * _around(u) / width**2 - u * slope(u))

    def at_end(u: Any) -> None:
        after[:], gradient[:] = u, 0

    def reverse(u: Any, step: int) -> None:
        now = after.copy()
        gradient[:] += dt * _around(u) / width**2 * now
        spread = _around(viscosity * now) / width**2
        after[:] = now + dt * (spread - slope(u) * now + slope(u * now))

    held = {"gradient": gradient, "after": after}
    return Checked(steps, state, forward, reverse, at_end, held)


def tails(steps: int = 300, cells: int = 400) -> Checked:
    """A pulse that spreads, and an objective that looks at its tails alone.

    What a bound relative to the peak takes away is what the gradient is made of, as in GPUZIP's
    example.
    """
    x = np.linspace(-1, 1, cells)
    state = np.exp(-((x / 0.1) ** 2))
    weight = np.exp((x / 0.15) ** 2).clip(max=1e9) / 1e9
    after, gradient = np.zeros(cells), np.zeros(cells)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u += 0.2 * _around(u)

    def at_end(u: Any) -> None:
        after[:], gradient[:] = weight, 0

    def reverse(u: Any, step: int) -> None:
        gradient[:] += _around(u) * after
        after[:] += _around(0.2 * after)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, state, forward, reverse, at_end, held)
