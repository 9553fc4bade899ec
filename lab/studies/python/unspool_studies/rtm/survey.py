"""Where the shots and receivers are, and how time is sampled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.medium import largest_stable_step
from unspool_studies.rtm.model import Floats, Model

__all__ = ["Survey", "Timing", "history_interval", "plan", "ricker"]

#: The largest number of anything that is asked for: more would fill memory before it was refused.
LARGEST = 100_000_000

Position = tuple[float, ...]

#: The highest frequency of a Ricker wavelet, over its peak: there the amplitude is 0.3 % of the
#: peak's.
BANDWIDTH = 3.0
#: Time steps are this part of the largest stable one.
COURANT_MARGIN = 0.9
#: The history is sampled this many times as densely as the Nyquist interval asks for.
NYQUIST_SAFETY = 2.0
#: Cells per shortest wavelength: at least, without a warning; and what the default aims at.
FEWEST_CELLS, GOOD_CELLS = 3.0, 3.5
#: The peak frequency in Hz that is not exceeded by default.
DEFAULT_FREQUENCY = 15.0
#: Recording time by default, over the mean time of a vertical echo from the bottom.
RECORDING = 1.3
#: The wavelet's delay in periods of its peak frequency: it begins and ends at 0.01 % of its peak.
DELAY = 1.2


@dataclass(frozen=True)
class Timing:
    """How time is sampled.

    Attributes:
        dt: seconds of one step.
        steps: how many there are.
        frequency: peak frequency of the source in Hz.
        every: steps from one saved wavefield to the next.
    """

    dt: float
    steps: int
    frequency: float
    every: int

    @property
    def delay(self) -> float:
        """Seconds from the first step to the peak of the wavelet."""
        return DELAY / self.frequency

    @property
    def saves(self) -> int:
        """Wavefields that are saved for one shot."""
        return -(-self.steps // self.every)


@dataclass(frozen=True, eq=False)
class Survey:
    """One seismic survey.

    Attributes:
        timing: how time is sampled.
        sources: position of each shot in metres: (x, depth) or (x, y, depth).
        receivers: position of each receiver, the same for all shots.
        wavelet: what every source emits, float32, one value a step.
        warnings: what may spoil the result, for people.
    """

    timing: Timing
    sources: tuple[Position, ...]
    receivers: tuple[Position, ...]
    wavelet: Floats
    warnings: tuple[str, ...] = field(default=())


def ricker(timing: Timing) -> Floats:
    """The Ricker wavelet, of unit peak, sampled at every step."""
    t = np.arange(timing.steps) * timing.dt - timing.delay
    a = (np.pi * timing.frequency * t) ** 2
    return np.asarray((1.0 - 2.0 * a) * np.exp(-a), np.float32)


def history_interval(frequency: float, dt: float) -> int:
    """Steps between saved wavefields: the source's Nyquist interval over a safety factor of 2.

    The image sums products of two wavefields; sampled above twice the highest frequency, the sum
    has the same mean as with every step (the spectrum of the product folds beside zero only).
    """
    interval = 1.0 / (2.0 * BANDWIDTH * frequency) / NYQUIST_SAFETY
    return max(1, math.floor(interval / dt))


def plan(
    model: Model,
    *,
    shots: int,
    frequency: float | None = None,
    steps: int | None = None,
    time: float | None = None,
    every: int | None = None,
) -> Survey:
    """Plans a survey with sources and receivers near the surface of `model`.

    Args:
        model: the true model.
        shots: how many, evenly spread.
        frequency: peak frequency in Hz; by default what the grid carries, at most 15 Hz.
        steps: time steps; excludes `time`.
        time: seconds to record; by default 1.3 times the mean vertical echo from the bottom.
        every: steps between saved wavefields; by default from the source's Nyquist interval.

    Raises:
        MigrationError: where a figure makes no sense.
    """
    if frequency is None:
        frequency = min(DEFAULT_FREQUENCY, _carried(model, GOOD_CELLS))
    _check(shots, frequency, steps, time, every)
    dt = COURANT_MARGIN * largest_stable_step(model.fastest, model.spacing)
    if steps is None:
        steps = math.ceil((time if time is not None else _recording(model, frequency)) / dt)
    if every is None:
        every = history_interval(frequency, dt)
    timing = Timing(dt, steps, frequency, min(every, steps))
    warnings = tuple(_warnings(model, timing))
    sources, receivers = _positions(model, shots)
    return Survey(timing, sources, receivers, ricker(timing), warnings)


def _carried(model: Model, cells: float) -> float:
    """The peak frequency whose shortest wave has so many cells in the slowest place."""
    return model.slowest / (BANDWIDTH * cells * max(model.spacing))


def _recording(model: Model, frequency: float) -> float:
    echo = 2.0 * float((model.spacing[-1] / model.velocity).sum(axis=-1).mean())
    return RECORDING * echo + 2.0 * DELAY / frequency


def _check(
    shots: int, frequency: float, steps: int | None, time: float | None, every: int | None
) -> None:
    if steps is not None and time is not None:
        raise MigrationError("give the steps or the time, not both")
    for name, value in (
        ("number of shots", shots),
        ("frequency", frequency),
        ("number of steps", steps),
        ("time", time),
        ("history interval", every),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise MigrationError(f"the {name} must be positive, and is {value:g}")
        if value is not None and value > LARGEST:
            raise MigrationError(f"the {name} is at most {LARGEST:,}, and not {value:g}")


def _warnings(model: Model, timing: Timing) -> list[str]:
    found = []
    shortest = model.slowest / (BANDWIDTH * timing.frequency)
    cells = shortest / max(model.spacing)
    if cells < FEWEST_CELLS:
        limit = _carried(model, FEWEST_CELLS)
        found.append(
            f"numerical dispersion: the shortest waves ({shortest:.1f} m at "
            f"{BANDWIDTH * timing.frequency:.0f} Hz) have {cells:.1f} cells, fewer than "
            f"{FEWEST_CELLS:g}; take a frequency of at most {limit:.1f} Hz or a finer grid"
        )
    nyquist = 1.0 / (2.0 * BANDWIDTH * timing.frequency)
    if timing.every * timing.dt > nyquist:
        found.append(
            f"aliasing: a wavefield every {1e3 * timing.every * timing.dt:.1f} ms is rarer than "
            f"the source's Nyquist interval of {1e3 * nyquist:.1f} ms; save more often than "
            f"every {timing.every} steps"
        )
    return found


def _positions(model: Model, shots: int) -> tuple[tuple[Position, ...], tuple[Position, ...]]:
    """Sources spread evenly, receivers on every column: on grid nodes, two cells deep."""
    *cells, _ = model.shape
    *spacing, dz = model.spacing
    depth = 2 * dz
    counts = (shots,) if len(cells) == 1 else _rows(shots)
    spread = [
        [min(n - 1, int((at + 0.5) * n / count)) for at in range(count)]
        for n, count in zip(cells, counts, strict=True)
    ]

    def positions(axes: Iterable[Iterable[int]]) -> tuple[Position, ...]:
        nodes = itertools.product(*axes)
        return tuple(
            (*(at * d for at, d in zip(node, spacing, strict=True)), depth) for node in nodes
        )

    return positions(spread), positions(map(range, cells))


def _rows(shots: int) -> tuple[int, int]:
    """So many shots on a surface, as nearly square as their number allows: 12 are 4 by 3."""
    along_y = max(n for n in range(1, math.isqrt(shots) + 1) if shots % n == 0)
    return shots // along_y, along_y
