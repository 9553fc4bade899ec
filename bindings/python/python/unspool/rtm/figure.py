"""The picture of a migration: the model, the difference, and what was made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unspool.rtm.image import PROCESSING, perturbation
from unspool.rtm.job import Job
from unspool.rtm.model import Floats

__all__ = ["draw"]

#: Amplitudes beyond this percentile are clipped, in per cent.
CLIP = 98.5
#: Width of the figure in inches, and dots per inch.
WIDTH, DPI = 17.0, 130
#: Inches that titles, axes and colour bars take of each panel.
FRAME = 1.15


def draw(job: Job, image: Floats, wanted: Floats, agrees: float, path: Path) -> None:
    """Writes the picture as a PNG.

    Args:
        job: what was migrated.
        image: the finished image.
        wanted: what a perfect image would show.
        agrees: the correlation of both.
        path: the file.
    """
    with matplotlib.rc_context({"font.size": 10.0, "axes.titlesize": 11.0}):
        nx, nz = job.model.extent
        height = 2 * (WIDTH / 2 * 0.86 * nz / nx + FRAME) + 0.9
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        _velocity(panels[0, 0], job)
        _difference(panels[0, 1], job)
        _wiggles(panels[1, 0], job, image, f"Migrated image, {len(job.shots)} shots")
        title = f"What the source's band can show of the difference (correlation {agrees:.2f})"
        _wiggles(panels[1, 1], job, wanted, title)
        for axes in panels[:, 0]:
            axes.set_ylabel("depth (km)")
        for axes in panels[1]:
            axes.set_xlabel("distance (km)")
        figure.suptitle(f"Reverse time migration: {job.model.name}", fontsize=14)
        figure.supxlabel(_caption(job), fontsize=9)
        figure.savefig(path, format="png")


def _velocity(axes: Axes, job: Job) -> None:
    _panel(axes, job, job.model.velocity / 1000.0, "speed (km/s)", cmap="turbo")
    positions = np.array(job.survey.sources) / 1000.0
    axes.plot(*positions.T, "w*", markeredgecolor="k", markersize=9, clip_on=False, label="shots")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    axes.set_title("True velocity")


def _difference(axes: Axes, job: Job) -> None:
    seen = 100.0 * perturbation(job.model, job.background)
    limit = _limit(seen)
    label = "true minus migration velocity (%)"
    _panel(axes, job, seen, label, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_title("Difference: true minus smoothed velocity, relative")


def _wiggles(axes: Axes, job: Job, image: Floats, title: str) -> None:
    limit = _limit(image)
    label = "relative amplitude (rms = 1)"
    _panel(axes, job, image, label, cmap="gray", vmin=-limit, vmax=limit)
    axes.set_title(title)


def _limit(values: Floats) -> float:
    """The amplitude that the clip percentile leaves, at least something."""
    return float(np.percentile(np.abs(values), CLIP)) or 1.0


def _panel(axes: Axes, job: Job, values: Floats, label: str, **options: Any) -> None:
    (width, depth), (dx, dz) = job.model.extent, job.model.spacing
    edges = np.array([-dx / 2, width + dx / 2, depth + dz / 2, -dz / 2]) / 1000.0
    picture = axes.imshow(
        values.T, extent=tuple(edges), aspect="equal", interpolation="bilinear", **options
    )
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.01, fraction=0.03, aspect=25)
    bar.set_label(label)


def _caption(job: Job) -> str:
    timing = job.survey.timing
    source = (
        f"Ricker source, {timing.frequency:.1f} Hz; {len(job.survey.receivers)} receivers; "
        f"{timing.steps * timing.dt:.2f} s recorded; direct wave muted before migration"
    )
    path = f"{job.background.name}; positive is faster than the migration velocity"
    return (
        f"{source}.\nImages: {', '.join(PROCESSING)}; clipped at the {CLIP:g}th percentile. "
        f"Migrated with {path}."
    )
