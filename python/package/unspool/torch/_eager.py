"""Functions that `torch.compile` leaves as they are: it compiles what is before and after them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["uncompiled"]

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which `torch.compile` compiles nothing. Without this it would make objects
    of this package in its own way, without calling their classes. PyTorch's compiler takes seconds
    to import, and is asked only where it has been imported already."""
    disabled: list[Any] = []

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(dynamo.disable(function))
        found: R = disabled[0](*args, **kwargs)
        return found

    return called
