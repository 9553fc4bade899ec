"""The picture of the cells of part `orders`, as in Figures 5 and 6 of Maurya et al., HPDC 2023
(section 5.4.1): the throughput of saves and of restores, by way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from unspool_studies.bench.bars import look_of, set_groups
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.orders_tables import Found
from unspool_studies.files import write_picture

__all__ = ["draw"]

PANELS: tuple[tuple[str, Callable[[Found], Sample]], ...] = (
    ("saves, GB/s over the time blocked", lambda one: one.save),
    ("restores, GB/s over the time blocked", lambda one: one.restore),
)


def draw(found: Sequence[Found], file: Path) -> list[Path]:
    """Writes the picture as PNG and as SVG, under this name but for the suffix; both files. A group
    of bars for each setting, a bar for each way: the median of its runs, with a line from the least
    to the greatest. Without cells there is no picture.

    Raises:
        OSError: it cannot be written.
    """
    groups, ways = (
        list(dict.fromkeys(map(_group, found))),
        list(dict.fromkeys(one.way for one in found)),
    )
    if not groups:
        return []
    each = max(1.2, 0.13 * (len(ways) + 2))
    figure = Figure(figsize=(3.0 + len(groups) * each, 7.0), layout="constrained")
    for axes, (title, rate) in zip(figure.subplots(2, 1), PANELS, strict=True):
        for at, way in enumerate(ways):
            cells = {_group(one): rate(one) for one in found if one.way == way}
            heights = [cell.median for cell in cells.values()]
            spread = (
                [cell.median - cell.low for cell in cells.values()],
                [cell.high - cell.median for cell in cells.values()],
            )
            axes.bar(
                [groups.index(group) + (at + 0.5) / (len(ways) + 1) - 0.5 for group in cells],
                heights,
                0.8 / len(ways),
                yerr=spread,
                error_kw={"linewidth": 0.6},
                label=way,
                **look_of(at),
            )
        set_groups(axes, title, groups)
    figure.legend(*axes.get_legend_handles_labels(), fontsize=7, loc="outside right upper")
    return write_picture(figure, file)


def _group(one: Found) -> str:
    """What the bars of a group have in common."""
    flushed = "\nall flushed before" if one.experiment.wait else ""
    return f"{one.kind}, {one.order}\n{1e3 * one.experiment.compute:g} ms a step{flushed}"
