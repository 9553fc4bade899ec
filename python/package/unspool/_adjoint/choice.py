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
        target = self.loop.order.relative
        first = before.bounds[0][1].value if before and before.bounds else FIRST * target
        shape = EVEN
        found = self._search(Search(target, first), shape)
        if found is not None and self._varies(*found):
            shape = self._shape(*found)
        if found is not None and shape != EVEN:
            coarsest = COARSEST / max(factor for _, factor in shape)
            found = self._search(Search(target, found[0], coarsest), shape)
        if found is None:
            return Learned(key, (), {}, 0.0, self._why())
        norms = {name: self.loop.order.norm(each) for name, each in found[1].items()}
        return Learned(key, _bounds(found[0], shape), norms, self.exact.source)

    def _search(self, search: Search, shape: Shape) -> tuple[float, Errors] | None:
        """The bound that a search comes to, and what it does."""
        errors: dict[float, Errors] = {}
        while (bound := search.next()) is not None:
            errors[bound] = self._errors(_bounds(bound, shape))
            search.add(bound, self.loop.worst(errors[bound], self.exact))
        best = search.chosen()
        return None if best is None else (best, errors[best])

    def _varies(self, bound: float, errors: Errors) -> bool:
        """Whether bounds may differ over time."""
        steps = self.loop.steps
        some = any(bool(each.any()) for each in errors.values())
        return some and bound < COARSEST and steps is not None and steps >= LONG

    def _shape(self, bound: float, errors: Errors) -> Shape:
        """The factors of the bounds of stretches of time, and the steps that they begin with."""
        halves = self._factors(2, bound, errors)
        bits = sum(math.log2(factor) for _, factor in halves) / 2
        return self._factors(STRETCHES, bound, errors) if bits > WORTH else EVEN

    def _factors(self, count: int, bound: float, errors: Errors) -> Shape:
        """Those of so many stretches. Errors of all together are those of each, added up, so that
        the first one's need no trial."""
        steps = self.loop.steps or 0
        edges = [n * steps // count for n in range(count)]
        ends = [*edges[1:], steps + 1]
        later = [self._errors(_only(*at, bound)) for at in list(zip(edges, ends, strict=True))[1:]]
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


def _bounds(bound: float, shape: Shape) -> tuple[tuple[int, Bound], ...]:
    return tuple((step, _bound(bound * factor)) for step, factor in shape)


def _only(begin: int, end: int, bound: float) -> tuple[tuple[int, Any], ...]:
    """Bounds of one stretch alone."""
    return ((0, "lossless"), (begin, _bound(bound)), (end, "lossless"))


def _bound(value: float) -> Bound:
    return Bound(range=min(value, COARSEST))
