"""`unspool-codecs`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from unspool import __version__
from unspool.codecs.host import is_lossy_dtype, name_of
from unspool.errors import Error, OptionError
from unspool_studies.codecs import report
from unspool_studies.codecs.entropy import entropy
from unspool_studies.codecs.options import Plan, plan_of
from unspool_studies.codecs.quality import quality
from unspool_studies.codecs.report import Finding
from unspool_studies.codecs.source import read_source
from unspool_studies.codecs.trial import Candidate, candidates, on_cpu

__all__ = ["run_command"]


def run_command(options: argparse.Namespace) -> int:
    """Tries every codec on every file; returns the exit code: 1 when a promise was broken.

    Raises:
        Error: an option makes no sense, or a file cannot be read.
    """
    plan = plan_of(options)
    if plan.cost is not None:
        return _cost(plan, plan.cost)
    gpu = _gpu() if plan.gpu else None
    picture = _picture(plan)
    # Files that cannot be read are told before anything is measured.
    for name in plan.files:
        read_source(name, plan.shape, plan.dtype, 1)
    findings = [_tried(name, plan, gpu, picture) for name in plan.files]
    if plan.json:
        found = [report.as_dict(finding) for finding in findings]
        print(json.dumps({"unspool": __version__, "arrays": found}, indent=1))
    if picture is not None:
        assert plan.picture is not None
        picture.save_to(plan.picture)
        print(f"written: {plan.picture}", file=sys.stderr)
    return 1 if any(trial.violations for one in findings for trial in one.trials) else 0


def _cost(plan: Plan, target: Path) -> int:
    """Measures what one codec costs, and writes it to a file for plans."""
    from unspool_studies.codecs.cost import OnCpu, OnGpu, Place, generated, measure

    place: Place = OnGpu() if plan.gpu else OnCpu()
    source = (
        read_source(plan.files[0], plan.shape, plan.dtype, plan.most)
        if plan.files
        else generated(plan.most)
    )
    curve = measure(source, plan.codec, plan.most, place)
    print(json.dumps({"unspool": __version__, **curve.to_dict()}, indent=1) if plan.json else curve)
    curve.cost.save_to(target)
    print(f"written: {target}", file=sys.stderr)
    return 0


def _gpu() -> Any:
    from unspool_studies.codecs.gpu import Runner

    return Runner()


def _picture(plan: Plan) -> Any:
    if plan.picture is None:
        return None
    from unspool_studies.codecs.figure import Picture

    return Picture()


def _tried(name: str, plan: Plan, gpu: Any, picture: Any) -> Finding:
    source = read_source(name, plan.shape, plan.dtype, plan.most)
    values = source.array
    finding = Finding(source, quality(values, values))
    if plan.entropy:
        finding.entropy = entropy(values)
    _remark(finding, plan)
    if picture is not None:
        picture.begin(source)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False))
    console = Console(stderr=True)
    options: dict[str, Any] = {"console": console, "disable": not console.is_terminal}
    with Progress(*columns, **options, transient=True) as progress:
        task = progress.add_task(name, total=None)
        for candidate in candidates(values, finding.facts, plan):
            progress.update(task, description=f"{name}: {candidate.name}")
            _try(finding, candidate, None, picture)
        for candidate in gpu.candidates(values, plan) if gpu else ():
            progress.update(task, description=f"{name}: {candidate.name} on the GPU")
            _try(finding, candidate, gpu, picture)
    if not plan.json:
        report.show(finding, _console())
    return finding


def _try(finding: Finding, candidate: Candidate, gpu: Any, picture: Any) -> None:
    """One codec; one that does not take these values is a line below the table."""
    values = finding.source.array
    keep = (
        None if picture is None or candidate.exact or candidate.outer else picture.keeper(candidate)
    )
    try:
        trial = gpu.run(values, candidate, keep) if gpu else on_cpu(values, candidate, keep)
    except Error as error:
        place = " on the GPU" if gpu else ""
        finding.refused.append((f"{candidate.name}{place}", str(error)))
        return
    finding.trials.append(trial)
    if picture is not None:
        picture.measured(trial)


def _remark(finding: Finding, plan: Plan) -> None:
    """What the table cannot say."""
    values = finding.source.array
    if not is_lossy_dtype(name_of(values.dtype)):
        finding.notes.append(
            f"items of dtype {name_of(values.dtype)} are only encoded without loss: a bound says "
            "nothing about them; convert them to floating point to try bounds and zfp"
        )
        if plan.picture is not None:
            raise OptionError(f"-o: nothing is lost of {name_of(values.dtype)} that could be drawn")


def _console() -> Console:
    # Names of files are not markup: `a.npz:a:` is not an emoji.
    options: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    console = Console(**options)
    return console if console.is_terminal else Console(**options, width=report.WIDTH)
