"""Reverse time migration of one shot: record, forward pass, backward pass.

The image is the zero-lag cross-correlation of the source's wavefield with the one that the
records, sent back into the ground in reverse time, make (Baysal et al. 1983; Claerbout 1971). The
backward pass is the exact adjoint of the forward one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unspool.rtm.clock import Clock
from unspool.rtm.history import History
from unspool.rtm.model import Floats
from unspool.rtm.propagator import Propagator
from unspool.rtm.survey import Survey

__all__ = ["Tell", "migrate_shot", "mute_direct_wave", "record_shot"]

#: Called after each group of steps with the phase ("record", "forward" or "backward")
#: and the number of steps.
Tell = Callable[[str, int], None]


def record_shot(
    propagator: Propagator, survey: Survey, shot: int, clock: Clock, tell: Tell
) -> Floats:
    """What the receivers record of one shot: float32 (steps, receivers)."""
    timing, waves = survey.timing, propagator.wavefield()
    source = propagator.points([survey.sources[shot]])
    receivers = propagator.points(survey.receivers)
    records = []
    for start in range(0, timing.steps, timing.every):
        signal = survey.wavelet[start : start + timing.every]
        with clock.span("compute", f"record {shot}:{start}"):
            records.append(waves.advance(len(signal), source, signal, receivers))
        tell("record", len(signal))
    return np.concatenate([record for record in records if record is not None])


def mute_direct_wave(data: Floats, survey: Survey, shot: int, speed: float) -> Floats:
    """Silences each receiver until the wave along the surface has passed.

    It passes at `speed` (m/s) and lasts twice the wavelet's delay; a cosine taper of one period
    follows. `data` is as `record_shot` returns it: row k holds time (k + 1) dt.
    """
    timing = survey.timing
    source = np.array(survey.sources[shot])
    offset = np.linalg.norm(np.array(survey.receivers) - source, axis=1)
    passed = offset / speed + 2.0 * timing.delay
    time = (np.arange(len(data)) + 1.0)[:, None] * timing.dt
    rise = np.clip((time - passed) * timing.frequency, 0.0, 1.0)
    return (data * (0.5 - 0.5 * np.cos(np.pi * rise))).astype(np.float32)


def migrate_shot(
    propagator: Propagator,
    survey: Survey,
    shot: int,
    data: Floats,
    history: History,
    clock: Clock,
    tell: Tell,
) -> tuple[Floats, Floats]:
    """Image and illumination of one shot, on the model's grid.

    Args:
        propagator: of the model to migrate with.
        survey: the survey.
        shot: which shot of it.
        data: what the receivers recorded, float32 (steps, receivers).
        history: keeps the forward wavefields; version `shot * steps + step` is the one before
            that step.
        clock: measures what is computed.
        tell: hears of progress.
    """
    timing, waves = survey.timing, propagator.wavefield()
    starts = range(0, timing.steps, timing.every)
    first = shot * timing.steps
    source = propagator.points([survey.sources[shot]])
    for start in starts:
        history.save(first + start, waves.now)
        signal = survey.wavelet[start : start + timing.every]
        with clock.span("compute", f"forward {shot}:{start}"):
            waves.advance(len(signal), source, signal)
        tell("forward", len(signal))
    history.expect([first + start for start in reversed(starts)])
    waves.reset()
    receivers = propagator.points(survey.receivers)
    forward, image, backwards = propagator.room(), propagator.image(), data[::-1].copy()
    for start in reversed(starts):
        stop = min(start + timing.every, timing.steps)
        signal = backwards[timing.steps - stop : timing.steps - start]
        with clock.span("compute", f"backward {shot}:{start}"):
            waves.advance(len(signal), receivers, signal)
        history.restore(first + start, forward)
        with clock.span("compute", f"image {shot}:{start}"):
            image.add(forward, waves.now)
        tell("backward", len(signal))
    return image.result()
