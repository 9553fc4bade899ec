"""The plots of the parts `accumulated` and `accumulated-gpu`, throughputs of all approaches, one
panel for what varies; and of the part `rates`, the checkpoints of shots.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw", "draw_shots"]

#: Named in panels.
LABELS = {
    "ratio": "compression ratio",
    "rate": "checkpoints made at",
    "cache": "cache on the device",
    "frequency": "migration, lossless, source frequency",
    "migration": "migration, source frequency",
    "bounded": "migration, 1e-5 of the range, source frequency",
}


def draw(found: Mapping[str, Sequence[tuple[str, Mapping[str, float]]]], file: Path) -> None:
    """Writes the plot.

    Args:
        found: by what varies: the values that it takes, each with the GB/s of each approach.
        file: PNG or SVG.
    """
    columns, rows = min(2, len(found)), -(-len(found) // 2)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows))
    figure.set_layout_engine("constrained")
    rates_of = [rates for cases in found.values() for _, rates in cases]
    colours = {name: f"C{at}" for at, name in enumerate(_all_names(rates_of))}
    for number, (name, cases) in enumerate(found.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
        approaches = _all_names(rates for _, rates in cases)
        width = 0.8 / len(approaches)
        for at, approach in enumerate(approaches):
            heights = [rates.get(approach, 0.0) for _, rates in cases]
            places = [
                place + (at - len(approaches) / 2 + 0.5) * width for place in range(len(cases))
            ]
            axes.bar(places, heights, width, label=approach, color=colours[approach])
        axes.set_xticks(range(len(cases)), [value for value, _ in cases], fontsize=8)
        axes.set(xlabel=LABELS.get(name, name), ylabel="GB/s")
    named: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    shown = [(named[name], name) for name in colours]
    # So many stand side by side above one panel, and above two.
    beside = (2, 3)[columns - 1]
    figure.legend(*zip(*shown, strict=True), loc="outside upper center", ncols=beside, fontsize=8)
    figure.savefig(file, dpi=110)


def _all_names(all_rates: Iterable[Mapping[str, float]]) -> list[str]:
    """Of all approaches that have a figure somewhere, each once, in the order of the first."""
    return list(dict.fromkeys(name for rates in all_rates for name in rates))


def draw_shots(
    intervals: Sequence[Sequence[float]],
    ratios: Sequence[Mapping[str, Sequence[float]]],
    file: Path,
) -> None:
    """Writes the plot of each checkpoint's ratio and interval: medians, and the range of all shots.

    Args:
        intervals: of each shot, the seconds before each checkpoint.
        ratios: of each shot, how many times smaller each checkpoint becomes, by codec.
        file: PNG or SVG.
    """
    figure = Figure(figsize=(8.4, 3.2))
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2)
    for name in ratios[0]:
        _draw_range(left, [shot[name] for shot in ratios], name)
    left.set(xlabel="checkpoint", ylabel="times smaller", yscale="log")
    left.legend(fontsize=8)
    _draw_range(right, [[1e3 * one for one in shot] for shot in intervals], "")
    right.set(xlabel="checkpoint", ylabel="ms before it", yscale="log")
    figure.savefig(file, dpi=110)


def _draw_range(axes: Any, shots: Sequence[Sequence[float]], label: str) -> None:
    """A line through the medians, over the range from the least to the greatest."""
    by_checkpoint = list(zip(*shots, strict=True))
    numbers = range(len(by_checkpoint))
    (line,) = axes.plot(numbers, [statistics.median(one) for one in by_checkpoint], label=label)
    ends = [min(one) for one in by_checkpoint], [max(one) for one in by_checkpoint]
    axes.fill_between(numbers, *ends, color=line.get_color(), alpha=0.3, linewidth=0)
