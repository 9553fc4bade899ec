"""One shot in space whose adjoint is measured: by a plain store, or through a spool."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import unspool
from unspool.errors import Error
from unspool.schedules import Schedule
from unspool.stats import Stats
from unspool_studies.bench.models import gradient
from unspool_studies.bench.plain_adjoint import Store, follow
from unspool_studies.bench.tiers import moved, room_for, tier, wait_until_ready
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.image import finish
from unspool_studies.rtm.medium import HALO
from unspool_studies.rtm.migration import mute_direct_wave, record_shot
from unspool_studies.rtm.model import Floats, Model, smooth
from unspool_studies.rtm.passes import Passes
from unspool_studies.rtm.survey import Survey, plan

__all__ = [
    "LEVELS",
    "OverTimeError",
    "Problem",
    "Reading",
    "WrongImageError",
    "plainly",
    "through_spool",
]

#: Cells of the absorbing layer at most, and cells over which a migration model is smoothed.
LAYER, SMOOTH_CELLS = 20, 8
#: Both time levels are a state.
LEVELS = 2
#: Steps that are taken before anything is measured: kernels are compiled, graphs are captured.
WARM = 8


class WrongImageError(Error, RuntimeError):
    """States did not come back as they were saved."""


class OverTimeError(Error, RuntimeError):
    """A measurement that took longer than it may."""


class Problem:
    """One shot in space; receivers lie on a line along x.

    Attributes:
        device: what computes.
        model: what the shot is recorded in.
        survey: the shot; each time step is a step of a schedule.
    """

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        steps: int,
        model: Callable[[tuple[int, ...]], Model] = gradient,
        *,
        smoothed: bool = False,
    ) -> None:
        """Records the shot.

        Args:
            device: what computes.
            shape: of a field, the absorbing layer included.
            steps: time steps.
            model: makes the model of so many cells, or of fewer: fields are smaller then.
            smoothed: whether the model to migrate with is smoothed and the direct wave is muted,
                so that what reflects is seen in the image.

        Raises:
            MigrationError: nothing arrives after the direct wave.
        """
        layer = min(LAYER, min(shape) // 8)
        made = model(tuple(count - 2 * (layer + HALO) for count in shape))
        self.device, self.model = device, made
        self.survey = _on_a_line(plan(made, shots=1, steps=steps, every=1))
        dt = self.survey.timing.dt
        self._propagator = GpuPropagator(made, dt, layer, device)
        self._data = record_shot(self._propagator, self.survey, 0, Clock(), _silent)
        if smoothed:
            _mute(self._data, self.survey, made)
            background = smooth(made, SMOOTH_CELLS * max(made.spacing))
            self._propagator = GpuPropagator(background, dt, layer, device)
        self._tick, self._ends = device.zeros((1,)), math.inf

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A context in which steps are taken for so long.

        Raises:
            OverTimeError: a step is taken later; from the call that takes it.
        """
        self._ends = time.perf_counter() + seconds
        try:
            yield
        finally:
            self._ends = math.inf

    def _in_time(self, _phase: str, _steps: int) -> None:
        if time.perf_counter() > self._ends:
            raise OverTimeError("it takes longer than a cell of the table may")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a field."""
        return self._propagator.shape

    @property
    def state_bytes(self) -> int:
        """Of both time levels."""
        return LEVELS * 4 * int(np.prod(self.shape))

    def passes(self) -> Passes:
        """Silent waves and a dark image."""
        return Passes(self._propagator, self.survey, 0, self._data, Clock(), self._in_time)

    def finished(self, parts: tuple[Floats, Floats]) -> Floats:
        """The image that people look at, of an image and its illumination."""
        return finish(*parts, self.model)

    def span(self) -> float:
        """The range of the newest time level when all steps forward are taken."""
        passes = self.passes()
        passes.forward(None, 0, self.survey.timing.steps)
        return float(np.ptp(self.device.fetch(passes.now())))

    def forward_seconds(self) -> float:
        """Of a step forward, on average over all."""
        steps, passes = self.survey.timing.steps, self.passes()
        return _timed(self, lambda: passes.forward(None, 0, steps)) / steps

    def wait(self) -> None:
        """Until the device has done all."""
        self.device.fetch(self._tick)

    def warm_up(self) -> None:
        """Takes a few steps of each kind."""
        steps, passes = self.survey.timing.steps, self.passes()
        passes.forward(None, 0, min(WARM, steps))
        for step in reversed(range(max(0, steps - WARM), steps)):
            passes.reverse(None, step)
        self.wait()


def _silent(_phase: str, _steps: int) -> None:
    """Nobody wants to know."""


def _on_a_line(survey: Survey) -> Survey:
    """Receivers on every cell would record more than the history is."""
    middle = survey.sources[0][1]
    line = tuple(place for place in survey.receivers if place[1] == middle)
    return replace(survey, receivers=line)


def _mute(data: Floats, survey: Survey, model: Model) -> None:
    mute_direct_wave(data, survey, 0, float(model.velocity[..., 0].mean()))
    if not data.any():
        steps = survey.timing.steps
        raise MigrationError(
            f"{model.name}: nothing arrives after the direct wave within {steps:,} steps, so "
            "there is no image: take more steps"
        )


@dataclass(frozen=True)
class Reading:
    """One adjoint.

    Attributes:
        seconds: from its beginning until the device is done.
        down: bytes that were copied to the host.
        up: bytes that were copied to the device.
        digest: of image and illumination.
        parts: image and illumination themselves, where somebody wants them.
        costs: what the spool counts; None without a spool.
    """

    seconds: float
    down: int
    up: int
    digest: str
    parts: tuple[Floats, Floats] | None
    costs: Costs | None = None


@dataclass(frozen=True)
class Costs:
    """What a spool counts during one adjoint.

    Attributes:
        stall: seconds for which calls waited.
        transfers: seconds of transfers between device and host, summed over them: they may run
            beside each other and beside the computing.
        coding: seconds of the host's in encoders and decoders; on a GPU, until their kernels are
            enqueued.
        ratio: how many times smaller states became; 1 without a codec.
        device: the most bytes in the device tier at once, of all adjoints so far.
        host: the same of the host tier.
    """

    stall: float
    transfers: float
    coding: float
    ratio: float
    device: int
    host: int


def plainly(problem: Problem, schedule: Schedule, store: Store, whole: bool = True) -> Reading:
    """By the schedule, with a plain store; see `follow`."""
    down, up = store.down, store.up
    passes = problem.passes()
    seconds = _timed(problem, lambda: follow(schedule, store, passes, whole=whole))
    parts = passes.result()
    return Reading(seconds, store.down - down, store.up - up, _digest(parts), parts)


def through_spool(
    problem: Problem, schedule: Schedule, states: int, newest: bool, codec: Any = None
) -> Generator[Reading, None, None]:
    """By the schedule, through a spool; each reading is taken when it is asked for.

    Args:
        problem: what is computed.
        schedule: by which schedule.
        states: how many of them the device tier holds, as they are; 0: there is no such tier. The
            host tier holds all that are kept.
        newest: whether a copy that is only reversed holds the newer time level alone.
        codec: what becomes of the states.
    """
    size, kept = problem.state_bytes, schedule.counts().peak
    device, host = room_for(states, size) or None, room_for(kept, size)
    with unspool.Spool(
        device_memory=device, host_memory=host, device=problem.device.on, codec=codec
    ) as spool:
        wait_until_ready(spool)
        while True:
            yield _once(problem, schedule, spool, newest)


def _once(problem: Problem, schedule: Schedule, spool: unspool.Spool, newest: bool) -> Reading:
    passes, before = problem.passes(), spool.stats()

    def drive() -> None:
        part = Passes.newest if newest else None
        calls = (passes.forward, passes.reverse, passes.levels)
        unspool.adjoint(schedule, spool, *calls, for_reverse=part)

    seconds, after = _timed(problem, drive), spool.stats()
    down, up = (now - then for now, then in zip(_crossed(after), _crossed(before), strict=True))
    parts = passes.result()
    return Reading(seconds, down, up, _digest(parts), parts, _costs(before, after))


def _crossed(stats: Stats) -> tuple[int, int]:
    """Bytes that went to the host and came back; without a device tier, with each call."""
    if tier(stats, "device") is None:
        return stats.saved_bytes, stats.restored_bytes
    return moved(stats)


def _costs(before: Stats, after: Stats) -> Costs:
    def since(count: Callable[[Stats], float]) -> float:
        return count(after) - count(before)

    device, host = (tier(after, name) for name in ("device", "host"))
    return Costs(
        stall=since(lambda stats: stats.save_stall_seconds + stats.restore_stall_seconds),
        transfers=since(_busy),
        coding=since(lambda stats: stats.codec.encode_seconds + stats.codec.decode_seconds),
        ratio=after.codec.ratio,
        device=device.peak if device is not None else 0,
        host=host.peak if host is not None else 0,
    )


def _busy(stats: Stats) -> float:
    return sum(link.flush.busy_seconds + link.prefetch.busy_seconds for link in stats.links)


def _timed(problem: Problem, run: Callable[[], object]) -> float:
    problem.wait()
    begin = time.perf_counter()
    run()
    problem.wait()
    return time.perf_counter() - begin


def _digest(parts: tuple[Floats, Floats]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part.tobytes())
    return found.hexdigest()
