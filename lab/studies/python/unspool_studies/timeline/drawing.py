"""Drawing bars: each on its own where there is room, and shares of time where there is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from unspool_studies.timeline.trace import APPLICATION, TIERS, Bar

__all__ = ["draw", "shares"]

Doubles = NDArray[np.float64]
Row = tuple[str, int]

#: What each kind of work looks like, in the order of the legend; stalls lie on top.
COLOURS = {
    "compute": "#c9ced6",
    "save": "#2f6fbb",
    "restore": "#2a9d5c",
    "flush": "#e59a2f",
    "prefetch": "#7d5bbe",
    "stall": "#d62839",
}
OTHER = "#6b7280"
#: Width of the picture in inches, dots per inch, inches a row, and the height of a bar in rows.
WIDTH, DPI, ROW, TALL = 15.0, 130, 0.36, 0.76
#: Bars of a row that are drawn one by one; with more, the picture shows shares of time.
MOST_BARS = 260
#: Columns of a picture of shares.
COLUMNS = 500


def draw(bars: Sequence[Bar], window: tuple[float, float], path: Path, title: str) -> None:
    """Writes the bars within `window` (seconds) as a PNG."""
    seen = [bar for bar in bars if bar.end > window[0] and bar.begin < window[1]]
    heights = _heights(bars)
    factor, unit = (1e3, "ms") if window[1] - window[0] < 2.0 else (1.0, "s")
    figure = Figure(figsize=(WIDTH, 1.5 + ROW * -min(heights.values())), dpi=DPI)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    names = _names(seen)
    summed = False
    for row, height in heights.items():
        own = [bar for bar in seen if (bar.lane, bar.row) == row]
        if len(own) <= MOST_BARS:
            _draw_bars(axes, own, height, names, factor)
        else:
            summed = True
            _draw_shares(axes, own, height, names, window, factor)
    _frame(axes, heights, (window[0] * factor, window[1] * factor))
    note = "; heights are shares of the time" if summed else ""
    axes.set_xlabel(f"time since the first span ({unit}){note}")
    handles = [Patch(color=COLOURS.get(name, OTHER), label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), frameon=False)
    axes.set_title(f"{title}: application {_summary(seen, window)}", fontsize=10.5, loc="left")
    figure.savefig(path, format="png")


def _heights(bars: Iterable[Bar]) -> dict[Row, float]:
    """Each row with its height in the picture: the application on top, links below it."""

    def place(row: Row) -> tuple[int, list[int], int]:
        lane, worker = row
        if lane == APPLICATION:
            return 0, [], worker
        tiers = [TIERS.index(tier) for tier in lane.split("-")]
        return 1, [min(tiers), *tiers], worker

    heights, height, before = {}, 0.0, ""
    for row in sorted({(bar.lane, bar.row) for bar in bars}, key=place):
        height -= 1.0 if row[0] == before else 1.4
        heights[row], before = height, row[0]
    return heights


def _names(bars: Iterable[Bar]) -> list[str]:
    """What was done, stalls last so that they lie on top."""
    found = {bar.name for bar in bars}
    known = [name for name in COLOURS if name in found]
    return sorted(found - set(COLOURS)) + known


def _draw_bars(
    axes: Axes, bars: Sequence[Bar], height: float, names: Sequence[str], factor: float
) -> None:
    for name in names:
        stretches = [
            (bar.begin * factor, (bar.end - bar.begin) * factor) for bar in bars if bar.name == name
        ]
        colour = COLOURS.get(name, OTHER)
        axes.broken_barh(stretches, (height - TALL / 2, TALL), color=colour, linewidth=0.5)


def _draw_shares(
    axes: Axes,
    bars: Sequence[Bar],
    height: float,
    names: Sequence[str],
    window: tuple[float, float],
    factor: float,
) -> None:
    """Columns in which each kind of work is as tall as its share of the time.

    Stalls are parts of saves and restores: they are drawn over them, from the bottom, and marked
    above the row, so that the shortest one is seen.
    """
    edges = np.linspace(*window, COLUMNS + 1)
    ground = np.full(COLUMNS, height - TALL / 2)
    bottom = ground
    for name in names:
        own = [bar for bar in bars if bar.name == name]
        if not own:
            continue
        part, colour = TALL * shares(own, edges), COLOURS.get(name, OTHER)
        if name == "stall":
            bottom = ground
            begins = (part > 0) & (np.concatenate([[0.0], part[:-1]]) == 0)
            above = np.full(begins.sum(), height + TALL / 2 + 0.12)
            axes.plot(edges[:-1][begins] * factor, above, "v", color=colour, markersize=5)
        axes.stairs(bottom + part, edges * factor, baseline=bottom, fill=True, color=colour)
        bottom = bottom + part


def shares(bars: Sequence[Bar], edges: Doubles) -> Doubles:
    """The part of each stretch between two `edges` that the bars cover; they must not overlap."""
    if not bars:
        return np.zeros(len(edges) - 1)
    ordered = sorted(bars, key=lambda bar: bar.begin)
    knots = np.array([(bar.begin, bar.end) for bar in ordered])
    busy = np.cumsum(knots[:, 1] - knots[:, 0])
    until = np.stack([np.concatenate([[0.0], busy[:-1]]), busy], axis=1)
    covered = np.diff(np.interp(edges, knots.ravel(), until.ravel()))
    return np.asarray(covered / np.diff(edges))


def _frame(axes: Axes, heights: dict[Row, float], window: tuple[float, float]) -> None:
    lanes: dict[str, list[float]] = {}
    for (lane, _), height in heights.items():
        lanes.setdefault(lane.replace("-", " \N{RIGHTWARDS ARROW} "), []).append(height)
    axes.set_yticks([sum(rows) / len(rows) for rows in lanes.values()], list(lanes))
    axes.set_ylim(min(heights.values()) - 0.6, max(heights.values()) + 0.75)
    for rows in list(lanes.values())[1:]:
        axes.axhline(max(rows) + 0.7, color="#d1d5db", linewidth=0.8)
    axes.set_xlim(*window)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e5e7eb")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _summary(bars: Sequence[Bar], window: tuple[float, float]) -> str:
    """How much of the window the application spent on what."""
    own = [bar for bar in bars if bar.lane == APPLICATION]
    edges = np.array(window)
    parts = {name: shares([bar for bar in own if bar.name == name], edges) for name in _names(own)}
    return ", ".join(f"{name} {100.0 * part[0]:.1f} %" for name, part in parts.items()) or "idle"
