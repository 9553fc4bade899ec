"""Part `rtm-codecs`: what each codec and bound does to the image of a reverse time migration.

The same shots are migrated with the history as it is, and with each codec; every image is compared
with the first one after the same processing. All runs have the same tiers, too small for the
history as it is, so that a smaller one also moves less.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from unspool.stats import size as size_text
from unspool_studies.bench.models import GENERATED
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.rtm_codecs_options import RtmCodecs
from unspool_studies.rtm.codec import name_of_codec
from unspool_studies.rtm.device import CupyDevice
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.image import finish
from unspool_studies.rtm.job import Job
from unspool_studies.rtm.job import run as migrate
from unspool_studies.rtm.model import Floats, Model, coarser, extended, smooth
from unspool_studies.rtm.modelfile import read_model
from unspool_studies.rtm.pace import Pace
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.quality import ImageQuality, image_quality
from unspool_studies.rtm.schedule import Choice
from unspool_studies.rtm.survey import plan as plan_survey

__all__ = ["Trial", "job_of", "run", "trials_of"]

COLUMNS = (
    "codec",
    "ratio",
    "stored MB",
    "link MB",
    "s",
    "stall s",
    "raw error",
    "rel. error",
    "PSNR dB",
    "SSIM",
    "1 - cosine",
    "image",
)

NOTES = (
    "ratio: bytes of all states over those that were kept of them; link: bytes that left the "
    "fastest tier or came back to it",
    "s: of all shots, records included; rel. error: the norm of the difference to the image of an "
    "uncompressed history, divided by the norm of that image; raw error: the same of the "
    "correlation before it is processed: filtering brings out what errors are rough",
    "image: in words, by the relative error: 0.1 % same to the eye, 1 % good, 5 % visible, 20 % "
    "poor, beyond it RUINED",
)

#: Cells over which the migration model is smoothed.
SMOOTH_CELLS = 8


@dataclass(frozen=True)
class Trial:
    """One codec.

    Attributes:
        name: of the codec, as on the command line.
        quality: of the image.
        ratio: raw over stored bytes of the states.
        stored: bytes that were kept.
        link: bytes that crossed the first link, both ways.
        seconds: of the whole run.
        stall: seconds in which the application waited.
        image: the finished image.
        stack: the correlation that it is made from.
        raw_error: the relative error of that.
    """

    name: str
    quality: ImageQuality
    ratio: float
    stored: int
    link: int
    seconds: float
    stall: float
    image: Floats
    stack: Floats
    raw_error: float


def run(plan: Plan, report: Report) -> None:
    """A table with one row a codec, and a plot where one is wanted."""
    asked = plan.rtm_codecs
    job = job_of(asked)
    if asked.maps is not None:
        # What cannot be written is known before anything is migrated.
        asked.maps.mkdir(parents=True, exist_ok=True)
    timing = job.survey.timing
    title = (
        f"Reverse time migration, {'x'.join(map(str, job.model.shape))} cells, "
        f"{len(job.shots)} shots of {timing.steps} steps, {job.kept.peak_copies} states of "
        f"{size_text(job.field_bytes)} a shot, {asked.schedule}"
    )
    table = report.begin(Table("rtm-codecs", title, COLUMNS, notes=list(NOTES)))
    trials = trials_of(job, asked.codecs, table)
    report.show(table)
    if asked.plot is not None:
        from unspool_studies.bench.rtm_codecs_plot import draw

        draw(trials, asked.plot)
        print(f"written: {asked.plot}")
    if asked.maps is not None:
        from unspool_studies.bench.error_maps import draw_maps

        found = draw_maps(job.model, {trial.name: trial.image for trial in trials}, asked.maps)
        print(f"written: {len(found)} pictures in {asked.maps}")


def job_of(asked: RtmCodecs) -> Job:
    """What is migrated, with its history as it is.

    Raises:
        MigrationError: the model is in space, and no GPU computes.
    """
    model = _model(asked)
    if model.in_space and not asked.gpu:
        raise MigrationError("in three dimensions a GPU computes: add --image-gpu")
    survey = plan_survey(
        model, shots=asked.shots, frequency=asked.frequency, steps=None, time=None, every=None
    )
    memory = Memory(asked.device, asked.host, asked.directory)
    device = CupyDevice(0) if asked.gpu else None
    background = smooth(model, SMOOTH_CELLS * max(model.spacing))
    job = Job(model, background, survey, 40, 0, memory, device)
    choice = Choice(asked.schedule, asked.snapshots, None, None)
    return replace(job, schedule=choice.schedule(survey.timing.saves, Pace(job)))


def _model(asked: RtmCodecs) -> Model:
    if asked.model is not None:
        model = read_model(asked.model, asked.shape, asked.spacing)
    else:
        nx, *ny, nz = asked.shape or (301, 151)
        spacing = (asked.spacing or (10.0,))[0]
        model = GENERATED[asked.generated](nx, nz, spacing, ny=ny[0] if ny else None)
    model = coarser(model, asked.coarser)
    return model if asked.extended is None else extended(model, asked.extended)


def trials_of(job: Job, codecs: Sequence[Any], table: Table) -> list[Trial]:
    """The history as it is, and each codec."""
    trials: list[Trial] = []
    for codec in (None, *codecs):
        asked = replace(job, memory=replace(job.memory, codec=codec))
        trial = _trial(asked, trials[0] if trials else None)
        trials.append(trial)
        found = trial.quality
        table.add(
            trial.name,
            trial.ratio,
            trial.stored / 1e6,
            trial.link / 1e6,
            trial.seconds,
            trial.stall,
            f"{trial.raw_error:.1e}",
            f"{found.rel_l2:.1e}",
            found.psnr,
            found.ssim,
            f"{1.0 - found.cosine:.1e}",
            found.verdict,
        )
    return trials


def _trial(job: Job, first: Trial | None) -> Trial:
    begin = time.perf_counter()
    outcome = migrate(job, Silence())
    seconds = time.perf_counter() - begin
    stack = outcome.migrated.image
    image = finish(stack, outcome.migrated.illumination, job.model)
    stats = outcome.stats
    used, flow = stats.codec, stats.links[0] if stats.links else None
    plain = not used.raw_bytes
    return Trial(
        name=name_of_codec(job.memory.codec),
        quality=image_quality(image, image if first is None else first.image),
        ratio=1.0 if plain else used.ratio,
        stored=stats.saved_bytes if plain else used.stored_bytes,
        link=flow.flush.bytes + flow.prefetch.bytes if flow is not None else 0,
        seconds=seconds,
        stall=stats.save_stall_seconds + stats.restore_stall_seconds,
        image=image,
        stack=stack,
        raw_error=0.0 if first is None else image_quality(stack, first.stack).rel_l2,
    )
