"""What a loop asks of the lanes of `jax.vmap`: how many there are, whether any of them goes on, and
that one that has ended stays as it is.

A loop is traced for one lane. Only the batching rule of an operation is told of the others. Without
`jax.vmap`, the operations here are nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree_util
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from unspool.errors import OptionError

from ._linear import TWICE

__all__ = ["any_of", "held", "lanes"]

#: The effect of `jax.experimental.io_callback`.
CALLS = "IO"

ACROSS = (
    "unspool.jax.while_loop: under jax.vmap the lanes of this loop take different numbers of "
    "steps, and a step reads the others (jax.lax.psum and its like over {name!r}), also those that "
    "have ended. Make the predicate the same in all lanes: jax.lax.pmax(predicate, {name!r})."
)
TOGETHER = (
    "unspool.jax.while_loop: under jax.vmap the lanes of this loop take different numbers of "
    "steps, and jax.experimental.io_callback would be called for those that have ended, too. "
    "jax.lax.while_loop refuses that as well: loop over the lanes by jax.lax.map."
)


def lanes(groups: Sequence[Sequence[Any]]) -> int:
    """How many times as large `jax.vmap` makes what is computed from these leaves. Where it goes
    over a compiled function that is called in it, nobody knows yet."""
    found: list[int] = []
    lanes_p.bind(*map(jax.lax.stop_gradient, tree_util.tree_leaves(groups)), note=found.append)
    return math.prod(found)


def any_of(active: Any) -> Any:
    """Whether any lane is active."""
    return any_p.bind(active)


def held(active: Any, new: Sequence[Any], old: Sequence[Any], effects: frozenset[str]) -> list[Any]:
    """The new leaves, and in lanes that are not active the old ones. Without lanes, the caller's
    loop is active.

    Arguments:
        effects: of what has computed the new leaves.
    """
    pairs = zip(new, old, strict=True)
    return [held_p.bind(active, *pair, of=effects) for pair in pairs]


def _note_lanes(operands: Any, dims: Any, *, note: Any) -> Any:
    pairs = [(each, dim) for each, dim in zip(operands, dims, strict=True) if dim is not None]
    note(pairs[0][0].shape[pairs[0][1]])
    return lanes_p.bind(*operands, note=note), []


def _any_of_lanes(operands: Any, dims: Any) -> Any:
    return any_p.bind(jnp.any(operands[0], axis=dims[0])), None


def _hold_lanes(axis: Any, operands: Any, dims: Any, *, of: frozenset[str]) -> Any:
    if all(dim is None for dim in dims):
        return held_p.bind(*operands, of=of), None
    if dims[0] is not None:
        _refuse(axis.name, of)
        return jax.vmap(jnp.where, dims, axis_size=axis.size)(*operands), 0
    # The lanes of an outer `jax.vmap` may end apart.
    new, old = jax.vmap(lambda *pair: pair, dims[1:], axis_size=axis.size)(*operands[1:])
    return held_p.bind(operands[0], new, old, of=of), 0


def _refuse(name: Any, effects: frozenset[str]) -> None:
    if name in effects:
        raise OptionError(ACROSS.format(name=name))
    if CALLS in effects:
        raise OptionError(TOGETHER)


def _refuse_twice(*_: Any, **__: Any) -> Any:
    raise OptionError(TWICE)


def _operation(name: str, result: Any, lower: Any, *, several: bool = False) -> Any:
    primitive = Primitive(f"unspool_{name}")
    primitive.multiple_results = several
    primitive.def_abstract_eval(result)
    primitive.def_impl(result)
    mlir.register_lowering(primitive, lower)
    return primitive


lanes_p = _operation("lanes", lambda *_, note: [], lambda ctx, *_, note: [], several=True)
ad.primitive_jvps[lanes_p] = lambda given, _, note: (lanes_p.bind(*given, note=note), [])
batching.primitive_batchers[lanes_p] = _note_lanes

any_p = _operation("any", lambda active: active, lambda ctx, active: [active])
ad.primitive_jvps[any_p] = _refuse_twice
batching.primitive_batchers[any_p] = _any_of_lanes

held_p = _operation(
    "held", lambda active, new, old, of: new, lambda ctx, active, new, old, of: [new]
)
ad.primitive_jvps[held_p] = _refuse_twice
batching.fancy_primitive_batchers[held_p] = _hold_lanes
