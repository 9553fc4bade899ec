"""`unspool.jax.scan`: a loop of a known number of steps, whose states are in a spool."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from unspool.errors import OptionError

from ._closures import Carry, Function
from ._perturbed import Flags, Parts, differentiable
from ._spools import Loop, loop_of
from ._states import States, pulled

__all__ = ["scan"]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    spool: Any = None,
    budget: int | str | None = None,
    segment: int = 1,
    reverse: bool = False,
    unroll: int = 1,
    codec: Any = None,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, with the states that its gradient needs in a spool.

    Without a gradient this is `jax.lax.scan`. In a forward pass whose gradient is taken, the carry
    before each step (with `segment`, before each `segment`-th) is saved into the spool, in the
    middle of the compiled program; the backward pass restores one after the other, computes the
    steps again from there, and discards it. The gradients are those of `jax.lax.scan`: of `init`,
    of `xs`, and of everything traced that `f` closes over.

    Under `jax.disable_jit` this is `jax.lax.scan` too, and `f` is called with values.

    Small states are saved and restored together, up to eight in a block, as a call costs more than
    copying them. XLA holds one block beside the loop: at most 256 KiB on the host and 8 MiB on a
    GPU, and as many times more as `jax.vmap` has lanes.

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
        segment: the number of steps between two states that are saved. The steps between them are
            computed again together, and what their gradients need is kept by XLA meanwhile.
        reverse: as in `jax.lax.scan`.
        unroll: as in `jax.lax.scan`.
        codec: of the states, as in `Spool`. With a bound, gradients are those of a trajectory
            nearby. Each state is saved alone where what the codec does to a value depends on the
            rest of its array: zfp, and bounds of the range, the RMS, the PSNR and the L2 norm.

    Returns:
        The last carry, and the outputs stacked, as `jax.lax.scan`.

    Raises:
        OptionError: an argument makes no sense; or, when it is traced, the program asks for what
            cannot be right: second derivatives, a division over devices outside of
            `jax.shard_map`, lanes of `jax.vmap` with different numbers of steps.
        jax.errors.JaxRuntimeError: when it runs: what `Spool.save` and `Spool.restore` raise.
    """
    loop = loop_of("scan", spool, budget, codec)
    if jax.config.jax_disable_jit:
        return _one_by_one(f, Carry("scan", init), xs, length, reverse=reverse)
    steps = _Steps(f, init, xs, length, segment=segment, reverse=bool(reverse), unroll=unroll)
    found = _differentiable(steps, loop)(steps.step.consts, steps.carry.leaves, steps.xs)
    carry, ys = steps.apart(found)
    return steps.carry.whole(carry), tree_util.tree_unflatten(steps.outputs, ys)


def _one_by_one(f: Any, carry: Carry, xs: Any, length: Any, *, reverse: bool) -> tuple[Any, Any]:
    """The loop under `jax.disable_jit`: `f` is called with values, and JAX keeps the states."""

    def step(leaves: Any, x: Any) -> Any:
        given, y = f(carry.whole(leaves), x)
        return carry.taken(given), y

    leaves, ys = lax.scan(step, carry.leaves, xs, length, reverse=reverse)
    return carry.whole(leaves), ys


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
        self, f: Any, init: Any, xs: Any, length: Any, *, segment: int, reverse: bool, unroll: int
    ) -> None:
        if not callable(f):
            raise OptionError(f"scan(f={f!r}): that is not a function.")
        if isinstance(segment, bool) or not isinstance(segment, int) or segment < 1:
            raise OptionError(f"scan(segment={segment!r}): write a number of steps, 1 or more.")
        leaves, tree = tree_util.tree_flatten(xs)
        self.xs = [jnp.asarray(leaf) for leaf in leaves]
        self.length = _length(self.xs, length)
        self.segment, self.reverse = segment, reverse
        # All steps at once, as `jax.lax.scan` has it.
        whole = unroll is True or (unroll == 0 and unroll is not False)
        self.unroll = max(self.length, 1) if whole else int(unroll)
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

    def segments(self, length: int) -> int:
        """The number of states before `length` steps."""
        return -(-length // self.segment)

    def apart(self, found: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The leaves of a carry, and those of outputs, from both."""
        count = len(self.carry.leaves)
        return list(found[:count]), list(found[count:])

    def again(self) -> _Steps:
        """The loop, whose steps are computed again for their gradients."""
        other = copy.copy(self)
        other.step = self.step.again()
        return other

    def parts(self, groups: Any, flags: Flags) -> Parts:
        """What a gradient goes through, of leaves of which some have tangents."""

        def first(consts: Any, carry: Any, xs: Any) -> list[Any]:
            return self.step(consts, *carry, *(_row(leaf, self.length) for leaf in xs))

        return Parts.of(first, self.step.avals, groups, flags)

    def run(self, consts: Any, carry: Any, xs: Any, length: int) -> tuple[Any, Any]:
        """Takes steps, as `jax.lax.scan` does: the carry after them, and their outputs."""

        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            return self.apart(self.step(consts, *carry, *x))

        return self._loop(body, list(carry), list(xs), length, 1)

    def over(
        self,
        body: Callable[..., tuple[Any, Any]],
        at: Any,
        rows: Any,
        length: int,
        size: int,
        *,
        heads: Any = (),
        back: bool = False,
    ) -> tuple[Any, Any]:
        """Takes `length` steps in pieces of `size`, of which the last one may have fewer.

        Arguments:
            body: takes a piece: `body(at, rows, heads, length)` returns `at` and a list of rows.
            rows: arrays whose first dimension is that of the steps.
            heads: arrays whose first dimension is that of the pieces.
            back: from the last piece to the first.
        """
        count, rest = divmod(length, size)
        rows, of_rest = self._cut(rows, count, size)
        heads, of_last = self._cut(heads, count, 1)
        last = None
        if rest and back:
            at, last = body(at, of_rest, of_last, rest)
        whole = lambda at, given: body(at, *given, size)  # noqa: E731
        at, found = self._loop(whole, at, (rows, heads), count, size, back=back)
        if rest and not back:
            at, last = body(at, of_rest, of_last, rest)
        return at, self._joined(found, last)

    def _loop(
        self, body: Any, at: Any, rows: Any, count: int, size: int, *, back: bool = False
    ) -> tuple[Any, Any]:
        """`jax.lax.scan` over pieces of `size` steps. A single piece is compiled without a loop."""
        unroll = min(self.unroll // size or 1, count) if count > 1 else 0
        found = lax.scan(body, at, rows, count, reverse=self.reverse != back, unroll=unroll)
        return found[0], found[1]

    def _cut(self, rows: Any, count: int, size: int) -> tuple[Any, Any]:
        """Rows as those of `count` pieces of `size`, and those that are left for the last piece."""

        def whole(leaf: Any) -> Any:
            chosen = leaf[len(leaf) - count * size :] if self.reverse else leaf[: count * size]
            return chosen.reshape(count, size, *leaf.shape[1:])

        def rest(leaf: Any) -> Any:
            return leaf[: len(leaf) - count * size] if self.reverse else leaf[count * size :]

        return tree_util.tree_map(whole, rows), tree_util.tree_map(rest, rows)

    def _joined(self, whole: Any, rest: Any) -> Any:
        """The inverse of `_cut`; `rest` is None where nothing is left."""
        whole = [leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]) for leaf in whole]
        if rest is None:
            return whole
        pairs = zip(rest, whole, strict=True) if self.reverse else zip(whole, rest, strict=True)
        return [jnp.concatenate(pair) for pair in pairs]


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


def _differentiable(steps: _Steps, loop: Loop) -> Callable[..., Any]:
    """The loop as a function of constants, carry and inputs that has a gradient."""
    states = States(loop, steps.carry.leaves)

    def run(consts: Any, carry: Any, xs: Any) -> list[Any]:
        carry, ys = steps.run(consts, carry, xs, steps.length)
        return [*carry, *ys]

    return differentiable(
        run,
        steps.parts,
        states.whole(lambda parts, groups: _forwards(steps, states, *groups)),
        states.whole(
            lambda parts, kept, given: _backwards(steps.again(), states, parts, kept, given)
        ),
    )


def _forwards(steps: _Steps, states: States, consts: Any, carry: Any, xs: Any) -> Any:
    """The loop, with its states saved, and what the backward pass needs besides them."""
    steps.again()  # What cannot be is refused before anything is saved.

    def segment(carry: Any, x: Any, _: Any, length: int) -> Any:
        before = [leaf[None] for leaf in carry]
        carry, ys = steps.run(consts, carry, x, length)
        return carry, [*before, *ys]

    def block(at: Any, x: Any, _: Any, length: int) -> Any:
        carry, token = at
        carry, found = steps.over(segment, carry, x, length, steps.segment)
        before, ys = steps.apart(found)
        return (carry, states.save(token, before)), ys

    at = (list(carry), states.begin(carry))
    (carry, token), ys = steps.over(block, at, xs, steps.length, _block(steps, states))
    token, templates = states.end(token, carry)
    return [*carry, *ys], (token, templates, consts, xs)


def _backwards(steps: _Steps, states: States, parts: Parts, kept: Any, given: Any) -> Any:
    """The gradients of constants, carry and inputs."""
    token, templates, consts, xs = kept
    of_consts, of_carry, _ = parts.step
    count = sum(of_carry.flags)

    def segment(at: Any, rows: Any, before: Any, length: int) -> Any:
        gradient, summed = at
        x, y = rows

        def piece(consts: Any, carry: Any, x: Any) -> list[Any]:
            carry, ys = steps.run(consts, carry, x, length)
            return [*carry, *ys]

        given = [consts, [leaf[0] for leaf in before], x]
        more, gradient, of_x = pulled(piece, parts, given, [*gradient, *y])
        return (gradient, [a + b for a, b in zip(summed, more, strict=True)]), of_x

    def block(at: Any, rows: Any, _: Any, length: int) -> Any:
        at, token = at
        token, before = states.restore(token, templates, steps.segments(length))
        at, of_x = steps.over(segment, at, rows, length, steps.segment, heads=before, back=True)
        return (at, token), of_x

    summed = [jnp.zeros_like(leaf) for leaf in of_consts.chosen(consts)]
    at = ((list(given[:count]), summed), states.rewind(token))
    rows, size = (xs, list(given[count:])), _block(steps, states)
    (at, token), found = steps.over(block, at, rows, steps.length, size, back=True)
    gradient, summed, found = states.after(token, *at, found)
    return [summed, of_carry.narrowed(gradient, parts.arguments[1]), found]


def _block(steps: _Steps, states: States) -> int:
    """The number of steps whose states are saved together. One that divides all of them goes before
    a larger one, as XLA compiles the steps of a smaller last block once more."""
    count = max(steps.segments(steps.length), 1)
    most = min(states.most, count)
    group = next((n for n in range(most, most // 2, -1) if count % n == 0), most)
    return group * steps.segment
