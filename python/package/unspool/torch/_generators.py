"""Generators of random numbers whose states are taken and put back: PyTorch's, Python's, NumPy's,
and those of one's own that a step was found to reach."""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["Generators", "torch_states", "torch_states_put"]


def torch_states(gpus: Sequence[int]) -> list[torch.Tensor]:
    """The states of PyTorch's own generators: that of the CPU, and those of GPUs."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in gpus)]


def torch_states_put(states: Sequence[torch.Tensor], gpus: Sequence[int]) -> None:
    """Lets PyTorch's own generators go on from other states."""
    torch.set_rng_state(states[0])
    for gpu, state in zip(gpus, states[1:], strict=True):
        torch.cuda.set_rng_state(state, gpu)


class Generators:
    """Python's and NumPy's generators, and others. A state that did not change is one object."""

    def __init__(self, own: Iterable[Any]) -> None:
        self._python = _Known(random.getstate, random.setstate)
        known: list[_Known] = [self._python]
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            known.append(_NumPy(numpy))
        known += [_known(each) for each in own if not isinstance(each, random.SystemRandom)]
        self._known = known

    def states(self) -> list[Any]:
        """Their states."""
        return [each.state() for each in self._known]

    def idle(self, states: Sequence[Any]) -> None:
        """Python's own, whose state is expensive to read, is not looked at any more if it was not
        used since."""
        self._python.idle = _equal(self._python.state(), states[0])

    def used(self) -> bool:
        """Whether it was used although it is not looked at, so that its states are not known."""
        idle, self._python.idle = self._python.idle, False
        before = self._python.last
        return idle and self._python.state() is not before

    def put(self, states: Sequence[Any]) -> None:
        """Lets them go on from other states."""
        for each, state in zip(self._known, states, strict=True):
            each.put(state)


class _Known:
    """One generator.

    Attributes:
        last: the state that was seen last.
        idle: whether it is taken to be in that state.
    """

    def __init__(self, get: Any, put: Any) -> None:
        self._get, self._put, self.idle = get, put, False
        self.last: Any = None

    def state(self) -> Any:
        """Its state."""
        if self.idle:
            return self.last
        state = self._get()
        if self.last is None or not _equal(state, self.last):
            self.last = state
        return self.last

    def put(self, state: Any) -> None:
        """Lets it go on from another state."""
        if not self.idle and not _equal(self._get(), state):
            self._put(state)
            self.last = state


class _NumPy(_Known):
    """NumPy's global generator. A look at its memory says whether its state need be read, which
    takes long."""

    def __init__(self, numpy: Any) -> None:
        super().__init__(lambda: numpy.get_state(legacy=False), numpy.set_state)
        self.last = self._get()
        self._at: int | None = None
        self._memory = b""
        # With a number that was drawn in advance, memory alone does not say it.
        if self.last.get("bit_generator") == "MT19937" and not self.last.get("has_gauss"):
            self._at = numpy.mtrand._rand._bit_generator.ctypes.state_address
            self._memory = self._look()

    def _look(self) -> bytes:
        return ctypes.string_at(self._at or 0, 625 * 4)

    def state(self) -> Any:
        if self._at is not None and self._look() == self._memory:
            return self.last
        self._at = None
        return super().state()

    def put(self, state: Any) -> None:
        if self._at is not None and state is self.last and self._look() == self._memory:
            return
        self._at = None
        super().put(state)


def _known(generator: Any) -> _Known:
    if isinstance(generator, torch.Generator):
        return _Known(generator.get_state, generator.set_state)
    if isinstance(generator, random.Random):
        return _Known(generator.getstate, generator.setstate)
    if hasattr(generator, "set_state"):
        return _Known(lambda: generator.get_state(legacy=False), generator.set_state)
    bits = getattr(generator, "bit_generator", generator)
    return _Known(lambda: bits.state, lambda state: setattr(bits, "state", state))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if hasattr(one, "tobytes"):
        return bool(one.tobytes() == other.tobytes())
    return bool(one == other)
