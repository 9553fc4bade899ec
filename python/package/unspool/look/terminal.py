"""Pictures of arrays of one and two dimensions as text."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

__all__ = ["picture"]

#: What a picture without colours is made of, from low to high.
RAMP, LEVELS = " .:-=+*#%@", "▁▂▃▄▅▆▇█"

#: Colours from low to high: of values of one sign, and of both, where the one in the middle is 0.
ONE_SIGN = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
BOTH_SIGNS = ((33, 60, 160), (130, 170, 220), (245, 245, 245), (230, 150, 120), (150, 20, 40))

#: That of what is not finite.
NOT_FINITE = (255, 0, 255)

#: Two pixels, one above the other, in the colours of the foreground and the background.
HALF = "▀"


def picture(values: Any, columns: int, rows: int, *, colours: bool) -> list[str]:
    """Lines that show numbers of one or two dimensions in so many columns and rows at most."""
    if not values.size:
        return []
    if values.ndim < 2:
        return [_curve(_reduced(values.reshape(1, -1), 1, columns)[0])]
    height, width = values.shape
    # A line has two rows of square pixels; without colours its letters are twice as high as wide.
    wide = min(columns, width) if height >= 2 else columns
    high = max(1, min(2 * rows, height, round(wide * height / width)))
    if colours:
        return _coloured(_reduced(values, high + high % 2 if high < height else high, wide))
    return _plain(_reduced(values, max(1, high // 2), wide))


def _reduced(values: Any, high: int, wide: int) -> Any:
    """The means of blocks, so many as there are pixels, divided by the largest magnitude; what is
    not finite makes a block NaN."""
    import numpy as np

    high, wide = min(high, values.shape[0]), min(wide, values.shape[1])
    rows, columns = (
        np.arange(count) * length // count
        for count, length in zip((high, wide), values.shape, strict=True)
    )
    with np.errstate(all="ignore"):
        clean = np.where(np.isfinite(values), values, np.nan)
        clean = clean / np.fmax.reduce(np.abs(clean), None, initial=5e-324)
        sums = np.add.reduceat(np.add.reduceat(clean, rows, 0), columns, 1)
    heights = np.diff(np.append(rows, values.shape[0]))
    widths = np.diff(np.append(columns, values.shape[1]))
    return sums / heights[:, None] / widths


def _shares(values: Any) -> tuple[Any, bool]:
    """Where values are from low (0) to high (1), NaN for what is not finite; whether 0 is in the
    middle."""
    import numpy as np

    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.full(values.shape, np.nan), False
    low, high = float(finite.min()), float(finite.max())
    both = low < 0 < high
    if both:
        high = max(-low, high)
        low = -high
    if high <= low:
        return np.where(np.isfinite(values), 0.5, np.nan), both
    return (values / 2 - low / 2) / (high / 2 - low / 2), both


def _coloured(values: Any) -> list[str]:
    shares, both = _shares(values)
    colours = [[_colour(one, both) for one in row] for row in shares.tolist()]
    lines = []
    for above, below in zip_longest(colours[::2], colours[1::2]):
        pairs = zip_longest(above, below or ())
        lines.append("".join(_pixels(one, other) for one, other in pairs) + "\x1b[0m")
    return lines


def _pixels(above: tuple[int, ...], below: tuple[int, ...] | None) -> str:
    back = "49" if below is None else f"48;2;{';'.join(map(str, below))}"
    return f"\x1b[38;2;{';'.join(map(str, above))};{back}m{HALF}"


def _colour(share: float, both: bool) -> tuple[int, ...]:
    if math.isnan(share):
        return NOT_FINITE
    table = BOTH_SIGNS if both else ONE_SIGN
    at, rest = divmod(min(max(share, 0.0), 1.0) * (len(table) - 1), 1)
    low, high = table[int(at)], table[min(int(at) + 1, len(table) - 1)]
    return tuple(round(one + (other - one) * rest) for one, other in zip(low, high, strict=True))


def _plain(values: Any) -> list[str]:
    return ["".join(_letter(one, RAMP) for one in row) for row in _shares(values)[0].tolist()]


def _curve(values: Any) -> str:
    return "".join(_letter(one, LEVELS) for one in _shares(values)[0].tolist())


def _letter(share: float, letters: str) -> str:
    return "!" if math.isnan(share) else letters[min(int(share * len(letters)), len(letters) - 1)]
