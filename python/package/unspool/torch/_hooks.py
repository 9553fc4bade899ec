"""Hooks of tensors while a gradient is taken that is only a part of theirs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

__all__ = ["without_hooks"]

_lock = threading.Lock()
# By the dictionary of the hooks of a tensor: how many threads do without them, and the hooks.
_away: dict[int, list[Any]] = {}


@contextlib.contextmanager
def without_hooks(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """A context in which no hook of these tensors is called, and none of them keeps a gradient."""
    hooks = [each._backward_hooks for each in tensors if each._backward_hooks]
    retaining = [each for each in tensors if not each.is_leaf and each.retains_grad]
    if not hooks and not retaining and not _away:
        yield
        return
    hooks = _take(tensors)
    gradients = [(each, each.grad) for each in retaining]
    for each in retaining:
        each.grad = None
    try:
        yield
    finally:
        for each, gradient in gradients:
            each.grad = gradient
        _give_back(hooks)


def _take(tensors: Sequence[torch.Tensor]) -> list[Any]:
    taken = []
    with _lock:
        for each in tensors:
            hooks = each._backward_hooks
            if hooks is None or not (hooks or id(hooks) in _away):
                continue
            held = _away.setdefault(id(hooks), [0, hooks, {}])
            held[0] += 1
            held[2].update(hooks)
            hooks.clear()
            taken.append(hooks)
    return taken


def _give_back(taken: Sequence[Any]) -> None:
    with _lock:
        for hooks in taken:
            held = _away[id(hooks)]
            held[0] -= 1
            if not held[0]:
                del _away[id(hooks)]
                later = dict(hooks)
                hooks.clear()
                hooks.update(held[2])
                hooks.update(later)
