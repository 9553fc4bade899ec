"""The plot of part `orders`: prefetch distance and rate of each restore, as in Figure 7 of Maurya
et al., HPDC 2023 (section 5.4.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from unspool_studies.bench.orders_tables import Found, distances_of, rates_of
from unspool_studies.files import whole

__all__ = ["draw"]


def draw(found: Sequence[Found], file: Path) -> None:
    """Writes the plot: a column for each experiment, the distances above the rates.

    Args:
        found: cells whose restores are timed; others are left out, and nothing is written where
            there are none.
        file: PNG or SVG.

    Raises:
        OSError: it cannot be written.
    """
    panels: dict[str, list[Found]] = {}
    for one in found:
        if one.outcome.restores:
            panels.setdefault(_title(one), []).append(one)
    if not panels:
        return
    figure = Figure(figsize=(1.5 + 4.2 * len(panels), 6.0), layout="constrained")
    rows = figure.subplots(2, len(panels), squeeze=False, sharex="col")
    ways = list(dict.fromkeys(one.way for one in found))
    for (title, cells), far, fast in zip(panels.items(), *rows, strict=True):
        for one in cells:
            line = {"color": f"C{ways.index(one.way)}", "linewidth": 0.9, "label": one.way}
            numbers = range(1, len(one.outcome.restores) + 1)
            fast.plot(numbers, rates_of(one), **line)
            distances = [math.nan if to is None else to for to in distances_of(one)]
            if any(to == to for to in distances):
                far.plot(numbers, distances, **line)
        far.set_title(title, fontsize=9)
        far.set_ylabel("next ones on the device", fontsize=8)
        fast.set(yscale="log", xlabel="restore", ylabel="GB/s")
        for axes in (far, fast):
            axes.grid(alpha=0.3)
        fast.legend(fontsize=6)
    with whole(file) as part:
        figure.savefig(part, dpi=110, format=file.suffix.removeprefix(".") or "png")


def _title(one: Found) -> str:
    flushed = ", all flushed before" if one.experiment.wait else ""
    return f"{one.kind}, {one.order}, {1e3 * one.experiment.compute:g} ms a step{flushed}"
