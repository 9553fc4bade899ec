"""What reverse steps accumulate, as a Checkpointer saves it and gives it back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .._restart import Checkpointer, random
from .._restart.values import is_small
from .._trees import flatten
from ..errors import ArrayError, OptionError
from .states import is_array, never_changes, place_of

__all__ = ["Accumulated", "in_numpy"]

#: The name of what is given without one.
ALONE = "adjoint"

#: The name under which the driver keeps its own values beside those of the application.
OWN = "unspool.adjoint"


class Accumulated:
    """Arrays, numbers and generators of random numbers by name, or a function that returns them.

    What can be changed is restored in place. Numbers, texts and arrays of JAX cannot: they are
    replaced in the dictionary that was given.
    """

    def __init__(self, given: Any, option: str = "adjoint_state") -> None:
        self._ask = given if callable(given) and not is_array(given) else None
        self._value: Any = None if self._ask else given
        held = self.now()
        if not held:
            raise OptionError(f"adjoint({option}=...): there is nothing in it.")
        if any(type(name) is not str or name == OWN for name in held):
            raise OptionError(
                f"adjoint(adjoint_state=...): its names are texts, and {OWN!r} is taken."
            )
        arrays = self.arrays()
        self._frozen = any(map(never_changes, arrays))
        self._device = place_of(arrays, "adjoint_state") if self._frozen else None
        replaced = [name for name, one in held.items() if self._is_replaced(one)]
        if replaced and type(self._value) is not dict:
            raise OptionError(
                "adjoint(adjoint_state=...): numbers, texts and arrays of JAX cannot be restored "
                f"in place, and there is one in {replaced[0]!r}: give a dictionary, in which they "
                "are replaced, and read them from there."
            )

    def now(self) -> dict[str, Any]:
        """What is there at this moment, by name."""
        value = self._ask() if self._ask else self._value
        return dict(value) if isinstance(value, Mapping) else {ALONE: value}

    def arrays(self) -> list[Any]:
        """The arrays in it."""
        return [array for name, one in self.now().items() for array in _arrays(name, one)]

    def copied(self) -> dict[str, Any]:
        """A copy of what is there, by name; what is replaced in place of being changed is its own
        copy."""
        return {
            name: one
            if self._is_replaced(one)
            else [duplicate(each) for each in _arrays(name, one)]
            for name, one in self.now().items()
        }

    def put(self, copies: Mapping[str, Any]) -> None:
        """What was there when `copied` was called is there again."""
        for name, one in self.now().items():
            if self._is_replaced(one):
                self._value[name] = copies[name]
            else:
                for array, copy in zip(_arrays(name, one), copies[name], strict=True):
                    _unwatched(array)[...] = copy

    def numbers(self) -> dict[str, Any]:
        """The floating point numbers there, as arrays of NumPy in double precision, by name."""
        found = {way: in_numpy(array) for way, array in self.by_way().items()}
        return {way: numbers for way, numbers in found.items() if numbers is not None}

    def by_way(self) -> dict[str, Any]:
        """The arrays in it, by the way to them."""
        held = self.now().items()
        trees = [{name: one} for name, one in held if not _is_no_array(one)]
        return {way: _unwatched(array) for tree in trees for way, array in flatten(tree)[0]}

    def shapes(self) -> dict[str, Any]:
        """What is there, in words that can be compared."""
        return {name: _shape(name, value) for name, value in self.now().items()}

    def _is_replaced(self, value: Any) -> bool:
        return is_small(value) or (self._frozen and not random.is_generator(value))

    def restore(self, checkpoints: Checkpointer) -> int | None:
        """Takes the newest checkpoint; its step, or None when there is none.

        Raises:
            ArrayError: something else was saved.
        """
        held = self.now()
        replaced = [name for name, one in held.items() if self._is_replaced(one)]
        there = self._frozen and checkpoints.latest() is not None
        found = checkpoints.load(to="jax", device=self._device) if there else {}
        others = {name: one for name, one in held.items() if name not in replaced}
        step = checkpoints.restore(**others)
        if step is None:
            return None
        found = {**found, **checkpoints.values(step)}
        for name in replaced:
            if name not in found:
                raise ArrayError(f"{name}: an array was saved, and {held[name]!r:.40} is given.")
            self._value[name] = found[name]
        return step


def _is_no_array(value: Any) -> bool:
    return random.is_generator(value) or is_small(value)


def _arrays(name: str, value: Any) -> list[Any]:
    if _is_no_array(value):
        return []
    return [array for _, array in flatten({name: value})[0]]


def _shape(name: str, value: Any) -> Any:
    if random.is_generator(value):
        return "random numbers"
    if is_small(value):
        return "a value"
    return {way: shape_of(array) for way, array in flatten({name: value})[0]}


def shape_of(array: Any) -> list[int] | None:
    """The shape of an array; None for an array whose library does not say it."""
    shape = getattr(array, "shape", None)
    return None if shape is None else list(map(int, shape))


def duplicate(array: Any) -> Any:
    """A copy of an array, in the same place."""
    array = _unwatched(array)
    return array.clone() if hasattr(array, "clone") else array.copy()


def _unwatched(array: Any) -> Any:
    """The same memory, where autograd of PyTorch does not watch."""
    return array.detach() if hasattr(array, "detach") else array


def in_numpy(array: Any) -> Any:
    """The items as an array of NumPy in double precision; None where they are integers."""
    numpy: Any = importlib.import_module("numpy")
    if hasattr(array, "detach"):
        wide = "complex128" if array.is_complex() else "float64"
        exact = array.is_floating_point() or array.is_complex()
        torch: Any = importlib.import_module("torch")
        if not exact:
            return None
        # What is a copy already would be the same memory.
        return array.detach().to("cpu", getattr(torch, wide), copy=True).numpy()
    found = numpy.asarray(array.get() if hasattr(array, "get") else array)
    if found.dtype.kind in "iub?":
        return None
    return found.astype("complex128" if found.dtype.kind == "c" else "float64")
