"""Statistics of an array that is looked at block by block, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Summary", "histogram", "numbers_of"]

#: The bars of a histogram, and the columns of the longest one.
BARS, COLUMNS = 12, 40


@dataclass(slots=True)
class Summary:
    """What is said of numbers; NaN and infinities are counted, and in nothing else.

    Attributes:
        count: how many items.
        nan: how many are NaN.
        infinite: how many are infinite.
        zeros: how many are zero.
        least: the smallest one.
        most: the largest one.
        mean: the mean.
    """

    count: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    least: float = math.inf
    most: float = -math.inf
    mean: float = 0.0
    _squares: float = field(default=0.0, repr=False)

    @property
    def finite(self) -> int:
        """How many are finite."""
        return self.count - self.nan - self.infinite

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self._squares / self.finite) if self.finite else math.nan

    def add(self, values: Any) -> None:
        """Takes the next numbers into account."""
        import numpy as np

        seen = self.finite
        self.count += values.size
        self.nan += int(np.isnan(values).sum())
        self.infinite += int(np.isinf(values).sum())
        values = values[np.isfinite(values)]
        if not values.size:
            return
        self.zeros += int(values.size - np.count_nonzero(values))
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))
        # Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm" (1979), section 3.
        with np.errstate(all="ignore"):
            mean = float(values.mean())
            apart, total = mean - self.mean, seen + values.size
            squares = float(np.square(values - mean).sum())
        self._squares += squares + apart * apart * seen * values.size / total
        self.mean += apart * values.size / total

    def lines(self) -> list[str]:
        """What a table shows."""
        if not self.finite:
            return [self._others() or "no items"]
        rows = [
            ("min", self.least),
            ("max", self.most),
            ("mean", self.mean),
            ("std", self.deviation),
        ]
        text = "  ".join(f"{name} {value:.6g}" for name, value in rows)
        return [text, *filter(None, [self._others()])]

    def _others(self) -> str:
        counted = (("zeros", self.zeros), ("NaN", self.nan), ("infinite", self.infinite))
        return "  ".join(
            f"{name} {count:,} ({count / self.count:.2g})" for name, count in counted if count
        )


def numbers_of(values: Any) -> Any | None:
    """Items as float64, flat; magnitudes of complex numbers; None for what are no numbers."""
    import numpy as np

    values = np.asarray(values).reshape(-1)
    if values.dtype.kind == "c":
        return np.abs(values).astype("f8", copy=False)
    try:
        is_number = values.dtype.kind in "biuf" or values.dtype.name.startswith(("bfl", "float"))
        return values.astype("f8") if is_number else None
    except (TypeError, ValueError):
        return None


def histogram(blocks: Iterable[Any], summary: Summary) -> list[str]:
    """Bars of how many finite numbers are in each of some ranges of equal width."""
    import numpy as np

    if not summary.finite or not math.isfinite(summary.most - summary.least):
        return []
    edges = np.linspace(summary.least, summary.most, BARS + 1)
    if not (np.diff(edges) > 0).all():
        return []
    counts = np.zeros(BARS, "i8")
    for block in blocks:
        counts += np.histogram(block[np.isfinite(block)], edges)[0]
    most = int(counts.max()) or 1
    return [
        f"{low:>12.4g}  {'█' * math.ceil(count * COLUMNS / most):{COLUMNS}}  {count:,}"
        for low, count in zip(edges.tolist(), counts.tolist(), strict=False)
    ]
