"""A loop of unknown length as it was written, and its steps forwards and backwards, in the lanes of
`jax.vmap` that take them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from unspool.errors import OptionError

from ._closures import Carry, Function
from ._lanes import any_of, held
from ._perturbed import Flags, Parts
from ._states import pulled

__all__ = ["At", "Steps"]


class At(NamedTuple):
    """Where a loop is. Under `jax.vmap`, each lane is somewhere else.

    Attributes:
        carry: its leaves.
        active: whether another step is taken.
        taken: the number of steps so far.
        total: that of the lane that has taken most. In `jax.shard_map` it may be another one on
            each device, and its type does not say so: nor do those of leaves that it selects.
    """

    carry: list[Any]
    active: Any
    taken: Any
    total: Any


class Steps:
    """A loop as it was written.

    Attributes:
        carry: the first carry.
        cond: whether there is another step, from the leaves of a carry.
        step: the leaves of the next carry.
        effects: of both.
    """

    def __init__(self, cond: Any, body: Any, init: Any, max_steps: Any, segment: int) -> None:
        if not callable(cond) or not callable(body):
            raise OptionError("while_loop: cond and body have to be functions.")
        for name, given, least in (("segment", segment, 1), ("max_steps", max_steps, 0)):
            wrong = isinstance(given, bool) or not isinstance(given, int) or given < least
            if wrong and not (name == "max_steps" and given is None):
                raise OptionError(f"while_loop({name}={given!r}): write a number of steps.")
        self.segment, self.max_steps = segment, max_steps
        self.carry = Carry("while_loop", init)

        def of_leaves(carry: Sequence[Any]) -> Any:
            return self.carry.taken(body(self.carry.whole(carry)))

        self.step = Function(of_leaves, self.carry.leaves)
        if self.carry.promote(self.step.avals):
            self.step = Function(of_leaves, self.carry.leaves)
        self.carry.check(self.step.avals)
        self.cond = Function(
            lambda carry: jnp.asarray(cond(self.carry.whole(carry))), self.carry.leaves
        )
        self.effects = self.step.effects | self.cond.effects

    def again(self) -> Steps:
        """The loop, whose steps are computed again for their gradients."""
        other = copy.copy(self)
        other.step = self.step.again()
        return other

    def parts(self, groups: Any, flags: Flags) -> Parts:
        """What a gradient goes through, of leaves of which some have tangents. None goes through
        what `cond` reads."""
        first = lambda consts, carry, _: self.step(consts, *carry)  # noqa: E731
        flags = [*flags[:2], [False] * len(flags[2])]
        return Parts.of(first, self.step.avals, groups, flags)

    def plain(self, consts: Any, carry: Any, of_cond: Any) -> list[Any]:
        """Takes all steps, as `jax.lax.while_loop` does: the last carry."""
        more = lambda at: self._more(of_cond, *at)  # noqa: E731
        body = lambda at: (self.step(consts, *at[0]), at[1] + 1)  # noqa: E731
        found: list[Any] = lax.while_loop(more, body, (list(carry), _none()))[0]
        return found

    def first(self, of_cond: Any, carry: Any) -> At:
        """Where the loop begins."""
        active = self._more(of_cond, carry, _none())
        # A number of each device where the predicate is, in `jax.shard_map`.
        return At(list(carry), active, _none() * active, _none())

    def after(self, consts: Any, of_cond: Any, at: At) -> At:
        """Takes a step, in the lanes that go on."""
        carry = self.next(consts, at.carry, at.active)
        taken = at.taken + at.active
        return At(carry, at.active & self._more(of_cond, carry, taken), taken, at.total + 1)

    def next(self, consts: Any, carry: Any, active: Any) -> list[Any]:
        """The next carry; in lanes that are not active, the same."""
        return held(active, self.step(consts, *carry), carry, self.effects)

    def run(
        self, consts: Any, of_cond: Any, at: At, most_steps: int, rows: Any = ()
    ) -> tuple[At, list[Any]]:
        """Takes steps, at most so many; `rows` with the states before them, where it has leaves."""

        begin = at.total

        def body(place: Any) -> Any:
            at, rows = place
            pairs = zip(rows, at.carry, strict=False)
            rows = [row.at[at.total - begin].set(leaf) for row, leaf in pairs]
            return self.after(consts, of_cond, at), rows

        def goes_on(place: Any) -> Any:
            return any_of(place[0].active) & (place[0].total - begin < most_steps)

        at, found = lax.while_loop(goes_on, body, (at, list(rows)))
        return at, found

    def back(self, parts: Parts, consts: Any, of_cond: Any, taken: Any) -> Callable[..., Any]:
        """A step backwards: from its number, the state before it, the gradient of the carry after
        it and the sum of those of constants, both before it. Lanes that did not take it keep
        them."""
        step = lambda consts, carry, _: self.step(consts, *carry)  # noqa: E731

        def pull(n: Any, state: Any, gradient: Any, summed: Any) -> Any:
            more, pushed, _ = pulled(step, parts, [consts, state, of_cond], gradient)
            more = [a + b for a, b in zip(summed, more, strict=True)]
            chosen = functools.partial(held, n < taken, effects=self.effects)
            return chosen(pushed, gradient), chosen(more, summed)

        return pull

    def _more(self, of_cond: Any, carry: Any, taken: Any) -> Any:
        """Whether another step is taken."""
        (found,) = self.cond(of_cond, *carry)
        return found if self.max_steps is None else found & (taken < self.max_steps)


def _none() -> Any:
    return jnp.zeros((), jnp.int32)
