"""`unspool-timeline`: draws a trace, one lane for the application and one for each link."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from unspool_studies.timeline.trace import Bar, TraceError, read_bars

__all__ = ["Bar", "TraceError", "add_options", "read_bars", "run_command"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds everything that `unspool-timeline` understands."""
    parser.description = "Draws a trace of `unspool-rtm --trace` or of `Spool.write_trace`."
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
    from unspool_studies.timeline.drawing import draw

    bars = read_bars(options.trace)
    window = _window(options, max(bar.end for bar in bars))
    if not options.out.parent.is_dir():
        folder = options.out.parent
        raise TraceError(f"{options.out} cannot be written: {folder} is not a directory")
    draw(bars, window, options.out, options.trace.name)
    return 0


def _window(options: argparse.Namespace, last: float) -> tuple[float, float]:
    begin = 0.0 if options.begin is None else options.begin
    end = last if options.end is None else options.end
    if begin >= last or end <= 0:
        raise TraceError(f"{options.trace} goes from 0 to {last:.3f} s: nothing to see there")
    if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
        raise TraceError(f"--from {begin:g} must lie before --to {end:g}")
    return max(begin, 0.0), min(end, last)
