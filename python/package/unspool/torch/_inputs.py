"""Inputs of PyTorch's `checkpoint` that hooks for saved tensors do not see.

A checkpointed region saves its inputs for the backward pass. Of these, only tensors that are
positional arguments go through the hooks around it. Tensors that it is given by keyword, within a
list or a dictionary, or by a `functools.partial` are kept by reference, beside any budget. Where
there are hooks, all of them are handed over as positional arguments here. The function that is
called in the forward pass is the user's own, with the arguments that the user has given.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils.checkpoint

from ._trees import flatten, unflatten

__all__ = ["see_all_inputs", "within_checkpoint"]

#: What PyTorch's `checkpoint` calls without reentrance; its releases have one or both.
NAMES = (
    "_checkpoint_without_reentrant_generator_impl",
    "_checkpoint_without_reentrant_generator",
)

#: Modules whose hooks forget what is saved, and compute it again.
AGAIN = (torch.utils.checkpoint.__name__, "unspool.torch._recompute")


@functools.cache
def see_all_inputs() -> None:
    """Lets hooks around checkpointed regions see all their inputs, from the first call on. A
    release of PyTorch that has neither of the `NAMES` stays as it is."""
    module = torch.utils.checkpoint
    for name in NAMES:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, _by_position(original))
            return


def within_checkpoint() -> bool:
    """Whether what is saved now will be computed again, or is at the moment: by PyTorch's
    `checkpoint`, by `scan` or by a block of `budget`. It has to be the same both times."""
    hooks = _hooks()
    return hooks is not None and getattr(hooks[0], "__module__", "") in AGAIN


def _by_position(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def generator(*given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() or not _hooks():
            return original(*given, **named)
        bound = signature.bind(*given, **named)
        found = bound.arguments
        fn, args = _lifted(found["fn"], found.get("args", ()), found.get("kwargs", {}))
        found.update(fn=fn, args=args, kwargs={})
        return original(*bound.args, **bound.kwargs)

    return generator


def _hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


def _lifted(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of leaves that does the same, and these leaves."""
    while isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    leaves, tree = flatten((tuple(args), dict(kwargs)))

    def call(*leaves: Any) -> Any:
        args, kwargs = unflatten(leaves, tree)
        return fn(*args, **kwargs)

    return call, tuple(leaves)
