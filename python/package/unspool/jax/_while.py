"""`unspool.jax.while_loop`: a loop of any number of steps, and how its states go through a spool.
Within a budget, they are in a stack of `_online`."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from unspool.errors import OptionError

from . import _online
from ._closures import Carry, Function, axes_of
from ._lanes import held, most
from ._perturbed import Flags, Parts, differentiable, divided
from ._planned import entries, limit_of
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
        budget: bytes, or text such as `"8GiB"`, for what the loop keeps for its gradient where JAX
            computes, without its arguments and outputs; `"auto"` is half of what is free when the
            gradient is traced. None, the default, sends carries through a spool.
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
    steps = _Steps(cond, body, init, max_steps, segment)
    carry = way(steps)(steps.step.consts, steps.carry.leaves, steps.cond.consts)
    return steps.carry.whole(carry)


def _way(spool: Any, budget: Any, segment: Any, codec: Any) -> Callable[[_Steps], Any]:
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


class At(NamedTuple):
    """Where a loop is. Under `jax.vmap`, each lane is somewhere else.

    Attributes:
        carry: its leaves.
        active: whether another step is taken.
        taken: the number of steps so far.
    """

    carry: list[Any]
    active: Any
    taken: Any


class _Steps:
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
        return At(list(carry), active, _none() * active)

    def after(self, consts: Any, of_cond: Any, at: At) -> At:
        """Takes a step, in the lanes that go on."""
        carry = self.next(consts, at.carry, at.active)
        taken = at.taken + at.active
        return At(carry, at.active & self._more(of_cond, carry, taken), taken)

    def next(self, consts: Any, carry: Any, active: Any) -> list[Any]:
        """The next carry; in lanes that are not active, the same."""
        return held(active, self.step(consts, *carry), carry, self.effects)

    def run(
        self, consts: Any, of_cond: Any, at: At, most_steps: int, rows: Any = ()
    ) -> tuple[At, list[Any]]:
        """Takes steps, at most so many; `rows` with the states before them, where it has leaves."""

        def body(place: Any) -> Any:
            at, n, rows = place
            pairs = zip(rows, at.carry, strict=False)
            rows = [row.at[n].set(leaf) for row, leaf in pairs]
            return self.after(consts, of_cond, at), n + 1, rows

        goes_on = lambda place: most(place[0].active) & (place[1] < most_steps)  # noqa: E731
        at, _, found = lax.while_loop(goes_on, body, (at, _none(), list(rows)))
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


def _spooled(steps: _Steps, loop: Loop) -> Callable[..., Any]:
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


def _stacked(steps: _Steps, limit: int | None) -> Callable[..., Any]:
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
    at, token = lax.while_loop(lambda place: most(place[0].active), piece, place)
    token, templates = states.end(token, at.carry)
    return at.carry, (token, templates, consts, at.taken, of_cond)


def _backwards(steps: _Steps, states: States, parts: Parts, kept: Any, given: Any) -> Any:
    """The gradients of constants and carry."""
    token, templates, consts, taken, of_cond = kept
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
    place = (most(taken), list(given), summed, states.rewind(token))
    _, gradient, summed, token = lax.while_loop(lambda place: place[0] > 0, piece, place)
    gradient, summed = states.after(token, gradient, summed)
    return [summed, of_carry.narrowed(gradient, parts.arguments[1]), []]


def _again(steps: _Steps, consts: Any, state: Any, begin: Any, end: Any, taken: Any) -> Any:
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
