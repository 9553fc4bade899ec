"""Time against memory, a panel for each library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

__all__ = ["draw"]

MARKERS = "osD^vP*X"


def draw(found: Mapping[str, Any], file: Path) -> None:
    """Writes the picture.

    Arguments:
        found: `title`, `machine`, and `points`, each with its `panel`, `method`, `label`, `seconds`
            and `gib`. Points of one method are joined in the order of their memory.
        file: PNG or SVG.
    """
    points = found["points"]
    panels = list(dict.fromkeys(point["panel"] for point in points))
    methods = list(dict.fromkeys(point["method"] for point in points))
    figure = Figure(figsize=(1.0 + 4.6 * len(panels), 4.0), layout="constrained")
    figure.suptitle(f"{found['title']} ({found['machine']})", fontsize=10)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for at, method in enumerate(methods):
            mine = [one for one in points if (one["panel"], one["method"]) == (panel, method)]
            if mine:
                _line(axes, sorted(mine, key=lambda one: one["gib"]), method, at)
        axes.set(xlabel="GiB of the GPU", ylabel="seconds", title=panel)
        most, least = (pick(point["gib"] for point in points) for pick in (max, min))
        # Without a GPU, no memory was measured.
        if least > 0 and most > 8 * least:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    # The same bytes for the same figures.
    with rc_context({"svg.hashsalt": "unspool"}):
        figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix == ".svg" else {})


def _line(axes: Any, points: list[dict[str, Any]], method: str, at: int) -> None:
    """The points of one method, joined."""
    x, y = [one["gib"] for one in points], [one["seconds"] for one in points]
    marker = MARKERS[at % len(MARKERS)]
    axes.plot(x, y, marker=marker, color=f"C{at}", label=method, linewidth=1.2, markersize=5)
    # Of two methods at one place, both labels can be read.
    beside = (4, 5) if at % 2 else (4, -9)
    for one in points:
        place = (one["gib"], one["seconds"])
        axes.annotate(one["label"], place, beside, textcoords="offset points", fontsize=6)
