"""`unspool-rtm`: from the options to the files."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from unspool import Gradient
from unspool.errors import MissingLibraryError
from unspool.stats import Stats
from unspool_studies.rtm import figure, report, slices
from unspool_studies.rtm.codec import is_lossy, name_of_codec
from unspool_studies.rtm.crew import Engine, counted, run_crew
from unspool_studies.rtm.device import CupyDevice, count_devices, failures_told
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.files import check_writable, complete
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.image import agreement, expected, finish
from unspool_studies.rtm.job import Job, check_disk, migrate_again, plain_history, run
from unspool_studies.rtm.memory import peak_resident
from unspool_studies.rtm.model import Model, smooth
from unspool_studies.rtm.modelfile import read_model
from unspool_studies.rtm.outcome import Migrated, Outcome
from unspool_studies.rtm.pace import Pace
from unspool_studies.rtm.processes import Processes
from unspool_studies.rtm.progress import Bar, Lines, Silence
from unspool_studies.rtm.quality import image_quality
from unspool_studies.rtm.ranks import Ranks
from unspool_studies.rtm.resume import Resume
from unspool_studies.rtm.schedule import PLANNED, Choice
from unspool_studies.rtm.seat import Order
from unspool_studies.rtm.survey import plan
from unspool_studies.rtm.trace import write_trace

__all__ = ["run_command"]

#: The most threads of a propagator: more than any machine has cores.
MOST_THREADS = 1024

#: The migration model is smoothed over so many cells by default.
SMOOTH_CELLS = 8
#: What a job leaves in its output directory.
FILES = ("image.png", "image.npy", "report.json")
#: Exit codes: a check that failed is a failure of the program, not of its user.
DONE, DIFFERENT = 0, 1


def run_command(options: argparse.Namespace) -> int:
    """Runs the job and writes its files; returns the exit code.

    Raises:
        unspool.Error: with one sentence for the user.
    """
    far = _far(options)
    if far is None:
        return _lead(options, None)
    if isinstance(far, Ranks) and not far.leads:
        far.serve()
        return DONE
    with closing(far):
        return _lead(options, far)


def _lead(options: argparse.Namespace, far: Engine | None) -> int:
    choice = Choice(options.schedule, options.snapshots, options.cuts, options.cut_length)
    job = _job(options)
    gpus = _gpus(job, options, far)
    _refuse_gradient(options, far)
    processes = 1 if far is not None else _processes(job, options, gpus)
    engine = Processes(processes) if processes > 1 else far
    if engine is None and gpus is not None:
        job = replace(job, device=CupyDevice(gpus[0]))
    _refuse_early(job, options, engine)
    pace = Pace(job)
    job = replace(job, schedule=choice.schedule(job.survey.timing.saves, pace))
    if choice.name == "auto" and job.memory.codec is None:
        # Encoded states may become larger than those that the codec was tried on: with a codec the
        # slower tiers stay.
        job = replace(job, memory=job.memory.only(pace.best.tiers))
    if far is None:
        coded = pace.compression if choice.name in PLANNED else None
        _check_disk(job, processes, 1.0 if coded is None else coded.ratio)
    predicted = pace.predict(job.follows).seconds if options.predict else None
    screen = Console(stderr=True)
    for warning in job.survey.warnings:
        if not options.quiet:
            screen.print(f"warning: {warning}", style="yellow", highlight=False)
    with ExitStack() as files, failures_told():
        # All files appear together at the end, or none of them does.
        parts = {name: files.enter_context(complete(options.out / name)) for name in FILES}
        trace = files.enter_context(complete(options.trace)) if options.trace else None
        if engine is None:
            done = _alone(job, options, screen, trace)
        else:
            done = _together(Order(job, gpus, options.check), engine, options, screen)
        if predicted is not None:
            outcome = replace(done.outcome, predicted=len(job.shots) * predicted)
            done = replace(done, outcome=outcome)
        found = _write(job, done, parts)
    if job.resume is not None:
        job.resume.remove()
    stats = done.outcome.stats
    return _tell(found, stats, options)


def _far(options: argparse.Namespace) -> Engine | None:
    """Who works, where the user has started it: the ranks of an MPI job, or a Dask cluster."""
    if (options.mpi or options.dask) and options.jobs is not None:
        raise MigrationError("--jobs is of one machine: mpirun and Dask say how many work")
    if options.mpi:
        return Ranks()
    if options.dask is None:
        return None
    if options.gpus:
        raise MigrationError("--gpus is not for --dask: give --gpu; dask-cuda chooses the GPUs")
    try:
        from unspool_studies.rtm.cluster import Cluster
    except ImportError as error:
        raise MissingLibraryError(
            f"--dask needs Dask ({error}): pip install 'unspool-studies[dask]'"
        ) from error
    return Cluster(options.dask)


@dataclass(frozen=True)
class Done:
    """A job that has run: what came out, how long it took, its memory, and its check, if any."""

    outcome: Outcome
    seconds: float
    peak: int
    check: dict[str, Any] | None


def _alone(job: Job, options: argparse.Namespace, screen: Console, trace: Path | None) -> Done:
    """In this process."""
    begin = time.monotonic()
    with _watch(job, options, screen, "migrating", job.steps_to_do) as watch:
        tracer = None if trace is None else partial(write_trace, path=trace)
        outcome = run(job, watch, tracer, keep_records=options.check)
    stop, peak = time.monotonic(), peak_resident()
    check = None
    if options.check:
        plain = plain_history(job).memory
        with _watch(job, options, screen, "checking", job.steps_to_check) as watch:
            again = migrate_again(job, outcome.records, watch)
        check = _compared(job, outcome, again, plain) | {"seconds": time.monotonic() - stop}
    return Done(outcome, stop - begin, peak, check)


def _together(order: Order, engine: Engine, options: argparse.Namespace, screen: Console) -> Done:
    """By several workers."""
    job = order.job
    steps = job.steps_to_do + (job.steps_to_check if order.check else 0)
    title = f"migrating with {counted(engine.workers(), engine.kind)}"
    with _watch(job, options, screen, title, steps, True) as watch:
        crew = run_crew(order, engine, watch)
    check = None if crew.again is None else _compared(job, crew.outcome, crew.again, crew.plain)
    return Done(crew.outcome, crew.seconds, crew.peak, check)


def _write(job: Job, done: Done, parts: dict[str, Path]) -> dict[str, Any]:
    """Writes all files but the trace; returns the report."""
    migrated = done.outcome.migrated
    image = finish(migrated.image, migrated.illumination, job.model)
    wanted = expected(job.model, job.background, job.survey.timing)
    agrees = agreement(image, wanted, job.model)
    found = report.build(job, done.outcome, done.seconds, done.peak, agrees)
    if done.check is not None:
        found["check"] = done.check
    draw = slices.draw if job.model.in_space else figure.draw
    draw(job, image, wanted, agrees, parts["image.png"])
    with parts["image.npy"].open("wb") as file:
        np.save(file, image)
    parts["report.json"].write_text(json.dumps(found, indent=2) + "\n")
    return found


def _job(options: argparse.Namespace) -> Job:
    model = _model(options)
    length = options.smooth
    if length is None:
        length = SMOOTH_CELLS * max(model.spacing)
    survey = plan(
        model,
        shots=options.shots,
        frequency=options.frequency,
        steps=options.steps,
        time=options.time,
        every=options.every,
    )
    if options.layer < 0 or options.threads < 0:
        raise MigrationError("--layer and --threads cannot be negative")
    if options.threads > MOST_THREADS:
        raise MigrationError(
            f"--threads {options.threads}: at most {MOST_THREADS} are started; leave it out for "
            "one per core"
        )
    memory = Memory(
        _size(options.device_memory),
        _size(options.host_memory),
        options.disk_dir,
        options.disk,
        options.codec,
    )
    background = smooth(model, length)
    resume = options.resume and Resume(options.resume, options.resume_every)
    order = options.gradient and Gradient(options.gradient, of=("image", "light"))
    given = (model, background, survey, options.layer, options.threads, memory)
    return Job(*given, resume=resume or None, order=order or None)


def _gpus(job: Job, options: argparse.Namespace, far: Engine | None) -> tuple[int, ...] | None:
    """The numbers of the GPUs, () for all that a worker elsewhere sees, or None for the CPU."""
    if not options.gpu and options.gpus is None:
        if job.model.in_space:
            raise MigrationError("in three dimensions a GPU computes: add --gpu")
        return None
    if far is not None:
        return options.gpus or ()
    gpus: tuple[int, ...] = options.gpus or (0,)
    if max(gpus) >= (found := count_devices()):
        raise MigrationError(f"there is no GPU {max(gpus)}: CUDA sees {found}, numbered from 0")
    return gpus


def _refuse_gradient(options: argparse.Namespace, far: Engine | None) -> None:
    """What bounds cannot be chosen with."""
    if options.gradient is None:
        return
    if options.codec is not None:
        raise MigrationError("--gradient chooses the codec: leave out --codec")
    if options.resume is not None:
        raise MigrationError("--gradient migrates a shot several times: leave out --resume")
    if options.schedule in PLANNED:
        raise MigrationError(f"--gradient needs a --schedule that stays: not {options.schedule}")
    if far is not None or (options.jobs or len(options.gpus or (0,))) > 1:
        raise MigrationError(
            "--gradient measures bounds in the first shot, which is of one process: leave out "
            "--jobs, --mpi and --dask, or give one GPU"
        )


def _processes(job: Job, options: argparse.Namespace, gpus: tuple[int, ...] | None) -> int:
    jobs: int = len(gpus or (0,)) if options.jobs is None else options.jobs
    if jobs < 1:
        raise MigrationError(f"--jobs must be at least 1, and is {jobs}")
    # More processes than shots would have nothing to do.
    return min(jobs, len(job.shots))


def _model(options: argparse.Namespace) -> Model:
    if options.model is not None:
        return read_model(options.model, options.shape, options.spacing, options.units)
    (nx, *ny, nz), spacing = options.shape or (1201, 401), options.spacing or (7.5,)
    if len(set(spacing)) != 1:
        raise MigrationError("the generated model has one --spacing for all directions")
    return generated_model(nx, nz, spacing[0], ny=ny[0] if ny else None)


def _size(text: str) -> str | None:
    """A size for the spool, which understands units; `0` and `none` stand for no tier."""
    return None if text.strip().lower() in {"0", "none"} else text


def _refuse_early(job: Job, options: argparse.Namespace, engine: Engine | None) -> None:
    """What would only fail after minutes fails now."""
    check_writable(options.out, "the output directory")
    if options.out.exists() and not options.out.is_dir():
        raise MigrationError(f"--out {options.out} is not a directory")
    for option, given in (("--trace", options.trace), ("--predict", options.predict)):
        if given and engine is not None:
            raise MigrationError(
                f"{option} is of one process: leave out --jobs, --mpi and --dask, or give one GPU"
            )
    if options.resume is not None:
        check_writable(options.resume, "the folder of --resume")
        if options.check:
            raise MigrationError("--check is of a whole run: leave out --resume")
    if options.trace is not None:
        check_writable(options.trace, "the trace")
    # The disks of workers elsewhere are not seen from here.
    if isinstance(engine, Processes | None) and not options.disk_dir.is_dir():
        raise MigrationError(f"--disk-dir {options.disk_dir} is not a directory")
    if options.check and engine is None:
        plain_history(job)


def _check_disk(job: Job, processes: int, ratio: float) -> None:
    """Refuses a history that does not fit into memory and on the disk; the codec makes copies
    smaller by `ratio`."""
    with job.spool() as spool:
        memory = sum(tier.capacity or 0 for tier in spool.stats().tiers if tier.name != "disk")
    if job.memory.directory is not None:
        history = int(processes * job.kept.peak_bytes / ratio)
        check_disk(job.memory.directory, history, processes * memory)


def _watch(
    job: Job,
    options: argparse.Namespace,
    screen: Console,
    title: str,
    steps: int,
    crowd: bool = False,
) -> Bar | Lines | Silence:
    if options.quiet:
        return Silence()
    shots = len(job.shots)
    if not screen.is_terminal:
        return Lines(screen, title, shots)
    return Bar(screen, title, shots, steps, crowd)


def _compared(job: Job, outcome: Outcome, again: Migrated, plain: str) -> dict[str, Any]:
    """Whether the image with plain arrays is the same in every bit, or how far it is off."""
    pairs = zip(outcome.migrated.digests, again.digests, strict=True)
    different = [shot for shot, (one, other) in enumerate(pairs) if one != other]
    same = not different and all(
        one.tobytes() == other.tobytes()
        for one, other in (
            (outcome.migrated.image, again.image),
            (outcome.migrated.illumination, again.illumination),
        )
    )
    found = {"identical": same, "different_shots": different, "memory": plain}
    codec, order = job.memory.codec, job.order
    if not is_lossy(codec) and order is None:
        return found
    name = name_of_codec(codec) if order is None else f"--gradient {order.relative:g}"
    images = [finish(one.image, one.illumination, job.model) for one in (outcome.migrated, again)]
    return found | {"codec": name, "quality": image_quality(*images).as_dict()}


def _checked(check: dict[str, Any]) -> str:
    found, where = check.get("quality"), check["memory"]
    if found is None:
        return f"check: every bit of the image is the same with {where}"
    error, verdict = found["rel_l2"], found["verdict"]
    if error is None:
        return f"check: with {check['codec']} the image is {verdict}: it is not finite"
    similar = "" if found["ssim"] is None else f", SSIM {found['ssim']:.4f}"
    return (
        f"check: with {check['codec']} the image is {verdict}: {error:.2e} of it is wrong "
        f"(relative L2{similar}, cosine {found['cosine']:.6f}), against {where}"
    )


def _tell(found: dict[str, Any], stats: Stats, options: argparse.Namespace) -> int:
    check = found.get("check")
    failed = check is not None and not check["identical"] and "quality" not in check
    if options.json:
        print(json.dumps(found, indent=2))
    elif not options.quiet:
        console = Console()
        report.show(found, stats, console)
        console.print(f"written: {options.out}/{', '.join(FILES)}", highlight=False)
        if check is not None and not failed:
            console.print(_checked(check), highlight=False)
    if failed and check is not None:
        print(
            f"check: the image differs from that with {check['memory']}, in shots "
            f"{check['different_shots']}: the spool gave back other bytes than it was given",
            file=sys.stderr,
        )
    return DIFFERENT if failed else DONE
