"""States of a loop on their way into a spool and back, and the gradient of one piece of a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from . import _calls
from ._closures import Halves, plain
from ._perturbed import Parts, divided, joined
from ._spools import Loop, give_up, tie

__all__ = ["States", "pulled"]

#: The most states in a block. Calls cost next to nothing beyond, and `jax.vmap` makes each state of
#: a block as many times larger as it has lanes, which is not known here.
MOST = 8

_sites = itertools.count(1)


class States:
    """The states of one loop: saved in a forward pass, restored in a backward pass, a block of
    consecutive ones with each call. A block is the leaves of its states, stacked.

    Attributes:
        most: the most states in a block.
    """

    def __init__(self, loop: Loop, leaves: Sequence[Any]) -> None:
        self._names = {"loop": loop.number, "site": next(_sites)}
        self._token: Any = None
        self._shapes = [plain(leaf).shape for leaf in leaves]
        bytes_of_one = sum(plain(leaf).nbytes for leaf in leaves)
        self.most = max(min(loop.together // max(bytes_of_one, 1), MOST), 1)
        self._keys = [None if plain(leaf) is leaf else jax.random.key_impl(leaf) for leaf in leaves]

    def whole(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A pass, which leaves nothing when it raises outside of compiled programs."""

        def guarded(*given: Any) -> Any:
            try:
                return work(*given)
            except BaseException:
                give_up(self._token)
                raise
            finally:
                self._token = None

        return guarded

    def begin(self, leaves: Sequence[Any]) -> Any:
        """A token, for a loop that begins with these leaves."""
        self._token = _calls.begin([plain(leaf) for leaf in leaves], **self._names)
        return self._token

    def save(self, token: Any, block: Sequence[Any]) -> Any:
        """Saves states, unless they have no arrays; the token after that."""
        if not self._shapes:
            return token
        # A single state is saved as it is: codecs look at dimensions.
        arrays = [plain(leaf[0] if len(leaf) == 1 else leaf) for leaf in block]
        return _calls.save(token, arrays, **self._names)

    def end(self, token: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Ends a forward pass whose last carry is `leaves`: what the backward pass needs."""
        last = _calls.end(token, **self._names)
        tie(last)
        return last, [_calls.template(plain(leaf)) for leaf in leaves]

    def rewind(self, token: Any) -> Any:
        """Begins a backward pass; the token after that."""
        self._token = _calls.rewind(token, **self._names)
        return self._token

    def restore(self, token: Any, templates: Sequence[Any], count: int) -> tuple[Any, list[Any]]:
        """The block of `count` states before the one that was restored last; the token after that,
        and the leaves."""
        if not self._shapes:
            return token, []
        shapes = [shape if count == 1 else (count, *shape) for shape in self._shapes]
        token, found = _calls.restore(token, templates, shapes, **self._names)
        pairs = list(zip(found, self._keys, strict=True))
        block = [x if impl is None else jax.random.wrap_key_data(x, impl=impl) for x, impl in pairs]
        return token, [leaf[None] if count == 1 else leaf for leaf in block]

    @staticmethod
    def after(token: Any, *groups: Sequence[Any]) -> list[list[Any]]:
        """The same gradients, once a backward pass has come as far as `token`."""
        given = iter(_calls.after(token, [leaf for group in groups for leaf in group]))
        return [[next(given) for _ in group] for group in groups]


def pulled(
    piece: Callable[..., Sequence[Any]],
    parts: Parts,
    arguments: Sequence[Sequence[Any]],
    cotangents: Sequence[Any],
) -> list[list[Any]]:
    """The gradients of a piece of a loop, of the leaves of its arguments that `parts.step` chooses.
    `cotangents` are those of the leaves of its result that `parts.results` chooses."""
    chosen, others = divided(parts.step, arguments)

    def of_chosen(*chosen: Sequence[Any]) -> list[Any]:
        return Halves(parts.results).chosen(piece(*joined(parts.step, chosen, others)))

    _, pull = jax.vjp(of_chosen, *chosen)
    return [list(each) for each in pull(list(cotangents))]
