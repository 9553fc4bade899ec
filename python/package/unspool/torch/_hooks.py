"""Hooks of tensors while a gradient is taken that is only a part of theirs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["without_hooks"]

#: The name of what a thread, and the threads of autograd that work for it, know of this.
_PART = "unspool.torch: a part of a gradient"

_lock = threading.Lock()
# By the dictionary of the hooks of a tensor: how many threads do without them, and the dictionary.
_passed_by: dict[int, list[Any]] = {}


class _Whole:
    """A hook that is called for whole gradients alone."""

    __slots__ = ("hook",)

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def __call__(self, *gradients: Any) -> Any:
        return None if _is_part() else self.hook(*gradients)


@contextlib.contextmanager
def without_hooks(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """A context in which this thread calls no hook of these tensors, and none of them keeps a
    gradient. The backward passes of other threads call them."""
    hooks = [each._backward_hooks for each in tensors if each._backward_hooks]
    retaining = [each for each in tensors if not each.is_leaf and each.retains_grad]
    if not hooks and not retaining:
        yield
        return
    gradients, before = [(each, each.grad) for each in retaining], _is_part()
    for each in retaining:
        each.grad = None
    _pass_by(hooks)
    # Threads of autograd have it from the thread that begins a backward pass.
    torch._C._stash_obj_in_tls(_PART, True)
    try:
        yield
    finally:
        torch._C._stash_obj_in_tls(_PART, before)
        _give_back(hooks)
        for each, gradient in gradients:
            each.grad = gradient


def _is_part() -> bool:
    return bool(torch._C._is_key_in_tls(_PART) and torch._C._get_obj_in_tls(_PART))


def _pass_by(hooks: Sequence[dict[int, Any]]) -> None:
    with _lock:
        for each in hooks:
            held = _passed_by.setdefault(id(each), [0, each])
            held[0] += 1
            for key, hook in list(each.items()):
                if type(hook) is not _Whole:
                    each[key] = _Whole(hook)


def _give_back(hooks: Sequence[dict[int, Any]]) -> None:
    with _lock:
        for each in hooks:
            held = _passed_by[id(each)]
            held[0] -= 1
            if held[0]:
                continue
            del _passed_by[id(each)]
            for key, hook in list(each.items()):
                if type(hook) is _Whole:
                    each[key] = hook.hook
