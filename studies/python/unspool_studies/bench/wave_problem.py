"""One shot in space whose adjoint is measured: by a plain store, or through a spool."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
import unspool
from unspool.errors import Error
from unspool.schedules import Schedule
from unspool.stats import Stats
from unspool_studies.bench.plain_adjoint import Store, follow
from unspool_studies.bench.tiers import moved, room_for, wait_until_ready
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.gpu import GpuPropagator
from unspool_studies.rtm.medium import HALO
from unspool_studies.rtm.migration import record_shot
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.passes import Passes
from unspool_studies.rtm.survey import Survey, plan

__all__ = ["LEVELS", "Problem", "Reading", "WrongImageError", "plainly", "through_spool"]

#: Metres between cells, and cells of the absorbing layer at most.
SPACING, LAYER = 10.0, 20
#: Speeds at the surface and at the bottom, in m/s.
SLOWEST, FASTEST = 1500.0, 4500.0
#: Both time levels are a state.
LEVELS = 2
#: Steps that are taken before anything is measured: kernels are compiled, graphs are captured.
WARM = 8


class WrongImageError(Error, RuntimeError):
    """States did not come back as they were saved."""


class Problem:
    """One shot in space: speed grows with depth, receivers lie on a line along x.

    Attributes:
        device: what computes.
        survey: the shot; each time step is a step of a schedule.
    """

    def __init__(self, device: Device, shape: tuple[int, ...], steps: int) -> None:
        """Fields of `shape`, the absorbing layer included; the shot is recorded here."""
        layer = min(LAYER, min(shape) // 8)
        cells = tuple(count - 2 * (layer + HALO) for count in shape)
        speed = np.linspace(SLOWEST, FASTEST, cells[-1], dtype=np.float32)
        velocity = np.ascontiguousarray(np.broadcast_to(speed, cells))
        model = Model(velocity, (SPACING,) * len(cells), "speed grows with depth")
        self.device = device
        self.survey = _on_a_line(plan(model, shots=1, steps=steps, every=1))
        self._propagator = GpuPropagator(model, self.survey.timing.dt, layer, device)
        self._data = record_shot(self._propagator, self.survey, 0, Clock(), _silent)
        self._tick = device.zeros((1,))

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
        return Passes(self._propagator, self.survey, 0, self._data, Clock(), _silent)

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


@dataclass(frozen=True)
class Reading:
    """One adjoint.

    Attributes:
        seconds: from its beginning until the device is done.
        stall: seconds that the spool counts as such; None without a spool.
        down: bytes that were copied to the host.
        up: bytes that were copied to the device.
        digest: of image and illumination.
    """

    seconds: float
    stall: float | None
    down: int
    up: int
    digest: str


def plainly(problem: Problem, schedule: Schedule, store: Store, whole: bool = True) -> Reading:
    """By the schedule, with a plain store; see `follow`."""
    down, up = store.down, store.up
    passes = problem.passes()
    seconds = _timed(problem, lambda: follow(schedule, store, passes, whole=whole))
    return Reading(seconds, None, store.down - down, store.up - up, _digest(passes))


def through_spool(
    problem: Problem, schedule: Schedule, states: int, newest: bool
) -> Generator[Reading, None, None]:
    """By the schedule, through a spool; each reading is taken when it is asked for.

    Args:
        problem: what is computed.
        schedule: by which schedule.
        states: how many of them the device tier holds; the host tier holds all that are kept.
        newest: whether a copy that is only reversed holds the newer time level alone.
    """
    size, kept = problem.state_bytes, schedule.counts().peak
    device, host = room_for(states, size), room_for(kept, size)
    with unspool.Spool(device=device, host=host, on=problem.device.on) as spool:
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
    down, up = (now - then for now, then in zip(moved(after), moved(before), strict=True))
    return Reading(seconds, _stall(after) - _stall(before), down, up, _digest(passes))


def _stall(stats: Stats) -> float:
    return stats.save_stall_seconds + stats.restore_stall_seconds


def _timed(problem: Problem, run: Callable[[], object]) -> float:
    problem.wait()
    begin = time.perf_counter()
    run()
    problem.wait()
    return time.perf_counter() - begin


def _digest(passes: Passes) -> str:
    found = hashlib.sha256()
    for part in passes.result():
        found.update(part.tobytes())
    return found.hexdigest()
