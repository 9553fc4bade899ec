"""A linear operation of which only the transpose exists: how JAX is told a backward pass.

That of `jax.custom_vjp` does not know `jax.vmap`: it cannot be in the rule of a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from unspool.errors import OptionError

__all__ = ["TWICE", "linear"]

TWICE = (
    "unspool.jax: what is differentiated through a spool or while_loop once cannot be "
    "differentiated again (a gradient of a gradient, jax.hessian), nor forwards (jax.jvp, "
    "jax.jacfwd, jax.linearize). Use unspool.jax.scan without a spool and a segment, within a "
    "larger budget, for that."
)

#: From what is kept and the cotangents of the result, those of the tangents.
Back = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def linear(
    back: Back, kept: Sequence[Any], dots: Sequence[Any], likes: Iterable[Any]
) -> Sequence[Any]:
    """The tangents of a result that is like `likes`, from those of what it was made of."""
    tangents = tuple(each.to_tangent_aval() for each in likes)
    found: Sequence[Any] = linear_p.bind(
        *kept, *dots, back=back, count=len(kept), tangents=tangents
    )
    return found


def _transposed(given: Any, *operands: Any, back: Back, count: int, tangents: Any) -> Any:
    del tangents
    found = back(operands[:count], [ad.instantiate_zeros(each) for each in given])
    return [*[None] * count, *found]


def _batched(operands: Any, dims: Any, *, back: Back, count: int, tangents: Any) -> Any:
    """All lanes at once. What is the same in all of them has the sum of their cotangents."""
    pairs = zip(operands, dims, strict=True)
    lanes = next(each.shape[dim] for each, dim in pairs if dim is not None)
    kept_dims, dots_dims = list(dims[:count]), dims[count:]

    def of_lanes(kept: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        found = jax.vmap(back, (kept_dims, 0), 0)(list(kept), list(given))
        return [
            jnp.sum(each, 0) if dim is None else jnp.moveaxis(each, 0, dim)
            for each, dim in zip(found, dots_dims, strict=True)
        ]

    larger = tuple(each.update(shape=(lanes, *each.shape)) for each in tangents)
    found = linear_p.bind(*operands, back=of_lanes, count=count, tangents=larger)
    return found, [0] * len(found)


def _refused(*_: Any, **__: Any) -> Any:
    raise OptionError(TWICE)


linear_p = Primitive("unspool_linear")
linear_p.multiple_results = True
linear_p.def_abstract_eval(lambda *_, tangents, **__: list(tangents))
linear_p.def_impl(_refused)
ad.primitive_jvps[linear_p] = _refused
ad.primitive_transposes[linear_p] = _transposed
batching.primitive_batchers[linear_p] = _batched
mlir.register_lowering(linear_p, _refused)
