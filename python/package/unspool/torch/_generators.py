"""Generators of random numbers whose states are taken and put back: PyTorch's, Python's, NumPy's,
and those of one's own that a step was found to reach."""

from __future__ import annotations

import _random
import ctypes
import random
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = ["Generators", "torch_states", "torch_states_put"]

#: The generator of the functions of `random`.
_PYTHON: random.Random = random.getstate.__self__  # type: ignore[attr-defined]

#: The numbers of 32 bits in the state of a Mersenne Twister with its position, and the bytes with
#: which an object of Python begins.
_WORDS, _HEAD = 625, object.__basicsize__


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
        known: list[_Known] = [_Python(_PYTHON)]
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            known.append(_NumPy(numpy))
        known += [_known(each) for each in own if not isinstance(each, random.SystemRandom)]
        self._known = known

    def states(self) -> list[Any]:
        """Their states."""
        return [each.state() for each in self._known]

    def put(self, states: Sequence[Any], now: Sequence[Any]) -> None:
        """Lets them go on from other states; `now` are those that they have."""
        for each, state, last in zip(self._known, states, now, strict=True):
            if last is not state:
                each.put(state)


class _Known:
    """One generator."""

    def __init__(self, get: Any, put: Any) -> None:
        self._get, self._put = get, put
        # The state that was seen last.
        self._last: Any = None

    def state(self) -> Any:
        """Its state."""
        state = self._get()
        if self._last is None or not _equal(state, self._last):
            self._last = state
        return self._last

    def put(self, state: Any) -> None:
        """Lets it go on from another state."""
        self._put(state)
        self._last = state


class _Python(_Known):
    """A generator of Python. A look at its memory says whether its state need be read, which takes
    long."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__(generator.getstate, generator.setstate)
        self._generator, self._seen = generator, None
        self._looks = _lies_as_expected(generator)

    def _look(self) -> Any:
        generator: Any = self._generator
        return ctypes.string_at(id(generator) + _HEAD, _WORDS * 4), generator.gauss_next

    def state(self) -> Any:
        if not self._looks:
            return super().state()
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            return super().state()
        return self._last


class _NumPy(_Known):
    """NumPy's global generator, with such a look until it is used."""

    def __init__(self, numpy: Any) -> None:
        super().__init__(lambda: numpy.get_state(legacy=False), numpy.set_state)
        self._last = self._get()
        self._at: int | None = None
        self._memory = b""
        # With a number that was drawn in advance, memory alone does not say it.
        if self._last.get("bit_generator") == "MT19937" and not self._last.get("has_gauss"):
            self._at = numpy.mtrand._rand._bit_generator.ctypes.state_address
            self._memory = self._look()

    def _look(self) -> bytes:
        return ctypes.string_at(self._at or 0, _WORDS * 4)

    def state(self) -> Any:
        if self._at is not None and self._look() == self._memory:
            return self._last
        self._at = None
        return super().state()


def _lies_as_expected(generator: random.Random) -> bool:
    """Whether the memory of a generator of Python has its state where `_Python` looks: the position
    and 624 words, after what every object begins with."""
    room = _random.Random.__basicsize__ - _HEAD
    if type(generator) is not random.Random or room < _WORDS * 4:
        return False
    words = generator.getstate()[1]
    if len(words) != _WORDS:
        return False
    expected = struct.pack(f"={_WORDS}I", words[-1], *words[:-1])
    return ctypes.string_at(id(generator) + _HEAD, _WORDS * 4) == expected


def _known(generator: Any) -> _Known:
    if isinstance(generator, torch.Generator):
        return _Known(generator.get_state, generator.set_state)
    if isinstance(generator, random.Random):
        return _Python(generator)
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
