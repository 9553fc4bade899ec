"""Functions as JAX traces them once, with everything that they read as arguments, and trees of
arrays beside what is none."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from unspool.errors import OptionError

__all__ = ["Carry", "Function", "Halves", "axes_of", "is_float", "plain"]

#: Operations that only have an effect, where they return nothing.
EFFECTS = {"debug_callback", "debug_print", "io_callback"}
#: Where JAX has their effects.
CALLBACKS = {"jax._src.callback", "jax._src.debugging"}


def is_float(leaf: Any) -> bool:
    """Whether a leaf may have a gradient."""
    # Python's numbers have none.
    dtype = leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def axes_of(aval: Any) -> frozenset[str]:
    """The axes of a mesh over which a value varies, in `jax.shard_map`."""
    found: frozenset[str] = getattr(getattr(aval, "manual_axis_type", None), "varying", frozenset())
    return found


class Function:
    """A function of flat leaves, with the traced values that it closes over as arguments.

    Attributes:
        consts: these values; arrays that are not traced have no gradient and stay inside.
        avals: what the results are like.
        tree: how the results hang together.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        flat, tree = tree_util.tree_flatten(arguments)

        def of_leaves(*leaves: Any) -> Any:
            return function(*tree_util.tree_unflatten(tree, leaves))

        closed, shape = jax.make_jaxpr(of_leaves, return_shape=True)(*flat)
        self.tree = tree_util.tree_structure(shape)
        self.avals = closed.out_avals
        self._jaxpr = closed.jaxpr
        self._fixed = [None if isinstance(c, jax.core.Tracer) else c for c in closed.consts]
        self.consts: list[Any] = [c for c in closed.consts if isinstance(c, jax.core.Tracer)]

    @property
    def calls_back(self) -> bool:
        """Whether it has effects by callbacks, which are not to happen twice."""
        return self._jaxpr.effects != _others(self._jaxpr.effects)

    @property
    def effects(self) -> frozenset[str]:
        """The named axes over which it adds up or the like, and `IO` where it calls
        `jax.experimental.io_callback`."""
        return frozenset(getattr(each, "name", str(each)) for each in self._jaxpr.effects)

    def again(self) -> Function:
        """The function for when it is computed again: what only has an effect, such as
        `jax.debug.print`, is left out.

        Raises:
            OptionError: it calls `jax.experimental.io_callback` and reads what that returns.
        """
        if not self._jaxpr.effects:
            return self
        other = copy.copy(self)
        other._jaxpr = _quiet(self._jaxpr)
        return other

    def __call__(self, consts: Sequence[Any], *leaves: Any) -> list[Any]:
        """The leaves of the result."""
        given = iter(consts)
        values = [next(given) if each is None else each for each in self._fixed]
        found = jaxpr_as_fun(ClosedJaxpr(self._jaxpr, values))(*leaves)
        # What is the same in every call may be a number of Python.
        return [
            leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf, aval.dtype)
            for leaf, aval in zip(found, self.avals, strict=True)
        ]


def _quiet(jaxpr: Jaxpr) -> Jaxpr:
    """Without callbacks that return nothing."""
    kept = [eqn for eqn in jaxpr.eqns if eqn.outvars or eqn.primitive.name not in EFFECTS]
    if any(eqn.primitive.name == "io_callback" for eqn in kept):
        raise OptionError(
            "unspool.jax: a step reads what jax.experimental.io_callback returns. A gradient "
            "computes the step again, in which the callback could return something else: call it "
            "before the loop, or use jax.pure_callback, or jax.lax.scan."
        )
    eqns = [eqn.replace(params=_inner(eqn.params), effects=_others(eqn.effects)) for eqn in kept]
    return jaxpr.replace(eqns=eqns, effects=_others(jaxpr.effects))


def _inner(value: Any) -> Any:
    """A parameter of an operation, with the functions that it holds made quiet."""
    if isinstance(value, dict):
        return {name: _inner(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(x, Jaxpr | ClosedJaxpr) for x in value):
        return type(value)(map(_inner, value))
    if isinstance(value, ClosedJaxpr):
        return value.replace(jaxpr=_quiet(value.jaxpr))
    return _quiet(value) if isinstance(value, Jaxpr) else value


def _others(effects: Any) -> Any:
    """Effects besides those of callbacks."""
    return {each for each in effects if type(each).__module__ not in CALLBACKS}


@dataclass(frozen=True)
class Halves:
    """Which of some leaves are chosen."""

    flags: tuple[bool, ...]

    def chosen(self, leaves: Sequence[Any]) -> list[Any]:
        """Those that are."""
        return [leaf for leaf, flag in zip(leaves, self.flags, strict=True) if flag]

    def others(self, leaves: Sequence[Any]) -> list[Any]:
        """Those that are not."""
        return [leaf for leaf, flag in zip(leaves, self.flags, strict=True) if not flag]

    def joined(self, chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """All leaves, from both halves."""
        one, other = iter(chosen), iter(others)
        return [next(one) if flag else next(other) for flag in self.flags]

    def narrowed(self, chosen: Sequence[Any], fewer: Halves) -> list[Any]:
        """Those of the chosen leaves that `fewer` chooses too."""
        return fewer.chosen(self.joined(chosen, [None] * (len(self.flags) - len(chosen))))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex)


def plain(leaf: Any) -> Any:
    """A leaf as an array that can be saved: the words of a key for random numbers."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(leaf)
    return leaf


class Carry:
    """A carry: its arrays are leaves, everything else is static.

    Attributes:
        leaves: the arrays.
    """

    def __init__(self, call: str, tree: Any) -> None:
        leaves, self.tree = tree_util.tree_flatten(tree)
        self.call = call
        self._static = [None if _is_array(leaf) else (leaf,) for leaf in leaves]
        self.leaves = [jnp.asarray(leaf) for leaf in leaves if _is_array(leaf)]

    def whole(self, leaves: Sequence[Any]) -> Any:
        """The carry with these arrays."""
        given = iter(leaves)
        found = [next(given) if kept is None else kept[0] for kept in self._static]
        return tree_util.tree_unflatten(self.tree, found)

    def taken(self, tree: Any) -> list[Any]:
        """The arrays of a carry that a step has returned.

        Raises:
            OptionError: it is not like the one that the step was given.
        """
        leaves, structure = tree_util.tree_flatten(tree)
        if structure != self.tree:
            raise OptionError(
                f"{self.call}: the carry that the step returns is {structure}, and the one that it "
                f"is given {self.tree}: they have to be the same."
            )
        pairs = list(zip(leaves, self._static, strict=True))
        if any(kept is not None and _is_array(leaf) for leaf, kept in pairs):
            raise OptionError(
                f"{self.call}: the step returns an array where the carry has something else."
            )
        return [jnp.asarray(leaf) for leaf, kept in pairs if kept is None]

    def promote(self, avals: Sequence[Any]) -> bool:
        """Takes the dtypes that a step returns for leaves that were Python's numbers, as
        `jax.lax.scan` does; whether there were any."""
        changed = False
        for place, (leaf, aval) in enumerate(zip(self.leaves, avals, strict=True)):
            weak = getattr(jax.typeof(leaf), "weak_type", False)
            if weak and (leaf.dtype != aval.dtype or not aval.weak_type):
                self.leaves[place] = jax.lax.convert_element_type(leaf, aval.dtype)
                changed = changed or leaf.dtype != aval.dtype
        return changed

    def check(self, avals: Sequence[Any]) -> None:
        """The step returns what it was given.

        Raises:
            OptionError: another dtype or shape.
        """
        for leaf, aval in zip(self.leaves, avals, strict=True):
            if (leaf.shape, leaf.dtype) != (aval.shape, aval.dtype):
                raise OptionError(
                    f"{self.call}: a leaf of the carry is {leaf.dtype}{list(leaf.shape)}, and what "
                    f"the step returns for it {aval.dtype}{list(aval.shape)}: they have to be the "
                    "same."
                )
