"""The whole job: every shot recorded, migrated through a spool, and stacked."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import unspool
from unspool import Spool, types
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
from unspool_studies.rtm.outcome import (
    Figures,
    Followed,
    Kernels,
    Migrated,
    Outcome,
    Shot,
    Stack,
    stack,
)
from unspool_studies.rtm.passes import Passes
from unspool_studies.rtm.propagator import CompiledPropagator, Propagator
from unspool_studies.rtm.resume import Resume, durable_stack, identity
from unspool_studies.rtm.schedule import Kept, kept_by
from unspool_studies.rtm.survey import Survey

__all__ = [
    "Job",
    "Migrator",
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


#: Both passes of one shot; image and illumination.
Drive = Callable[[Passes, int], tuple[Floats, Floats]]

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
        schedule: which states of a shot are kept, over its groups of steps; None: every one.
        resume: where the job is durable, if anywhere.
        order: how accurate the image of a shot has to be, if that is said.
    """

    model: Model
    background: Model
    survey: Survey
    layer: int
    threads: int
    memory: Memory
    device: Device | None = None
    schedule: Schedule | None = None
    resume: Resume | None = None
    order: unspool.Gradient | None = None

    @contextmanager
    def stack(self) -> Iterator[Stack]:
        """The sum of the shots, with those that are done already."""
        if self.resume is None:
            yield Stack(self.model.shape)
            return
        given = (self.model, self.background, self.survey, self.layer, self.memory.codec)
        with durable_stack(self.resume, self.model.shape, identity(*given)) as found:
            yield found

    def propagator(self, model: Model) -> Propagator:
        """What computes waves in one of the models."""
        dt = self.survey.timing.dt
        if self.device is None:
            return CompiledPropagator(model, dt, self.layer, self.threads)
        return GpuPropagator(model, dt, self.layer, self.device)

    def spool(self, *, trace: bool = False) -> Spool:
        """The history of a job, where its waves are computed."""
        return self.memory.open(
            trace=trace, device="cpu" if self.device is None else self.device.on
        )

    @property
    def shots(self) -> range:
        """The numbers of the shots."""
        return range(len(self.survey.sources))

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

    def steps_done(self, shots: int) -> int:
        """Time steps of so many shots."""
        return self.steps_to_do * shots // max(1, len(self.shots))

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
) -> Outcome:
    """Records and migrates every shot that is not done yet, with the history in one spool.

    Args:
        job: what to do.
        watch: hears of progress.
        trace: is called with the history before the spool closes, if a trace is wanted.
        keep_records: whether the data are wanted afterwards, to migrate them again.
    """
    records: dict[int, Floats] = {}
    with job.stack() as through, closing(Migrator(job, keep_spans=trace is not None)) as migrator:
        watch.opened(migrator.history)
        before = through.done
        if before:
            watch.stepped(before, "", job.steps_done(before))
        for number in job.shots[before:]:
            shot, data = migrator.migrate(number, watch)
            if keep_records:
                records[number] = data
            through.add(shot)
        if trace is not None:
            migrator.trace(trace)
        return Outcome(through.migrated(), records, *migrator.figures(), before=before)


class Migrator:
    """Records and migrates shots, one after another, with their history in one spool."""

    def __init__(self, job: Job, keep_spans: bool = False) -> None:
        """Opens the spool, which `close` closes."""
        self.job, self._clock = job, Clock(keep_spans)
        self._bandwidth = 0.0 if job.device is None else job.device.copy_bandwidth()
        if job.device is not None and keep_spans:
            job.device.keep_spans()
        self._recording, self._migrating = map(job.propagator, (job.model, job.background))
        self._spool = job.spool(trace=keep_spans)
        self.history = SpoolHistory(self._spool, self._clock)
        self._drive = _Driven(job, self.history)

    def close(self) -> None:
        """Closes the spool; what was in it is gone."""
        self._spool.close()

    def migrate(self, shot: int, watch: Watch) -> tuple[Shot, Floats]:
        """One shot, and the data that were recorded for it, muted."""
        begin, resume = time.monotonic(), self.job.resume
        if resume is None:
            return self._migrate(shot, self._record(shot, watch), self._drive, watch, begin)
        with resume.shot(shot, partial(self._record, shot, watch)) as (folder, data):
            drive = partial(self._drive, resume=types.Resume(folder, resume.every))
            return self._migrate(shot, data, drive, watch, begin)

    def again(self, shot: int, data: Floats, watch: Watch) -> Shot:
        """The same shot without the spool; see `migrate_again`."""
        return _migrate_plainly(self.job, self._migrating, shot, data, watch)

    def trace(self, write: Callable[[SpoolHistory], None]) -> None:
        """Calls `write` with the history, and with when the kernels ran in its clock."""
        if self.job.device is not None:
            self._clock.put("compute", self.job.device.spans())
        write(self.history)

    def figures(self) -> Figures:
        """What was measured so far."""
        device, kernels = self.job.device, None
        if device is not None:
            kernels = _kernels(device, self._migrating.shape, self._bandwidth)
        stats, times = self._spool.stats(), self._clock.times()
        return Figures(stats, self._drive.followed, times, self._migrating.description, kernels)

    def _migrate(
        self, shot: int, data: Floats, drive: Drive, watch: Watch, begin: float
    ) -> tuple[Shot, Floats]:
        job, migrating = self.job, self._migrating
        return _migrate(job, migrating, shot, data, drive, self._clock, watch, begin), data

    def _record(self, shot: int, watch: Watch) -> Floats:
        survey, tell = self.job.survey, partial(watch.stepped, shot)
        data = record_shot(self._recording, survey, shot, self._clock, tell)
        mute_direct_wave(data, survey, shot, self.job.surface_speed)
        return data


class _Driven:
    """Migrates shots by the job's schedule, and adds up what it made of them."""

    def __init__(self, job: Job, history: SpoolHistory) -> None:
        self._schedule, self._history, self._order = job.follows, history, job.order
        self.followed = Followed()

    def __call__(self, passes: Passes, shot: int, **options: Any) -> tuple[Floats, Floats]:
        """Image and illumination of one shot. The options are those of `unspool.adjoint`."""
        begin = time.perf_counter()
        report = unspool.adjoint(
            self._schedule,
            self._history,
            passes.forward,
            passes.reverse,
            passes.levels,
            for_reverse=passes.newest,
            access=types.Access(first=shot * (passes.groups + 1), codec=self._order),
            adjoint_state=passes.accumulated if self._order is None else passes.begun,
            **options,
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
            () if report.fidelity is None else (report.fidelity,),
        )
        return found


def _kernels(device: Device, shape: tuple[int, ...], bandwidth: float) -> Kernels:
    time = device.kernel_time()
    return Kernels(time.steps, time.seconds, 4 * TRAFFIC * math.prod(shape), bandwidth)


def migrate_again(job: Job, records: Mapping[int, Floats], watch: Watch) -> Migrated:
    """The same migration with each shot's whole history in plain arrays, without a spool."""
    migrating = job.propagator(job.background)
    shots = (_migrate_plainly(job, migrating, shot, records[shot], watch) for shot in job.shots)
    return stack(job.model.shape, shots)


def _migrate_plainly(
    job: Job, propagator: Propagator, shot: int, data: Floats, watch: Watch
) -> Shot:
    def drive(passes: Passes, _shot: int) -> tuple[Floats, Floats]:
        return migrate_shot(passes, plain_history(job))

    return _migrate(job, propagator, shot, data, drive, Clock(), watch, time.monotonic())


def _migrate(
    job: Job,
    propagator: Propagator,
    shot: int,
    data: Floats,
    drive: Drive,
    clock: Clock,
    watch: Watch,
    begin: float,
) -> Shot:
    tell = partial(watch.stepped, shot)
    passes = Passes(propagator, job.survey, shot, data, clock, tell)
    found, lit = drive(passes, shot)
    seconds = time.monotonic() - begin
    watch.finished(shot, seconds)
    return Shot(shot, found, lit, seconds)


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
