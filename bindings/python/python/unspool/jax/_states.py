"""States of a loop on their way into a spool and back, and the gradient of one piece of a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from . import _calls
from ._closures import Halves, is_float, no_gradient, plain
from ._spools import tie

__all__ = ["States", "pulled", "spread", "zeros"]

_sites = itertools.count(1)


class States:
    """The states of one loop: saved in a forward pass, restored in a backward pass."""

    def __init__(self, loop: int, leaves: Sequence[Any]) -> None:
        self._names = {"loop": loop, "site": next(_sites)}
        self._shapes = [plain(leaf).shape for leaf in leaves]
        self._keys = [None if plain(leaf) is leaf else jax.random.key_impl(leaf) for leaf in leaves]

    def begin(self, leaves: Sequence[Any]) -> Any:
        """A token, for a loop that begins with these leaves."""
        return _calls.begin([plain(leaf) for leaf in leaves], **self._names)

    def save(self, token: Any, leaves: Sequence[Any]) -> Any:
        """Saves a state, unless it has no arrays; the token after that."""
        if not self._shapes:
            return token
        return _calls.save(token, [plain(leaf) for leaf in leaves], **self._names)

    def end(self, token: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Ends a forward pass whose last carry is `leaves`: what the backward pass needs."""
        last = _calls.end(token, **self._names)
        tie(last)
        return last, [_calls.template(plain(leaf)) for leaf in leaves]

    def rewind(self, token: Any) -> Any:
        """Begins a backward pass; the token after that."""
        return _calls.rewind(token, **self._names)

    def restore(self, token: Any, templates: Sequence[Any]) -> tuple[Any, list[Any]]:
        """The state before the one that was restored last; the token after that, and its leaves."""
        if not self._shapes:
            return token, []
        token, found = _calls.restore(token, templates, self._shapes, **self._names)
        pairs = zip(found, self._keys, strict=True)
        return token, [
            leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl)
            for leaf, impl in pairs
        ]

    @staticmethod
    def after(token: Any, *groups: Sequence[Any]) -> list[list[Any]]:
        """The same gradients, once a backward pass has come as far as `token`."""
        given = iter(_calls.after(token, [leaf for group in groups for leaf in group]))
        return [[next(given) for _ in group] for group in groups]


def zeros(leaves: Sequence[Any]) -> list[Any]:
    """Where the gradients of the floating leaves are summed up."""
    return [jnp.zeros_like(leaf) for leaf in leaves if is_float(leaf)]


def pulled(
    piece: Callable[..., Sequence[Any]],
    arguments: Sequence[Sequence[Any]],
    cotangents: Sequence[Any],
) -> list[list[Any]]:
    """The gradients of a piece of a loop: of the floating leaves of each of its arguments, which
    are lists of leaves. `cotangents` are those of the floating leaves of its result."""
    halves = [Halves(leaves) for leaves in arguments]
    others = [half.others(leaves) for half, leaves in zip(halves, arguments, strict=True)]

    def of_floats(*floats: Sequence[Any]) -> list[Any]:
        parts = zip(halves, floats, others, strict=True)
        found = piece(*(half.joined(one, other) for half, one, other in parts))
        return [leaf for leaf in found if is_float(leaf)]

    floats = [half.floats(leaves) for half, leaves in zip(halves, arguments, strict=True)]
    _, pull = jax.vjp(of_floats, *floats)
    return [list(each) for each in pull(list(cotangents))]


def spread(gradients: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """The gradients of all leaves, from those of the floating ones."""
    given = iter(gradients)
    return [next(given) if is_float(leaf) else no_gradient(leaf) for leaf in leaves]
