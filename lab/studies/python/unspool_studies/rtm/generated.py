"""Models that are migrated when no file is given: layers, faults and bodies of salt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from unspool_studies.rtm.model import Model

__all__ = ["generated_model", "salt_model"]

Grid = NDArray[np.float64]

#: Speeds of water and salt, in m/s.
WATER, SALT = 1500.0, 4480.0
#: In space: how far structures move along x from one side to the other, and half the salt's width
#: along y, as parts of the extent.
OBLIQUE, WIDTH = 0.1, 0.15
#: Of the body among layers: where its middle is and how far it reaches, as parts of the extent
#: along x, y and z; and how many waves make its surface irregular, each of them by how much.
MIDDLE, REACH = (0.5, 0.0, 0.48), (0.26, 0.26, 0.2)
WAVES, ROUGHNESS = 24, 0.07
#: Where the sea ends above that body, as a part of the depth.
FLOOR = 0.1


def generated_model(
    nx: int = 1201, nz: int = 401, spacing: float = 7.5, seed: int = 7, ny: int | None = None
) -> Model:
    """Folded and faulted layers under a sea, with a body of salt that has risen through them.

    Args:
        nx: cells along x.
        nz: cells in depth.
        spacing: metres between cells in both directions.
        seed: of all random choices; the same seed gives the same model everywhere.
        ny: cells along y, for a model in space whose middle section is the plane one.

    Everything scales with the extent, so that small models look like large ones.
    """
    random = np.random.default_rng(seed)
    x, y, z = _axes(nx, ny, nz)
    # Structures run obliquely to y, and the salt is about as wide along y as along x.
    x, aside = x + OBLIQUE * y, y / WIDTH
    floor = 0.085 + 0.02 * np.sin(2 * np.pi * (1.3 * x + 0.1)) + 0.012 * np.sin(11 * x)
    velocity = _layers(random, _undone(x, z, aside), z)
    velocity = np.where(_salt(x, z, aside), SALT, velocity)
    velocity = np.where(z < floor, WATER, velocity).astype(np.float32)
    name = f"generated, seed {seed}"
    return Model(np.ascontiguousarray(velocity), (spacing,) * velocity.ndim, name)


def salt_model(
    nx: int = 1201, nz: int = 401, spacing: float = 7.5, seed: int = 11, ny: int | None = None
) -> Model:
    """Gently dipping layers under a flat sea floor, and among them a fast body with an irregular
    surface that does not reach the sides.

    The arguments are those of `generated_model`.
    """
    random = np.random.default_rng(seed)
    x, y, z = _axes(nx, ny, nz)
    laid = z + 0.06 * x - 0.04 * y + 0.015 * np.sin(2 * np.pi * (x + y))
    velocity = _layers(random, laid, z)
    velocity = np.where(_body(random, x, y, z), SALT, velocity)
    velocity = np.where(z < FLOOR, WATER, velocity).astype(np.float32)
    name = f"a body of salt, seed {seed}"
    return Model(np.ascontiguousarray(velocity), (spacing,) * velocity.ndim, name)


def _body(random: np.random.Generator, x: Grid, y: Grid, z: Grid) -> NDArray[np.bool_]:
    """An ellipsoid whose radius plane waves in random directions change from place to place."""
    away = [(at - c) / r for at, c, r in zip((x, y, z), MIDDLE, REACH, strict=True)]
    radius: Grid = np.ones((1, 1))
    for _ in range(WAVES):
        numbers, phase = random.uniform(-6.0, 6.0, size=3), random.uniform(0.0, 2 * np.pi)
        turns = sum(number * at for number, at in zip(numbers, away, strict=True))
        radius = radius + ROUGHNESS * np.cos(turns + phase)
    square: Grid = away[0] ** 2 + away[1] ** 2 + away[2] ** 2
    return square < radius**2


def _axes(nx: int, ny: int | None, nz: int) -> tuple[Grid, Grid, Grid]:
    """Positions along x and z from 0 to 1, and along y from -0.5 to 0.5: 0 in the plane."""
    x, z = np.linspace(0.0, 1.0, nx), np.linspace(0.0, 1.0, nz)
    if ny is None:
        return x[:, None], np.zeros((1, 1)), z[None, :]
    y = np.linspace(-0.5, 0.5, ny)
    return x[:, None, None], y[None, :, None], z[None, None, :]


def _undone(x: Grid, z: Grid, aside: Grid) -> Grid:
    """The depth at which each point was laid down: faults undone first, then folds."""
    laid = z + np.zeros_like(x)
    for at, dip, throw in ((0.14, 0.28, 0.045), (0.24, -0.22, -0.035), (0.79, -0.35, 0.05),
                           (0.9, -0.3, 0.04)):  # fmt: skip
        beyond = x > at + dip * (z - 0.5)
        # Throws grow with depth: the faults were active while the layers were laid down.
        laid = laid - beyond * throw * np.clip((z - 0.12) / 0.3, 0.0, 1.0)
    dome = 0.16 * np.exp(-(((x - 0.52) / 0.13) ** 2)) * np.clip((z - 0.1) / 0.5, 0.0, 1.2)
    dome = dome * np.exp(-((aside / 0.87) ** 2))
    roll = 0.025 * np.sin(2 * np.pi * (1.7 * x + 0.35)) * np.clip(z / 0.4, 0.0, 1.0)
    return laid + dome + roll


def _layers(random: np.random.Generator, laid: Grid, z: Grid) -> Grid:
    """Speeds that rise with depth and alternate from layer to layer."""
    thickness = random.uniform(0.035, 0.075, size=26)
    tops = 0.1 + np.cumsum(thickness)
    contrast = np.where(np.arange(27) % 2 == 0, 1.0, -1.0) * random.uniform(60.0, 190.0, size=27)
    speeds = 1750.0 + 1700.0 * np.concatenate([[0.0], tops - 0.1]) + contrast
    return speeds[np.searchsorted(tops, laid)] + 250.0 * z


def _salt(x: Grid, z: Grid, aside: Grid) -> NDArray[np.bool_]:
    """A stem that has fed a broad head with a rugged top."""
    wobble = 0.006 * np.sin(45 * x) + 0.012 * np.sin(21 * x + 1.0)
    tilt = 0.25 * (x - 0.52)
    height = np.abs((z - 0.39 - tilt - wobble) / 0.1) ** 2.2
    head = np.abs((x - 0.52) / 0.15) ** 2.6 + height + np.abs(aside) ** 2.6 < 1.0
    axis = 0.53 + 0.025 * np.sin(5 * z)
    width = 0.038 + 0.25 * np.clip(z - 0.6, 0.0, 1.0) ** 2 + 0.9 * np.clip(0.52 - z, 0.0, 1.0)
    stem = (np.hypot(x - axis, WIDTH * aside) < width) & (z > 0.42)
    return head | stem
