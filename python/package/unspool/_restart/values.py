"""What `Checkpointer.save` was given, told apart: arrays, small values, and random numbers."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .._trees import DEPTH, Anew, Apart, assign, described, flatten, text_of
from ..errors import ArrayError
from . import random

__all__ = ["Saved", "fill", "is_owner", "is_small", "read", "sort"]

_PLAIN = (type(None), bool, int, float, str)


class Saved(NamedTuple):
    """The arguments of a save.

    Attributes:
        arrays: what the spool takes: by name, with the states of owners.
        values: the small values.
        text: the small values and the states of random numbers, as JSON.
    """

    arrays: dict[str, Any] | Apart
    values: dict[str, Any]
    text: str


def is_owner(value: Any) -> bool:
    """Whether it gives out its state, and takes it back."""
    names = ("state_dict", "load_state_dict")
    return not isinstance(value, type) and all(callable(getattr(value, one, None)) for one in names)


def sort(given: Mapping[str, Any], *, bare: bool = False) -> Saved:
    """Tells arguments apart; `bare` if arrays are not to say which library they are of.

    Raises:
        ArrayError: the state of a random number generator cannot be read, or a value holds itself
            or an integer of more digits than Python writes.
    """
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    states: dict[str, Any] = {}
    for name, value in given.items():
        if random.is_generator(value):
            states[name] = random.state(name, value)
        elif is_owner(value):
            arrays[name] = value.state_dict()
        elif is_small(value):
            values[name] = _of_numpy(value)
        else:
            arrays[name] = value
    text = text_of({"values": values, "random": states})
    return Saved(arrays if bare else described(arrays), values, text)


def read(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The small values and the states of random numbers of a checkpoint. A text that a program in
    C, C++ or Fortran has saved is under the name `values`.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(text)
        return dict(found["values"]), dict(found["random"])
    return ({"values": text} if text else {}), {}


def fill(name: str, saved: Any, target: Any) -> Callable[[], None]:
    """What writes a small value that was saved into a list, a dictionary or a place.

    Raises:
        ArrayError: the target is neither, or has other items than what was saved.
    """
    if not isinstance(target, dict | list | Anew):
        raise ArrayError(
            f"{name}: it was saved as a value, which cannot be written into a "
            f"{type(target).__name__}: `values` has it."
        )
    arrays, text = flatten({name: saved})
    if arrays or text is None:
        raise ArrayError(f"{name}: the small values of this checkpoint cannot be read.")
    return assign(text, {name: target})[1]


def _of_numpy(value: Any) -> Any:
    """A number of NumPy as one of Python, where that is the same number."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "fill_"):
        kind = getattr(value, "dtype", None)
        # An array of no dimensions can be restored in place, and stays one.
        if kind is not None and type(value) is kind.type and kind.kind in "biuf":
            return value.item()
    return value


def is_small(value: Any) -> bool:
    """Whether it is made of numbers, texts, True, False, None, lists and dictionaries alone."""
    return _is_plain(_of_numpy(value), 0)


def _is_plain(value: Any, depth: int) -> bool:
    if depth > DEPTH:
        # It holds itself, perhaps; a tree says so.
        return False
    if isinstance(value, _PLAIN):
        return not isinstance(value, enum.Enum)
    if type(value) in (list, tuple):
        return all(_is_plain(item, depth + 1) for item in value)
    if type(value) is dict:
        items = value.items()
        return all(type(key) is str and _is_plain(item, depth + 1) for key, item in items)
    return False
