"""Bounds of the states of a loop, from adjoints that are run with trial bounds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .._gradient import Learned
from .._gradient.search import COARSEST, Search, shaped
from ..codecs.values import Bound
from .measured import Found, Loop, share

__all__ = ["Choice"]

#: Stretches of time with bounds of their own, and the steps from which on there are some.
STRETCHES, LONG = 4, 16

#: Bits of a value that two stretches have to save for four to be tried.
WORTH = 0.4

#: The first bound that is tried, as part of the target.
FIRST = 0.03

#: By how much the bounds are smaller that later adjoints may go back to.
FINER = 3.0

#: Kinds of bounds in the order in which they are tried, and the part of the target below which the
#: next kind is: where a gradient lives in the tails of states, parts of the range get tiny.
KINDS = {"range": 1e-5, "pointwise": 0.0}

Shape = tuple[tuple[int, float], ...]

#: One bound for all time.
EVEN: Shape = ((0, 1.0),)

Errors = dict[str, Any]


class Choice:
    """Chooses bounds.

    Attributes:
        trials: adjoints that were run.
        parts: as of `Learned`.
    """

    def __init__(self, loop: Loop, exact: Found, start: Any) -> None:
        self.loop, self.exact, self.start = loop, exact, start
        self.trials = 0
        self.parts: tuple[tuple[int, float], ...] = ()

    def go(self, key: Any, before: Learned | None) -> Learned:
        """What the next adjoint goes by; `before` is what earlier ones went by."""
        if before is not None and before.bounds:
            again = self._again(key, before.at(0) if before.levels else before)
            if again is not None:
                return again
        target = self.loop.order.relative
        for kind, finest in KINDS.items():
            found = self._search(Search(target, FIRST * target, finest=finest * target), kind, EVEN)
            if found is not None:
                return self._learned(key, kind, *self._shaped(kind, *found))
        return Learned(key, (), {}, 0.0, why=self._why())

    def _again(self, key: Any, before: Learned) -> Learned | None:
        """Bounds that differ over time as they did, if there are some that hold."""
        held = before.bounds[0][1]
        shape = tuple((step, one.value / held.value) for step, one in before.bounds)
        found = self._searched(held.kind, held.value, shape)
        return None if found is None else self._learned(key, held.kind, *found, before)

    def _shaped(self, kind: str, bound: float, errors: Errors) -> tuple[float, Errors, Shape]:
        """Bounds that differ over time, where they save bytes, in place of one that holds."""
        shape = self._shape(kind, bound, errors) if self._varies(bound, errors) else EVEN
        found = self._searched(kind, bound, shape) if shape != EVEN else None
        return found or (bound, errors, EVEN)

    def _searched(
        self, kind: str, bound: float, shape: Shape
    ) -> tuple[float, Errors, Shape] | None:
        """What a search that begins with a bound comes to."""
        coarsest = COARSEST / max(factor for _, factor in shape)
        found = self._search(Search(self.loop.order.relative, bound, coarsest), kind, shape)
        return None if found is None else (*found, shape)

    def _learned(
        self,
        key: Any,
        kind: str,
        bound: float,
        errors: Errors,
        shape: Shape,
        before: Learned | None = None,
    ) -> Learned:
        """The bounds, and smaller ones."""
        bounds, norms = _bounds(kind, bound, shape), self._norms(errors)
        began, added = frozenset(self.exact.begun), self.exact.added
        learned = Learned(key, bounds, norms, self.exact.source, began, added)
        finer = _bounds(kind, bound / FINER, shape)
        if before is not None and before.levels and before.bounds == bounds:
            # The same loop as before: both errors are taken to have changed alike.
            others = {
                name: each * share(norms[name], before.errors[name])
                for name, each in before.levels[-1][1].items()
            }
            finer = before.levels[-1][0]
        else:
            others = self._norms(self._errors(finer))
        levels = [(bounds, norms)]
        if all(others[name] < each for name, each in norms.items() if each):
            levels.append((finer, others))
        parts = self.parts if before is None else before.parts
        return dataclasses.replace(learned, levels=tuple(levels), parts=parts)

    def _norms(self, errors: Errors) -> dict[str, float]:
        return {name: self.loop.order.norm(each) for name, each in errors.items()}

    def _search(self, search: Search, kind: str, shape: Shape) -> tuple[float, Errors] | None:
        """The bound that a search comes to, and what it does."""
        errors: dict[float, Errors] = {}
        while (bound := search.next()) is not None:
            errors[bound] = self._errors(_bounds(kind, bound, shape))
            search.add(bound, self.loop.worst(errors[bound], self.exact))
        best = search.chosen()
        return None if best is None else (best, errors[best])

    def _varies(self, bound: float, errors: Errors) -> bool:
        """Whether bounds may differ over time."""
        steps = self.loop.steps
        some = any(bool(each.any()) for each in errors.values())
        return some and bound < COARSEST and steps is not None and steps >= LONG

    def _shape(self, kind: str, bound: float, errors: Errors) -> Shape:
        """The factors of the bounds of stretches of time, and the steps that they begin with."""
        halves = self._factors(2, kind, bound, errors)
        bits = sum(math.log2(factor) for _, factor in halves) / 2
        return self._factors(STRETCHES, kind, bound, errors) if bits > WORTH else EVEN

    def _factors(self, count: int, kind: str, bound: float, errors: Errors) -> Shape:
        """Those of so many stretches. Errors of all together are those of each, added up, so that
        the first one's need no trial."""
        steps = self.loop.steps or 0
        edges = [n * steps // count for n in range(count)]
        ends = [*edges[1:], steps + 1]
        places = list(zip(edges, ends, strict=True))
        later = [self._errors(_only(*at, _bound(kind, bound))) for at in places[1:]]
        first = {name: one - sum(each[name] for each in later) for name, one in errors.items()}
        single = [first, *later]
        products = [[self._product(one, other) for other in single] for one in single]
        counts = [end - begin for begin, end in zip(edges, ends, strict=True)]
        worst = [self.loop.worst(one, self.exact) / bound for one in single]
        self.parts = tuple(zip(edges, worst, strict=True))
        return tuple(zip(edges, shaped(products, counts), strict=True))

    def _product(self, one: Errors, other: Errors) -> float:
        """How the errors of two stretches go together: in the array where that is the most."""
        order, found = self.loop.order, [0.0]
        for name, mine in one.items():
            if order.component:
                both = order.norm(mine) * order.norm(other[name])
            else:
                both = float((mine * other[name].conj()).real.sum())
            found.append(share(both, order.norm(self.exact.gradient[name]) ** 2))
        return max(found)

    def _errors(self, bounds: Any) -> Errors:
        """What bounds do to each array of the gradient."""
        self.loop.put(self.start)
        self.trials += 1
        found = self.loop.run(Learned(None, bounds, {}, 0.0), quietly=True)
        names = self.loop.names(self.exact)
        return {name: found.gradient[name] - self.exact.gradient[name] for name in names}

    def _why(self) -> str:
        """Why there is no bound: perhaps the steps do not repeat themselves."""
        if self.loop.worst(self._errors(()), self.exact) > 0:
            return (
                "the same loop with lossless states gave another gradient: its steps do not repeat "
                "themselves, or `adjoint_state` is not all that they change"
            )
        order, names = self.loop.order, self.loop.names(self.exact)
        zero = [name for name in names if not order.norm(self.exact.gradient[name])]
        about = f" ({', '.join(zero)} is zero: name other arrays by `of`)" if zero else ""
        return f"no bound of the states keeps the gradient accurate to {order.relative:g}{about}"


def _bounds(kind: str, bound: float, shape: Shape) -> tuple[tuple[int, Bound], ...]:
    return tuple((step, _bound(kind, bound * factor)) for step, factor in shape)


def _only(begin: int, end: int, bound: Bound) -> tuple[tuple[int, Any], ...]:
    """The bound of one stretch alone."""
    return ((0, "lossless"), (begin, bound), (end, "lossless"))


def _bound(kind: str, value: float) -> Bound:
    return Bound(**{kind: min(value, COARSEST)})
