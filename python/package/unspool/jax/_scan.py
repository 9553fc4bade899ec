"""`unspool.jax.scan`: a loop of a known number of steps within a budget, and how its states go
through a spool."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from unspool.advice.segments import ScanReport
from unspool.errors import OptionError

from ._closures import Carry, Function, Halves
from ._perturbed import (
    Flags,
    Parts,
    derived,
    differentiable,
    divided,
    joined,
    transposable,
)
from ._planned import Planner, host_of, in_pieces, limit_of
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
    budget: int | str = "auto",
    segment: int | str = "auto",
    reverse: bool = False,
    unroll: int = 1,
    codec: Any = None,
    report: Callable[[ScanReport], Any] | None = None,
) -> tuple[Any, Any]:
    """`jax.lax.scan` whose gradient stays within a budget of memory.

    Without a gradient this is `jax.lax.scan`. Where one is taken, the loop keeps what fits: all
    that its steps save for the gradient, or that of the last steps only. The steps before them are
    cut into segments, of which the first carry is kept; the backward pass recomputes one segment
    after the other from there. These carries wait in the memory of XLA, or in a spool where that is
    too small for them. The gradients are those of `jax.lax.scan`: of `init`, of `xs`, and of
    everything traced that `f` closes over. Each step is recomputed at most once.

    The choice is made from sizes when JAX traces a gradient: nothing is run for it. With a spool,
    a codec or a segment that was given, carries go through a spool, which saves them in the middle
    of the compiled program. Then, and where a loop does not fit into XLA's memory otherwise, there
    are no second and no forward derivatives.

    Under `jax.disable_jit` this is `jax.lax.scan` too, and `f` is called with values. Under
    `jax.vmap`, sizes are those of all lanes, unless it goes over a `jax.jit` in which this is: then
    they are those of one.

    Small states go through a spool together, up to eight in a block, as a call costs more than
    copying them. XLA holds one block beside the loop: at most 256 KiB on the host and 8 MiB on a
    GPU, and as many times more as `jax.vmap` has lanes.

    Arguments:
        f: `f(carry, x)` returns `(carry, y)`.
        init: the first carry: a pytree. Of what is not an array, nothing is saved.
        xs: a pytree of arrays, whose first dimension is that of the steps; or None.
        length: the number of steps, where `xs` does not say it.
        spool: where carries are kept, under versions of its own: a `Spool`, or a list with one for
            each GPU. A compiled function keeps the spool that it was traced with. Without one, a
            spool is opened when it is needed, once for the process, in main memory and in the
            folder for temporary files.
        budget: bytes, or text such as `"8GiB"`, for what the gradient of the loop takes where JAX
            computes: carries, what steps save, and the gradients of carries and of what `f` closes
            over. Inputs and outputs of the steps, and their gradients, are not counted. `"auto"` is
            half of what is free when the gradient is traced; with a `spool` or `codec`, it is also
            at most what makes segments take as much as all carries together.
        segment: the number of steps in a segment; `"auto"` chooses it by the budget. A number, such
            as 1, sends the carry before each segment through a spool, whatever would fit.
        reverse: as in `jax.lax.scan`.
        unroll: as in `jax.lax.scan`.
        codec: of the carries in a spool, as in `Spool`. With a bound, gradients are those of a
            trajectory nearby. Each state is saved alone where what the codec does to a value
            depends on the rest of its array: zfp, and bounds of the range, the RMS, the PSNR and
            the L2 norm.
        report: is called with what was chosen, an object to be printed, each time that a gradient
            is traced. `report=print` shows it, with what other budgets would change.

    Returns:
        The last carry, and the outputs stacked, as `jax.lax.scan`.

    Raises:
        OptionError: an argument makes no sense; or, when it is traced, the program asks for what
            cannot be right with carries in a spool: second derivatives, a division over devices
            outside of `jax.shard_map`.
        NoPlanError: when a gradient is traced, the budget is too small; the text has the least one.
        jax.errors.JaxRuntimeError: when it runs: what `Spool.save` and `Spool.restore` raise.
    """
    planner = Planner(limit_of("scan", budget, segment), (spool, codec) != (None, None), report)
    through = functools.cache(lambda host=None: loop_of("scan", spool, host, codec))
    if planner.given or segment != "auto":
        through()
    if jax.config.jax_disable_jit:
        return _one_by_one(f, Carry("scan", init), xs, length, reverse=reverse)
    steps = _Steps(f, init, xs, length, segment=segment, reverse=bool(reverse), unroll=unroll)
    if segment != "auto":
        looped = differentiable(*_passes(steps, through()))
    else:
        looped = (_called_back if steps.step.calls_back else _planned)(steps, planner, through)
    carry, ys = steps.apart(looped(steps.step.consts, steps.carry.leaves, steps.xs))
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
        self, f: Any, init: Any, xs: Any, length: Any, *, segment: Any, reverse: bool, unroll: int
    ) -> None:
        if not callable(f):
            raise OptionError(f"scan(f={f!r}): that is not a function.")
        auto = segment == "auto"
        if not auto and (isinstance(segment, bool) or not isinstance(segment, int) or segment < 1):
            raise OptionError(
                f'scan(segment={segment!r}): write a number of steps, 1 or more, or "auto".'
            )
        leaves, tree = tree_util.tree_flatten(xs)
        self.xs = [jnp.asarray(leaf) for leaf in leaves]
        self.length = _length(self.xs, length)
        self.segment, self.reverse = 1 if auto else segment, reverse
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

    def part(self, length: int, segment: int) -> _Steps:
        """The loop with another number of steps, and of those in a segment."""
        other = copy.copy(self)
        other.length, other.segment = length, segment
        return other

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

    def whole(self, consts: Any, carry: Any, xs: Any) -> list[Any]:
        """Takes all steps: the leaves of the result."""
        carry, ys = self.run(consts, carry, xs, self.length)
        return [*carry, *ys]

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
        rows, of_rest = self.cut(rows, count, size)
        heads, of_last = self.cut(heads, count, 1)
        last = None
        if rest and back:
            at, last = body(at, of_rest, of_last, rest)
        whole = lambda at, given: body(at, *given, size)  # noqa: E731
        at, found = self._loop(whole, at, (rows, heads), count, size, back=back)
        if rest and not back:
            at, last = body(at, of_rest, of_last, rest)
        return at, self.joined(found, last)

    def _loop(
        self, body: Any, at: Any, rows: Any, count: int, size: int, *, back: bool = False
    ) -> tuple[Any, Any]:
        """`jax.lax.scan` over pieces of `size` steps. A single piece is compiled without a loop."""
        unroll = min(self.unroll // size or 1, count) if count > 1 else 0
        found = lax.scan(body, at, rows, count, reverse=self.reverse != back, unroll=unroll)
        return found[0], found[1]

    def cut(self, rows: Any, count: int, size: int) -> tuple[Any, Any]:
        """Rows as those of `count` pieces of `size`, and those that are left for the last piece."""

        def whole(leaf: Any) -> Any:
            chosen = leaf[len(leaf) - count * size :] if self.reverse else leaf[: count * size]
            return chosen.reshape(count, size, *leaf.shape[1:])

        def rest(leaf: Any) -> Any:
            return leaf[: len(leaf) - count * size] if self.reverse else leaf[count * size :]

        return tree_util.tree_map(whole, rows), tree_util.tree_map(rest, rows)

    def joined(self, whole: Any, rest: Any) -> Any:
        """The inverse of `cut`; `rest` is None where nothing is left."""
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


def _planned(
    steps: _Steps, planner: Planner, through: Callable[..., Loop]
) -> Callable[..., list[Any]]:
    """The loop as a function of constants, carry and inputs, cut as its gradient needs it."""

    def way_of(parts: Parts, groups: Any) -> Callable[..., list[Any]]:
        found = planner.cut(steps, parts, groups)
        spooled = lambda head: transposable(*_passes(head, through(host_of(found))))  # noqa: E731
        return in_pieces(steps, found.cut, spooled)

    return derived(steps.whole, steps.parts, way_of)


def _called_back(
    steps: _Steps, planner: Planner, through: Callable[..., Loop]
) -> Callable[..., list[Any]]:
    """The same for steps with callbacks, which run as by JAX itself in a `jax.custom_vjp`."""

    def forwards(parts: Parts, groups: Any) -> tuple[Any, Any]:
        found = planner.cut(steps, parts, groups)
        spooled = lambda head: differentiable(*_passes(head, through(host_of(found))))  # noqa: E731
        way = in_pieces(steps, found.cut, spooled)
        chosen, others = divided(parts.arguments, groups)

        def of_chosen(*chosen: Any) -> tuple[list[Any], list[Any]]:
            results = way(*joined(parts.arguments, chosen, others))
            return Halves(parts.results).chosen(results), results

        _, pull, results = jax.vjp(of_chosen, *chosen, has_aux=True)
        return results, pull

    return differentiable(steps.whole, steps.parts, forwards, lambda _, pull, given: pull(given))


def _passes(steps: _Steps, loop: Loop) -> tuple[Callable[..., Any], ...]:
    """The loop through a spool, as `differentiable` needs it."""
    states = States(loop, steps.carry.leaves)
    return (
        steps.whole,
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
