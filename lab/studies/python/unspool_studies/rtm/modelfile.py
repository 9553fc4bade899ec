"""Reading velocity models: raw float32, NumPy's `.npy`, and SEG-Y."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from unspool_studies.rtm.errors import ModelFileError
from unspool_studies.rtm.model import Floats, Model

__all__ = ["Units", "read_model"]

Units = Literal["auto", "m/s", "km/s"]
Shape = tuple[int, ...]
Spacing = tuple[float, ...]

#: Speeds of waves in rock and water, generously, in m/s.
SLOWEST, FASTEST = 100.0, 12_000.0


def read_model(
    path: Path, shape: Shape | None = None, spacing: Spacing | None = None, units: Units = "auto"
) -> Model:
    """Reads a P-wave velocity model.

    Args:
        path: `.npy`; `.sgy` or `.segy`; anything else is raw little-endian float32.
        shape: cells along x, perhaps y, and z, z fastest: needed for raw files, checked for others.
        spacing: metres along each axis, or one for all: needed unless a SEG-Y file says it.
        units: of the file; `"auto"` takes speeds of at most 20 for km/s.

    Raises:
        ModelFileError: the file cannot be read, or does not hold a velocity model.
    """
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        values, found, notes = _read(path, shape)
    except OSError as error:
        raise ModelFileError(f"the model file {path} cannot be read: {error.strerror}") from error
    if values.size == 0:
        raise ModelFileError(f"{path} holds {_by(values.shape)} cells: there is no model in it")
    if shape is not None and values.shape != shape:
        raise ModelFileError(f"{path} holds {_by(values.shape)} cells, and not {_by(shape)}")
    spacing = spacing or found
    if spacing is None:
        raise ModelFileError(f"{path} does not say how far apart its cells are: give --spacing")
    if len(spacing) == 1:
        spacing *= values.ndim
    velocity, unit = _in_metres_per_second(path, values, units)
    return Model(velocity, spacing, path.name, (*notes, f"speeds in {unit}"))


def _read(path: Path, shape: Shape | None) -> tuple[Floats, Spacing | None, tuple[str, ...]]:
    if path.suffix == ".npy":
        return _npy(path), None, ()
    if path.suffix.lower() in {".sgy", ".segy"}:
        return _segy(path)
    return _raw(path, shape), None, ()


def _raw(path: Path, shape: Shape | None) -> Floats:
    if shape is None:
        raise ModelFileError(f"{path} is raw float32: give --shape, cells along x and z: 1601x401")
    size, wanted = path.stat().st_size, 4 * math.prod(shape)
    if size != wanted:
        raise ModelFileError(
            f"{path} has {size} bytes; {_by(shape)} float32 values are {wanted}: "
            "check --shape (cells along x, then perhaps y, then z)"
        )
    return np.fromfile(path, "<f4").reshape(shape).astype(np.float32)


def _npy(path: Path) -> Floats:
    try:
        values: NDArray[np.generic] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ModelFileError(f"{path} is no .npy file that holds numbers: {error}") from error
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu":
        raise ModelFileError(
            f"{path} holds {values.dtype} of shape {values.shape}; a model is an "
            "array of numbers of two dimensions, (x, z), or three, (x, y, z)"
        )
    return np.ascontiguousarray(values, dtype=np.float32)


def _segy(path: Path) -> tuple[Floats, Spacing | None, tuple[str, ...]]:
    """One trace is one column of the model; positions and intervals come from the headers."""
    try:
        import segyio
    except ImportError as error:
        raise ModelFileError(
            "reading SEG-Y needs the package segyio: pip install 'unspool-studies[segy]'"
        ) from error
    try:
        with segyio.open(str(path), "r", ignore_geometry=True) as file:
            values = np.ascontiguousarray(file.trace.raw[:], dtype=np.float32)
            x = file.attributes(segyio.TraceField.CDP_X)[:].astype(np.float64)
            scale = int(file.attributes(segyio.TraceField.SourceGroupScalar)[0][0])
            interval = int(file.bin[segyio.BinField.Interval])
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelFileError(f"{path} is not a SEG-Y file that can be read: {error}") from error
    dx = float(np.median(np.abs(np.diff(x)))) if len(x) > 1 else 0.0
    dx = dx * scale if scale > 0 else dx / abs(scale) if scale < 0 else dx
    # In files of depth, the interval that is microseconds in files of time is millimetres.
    dz = interval / 1000.0
    if dx <= 0 or dz <= 0:
        return values, None, ()
    return values, (dx, dz), (f"spacing of {dx:g} m by {dz:g} m from the SEG-Y headers",)


def _in_metres_per_second(path: Path, values: Floats, units: Units) -> tuple[Floats, str]:
    if not np.isfinite(values).all():
        raise ModelFileError(
            f"{path} holds values that are not finite numbers: is it little-endian float32?"
        )
    lowest, highest = float(values.min()), float(values.max())
    if units == "auto":
        units = "km/s" if highest <= 20.0 else "m/s"
    velocity = values * np.float32(1000.0) if units == "km/s" else values
    factor = 1000.0 if units == "km/s" else 1.0
    if lowest * factor < SLOWEST or highest * factor > FASTEST:
        raise ModelFileError(
            f"the values in {path} go from {lowest:g} to {highest:g} {units}: speeds of waves lie "
            f"between {SLOWEST:g} and {FASTEST:g} m/s; check --units, and that it is "
            "little-endian float32"
        )
    return np.ascontiguousarray(velocity), units


def _by(shape: tuple[int, ...]) -> str:
    return " by ".join(map(str, shape))
