"""The Revolver with a state in the memory of a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import unspool
from unspool.interop.pyrevolve import Revolver

from helpers import gpu_library

cupy = gpu_library("cupy")
pytestmark = pytest.mark.gpu

STEPS = 90
BYTES = 4 << 20


class Counting:
    """A state whose items all are the number of the step, and a reversal that adds up errors."""

    dtype, size = "float32", BYTES // 4

    def __init__(self) -> None:
        self.state = cupy.zeros(self.size, self.dtype)
        self.errors = cupy.zeros((), self.dtype)
        self.reversed: list[int] = []

    def get_data(self, timestep: int) -> list[Any]:
        return [self.state]

    get_data_location = get_data

    def forward(self) -> Any:
        def apply(t_start: int, t_end: int) -> None:
            for _ in range(t_start, t_end):
                self.state += 1

        return type("Forward", (), {"apply": staticmethod(apply)})

    def reverse(self) -> Any:
        def apply(t_start: int, t_end: int) -> None:
            self.errors += cupy.abs(self.state - t_end).max()
            self.reversed.append(t_start)

        return type("Reverse", (), {"apply": staticmethod(apply)})


def test_every_step_sees_its_state(tmp_path: Path) -> None:
    with unspool.Spool(device_memory="16MiB", host_memory="24MiB", disk=tmp_path) as small:
        for options in ({}, {"spool": small}):
            problem = Counting()
            with Revolver(
                problem, problem.forward(), problem.reverse(), 15, STEPS, **options
            ) as made:
                made.apply_forward()
                made.apply_reverse()
            assert problem.reversed == list(reversed(range(STEPS)))
            assert float(problem.errors) == 0.0
        assert small.stats().links[0].flush.bytes > 0
