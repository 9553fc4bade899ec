"""Cases of the part `shapes`: what is saved, and by which codec. Pure functions of a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from unspool.stats import size as size_text

__all__ = [
    "ARRAYS", "BYTES", "DTYPES", "KINDS", "LAYOUTS", "LIMIT", "MODES", "STYLES",
    "Case", "drawn", "friendly", "size_class",
]  # fmt: skip

#: Bytes of an item of each dtype, and how often it is drawn.
BYTES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4,
    "uint64": 8, "bool": 1,
}  # fmt: skip
DTYPES = {name: 1 for name in BYTES} | {
    "float32": 10, "float64": 5, "float16": 4, "bfloat16": 4, "complex64": 3, "complex128": 2,
}  # fmt: skip

#: Dtypes whose values may be off by a bound, and those of zfp.
REAL = frozenset(("float16", "bfloat16", "float32", "float64", "complex64", "complex128"))
ZFP = frozenset(("float32", "float64"))

#: Codecs as `unspool-rtm` takes them, and how often each is drawn.
MODES = {
    "none": 6, "lossless": 12, "abs=1e-4": 6, "range=1e-3": 4, "range=1e-5": 4,
    "pointwise=1e-3": 4, "zfp:rate=8": 2, "nvcomp:bitcomp": 1, "nvcomp:ans": 1, "nvcomp:lz4": 1,
}  # fmt: skip

#: Kinds of data, and how often each is drawn; the last one has NaN and Inf among its values.
KINDS = {
    "noise": 4, "silent": 2, "half": 2, "filled": 4, "turbulence": 4, "steps": 2, "sines": 3,
    "ramp": 2, "zeros": 1, "special": 2,
}  # fmt: skip

LAYOUTS = {"contiguous": 5, "interior": 2, "transposed": 1, "fortran": 1}

#: How many arrays one call saves, and the least bytes of one of them.
ARRAYS, LEAST_ARRAY = {1: 12, 3: 2, 9: 2, 100: 1, 1000: 1}, 1 << 10

#: What extents are like: as they come, odd, prime, just above or below a power of two, multiples
#: of 64; with one of at most `TINY`, or with all but one so.
STYLES = {
    "any": 3, "odd": 2, "prime": 2, "above": 2, "below": 2, "round": 1, "flat": 2, "thin": 2,
}  # fmt: skip
TINY, FEW = 16, 8

#: The largest extent, where that makes an array large enough.
LIMIT = 4096

#: From how many bytes on, to below the next, and how often: large cases take long.
CLASSES = {64 << 10: 2, 1 << 20: 3, 8 << 20: 4, 32 << 20: 6, 128 << 20: 3, 512 << 20: 1}

#: The most items: they are made in float64.
MOST_ITEMS = 1 << 28

#: Extents of a friendly box are multiples of the first, the slowest one of the second.
EDGE, SLOW = 64, 16


@dataclass(frozen=True, slots=True)
class Case:
    """What one call saves.

    Attributes:
        mode: of `MODES`.
        dtype: of `DTYPES`.
        kind: of `KINDS`.
        shape: of each array.
        layout: of `LAYOUTS`.
        arrays: how many.
        varied: their longest extents differ, by up to six.
    """

    mode: str
    dtype: str
    kind: str
    shape: tuple[int, ...]
    layout: str = "contiguous"
    arrays: int = 1
    varied: bool = False

    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each array."""
        return [self._shape(number) for number in range(self.arrays)]

    def _shape(self, number: int) -> tuple[int, ...]:
        axis = self.shape.index(max(self.shape))
        less = number % min(7, self.shape[axis]) if self.varied else 0
        return tuple(size - (less if at == axis else 0) for at, size in enumerate(self.shape))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return BYTES[self.dtype] * sum(map(math.prod, self.shapes()))

    def __str__(self) -> str:
        """A line of words, in which options look for cases."""
        count = f"{self.arrays} of " if self.arrays > 1 else ""
        shape = "x".join(map(str, self.shape))
        words = [self.mode, self.dtype, self.kind, f"{count}{shape}", self.layout]
        return " ".join(words + ["varied"] * self.varied)


def drawn(seed: int, number: int, most: int) -> Case:
    """The case with this number, of about `most` bytes at most."""
    source = random.Random(f"{seed} {number}")
    mode = _one(source, MODES)
    dtype = _one(source, {name: often for name, often in DTYPES.items() if _takes(mode, name)})
    kind = _one(source, {name: often for name, often in KINDS.items() if _has(mode, dtype, name)})
    size = min(_size(source, most), MOST_ITEMS * BYTES[dtype])
    fitting = {count: often for count, often in ARRAYS.items() if size >= count * LEAST_ARRAY}
    arrays = _one(source, fitting)
    shape = _shape(source, max(1, size // arrays // BYTES[dtype]))
    varied = arrays > 1 and source.random() < 0.5
    return Case(mode, dtype, kind, shape, _one(source, LAYOUTS), arrays, varied)


def _one(source: random.Random, weights: Mapping[Any, int]) -> Any:
    return source.choices(list(weights), list(weights.values()))[0]


def _takes(mode: str, dtype: str) -> bool:
    if mode.startswith("zfp"):
        return dtype in ZFP
    return dtype in REAL or "=" not in mode


def _has(mode: str, dtype: str, kind: str) -> bool:
    """Whether there are such data: integers have no NaN, and zfp takes none."""
    return kind != "special" or (dtype in REAL and not mode.startswith("zfp"))


def _size(source: random.Random, most: int) -> int:
    """Bytes: a class by its weight, and within it any size alike on a logarithmic scale."""
    low = _one(source, {low: often for low, often in CLASSES.items() if low < most})
    high = min(most, next((one for one in CLASSES if one > low), 2 * low))
    return round(low * (high / low) ** source.random())


def size_class(count: int) -> str:
    """The name of the size class that `count` bytes are in."""
    low = max((one for one in CLASSES if one <= count), default=min(CLASSES))
    return f"{size_text(low)} on"


def _shape(source: random.Random, items: int) -> tuple[int, ...]:
    """A random shape of about `items` items, in 1 to 5 dimensions."""
    dims, style = source.randint(1, 5), _one(source, STYLES)
    limit = max(LIMIT, math.ceil(2 * items ** (1 / dims)))
    tiny = {"flat": 1, "thin": dims - 1}.get(style, 0)
    sizes, left = [], items
    for after in reversed(range(dims)):
        least = -(-left // limit**after)
        wish = _wish(source, left, after, len(sizes) < min(tiny, dims - 1))
        size = _snapped(style, min(limit, max(least, min(wish, left))), limit)
        sizes.append(size)
        left = max(1, left // size)
    source.shuffle(sizes)
    return tuple(sizes)


def _wish(source: random.Random, left: int, after: int, tiny: bool) -> int:
    """An extent, where `left` items are shared with so many further dimensions."""
    if not after:
        return left
    if tiny:
        return source.randint(1, TINY)
    return round(left ** (1 / (after + 1)) * 2 ** source.uniform(-1.5, 1.5))


def _snapped(style: str, size: int, limit: int) -> int:
    """The extent of this style that is near, at most `limit`; a few items stay as many."""
    if size < FEW:
        return size
    power = 1 << round(math.log2(max(2, size)))
    found = {
        "odd": size - 1 + size % 2,
        "prime": _prime(size) if style == "prime" else size,
        "above": power + 1 if power < limit else power // 2 + 1,
        "below": power - 1,
        "round": round(size / EDGE) * EDGE if size > EDGE // 2 else size,
    }.get(style, size)
    return min(found, limit)


def _prime(most: int) -> int:
    """The largest prime up to `most`, which is at least 2."""
    return next(one for one in range(most, 1, -1) if _is_prime(one))


def _is_prime(number: int) -> bool:
    return all(number % one for one in range(2, math.isqrt(number) + 1))


def friendly(case: Case) -> Case:
    """One dense array of about the same bytes and data: a row of a multiple of 64 items, or where
    the case has three dimensions or more a box of such extents, the slowest of multiples of 16.
    """
    items = max(EDGE, case.nbytes // BYTES[case.dtype])
    shape: tuple[int, ...] = (round(items / EDGE) * EDGE,)
    if len(case.shape) > 2 and items >= EDGE**3:
        # The root of a cube may be a little less than its edge.
        edge = int(items ** (1 / 3) + 1e-6) // EDGE * EDGE
        shape = (round(items / edge**2 / SLOW) * SLOW, edge, edge)
    return replace(case, shape=shape, layout="contiguous", arrays=1, varied=False)
