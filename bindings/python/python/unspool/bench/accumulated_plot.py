"""The plot of the parts `accumulated` and `accumulated-gpu`: throughputs of all approaches, one
panel for what varies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

__all__ = ["draw"]

#: Named in panels.
LABELS = {
    "ratio": "compression ratio",
    "rate": "checkpoints made at",
    "cache": "cache on the device",
    "frequency": "migration, lossless, source frequency",
    "bounded": "migration, 1e-5 of the range, source frequency",
}


def draw(found: Mapping[str, Sequence[tuple[str, Mapping[str, float]]]], file: Path) -> None:
    """Writes the plot.

    Args:
        found: by what varies: the values that it takes, each with the GB/s of each approach.
        file: PNG or SVG.
    """
    figure = Figure(figsize=(4.2 * min(2, len(found)), 3.2 * -(-len(found) // 2)))
    figure.set_layout_engine("constrained")
    for number, (name, cases) in enumerate(found.items()):
        axes = figure.add_subplot(-(-len(found) // 2), min(2, len(found)), number + 1)
        approaches = list(cases[0][1])
        width = 0.8 / len(approaches)
        for at, approach in enumerate(approaches):
            heights = [rates.get(approach, 0.0) for _, rates in cases]
            places = [
                place + (at - len(approaches) / 2 + 0.5) * width for place in range(len(cases))
            ]
            axes.bar(places, heights, width, label=approach)
        axes.set_xticks(range(len(cases)), [value for value, _ in cases], fontsize=8)
        axes.set(xlabel=LABELS.get(name, name), ylabel="GB/s")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    figure.savefig(file, dpi=110)
