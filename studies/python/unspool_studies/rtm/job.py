"""The whole job: every shot recorded, migrated through a spool, and stacked."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import unspool
from unspool import Spool
from unspool.schedules import Schedule, StoreAll
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.gpu import TRAFFIC, GpuPropagator
from unspool_studies.rtm.history import (
    ArrayHistory,
    DeviceHistory,
    Memory,
    PinnedHistory,
    SpoolHistory,
)
from unspool_studies.rtm.medium import padded_shape
from unspool_studies.rtm.memory import available_memory
from unspool_studies.rtm.migration import migrate_shot, mute_direct_wave, record_shot
from unspool_studies.rtm.model import Floats, Model
from unspool_studies.rtm.outcome import Followed, Kernels, Migrated, Outcome, Shot, stack
from unspool_studies.rtm.passes import Passes
from unspool_studies.rtm.propagator import CompiledPropagator, Propagator
from unspool_studies.rtm.schedule import Kept, kept_by
from unspool_studies.rtm.survey import Survey

__all__ = [
    "Job",
    "Watch",
    "check_disk",
    "migrate_again",
    "plain_history",
    "run",
]


class Watch(Protocol):
    """Hears how a job gets on."""

    def opened(self, history: SpoolHistory) -> None:
        """The spool is there."""

    def stepped(self, shot: int, phase: str, steps: int) -> None:
        """A group of steps is done."""

    def finished(self, shot: int, seconds: float) -> None:
        """A shot is done."""


#: A check needs this many times the history: the rest of the job lives beside it.
CHECK_MARGIN = 1.1
#: Time levels of a state that the waves go on from.
LEVELS = 2
#: Arrays as large as a wavefield that a migration has on a GPU: the medium, two levels of each
#: pass, image and light; and one to spare.
FIELDS = 8


@dataclass(frozen=True, eq=False)
class Job:
    """What is migrated, and with what.

    Attributes:
        model: the true model, which the data are recorded in.
        background: the smoothed model, which they are migrated through.
        survey: where the shots are, and how time is sampled.
        layer: cells of the absorbing layer.
        threads: of the propagator, 0 for one per core.
        memory: the sizes of the tiers.
        device: the GPU that computes, or None for the CPU.
        only: the shots to migrate, or None for all.
        schedule: which states of a shot are kept, over its groups of steps; None: every one.
    """

    model: Model
    background: Model
    survey: Survey
    layer: int
    threads: int
    memory: Memory
    device: Device | None = None
    only: tuple[int, ...] | None = None
    schedule: Schedule | None = None

    def propagator(self, model: Model) -> Propagator:
        """What computes waves in one of the models."""
        dt = self.survey.timing.dt
        if self.device is None:
            return CompiledPropagator(model, dt, self.layer, self.threads)
        return GpuPropagator(model, dt, self.layer, self.device)

    def spool(self, *, trace: bool = False) -> Spool:
        """The history of a job, where its waves are computed."""
        return self.memory.open(trace=trace, on="cpu" if self.device is None else self.device.on)

    @property
    def shots(self) -> tuple[int, ...]:
        """The shots to migrate."""
        return tuple(range(len(self.survey.sources))) if self.only is None else self.only

    @property
    def surface_speed(self) -> float:
        """The mean speed along the surface in m/s: that of the direct wave."""
        return float(self.model.velocity[..., 0].mean())

    @property
    def field_bytes(self) -> int:
        """Bytes of one saved wavefield."""
        return 4 * math.prod(padded_shape(self.model.shape, self.layer))

    @property
    def working_bytes(self) -> int:
        """Memory of a GPU that migrating takes beside the history: fields and a shot's records."""
        return FIELDS * self.field_bytes + 8 * self.survey.timing.steps * len(self.survey.receivers)

    @property
    def follows(self) -> Schedule:
        """The schedule of a shot."""
        return self.schedule or StoreAll(self.survey.timing.saves)

    @cached_property
    def kept(self) -> Kept:
        """What that schedule keeps and computes of one shot."""
        steps = self.survey.timing.saves
        return kept_by(self.follows, steps, LEVELS * self.field_bytes, self.field_bytes)

    @property
    def plain_history_bytes(self) -> int:
        """Bytes of the history of one shot where every wavefield is kept."""
        return self.field_bytes * self.survey.timing.saves

    @property
    def steps_to_do(self) -> int:
        """Time steps of all shots, recording, forward again and again, and backward."""
        timing = self.survey.timing
        return len(self.shots) * (2 * timing.steps + self.kept.advances * timing.every)

    @property
    def steps_to_check(self) -> int:
        """Time steps of a migration of all shots that keeps every wavefield."""
        timing = self.survey.timing
        return len(self.shots) * (timing.steps + (timing.saves - 1) * timing.every)


def run(
    job: Job,
    watch: Watch,
    trace: Callable[[SpoolHistory], None] | None = None,
    keep_records: bool = False,
    show: Callable[[Shot], None] | None = None,
) -> Outcome:
    """Records and migrates every shot, with the history in one spool.

    Args:
        job: what to do.
        watch: hears of progress.
        trace: is called with the history before the spool closes, if a trace is wanted.
        keep_records: whether the data are wanted afterwards, to migrate them again.
        show: is given each shot when it is migrated.
    """
    clock = Clock(keep_spans=trace is not None)
    bandwidth = 0.0 if job.device is None else job.device.copy_bandwidth()
    if job.device is not None and trace is not None:
        job.device.keep_spans()
    recording, migrating = map(job.propagator, (job.model, job.background))
    records: dict[int, Floats] = {}

    def record(shot: int) -> Floats:
        tell = partial(watch.stepped, shot)
        data = record_shot(recording, job.survey, shot, clock, tell)
        mute_direct_wave(data, job.survey, shot, job.surface_speed)
        if keep_records:
            records[shot] = data
        return data

    with job.spool(trace=trace is not None) as spool:
        history = SpoolHistory(spool, clock)
        watch.opened(history)
        drive = _Driven(job, history)
        shots = _shots(job, migrating, record, drive, clock, watch)
        migrated = stack(job.model.shape, _shown(shots, show))
        if trace is not None:
            if job.device is not None:
                clock.put("compute", job.device.spans())
            trace(history)
        stats = spool.stats()
    kernels = None if job.device is None else _kernels(job.device, migrating.shape, bandwidth)
    times = clock.times()
    return Outcome(migrated, records, stats, drive.followed, times, migrating.description, kernels)


class _Driven:
    """Migrates shots by the job's schedule, and adds up what it made of them."""

    def __init__(self, job: Job, history: SpoolHistory) -> None:
        self._schedule, self._history = job.follows, history
        self.followed = Followed()

    def __call__(self, passes: Passes, shot: int) -> tuple[Floats, Floats]:
        """Image and illumination of one shot."""
        begin = time.perf_counter()
        report = unspool.adjoint(
            self._schedule,
            self._history,
            passes.forward,
            passes.reverse,
            passes.levels,
            for_reverse=passes.newest,
            first=shot * (passes.groups + 1),
        )
        # A GPU is done when the image is there.
        found = passes.result()
        self.followed += Followed(
            report.forward_steps,
            report.recomputed_steps,
            report.saves,
            report.restores,
            time.perf_counter() - begin,
            report.forward_seconds,
            report.reverse_seconds,
        )
        return found


def _kernels(device: Device, shape: tuple[int, ...], bandwidth: float) -> Kernels:
    time = device.kernel_time()
    return Kernels(time.steps, time.seconds, 4 * TRAFFIC * math.prod(shape), bandwidth)


def _shown(shots: Iterable[Shot], show: Callable[[Shot], None] | None) -> Iterator[Shot]:
    for shot in shots:
        if show is not None:
            show(shot)
        yield shot


def migrate_again(
    job: Job,
    records: Mapping[int, Floats],
    watch: Watch,
    show: Callable[[Shot], None] | None = None,
) -> Migrated:
    """The same migration with each shot's whole history in plain arrays, without a spool."""
    migrating = job.propagator(job.background)

    def migrate(passes: Passes, shot: int) -> tuple[Floats, Floats]:
        return migrate_shot(passes, plain_history(job))

    shots = _shots(job, migrating, records.__getitem__, migrate, Clock(), watch)
    return stack(job.model.shape, _shown(shots, show))


def _shots(
    job: Job,
    propagator: Propagator,
    data: Callable[[int], Floats],
    migrate: Callable[[Passes, int], tuple[Floats, Floats]],
    clock: Clock,
    watch: Watch,
) -> Iterator[Shot]:
    for shot in job.shots:
        begin, tell = time.monotonic(), partial(watch.stepped, shot)
        passes = Passes(propagator, job.survey, shot, data(shot), clock, tell)
        found, lit = migrate(passes, shot)
        seconds = time.monotonic() - begin
        watch.finished(shot, seconds)
        yield Shot(shot, found, lit, seconds)


def check_disk(directory: Path, history_bytes: int, memory: int) -> None:
    """Refuses a history for which the disk has no room: that of all shots that are at work.

    Raises:
        MigrationError: with the figures and what to change.
    """
    free, needed = shutil.disk_usage(directory).free, history_bytes - memory
    if needed > free:
        raise MigrationError(
            f"the history of the shots at work needs {needed / 1e9:.1f} GB of disk; "
            f"{directory} has {free / 1e9:.1f} GB free: give --disk-dir another place, more --host "
            "memory, a larger --every, or a --schedule that keeps less"
        )


def plain_history(job: Job) -> ArrayHistory | PinnedHistory:
    """Where a check keeps the history of one shot: on the GPU if it fits, else in host memory.

    Raises:
        MigrationError: with the figures and what to change, where it fits nowhere.
    """
    needed = int(CHECK_MARGIN * job.plain_history_bytes)
    if job.device is not None and needed <= job.device.free_bytes() - job.working_bytes:
        return DeviceHistory()
    available = available_memory()
    if available is None or needed <= available:
        return ArrayHistory() if job.device is None else PinnedHistory(job.device)
    device = ""
    if job.device is not None:
        device = f"; the GPU has {job.device.free_bytes() / 1e9:.1f} GB free"
    raise MigrationError(
        f"--check keeps the history of one shot in plain memory: that is {needed / 1e9:.1f} "
        f"GB, and {available / 1e9:.1f} GB are available{device}; take a larger --every, fewer "
        "--steps, or no --check"
    )
