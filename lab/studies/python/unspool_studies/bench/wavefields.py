"""States of a wave for measurements: float32 fields that compress as wavefields do.

Expanding rings, fainter ones behind them, and a coda of small waves behind the first: an early
field is mostly silent, the last one is full. They do not solve any equation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from unspool_studies.bench.cuda import Cuda

__all__ = ["COUNT", "ROW", "field", "fill", "states_of"]

#: Different fields of a history, in the order of time.
COUNT = 8
#: Points in a row of a field.
ROW = 4096
#: Rings of a field, and points of a wavelength.
RINGS, WAVELENGTH = 6, 24.0
#: Rings end where the square of the wavelengths from their crest is this.
WIDE = 16.0


def states_of(cuda: Cuda, size: int, encoded: bool) -> list[Any]:
    """Arrays of `size` bytes on the device: `COUNT` fields where they will be encoded."""
    if not encoded or size % (4 * ROW):
        return [cuda.array(size)]
    return [fill(cuda.array(size), number, ROW) for number in range(COUNT)]


def fill(array: Any, number: int, columns: int) -> Any:
    """Writes a field into an array of bytes, of CuPy or NumPy; the same memory as rows of float32.

    Args:
        array: of whole rows.
        number: of the field, from 0, below `COUNT`.
        columns: of float32 in a row.
    """
    if isinstance(array, np.ndarray):
        xp: Any = np
    else:
        import cupy as xp

    rows = array.view("float32").reshape(-1, columns)
    rows[...] = field(xp, rows.shape, number)
    if xp is not np:
        xp.cuda.runtime.deviceSynchronize()
        xp.get_default_memory_pool().free_all_blocks()
    return rows


def field(xp: Any, shape: tuple[int, int], number: int) -> Any:
    """The field of this number, from 0, as an array of the library `xp`: NumPy or CuPy."""
    rows, columns = shape
    y = xp.arange(rows, dtype="float32")[:, None]
    x = xp.arange(columns, dtype="float32")[None, :]
    distance = xp.sqrt((y - 0.3 * rows) ** 2 + (x - 0.45 * columns) ** 2)
    reach = (number + 1) / COUNT * 0.8 * math.hypot(rows, columns)
    total = xp.zeros(shape, dtype="float32")
    for ring in range(RINGS):
        a = ((distance - reach / (1.0 + 0.3 * ring)) / WAVELENGTH) ** 2
        total += xp.where(a < WIDE, 0.5**ring * (1.0 - 2.0 * a) * xp.exp(-a), 0.0).astype("float32")
    waves = xp.sin(0.21 * x + 0.034 * y) * xp.sin(0.17 * y - 0.05 * x + 0.9)
    coda = 0.02 * waves * xp.exp(-(((reach - distance) / (0.4 * reach)) ** 2))
    total += xp.where(distance < reach, coda, 0.0).astype("float32")
    total /= xp.sqrt(1.0 + distance / WAVELENGTH).astype("float32")
    return total
