"""Bound whose error of the gradient comes below a target, from a few measured errors.

Nothing here runs a loop: `Search` says which bound to try next, `shaped` how the bounds of several
stretches of time are to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["AIM", "COARSEST", "Search", "shaped"]

#: Part of the target at which the search aims, and the parts between which it is content.
AIM, LEAST, MOST = 0.5, 0.25, 0.7

#: Bounds above which and below which nothing is tried.
COARSEST, FINEST = 0.1, 1e-14

#: Measured bounds after which the best one has to do.
TRIALS = 10

#: Decades by which a bound changes at most, where one error is known.
DECADES = 3.0

#: How far the bound of a stretch may be from that of all.
SHAPE = 100.0


class Search:
    """The largest bound whose measured error is well below a target.

    Only a bound that was measured is ever chosen: between two bounds an error may do anything.

    Attributes:
        tried: the error of each bound that was measured.
    """

    def __init__(
        self, target: float, start: float, coarsest: float = COARSEST, finest: float = FINEST
    ) -> None:
        self.target, self.coarsest, self.finest = target, coarsest, max(finest, FINEST)
        self.start = min(max(start, self.finest), coarsest)
        self.tried: dict[float, float] = {}

    def next(self) -> float | None:
        """The bound to measure now; None at the end."""
        if not self.tried:
            return self.start
        if self.content() or len(self.tried) >= TRIALS:
            return None
        found = min(max(self._guess(), self.finest), self.coarsest)
        return None if self._is_known(found) else found

    def add(self, bound: float, error: float) -> None:
        """Notes the error of a bound, infinite where it is not finite."""
        self.tried[bound] = error if math.isfinite(error) else math.inf

    def content(self) -> bool:
        """Whether a bound has an error that is near enough to the target."""
        best = self.chosen()
        if best is None:
            return False
        return best >= self.coarsest or self.tried[best] >= LEAST * self.target

    def chosen(self) -> float | None:
        """The largest good bound of which every smaller one is good too."""
        best = None
        for bound in sorted(self.tried):
            if self.tried[bound] > MOST * self.target:
                break
            best = bound
        return best

    def _guess(self) -> float:
        good = self.chosen()
        bad = min((b for b, e in self.tried.items() if e > MOST * self.target), default=None)
        if good is None or bad is None:
            known = bad if good is None else good
            assert known is not None
            return self._along(known)
        return self._between(good, bad)

    def _along(self, bound: float) -> float:
        """With errors that grow as the bound does; a bit more where that did not do."""
        ratio = AIM * self.target / max(self.tried[bound], self.target * 10**-DECADES)
        ratio = min(max(ratio, 10**-DECADES), 10**DECADES)
        return bound * (ratio**2 if len(self.tried) > 2 and ratio < 1 else ratio)

    def _between(self, good: float, bad: float) -> float:
        """On the line between a good and a bad bound, in logarithms; not next to one of them."""
        low, high = math.log(good), math.log(bad)
        small, large = self.tried[good], self.tried[bad]
        part = 0.5
        if small > 0 and math.isfinite(large) and large > small:
            part = math.log(AIM * self.target / small) / math.log(large / small)
        return math.exp(low + min(max(part, 0.1), 0.9) * (high - low))

    def _is_known(self, bound: float) -> bool:
        return any(abs(math.log(bound / other)) < 0.05 for other in self.tried)


def shaped(products: Sequence[Sequence[float]], counts: Sequence[int]) -> list[float]:
    """The factors of the bounds of several stretches of time: the fewest bytes for one error.

    A state takes a bit less where its bound doubles. With the factors c the squared error is the
    sum of c[k] c[j] products[k][j]; stretches whose errors cancel are taken not to, so that the sum
    is safe where the factors differ. It is least, for one sum of the logarithms, where each stretch
    has a share of it by its number of states.

    Arguments:
        products: the scalar product of the errors that two stretches cause, each alone.
        counts: the number of states of each stretch.
    """
    size, total = len(counts), sum(counts)
    safe = [[max(products[k][j], 0.0) for j in range(size)] for k in range(size)]
    whole = sum(map(sum, safe))
    if whole <= 0:
        return [1.0] * size
    factors = [1.0] * size
    for _ in range(100):
        sums = [sum(safe[k][j] * factors[j] for j in range(size)) for k in range(size)]
        shares = [factors[k] * sums[k] / whole for k in range(size)]
        factors = [
            min(max(one * math.sqrt(count / total / share), 1 / SHAPE), SHAPE) if share else SHAPE
            for one, share, count in zip(factors, shares, counts, strict=True)
        ]
    squared = sum(safe[k][j] * factors[k] * factors[j] for k in range(size) for j in range(size))
    return [one * math.sqrt(whole / squared) for one in factors]
