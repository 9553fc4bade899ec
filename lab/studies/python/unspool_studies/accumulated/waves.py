"""Runs whose checkpoints are the wavefields of a migration: their ratios as they are.

The paper's migration makes 66 checkpoints a shot; a higher source frequency needs a finer grid, so
that checkpoints are larger (600 MB to 1.6 GB a shot) and made faster (17 to 150 GB/s). Sizes and
rates are taken from the paper; ratios are those of Twine on wavefields of the compiled propagator
whose grid grows in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from unspool import Spool
from unspool.accumulate import Profile, Recorded
from unspool_studies._native import Acoustic, largest_stable_step
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.virtual import Case

__all__ = [
    "COUNT",
    "POINTS",
    "SPEEDS",
    "checkpoint_bytes",
    "layers",
    "neighbours",
    "ratios_of",
    "wave_cases",
]

#: Checkpoints of a shot.
COUNT = 66
#: Speeds of three layers in m/s, and the depth in m of the square.
SPEEDS, DEPTH = (1500.0, 2200.0, 3200.0), 3000.0
#: Grid points for a wavelength of the slowest layer at the peak frequency.
POINTS = 8
#: Cells of the absorbing layer.
LAYER = 20
#: Metres from one shot to the next, as in the model that the paper's 20 shots are from.
APART = 50.0
#: The lowest and the highest frequency in Hz, and the bytes of a shot and of checkpoints a second
#: there.
ENDS, SHOT, RATE = (4.0, 16.0), (600e6, 1600e6), (17e9, 150e9)


def wave_cases(asked: Accumulated, codec: Any) -> list[Case]:
    """A run for each frequency, with the ratios that this codec has."""
    cases = []
    for frequency in asked.frequencies:
        size, rate = checkpoint_bytes(frequency), _rate(frequency)
        rows = [
            Recorded(size / rate, size, max(1, round(size / ratio)))
            for ratio in ratios_of(frequency, codec)
        ]
        cases.append(Case(f"{frequency:g} Hz", Profile(tuple(rows)), asked.cache))
    return cases


def checkpoint_bytes(frequency: float) -> int:
    """Bytes of a wavefield, for a source of this frequency in Hz."""
    return round(SHOT[0] + _share(frequency) * (SHOT[1] - SHOT[0])) // COUNT


def _rate(frequency: float) -> float:
    """Beyond both ends, that of the nearer one: it grows too fast to go on like that."""
    share = min(max(_share(frequency), 0.0), 1.0)
    return float(RATE[0] * (RATE[1] / RATE[0]) ** share)


def _share(frequency: float) -> float:
    """How far it is on the way from the lowest frequency to the highest."""
    return (frequency - ENDS[0]) / (ENDS[1] - ENDS[0])


def layers(shape: tuple[int, ...]) -> np.ndarray:
    """Speeds of the three layers, float32, with the depth along the last axis."""
    velocity = np.empty(shape, np.float32)
    for layer, speed in enumerate(SPEEDS):
        velocity[..., layer * shape[-1] // 3 :] = speed
    return velocity


def neighbours(
    source: tuple[float, ...], across: float, shots: int
) -> tuple[tuple[float, ...], ...]:
    """Sources side by side around one, along x, in a model that is `across` metres wide."""
    middle, *rest = source
    places = (middle + APART * (shot - (shots - 1) / 2) for shot in range(shots))
    # More shots than there is room for stand at the ends.
    return tuple((min(max(at, 0.0), across), *rest) for at in places)


def ratios_of(frequency: float, codec: Any, count: int = COUNT) -> list[float]:
    """How many times smaller each wavefield becomes."""
    spacing = SPEEDS[0] / frequency / POINTS
    cells = max(64, round(DEPTH / spacing))
    velocity = layers((cells, cells))
    dt = 0.9 * largest_stable_step(SPEEDS[-1], spacing, spacing)
    core = Acoustic(velocity, (spacing, spacing), dt, LAYER, 0)
    older, newer = (np.zeros(core.shape, np.float32) for _ in range(2))
    source = core.points([(DEPTH / 2, 2 * spacing)])
    steps = round(2.0 * DEPTH / SPEEDS[0] / dt)
    every = max(1, steps // count)
    signal = _ricker(frequency, dt, every * count)
    found = []
    for number in range(count):
        part = signal[number * every : (number + 1) * every]
        core.advance(older, newer, len(part), source, part)
        if len(part) % 2:
            older, newer = newer, older
        found.append(_ratio(newer, codec))
    return found


def _ratio(field: np.ndarray, codec: Any) -> float:
    with Spool(host_memory=2 * field.nbytes + (1 << 20), codec=codec, device="cpu") as spool:
        spool.save(0, field)
        return spool.achieved(0)["0"].ratio


def _ricker(frequency: float, dt: float, count: int) -> np.ndarray:
    a = (np.pi * frequency * (np.arange(count) * dt - 1.2 / frequency)) ** 2
    values: np.ndarray = ((1.0 - 2.0 * a) * np.exp(-a)).astype(np.float32)
    return values[:, None]
