"""What a program of JAX calls in our extension: five operations, each a foreign function of XLA.

A forward pass is `begin`, a `save` for each state, and `end`; a backward pass is `rewind`, and a
`restore` for each state, the last one first. All of them take a token and return it: whatever XLA
does with a program, it keeps their order, because each needs the token of the one before.

To JAX they are pure, so that what nobody needs is left out, and `jax.checkpoint` may compute a
forward pass again. To XLA they have side effects, so that no two of them are merged.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from unspool._unspool import jax_handlers
from unspool.errors import MissingLibraryError, OptionError

from ._linear import TWICE

__all__ = ["after", "begin", "end", "restore", "rewind", "save", "template"]

#: The number of a history, in two words: JAX has integers of 64 bits only where they are enabled.
TOKEN = (2,)

BATCHED = (
    "unspool.jax: under jax.vmap, each lane would take another branch around this loop, because "
    "the predicate of a jax.lax.cond depends on what is mapped over. One history has one order of "
    "steps: loop over the lanes by jax.lax.map instead of jax.vmap, or choose between results by "
    "jnp.where."
)
SHARDED = (
    "unspool.jax: this program is divided over several devices by XLA, which cannot divide what a "
    "spool keeps. Put the loop into jax.shard_map over all axes of the mesh: each device then has "
    "a history of its own part."
)


def template(leaf: Any) -> Any:
    """An array without items, or a scalar, by which `restore` knows what `leaf` is like: it is
    mapped over by `jax.vmap`, and varies over devices, as `leaf` does."""
    return leaf if leaf.ndim == 0 else leaf[:0]


def begin(leaves: Sequence[Any], **loop: int) -> Any:
    """A token, which orders the saves and restores of one loop, for a state of these leaves.

    It is made from no items of the leaves, so that it varies over devices (in `shard_map`) as they
    do, without reading them.
    """
    if any(_is_divided(leaf) for leaf in leaves):
        raise OptionError(SHARDED)
    seeds = [jnp.ravel(leaf)[:0] for leaf in leaves]
    # Sums of 32-bit numbers are of 64 bits where JAX has them, unless the dtype is given.
    seed = sum((jnp.sum(each != each, dtype=jnp.uint32) for each in seeds), jnp.uint32(0))
    return _bind(begin_p, [jnp.broadcast_to(seed, TOKEN)], loop)[0]


def save(token: Any, leaves: Sequence[Any], **loop: int) -> Any:
    """Saves a state; the token after that."""
    return _bind(save_p, [token, *leaves], loop)[0]


def end(token: Any, **loop: int) -> Any:
    """Ends a forward pass; the token after that."""
    return _bind(end_p, [token], loop)[0]


def rewind(token: Any, **loop: int) -> Any:
    """Begins a backward pass; the token after that."""
    return _bind(rewind_p, [token], loop)[0]


def restore(
    token: Any, templates: Sequence[Any], shapes: Sequence[tuple[int, ...]], **loop: int
) -> tuple[Any, list[Any]]:
    """The state that was saved last and not restored yet; the token after that, and its leaves."""
    found = _bind(restore_p, [token, *templates], {"shapes": tuple(map(tuple, shapes)), **loop})
    return found[0], found[1:]


def after(token: Any, leaves: Sequence[Any]) -> list[Any]:
    """The same leaves, for which JAX has to have come as far as `token`: states are read, and so
    discarded, also where what is made of them is not needed."""
    return _bind(after_p, [token, *leaves], {})


def _bind(primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    found: list[Any] = primitive.bind(*operands, **params)
    return found


def _of_token(token: Any, *_: Any, **params: Any) -> list[Any]:
    return [token]


def _of_state(token: Any, *templates: Any, shapes: Any, **_: Any) -> list[Any]:
    made = [
        each.update(shape=shape, weak_type=False)
        for each, shape in zip(templates, shapes, strict=True)
    ]
    return [token, *made]


def _refuse_batched(token_dim: Any) -> None:
    if token_dim is not None:
        raise OptionError(BATCHED)


def _batch_begin(operands: Any, dims: Any, **params: Any) -> Any:
    """One history for all lanes."""
    (seed,), (dim,) = operands, dims
    return begin_p.bind(jax.lax.index_in_dim(seed, 0, dim, keepdims=False), **params), [None]


def _batch_save(operands: Any, dims: Any, **params: Any) -> Any:
    """What is mapped over is a larger array; what is not stays as it is."""
    _refuse_batched(dims[0])
    moved = [
        each if dim is None else jnp.moveaxis(each, dim, 0)
        for each, dim in zip(operands, dims, strict=True)
    ]
    return save_p.bind(*moved, **params), [None]


def _batch_restore(operands: Any, dims: Any, *, shapes: Any, **params: Any) -> Any:
    _refuse_batched(dims[0])
    token, *templates = operands
    grown, larger = [], []
    for each, dim, shape in zip(templates, dims[1:], shapes, strict=True):
        mapped = dim is not None
        grown.append(jnp.moveaxis(each, dim, 0) if mapped else each)
        larger.append((each.shape[dim], *shape) if mapped else shape)
    found = restore_p.bind(token, *grown, shapes=tuple(larger), **params)
    return found, [None, *(None if dim is None else 0 for dim in dims[1:])]


def _batch_token(primitive: Any, operands: Any, dims: Any, **params: Any) -> Any:
    _refuse_batched(dims[0])
    return primitive.bind(*operands, **params), [None]


def _batch_after(operands: Any, dims: Any) -> Any:
    _refuse_batched(dims[0])
    return after_p.bind(*operands), list(dims[1:])


def _refuse_twice(*_: Any, **params: Any) -> Any:
    raise OptionError(TWICE)


@functools.cache
def _compiled(primitive: Any, params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(primitive.bind, **dict(params)))


def _lower(name: str, aliased: bool) -> Any:
    """How an operation becomes a call of XLA. The token stays in its place."""
    options: dict[str, Any] = {"has_side_effect": True}
    if aliased:
        options["operand_output_aliases"] = {0: 0}
    call = jax.ffi.ffi_lowering(name, **options)

    def lower(ctx: Any, *operands: Any, loop: int, site: int, shapes: Any = None) -> Any:
        _refuse_sharded(ctx)
        return call(ctx, *operands, loop=np.int64(loop), site=np.int64(site))

    return lower


def _is_divided(leaf: Any) -> bool:
    """Whether the type of an array says that it is divided over devices."""
    sharding = getattr(jax.typeof(leaf), "sharding", None)
    return any(part is not None for part in getattr(sharding, "spec", None) or ())


def _refuse_sharded(ctx: Any) -> None:
    """Outside of `jax.shard_map`, XLA would have to divide the call over devices."""
    where = getattr(ctx.module_context, "axis_context", None)
    devices = getattr(where, "num_devices", 1)
    manual = getattr(where, "manual_axes", None)
    mesh = getattr(where, "mesh", None)
    partly = manual is not None and mesh is not None and set(manual) != set(mesh.axis_names)
    if partly or (manual is None and devices is not None and devices > 1):
        raise OptionError(SHARDED)


def _operation(name: str, result: Any, batch: Any, *, aliased: bool = True) -> Any:
    primitive = _primitive(name, result, _lower(f"unspool_{name}", aliased))
    batching.primitive_batchers[primitive] = batch or functools.partial(_batch_token, primitive)
    return primitive


def _primitive(name: str, result: Any, lower: Any) -> Any:
    primitive = Primitive(f"unspool_{name}")
    primitive.multiple_results = True
    primitive.def_abstract_eval(result)

    def now(*operands: Any, **params: Any) -> Any:
        # Only compiled programs call XLA's functions.
        with jax.disable_jit(False):
            return _compiled(primitive, tuple(sorted(params.items())))(*operands)

    primitive.def_impl(now)
    ad.primitive_jvps[primitive] = _refuse_twice
    mlir.register_lowering(primitive, lower)
    return primitive


begin_p = _operation("begin", _of_token, _batch_begin, aliased=False)
save_p = _operation("save", _of_token, _batch_save)
end_p = _operation("end", _of_token, None)
rewind_p = _operation("rewind", _of_token, None)
restore_p = _operation("restore", _of_state, _batch_restore)
after_p = _primitive(
    "after", lambda token, *leaves: list(leaves), lambda ctx, token, *leaves: list(leaves)
)
batching.primitive_batchers[after_p] = _batch_after


def _register() -> None:
    try:
        for name, host, cuda in jax_handlers():
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(host), platform="cpu")
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(cuda), platform="CUDA")
    except Exception as refused:
        raise MissingLibraryError(
            f"unspool.jax does not fit to this JAX ({jax.__version__}): {refused}"
        ) from refused


_register()
