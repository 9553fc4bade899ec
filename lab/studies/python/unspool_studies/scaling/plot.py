"""The picture of part `scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from unspool_studies.files import whole
from unspool_studies.scaling.simulate import Outcome

__all__ = ["draw"]

#: GPUs on the axes.
TICKS = (1, 8, 64, 512, 4096)


def draw(
    shots: Sequence[tuple[str, list[Outcome]]],
    commits: Sequence[tuple[str, list[Outcome]]],
    file: Path,
) -> None:
    """Writes the picture: shots, and a checkpointer's commits."""
    figure = Figure(figsize=(10.5, 3.6))
    figure.set_layout_engine("constrained")
    saves, restores, shares = figure.subplots(1, 3)
    marks = ("o", "s", "^", "x")
    for (name, points), mark in zip(shots, marks, strict=True):
        at = [one.cluster.processes for one in points]
        each = [one.cluster.gpus for one in points]
        kind = {"marker": mark, "markersize": 4, "label": name}
        saves.plot(at, [p.save / n / 1e9 for p, n in zip(points, each, strict=True)], **kind)
        rates = [(p.restore or 0.0) / n / 1e9 for p, n in zip(points, each, strict=True)]
        restores.plot(at, rates, **kind)
    for (name, points), mark in zip(commits, marks, strict=False):
        at = [one.cluster.processes for one in points]
        shares.plot(at, [100 * p.computing for p in points], marker=mark, markersize=4, label=name)
    for axes, title in (
        (saves, "shots: saves, GB/s a GPU"),
        (restores, "shots: restores, GB/s a GPU"),
        (shares, "commits: % of the time computing"),
    ):
        axes.set_xscale("log", base=2)
        axes.set_xticks(TICKS, [f"{gpus:,}" for gpus in TICKS])
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("GPUs")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    saves.set_yscale("log")
    restores.set_yscale("log")
    shares.set_ylim(0, 105)
    with whole(file) as part:
        figure.savefig(part, dpi=110, format=file.suffix.removeprefix(".") or "png")
