"""`unspool.jax.while_loop`: a loop of any number of steps, and how its states go through a spool.
Within a budget, they are in a stack of `_online`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from unspool.errors import OptionError

from . import _online
from ._closures import Carry, axes_of
from ._lanes import any_of
from ._perturbed import Parts, differentiable, divided
from ._planned import entries, limit_of
from ._spools import Loop, loop_of
from ._states import States
from ._steps import Steps

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
    """`jax.lax.while_loop` that has a gradient, for which its states go through a spool, or wait
    within a budget.

    The number of steps may depend on the data and need not be known or bounded: in a forward pass
    whose gradient is taken, the carry before each step (with `segment`, before each `segment`-th)
    is saved, and the backward pass takes as many steps as the forward pass has taken. With
    `segment=1`, small states are saved together as by `scan`; the last block is as large as the
    others. Under `jax.disable_jit` it is a loop of Python, and `body` is called with values.

    With a budget, as many carries as fit are in the memory of XLA, and nothing in a spool. Where
    the loop takes more steps, every second one is forgotten as often as it takes, and the backward
    pass recomputes what is between those that are left. The memory is allocated before the first
    step, however many follow.

    Under `jax.vmap` the lanes may take different numbers of steps. One that has ended keeps its
    carry, and its gradient goes past the steps that it does not take.

    Arguments:
        cond: `cond(carry)` says whether another step is taken.
        body: `body(carry)` is the next carry.
        init: the first carry: a pytree. Of what is not an array, nothing is saved.
        spool, codec: as in `scan`.
        budget: bytes, or text such as `"8GiB"`, for what the gradient of the loop takes where JAX
            computes; `"auto"` is half of what is free when the gradient is traced. None, the
            default, sends carries through a spool.
        max_steps: the most steps that are taken, whatever `cond` says; None for any number.
        segment: the number of steps between two carries that are saved into a spool. From each of
            them, the carries between are recomputed, and kept by XLA while their gradients are
            taken.

    Returns:
        The last carry.

    Raises:
        OptionError, NoPlanError, jax.errors.JaxRuntimeError: as `scan`.
    """
    way = _way(spool, budget, segment, codec)
    if jax.config.jax_disable_jit:
        try:
            return _one_by_one(cond, body, Carry("while_loop", init), max_steps)
        except jax.errors.ConcretizationTypeError:
            pass  # There are no values within jax.vmap or jax.checkpoint.
    steps = Steps(cond, body, init, max_steps, segment)
    carry = way(steps)(steps.step.consts, steps.carry.leaves, steps.cond.consts)
    return steps.carry.whole(carry)


def _way(spool: Any, budget: Any, segment: Any, codec: Any) -> Callable[[Steps], Any]:
    """What gives the steps of a loop a gradient."""
    if budget is None:
        return functools.partial(_spooled, loop=loop_of("while_loop", spool, None, codec))
    if (spool, codec) != (None, None):
        raise OptionError(
            "while_loop: a budget is for carries in the memory of XLA. With a spool or a codec "
            "they go through a spool, whose tiers say how much it takes. Leave one of them out."
        )
    limit = limit_of("while_loop", budget, "auto" if segment == 1 else segment)
    return functools.partial(_stacked, limit=limit)


def _one_by_one(cond: Any, body: Any, carry: Carry, max_steps: int | None) -> Any:
    """The loop under `jax.disable_jit`: `body` is called with values, and JAX keeps the states."""

    leaves, taken = carry.leaves, 0
    while (max_steps is None or taken < max_steps) and cond(carry.whole(leaves)):
        leaves, taken = carry.taken(body(carry.whole(leaves))), taken + 1
    return carry.whole(leaves)


def _spooled(steps: Steps, loop: Loop) -> Callable[..., Any]:
    """The loop as a function of constants and carry that has a gradient, through a spool."""
    states = States(loop, steps.carry.leaves)
    return differentiable(
        steps.plain,
        steps.parts,
        states.whole(lambda parts, groups: _forwards(steps, states, parts, *groups)),
        states.whole(
            lambda parts, kept, given: _backwards(steps.again(), states, parts, kept, given)
        ),
    )


def _stacked(steps: Steps, limit: int | None) -> Callable[..., Any]:
    """The same with states in the memory of XLA."""

    def forwards(parts: Parts, groups: Any) -> Any:
        _refuse_uneven(steps, parts, *groups)
        steps.again()  # What cannot be is refused before anything is computed.
        longest = min(steps.max_steps or _online.MOST, _online.MOST) | 1
        counts = range(min(_online.LEAST, longest), longest + 1)
        room = entries(steps, parts, groups, limit, counts)
        return _online.forwards(steps, room, *groups)

    return differentiable(
        steps.plain,
        steps.parts,
        forwards,
        lambda parts, kept, given: _online.backwards(steps.again(), parts, kept, given),
    )


def _refuse_uneven(steps: Steps, parts: Parts, *groups: Any) -> None:
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


def _size(steps: Steps, states: States) -> int:
    """The number of steps between two saves: those of a segment, or those whose states are saved
    together."""
    most = states.most if steps.max_steps is None else min(states.most, steps.max_steps)
    return steps.segment if steps.segment > 1 else max(most, 1)


def _forwards(
    steps: Steps, states: States, parts: Parts, consts: Any, carry: Any, of_cond: Any
) -> Any:
    """The loop, with its states saved, and what the backward pass needs besides them."""
    _refuse_uneven(steps, parts, consts, carry, of_cond)
    steps.again()  # What cannot be is refused before anything is saved.
    size = _size(steps, states)

    def piece(place: Any) -> Any:
        at, token = place
        before = [leaf[None] for leaf in at.carry]
        if size == 1:
            return steps.after(consts, of_cond, at), states.save(token, before)
        if steps.segment > 1:
            token = states.save(token, before)
            return steps.run(consts, of_cond, at, size)[0], token
        at, rows = steps.run(consts, of_cond, at, size, _rows(at.carry, size))
        return at, states.save(token, rows)

    place = (steps.first(of_cond, carry), states.begin(carry))
    at, token = lax.while_loop(lambda place: any_of(place[0].active), piece, place)
    token, templates = states.end(token, at.carry)
    return at.carry, (token, templates, consts, of_cond, at.taken, at.total)


def _backwards(steps: Steps, states: States, parts: Parts, kept: Any, given: Any) -> Any:
    """The gradients of constants and carry."""
    token, templates, consts, of_cond, taken, total = kept
    size = _size(steps, states)
    back = steps.back(parts, consts, of_cond, taken)

    def piece(place: Any) -> Any:
        left, gradient, summed, token = place
        token, rows = states.restore(token, templates, size if steps.segment == 1 else 1)
        if size == 1:
            return left - 1, *back(left - 1, [row[0] for row in rows], gradient, summed), token
        # All pieces but the last one have as many steps.
        count = (left - 1) % size + 1
        if steps.segment > 1:
            rows = _again(steps, consts, [row[0] for row in rows], left - count, left, taken)

        def behind(n: Any, place: Any) -> Any:
            here = count - 1 - n
            return back(left - count + here, [row[here] for row in rows], *place)

        gradient, summed = lax.fori_loop(0, count, behind, (gradient, summed))
        return left - count, gradient, summed, token

    of_consts, of_carry, _ = parts.step
    summed = [jnp.zeros_like(leaf) for leaf in of_consts.chosen(consts)]
    place = (total, list(given), summed, states.rewind(token))
    _, gradient, summed, token = lax.while_loop(lambda place: place[0] > 0, piece, place)
    gradient, summed = states.after(token, gradient, summed)
    return [summed, of_carry.narrowed(gradient, parts.arguments[1]), []]


def _again(steps: Steps, consts: Any, state: Any, begin: Any, end: Any, taken: Any) -> Any:
    """The states before the steps of a segment, computed again."""

    def ahead(n: Any, place: Any) -> Any:
        state, rows = place
        state = steps.next(consts, state, begin + n <= taken)
        return state, [row.at[n].set(leaf) for row, leaf in zip(rows, state, strict=True)]

    place = (list(state), _rows(state, steps.segment))
    return lax.fori_loop(1, end - begin, ahead, place)[1]


def _rows(state: Any, count: int) -> list[Any]:
    """Room for states, the first of which is this one."""
    return [jnp.broadcast_to(leaf, (count, *leaf.shape)) for leaf in state]
