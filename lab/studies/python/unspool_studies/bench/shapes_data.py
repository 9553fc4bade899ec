"""The data of the part `shapes`, made by NumPy or CuPy, whichever is given, and how they lie.

Arrays of bfloat16, which not every library has, are arrays of uint16 with the same bits here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unspool_studies.bench.shapes_cases import Case

__all__ = ["arrays_of", "blank", "components", "placed", "values_of"]

#: Points of a wavelength, and the part of the longest way that waves have gone.
WAVELENGTH, REACH = 24.0, {"silent": 0.1, "half": 0.4, "filled": 1.5}

#: Modes of the turbulence, and the amplitude of each compared with the one of twice its length.
SCALES, DECAY = 8, 2 ** (-5 / 6)

#: The largest value that integers are made of, and what it becomes in 8, 16 and more bits.
PEAK, WHOLE = 8.0, {8: 100, 16: 30_000, 32: 2**30, 64: 2**30}

#: Items from one NaN, Inf and -Inf to the next.
NAN_EVERY, INF_EVERY, LOW_EVERY = 997, 4999, 7919

#: The least extent whose ends an interior leaves out, and how many items at each.
SPLIT, RIM = 32, 2


def arrays_of(xp: Any, case: Case) -> list[Any]:
    """The arrays of a case."""
    made: dict[tuple[int, ...], Any] = {}
    for shape in case.shapes():
        if shape not in made:
            made[shape] = values_of(xp, case.kind, case.dtype, shape)
    return [placed(xp, made[shape], case.layout) for shape in case.shapes()]


def blank(xp: Any, case: Case) -> list[Any]:
    """Arrays of the same shapes, dtype and layout with other values: ones."""
    dtype = _stored(case.dtype)
    return [placed(xp, xp.ones(shape, dtype), case.layout) for shape in case.shapes()]


def _stored(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


def values_of(xp: Any, kind: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """Values of this kind, in C order."""
    return _typed(xp, MAKERS[kind](xp, shape), dtype)


def _typed(xp: Any, values: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return _bits_of_bfloat16(xp, values)
    if dtype == "bool":
        return values > 0
    if dtype.startswith("complex"):
        found = xp.empty(values.shape, dtype)
        found.real, found.imag = values, values[::-1]
        return found
    if "int" in dtype:
        most = WHOLE[int(dtype.lstrip("uint"))]
        whole = xp.clip(xp.rint(values * (most / PEAK)), -most, most)
        return (xp.abs(whole) if dtype[0] == "u" else whole).astype(dtype)
    return values.astype(dtype)


def _bits_of_bfloat16(xp: Any, values: Any) -> Any:
    """Rounded to the nearest, halves to even; NaN stays one."""
    bits = values.astype("float32").view("uint32")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (xp.where(xp.isnan(values), bits, rounded) >> 16).astype("uint16")


def components(xp: Any, array: Any, dtype: str) -> Any:
    """The values of an array in a row, those of bfloat16 as float32; a complex number has two."""
    flat = xp.ascontiguousarray(array).reshape(-1)
    if dtype == "bfloat16":
        return (flat.astype("uint32") << 16).view("float32")
    return flat.view(flat.real.dtype) if dtype.startswith("complex") else flat


# Kinds of data: functions of the library and the shape, which give float64.


def _noise(xp: Any, shape: tuple[int, ...]) -> Any:
    return xp.random.default_rng(5).standard_normal(shape)


def _axes(xp: Any, shape: tuple[int, ...]) -> list[Any]:
    """The index along each axis, in a shape that broadcasts."""
    every = range(len(shape))
    likes = [tuple(-1 if at == axis else 1 for at in every) for axis in every]
    return [xp.arange(shape[axis], dtype="float64").reshape(likes[axis]) for axis in every]


def _wave(xp: Any, shape: tuple[int, ...], reach: float) -> Any:
    """A front that has gone so far from a point within, waves behind it, and silence before it."""
    squares = xp.zeros(shape)
    for axis, size in zip(_axes(xp, shape), shape, strict=True):
        squares += ((axis - 0.4 * size) / WAVELENGTH) ** 2
    distance = xp.sqrt(squares)
    apart = distance - reach * distance.max()
    front = (1.0 - 2.0 * apart**2) * xp.exp(-(apart**2))
    coda = 0.3 * xp.sin(5.0 * distance) / xp.sqrt(1.0 + distance)
    return xp.where(apart < 0, coda, 0.0) + xp.where(abs(apart) < 4, front, 0.0)


def _wave_to(reach: float) -> Maker:
    return lambda xp, shape: _wave(xp, shape, reach)


def _turbulence(xp: Any, shape: tuple[int, ...]) -> Any:
    """Sines of several scales in oblique directions, the small ones fainter."""
    axes, total = _axes(xp, shape), xp.zeros(shape)
    for scale in range(SCALES):
        phase = xp.zeros(shape)
        for number, axis in enumerate(axes):
            phase += axis * (0.01 * 2**scale * (1.0 + 0.37 * ((scale + 2 * number) % 5)))
        total += DECAY**scale * xp.sin(phase + 0.7 * scale)
    return total


def _steps(xp: Any, shape: tuple[int, ...]) -> Any:
    """Plateaus with steep flanks across all axes."""
    phase = xp.zeros(shape)
    for number, axis in enumerate(_axes(xp, shape)):
        phase += axis * (0.05 / (1 + number))
    return xp.tanh(20.0 * xp.sin(phase))


def _flat(xp: Any, shape: tuple[int, ...]) -> Any:
    """The place of each item in memory."""
    return xp.arange(math.prod(shape), dtype="float64").reshape(shape)


def _sines(xp: Any, shape: tuple[int, ...]) -> Any:
    return xp.sin(1e-3 * _flat(xp, shape))


def _ramp(xp: Any, shape: tuple[int, ...]) -> Any:
    """Up to 8 in 2,048 items, again and again: exact in every dtype of at least 11 bits."""
    return (_flat(xp, shape) % 2048) / 256


def _special(xp: Any, shape: tuple[int, ...]) -> Any:
    values = _turbulence(xp, shape)
    flat = values.reshape(-1)
    flat[::NAN_EVERY], flat[5::INF_EVERY], flat[7::LOW_EVERY] = math.nan, math.inf, -math.inf
    return values


Maker = Callable[[Any, tuple[int, ...]], Any]

MAKERS: dict[str, Maker] = {
    "noise": _noise,
    "turbulence": _turbulence,
    "steps": _steps,
    "sines": _sines,
    "ramp": _ramp,
    "zeros": lambda xp, shape: xp.zeros(shape),
    "special": _special,
}
MAKERS |= {name: _wave_to(reach) for name, reach in REACH.items()}


def placed(xp: Any, values: Any, layout: str) -> Any:
    """The same values in an array of their own, with this layout."""
    if layout == "interior":
        inner = tuple(slice(RIM, -RIM) if size >= SPLIT else slice(None) for size in values.shape)
        around = tuple(size + 2 * RIM * (size >= SPLIT) for size in values.shape)
        array = xp.zeros(around, values.dtype)[inner]
    elif layout == "transposed":
        # The first axis is the fastest one, the others keep their order.
        array = xp.moveaxis(xp.empty((*values.shape[1:], values.shape[0]), values.dtype), -1, 0)
    else:
        array = xp.empty(values.shape, values.dtype, order="F" if layout == "fortran" else "C")
    array[...] = values
    return array
