"""The figures of part `advise` as one picture of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from unspool_studies.advice.figures import Panel

__all__ = ["draw"]


def draw(panels: Sequence[Panel], title: str, file: Path) -> None:
    """Writes the picture.

    Arguments:
        panels: what stands in it.
        title: above all.
        file: PNG or SVG.
    """
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(12.6, 3.3 * rows), layout="constrained")
    figure.suptitle(title)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, 3, number + 1)
        for name, line in panel.lines.items():
            if line:
                style = "o" if len(line) == 1 else "--" if "printed" in name else "-"
                axes.plot(*zip(*line, strict=True), style, label=name, linewidth=1.4, markersize=4)
        if panel.is_log:
            axes.set_xscale("log")
        heights = [y for line in panel.lines.values() for _, y in line if y > 0]
        if max(heights) > 1000 * min(heights) or panel.y == "weeks":
            axes.set_yscale("log")
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.x, fontsize=8)
        axes.set_ylabel(panel.y, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6)
    figure.savefig(file, dpi=90)
