"""From the stacked correlation to an image, and what that image ought to show."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d, gaussian_filter
from scipy.signal import fftconvolve
from unspool_studies.rtm.model import Floats, Model, water
from unspool_studies.rtm.survey import Timing

__all__ = ["PROCESSING", "agreement", "expected", "finish", "perturbation"]

Doubles = NDArray[np.float64]

#: What `finish` does, for the figure and the report.
PROCESSING = (
    "illumination-compensated",
    "Laplacian-filtered",
    "gain with depth",
    "muted above the sea floor",
)

#: The light that every cell is taken to have at least, as a fraction of the mean.
FAINTEST = 0.02
#: Samples per period of the source's peak frequency, where a column is laid out in time.
SAMPLES = 40
#: Cells at the sides and the bottom that are left out of comparisons: nothing lights them well.
MARGIN = 40
#: Columns that are laid out in time together.
COLUMNS = 4096
#: Cells over which amplitudes are balanced before images are compared.
BALANCE = 20.0


def finish(correlation: Floats, illumination: Floats, model: Model) -> Floats:
    """Compensates for the source's light, filters, balances with depth, and mutes the water.

    The Laplacian takes out the smooth artefact along the paths of waves that correlation leaves
    where both wavefields travel together (Zhang and Sun 2009). Positive is faster than the
    migration model. The root mean square is 1.
    """
    light = illumination.astype(np.float64)
    light += FAINTEST * light.mean() + np.finfo(np.float64).tiny
    depth = np.arange(model.shape[-1]) * model.spacing[-1]
    image = _laplacian(correlation / light, model.spacing) * depth
    image[water(model)] = 0.0
    return _unit(image)


def perturbation(model: Model, background: Model) -> Floats:
    """The speed above that of the migration model, as a fraction: all that migration can see."""
    return (model.velocity / background.velocity - 1.0).astype(np.float32)


def expected(model: Model, background: Model, timing: Timing) -> Floats:
    """The perturbation as the source's band shows it: what a perfect image would look like.

    Each column is laid out in two-way time of the migration model, convolved with the wavelet,
    and laid back in depth. The root mean square is 1.
    """
    nz, dz = background.shape[-1], background.spacing[-1]
    seen = perturbation(model, background).reshape(-1, nz)
    slowness = 2.0 * dz / background.velocity.astype(np.float64).reshape(-1, nz)
    arrival = np.cumsum(slowness, axis=1) - slowness
    step = 1.0 / (SAMPLES * timing.frequency)
    clock = np.arange(0.0, arrival.max() + step, step)
    parts = [
        _shown(seen[at : at + COLUMNS], arrival[at : at + COLUMNS], clock)
        for at in range(0, len(seen), COLUMNS)
    ]
    image = np.concatenate(parts).reshape(background.shape)
    image[water(model)] = 0.0
    return _unit(image)


def _shown(seen: Floats, arrival: Doubles, clock: Doubles) -> Doubles:
    """Some columns, laid out in time, convolved, and laid back."""
    columns = zip(arrival, seen, strict=True)
    in_time = np.stack([np.interp(clock, time, column) for time, column in columns])
    shown = fftconvolve(in_time, _wavelet()[None, :], mode="same", axes=1)
    pairs = zip(arrival, shown, strict=True)
    return np.stack([np.interp(time, clock, column) for time, column in pairs])


def agreement(image: Floats, wanted: Floats, model: Model) -> float:
    """The correlation of two images where sources light them, amplitudes balanced: at most 1."""
    seen = ~water(model)
    for axis in range(seen.ndim - 1):
        sides = np.moveaxis(seen, axis, 0)
        sides[:MARGIN] = sides[-MARGIN:] = False
    seen[..., -MARGIN // 2 :] = False
    left, right = (_balanced(part)[seen] for part in (image, wanted))
    power = float(np.sqrt(np.dot(left, left) * np.dot(right, right)))
    return float(np.dot(left, right)) / power if power else 0.0


def _laplacian(field: Doubles, spacing: tuple[float, ...]) -> Doubles:
    second = np.array([1.0, -2.0, 1.0])
    along = [
        correlate1d(field, second / step**2, axis=axis, mode="nearest")
        for axis, step in enumerate(spacing)
    ]
    return np.asarray(sum(along[1:], start=along[0]))


def _wavelet() -> Doubles:
    """A Ricker wavelet with `SAMPLES` a period, centred."""
    periods = np.arange(-2 * SAMPLES, 2 * SAMPLES + 1) / SAMPLES
    a = (np.pi * periods) ** 2
    return np.asarray((1.0 - 2.0 * a) * np.exp(-a))


def _unit(image: Doubles) -> Floats:
    power = float(np.sqrt(np.mean(image**2)))
    return (image / (power or 1.0)).astype(np.float32)


def _balanced(image: Floats) -> Doubles:
    power = gaussian_filter(image.astype(np.float64) ** 2, BALANCE)
    return np.asarray(image / np.sqrt(power + 1e-12))
