"""What computes waves, behind one interface: the migration does not know where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from unspool_studies._native import Acoustic
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.model import Floats, Model

__all__ = ["CompiledPropagator", "Image", "Propagator", "Wavefield"]


class Wavefield(Protocol):
    """The waves of one pass: two time levels in the propagator's memory."""

    @property
    def now(self) -> Any:
        """The newest time level, without a copy: all that an image needs."""

    @property
    def levels(self) -> tuple[Any, Any]:
        """The older and the newer time level, without a copy: all that the next step needs.

        What is written into both is where the waves go on. They swap: ask anew after `advance`.
        """

    def reset(self) -> None:
        """Silence."""

    def advance(
        self,
        steps: int,
        sources: Any,
        signal: Any,
        receivers: Any = None,
        record: Any = None,
    ) -> None:
        """Takes `steps` steps, each driven at `sources` by one row of `signal`.

        What is read at `receivers` after each step, if there are any, becomes one row of `record`.
        Both are (rows of) arrays that `Propagator.load` and `Propagator.traces` have given.
        """


class Image(Protocol):
    """The image of one shot, and the light that fell on it."""

    def add(self, forward: Any, backward: Any) -> None:
        """Adds the product of two wavefields, and the square of the forward one."""

    @property
    def parts(self) -> tuple[Any, Any]:
        """Image and illumination so far, without a copy."""

    def result(self) -> tuple[Floats, Floats]:
        """Image and illumination on the model's own grid, as NumPy arrays."""


class Propagator(Protocol):
    """Makes everything that one model and time step need."""

    #: The shape of a wavefield.
    shape: tuple[int, ...]

    @property
    def description(self) -> str:
        """What computes, for people."""

    def wavefield(self) -> Wavefield:
        """A silent wavefield."""

    def room(self) -> Any:
        """An array for one wavefield, to restore into."""

    def image(self) -> Image:
        """A dark image."""

    def points(self, positions: Sequence[tuple[float, ...]]) -> Any:
        """Sources or receivers in metres from the first cell, depth last, by linear weights."""

    def traces(self, steps: int, count: int) -> Any:
        """An array for what `count` receivers record in `steps` steps, steps slow."""

    def load(self, array: Floats) -> Any:
        """A signal, steps slow, where the propagator can read it."""

    def fetch(self, array: Any) -> Floats:
        """Traces as a NumPy array."""


class CompiledPropagator:
    """Unspool's own stencil: float32, order 8 in space and 2 in time, absorbing on all sides.

    Fields are padded NumPy arrays, x slow and z fast, of `shape`. Results do not depend on the
    number of threads.
    """

    def __init__(self, model: Model, dt: float, layer: int, threads: int = 0) -> None:
        """Prepares it for `model`; `dt` in seconds, `layer` in cells, 0 threads for every core.

        Raises:
            MigrationError: the step is unstable, the grid is too large, or the model has three
                dimensions.
        """
        if model.in_space:
            raise MigrationError("in three dimensions a GPU computes: add --gpu")
        dx, dz = model.spacing
        try:
            self._core = Acoustic(model.velocity, (dx, dz), dt, layer, threads)
        except ValueError as error:
            raise MigrationError(str(error)) from error
        self.shape: tuple[int, ...] = self._core.shape
        self.threads: int = self._core.threads
        self.instructions: str = self._core.instructions

    @property
    def description(self) -> str:
        """What computes, for people."""
        return f"{self.instructions}, {self.threads} threads"

    def wavefield(self) -> CompiledWavefield:
        """A silent wavefield."""
        return CompiledWavefield(self._core)

    def room(self) -> Floats:
        """An array for one wavefield."""
        return np.zeros(self.shape, np.float32)

    def image(self) -> CompiledImage:
        """A dark image."""
        return CompiledImage(self._core)

    def points(self, positions: Sequence[tuple[float, ...]]) -> Any:
        """Sources or receivers at (x, depth) in metres."""
        return self._core.points([(x, z) for x, z in positions])

    def traces(self, steps: int, count: int) -> Floats:
        """An array to record into."""
        return np.empty((steps, count), np.float32)

    def load(self, array: Floats) -> Floats:
        """The same array, contiguous."""
        return np.ascontiguousarray(array)

    def fetch(self, array: Floats) -> Floats:
        """The same array."""
        return array


class CompiledWavefield:
    """A wavefield of `CompiledPropagator`."""

    def __init__(self, core: Acoustic) -> None:
        self._core = core
        self._older = np.zeros(core.shape, np.float32)
        self._newer = np.zeros(core.shape, np.float32)

    @property
    def now(self) -> Floats:
        """The newest time level."""
        return self._newer

    @property
    def levels(self) -> tuple[Floats, Floats]:
        """The older and the newer time level."""
        return self._older, self._newer

    def reset(self) -> None:
        """Silence."""
        self._older.fill(0.0)
        self._newer.fill(0.0)

    def advance(
        self,
        steps: int,
        sources: Any,
        signal: Floats,
        receivers: Any = None,
        record: Floats | None = None,
    ) -> None:
        """Takes `steps` steps; see `Wavefield.advance`."""
        self._core.advance(self._older, self._newer, steps, sources, signal, receivers, record)
        if steps % 2:
            self._older, self._newer = self._newer, self._older


class CompiledImage:
    """An image of `CompiledPropagator`."""

    def __init__(self, core: Acoustic) -> None:
        self._core = core
        self._image = np.zeros(core.shape, np.float32)
        self._light = np.zeros(core.shape, np.float32)

    def add(self, forward: Floats, backward: Floats) -> None:
        """Adds the product of both, and the square of the forward one."""
        self._core.correlate(self._image, self._light, forward, backward)

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """Image and illumination so far."""
        return self._image, self._light

    def result(self) -> tuple[Floats, Floats]:
        """Image and illumination without the layer."""
        inner = slice(self._core.pad, -self._core.pad)
        return self._image[inner, inner].copy(), self._light[inner, inner].copy()
