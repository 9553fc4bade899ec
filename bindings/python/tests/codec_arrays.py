"""Arrays and bounds for the tests of codecs, and what has to hold for a reconstruction."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from unspool.codecs import Bound, quality

FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
INTEGERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()

BOUNDS = (
    Bound(abs=1e-3),
    Bound(range=1e-3),
    Bound(rms=1e-2),
    Bound(psnr=60),
    Bound(l2=1e-2),
    Bound(rel=1e-2),
    Bound(rel=1e-3, floor=1e-3),
)

SHAPES = (
    (),
    (0,),
    (1,),
    (7,),
    (2000,),
    (3, 0, 5),
    (40, 50),
    (2, 33, 65),
    (9, 10, 40),
    (2, 3, 9, 33),
)


def wave(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """A smooth field of zeros, waves and noise."""
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    phase = np.linspace(0.0, 40.0, max(count, 1))[:count]
    values = np.sin(phase) * np.maximum(0.0, np.sin(phase / 7)) + 1e-4 * rng.normal(size=count)
    values[: count // 4] = 0.0
    if np.dtype(dtype).kind == "c":
        values = values + 1j * np.roll(values, 3)
    return values.astype(dtype).reshape(shape)


def with_specials(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """The same with NaN of several bits, infinities, zeros of both signs and extremes in places."""
    flat = values.reshape(-1).copy()
    parts = flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    if parts.size == 0:
        return values
    info = np.finfo(parts.dtype)
    odd = [np.nan, np.inf, -np.inf, -0.0, info.max, info.min, info.tiny, info.smallest_subnormal]
    rng = np.random.default_rng(seed)
    places = rng.integers(0, parts.size, 2 * len(odd))
    parts[places] = np.array(odd + odd, parts.dtype)
    bits = parts.view(f"u{parts.itemsize}")
    nan = np.array(np.nan, parts.dtype).view(bits.dtype)
    # A NaN with a payload.
    bits[rng.integers(0, parts.size)] = nan | bits.dtype.type(5)
    return flat.reshape(values.shape)


def assert_holds(original: np.ndarray, again: np.ndarray, bound: Bound) -> None:
    """Every finite value within the bound, everything else bit for bit."""
    found = quality(original, again, bound)
    assert found.special == 0, found
    assert found.violations == 0, found


def any_bound() -> st.SearchStrategy[Bound]:
    """Bounds of every kind, from tight to coarse."""
    sizes = st.floats(1e-9, 0.5)

    def made(kind: str, number: float, floor: float) -> Bound:
        more: dict[str, Any] = {"floor": floor} if kind == "rel" and floor else {}
        return Bound(**{kind: 20 + 200 * number if kind == "psnr" else number}, **more)

    kinds = st.sampled_from(["abs", "range", "rms", "psnr", "l2", "rel"])
    return st.builds(made, kinds, sizes, st.sampled_from([0.0, 1e-6, 1e-2]))
