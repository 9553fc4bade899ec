"""Figures 3.2 to 3.9 in the dissertation's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from unspool_studies.files import write_figures
from unspool_studies.paging.measure import STORES
from unspool_studies.paging.study import Run, Sweep
from unspool_studies.paging.thesis import DRAMS, FACTORS, SPEEDS, STANDS_FOR, SWEEP_DRAM

__all__ = ["draw"]

COLORS = {"compressed": "tab:blue", "disk": "tab:orange"}

#: Of the bars of one colour, that with more memory is paler.
SHADES = dict(zip(DRAMS, (0.4, 0.7, 1.0), strict=True))


def draw(runs: Sequence[Run], sweeps: Sequence[Sweep], folder: Path) -> list[Path]:
    """Writes both pictures, each as PNG and SVG; their files."""
    figures = {"paging-latencies": _latencies(runs), "paging-times": _times(runs, sweeps)}
    return write_figures(figures, folder)


def _latencies(runs: Sequence[Run]) -> Figure:
    """Figures 3.2 to 3.4."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(len(STANDS_FOR), 2, squeeze=False)
    for row, program in enumerate(STANDS_FOR):
        for column, kind in enumerate(("read", "write")):

            def height(run: Run, store: str, kind: str = kind) -> float:
                latencies = run.paged[store].latencies, run.plain.latencies
                paged, plain = (getattr(each, kind) for each in latencies)
                return float(paged / plain)

            axes = panels[row][column]
            _by_size(axes, [run for run in runs if run.place.program == program], height)
            axes.set_yscale("log")
            axes.set_title(f"3.{row + 2}: average {kind} latency, {_name(program)}", fontsize=9)
    panels[0][0].legend(fontsize=6)
    return figure


def _times(runs: Sequence[Run], sweeps: Sequence[Sweep]) -> Figure:
    """Figures 3.5 to 3.7 above, 3.8 and 3.9 below."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    above, below = figure.subplots(2, 3)
    for number, (axes, program) in enumerate(zip(above, STANDS_FOR, strict=True)):
        _by_size(axes, [run for run in runs if run.place.program == program], Run.slowdown)
        axes.set_title(f"3.{number + 5}: time, {_name(program)}", fontsize=9)
    handles, labels = above[0].get_legend_handles_labels()
    below[2].legend(handles, labels, fontsize=8, loc="center")
    below[2].set_axis_off()
    factors = {f"{100 * alpha:.0f} %": [one.slowdown(alpha) for one in sweeps] for alpha in FACTORS}
    _sweep(below[0], sweeps, factors, "3.8: time by what is saved, computed")
    speeds = {
        f"{speed:g} times as fast": [one.slowdown(one.speeds.alpha, speed) for one in sweeps]
        for speed in SPEEDS
    }
    _sweep(below[1], sweeps, speeds, "3.9: time by the codec's speed, computed")
    return figure


def _name(program: str) -> str:
    return f"{program} ({STANDS_FOR[program]})"


def _by_size(axes: Any, runs: Sequence[Run], height: Callable[[Run, str], float]) -> None:
    """A group of bars for each size of the problem, a bar for each store and memory."""
    sizes = list(dict.fromkeys(run.place.size for run in runs))
    kinds = [(store, dram) for store in STORES for dram in DRAMS]
    width = 0.8 / len(kinds)
    for place, (store, dram) in enumerate(kinds):
        heights = [height(run, store) for run in runs if run.place.dram == dram]
        at = np.arange(len(heights)) + (place - len(kinds) / 2 + 0.5) * width
        look = {"color": COLORS[store], "alpha": SHADES[dram], "label": f"{store}, {dram} KiB"}
        axes.bar(at, heights, width, **look)
    axes.set_xticks(range(len(sizes)), sizes, fontsize=7)
    _dress(axes)


def _sweep(axes: Any, sweeps: Sequence[Sweep], heights: dict[str, list[float]], title: str) -> None:
    """A group of bars for each program."""
    width = 0.8 / len(heights)
    for place, (label, values) in enumerate(heights.items()):
        at = np.arange(len(values)) + (place - len(heights) / 2 + 0.5) * width
        axes.bar(at, values, width, label=label)
    names = [one.run.place.program for one in sweeps]
    axes.set_xticks(range(len(names)), names, fontsize=7)
    axes.set_title(f"{title}, {SWEEP_DRAM} KiB", fontsize=9)
    axes.legend(fontsize=6, loc="lower right")
    _dress(axes)


def _dress(axes: Any) -> None:
    axes.set_ylabel("against no paging", fontsize=8)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(axis="y", alpha=0.3)
