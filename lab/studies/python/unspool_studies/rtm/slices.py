"""The picture of a migration in space: three sections through the model and through its image."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from unspool_studies.rtm.figure import caption, limit_of
from unspool_studies.rtm.job import Job
from unspool_studies.rtm.model import Floats

__all__ = ["draw"]

#: Width and height of the figure in inches, and dots per inch.
SIZE, DPI = (16.0, 14.0), 120
NAMES = ("x", "y", "depth")


class Section(NamedTuple):
    """A plane through the middle of a volume: the axis across it, and those along it."""

    across: int
    right: int
    down: int


SECTIONS = (Section(1, 0, 2), Section(0, 1, 2), Section(2, 0, 1))


def draw(job: Job, image: Floats, wanted: Floats, agrees: float, path: Path) -> None:
    """Writes the picture as a PNG: speeds, image, and what a perfect image would show.

    Args:
        job: what was migrated.
        image: the finished image.
        wanted: what a perfect image would show.
        agrees: the correlation of both.
        path: the file.
    """
    with matplotlib.rc_context({"font.size": 9.0, "axes.titlesize": 10.0}):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        panels = figure.subplots(3, 3)
        _row(panels[0], job, job.model.velocity / 1000.0, "speed (km/s)", cmap="turbo")
        _shots(panels[0, 2], job)
        for row, values, title in (
            (panels[1], image, f"image, {len(job.shots)} shots"),
            (panels[2], wanted, f"what the source's band can show (correlation {agrees:.2f})"),
        ):
            limit = limit_of(values)
            _row(row, job, values, title, cmap="gray", vmin=-limit, vmax=limit)
        figure.suptitle(f"Reverse time migration: {job.model.name}")
        figure.supxlabel(caption(job), fontsize=8)
        figure.savefig(path, format="png")


def _row(panels: Any, job: Job, values: Floats, title: str, **options: Any) -> None:
    low, high = float(values.min()), float(values.max())
    options = {"vmin": low, "vmax": high, **options}
    for axes, section in zip(panels, SECTIONS, strict=True):
        _section(axes, job, values, section, title, options)


def _section(
    axes: Axes, job: Job, values: Floats, section: Section, title: str, options: dict[str, Any]
) -> None:
    at = values.shape[section.across] // 2
    plane = np.take(values, at, axis=section.across)
    (right, down), half = (section.right, section.down), np.array(job.model.spacing) / 2
    far = np.array(job.model.extent) + half
    edges = np.array([-half[right], far[right], far[down], -half[down]]) / 1000.0
    picture = axes.imshow(plane.T, extent=tuple(edges), interpolation="bilinear", **options)
    axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    kilometres = at * job.model.spacing[section.across] / 1000.0
    axes.set_title(f"{title}\nat {NAMES[section.across]} = {kilometres:.2f} km")
    axes.set_xlabel(f"{NAMES[right]} (km)")
    axes.set_ylabel(f"{NAMES[down]} (km)")


def _shots(axes: Axes, job: Job) -> None:
    positions = np.array(job.survey.sources)[:, :2] / 1000.0
    axes.plot(*positions.T, "w*", markeredgecolor="k", markersize=9, clip_on=False, label="shots")
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
