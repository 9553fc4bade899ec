"""Part `schedules`: a reverse time migration by every schedule, and whether the image is the same.

The job is that of `unspool-rtm`; each schedule has a spool of its own. What is predicted comes from
the pace of the steps, measured before each schedule, and the speeds of the links, measured once.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace

from unspool.advice import Candidate
from unspool.errors import Error
from unspool.stats import size as size_text
from unspool_studies.bench.bound import least_of
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.wave_problem import WrongImageError
from unspool_studies.rtm.device import CupyDevice
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import LEVELS, Job, migrate_again, plain_history
from unspool_studies.rtm.job import run as run_job
from unspool_studies.rtm.model import Model, smooth
from unspool_studies.rtm.modelfile import read_model
from unspool_studies.rtm.outcome import Migrated, Outcome
from unspool_studies.rtm.pace import Pace
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.schedule import Choice, name_of
from unspool_studies.rtm.survey import plan as plan_survey

__all__ = ["job_of", "run", "table_of"]

COLUMNS = (
    "schedule",
    "kept",
    "predicted s",
    "s",
    "bound s",
    "of bound %",
    "off %",
    "model's %",
    "steps again",
    "stall s",
    "device MB",
    "host MB",
    "disk MB",
    "moved GB",
    "image",
)

NOTES = (
    "s: both passes of all shots, with their saves and restores; recording is not counted",
    "bound: the least time of the same steps and copies over the links that were measured, with "
    "perfect knowledge; of bound: what of it is reached",
    "off: the prediction, made before, against that; model's: the same with the times of steps as "
    "they turned out, so that the machine's own drift has no part in it (on a CPU)",
    "kept: states at most; steps again: time steps of the forward passes beyond the first of each",
    "device, host, disk: the most that was in use; moved: over all links, in both directions",
    "image: whether every bit of it is that of the first row",
)

#: As in `unspool-rtm`: cells that the migration model is smoothed over, cells of the layer.
SMOOTH_CELLS, LAYER = 8, 40
#: The generated model.
SHAPE, SPACING = (1201, 401), 7.5
#: Schedules that `--rtm-snapshots` applies to.
COUNTED = ("revolve", "online", "uniform")
TIERS = ("device", "host", "disk")


def run(plan: Plan, report: Report) -> None:
    """One table.

    Raises:
        WrongImageError: a schedule made another image than the first way.
    """
    table = table_of(job_of(plan), plan, report)
    report.show(table)
    wrong = [str(row[0]) for row in table.rows if row[-1] == "DIFFERENT"]
    if wrong:
        raise WrongImageError(f"another image than that of the first row: {', '.join(wrong)}")


def job_of(plan: Plan) -> Job:
    """The migration that the options ask for, with every state kept."""
    wanted, model = plan.migration, _model(plan)
    survey = plan_survey(model, shots=wanted.shots, steps=wanted.steps, every=wanted.every)
    memory = Memory(f"{wanted.device}B", f"{wanted.host}B", plan.directory)
    device = CupyDevice(plan.device) if wanted.gpu else None
    background = smooth(model, SMOOTH_CELLS * max(model.spacing))
    return Job(model, background, survey, LAYER, 0, memory, device)


def _model(plan: Plan) -> Model:
    wanted = plan.migration
    shape, spacing = wanted.shape or SHAPE, wanted.spacing or (SPACING,)
    if wanted.model is not None:
        return read_model(wanted.model, shape, spacing)
    nx, *ny, nz = shape
    return generated_model(nx, nz, spacing[0], ny=ny[0] if ny else None)


def table_of(job: Job, plan: Plan, report: Report) -> Table:
    """A row for each schedule, and one for plain arrays."""
    timing, state, wanted = job.survey.timing, 2 * job.field_bytes, plan.migration
    title = (
        f"{job.model.name}: {len(job.shots)} shots of {timing.steps:,} steps in {timing.saves:,} "
        f"groups, states of {size_text(state)}; device tier {size_text(wanted.device)}, host tier "
        f"{size_text(wanted.host)}"
    )
    table = report.begin(Table("schedules", title, COLUMNS, notes=list(NOTES)))
    rows = _Rows(job, plan, table)
    rows.plain()
    for name in wanted.schedules:
        rows.scheduled(name)
    return table


@dataclass(frozen=True)
class _Run:
    """What is shown of a schedule: seconds, and the rest as of the last reading."""

    seconds: Sample
    outcome: Outcome
    digests: set[str]


class _Rows:
    """Adds rows; the first one's image is what the others are compared with."""

    def __init__(self, job: Job, plan: Plan, table: Table) -> None:
        self._job, self._plan, self._table = job, plan, table
        self._pace = Pace(job)
        self._wanted = ""
        forward, reverse = self._pace.seconds
        table.note(f"a group takes {1e3 * forward:.2f} ms forward, {1e3 * reverse:.2f} ms back")

    def plain(self) -> None:
        """Without a spool: every wavefield in plain arrays, where there is room for them."""
        try:
            plain = plain_history(self._job).memory
        except Error as error:
            self._table.note(f"plain arrays: left out: {error}")
            return
        records = run_job(self._job, Silence(), keep_records=True).records
        found = migrate_again(self._job, records, Silence())
        image = self._compared({_digest(found)})
        kept, seconds = self._job.survey.timing.saves, sum(found.seconds)
        self._table.add(f"no spool, {plain}", kept, None, seconds, *[None] * 10, image)

    def scheduled(self, name: str) -> None:
        """By one schedule; what it cannot do is noted."""
        try:
            job, predicted = self._prepared(name)
            done = self._measured(job)
        except Error as error:
            self._table.note(f"{name}: left out: {error}")
            return
        label = f"{name}: {name_of(job.follows)}"
        self._add(label, job, done, predicted)

    def _prepared(self, name: str) -> tuple[Job, Candidate | None]:
        """The job with that schedule, and what is predicted for a shot of it."""
        self._pace.renew()
        snapshots = self._plan.migration.snapshots if name in COUNTED else None
        schedule = Choice(name, snapshots).schedule(self._job.survey.timing.saves, self._pace)
        job = replace(self._job, schedule=schedule)
        if name == "auto":
            best = self._pace.best
            job = replace(job, memory=job.memory.only(best.tiers))
            return job, best
        try:
            return job, self._pace.predict(schedule)
        except Error as error:
            self._table.note(f"{name}: not predicted: {error}")
            return job, None

    def _measured(self, job: Job) -> _Run:
        seconds: list[float] = []
        digests: set[str] = set()
        begin = time.perf_counter()
        while len(seconds) < self._plan.rounds:
            outcome = run_job(job, Silence())
            seconds.append(outcome.followed.seconds)
            digests.add(_digest(outcome.migrated))
            if time.perf_counter() - begin > self._plan.budget:
                break
        return _Run(Sample.of(seconds), outcome, digests)

    def _add(self, label: str, job: Job, done: _Run, candidate: Candidate | None) -> None:
        stats, followed = done.outcome.stats, done.outcome.followed
        took = done.seconds.median
        predicted = least = off = reached = None
        if candidate is not None:
            predicted = len(job.shots) * candidate.seconds
            off = 100.0 * (predicted - took) / took
            least = len(job.shots) * self._least(candidate)
            reached = 100.0 * least / took
        peaks = {tier.name: tier.peak / 1e6 for tier in stats.tiers}
        moved = sum(link.flush.bytes + link.prefetch.bytes for link in stats.links)
        self._table.add(
            label,
            job.kept.peak_copies,
            predicted,
            done.seconds,
            least,
            reached,
            off,
            self._models(job, done),
            followed.recomputed * job.survey.timing.every,
            stats.save_stall_seconds + stats.restore_stall_seconds,
            *(peaks.get(name) for name in TIERS),
            moved / 1e9,
            self._compared(done.digests),
        )

    def _least(self, candidate: Candidate) -> float:
        """The bound of a shot."""
        job, pace = self._job, self._pace
        sizes = LEVELS * job.field_bytes, job.field_bytes
        return least_of(candidate, pace.links, pace.seconds, sizes, job.survey.timing.saves)

    def _models(self, job: Job, done: _Run) -> float | None:
        """By how much the last reading is missed by a prediction that knows how long steps took."""
        if job.device is not None:
            return None
        followed = done.outcome.followed
        groups = len(job.shots) * job.kept.steps
        forward = followed.forward_seconds / max(1, followed.advances)
        times = forward, followed.reverse_seconds / groups
        try:
            one = self._pace.predict(job.follows, seconds=times, memory=job.memory).seconds
        except Error:
            return None
        return 100.0 * (len(job.shots) * one - followed.seconds) / followed.seconds

    def _compared(self, digests: set[str]) -> str:
        self._wanted = self._wanted or min(digests)
        return "same" if digests == {self._wanted} else "DIFFERENT"


def _digest(migrated: Migrated) -> str:
    found = hashlib.sha256(migrated.image.tobytes())
    found.update(migrated.illumination.tobytes())
    return found.hexdigest()
