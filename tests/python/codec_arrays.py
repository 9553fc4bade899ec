"""Arrays and bounds for the tests of codecs, and what has to hold for a reconstruction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from unspool.codecs import Bound

FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

BOUNDS = (
    Bound(abs=1e-3),
    Bound(range=1e-3),
    Bound(rms=1e-2),
    Bound(psnr=60),
    Bound(l2=1e-2),
    Bound(pointwise=1e-2),
    Bound(pointwise=1e-3, floor=1e-3),
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


#: Sums over an array depend on their order in the last bits, and bounds that follow from them too.
SLACK = 1.0 + 1e-12


def assert_holds(original: np.ndarray, again: np.ndarray, bound: Bound) -> None:
    """Every finite value within the bound, everything else bit for bit."""
    assert original.dtype == again.dtype and original.shape == again.shape
    before, after = parts_of(original), parts_of(again)
    bits = f"u{before.dtype.itemsize}"
    with np.errstate(invalid="ignore", over="ignore"):
        exact, found = before.astype(np.float64), after.astype(np.float64)
        finite = np.isfinite(exact)
        special = before.view(bits)[~finite] == after.view(bits)[~finite]
        assert special.all(), f"{(~special).sum()} of {special.size} special values have other bits"
        errors = np.abs(found[finite] - exact[finite])
        broken = ~(errors <= allowed(exact[finite], bound))
    assert not broken.any(), f"{bound}: {broken.sum()} of {broken.size}, to {errors.max()}"


def parts_of(values: np.ndarray) -> np.ndarray:
    """The numbers in a row; a complex one has two."""
    flat = values.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def allowed(finite: np.ndarray, bound: Bound) -> np.ndarray | float:
    """The largest error of each of these values, as the documents define the bounds."""
    if bound.kind == "pointwise":
        size = np.abs(finite)
        # What is below the floor may become 0.
        return np.where(size < (bound.floor or 0.0), size, bound.value * size)
    if bound.kind == "abs" or not finite.size:
        return bound.value
    span, rms = float(np.ptp(finite)), math.sqrt(float(np.mean(finite**2)))
    decibels = 10.0 ** (-bound.value / 20.0)
    limits = {
        "range": bound.value * span,
        "rms": bound.value * rms * SLACK,
        "l2": math.sqrt(3.0) * bound.value * rms * SLACK,
        "psnr": math.sqrt(3.0) * decibels * span * SLACK,
    }
    return limits[bound.kind]


def any_bound() -> st.SearchStrategy[Bound]:
    """Bounds of every kind, from tight to coarse."""
    sizes = st.floats(1e-9, 0.5)

    def made(kind: str, number: float, floor: float) -> Bound:
        more: dict[str, Any] = {"floor": floor} if kind == "pointwise" and floor else {}
        return Bound(**{kind: 20 + 200 * number if kind == "psnr" else number}, **more)

    kinds = st.sampled_from(["abs", "range", "rms", "psnr", "l2", "pointwise"])
    return st.builds(made, kinds, sizes, st.sampled_from([0.0, 1e-6, 1e-2]))
