"""The models of parts that migrate: those that are made, and how others fit into given fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

import numpy as np
from unspool_studies.rtm.generated import generated_model, salt_model
from unspool_studies.rtm.model import Model, coarser, extended

__all__ = ["GENERATED", "gradient", "in_space"]

#: Those that are made, by their names; `gradient` has nothing that reflects.
GENERATED: dict[str, Callable[..., Model]] = {"layers": generated_model, "salt": salt_model}

#: Metres between the cells of a model in space that is made.
SPACING = 10.0
#: Speeds at the surface and at the bottom of `gradient`, in m/s.
SLOWEST, FASTEST = 1500.0, 4500.0


def gradient(cells: tuple[int, ...]) -> Model:
    """Speed grows with depth, and nothing reflects."""
    speed = np.linspace(SLOWEST, FASTEST, cells[-1], dtype=np.float32)
    velocity = np.ascontiguousarray(np.broadcast_to(speed, cells))
    return Model(velocity, (SPACING,) * len(cells), "speed grows with depth")


def in_space(name: str, cells: tuple[int, ...], file: Model | None = None) -> Model:
    """A model of so many cells along x, y and z.

    Args:
        name: `gradient`, `file`, or one of `GENERATED`.
        cells: of the model. `file` has no more of them in all: it is made coarser, and a section is
            extended over as many along y.
        file: the model `file`.

    Raises:
        MigrationError: the cells are too few for a model.
    """
    if name == "gradient":
        return gradient(cells)
    if name == "file":
        assert file is not None
        return _fitted(file, cells)
    nx, ny, nz = cells
    return GENERATED[name](nx, nz, SPACING, ny=ny)


def _fitted(model: Model, cells: tuple[int, ...]) -> Model:
    along_y = () if model.in_space else cells[1:2]

    def fits(every: int) -> bool:
        left = (-(-each // every) for each in model.shape)
        return math.prod((*left, *along_y)) <= math.prod(cells)

    return extended(coarser(model, next(filter(fits, count(1)))), cells[1])
