"""Bounds of the states of a loop, from adjoints that are run with trial bounds."""

from __future__ import annotations

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
    """

    def __init__(self, loop: Loop, exact: Found, start: Any) -> None:
        self.loop, self.exact, self.start = loop, exact, start
        self.trials = 0

    def go(self, key: Any, before: Learned | None) -> Learned:
        """What the next adjoint goes by; `before` is what earlier ones went by."""
        target, held = self.loop.order.relative, before.bounds[0][1] if before else None
        for kind, finest in KINDS.items():
            if held is not None and held.kind != kind:
                continue
            first = FIRST * target if held is None else held.value
            found = self._search(Search(target, first, finest=finest * target), kind, EVEN)
            if found is not None:
                return self._learned(key, kind, *found)
            held = None
        return Learned(key, (), {}, 0.0, why=self._why())

    def _learned(self, key: Any, kind: str, bound: float, errors: Errors) -> Learned:
        """The bounds that follow from one bound for all time that is good."""
        shape = self._shape(kind, bound, errors) if self._varies(bound, errors) else EVEN
        if shape != EVEN:
            coarsest = COARSEST / max(factor for _, factor in shape)
            search = Search(self.loop.order.relative, bound, coarsest)
            found = self._search(search, kind, shape)
            bound, errors = found or (bound, errors)
            shape = shape if found else EVEN
        norms = {name: self.loop.order.norm(each) for name, each in errors.items()}
        began, added = frozenset(self.exact.begun), self.exact.added
        source = self.exact.source
        return Learned(key, _bounds(kind, bound, shape), norms, source, began, added)

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
