"""`unspool.adjoint(check=n)`: what it says a codec does to the gradient, and what it does."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from checked_problems import Checked, burgers, tails, wave
from unspool.errors import OptionError
from unspool.schedules import OnlineRevolve, Revolve, Schedule, StoreAll
from unspool.types import FidelityWarning

MAKERS = [wave, burgers, tails]
SCHEDULES: list[Callable[[int], Schedule]] = [StoreAll, lambda steps: Revolve(steps, 8)]


def gradient(problem: Checked) -> Any:
    return problem.adjoint_state["gradient"].copy()


def difference(make: Any, schedule: Any, codec: Any) -> tuple[Any, float]:
    """The gradient with a codec, and how far it is from that without."""
    found = []
    for one in (None, codec):
        problem = make()
        problem.run(schedule(problem.steps), one)
        found.append(gradient(problem))
    exact, lossy = found
    return lossy, float(np.linalg.norm(lossy - exact) / np.linalg.norm(lossy))


@pytest.mark.filterwarnings("ignore::unspool.types.FidelityWarning")
@pytest.mark.parametrize("bound", [1e-3, 1e-5])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=["StoreAll", "Revolve"])
@pytest.mark.parametrize("make", MAKERS)
def test_the_estimate_is_near_the_difference_of_two_whole_runs(
    make: Any, schedule: Any, bound: float
) -> None:
    codec = unspool.Bound(range=bound)
    lossy, true = difference(make, schedule, codec)
    problem = make()
    fidelity = problem.run(schedule(problem.steps), codec, check=16).fidelity
    effect = fidelity.arrays["gradient"]
    assert (gradient(problem) == lossy).all(), "the check changes nothing"
    assert len(fidelity.checked) == 16 and fidelity.steps == problem.steps
    assert true / 2 < effect.estimate < 10 * true, (effect, true)
    assert effect.independent <= effect.estimate <= effect.worst
    assert true < 2 * effect.worst


def test_checked_at_every_state_it_is_the_difference() -> None:
    codec = unspool.Bound(range=1e-4)
    for make in MAKERS:
        _, true = difference(make, StoreAll, codec)
        problem = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)
            fidelity = problem.run(StoreAll(problem.steps), codec, check=10_000).fidelity
        assert len(fidelity.checked) == problem.steps
        effect = fidelity.arrays["gradient"]
        # The states are checked, and that which `at_end` comes back from is not.
        assert effect.estimate == effect.worst == pytest.approx(true, rel=0.02)


def test_a_gradient_that_is_far_off_is_warned_of() -> None:
    problem = tails()
    with pytest.warns(FidelityWarning, match=r"changes the gradient by about \d"):
        report = problem.run(StoreAll(problem.steps), unspool.Bound(range=1e-3), check=6)
    assert report.fidelity.estimate > 0.05
    assert str(report.fidelity) in str(report)
    assert re.search(r"checked at 6 of 300 states", str(report))
    assert report.to_dict()["fidelity"]["steps"] == problem.steps
    # Where the gradient without a codec is zero, the effect has no end, and JSON has none either.
    effect = dataclasses.replace(report.fidelity.arrays["gradient"], estimate=math.inf)
    endless = dataclasses.replace(report.fidelity, arrays={"gradient": effect})
    written = json.dumps(dataclasses.replace(report, fidelity=endless).to_dict(), allow_nan=False)
    assert json.loads(written)["fidelity"]["arrays"]["gradient"]["estimate"] is None


@pytest.mark.parametrize("codec", [None, "lossless", unspool.Bound(range=1e-9)])
def test_a_gradient_that_is_right_is_not(codec: Any) -> None:
    problem = wave(100, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fidelity = problem.run(Revolve(problem.steps, 5), codec, check=8).fidelity
    assert fidelity.estimate < 1e-6
    if not isinstance(codec, unspool.Bound):
        assert fidelity.worst == 0 and "does not change the gradient" in str(fidelity)


def test_a_part_of_the_state_and_a_list_are_checked_too() -> None:
    problem = wave(60, 100)
    codec = unspool.Bound(range=1e-3)

    def reverse(part: Any, step: int) -> None:
        problem.reverse((None, part), step)

    held = list(problem.adjoint_state.values())
    with (
        unspool.Spool(host_memory="16MiB", device="cpu", codec=codec) as spool,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FidelityWarning)
        report = flat.adjoint(
            StoreAll(60),
            spool,
            problem.forward,
            reverse,
            problem.state,
            at_end=problem.at_end,
            for_reverse=lambda state: state[1],
            adjoint_state=lambda: {"all": held},
            check=4,
        )
        assert len(spool) == 0
    assert set(report.fidelity.arrays) == {"all/0", "all/1"}
    assert report.fidelity.arrays["all/0"].estimate > 0


def test_what_makes_no_sense_is_refused_and_a_failure_leaves_nothing() -> None:
    problem = wave(20, 50)
    for check, text in ((-1, "0 or more"), ("many", "not a whole number")):
        with pytest.raises(OptionError, match=text):
            problem.run(StoreAll(20), None, check=check)
    with pytest.raises(OptionError, match="how many there are"):
        problem.run(OnlineRevolve(4), None, check=2)
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        given = (spool, problem.forward, problem.reverse, problem.state)
        with pytest.raises(OptionError, match="give `adjoint_state`"):
            flat.adjoint(StoreAll(20), *given, check=2)
        with pytest.raises(OptionError, match="`resume` cannot be checked"):
            flat.adjoint(StoreAll(20), *given, check=2, resume="x", adjoint_state=[])

        def broken(state: Any, step: int) -> None:
            raise FloatingPointError

        with pytest.raises(FloatingPointError):
            flat.adjoint(
                StoreAll(20),
                spool,
                problem.forward,
                broken,
                problem.state,
                adjoint_state=problem.adjoint_state,
                check=4,
            )
        assert len(spool) == 0 and spool.stats().hints == 0


class Diffused:
    """A pulse that spreads, with arrays of any library: new ones for JAX, in place for others."""

    def __init__(self, library: Any, replaced: bool) -> None:
        self.arrays, self.replaced = library, replaced
        x = library.asarray(np.linspace(-1, 1, 200))
        self.u = library.exp(-((x / 0.1) ** 2))
        self.held = {"gradient": 0 * x, "after": 0 * x}

    def around(self, u: Any) -> Any:
        roll = self.arrays.roll
        return roll(u, 1) - 2 * u + roll(u, -1)

    def put(self, name: str, value: Any) -> None:
        if self.replaced:
            self.held[name] = value
        else:
            self.held[name][...] = value

    def forward(self, u: Any, start: int, stop: int) -> Any:
        new = u
        for _ in range(start, stop):
            new = new + 0.2 * self.around(new)
        if self.replaced:
            return new
        u[...] = new
        return None

    def reverse(self, u: Any, step: int) -> None:
        after = self.held["after"]
        self.put("gradient", self.held["gradient"] + self.around(u) * after)
        self.put("after", after + 0.2 * self.around(after))

    def run(self, codec: Any, check: int) -> tuple[Any, Any]:
        with (
            unspool.Spool(host_memory="16MiB", device="cpu", codec=codec) as spool,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", FidelityWarning)
            report = flat.adjoint(
                Revolve(60, 6),
                spool,
                self.forward,
                self.reverse,
                self.u,
                at_end=lambda u: self.put("after", u),
                adjoint_state=self.held,
                check=check,
            )
        return np.array(self.held["gradient"].tolist()), report.fidelity


@pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])
def test_the_arrays_of_every_library_can_be_checked(name: str) -> None:
    library, codec = pytest.importorskip(name), unspool.Bound(range=1e-3)
    replaced = name == "jax.numpy"
    exact, none = Diffused(library, replaced).run(None, 0)
    lossy, _ = Diffused(library, replaced).run(codec, 0)
    checked, fidelity = Diffused(library, replaced).run(codec, 8)
    assert none is None and (checked == lossy).all()
    true = np.linalg.norm(lossy - exact) / np.linalg.norm(lossy)
    assert true / 3 < fidelity.arrays["gradient"].estimate < 3 * true
