"""`unspool timeline`: draws a trace, one lane for the application and one for each link."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.errors import Error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Bar", "TraceError", "add_options", "draw", "read_bars", "run_command"]

APPLICATION = "application"
#: What each kind of work looks like, in the order of the legend.
COLOURS = {
    "compute": "#c9ced6",
    "save": "#2f6fbb",
    "restore": "#2a9d5c",
    "flush": "#e59a2f",
    "prefetch": "#7d5bbe",
    "stall": "#d62839",
}
OTHER = "#6b7280"
#: Width of the picture in inches, dots per inch, and inches a row.
WIDTH, DPI, ROW = 15.0, 130, 0.34


class TraceError(Error, ValueError):
    """A file that is no trace of a spool, or a stretch of time that it does not cover."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One span of a trace.

    Attributes:
        lane: `"application"`, or a link such as `"host-disk"`.
        row: the worker in the lane.
        name: what was done.
        begin: seconds from the first span of the trace.
        end: likewise.
    """

    lane: str
    row: int
    name: str
    begin: float
    end: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool timeline` understands."""
    parser.description = "Draws a trace of `unspool rtm --trace` or of `Spool.write_trace`."
    parser.add_argument("trace", type=Path, metavar="FILE", help="in the Chrome trace format")
    parser.add_argument("-o", "--out", type=Path, default=Path("timeline.png"), metavar="PNG")
    parser.add_argument(
        "--from", dest="begin", type=float, metavar="SECONDS", help="since the first span"
    )
    parser.add_argument("--to", dest="end", type=float, metavar="SECONDS")


def run_command(options: argparse.Namespace) -> int:
    """Draws the picture; returns the exit code.

    Raises:
        TraceError: the file cannot be drawn.
    """
    bars = read_bars(options.trace)
    last = max(bar.end for bar in bars)
    begin = 0.0 if options.begin is None else options.begin
    end = last if options.end is None else options.end
    if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
        raise TraceError(f"--from {begin:g} must lie before --to {end:g}")
    if begin >= last or end <= 0:
        raise TraceError(f"{options.trace} goes from 0 to {last:.3f} s: nothing to see there")
    if not options.out.parent.is_dir():
        raise TraceError(f"{options.out} cannot be written: {options.out.parent} is no directory")
    draw(bars, (max(begin, 0.0), min(end, last)), options.out, options.trace.name)
    return 0


def read_bars(path: Path) -> list[Bar]:
    """The spans of a Chrome trace, from the first one on.

    Raises:
        TraceError: the file is missing, cut off, or of another origin.
    """
    try:
        trace = json.loads(path.read_text())
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TraceError(f"{path} is no trace, or was cut off: {error}") from error
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise TraceError(f"{path} is no Chrome trace: it has no list of events")
    try:
        spans = [event for event in events if event.get("ph") == "X" and event.get("cat")]
        return _bars(spans, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path} holds an event that is none: {error!r}") from error


def _bars(spans: list[dict[str, Any]], path: Path) -> list[Bar]:
    if not any(_known(str(span["cat"])) for span in spans):
        raise TraceError(
            f"{path} has no lane of a spool (application, or a link such as host-disk): "
            "was it written by `unspool rtm --trace` or `Spool.write_trace`?"
        )
    spans = [span for span in spans if _known(str(span["cat"]))]
    origin = min(float(span["ts"]) for span in spans)
    return [_bar(span, origin) for span in spans]


def _known(lane: str) -> bool:
    tiers = {"device", "host", "disk", "remote"}
    return lane == APPLICATION or (lane.count("-") == 1 and set(lane.split("-")) <= tiers)


def _bar(span: dict[str, Any], origin: float) -> Bar:
    begin = (float(span["ts"]) - origin) / 1e6
    end = begin + float(span["dur"]) / 1e6
    if not (math.isfinite(begin) and math.isfinite(end) and end >= begin):
        raise ValueError(f"a span from {begin} to {end}")
    return Bar(str(span["cat"]), int(span["tid"]), str(span["name"]), begin, end)


def draw(bars: Sequence[Bar], window: tuple[float, float], path: Path, title: str) -> None:
    """Writes the bars within `window` (seconds) as a PNG."""
    from matplotlib.figure import Figure

    seen = [bar for bar in bars if bar.end >= window[0] and bar.begin <= window[1]]
    rows = _rows(bars)
    factor, unit = (1e3, "ms") if window[1] - window[0] < 2.0 else (1.0, "s")
    figure = Figure(figsize=(WIDTH, 1.7 + ROW * len(rows)), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    pixel = (window[1] - window[0]) / (WIDTH * DPI)
    for (lane, row), height in rows.items():
        for name in _names(seen):
            own = [bar for bar in seen if (bar.lane, bar.row, bar.name) == (lane, row, name)]
            _draw_row(axes, own, height, name, factor, pixel)
    _frame(axes, rows, (window[0] * factor, window[1] * factor), unit)
    _legend(axes, _names(seen))
    axes.set_title(f"{title}: {_shares(seen, window)}", fontsize=11, loc="left")
    figure.savefig(path, format="png")


def _rows(bars: Iterable[Bar]) -> dict[tuple[str, int], float]:
    """Each row with its height in the picture: the application on top, links below it."""
    order = {"device": 0, "host": 1, "disk": 2, "remote": 3}
    found = {(bar.lane, bar.row) for bar in bars}

    def place(row: tuple[str, int]) -> tuple[int, list[int], int]:
        lane = row[0]
        if lane == APPLICATION:
            return 0, [], row[1]
        return 1, [order[tier] for tier in lane.split("-")], row[1]

    heights, height, before = {}, 0.0, ""
    for row in sorted(found, key=place):
        height -= 1.0 if row[0] == before else 1.4
        heights[row], before = height, row[0]
    return heights


def _names(bars: Iterable[Bar]) -> list[str]:
    """What was done, stalls last so that they lie on top."""
    found = {bar.name for bar in bars}
    return (
        [name for name in COLOURS if name in found and name != "stall"]
        + sorted(found - set(COLOURS))
        + [name for name in ("stall",) if name in found]
    )


def _draw_row(
    axes: Axes, bars: Sequence[Bar], height: float, name: str, factor: float, pixel: float
) -> None:
    stretches = [
        (begin * factor, max(end - begin, pixel) * factor) for begin, end in _joined(bars, pixel)
    ]
    tall = 0.9 if name == "stall" else 0.72
    colour = COLOURS.get(name, OTHER)
    axes.broken_barh(
        stretches,
        (height - tall / 2, tall),
        facecolor=colour,
        edgecolor="white" if _apart(stretches, pixel * factor) else "none",
        linewidth=0.4,
        zorder=3 if name == "stall" else 2,
    )


def _apart(stretches: Sequence[tuple[float, float]], pixel: float) -> bool:
    """Whether the bars are wide enough for a border between them."""
    return bool(stretches) and min(length for _, length in stretches) > 6 * pixel


def _joined(bars: Sequence[Bar], pixel: float) -> list[tuple[float, float]]:
    """Bars that no eye can tell apart, as one: a long trace has a hundred thousand."""
    joined: list[tuple[float, float]] = []
    for bar in sorted(bars, key=lambda bar: bar.begin):
        if joined and bar.begin - joined[-1][1] < pixel / 2 and bar.end - bar.begin < 4 * pixel:
            joined[-1] = (joined[-1][0], max(joined[-1][1], bar.end))
        else:
            joined.append((bar.begin, bar.end))
    return joined


def _frame(
    axes: Axes, rows: dict[tuple[str, int], float], window: tuple[float, float], unit: str
) -> None:
    lanes: dict[str, list[float]] = {}
    for (lane, _), height in rows.items():
        lanes.setdefault(lane, []).append(height)
    axes.set_yticks([sum(heights) / len(heights) for heights in lanes.values()], list(lanes))
    axes.set_ylim(min(rows.values()) - 0.7, max(rows.values()) + 0.7)
    for heights in list(lanes.values())[1:]:
        axes.axhline(max(heights) + 0.7, color="#d1d5db", linewidth=0.8)
    axes.set_xlim(*window)
    axes.set_xlabel(f"time since the first span ({unit})")
    axes.grid(axis="x", color="#e5e7eb", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend(axes: Axes, names: Iterable[str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=COLOURS.get(name, OTHER), label=name) for name in names]
    axes.legend(
        handles=handles, loc="upper right", bbox_to_anchor=(1.0, 1.16), ncols=8, frameon=False
    )


def _shares(bars: Iterable[Bar], window: tuple[float, float]) -> str:
    """How much of the window the application spent on what."""
    spent: dict[str, float] = {}
    for bar in bars:
        if bar.lane == APPLICATION:
            inside = min(bar.end, window[1]) - max(bar.begin, window[0])
            spent[bar.name] = spent.get(bar.name, 0.0) + max(0.0, inside)
    length = window[1] - window[0]
    return ", ".join(f"{name} {100.0 * part / length:.1f} %" for name, part in spent.items())
