"""Reverse time migration of one shot: record, forward pass, backward pass.

The image is the zero-lag cross-correlation of the source's wavefield with the one that the
records, sent back into the ground in reverse time, make (Baysal et al. 1983; Claerbout 1971). The
backward pass is the exact adjoint of the forward one.
"""

from __future__ import annotations

import numpy as np
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.history import History
from unspool_studies.rtm.model import Floats
from unspool_studies.rtm.passes import Passes, Tell
from unspool_studies.rtm.propagator import Propagator
from unspool_studies.rtm.survey import Survey

__all__ = ["migrate_shot", "mute_direct_wave", "record_shot"]


def record_shot(
    propagator: Propagator, survey: Survey, shot: int, clock: Clock, tell: Tell
) -> Floats:
    """What the receivers record of one shot: float32 (steps, receivers)."""
    timing, waves = survey.timing, propagator.wavefield()
    source = propagator.points([survey.sources[shot]])
    receivers = propagator.points(survey.receivers)
    data = propagator.traces(timing.steps, len(survey.receivers))
    wavelet = propagator.load(survey.wavelet)
    for start in range(0, timing.steps, timing.every):
        signal = wavelet[start : start + timing.every]
        with clock.span("compute", f"record {shot}:{start}"):
            waves.advance(len(signal), source, signal, receivers, data[start : start + len(signal)])
        tell("record", len(signal))
    return propagator.fetch(data)


def mute_direct_wave(data: Floats, survey: Survey, shot: int, speed: float) -> None:
    """Silences each receiver until the wave along the surface has passed. Changes `data`.

    It passes at `speed` (m/s) and lasts twice the wavelet's delay; a cosine taper of one period
    follows. `data` is as `record_shot` returns it: row k holds time (k + 1) dt.
    """
    timing = survey.timing
    offset = np.linalg.norm(np.subtract(survey.receivers, survey.sources[shot]), axis=1)
    passed = (offset / speed + 2.0 * timing.delay).astype(np.float32)
    time = (np.arange(1, timing.steps + 1) * timing.dt).astype(np.float32)
    taper: Floats = np.subtract.outer(time, passed)
    taper *= np.float32(timing.frequency)
    np.clip(taper, 0.0, 1.0, out=taper)
    taper *= np.float32(np.pi)
    np.cos(taper, out=taper)
    data *= (1.0 - taper) / 2.0


def migrate_shot(passes: Passes, history: History) -> tuple[Floats, Floats]:
    """Image and illumination of one shot, on the model's grid, with every wavefield kept.

    This is the migration without any schedule: what all others are checked against.

    Args:
        passes: of the shot.
        history: keeps the newest time level before each group, by the group's number.
    """
    groups = range(passes.groups)
    for group in groups:
        history.save(group, passes.now())
        if group < groups[-1]:
            passes.forward(None, group, group + 1)
    history.expect(reversed(groups))
    for group in reversed(groups):
        history.restore(group, passes.now())
        passes.reverse(None, group)
    return passes.result()
