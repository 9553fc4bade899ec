"""Velocity models: what the waves travel through, and what they are migrated with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from unspool_studies.rtm.errors import MigrationError

__all__ = ["Floats", "Model", "coarser", "extended", "smooth", "water"]

Floats = NDArray[np.float32]

#: Speeds that a surface layer must have to be taken for water, in m/s.
WATER_SPEEDS = (1400.0, 1600.0)
#: How much the speed may vary in a column of water, as a fraction.
WATER_TOLERANCE = 0.005
#: How far cells may be apart, in metres: from an ultrasonic experiment to a planet.
NEAREST, FARTHEST = 1e-6, 1e6


@dataclass(frozen=True, eq=False)
class Model:
    """A velocity model on a regular grid.

    Attributes:
        velocity: speeds in m/s, float32, shape (x, z) or (x, y, z): z is the depth and varies
            fastest.
        spacing: metres between cells along each axis.
        name: where it comes from, for people.
        notes: what was concluded while reading it, for people.
    """

    velocity: Floats
    spacing: tuple[float, ...]
    name: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.velocity, self.spacing)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along x, perhaps y, and z."""
        return self.velocity.shape

    @property
    def in_space(self) -> bool:
        """Whether it has three dimensions."""
        return self.velocity.ndim == 3

    @property
    def extent(self) -> tuple[float, ...]:
        """Metres from the first to the last cell along each axis."""
        return tuple((n - 1) * d for n, d in zip(self.shape, self.spacing, strict=True))

    @property
    def slowest(self) -> float:
        """The lowest speed in m/s."""
        return float(self.velocity.min())

    @property
    def fastest(self) -> float:
        """The highest speed in m/s."""
        return float(self.velocity.max())


def _check(velocity: Floats, spacing: tuple[float, ...]) -> None:
    if velocity.ndim not in (2, 3) or velocity.dtype != np.float32:
        raise MigrationError("a velocity model is a float32 array of shape (x, z) or (x, y, z)")
    if min(velocity.shape) < 8:
        raise MigrationError(f"a model of {velocity.shape} cells is too small: at least 8 each way")
    if len(spacing) != velocity.ndim:
        raise MigrationError(f"{len(spacing)} spacings do not fit {velocity.ndim} dimensions")
    if not all(np.isfinite(s) and s > 0 for s in spacing):
        raise MigrationError(f"a spacing of {spacing} m is not positive")
    if not all(NEAREST <= s <= FARTHEST for s in spacing):
        raise MigrationError(
            f"a spacing of {spacing} m: cells are {NEAREST:g} to {FARTHEST:g} m apart"
        )
    if not (np.isfinite(velocity).all() and velocity.min() > 0):
        raise MigrationError("every velocity must be a positive finite number")


def water(model: Model) -> NDArray[np.bool_]:
    """The cells of the water above the sea floor; none where the surface is not water."""
    surface = model.velocity[..., :1]
    wet = (surface > WATER_SPEEDS[0]) & (surface < WATER_SPEEDS[1])
    same = np.abs(model.velocity - surface) <= WATER_TOLERANCE * surface
    return np.logical_and.accumulate(wet & same, axis=-1)


def coarser(model: Model, every: int) -> Model:
    """Every `every`-th cell of a model along each axis, the first ones included."""
    if every < 1:
        raise MigrationError(f"every {every}th cell of a model: whole numbers from 1 are needed")
    if every == 1:
        return model
    velocity = np.ascontiguousarray(model.velocity[(slice(None, None, every),) * len(model.shape)])
    spacing = tuple(every * step for step in model.spacing)
    return Model(velocity, spacing, f"{model.name}, 1 in {every} cells", model.notes)


def extended(model: Model, count: int) -> Model:
    """A section of shape (x, z) repeated along y: `count` cells, as far apart as along x.

    A model in space is given back as it is.
    """
    if model.in_space:
        return model
    if count < 1:
        raise MigrationError(f"a section extended over {count} cells: at least one is needed")
    (dx, dz), (nx, nz) = model.spacing, model.shape
    velocity = np.ascontiguousarray(np.broadcast_to(model.velocity[:, None], (nx, count, nz)))
    return Model(velocity, (dx, dx, dz), f"{model.name}, extended in y", model.notes)


def smooth(model: Model, length: float) -> Model:
    """The model to migrate with: slowness smoothed by a Gaussian of `length` metres.

    The slowness is smoothed and not the speed, so that travel times stay right. The water keeps
    its speed: it is known, and a smeared sea floor would bend everything below it.
    """
    longest = max(model.extent)
    if not 0 <= length <= longest:
        raise MigrationError(
            f"a smoothing length of {length} m: from 0 to the {longest:g} m of the model are needed"
        )
    if length == 0:
        return model
    sigma = [length / spacing for spacing in model.spacing]
    slowness = gaussian_filter(1.0 / model.velocity.astype(np.float64), sigma, mode="nearest")
    velocity = np.where(water(model), model.velocity, 1.0 / slowness).astype(np.float32)
    return Model(velocity, model.spacing, f"{model.name}, smoothed over {length:g} m")
