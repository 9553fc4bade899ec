"""The coefficients of a step as NumPy arrays: what the compiled propagator computes for itself.

The same formulas as in the crate `unspool-wave`, in two and in three dimensions; in two the numbers
are the same bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from unspool_studies._native import SPACE_ORDER
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.model import Floats, Model

__all__ = ["HALO", "Grid", "Medium", "largest_stable_step", "padded_shape"]

#: Cells beyond the absorbing layer that the stencil reads: half the space order.
HALO = SPACE_ORDER // 2
#: Weights of the second derivative: the centre, then one to four cells away.
SECOND_DERIVATIVE = (-205.0 / 72.0, 8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0)
#: The amplitude that the layer lets return from its outer edge at normal incidence.
DESIGN_REFLECTION = 3e-3
#: In three dimensions, rows along z have a multiple of this many cells: 16 bytes are read at once.
WIDE = 4
#: Elements of a padded field at most, so that offsets fit 31 bits with room to spare.
MOST_ELEMENTS = 1 << 30


def largest_stable_step(velocity: float, spacing: tuple[float, ...]) -> float:
    """The largest stable time step in seconds, for a speed in m/s and spacings in metres.

    Von Neumann's condition: `dt^2 v^2` times the largest eigenvalue of the negative Laplacian, that
    of the checkerboard, is at most 4.
    """
    first, *others = map(abs, SECOND_DERIVATIVE)
    weights = first + 2.0 * sum(others)
    return 2.0 / (velocity * math.sqrt(sum(weights / d**2 for d in spacing)))


def padded_shape(shape: tuple[int, ...], layer: int) -> tuple[int, ...]:
    """The shape of a wavefield on a model of `shape` cells with a layer of `layer` cells."""
    *others, nz = (cells + 2 * (layer + HALO) for cells in shape)
    if others[1:]:
        nz = -(-nz // WIDE) * WIDE
    return (*others, nz)


@dataclass(frozen=True)
class Grid:
    """The geometry of a model and of the padded fields around it.

    Attributes:
        cells: of the model, along x, perhaps y, and z.
        spacing: metres between cells, likewise.
        layer: cells of the absorbing layer.
    """

    cells: tuple[int, ...]
    spacing: tuple[float, ...]
    layer: int

    def __post_init__(self) -> None:
        if math.prod(self.shape) > MOST_ELEMENTS:
            raise MigrationError(
                f"the grid cannot be used: {' by '.join(map(str, self.cells))} cells and a layer "
                f"of {self.layer} are too many"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a padded field, z fastest."""
        return padded_shape(self.cells, self.layer)

    @property
    def pad(self) -> int:
        """Cells between the edge of a padded field and the model, where it begins."""
        return self.layer + HALO

    @property
    def inner(self) -> tuple[slice, ...]:
        """The model's part of a padded field."""
        return tuple(slice(self.pad, self.pad + cells) for cells in self.cells)


@dataclass(frozen=True, eq=False)
class Medium:
    """What waves travel through.

    Attributes:
        push: v^2 dt^2 in square metres, padded like the fields.
        damping: sigma dt / 2 that each axis adds, by the position along it.
        centre: the weight of the Laplacian at its centre, in 1 / m^2.
        weights: one to four cells away, float32, for each axis.
    """

    push: Floats
    damping: tuple[Floats, ...]
    centre: np.float32
    weights: tuple[Floats, ...]

    @classmethod
    def of(cls, model: Model, grid: Grid, dt: float) -> Medium:
        """The coefficients for one model and one time step in seconds.

        Raises:
            MigrationError: the step is unstable.
        """
        limit = largest_stable_step(model.fastest, grid.spacing)
        if not 0.0 < dt <= limit:
            raise MigrationError(
                f"a time step of {dt} s is unstable on this model: the largest stable one is "
                f"{limit} s; take a smaller step or a coarser grid"
            )
        along = [[weight / (d * d) for weight in SECOND_DERIVATIVE] for d in grid.spacing]
        return cls(
            _padded_push(model, grid, dt),
            tuple(_damping(grid, axis, model.fastest, dt) for axis in range(len(grid.cells))),
            np.float32(sum(weights[0] for weights in along)),
            tuple(np.array(weights[1:], np.float32) for weights in along),
        )

    def response(self, cells: tuple[np.ndarray, ...], size: float) -> Floats:
        """How much of a unit of q at cells of the padded field the next level receives.

        `v^2 dt^2 / (1 + s)` over the size of a cell, in square or cubic metres.
        """
        damp = np.zeros(cells[0].shape, np.float32)
        for axis, at in zip(self.damping, cells, strict=True):
            damp = damp + axis[at]
        return np.asarray(self.push[cells] / (np.float32(size) * (np.float32(1.0) + damp)))


def _padded_push(model: Model, grid: Grid, dt: float) -> Floats:
    """The edge of the model continues through the layer."""
    pads = [
        (grid.pad, length - grid.pad - cells)
        for length, cells in zip(grid.shape, grid.cells, strict=True)
    ]
    v = model.velocity.astype(np.float64)
    return np.pad((v * v * dt * dt).astype(np.float32), pads, mode="edge")


def _damping(grid: Grid, axis: int, fastest: float, dt: float) -> Floats:
    """Zero in the model, rising with the square of the way into the layer.

    A wave of speed v is damped by exp(-sigma / (2 v)) per metre, so that the way into the layer and
    back leaves `DESIGN_REFLECTION` when the peak of sigma is 3 v ln(1 / R) / width.
    """
    width = float(max(grid.layer, 1))
    peak = 3.0 * fastest * math.log(1.0 / DESIGN_REFLECTION) / (width * grid.spacing[axis])
    at = np.arange(grid.shape[axis])
    last = grid.cells[axis] + 2 * grid.pad - 1
    from_edge = np.minimum(at, last - at).astype(np.float64)
    inside = np.clip(HALO + grid.layer - from_edge, 0.0, width) / width
    if grid.layer == 0:
        inside[:] = 0.0
    return (0.5 * dt * peak * inside**2).astype(np.float32)
