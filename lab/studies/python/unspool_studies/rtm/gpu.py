"""The propagator as CUDA kernels: the scheme of the compiled one, in two and three dimensions.

Fields stay on the device, as padded arrays with z fastest. In two dimensions every operation is
that of the compiled propagator with fused multiply-add, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from unspool_studies.rtm.corners import place, share
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.medium import HALO, Grid, Medium
from unspool_studies.rtm.model import Floats, Model

__all__ = ["GpuImage", "GpuPoints", "GpuPropagator", "GpuWavefield", "Rows"]

#: Threads of a block where each takes one element.
LINE = (256, 1, 1)
#: Threads along z and x of a block in two dimensions.
TILE = (64, 4, 1)
#: Cells along z that one thread takes in three dimensions: `WIDE` of the kernel.
CELLS = 4
#: Threads of a block in three dimensions, at most, and of those along z.
BLOCK, BLOCK_ALONG_Z = 256, 32
#: Planes that one block marches through in three dimensions.
PLANES = 16
#: Arrays that a step must read or write: the older level twice, the newer one, the medium.
TRAFFIC = 4


class GpuPropagator:
    """Unspool's stencil on a GPU: float32, order 8 in space and 2 in time, absorbing all around."""

    def __init__(self, model: Model, dt: float, layer: int, device: Device) -> None:
        """Prepares it for `model`; `dt` in seconds, `layer` in cells.

        Raises:
            MigrationError: the step is unstable, or the grid is too large.
        """
        self._device = device
        self._grid = Grid(model.shape, model.spacing, layer)
        self._medium = Medium.of(model, self._grid, dt)
        self.shape: tuple[int, ...] = self._grid.shape
        self._step = _Step(device, self._grid, self._medium)

    @property
    def description(self) -> str:
        """What computes, for people."""
        return f"CUDA on {self._device.name}"

    def wavefield(self) -> GpuWavefield:
        """A silent wavefield."""
        return GpuWavefield(self._device, self._step, self.shape)

    def room(self) -> Any:
        """An array for one wavefield."""
        return self._device.zeros(self.shape)

    def image(self) -> GpuImage:
        """A dark image."""
        return GpuImage(self._device, self._grid)

    def points(self, positions: Sequence[tuple[float, ...]]) -> GpuPoints:
        """Sources or receivers at positions in metres, between nodes by linear weights."""
        return GpuPoints(self._device, self._grid, self._medium, positions)

    def traces(self, steps: int, count: int) -> Rows:
        """An array to record into."""
        return Rows(self._device.zeros((steps, count)), 0, steps)

    def load(self, array: Floats) -> Rows:
        """A signal on the device."""
        return Rows(self._device.load(array), 0, len(array))

    def fetch(self, array: Rows) -> Floats:
        """Traces as a NumPy array."""
        return self._device.fetch(array.array)[array.first : array.first + array.count]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of an array on the device, one for each step."""

    array: Any
    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> Rows:
        first, stop, _ = rows.indices(self.count)
        return Rows(self.array, self.first + first, max(0, stop - first))


class _Step:
    """The kernel of a step with everything that does not change from step to step."""

    def __init__(self, device: Device, grid: Grid, medium: Medium) -> None:
        in_space = len(grid.cells) == 3
        self._launch = device.kernel("advance_3d" if in_space else "advance_2d")
        shape = tuple(map(np.int32, grid.shape))
        weights = [weight for axis in medium.weights for weight in axis]
        arrays = (device.load(medium.push), *map(device.load, medium.damping))
        if in_space:
            self._grid, self._block = _blocks_3d(grid.shape)
            shape = (*shape, np.int32(PLANES))
        else:
            self._grid, self._block = _blocks_2d(grid.shape)
        self._constant = (*arrays, *shape, medium.centre, *weights)

    def __call__(self, older: Any, newer: Any) -> None:
        self._launch(self._grid, self._block, (older, newer, *self._constant))


def _blocks_2d(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows, columns = (cells - 2 * HALO for cells in shape)
    return (_over(columns, TILE[0]), _over(rows, TILE[1]), 1), TILE


def _blocks_3d(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks as wide along z as leaves few threads idle."""
    nx, ny, nz = (cells - 2 * HALO for cells in shape)
    threads = nz // CELLS
    wide = _over(threads, _over(threads, BLOCK_ALONG_Z))
    tall = BLOCK // wide
    return (_over(threads, wide), _over(ny, tall), _over(nx, PLANES)), (wide, tall, 1)


def _over(count: int, each: int) -> int:
    return -(-count // each)


class GpuPoints:
    """Points of one propagator, on the device: as reading needs them, and as adding does."""

    def __init__(
        self,
        device: Device,
        grid: Grid,
        medium: Medium,
        positions: Sequence[tuple[float, ...]],
    ) -> None:
        corners = place(grid, positions)
        shares = share(corners, medium, grid)
        self.count = len(positions)
        self._device, self._cells = device, len(shares.cells)
        self._read, self._add = device.kernel("record"), device.kernel("inject")
        self._corners = (
            *map(device.load, (corners.cells, corners.weights)),
            np.int32(corners.cells.shape[1]),
            np.int32(self.count),
        )
        parts = (shares.cells, shares.first, shares.points, shares.weights, shares.scale)
        self._shares = (*map(device.load, parts), np.int32(self._cells))

    def add(self, field: Any, values: Any, begun: Any, row: int) -> None:
        """Adds one row of `values`, `row` rows after those that have `begun`, to a field."""
        if self._cells:
            arguments = (field, *self._shares, values, np.int32(self.count), begun, np.int32(row))
            self._add((_over(self._cells, LINE[0]), 1, 1), LINE, arguments)

    def read(self, field: Any, values: Any, begun: Any, row: int) -> None:
        """Reads a field into one row of `values`."""
        if self.count:
            arguments = (field, *self._corners, values, begun, np.int32(row))
            self._read((_over(self.count, LINE[0]), 1, 1), LINE, arguments)


class GpuWavefield:
    """A wavefield of `GpuPropagator`.

    The steps of one call of `advance` are the same kernels time and again, but for the row of the
    signal: they are captured when they come for the second time, and then started all at once.
    """

    def __init__(self, device: Device, step: _Step, shape: tuple[int, ...]) -> None:
        self._device, self._step = device, step
        self._older, self._newer = device.zeros(shape), device.zeros(shape)
        self._finish_rows = device.kernel("finish_rows")
        self._begun, self._row = device.load(np.zeros(1, np.int32)), 0
        self._swapped = False
        self._groups: dict[tuple[int, ...], _Group] = {}

    @property
    def now(self) -> Any:
        """The newest time level."""
        return self._newer

    @property
    def levels(self) -> tuple[Any, Any]:
        """The older and the newer time level."""
        return self._older, self._newer

    def reset(self) -> None:
        """Silence."""
        self._older.fill(0.0)
        self._newer.fill(0.0)

    def advance(
        self,
        steps: int,
        sources: GpuPoints,
        signal: Rows,
        receivers: GpuPoints | None = None,
        record: Rows | None = None,
    ) -> None:
        """Enqueues `steps` steps; see `Wavefield.advance`.

        Raises:
            MigrationError: the signal or the record has too few rows, or they are not of the same
                steps.
        """
        _check_rows(steps, signal, record)
        into = None if record is None else record.array
        group = _Group(steps, sources, signal.array, receivers, into)
        if self._row != signal.first:
            self._begun.fill(signal.first)
        with self._device.timed(steps):
            self._start(group)
        self._row = signal.first + steps
        if steps % 2:
            self._older, self._newer = self._newer, self._older
            self._swapped = not self._swapped

    def _start(self, group: _Group) -> None:
        key = (*group.key, int(self._swapped))
        known = self._groups.get(key)
        if known is None:
            # The group is kept, and with it what its key is made of.
            self._groups[key] = group
            self._enqueue(group)
            return
        if known.launch is None:
            known.launch = self._device.capture(lambda: self._enqueue(known))
        known.launch()

    def _enqueue(self, group: _Group) -> None:
        older, newer = self._older, self._newer
        for row in range(group.steps):
            self._step(older, newer)
            group.sources.add(older, group.signal, self._begun, row)
            if group.receivers is not None:
                group.receivers.read(older, group.record, self._begun, row)
            older, newer = newer, older
        self._finish_rows((1, 1, 1), (1, 1, 1), (self._begun, np.int32(group.steps)))


@dataclass(eq=False)
class _Group:
    """What one call of `advance` enqueues, but for the row that it begins with."""

    steps: int
    sources: GpuPoints
    signal: Any
    receivers: GpuPoints | None
    record: Any
    launch: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[int, ...]:
        """Equal for equal kernels and arguments, as long as one of the groups is kept."""
        parts = (self.sources, self.signal, self.receivers, self.record)
        return (self.steps, *map(id, parts))


def _check_rows(steps: int, signal: Rows, record: Rows | None) -> None:
    for what, rows in (("signal", signal), ("record", record)):
        if rows is not None and len(rows) < steps:
            raise MigrationError(f"a {what} of {len(rows)} rows is too short for {steps} steps")
    if record is not None and record.first != signal.first:
        raise MigrationError(
            f"the signal begins in row {signal.first}, and the record in row {record.first}"
        )


class GpuImage:
    """An image of `GpuPropagator`."""

    def __init__(self, device: Device, grid: Grid) -> None:
        self._device, self._grid = device, grid
        self._image, self._light = device.zeros(grid.shape), device.zeros(grid.shape)
        self._correlate = device.kernel("correlate")
        self._cells = math.prod(grid.shape)

    def add(self, forward: Any, backward: Any) -> None:
        """Adds the product of both, and the square of the forward one."""
        arguments = (self._image, self._light, forward, backward, np.int64(self._cells))
        self._correlate((_over(self._cells, LINE[0]), 1, 1), LINE, arguments)

    @property
    def parts(self) -> tuple[Any, Any]:
        """Image and illumination so far."""
        return self._image, self._light

    def result(self) -> tuple[Floats, Floats]:
        """Image and illumination without the layer."""
        image, light = (self._device.fetch(part) for part in (self._image, self._light))
        return image[self._grid.inner].copy(), light[self._grid.inner].copy()
