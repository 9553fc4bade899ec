"""Whether values of two arrays differ, exactly or within a tolerance, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..errors import OptionError
from .frames import Stream

__all__ = ["Found", "Tolerance", "scan", "shown"]

#: What the sum of two bounds may be exceeded by, for the rounding of a difference.
SLACK = 1 + 2.0**-48

#: The largest fraction of a value that a bound relative to it can say something about.
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far values may be from each other and still count as equal.

    Where nothing is given, equal means the same bits. Otherwise NaN equals NaN and 0.0 equals -0.0,
    and a value of `b` is as near as `atol + rtol * abs(b)`, or within so many representable numbers
    (`ulp`, for floating point).
    """

    rtol: float | None = None
    atol: float | None = None
    ulp: int | None = None
    #: For codecs: so much of the value of `a`, too.
    of_a: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "ulp"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, int | float) and 0 <= given < math.inf):
                raise OptionError(f"{name}={given!r}: give a number from 0.")

    @property
    def is_exact(self) -> bool:
        """Whether bits are compared."""
        return self.rtol is None and self.atol is None and self.ulp is None

    def with_bounds(self, a: Stream | None, b: Stream | None) -> Tolerance:
        """The same, and as far as two codecs may have moved values."""
        far, of_a, of_b = 0.0, 0.0, 0.0
        for at, one in enumerate((a, b)):
            if one is None or one.kind not in ("abs", "tolerance", "pointwise"):
                continue
            if one.kind == "pointwise" and one.bound < HALF:
                # Of the value that was saved; what came back is smaller at most by so much.
                share = one.bound / (1 - one.bound)
                of_a, of_b = (of_a + share, of_b) if at == 0 else (of_a, of_b + share)
                far += one.floor
            else:
                far += one.bound
        if not (far or of_a or of_b):
            return self
        return replace(
            self,
            atol=((self.atol or 0.0) + far) * SLACK,
            rtol=((self.rtol or 0.0) + of_b) * SLACK,
            of_a=of_a * SLACK,
        )


@dataclass(slots=True)
class Found:
    """What differs in arrays that are looked at piece by piece.

    Attributes:
        count: how many items.
        place: the place of the first one among all items, in C order; -1 for none.
        a: the first one of one array.
        b: and of the other.
        largest: the largest distance of two items; infinite from a number to NaN; None for items
            that are no numbers.
    """

    count: int = 0
    place: int = -1
    a: Any = None
    b: Any = None
    largest: float | None = None

    def add(self, a: Any, b: Any, first: int, tolerance: Tolerance) -> None:
        """Looks at the next items, of which the first one has this place."""
        import numpy as np

        places = np.flatnonzero(_bits_differ(a, b))
        if not places.size:
            return
        a, b = a[places], b[places]
        far = _distance(a, b)
        if not tolerance.is_exact and far is not None:
            kept = ~_within(a, b, far, tolerance)
            places, a, b, far = places[kept], a[kept], b[kept], far[kept]
        if not places.size:
            return
        if self.place < 0:
            self.place, self.a, self.b = first + int(places[0]), a[0], b[0]
        self.count += int(places.size)
        if far is not None:
            self.largest = max(self.largest or 0.0, float(far.max()))


def scan(a: Any, b: Any, tolerance: Tolerance) -> Found:
    """What differs in two arrays of one shape and dtype."""
    found = Found()
    found.add(a.reshape(-1), b.reshape(-1), 0, tolerance)
    return found


def shown(value: Any, other: Any = None) -> str:
    """A value as a table shows it; with its bits where it looks like the other one."""
    text = str(value)
    if text != str(other) or not hasattr(value, "tobytes"):
        return text
    return f"{text} (0x{value.tobytes()[::-1].hex()})"


def _bits_differ(a: Any, b: Any) -> Any:
    """Which items have other bits, of flat arrays."""
    size = a.dtype.itemsize
    if size in (1, 2, 4, 8):
        return a.view(f"u{size}") != b.view(f"u{size}")
    if size == 0:
        return a.view("u1").reshape(-1)[:0] != b.view("u1").reshape(-1)[:0]
    return (a.view("u1").reshape(-1, size) != b.view("u1").reshape(-1, size)).any(1)


def _is_number(dtype: Any) -> bool:
    """Also one that NumPy does not have, such as bfloat16."""
    extended = dtype.kind == "V" and dtype.names is None
    return dtype.kind in "biufc" or bool(extended and dtype.name.startswith(("bfloat", "float")))


def _distance(a: Any, b: Any) -> Any | None:
    """How far items are from each other."""
    import numpy as np

    if not _is_number(a.dtype):
        return None
    if a.dtype.kind == "b":
        return np.ones(a.shape)
    if a.dtype.kind in "iu":
        # Exact, also where the difference does not fit the type.
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        one, other = a.view(unsigned), b.view(unsigned)
        return np.where(a > b, one - other, other - one)
    wide = {"f": "f8", "V": "f8", "c": "c16"}[a.dtype.kind]
    kind = a.dtype if a.dtype.itemsize >= 16 else np.dtype(wide)
    with np.errstate(all="ignore"):
        far = np.abs(a.astype(kind) - b.astype(kind))
    # Infinity to itself does not get here but in complex numbers; what is left is NaN to a number.
    return np.where(np.isnan(far), np.inf, far)


def _within(a: Any, b: Any, far: Any, tolerance: Tolerance) -> Any:
    """Which of items that have other bits count as equal."""
    import numpy as np

    if a.dtype.kind in "biu":
        limit = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(b.astype("f8"))
        return far <= (np.floor(limit) if a.dtype.kind != "b" else limit)
    if a.dtype.kind == "c":
        parts = [_within(getattr(a, one), getattr(b, one), None, tolerance) for one in _PARTS]
        return np.logical_and(*parts)
    wide = a.dtype if a.dtype.itemsize > 8 else np.dtype("f8")
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        limit = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(y)
        limit = limit + tolerance.of_a * np.abs(x)
        near = np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= limit)
    if tolerance.ulp and a.dtype.itemsize <= 8:
        near |= np.isfinite(x) & np.isfinite(y) & (_ulps(a, b) <= tolerance.ulp)
    return near | (x == y) | (np.isnan(x) & np.isnan(y))


#: Complex numbers are compared part by part.
_PARTS = ("real", "imag")


def _ulps(a: Any, b: Any) -> Any:
    """How many representable numbers are between two."""
    import numpy as np

    one, other = _rank(a), _rank(b)
    return np.where(one > other, one - other, other - one)


def _rank(values: Any) -> Any:
    """The places of numbers among all of their type; both zeros have one."""
    import numpy as np

    size = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"u{size}").astype("u8")
    sign = np.uint64(1 << (8 * size - 1))
    magnitude = bits & ~sign
    return np.where(bits & sign, sign - magnitude, sign + magnitude)
