"""How far values can be compressed when each is coded by itself: their entropy, of order 0.

Values are counted whatever their representation: 0.0 and -0.0 are one, and so are all NaNs. What
codecs reach beyond that is what neighbouring values tell of each other.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Entropy", "entropy"]


@dataclass(frozen=True, slots=True)
class Entropy:
    """What the values of an array tell, each by itself.

    Attributes:
        values: how many there are; complex ones are two.
        distinct: how many different ones.
        width: bits of the representation of one.
        bits: entropy of a value; never above log2 of their number, however random they are.
        planes: entropy of each bit of the representation, the most significant one first.
    """

    values: int
    distinct: int
    width: int
    bits: float
    planes: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times smaller the values become at most, each coded by itself."""
        return self.width / self.bits if self.bits else math.inf

    @property
    def plane_bits(self) -> float:
        """Bits of a value where each plane is coded by itself."""
        return math.fsum(self.planes)

    def as_dict(self) -> dict[str, Any]:
        """All figures, ready for `json.dump`."""
        ratio = None if math.isinf(self.ratio) else self.ratio
        return {**asdict(self), "ratio": ratio, "plane_bits": self.plane_bits}


def entropy(values: Any) -> Entropy:
    """The entropy of the values of an array of real or complex numbers."""
    words = _words(values)
    if not words.size:
        return Entropy(0, 0, 8 * words.itemsize, 0.0, (0.0,) * (8 * words.itemsize))
    counts = np.unique(words, return_counts=True)[1]
    shares = counts / words.size
    bits = float(-(shares * np.log2(shares)).sum())
    width = 8 * words.itemsize
    planes = tuple(_of_plane(words, bit) for bit in reversed(range(width)))
    return Entropy(words.size, counts.size, width, max(0.0, bits), planes)


def _words(values: Any) -> Any:
    """The bits of each value as an unsigned integer, equal for equal values."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    if flat.dtype.kind in "biu":
        return flat.view(f"u{flat.itemsize}")
    # Dtypes of other packages, such as bfloat16, add 0 and compare as those of NumPy.
    plain = np.where(np.isnan(flat), flat.dtype.type(np.nan), flat + flat.dtype.type(0))
    return plain.astype(flat.dtype).view(f"u{flat.itemsize}")


def _of_plane(words: Any, bit: int) -> float:
    ones = int(np.count_nonzero(words & words.dtype.type(1 << bit)))
    shares = (ones / words.size, 1.0 - ones / words.size)
    return -math.fsum(share * math.log2(share) for share in shares if share)
