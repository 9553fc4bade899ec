"""The adjoint driver with arrays of JAX, which never change: the state is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import unspool
from unspool.schedules import Auto, OnlineRevolve, Revolve, Schedule, Stop, StoreAll, ZCut

from helpers import gpu_library

jax = gpu_library("jax")
jnp = jax.numpy

N = 17


@pytest.fixture(autouse=True)
def wide_dtypes() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


class Fields(NamedTuple):
    """What a step carries on."""

    u: Any
    forcing: Any


@jax.jit
def advanced(state: Fields) -> Fields:
    """One step."""
    u = state.u + 0.1 * (jnp.roll(state.u, 1) - state.u - state.u**3) + state.forcing
    return Fields(u, 1e-3 * u)


def objective(state: Fields) -> Any:
    """Half the sum of squares."""
    return 0.5 * jnp.sum(state.u**2)


@jax.jit
def transposed(state: Fields, by: Fields) -> Fields:
    """The transpose of a step, by JAX itself."""
    return jax.vjp(advanced, state)[1](by)[0]


class Problem:
    """The gradient of the objective by the first state."""

    def __init__(self, dtype: str) -> None:
        u = np.random.default_rng(2).normal(size=64).astype(dtype)
        self.start = Fields(jnp.asarray(u), jnp.zeros_like(u))
        self.by: Any = None

    def forward(self, state: Any, start: int, stop: int) -> Any:
        """Returns the new state, or where the pass ends."""
        end = min(stop, N)
        for _ in range(start, end):
            state = type(self.start)(*advanced(Fields(*state)))
        return Stop(end, state) if self.unknown and end == N else state

    def at_end(self, state: Fields) -> None:
        """Where the adjoint begins."""
        self.by = jax.grad(objective)(state)

    def reverse(self, state: Fields, step: int) -> None:
        """The transpose of one step."""
        assert isinstance(state, Fields)
        self.by = transposed(state, self.by)

    def run(self, schedule: Schedule, spool: unspool.Spool, **options: Any) -> Any:
        """Drives it."""
        self.unknown = schedule.steps is None
        functions = self.forward, self.reverse
        return unspool.adjoint(
            schedule, spool, *functions, self.start, at_end=self.at_end, **options
        )


def whole_gradient(start: Fields) -> Fields:
    """By JAX alone, with the same operations."""
    states = [start]
    for _ in range(N):
        states.append(advanced(states[-1]))
    by = jax.grad(objective)(states.pop())
    for state in reversed(states):
        by = transposed(state, by)
    return by


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "schedule", [StoreAll(N), Revolve(N, 3), ZCut(N, length=4), OnlineRevolve(3)], ids=repr
)
def test_the_gradient_has_the_bits_of_one_by_jax_alone(
    schedule: Schedule, dtype: str, spool: unspool.Spool
) -> None:
    problem = Problem(dtype)
    report = problem.run(schedule, spool)
    for one, other in zip(problem.by, whole_gradient(problem.start), strict=True):
        assert one.dtype == dtype and (np.asarray(one) == np.asarray(other)).all()
    assert len(spool) == 0 and spool.stats().hinted_restores == report.restores
    # A state that never changes is kept by keeping the array: at_end takes no copy.
    known = schedule.steps is not None
    assert report.saves == schedule.counts(None if known else N).saves


@pytest.mark.parametrize("states", [2, 5, 40])
def test_a_schedule_that_is_chosen_gives_the_same_bits(states: int) -> None:
    problem, state = Problem("float64"), 2 * 64 * 8
    with unspool.Spool(host_memory=states * state, device="cpu") as spool:
        report = problem.run(Auto(N), spool)
        assert len(spool) == 0 and spool.stats().hints == 0
    for one, other in zip(problem.by, whole_gradient(problem.start), strict=True):
        assert (np.asarray(one) == np.asarray(other)).all()
    # A step returns what it will compute: its time is known when that is there.
    assert report.forward_steps == report.choice.schedule.counts().advances + 1


def test_the_part_that_is_reversed_is_a_function_of_the_state(spool: unspool.Spool) -> None:
    seen = []

    def forward(state: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
        return {"u": state["u"] + (stop - start), "other": state["other"]}

    def reverse(part: list[Any], step: int) -> None:
        assert isinstance(part, list)
        seen.append((step, int(part[0][0])))

    state = {"u": jnp.zeros(8, "f4"), "other": jnp.zeros(800, "f4")}
    for schedule, whole in ((StoreAll(9), 0), (ZCut(9, length=3), 2)):
        report = unspool.adjoint(
            schedule, spool, forward, reverse, state, for_reverse=lambda state: [state["u"]]
        )
        assert report.saved_bytes == whole * (64 + 3200) + (report.saves - whole) * 32
    assert seen == [(step, step) for step in reversed(range(9))] * 2


def test_what_jax_cannot_do_is_refused_with_what_to_do(spool: unspool.Spool) -> None:
    u = jnp.zeros(4)

    def drive(forward: Any, state: Any, **options: Any) -> None:
        unspool.adjoint(Revolve(5, 2), spool, forward, lambda *_: None, state, **options)

    for state, options, why in [
        ((u, np.zeros(4)), {}, "mixes arrays of JAX"),
        (lambda: u, {}, "give the arrays themselves"),
        (u, {"for_reverse": u}, "give a function of the state"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=why):
            drive(lambda state, *_: state, state, **options)
    with pytest.raises(
        unspool.errors.OptionError, match=r"begin with .*jax.numpy.asarray\(state\)"
    ):
        drive(lambda state, *_: jnp.asarray(state), np.zeros(4))
    with pytest.raises(unspool.errors.OptionError, match="return the new state") as raised:
        drive(lambda *_: None, u)
    assert "forward(state, 0, " in raised.value.__notes__[0] and len(spool) == 0
