"""pyadjoint's tape, checkpointed by our schedules, has the gradient of the whole tape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from unspool import schedules
from unspool.interop import as_checkpoint_schedule, from_checkpoint_schedules

pyadjoint = pytest.importorskip("pyadjoint", reason="pip install pyadjoint-ad")
theirs = pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")

pytestmark = pytest.mark.peer

STEPS = 20
RAM = theirs.StorageType.RAM


class Step(pyadjoint.Block):
    """x becomes x + 0.1 a sin(x)."""

    runs = 0

    def __init__(self, x: Any, a: Any) -> None:
        super().__init__()
        self.add_dependency(x)
        self.add_dependency(a)

    def recompute_component(self, inputs: Any, output: Any, idx: int, prepared: Any) -> Any:
        Step.runs += 1
        x, a = map(float, inputs)
        return pyadjoint.AdjFloat(x + 0.1 * a * math.sin(x))

    def evaluate_adj_component(
        self, inputs: Any, adj_inputs: Any, output: Any, idx: int, prepared: Any = None
    ) -> float:
        x, a = map(float, inputs)
        slope = 1 + 0.1 * a * math.cos(x) if idx == 0 else 0.1 * math.sin(x)
        return float(adj_inputs[0]) * slope


@pytest.fixture
def tape() -> Iterator[Any]:
    """A tape of the test's own, which records."""
    before = pyadjoint.get_working_tape()
    with pyadjoint.set_working_tape() as own:
        pyadjoint.continue_annotation()
        yield own
        pyadjoint.pause_annotation()
    pyadjoint.set_working_tape(before)


def gradient(tape: Any, schedule: Any = None) -> tuple[list[float], int]:
    """The final x by the parameter and the initial x, and how often a step was computed."""
    if schedule is not None:
        tape.enable_checkpointing(schedule)
    Step.runs = 0
    a, x0 = pyadjoint.AdjFloat(0.3), pyadjoint.AdjFloat(1.2)
    x = x0
    for _ in tape.timestepper(iter(range(STEPS))):
        step = Step(x, a)
        x = step.recompute_component([x, a], None, 0, None)
        tape.add_block(step)
        step.add_output(x.create_block_variable())
    reduced = pyadjoint.ReducedFunctional(x, [pyadjoint.Control(a), pyadjoint.Control(x0)])
    return [float(part) for part in reduced.derivative()], Step.runs


def expected() -> list[float]:
    """The same, by hand."""
    states = [1.2]
    for _ in range(STEPS):
        states.append(states[-1] + 0.1 * 0.3 * math.sin(states[-1]))
    by_a, by_x = 0.0, 1.0
    for x in reversed(states[:-1]):
        by_a += by_x * 0.1 * math.sin(x)
        by_x *= 1 + 0.1 * 0.3 * math.cos(x)
    return [by_a, by_x]


#: A schedule, and how often it computes a step: once in the forward pass, and then again.
CASES: dict[str, tuple[Callable[[], Any], int]] = {
    "none": (lambda: None, STEPS),
    "theirs": (lambda: theirs.Revolve(STEPS, 3), 65),
    "Revolve": (lambda: as_checkpoint_schedule(schedules.Revolve(STEPS, 3)), 65),
    "StoreAll": (lambda: as_checkpoint_schedule(schedules.StoreAll(STEPS)), STEPS),
    "StoreAll, restarting": (
        lambda: as_checkpoint_schedule(schedules.StoreAll(STEPS), adjoint_data=False),
        2 * STEPS - 1,
    ),
    "ZCut": (lambda: as_checkpoint_schedule(schedules.ZCut(STEPS, length=5)), 38),
    "Uniform": (lambda: as_checkpoint_schedule(schedules.Uniform(STEPS, 4)), 75),
    "theirs, translated": (
        lambda: as_checkpoint_schedule(
            from_checkpoint_schedules(theirs.HRevolve(STEPS, 2, 3)), {"disk": "RAM"}
        ),
        62,
    ),
    "theirs, translated, length not known": (
        lambda: as_checkpoint_schedule(
            from_checkpoint_schedules(
                theirs.TwoLevelCheckpointSchedule(5, 2, binomial_storage=RAM)
            ),
            {"disk": "RAM"},
        ),
        60,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_whole_tape(name: str, tape: Any) -> None:
    make, runs = CASES[name]
    assert gradient(tape, make()) == (pytest.approx(expected(), rel=1e-14), runs)


def test_copies_that_are_given_up_in_the_forward_pass_are_refused_by_pyadjoint(tape: Any) -> None:
    made = as_checkpoint_schedule(schedules.OnlineRevolve(4), whole_states=True)
    with pytest.raises(Exception, match=r"Unable to process Move.* while taping"):
        gradient(tape, made)
