"""Reverse time migration with Devito's operators and an Unspool history.

Devito generates and compiles the stencils; the spool keeps the forward wavefield. Each call of an
operator runs a block of `every` steps, because one call costs milliseconds whatever it computes;
after each block one wavefield goes into the spool, or comes back from it.

    pip install devito unspool matplotlib
    python examples/devito_rtm.py --out devito.png

Units: metres, seconds, m/s. Arrays are float32 with axes (x, z), z is depth.
"""

import argparse
import tempfile
from dataclasses import dataclass

import numpy as np
import unspool
from devito import Eq, Function, Grid, Operator, SparseTimeFunction, TimeFunction, solve
from scipy.ndimage import gaussian_filter

SPACE_ORDER = 8
#: Cells of the absorbing layer on every side.
LAYER = 40


@dataclass
class Survey:
    """What is shot: time sampling in seconds and steps, positions in metres."""

    dt: float
    steps: int
    every: int
    frequency: float
    sources: np.ndarray
    receivers: np.ndarray

    @property
    def wavelet(self):
        """A Ricker wavelet, one value a step."""
        a = (np.pi * self.frequency * (np.arange(self.steps) * self.dt - 1.2 / self.frequency)) ** 2
        return ((1 - 2 * a) * np.exp(-a)).astype(np.float32)


class Earth:
    """A velocity model as Devito sees it: padded by the absorbing layer, with its damping."""

    def __init__(self, velocity, spacing):
        padded = np.pad(velocity, LAYER, mode="edge").astype(np.float32)
        extent = [(n - 1) * spacing for n in padded.shape]
        self.grid = Grid(shape=padded.shape, extent=extent, origin=(-LAYER * spacing,) * 2)
        self.m = Function(name="m", grid=self.grid, space_order=SPACE_ORDER)
        self.m.data[:] = 1.0 / padded**2
        self.damp = Function(name="damp", grid=self.grid, space_order=SPACE_ORDER)
        self.damp.data[:] = _damping(padded.shape) * padded.max() / (LAYER * spacing)

    def wavefield(self, name):
        """A wavefield that keeps three steps."""
        return TimeFunction(name=name, grid=self.grid, time_order=2, space_order=SPACE_ORDER)

    def points(self, name, positions, steps):
        """A value at each position and step."""
        points = SparseTimeFunction(name=name, grid=self.grid, npoint=len(positions), nt=steps)
        points.coordinates.data[:] = positions
        return points


def _damping(shape):
    """Rises from 0 at the model's edge to 10 at the outer one, as the square of the way."""
    ways = [np.maximum(0, LAYER - np.minimum(np.arange(n), np.arange(n)[::-1])) for n in shape]
    way = np.maximum(ways[0][:, None], ways[1][None, :]) / LAYER
    return (10.0 * way**2).astype(np.float32)


class Forward:
    """The wave equation with a source and receivers, in blocks of steps."""

    def __init__(self, earth, survey, source, **options):
        self.u, self.dt = earth.wavefield("u"), survey.dt
        step = self.u.grid.stepping_dim.spacing
        pde = earth.m * self.u.dt2 - self.u.laplace + earth.m * earth.damp * self.u.dt
        self.source = earth.points("src", [source], survey.steps)
        self.source.data[:, 0] = survey.wavelet
        self.receivers = earth.points("rec", survey.receivers, survey.steps)
        inject = self.source.inject(field=self.u.forward, expr=self.source * step**2 / earth.m)
        listen = self.receivers.interpolate(expr=self.u)
        update = Eq(self.u.forward, solve(pde, self.u.forward))
        self.operator = Operator([update, inject, listen], name="forward", **options)

    def run(self, first, last):
        """Computes the wavefield of `last` from that of `first`."""
        self.operator.apply(time_m=first, time_M=last - 1, dt=self.dt)

    def at(self, step):
        """The wavefield of the last computed step, halo included: one contiguous array."""
        return self.u.data_with_halo[step % 3]


class Backward:
    """The same equation backwards in time, driven by what was recorded."""

    def __init__(self, earth, survey, **options):
        self.v, self.dt = earth.wavefield("v"), survey.dt
        step = self.v.grid.stepping_dim.spacing
        pde = earth.m * self.v.dt2 - self.v.laplace - earth.m * earth.damp * self.v.dt
        self.records = earth.points("data", survey.receivers, survey.steps)
        inject = self.records.inject(field=self.v.backward, expr=self.records * step**2 / earth.m)
        update = Eq(self.v.backward, solve(pde, self.v.backward))
        self.operator = Operator([update, inject], name="backward", **options)

    def run(self, last, first):
        """Computes the wavefield of `first` from that of `last`."""
        self.operator.apply(time_m=first + 1, time_M=last, dt=self.dt)

    def at(self, step):
        """The wavefield of the last computed step, halo included."""
        return self.v.data_with_halo[step % 3]


def record(earth, survey, source, **options):
    """What the receivers hear of one shot: float32 (steps, receivers)."""
    forward = Forward(earth, survey, source, **options)
    forward.run(0, survey.steps - 1)
    return np.array(forward.receivers.data)


def migrate(earth, survey, source, data, history, **options):
    """The image of one shot: the correlation of both wavefields, float64 with the layer cut off.

    `history` needs save, expect and restore; an `unspool.Spool` has them.
    """
    forward = Forward(earth, survey, source, **options)
    saved = range(0, survey.steps - 1, survey.every)
    for step in saved:
        history.save(step, forward.at(step))
        forward.run(step, min(step + survey.every, survey.steps - 1))
    history.expect(reversed(saved), once=True)
    backward = Backward(earth, survey, **options)
    backward.records.data[:] = data
    wave, image = np.empty_like(forward.at(0)), np.zeros(forward.at(0).shape)
    for step in reversed(saved):
        backward.run(min(step + survey.every, survey.steps - 1), step)
        history.restore(step, wave)
        image += wave * backward.at(step)
    halo = (np.array(image.shape) - earth.grid.shape) // 2
    return image[tuple(slice(h + LAYER, -h - LAYER) for h in halo)]


def plan(velocity, spacing, shots, frequency):
    """A survey over the whole width, with receivers on every second column."""
    width, depth = ((n - 1) * spacing for n in velocity.shape)
    dt = 0.42 * spacing / velocity.max()
    time = 2.6 * depth / velocity.mean() + 2.4 / frequency
    x = np.arange(0, velocity.shape[0], 2) * spacing
    return Survey(
        dt=dt,
        steps=int(time / dt) + 1,
        every=max(1, int(1 / (12 * frequency * dt))),
        frequency=frequency,
        sources=np.array([((i + 0.5) * width / shots, 2 * spacing) for i in range(shots)]),
        receivers=np.stack([x, np.full(len(x), 2 * spacing)], axis=1),
    )


def lens(shape=(301, 151)):
    """Two layers with a lens in the lower one, in m/s."""
    x, z = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    velocity = np.where(z < 0.4 * shape[1], 1800.0, 2400.0)
    inside = ((x - 0.5 * shape[0]) / 60) ** 2 + ((z - 0.7 * shape[1]) / 15) ** 2 < 1
    return np.where(inside, 3000.0, velocity).astype(np.float32)


def main():
    """Migrates a model and draws the image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="raw float32 in km/s, x first; by default a lens")
    parser.add_argument("--shape", nargs=2, type=int, metavar=("NX", "NZ"))
    parser.add_argument("--spacing", type=float, default=10.0, help="metres")
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--frequency", type=float, default=15.0, help="Hz")
    parser.add_argument("--out", default="devito.png")
    options = parser.parse_args()
    velocity = lens()
    if options.model:
        velocity = 1000 * np.fromfile(options.model, "<f4").reshape(options.shape)
    survey = plan(velocity, options.spacing, options.shots, options.frequency)
    true = Earth(velocity, options.spacing)
    smooth = Earth(1 / gaussian_filter(1 / velocity, 8), options.spacing)
    image = np.zeros(velocity.shape)
    with (
        tempfile.TemporaryDirectory() as disk,
        unspool.Spool("16MiB", "48MiB", disk) as spool,
    ):
        for source in survey.sources:
            direct = record(smooth, survey, source)
            data = record(true, survey, source) - direct
            image += migrate(smooth, survey, source, data, spool)
        print(spool.stats())
    draw(np.gradient(np.gradient(image, axis=1), axis=1), options.spacing, options.out)


def draw(image, spacing, path):
    """Depth down, axes in km, clipped at the 99th percentile."""
    from matplotlib.figure import Figure

    clip = np.percentile(np.abs(image), 99)
    extent = [0, image.shape[0] * spacing / 1e3, image.shape[1] * spacing / 1e3, 0]
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.imshow(image.T, cmap="gray", vmin=-clip, vmax=clip, extent=extent)
    axes.set(xlabel="distance (km)", ylabel="depth (km)", title="Second derivative in depth")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
