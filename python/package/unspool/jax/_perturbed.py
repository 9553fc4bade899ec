"""Derivatives of only those leaves of a loop that have one, as the loops of JAX have it: the others
may come from what has no derivative, such as a callback or a loop of unknown length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import tree_util
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from ._closures import Halves, is_float
from ._linear import linear

__all__ = ["Flags", "Parts", "derived", "differentiable", "divided", "joined", "transposable"]

#: Lists of leaves: the arguments of a loop.
Groups = Sequence[Sequence[Any]]
Flags = Sequence[Sequence[bool]]


@tree_util.register_static
@dataclass(frozen=True)
class Parts:
    """The leaves of a loop that a gradient goes through.

    Attributes:
        arguments: those of each argument, as the loop was called.
        step: those of each argument of a step: a leaf of the carry may become one on the way.
        results: for each leaf of the result, whether it is one.
    """

    arguments: tuple[Halves, ...]
    step: tuple[Halves, ...]
    results: tuple[bool, ...]

    @classmethod
    def of(
        cls,
        step: Callable[..., Sequence[Any]],
        avals: Sequence[Any],
        groups: Groups,
        flags: Flags,
    ) -> Parts:
        """Those of a loop whose arguments have tangents where `flags` says so. The second argument
        of its step is a carry, with which its results begin; `avals` are what these are like."""
        of_step, results = _settled(step, [is_float(each) for each in avals], groups, flags)
        halves = [tuple(Halves(tuple(each)) for each in every) for every in (flags, of_step)]
        return cls(*halves, tuple(results))


def _perturbed(
    function: Callable[..., Sequence[Any]], arguments: Groups, flags: Flags
) -> list[bool]:
    """Which results of a function have a derivative with respect to the flagged leaves of its
    arguments. It is traced and not run."""
    halves = [Halves(tuple(each)) for each in flags]
    found: list[bool] = []

    def note(leaves: Any, dots: Any) -> Any:
        found[:] = [_moves(*pair) for pair in zip(leaves, dots, strict=True)]
        return leaves, dots

    look = jax.custom_jvp(lambda *leaves: leaves)
    look.defjvp(note, symbolic_zeros=True)

    def derived(chosen: Any, others: Any) -> Any:
        of_chosen = lambda *chosen: look(*function(*joined(halves, chosen, others)))  # noqa: E731
        return jax.jvp(of_chosen, chosen, chosen)[0]

    chosen, others = divided(halves, arguments)
    results = jax.eval_shape(derived, chosen, others)
    # JAX does not ask for the rule when nothing has a derivative.
    return found or [False] * len(results)


def _settled(
    step: Callable[..., Sequence[Any]],
    floats: Sequence[bool],
    arguments: Groups,
    flags: Flags,
) -> tuple[list[list[bool]], list[bool]]:
    """Which leaves of the arguments and results of a step have a derivative once it was taken often
    enough. It is not traced again where all results that may have one (`floats`) do."""
    flags = [list(each) for each in flags]
    count = len(flags[1])
    results = [*flags[1], *[False] * (len(floats) - count)]
    while any(map(any, flags)) and results != floats:
        pairs = zip(results, _perturbed(step, arguments, flags), strict=True)
        results = [a or b for a, b in pairs]
        if results[:count] == flags[1]:
            break
        flags[1] = results[:count]
    return flags, results


def differentiable(
    run: Callable[..., Any],
    parts_of: Callable[[Groups, Flags], Parts],
    forwards: Callable[[Parts, Groups], tuple[Any, Any]],
    backwards: Callable[[Parts, Any, list[Any]], Groups],
) -> Callable[..., Any]:
    """A loop with a gradient, of those leaves that have a tangent when JAX takes it.

    Arguments:
        run: the leaves of the result, from lists of leaves.
        parts_of: what a gradient goes through, from the leaves and whether each has a tangent.
        forwards: `run`, and what `backwards` needs.
        backwards: from the cotangents of `Parts.results`, the gradients of `Parts.arguments`.
    """

    parts_of = _remembered(parts_of)

    def ahead(*groups: Groups) -> tuple[Any, Any]:
        leaves = [[leaf.value for leaf in group] for group in groups]
        flags = [[leaf.perturbed and is_float(leaf.value) for leaf in group] for group in groups]
        parts = parts_of(leaves, flags)
        found, kept = forwards(parts, leaves) if any(parts.results) else (run(*leaves), None)
        return found, (parts, kept)

    def back(kept: Any, given: Any) -> Any:
        parts, kept = kept
        if not any(parts.results):
            return (None,) * len(parts.arguments)
        cotangents = [_filled(each) for each in Halves(parts.results).chosen(given)]
        found = zip(parts.arguments, backwards(parts, kept, cotangents), strict=True)
        return tuple(half.joined(each, [None] * half.flags.count(False)) for half, each in found)

    looped = jax.custom_vjp(run)
    looped.defvjp(ahead, back, symbolic_zeros=True)
    return lambda *groups: _stilled(parts_of, looped(*groups), groups)


def transposable(
    run: Callable[..., Any],
    parts_of: Callable[[Groups, Flags], Parts],
    forwards: Callable[[Parts, Groups], tuple[Any, Any]],
    backwards: Callable[[Parts, Any, list[Any]], Groups],
) -> Callable[..., Any]:
    """The same as `differentiable`, also within the rule of another derivative. Callbacks in
    `forwards` may be left out: JAX looks there for what is the same in all steps of a loop.
    """

    def pushed(parts: Parts, groups: Groups, dots: Groups) -> tuple[Any, Any]:
        linear(lambda *_: [], [], tree_util.tree_leaves(dots), [])  # Refused before it runs.
        found, kept = forwards(parts, groups)
        given, tree = tree_util.tree_flatten(kept)
        back = lambda kept, given: tree_util.tree_leaves(  # noqa: E731
            backwards(parts, tree_util.tree_unflatten(tree, kept), given)
        )
        likes = map(jax.typeof, Halves(parts.results).chosen(found))
        return found, linear(back, given, tree_util.tree_leaves(dots), likes)

    return _derived(run, parts_of, pushed)


def derived(
    run: Callable[..., Any],
    parts_of: Callable[[Groups, Flags], Parts],
    way_of: Callable[[Parts, Groups], Callable[..., Any]],
) -> Callable[..., Any]:
    """A loop whose derivatives, also second and forward ones, are those of the same loop in another
    way, which is chosen when they are taken.

    Arguments:
        run, parts_of: as in `differentiable`.
        way_of: the loop as its derivatives need it, from what they go through and the arguments.
    """

    def pushed(parts: Parts, groups: Groups, dots: Groups) -> tuple[Any, Any]:
        way = way_of(parts, groups)
        chosen, others = divided(parts.arguments, groups)
        of_chosen = lambda *chosen: way(*joined(parts.arguments, chosen, others))  # noqa: E731
        found, dots = jax.jvp(of_chosen, chosen, dots)
        return found, Halves(parts.results).chosen(dots)

    return _derived(run, parts_of, pushed)


def _derived(
    run: Callable[..., Any],
    parts_of: Callable[[Groups, Flags], Parts],
    pushed: Callable[[Parts, Groups, Groups], tuple[Any, Any]],
) -> Callable[..., Any]:
    """A loop with the derivative that `pushed` gives it: from the tangents of `Parts.arguments`,
    the result and the tangents of `Parts.results`."""
    parts_of = _remembered(parts_of)

    def rule(groups: Groups, dots: Groups) -> tuple[Any, Any]:
        pairs = [zip(*each, strict=True) for each in zip(groups, dots, strict=True)]
        parts = parts_of(groups, [[_moves(*one) for one in each] for each in pairs])
        halves = Halves(parts.results)
        if any(parts.results):
            found, moved = pushed(parts, groups, divided(parts.arguments, dots)[0])
        else:
            found, moved = run(*groups), ()
        still = [SymbolicZero.from_primal_value(leaf) for leaf in halves.others(found)]
        return found, halves.joined(moved, still)

    looped = jax.custom_jvp(run)
    looped.defjvp(rule, symbolic_zeros=True)
    return looped


def _remembered(parts_of: Callable[[Groups, Flags], Parts]) -> Callable[[Groups, Flags], Parts]:
    """The same, which traces a step once for each choice of flags."""
    known: dict[str, Parts] = {}

    def remembered(groups: Groups, flags: Flags) -> Parts:
        key = str(flags)
        if key not in known:
            known[key] = parts_of(groups, flags)
        return known[key]

    return remembered


def _stilled(
    parts_of: Callable[[Groups, Flags], Parts], results: Sequence[Any], groups: Groups
) -> Sequence[Any]:
    """The results of a loop, of which those have no tangent that no gradient goes through: to
    `jax.custom_vjp` all have one as soon as one argument has."""

    def rule(given: Any, dots: Any) -> Any:
        pairs = zip(given, dots, strict=True)
        flags = [[_moves(*each) for each in zip(*pair, strict=True)] for pair in pairs]
        moved = parts_of(given[1:], flags[1:]).results
        still = SymbolicZero.from_primal_value
        found = zip(given[0], dots[0], moved, strict=True)
        return given[0], [dot if moves else still(leaf) for leaf, dot, moves in found]

    same = jax.custom_jvp(lambda results, *groups: results)
    same.defjvp(rule, symbolic_zeros=True)
    return same(results, *groups)


def _filled(cotangent: Any) -> Any:
    """A cotangent as an array."""
    if isinstance(cotangent, SymbolicZero):
        return ad.instantiate_zeros(ad.Zero(cotangent.aval))
    return cotangent


def _moves(leaf: Any, dot: Any) -> bool:
    return not isinstance(dot, SymbolicZero) and is_float(leaf)


def divided(halves: Sequence[Halves], groups: Groups) -> tuple[Any, Any]:
    """The leaves of each list that are chosen, and the others."""
    pairs = list(zip(halves, groups, strict=True))
    return [half.chosen(group) for half, group in pairs], [
        half.others(group) for half, group in pairs
    ]


def joined(halves: Sequence[Halves], chosen: Groups, others: Groups) -> list[list[Any]]:
    """The inverse of `divided`."""
    return [half.joined(*pair) for half, *pair in zip(halves, chosen, others, strict=True)]
