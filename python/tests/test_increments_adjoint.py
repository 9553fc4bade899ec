"""The adjoint driver on histories of increments: the states and gradients of full frames."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import pytest
from adjoints import Problem, reference, same_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from random_schedules import random_schedule
from unspool import Bound, IncrementalSpool, Spool
from unspool.schedules import (
    Listed,
    MultiLevel,
    OnlineRevolve,
    Revolve,
    Schedule,
    StoreAll,
    Uniform,
    ZCut,
)

N = 40
BOUND = 1e-6
STEP = 2 * (BOUND * (1 - 2.0**-48))
SCHEDULES = [
    StoreAll(N),
    Revolve(N, 4),
    Uniform(N, 4),
    ZCut(N, length=7),
    OnlineRevolve(4),
    MultiLevel(N, device=2, host=4, write_seconds={"host": 2.0}),
]


class Rounded:
    """A spool that keeps multiples of the step, each state in full."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def save(self, version: int, *arrays: np.ndarray, **options: Any) -> None:
        self.spool.save(version, *(np.rint(a * (1 / STEP)) * STEP for a in arrays), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spool, name)


def rounded(schedule: Schedule, part: bool = False) -> Problem:
    """The problem after an adjoint with states in full."""
    problem = Problem(N)
    with Spool(device_memory="1MiB", host_memory="4MiB", device="cpu") as spool:
        problem.run(schedule, Rounded(spool), part)
    return problem


def incremental(schedule: Schedule, part: bool = False, every: int = 16) -> Problem:
    """The problem after an adjoint with increments, which leaves nothing in the spool."""
    problem = Problem(N)
    with Spool(device_memory="1MiB", host_memory="4MiB", device="cpu") as spool:
        history = IncrementalSpool(spool, Bound(abs=BOUND), full=every)
        problem.run(schedule, history, part)
        assert len(history) == len(spool) == 0
        assert spool.stats().hints == 0
    return problem


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("every", [1, 5, 100])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_gradients_have_the_bits_of_those_of_states_in_full(
    schedule: Schedule, every: int, part: bool
) -> None:
    found = incremental(schedule, part, every)
    assert same_gradient(found, rounded(schedule, part))
    # Errors of 1e-6 in states of about 1 make errors of that size, and none would be a surprise.
    exact = reference(N).gradient[0]
    error = np.abs(found.gradient[0] - exact).max() / np.abs(exact).max()
    assert 0 < error < 1e-4


@given(st.integers(0, 1 << 32), st.integers(1, 20))
@settings(deadline=None, max_examples=40)
def test_schedules_made_by_chance_give_the_gradients_of_states_in_full(
    seed: int, every: int
) -> None:
    schedule = Listed(random_schedule(N, seed))
    assert same_gradient(incremental(schedule, every=every), rounded(schedule))


def test_states_that_are_checked_are_kept_without_loss() -> None:
    problem = Problem(N)
    problem.known = N
    gradient = [np.zeros_like(problem.u), np.zeros_like(problem.u)]

    def at_end(state: Any) -> None:
        problem.at_end(state)
        gradient[0][:], gradient[1][:] = problem.gradient

    def reverse(state: Any, step: int) -> None:
        problem.gradient = tuple(gradient)
        problem.reverse(state, step)
        gradient[0][:], gradient[1][:] = problem.gradient

    with Spool(host_memory="16MiB", device="cpu") as spool:
        history = IncrementalSpool(spool, Bound(abs=1e-3))
        state, options = (problem.u, problem.forcing), {"adjoint_state": gradient, "check": 6}
        forward = problem.forward
        report = flat.adjoint(
            Revolve(N, 6), history, forward, reverse, state, at_end=at_end, **options
        )
        assert len(spool) == 0
    assert any(effect.estimate > 0 for effect in report.fidelity.arrays.values())
