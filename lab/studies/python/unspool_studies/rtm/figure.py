"""The picture of a migration: the model, the difference, and what was made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from unspool_studies.rtm.image import PROCESSING, perturbation
from unspool_studies.rtm.job import Job
from unspool_studies.rtm.model import Floats

__all__ = ["caption", "draw", "limit_of"]

#: Amplitudes beyond this percentile are clipped, in per cent.
CLIP = 98.5
#: Width of the figure in inches, and dots per inch.
WIDTH, DPI = 17.0, 130
#: Inches around the panels: at the left, between and right of them with the colour bars, at the
#: top, below each row, and at the bottom.
LEFT, BESIDE, TOP, BELOW, BOTTOM = 0.65, 1.15, 0.75, 0.6, 0.95


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
        figure, panels = _panels(job)
        _velocity(panels[0, 0], job)
        _difference(panels[0, 1], job)
        _wiggles(panels[1, 0], job, image, f"Migrated image, {len(job.shots)} shots")
        title = f"What the source's band can show of the difference (correlation {agrees:.2f})"
        _wiggles(panels[1, 1], job, wanted, title)
        figure.suptitle(
            f"Reverse time migration: {job.model.name}",
            y=1.0 - 0.1 / figure.get_figheight(),
            va="top",
        )
        figure.text(0.5, 0.08 / figure.get_figheight(), caption(job), ha="center", fontsize=9)
        figure.savefig(path, format="png")


def _panels(job: Job) -> tuple[Figure, Any]:
    """Two by two panels in which a kilometre is as long in depth as in distance."""
    extent_x, extent_z = job.model.extent
    width = (WIDTH - LEFT - 2 * BESIDE) / 2
    tall = min(width * extent_z / extent_x, 1.2 * width)
    height = TOP + 2 * tall + BELOW + BOTTOM
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    panels = figure.subplots(
        2,
        2,
        gridspec_kw={
            "left": LEFT / WIDTH,
            "right": 1.0 - BESIDE / WIDTH,
            "wspace": BESIDE / width,
            "hspace": BELOW / tall,
            "top": 1.0 - TOP / height,
            "bottom": BOTTOM / height,
        },
    )
    for axes in panels[:, 0]:
        axes.set_ylabel("depth (km)")
    for axes in panels[1]:
        axes.set_xlabel("distance (km)")
    return figure, panels


def _velocity(axes: Axes, job: Job) -> None:
    _panel(axes, job, job.model.velocity / 1000.0, "speed (km/s)", cmap="turbo")
    positions = np.array(job.survey.sources) / 1000.0
    axes.plot(*positions.T, "w*", markeredgecolor="k", markersize=9, clip_on=False, label="shots")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    axes.set_title("True velocity")


def _difference(axes: Axes, job: Job) -> None:
    seen = 100.0 * perturbation(job.model, job.background)
    limit = limit_of(seen)
    label = "difference (%)"
    _panel(axes, job, seen, label, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_title("Difference: true minus smoothed velocity, relative")


def _wiggles(axes: Axes, job: Job, image: Floats, title: str) -> None:
    limit = limit_of(image)
    label = "amplitude / rms"
    _panel(axes, job, image, label, cmap="gray", vmin=-limit, vmax=limit)
    axes.set_title(title)


def limit_of(values: Floats) -> float:
    """The amplitude that the clip percentile leaves, at least something."""
    return float(np.percentile(np.abs(values), CLIP)) or 1.0


def _panel(axes: Axes, job: Job, values: Floats, label: str, **options: Any) -> None:
    (width, depth), (dx, dz) = job.model.extent, job.model.spacing
    edges = np.array([-dx / 2, width + dx / 2, depth + dz / 2, -dz / 2]) / 1000.0
    picture = axes.imshow(
        values.T, extent=tuple(edges), aspect="equal", interpolation="bilinear", **options
    )
    beside = axes.inset_axes((1.012, 0.0, 0.014, 1.0))
    axes.figure.colorbar(picture, cax=beside).set_label(label)


def caption(job: Job) -> str:
    timing = job.survey.timing
    source = (
        f"Ricker source, {timing.frequency:.1f} Hz; {len(job.survey.receivers)} receivers; "
        f"{timing.steps * timing.dt:.2f} s recorded; direct wave muted before migration"
    )
    return (
        f"{source}. Migration velocity: slowness smoothed ({job.background.name}).\n"
        f"Images: {', '.join(PROCESSING)}; clipped at the {CLIP:g}th percentile; positive is "
        "faster than the migration velocity."
    )
