"""Part `gpuzip`: the evaluation of GPUZIP, with states cached in the device's memory and encoded.

GPUZIP (T. J. M. Maltempi, slides: checkpointing with prefetching and compression) migrates in three
dimensions by Revolve, zCut and Uniform: with synchronous copies between device and pinned host
memory, which are its baseline, with two to six states cached on the device, and with lossy codecs.
Here the same is done with the kernels of `unspool-rtm --gpu`: each schedule with nothing kept, with
everything in the device's memory, with synchronous copies behind a cache, and through a spool whose
device tier holds a few states, for each codec. A row that fails or takes too long is a note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from unspool import schedules
from unspool.schedules import Schedule
from unspool.stats import size as size_text
from unspool_studies.bench.adjoint_options import Gpuzip
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.gpuzip_rows import COLUMNS, DIFFERENT, FAILURES, NOTES, Rows, said
from unspool_studies.bench.models import gradient, in_space
from unspool_studies.bench.options import Plan
from unspool_studies.bench.raw import Links, links
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.wave_problem import Problem, WrongImageError
from unspool_studies.rtm.device import CupyDevice, Device
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.model import Model
from unspool_studies.rtm.modelfile import read_model

__all__ = ["Experiment", "experiments_of", "run", "table_of"]

#: What the slides say of 256^3, 300 steps, 6 snapshots, on another machine.
PUBLISHED = (
    "GPUZIP says of its own example: 2.20 s without a cache, 1.52 s with 6 slots, 1.16 s with "
    "lossy compression, on its machine"
)


@dataclass(frozen=True)
class Experiment:
    """What is measured.

    Attributes:
        name: of the table.
        shape: cells of a field, with the absorbing layer.
        steps: time steps; each is a step of the schedule.
        schedule: makes the schedule.
        tiers: how many states the device tier holds, one row each; 0: there is no such tier.
        codecs: of the spools, one after the other.
        model: makes the model of so many cells.
        smoothed: whether it is migrated with a smoothed model, and the direct wave is muted.
        notes: what has to be known besides.
    """

    name: str
    shape: tuple[int, ...]
    steps: int
    schedule: Callable[[], Schedule]
    tiers: tuple[int, ...]
    codecs: tuple[Any, ...] = (None,)
    model: Callable[[tuple[int, ...]], Model] = gradient
    smoothed: bool = False
    notes: tuple[str, ...] = ()


def run(cuda: Cuda, plan: Plan, report: Report) -> None:
    """A table for each model and schedule.

    Raises:
        MigrationError: a table has no rows; the others are measured all the same.
        WrongImageError: one of the ways that lose nothing made another image than the others.
    """
    if plan.gpuzip.maps is not None:
        # What cannot be written is known before anything is measured.
        plan.gpuzip.maps.mkdir(parents=True, exist_ok=True)
    device = CupyDevice(plan.device)
    found = links(cuda, plan.checkpoint, plan.rounds)
    wrong, empty = [], []
    for experiment in experiments_of(plan):
        table = table_of(device, experiment, plan, report, found)
        report.show(table)
        rows = [row[0] for row in table.rows if row[-1] == DIFFERENT]
        wrong += [f"{experiment.name}: {row}" for row in rows]
        empty += [] if table.rows else [experiment.name]
        device.give_back()
    if wrong:
        raise WrongImageError(f"another image than that of the first way: {', '.join(wrong)}")
    if empty:
        raise MigrationError(f"nothing was measured of {', '.join(empty)}: the notes say why")


def experiments_of(plan: Plan) -> list[Experiment]:
    """What the options ask for.

    Raises:
        MigrationError: no file was given for the model of that name, or it cannot be read.
    """
    one, file = plan.gpuzip, None
    if "file" in one.models:
        if one.file is None:
            raise MigrationError("the model file: give its velocities by --gpuzip-file")
        file = read_model(one.file, one.file_shape, one.file_spacing)
    return [_experiment(one, model, file, name) for model in one.models for name in one.schedules]


def _experiment(one: Gpuzip, model: str, file: Model | None, name: str) -> Experiment:
    found, plain = _sized(one, name), model == "gradient"
    return replace(
        found,
        name=found.name if plain else f"{found.name}-{model}",
        codecs=one.codecs,
        model=partial(in_space, model, file=file),
        smoothed=not plain,
        notes=found.notes if plain else (),
    )


def _sized(one: Gpuzip, name: str) -> Experiment:
    """The experiment of a schedule, on a model in which nothing reflects."""
    if name == "revolve":
        revolve = partial(schedules.Revolve, one.steps, one.snapshots)
        sizes = one.shape, one.steps
        return Experiment("gpuzip-revolve", *sizes, revolve, one.tiers, notes=(PUBLISHED,))
    sizes = one.zcut_shape, one.zcut_steps
    zcut = partial(schedules.ZCut, one.zcut_steps, length=one.zcut_length)
    if name == "zcut":
        return Experiment("gpuzip-zcut", *sizes, zcut, one.zcut_tiers)
    # GPUZIP's figures of memory are the same for Uniform and zCut.
    slots = one.uniform_snapshots or zcut().counts().peak
    uniform = partial(schedules.Uniform, one.zcut_steps, slots)
    return Experiment("gpuzip-uniform", *sizes, uniform, one.zcut_tiers)


def table_of(
    device: Device,
    experiment: Experiment,
    plan: Plan,
    report: Report,
    found: Links | None = None,
) -> Table:
    """One schedule in every way; `found`: the speeds of the link, for the bound."""
    schedule = experiment.schedule()
    table = report.begin(Table(experiment.name, repr(schedule), COLUMNS, notes=[*NOTES]))
    try:
        problem = _problem(device, experiment)
    except FAILURES as error:
        table.note(f"left out: {said(error)}")
        return table
    table.title = _title(problem, schedule)
    for note in experiment.notes:
        table.note(note)
    rates = None
    if found is not None:
        rates = found.rate("down").median * 1e9, found.rate("up").median * 1e9
        table.note("pinned copies: {:.1f} GB/s down, {:.1f} up".format(*(r / 1e9 for r in rates)))
    rows = Rows(problem, schedule, plan, table, rates)
    rows.add_all(experiment.tiers, experiment.codecs)
    if plan.gpuzip.maps is not None:
        _draw(rows, problem.model, plan.gpuzip.maps / experiment.name, table)
    return table


def _problem(device: Device, one: Experiment) -> Problem:
    problem = Problem(device, one.shape, one.steps, one.model, smoothed=one.smoothed)
    problem.warm_up()
    return problem


def _title(problem: Problem, schedule: Schedule) -> str:
    counts, shape = schedule.counts(), " x ".join(map(str, problem.shape))
    return (
        f"{schedule!r} on fields of {shape} cells, {problem.model.name}: {counts.advances:,} steps "
        f"forward, {counts.saves:,} saves and {counts.restores:,} restores of "
        f"{size_text(problem.state_bytes)}, at most {counts.peak} kept"
    )


def _draw(rows: Rows, model: Model, folder: Path, table: Table) -> None:
    """Pictures of the images of lossy codecs, where there are some."""
    if len(rows.images) < 2:
        return
    from unspool_studies.bench.error_maps import draw_maps

    try:
        draw_maps(model, rows.images, folder)
    except OSError as error:
        table.note(f"no pictures: {said(error)}")
