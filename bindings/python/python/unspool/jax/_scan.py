"""`unspool.jax.scan`: a loop of a known number of steps, whose states are in a spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from unspool.errors import OptionError

from ._closures import Carry, Function
from ._spools import loop_of
from ._states import States, pulled, spread, zeros

__all__ = ["scan"]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    spool: Any = None,
    budget: int | str | None = None,
    every: int = 1,
    reverse: bool = False,
    unroll: int = 1,
    codec: Any = None,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, with the states that its gradient needs in a spool.

    Without a gradient this is `jax.lax.scan`. In a forward pass whose gradient is taken, the carry
    before each step (with `every`, before each `every`-th) is saved into the spool, in the middle
    of the compiled program; the backward pass restores one after the other, computes the steps
    again from there, and discards it. The gradients are those of `jax.lax.scan`: of `init`, of
    `xs`, and of everything traced that `f` closes over.

    Arguments:
        f: `f(carry, x)` returns `(carry, y)`.
        init: the first carry: a pytree. Of what is not an array, nothing is saved.
        xs: a pytree of arrays, whose first dimension is that of the steps; or None.
        length: the number of steps, where `xs` does not say it.
        spool: where states are kept, under versions of its own: a `Spool`, or a list with one for
            each GPU. A compiled function keeps the spool that it was traced with.
        budget: without a spool, the main memory of one that this process opens for this and all
            later calls, with a disk in the folder for temporary files beside it: bytes, or text
            such as `"8GiB"`. None takes a share of what is free.
        every: the number of steps between two states that are saved. The steps between them are
            computed again together, and what their gradients need is kept by XLA meanwhile.
        reverse: as in `jax.lax.scan`.
        unroll: as in `jax.lax.scan`.
        codec: of the states, as in `Spool`. With a bound, gradients are those of a trajectory
            nearby.

    Returns:
        The last carry, and the outputs stacked, as `jax.lax.scan`.

    Raises:
        OptionError: an argument makes no sense; or, when it is traced, the program asks for what
            cannot be right: second derivatives, a division over devices outside of
            `jax.shard_map`, lanes of `jax.vmap` with different numbers of steps.
        jax.errors.JaxRuntimeError: when it runs: what `Spool.save` and `Spool.restore` raise.
    """
    number = loop_of("scan", spool, budget, codec)
    steps = _Steps(f, init, xs, length, every=every, reverse=bool(reverse), unroll=unroll)
    carry, ys = _differentiable(steps, number)(steps.step.consts, steps.carry.leaves, steps.xs)
    return steps.carry.whole(carry), tree_util.tree_unflatten(steps.outputs, ys)


class _Steps:
    """A loop as it was written.

    Attributes:
        carry: the first carry.
        xs: the leaves of the inputs.
        length: the number of steps.
        step: the leaves of a step's carry and output, from those of its carry and input.
        outputs: how the outputs hang together.
    """

    def __init__(
        self, f: Any, init: Any, xs: Any, length: Any, *, every: int, reverse: bool, unroll: int
    ) -> None:
        if not callable(f):
            raise OptionError(f"scan(f={f!r}): that is not a function.")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise OptionError(f"scan(every={every!r}): write a number of steps, 1 or more.")
        leaves, tree = tree_util.tree_flatten(xs)
        self.xs = [jnp.asarray(leaf) for leaf in leaves]
        self.length = _length(self.xs, length)
        self.every, self.reverse, self.unroll = every, reverse, unroll
        self.carry = Carry("scan", init)

        def of_leaves(carry: Sequence[Any], x: Sequence[Any]) -> Any:
            returned = f(self.carry.whole(carry), tree_util.tree_unflatten(tree, x))
            if not isinstance(returned, tuple | list) or len(returned) != 2:
                raise OptionError(
                    f"scan: f(carry, x) returned a {type(returned).__name__}: it must return the "
                    "pair (carry, y), with None as y where there is no output."
                )
            return self.carry.taken(returned[0]), returned[1]

        rows = [_row(leaf, self.length) for leaf in self.xs]
        self.step = Function(of_leaves, self.carry.leaves, rows)
        if self.carry.promote(self.step.avals[: len(self.carry.leaves)]):
            self.step = Function(of_leaves, self.carry.leaves, rows)
        self.carry.check(self.step.avals[: len(self.carry.leaves)])
        self.outputs = self.step.tree.children()[1]

    def run(self, consts: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
        """Takes steps, as `jax.lax.scan` does."""

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            return self._divided(self.step(consts, *carry, *x))

        unroll = min(self.unroll, length) if length else 1
        found = lax.scan(body, list(carry), list(xs), length, reverse=self.reverse, unroll=unroll)
        return found[0], found[1]

    def piece(self, consts: Any, carry: Any, xs: Any, length: int) -> list[Any]:
        """The leaves of a carry and of outputs after some steps; of one step without a loop."""
        if self.every == 1:
            return self.step(consts, *carry, *xs)
        carry, ys = self.run(consts, carry, xs, length)
        return [*carry, *ys]

    def _divided(self, flat: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """A carry and the rest."""
        count = len(self.carry.leaves)
        return list(flat[:count]), list(flat[count:])

    def cut(self, leaf: Any) -> tuple[Any, Any]:
        """Rows as those of whole segments, and those of the last one, which has fewer steps."""
        if self.every == 1:
            return leaf, leaf[:0]
        rest = self.length % self.every
        at = rest if self.reverse else self.length - rest
        first, second = leaf[:at], leaf[at:]
        whole, part = (second, first) if self.reverse else (first, second)
        return whole.reshape(self.length // self.every, self.every, *leaf.shape[1:]), part

    def joined(self, whole: Any, part: Any = None) -> Any:
        """The inverse of `cut`; without `part`, where no segment has fewer steps."""
        if self.every == 1:
            return whole
        whole = whole.reshape(whole.shape[0] * self.every, *whole.shape[2:])
        if part is None:
            return whole
        return jnp.concatenate([part, whole] if self.reverse else [whole, part])


def _row(leaf: Any, length: int) -> Any:
    return leaf[0] if length else jnp.zeros(leaf.shape[1:], leaf.dtype)


def _length(leaves: Sequence[Any], length: Any) -> int:
    if any(leaf.ndim == 0 for leaf in leaves):
        raise OptionError("scan(xs=...): a leaf has no dimension of steps.")
    found: set[int] = {leaf.shape[0] for leaf in leaves}
    found |= set() if length is None else {int(length)}
    if len(found) > 1:
        raise OptionError(f"scan: xs and length say different numbers of steps: {sorted(found)}.")
    if not found or min(found) < 0:
        raise OptionError("scan: give xs, or length, the number of steps, 0 or more.")
    return found.pop()


def _differentiable(steps: _Steps, number: int) -> Callable[..., Any]:
    """The loop as a function of constants, carry and inputs that has a gradient."""
    states = States(number, steps.carry.leaves)
    run = jax.custom_vjp(lambda consts, carry, xs: steps.run(consts, carry, xs, steps.length))
    run.defvjp(
        lambda consts, carry, xs: _forwards(steps, states, consts, carry, xs),
        lambda kept, given: _backwards(steps, states, kept, given),
    )
    return run


def _forwards(steps: _Steps, states: States, consts: Any, carry: Any, xs: Any) -> Any:
    """The loop, with its states saved, and what the backward pass needs besides them."""
    cuts = [steps.cut(leaf) for leaf in xs]

    def body(at: Any, x: Any) -> Any:
        carry, token = at
        token = states.save(token, carry)
        carry, ys = steps._divided(steps.piece(consts, carry, x, steps.every))
        return (carry, token), ys

    token = states.begin(carry)
    (carry, token), ys = _over(steps, body, (list(carry), token), [whole for whole, _ in cuts])
    if rest := steps.length % steps.every:
        token = states.save(token, carry)
        found = steps.piece(consts, carry, [part for _, part in cuts], rest)
        carry, parts = steps._divided(found)
        ys = [steps.joined(whole, part) for whole, part in zip(ys, parts, strict=True)]
    else:
        ys = [steps.joined(whole) for whole in ys]
    token, templates = states.end(token, carry)
    return (carry, ys), (token, templates, consts, xs)


def _backwards(steps: _Steps, states: States, kept: Any, given: Any) -> Any:
    """The gradients of constants, carry and inputs."""
    token, templates, consts, xs = kept
    carry, ys = given
    cuts = [steps.cut(leaf) for leaf in xs]
    # Of outputs and carry, only what floats has a gradient.
    wanted = [steps.cut(leaf) for leaf in ys if leaf.dtype != jax.dtypes.float0]
    gradient = [leaf for leaf in carry if leaf.dtype != jax.dtypes.float0]
    summed = zeros(consts)

    def back(at: Any, x: Any, y: Any, length: int) -> Any:
        gradient, summed, token = at
        token, state = states.restore(token, templates)

        def piece(consts: Any, carry: Any, x: Any) -> list[Any]:
            return steps.piece(consts, carry, x, length)

        more, gradient, of_x = pulled(piece, [consts, state, x], [*gradient, *y])
        return (gradient, [a + b for a, b in zip(summed, more, strict=True)], token), of_x

    at = (gradient, summed, states.rewind(token))
    parts: list[Any] = []
    if rest := steps.length % steps.every:
        at, parts = back(at, [part for _, part in cuts], [part for _, part in wanted], rest)
    rows = ([whole for whole, _ in cuts], [whole for whole, _ in wanted])
    at, wholes = _over(steps, lambda at, row: back(at, *row, steps.every), at, rows, back=True)
    if not parts:
        parts = [None] * len(wholes)
    of_xs = [steps.joined(whole, part) for whole, part in zip(wholes, parts, strict=True)]
    gradient, summed, of_xs = states.after(at[2], at[0], at[1], of_xs)
    return spread(summed, consts), spread(gradient, steps.carry.leaves), spread(of_xs, xs)


def _over(steps: _Steps, body: Any, at: Any, rows: Any, *, back: bool = False) -> Any:
    """A loop over whole segments."""
    unroll = steps.unroll if steps.every == 1 and not back else 1
    count = steps.length // steps.every
    return lax.scan(
        body, at, rows, count, reverse=steps.reverse != back, unroll=min(unroll, max(count, 1))
    )
