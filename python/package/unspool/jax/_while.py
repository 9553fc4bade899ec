"""`unspool.jax.while_loop`: a loop of any number of steps, whose states are in a spool."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from unspool.errors import OptionError

from ._closures import Carry, Function, axes_of
from ._perturbed import Flags, Parts, differentiable, divided
from ._spools import Loop, loop_of
from ._states import States, pulled

__all__ = ["while_loop"]


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    spool: Any = None,
    budget: int | str | None = None,
    max_steps: int | None = None,
    segment: int = 1,
    codec: Any = None,
) -> Any:
    """`jax.lax.while_loop` that has a gradient, with the states that this needs in a spool.

    The number of steps may depend on the data and need not be known or bounded: in a forward pass
    whose gradient is taken, the carry before each step (with `segment`, before each `segment`-th)
    is saved, and the backward pass takes as many steps as the forward pass has taken. With
    `segment=1`, small states are saved together as by `scan`; the last block is as large as the
    others. Under `jax.disable_jit` it is a loop of Python, and `body` is called with values.

    Arguments:
        cond: `cond(carry)` says whether another step is taken.
        body: `body(carry)` is the next carry.
        init: the first carry: a pytree. Of what is not an array, nothing is saved.
        spool, codec: as in `scan`.
        budget: without a spool, the main memory of one that this process opens for this and all
            later calls, with a disk in the folder for temporary files beside it: bytes, or text
            such as `"8GiB"`. None takes a share of what is free.
        max_steps: the most steps that are taken, whatever `cond` says; None for any number.
        segment: the number of steps between two states that are saved. From each of them, the
            states between are computed again, and kept by XLA while their gradients are taken.

    Returns:
        The last carry.

    Raises:
        OptionError, jax.errors.JaxRuntimeError: as `scan`.
    """
    loop = loop_of("while_loop", spool, budget, codec)
    if jax.config.jax_disable_jit:
        try:
            return _one_by_one(cond, body, Carry("while_loop", init), max_steps)
        except jax.errors.ConcretizationTypeError:
            pass  # There are no values within jax.vmap or jax.checkpoint.
    steps = _Steps(cond, body, init, max_steps, segment)
    carry = _differentiable(steps, loop)(steps.step.consts, steps.carry.leaves, steps.cond.consts)
    return steps.carry.whole(carry)


def _one_by_one(cond: Any, body: Any, carry: Carry, max_steps: int | None) -> Any:
    """The loop under `jax.disable_jit`: `body` is called with values, and JAX keeps the states."""

    leaves, taken = carry.leaves, 0
    while (max_steps is None or taken < max_steps) and cond(carry.whole(leaves)):
        leaves, taken = carry.taken(body(carry.whole(leaves))), taken + 1
    return carry.whole(leaves)


class _Steps:
    """A loop as it was written.

    Attributes:
        carry: the first carry.
        cond: whether there is another step, from the leaves of a carry.
        step: the leaves of the next carry.
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

    def more(self, of_cond: Any, carry: Any, taken: Any) -> Any:
        """Whether another step is taken."""
        (found,) = self.cond(of_cond, *carry)
        return found if self.max_steps is None else found & (taken < self.max_steps)

    def again(self) -> _Steps:
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

    def run(
        self, consts: Any, carry: Any, of_cond: Any, taken: Any, most: Any = None, rows: Any = ()
    ) -> Any:
        """Takes steps, at most until `most` were taken: the carry, how many were taken, and `rows`
        with the states before the steps of this call, where it has leaves."""

        def another(at: Any) -> Any:
            found = self.more(of_cond, *at[:2])
            return found if most is None else found & (at[1] < most)

        def body(at: Any) -> Any:
            carry, now, rows = at
            pairs = zip(rows, carry, strict=False)
            rows = [row.at[now - taken].set(leaf) for row, leaf in pairs]
            return self.step(consts, *carry), now + 1, rows

        return lax.while_loop(another, body, (list(carry), taken, list(rows)))


def _none() -> Any:
    return jnp.zeros((), jnp.int32)


def _differentiable(steps: _Steps, loop: Loop) -> Callable[..., Any]:
    """The loop as a function of constants and carry that has a gradient."""
    states = States(loop, steps.carry.leaves)
    return differentiable(
        lambda consts, carry, of_cond: steps.run(consts, carry, of_cond, _none())[0],
        steps.parts,
        states.whole(lambda parts, groups: _forwards(steps, states, parts, *groups)),
        states.whole(
            lambda parts, kept, given: _backwards(steps.again(), states, parts, kept, given)
        ),
    )


def _refuse_uneven(steps: _Steps, parts: Parts, *groups: Any) -> None:
    """Where devices may take different numbers of steps, a step must not wait for the others."""
    axes = axes_of(steps.cond.avals[0])
    chosen = divided(parts.step, groups)[0]
    for leaf in itertools.chain.from_iterable(chosen):
        if not axes <= axes_of(jax.typeof(leaf)):
            raise OptionError(
                "unspool.jax.while_loop: in this jax.shard_map each device may take another number "
                f"of steps, and a {leaf.dtype}{list(leaf.shape)} that is the same on all is "
                "used in the loop: its gradient would be summed over devices in every step, and "
                "they would wait for each other for ever. Make it vary before the loop: "
                f'jax.lax.pcast(value, {tuple(sorted(axes))}, to="varying").'
            )


def _size(steps: _Steps, states: States) -> int:
    """The number of steps between two saves: those of a segment, or those whose states are saved
    together."""
    most = states.most if steps.max_steps is None else min(states.most, steps.max_steps)
    return steps.segment if steps.segment > 1 else max(most, 1)


def _forwards(
    steps: _Steps, states: States, parts: Parts, consts: Any, carry: Any, of_cond: Any
) -> Any:
    """The loop, with its states saved, and what the backward pass needs besides them."""
    _refuse_uneven(steps, parts, consts, carry, of_cond)
    steps.again()  # What cannot be is refused before anything is saved.
    size = _size(steps, states)

    def another(at: Any) -> Any:
        carry, taken, _ = at
        return steps.more(of_cond, carry, taken)

    def piece(at: Any) -> Any:
        carry, taken, token = at
        first = [leaf[None] for leaf in carry]
        if size == 1:
            return steps.step(consts, *carry), taken + 1, states.save(token, first)
        if steps.segment > 1:
            token = states.save(token, first)
            return *steps.run(consts, carry, of_cond, taken, taken + size)[:2], token
        rows = _rows(carry, size)
        carry, taken, rows = steps.run(consts, carry, of_cond, taken, taken + size, rows)
        return carry, taken, states.save(token, rows)

    at = (list(carry), _none(), states.begin(carry))
    carry, taken, token = lax.while_loop(another, piece, at)
    token, templates = states.end(token, carry)
    return carry, (token, templates, consts, taken, of_cond)


def _backwards(steps: _Steps, states: States, parts: Parts, kept: Any, given: Any) -> Any:
    """The gradients of constants and carry."""
    token, templates, consts, taken, of_cond = kept
    size = _size(steps, states)

    def back(state: Any, gradient: Any, summed: Any) -> Any:
        step = lambda consts, carry, _: steps.step(consts, *carry)  # noqa: E731
        more, gradient, _ = pulled(step, parts, [consts, state, of_cond], gradient)
        return gradient, [a + b for a, b in zip(summed, more, strict=True)]

    def piece(at: Any) -> Any:
        left, gradient, summed, token = at
        token, rows = states.restore(token, templates, size if steps.segment == 1 else 1)
        if size == 1:
            return left - 1, *back([row[0] for row in rows], gradient, summed), token
        # All pieces but the last one have as many steps.
        count = (left - 1) % size + 1
        if steps.segment > 1:
            rows = _again(steps, consts, [row[0] for row in rows], count)

        def behind(n: Any, at: Any) -> Any:
            return back([row[count - 1 - n] for row in rows], *at)

        gradient, summed = lax.fori_loop(0, count, behind, (gradient, summed))
        return left - count, gradient, summed, token

    of_consts, of_carry, _ = parts.step
    summed = [jnp.zeros_like(leaf) for leaf in of_consts.chosen(consts)]
    at = (taken, list(given), summed, states.rewind(token))
    _, gradient, summed, token = lax.while_loop(lambda at: at[0] > 0, piece, at)
    gradient, summed = states.after(token, gradient, summed)
    return [summed, of_carry.narrowed(gradient, parts.arguments[1]), []]


def _again(steps: _Steps, consts: Any, state: Any, count: Any) -> Any:
    """The states of a segment of `count` steps, computed again."""

    def ahead(n: Any, at: Any) -> Any:
        state, rows = at
        state = steps.step(consts, *state)
        return state, [row.at[n].set(leaf) for row, leaf in zip(rows, state, strict=True)]

    at = (list(state), _rows(state, steps.segment))
    return lax.fori_loop(1, count, ahead, at)[1]


def _rows(state: Any, count: int) -> list[Any]:
    """Room for states, the first of which is this one."""
    return [jnp.broadcast_to(leaf, (count, *leaf.shape)) for leaf in state]
