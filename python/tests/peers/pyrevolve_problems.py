"""A small adjoint problem for a Revolver: it writes down every call, and checks the states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from unspool.interop.pyrevolve import Checkpoint, Operator

#: A call: its name, and the steps or the step that it is about.
Call = tuple[Any, ...]


class Recorder(Operator):
    """An operator that writes its calls down under a name."""

    def __init__(self, calls: list[Call], name: str, work: Callable[[int, int], None]) -> None:
        self.calls = calls
        self.name = name
        self.work = work

    def apply(self, *, t_start: int, t_end: int) -> None:
        self.calls.append((self.name, t_start, t_end))
        self.work(t_start, t_end)


class Problem(Checkpoint):
    """x[n + 1] = f(x[n], n) on two arrays, of different dtypes unless that is asked for.

    The state before each step is known in advance, so that every state which a reversal sees is
    compared with the true one.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, steps: int, counts: type = np.int64) -> None:
        self.steps = steps
        self.calls: list[Call] = []
        self.values = np.arange(6.0).reshape(2, 3)
        self.counts = np.zeros(4, counts)
        self.adjoint: list[int] = []
        self.forward = Recorder(self.calls, "forward", self._forward)
        self.reverse = Recorder(self.calls, "reverse", self._reverse)
        self.trajectory = self._trajectory()

    @property
    def size(self) -> int:
        return self.values.size + self.counts.size

    def get_data(self, timestep: int) -> list[np.ndarray]:
        self.calls.append(("save", timestep))
        return [self.values, self.counts]

    def get_data_location(self, timestep: int) -> list[np.ndarray]:
        self.calls.append(("load", timestep))
        return [self.values, self.counts]

    def start(self) -> None:
        """Puts state 0 into the arrays."""
        self.values[...], self.counts[...] = self.trajectory[0]

    def _trajectory(self) -> list[tuple[np.ndarray, np.ndarray]]:
        states = [(self.values.copy(), self.counts.copy())]
        for step in range(self.steps):
            self._step(step)
            states.append((self.values.copy(), self.counts.copy()))
        self.values[...], self.counts[...] = states[0]
        return states

    def _step(self, step: int) -> None:
        self.values[...] = np.sin(self.values + step)
        self.counts += step

    def _forward(self, start: int, stop: int) -> None:
        assert self._is_state(start), f"step {start} is computed from another state"
        for step in range(start, stop):
            self._step(step)

    def _reverse(self, start: int, stop: int) -> None:
        assert stop == start + 1
        assert self._is_state(stop), f"step {start} is reversed with another state"
        self.adjoint.append(start)

    def _is_state(self, step: int) -> bool:
        values, counts = self.trajectory[step]
        return bool((values == self.values).all() and (counts == self.counts).all())
