"""Whether what was restored is what was saved, or within the bound: every value is looked at."""

from __future__ import annotations

from typing import Any

from unspool.codecs import Bound, NvComp, Zfp
from unspool_studies.bench.shapes_data import components

__all__ = ["wrong_values"]

#: Values that are compared at a time, in float64.
BLOCK = 1 << 26


def wrong_values(xp: Any, saved: list[Any], restored: list[Any], dtype: str, codec: Any) -> Any:
    """How many values break what the codec promises; None where it promises nothing (zfp)."""
    if isinstance(codec, Zfp):
        return None
    limit = codec if isinstance(codec, Bound) else None
    if isinstance(codec, NvComp) and codec.abs is not None:
        limit = Bound(abs=codec.abs)
    pairs = zip(saved, restored, strict=True)
    # One number comes from the device, whatever the number of arrays.
    return int(sum(_wrong(xp, before, after, dtype, limit) for before, after in pairs))


def _wrong(xp: Any, saved: Any, restored: Any, dtype: str, bound: Bound | None) -> Any:
    if bound is None:
        return _different(xp, saved, restored)
    before, after = (components(xp, array, dtype) for array in (saved, restored))
    limit = _limit(xp, before, bound)
    begins = range(0, before.size, BLOCK)
    return sum(
        _beyond(xp, before[at : at + BLOCK], after[at : at + BLOCK], bound, limit) for at in begins
    )


def _different(xp: Any, saved: Any, restored: Any) -> Any:
    """Items with other bits."""
    word = min(8, saved.itemsize)
    left, right = (xp.ascontiguousarray(array).view(f"u{word}") for array in (saved, restored))
    return xp.count_nonzero(left != right)


def _limit(xp: Any, values: Any, bound: Bound) -> Any:
    """The largest error that an absolute bound or one of the range allows; None for pointwise."""
    if bound.kind != "range":
        return bound.abs
    finite = xp.isfinite(values)
    high = xp.where(finite, values, -xp.inf).max().astype("float64")
    low = xp.where(finite, values, xp.inf).min().astype("float64")
    return bound.value * (high - low)


def _beyond(xp: Any, saved: Any, restored: Any, bound: Bound, limit: Any) -> Any:
    finite = xp.isfinite(saved)
    bits = f"u{saved.itemsize}"
    kept = saved.view(bits) == restored.view(bits)
    # Where it is not finite, its bits count.
    before = xp.where(finite, saved, 0).astype("float64")
    after = xp.where(finite, restored, 0).astype("float64")
    size = xp.abs(before)
    allowed = bound.value * size if limit is None else limit
    if bound.floor is not None:
        allowed = xp.where(size < bound.floor, size, allowed)
    held = xp.abs(after - before) <= allowed
    return xp.count_nonzero(~(kept | (finite & held)))
