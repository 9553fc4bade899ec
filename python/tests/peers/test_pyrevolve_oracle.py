"""The Revolver makes the calls that pyrevolve makes: the same ones, in the same order.

pyrevolve is the oracle here: `pip install pyrevolve`.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from unspool.interop import pyrevolve as ours

from pyrevolve_problems import Problem

theirs = pytest.importorskip("pyrevolve", reason="pip install pyrevolve: the oracle of these tests")

pytestmark = pytest.mark.peer

#: Every number of steps and of copies up to these, and some larger ones.
STEPS, COPIES = 40, 12
LARGE = [(100, 1), (101, 7), (200, 3), (333, 20), (500, 499), (500, 600), (1000, 10)]


def calls(library: Any, steps: int, copies: int | None) -> list[tuple[Any, ...]]:
    """What a run calls on the operators and on the checkpoint object."""
    problem = Problem(steps, np.float64)  # pyrevolve keeps one dtype.
    made = library.Revolver(problem, problem.forward, problem.reverse, copies, steps)
    made.apply_forward()
    problem.calls.append(("turn",))
    made.apply_reverse()
    return problem.calls


@pytest.mark.parametrize("steps", range(1, STEPS + 1))
def test_the_calls_are_those_of_pyrevolve(steps: int) -> None:
    for copies in (None, *range(1, COPIES + 1)):
        if copies is None and steps == 1:
            continue  # pyrevolve chooses 0 copies and says so on the standard output.
        assert calls(ours, steps, copies) == calls(theirs, steps, copies), f"{copies} copies"


@pytest.mark.parametrize("steps, copies", LARGE)
def test_the_calls_are_those_of_pyrevolve_for_long_runs(steps: int, copies: int) -> None:
    assert calls(ours, steps, copies) == calls(theirs, steps, copies)


@pytest.mark.parametrize("steps, copies", [(2, 1), (10, 3), (57, 5), (200, None)])
def test_what_is_told_about_a_run_is_the_same(steps: int, copies: int | None) -> None:
    told = []
    for library in (ours, theirs):
        problem = Problem(steps, np.float64)  # pyrevolve keeps one dtype.
        made = library.Revolver(problem, problem.forward, problem.reverse, copies, steps)
        made.apply_forward()
        made.apply_reverse()
        counts = made.profiler.counts
        sections = {key: dict(counts[key]) for key in ("forward", "reverse")}
        sections["reverse"].pop("remove", None)  # pyrevolve overwrites its copies instead.
        told.append((made.n_checkpoints, made.ratio, made.makespan, sections))
    assert told[0] == told[1]


@pytest.mark.parametrize("steps", [1, 2, 5, 10, 30, 60])
@pytest.mark.parametrize("uf, ub", [(1, 1), (2, 1)])
def test_with_two_levels_the_cost_is_never_above_that_of_h_revolve(
    steps: int, uf: int, ub: int
) -> None:
    for slots, files, wd, rd in product([1, 3, 5], [1, 4, 60], [0, 1, 5], [0, 2]):
        costs = []
        for library in (ours, theirs):
            problem = Problem(steps, np.float64)
            memory = library.NumpyStorage(10, slots, np.float64)
            # Theirs says the same of memory that costs as much, and leaves no file open.
            kind = library.NumpyStorage if library is theirs else library.DiskStorage
            disk = kind(10, files, np.float64, wd=wd, rd=rd)
            made = library.MultiLevelRevolver(
                problem, problem.forward, problem.reverse, steps, [memory, disk], uf=uf, ub=ub
            )
            if library is theirs:
                made.reload_scheduler(uf, ub)  # Its constructor takes no notice of the two.
            costs.append(made.makespan)
        assert costs[0] <= costs[1], (slots, files, wd, rd)


def test_as_many_copies_are_chosen() -> None:
    numbers = [*range(2, 300), 923, 924, 925, 3001, 12870, 12871, 10**6]
    assert [ours.adjust(n) for n in numbers] == [theirs.adjust(n) for n in numbers]


def test_the_names_are_there() -> None:
    known = set(dir(theirs))
    added = {name for name in ours.__all__ if name not in known}
    assert added == set()
