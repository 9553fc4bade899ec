"""A nonlinear problem and its adjoint to be driven: the gradient is that of any schedule."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import unspool
from unspool.schedules import Schedule, Stop, StoreAll

DT = 0.1


def advanced(u: Any) -> Any:
    """One step of a reaction and diffusion on a ring."""
    return u + DT * (u.take(RING[0]) + u.take(RING[1]) - 2 * u - u**3)


def transposed(u: Any, v: Any) -> Any:
    """The transpose of that step at the state u, applied to v."""
    return v + DT * (v.take(RING[0]) + v.take(RING[1]) - 2 * v - 3 * u**2 * v)


SIZE = 256
RING = np.roll(np.arange(SIZE), 1), np.roll(np.arange(SIZE), -1)


class Problem:
    """The sum of squares of the last state, differentiated by the first one.

    `state` has what the steps need besides `u`: a second array that only they read.
    """

    def __init__(self, steps: int, seed: int = 1) -> None:
        self.steps = steps
        self.u = np.random.default_rng(seed).normal(size=SIZE)
        self.start = self.u.copy()
        self.forcing = np.zeros(SIZE)
        self.gradient: Any = None
        self.objective: float | None = None
        self.calls: list[tuple[int, int]] = []

    def advance(self, start: int, stop: int) -> None:
        """Takes the steps in place; the forcing is part of what they carry on."""
        self.calls.append((start, stop))
        for _ in range(start, stop):
            self.u[:] = advanced(self.u) + self.forcing
            self.forcing[:] = 1e-3 * self.u

    def forward(self, state: Any, start: int, stop: int) -> Stop | None:
        """For a schedule that knows the number of steps, and for one that does not."""
        end = min(stop, self.steps)
        self.advance(start, end)
        return Stop(end) if self.known is None and end == self.steps else None

    def at_end(self, state: Any) -> None:
        """The objective, and where the adjoint begins."""
        self.objective = float(np.sum(self.u**2) / 2)
        self.gradient = (self.u.copy(), np.zeros(SIZE))

    def reverse(self, state: Any, step: int) -> None:
        """The transpose of one step, which reads `u` alone."""
        by_u, by_forcing = self.gradient
        by_u = by_u + 1e-3 * by_forcing
        self.gradient = transposed(self.u, by_u), by_u

    def run(self, schedule: Schedule, spool: Any, part: bool = False, **options: Any) -> Any:
        """Drives it; the report."""
        self.known = unspool.schedules.as_schedule(schedule).steps
        options.setdefault("at_end", self.at_end)
        if part:
            options["for_reverse"] = self.u
        state = (self.u, self.forcing)
        return flat.adjoint(schedule, spool, self.forward, self.reverse, state, **options)


def reference(steps: int) -> Problem:
    """The problem after an adjoint that stores everything in plain memory."""
    problem = Problem(steps)
    with unspool.Spool(host_memory="16MiB", device="cpu") as spool:
        problem.run(StoreAll(steps), spool)
    return problem


def same_gradient(one: Problem, other: Problem) -> bool:
    """Whether gradients and objectives have the same bits."""
    pairs = zip(one.gradient, other.gradient, strict=True)
    return one.objective == other.objective and all(a.tobytes() == b.tobytes() for a, b in pairs)


def finite_difference(problem: Problem, by: np.ndarray, width: float = 1e-6) -> float:
    """The change of the objective along a direction, without the adjoint."""

    def objective(u: np.ndarray) -> float:
        forcing = np.zeros(SIZE)
        for _ in range(problem.steps):
            u = advanced(u) + forcing
            forcing = 1e-3 * u
        return float(np.sum(u**2) / 2)

    ahead, back = objective(problem.start + width * by), objective(problem.start - width * by)
    return (ahead - back) / (2 * width)
