"""Figures 4.5 to 4.12 in the dissertation's form, and coding on slowed networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from unspool_studies.bench.report import Table
from unspool_studies.files import write_figures
from unspool_studies.messages.record import Recorded
from unspool_studies.messages.samples import difference_name, factors

__all__ = ["draw"]

#: The figure of the dissertation by program; the wave is in none.
SIZES = {
    "hpccg": "4.7: ",
    "minife": "4.8: ",
    "minimd": "4.9: ",
    "lammps": "4.10: ",
    "su3": "4.11: ",
    "wave": "",
}


def draw(
    recorded: Sequence[Recorded],
    scaled: dict[str, dict[int, list[float]]],
    networks: Table,
    folder: Path,
) -> list[Path]:
    """Writes all pictures, each as PNG and SVG; their files."""
    figures = {
        "messages-factors": _by_factor(recorded),
        "messages-sizes": _by_size(recorded),
        "messages-scales": _by_scale(scaled),
        "messages-networks": _by_network(networks),
    }
    return write_figures(figures, folder)


def _figure(width: float, height: float, rows: int, columns: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _bars(axes: Any, names: Sequence[str], heights: dict[str, Sequence[float]]) -> None:
    """Bars beside one another, a colour for each series."""
    at = np.arange(len(names))
    for place, (label, values) in enumerate(heights.items()):
        width = 0.8 / len(heights)
        axes.bar(at + (place - len(heights) / 2 + 0.5) * width, values, width, label=label)
    axes.set_xticks(at, names, fontsize=6, rotation=45)
    axes.tick_params(axis="y", labelsize=7)
    axes.set_ylabel("% of messages", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=6)


def _by_factor(recorded: Sequence[Recorded]) -> Figure:
    """Figures 4.5 and 4.6."""
    figure, axes = _figure(11, 6.4, 2, 2)
    bins = np.arange(0, 101, 10)
    names = ["< 0", *(f"{low}-{low + 10} %" for low in bins[:-1])]
    for row, (which, title) in enumerate(
        (("alone", "4.5: bzip2"), ("one", f"4.6: one level, {difference_name()}"))
    ):
        for column, data in enumerate(("own", "random")):
            heights = {}
            for one in (one for one in recorded if one.program.data == data):
                of = one.sizes.originals if which == "alone" else one.sizes.one_of
                found = np.array(factors(getattr(one.sizes, which), of))
                inside, _ = np.histogram(np.clip(found[found >= 0], 0, 99.99), bins)
                counts = np.concatenate(([np.sum(found < 0)], inside))
                heights[one.program.name] = 100 * counts / max(1, len(found))
            _bars(axes[row][column], names, heights)
            axes[row][column].set_title(f"{title}; {data} data", fontsize=9)
    return figure


def _by_size(recorded: Sequence[Recorded]) -> Figure:
    """Figures 4.7 to 4.11: sizes of messages and of differences, in powers of four."""
    names = [name for name in SIZES if any(one.program.name == name for one in recorded)]
    figure, axes = _figure(11, 2.4 * len(names), len(names), 2)
    edges = [0, *(4**power for power in range(3, 10)), float("inf")]
    words = [_size(edge) for edge in edges[1:-1]]
    labels = [f"< {words[0]}", *(f"< {word}" for word in words[1:]), f">= {words[-1]}"]
    for one in recorded:
        sizes = one.sizes
        heights = {}
        for label, values in (
            ("messages", sizes.originals), ("one level", sizes.one), ("two levels", sizes.two)
        ):  # fmt: skip
            counts, _ = np.histogram(values, edges)
            heights[label] = 100 * counts / max(1, len(values))
        place = axes[names.index(one.program.name)][int(one.program.data == "random")]
        _bars(place, labels, heights)
        place.set_title(f"{SIZES[one.program.name]}{one.program.title}", fontsize=9)
    return figure


def _size(count: float) -> str:
    return f"{count / 1024:g} KiB" if count >= 1024 else f"{count:g} B"


def _by_scale(scaled: dict[str, dict[int, list[float]]]) -> Figure:
    """Figure 4.12."""
    figure, axes = _figure(2.6 * len(scaled), 2.8, 1, len(scaled))
    for place, (name, of) in zip(axes[0], scaled.items(), strict=True):
        for back_end, label in enumerate(("xor + LZ4", "xdelta", "bsdiff", "bzip2")):
            changes = [changes[back_end] for changes in of.values()]
            place.plot(list(of), changes, "o-", label=label, markersize=3)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_title(f"4.12: {name}", fontsize=9)
        place.set_xlabel("ranks", fontsize=8)
        place.set_ylabel("longer, %", fontsize=8)
        place.tick_params(labelsize=7)
        place.grid(alpha=0.3)
    axes[0][0].legend(fontsize=6)
    return figure


def _by_network(networks: Table) -> Figure:
    """What coding changed against what the report expected, in percent of the plain run."""
    figure, axes = _figure(5, 4.4, 1, 1)
    place, columns = axes[0][0], list(networks.columns)
    index = [columns.index(name) for name in ("network", "plain s")]
    change = [columns.index(f"{which} change s") for which in ("expected", "measured")]
    rows = [row for row in networks.rows if row[index[1]] is not None]
    for network in dict.fromkeys(row[index[0]] for row in rows):
        some = [row for row in rows if row[index[0]] == network]
        expected, measured = (
            [100 * row[one] / row[index[1]] for row in some]  # type: ignore[operator]
            for one in change
        )
        place.plot(expected, measured, "o", label=str(network), markersize=5)
    place.axline((0, 0), slope=1, color="grey", linewidth=0.8)
    place.axhline(0, color="grey", linewidth=0.5)
    place.axvline(0, color="grey", linewidth=0.5)
    place.set_xscale("symlog", linthresh=10)
    place.set_yscale("symlog", linthresh=10)
    place.set_xlabel("expected change, % of the plain run", fontsize=8)
    place.set_ylabel("measured change, %", fontsize=8)
    place.legend(fontsize=7)
    place.grid(alpha=0.3)
    return figure
