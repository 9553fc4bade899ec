"""Sources and receivers anywhere in a model, by linear interpolation between its nodes.

As in the crate `unspool-wave`: a point on a node has one weight of 1; adding with the weights is
the transpose of reading with them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.medium import Grid, Medium
from unspool_studies.rtm.model import Floats

__all__ = ["Corners", "Shares", "place", "share"]

Indices = NDArray[np.int32]
Position = tuple[float, ...]

#: How much a position may miss the node that it means, relatively: the rounding of a division.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Corners:
    """The cells around each point.

    Attributes:
        cells: offsets into a padded field, int32 (points, corners).
        weights: how much each one counts, float32 (points, corners).
    """

    cells: Indices
    weights: Floats


@dataclass(frozen=True, eq=False)
class Shares:
    """What each cell receives of the points around it.

    Attributes:
        cells: offsets into a padded field, each once, int32.
        first: where the entries of each cell begin; one more at the end, int32.
        points: of each entry, in ascending order within a cell, int32.
        weights: of each entry, float32.
        scale: what a cell makes of a unit, float32.
    """

    cells: Indices
    first: Indices
    points: Indices
    weights: Floats
    scale: Floats


def place(grid: Grid, positions: Sequence[Position]) -> Corners:
    """Places points at positions in metres from the first cell: x, perhaps y, and depth.

    Raises:
        MigrationError: a position lies outside the model.
    """
    where = np.array(positions, np.float64).reshape(len(positions), len(grid.cells))
    _check(grid, where)
    axes = [
        _neighbours(where[:, axis] / d, cells)
        for axis, (d, cells) in enumerate(zip(grid.spacing, grid.cells, strict=True))
    ]
    cells, weights = [], []
    for choice in itertools.product((0, 1), repeat=len(axes)):
        index = [nodes[side] + grid.pad for (nodes, _), side in zip(axes, choice, strict=True)]
        cells.append(np.ravel_multi_index(index, grid.shape).astype(np.int32))
        parts = [part[side] for (_, part), side in zip(axes, choice, strict=True)]
        weights.append(math.prod(parts[1:], start=parts[0]).astype(np.float32))
    return Corners(np.stack(cells, axis=1), np.stack(weights, axis=1))


def share(corners: Corners, medium: Medium, grid: Grid) -> Shares:
    """The same points, seen from the cells: for adding to a field, one cell at a time."""
    points, corner = np.nonzero(corners.weights)
    cells, weights = corners.cells[points, corner], corners.weights[points, corner]
    order = np.argsort(cells, kind="stable")
    each, first = np.unique(cells[order], return_index=True)
    at = np.unravel_index(each, grid.shape)
    return Shares(
        each.astype(np.int32),
        np.append(first, len(order)).astype(np.int32),
        points[order].astype(np.int32),
        weights[order],
        medium.response(at, math.prod(grid.spacing)),
    )


def _check(grid: Grid, where: NDArray[np.float64]) -> None:
    extent = (np.array(grid.cells) - 1) * np.array(grid.spacing)
    inside = ((where >= 0.0) & (where <= extent)).all(axis=1)
    if not inside.all():
        index = int(np.argmin(inside))
        place = ", ".join(f"{metres:g}" for metres in where[index])
        raise MigrationError(
            f"point {index} at ({place}) m lies outside the model of "
            f"{' by '.join(f'{metres:g} m' for metres in extent)}"
        )


def _neighbours(
    at: NDArray[np.float64], cells: int
) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], tuple[NDArray[np.float64], ...]]:
    """The node at or before each position and the one after it, each with its weight."""
    nearest = np.rint(at)
    means_it = np.abs(at - nearest) < ROUNDING * np.maximum(nearest, 1.0)
    at = np.where(means_it, nearest, at)
    first = np.minimum(np.floor(at).astype(np.intp), cells - 1)
    part = at - first
    return (first, np.minimum(first + 1, cells - 1)), (1.0 - part, part)
