"""What `Checkpointer.save` was given, told apart: arrays, small values, and random numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from . import random

__all__ = ["Saved", "is_small", "read", "sort"]

_PLAIN = (type(None), bool, int, float, str)


class Saved(NamedTuple):
    """The arguments of a save.

    Attributes:
        arrays: what the spool takes, by name.
        text: the small values and the states of random numbers, as JSON.
    """

    arrays: dict[str, Any]
    text: str


def sort(given: Mapping[str, Any]) -> Saved:
    """Tells arguments apart.

    Raises:
        ArrayError: the state of a random number generator cannot be read.
    """
    arrays: dict[str, Any] = {}
    values: dict[str, Any] = {}
    states: dict[str, Any] = {}
    for name, value in given.items():
        if random.is_generator(value):
            states[name] = random.state(name, value)
        elif is_small(value):
            values[name] = _of_numpy(value)
        else:
            arrays[name] = value
    text = json.dumps({"values": values, "random": states}, separators=(",", ":"))
    return Saved(arrays, text)


def read(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The small values and the states of random numbers of a checkpoint. A text that a program in
    C, C++ or Fortran has saved is under the name `values`.
    """
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = json.loads(text)
        return dict(found["values"]), dict(found["random"])
    return ({"values": text} if text else {}), {}


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
    return _is_plain(_of_numpy(value))


def _is_plain(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return False
