"""The picture of part `shot`, in the form of the paper's Figures 3 to 6: blocked time, by way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from unspool_studies.bench.bars import look_of, set_groups
from unspool_studies.bench.paper import Row
from unspool_studies.bench.prepare import DEVICE_STRATEGIES, STRATEGIES
from unspool_studies.bench.shot import Blocked
from unspool_studies.bench.shot_process import SPOOL
from unspool_studies.files import write_picture

__all__ = ["draw"]

#: All ways, in the order of their bars.
WAYS = [one.name for one in (*STRATEGIES, *DEVICE_STRATEGIES)] + [SPOOL]

#: The paper's two measures (section V-C).
PANELS: tuple[tuple[str, Callable[[Blocked], float]], ...] = (
    ("blocked in preparing and saves, s", lambda one: one.checkpointing),
    ("blocked in preparing, saves and restores, s", lambda one: one.total),
)


def draw(rows: Sequence[Row], file: Path) -> list[Path]:
    """Writes the picture as PNG and as SVG, under this name but for the suffix; both files.

    A group of bars for each setting, a bar for each way: the median, and the least and greatest
    reading as a line.
    """
    groups = list(dict.fromkeys(map(_group, rows)))
    in_order = sorted(rows, key=lambda row: WAYS.index(row.way))
    ways = list(dict.fromkeys(_way(row, rows) for row in in_order))
    width = max(8.0, 2.0 + 0.16 * len(groups) * (len(ways) + 2))
    figure = Figure(figsize=(width, 7.0), layout="constrained")
    for axes, (title, measure) in zip(figure.subplots(2, 1), PANELS, strict=True):
        for at, way in enumerate(ways):
            mine = [row for row in rows if _way(row, rows) == way]
            _bars(axes, mine, (groups, at, len(ways), way), measure)
        set_groups(axes, title, groups)
    figure.legend(*axes.get_legend_handles_labels(), fontsize=7, loc="outside right upper")
    return write_picture(figure, file)


def _bars(
    axes: Any,
    rows: Sequence[Row],
    place: tuple[list[str], int, int, str],
    measure: Callable[[Blocked], float],
) -> None:
    groups, at, ways, label = place
    samples = [row.sample(measure) for row in rows]
    width = 0.8 / ways
    axes.bar(
        [groups.index(_group(row)) + (at - (ways - 1) / 2) * width for row in rows],
        [one.median for one in samples],
        width,
        yerr=[
            [one.median - one.low for one in samples],
            [one.high - one.median for one in samples],
        ],
        error_kw={"linewidth": 0.6},
        label=label,
        **look_of(at),
    )


def _group(row: Row) -> str:
    """What the bars of a group have in common."""
    one = row.setting
    processes = "1 process" if one.processes == 1 else f"{one.processes} processes"
    kind = Path(one.kind).name
    return f"{one.interval * 1e3:.3g} ms\n{row.total / 2**30:.3g} GiB, {kind}\n{processes}"


def _way(row: Row, rows: Sequence[Row]) -> str:
    """The way, and what its memory was where that differs."""
    several = len({one.memory for one in rows}) > 1
    return f"{row.way} ({row.memory})" if several else row.way
