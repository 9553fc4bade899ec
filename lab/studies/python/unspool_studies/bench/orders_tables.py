"""The tables that part `orders` makes of its cells: rates by compute and device tier, and each
restore, as in Figures 8 and 7 of Maurya et al., HPDC 2023 (sections 5.4.5 and 5.4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unspool.stats import size as size_text
from unspool_studies.bench.experiment import Experiment
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.report import Table
from unspool_studies.bench.ways import TIERS, Outcome

__all__ = ["Found", "distances_of", "grid_of", "rates_of", "series_of"]

#: Rows of one way in the table of restores.
PARTS = 12

SERIES = (
    "sizes",
    "order",
    "step ms",
    "tier",
    "flushed",
    "way",
    "restores",
    "distance",
    "GB/s",
    *TIERS,
)

SERIES_NOTES = (
    "restores: their numbers, in the order in which they are made; the file of --json has each of "
    "them, where the table has the median, the least and the greatest",
    "distance: of the announced restores after each one, how many had their bytes in the device "
    "tier already, without a break; with all hints the program enqueues 8 steps ahead",
    "GB/s: the bytes of a restore over the time between two events around it, by the device's "
    "clock; without a plot there are no such events",
)


@dataclass(frozen=True, slots=True)
class Found:
    """One cell: what came out of the runs of one way.

    Attributes:
        kind: of sizes.
        order: of restores, by its name.
        experiment: what was done.
        way: its name.
        outcome: of the last run.
        save: GB/s of the forward passes over the time for which each was blocked.
        restore: of the backward passes, likewise.
    """

    kind: str
    order: str
    experiment: Experiment
    way: str
    outcome: Outcome
    save: Sample
    restore: Sample


def grid_of(found: Sequence[Found]) -> Table | None:
    """Rates by compute and device tier; None where neither varies."""
    steps = sorted({one.experiment.compute for one in found})
    devices = sorted({one.experiment.device for one in found})
    if len(steps) < 2 and len(devices) < 2:
        return None
    columns = [f"{what} at {1e3 * step:g} ms" for what in ("save", "restore") for step in steps]
    heads = ("sizes", "order", "flushed", "way", "tier")
    table = Table("orders-grid", "GB/s by compute and device tier", (*heads, *columns))
    rates: dict[tuple[str, ...], dict[float, Found]] = {}
    for one in found:
        tier = size_text(one.experiment.device)
        place = (one.kind, one.order, _flushed(one), one.way, tier)
        rates.setdefault(place, {})[one.experiment.compute] = one
    for where, cells in rates.items():
        known = [cells.get(step) for step in steps]
        saves = [None if one is None else one.save for one in known]
        restores = [None if one is None else one.restore for one in known]
        table.add(*where, *saves, *restores)
    return table


def series_of(found: Sequence[Found]) -> Table | None:
    """The restores in turn, some of them a row; None where they are not timed."""
    timed = [one for one in found if one.outcome.restores]
    if not timed:
        return None
    table = Table("orders-restores", "Each restore", SERIES, notes=list(SERIES_NOTES))
    for one in timed:
        rates, distances = rates_of(one), distances_of(one)
        tier = size_text(one.experiment.device)
        setting = (one.experiment.compute * 1e3, tier, _flushed(one))
        place = (one.kind, one.order, *setting, one.way)
        step = -(-len(rates) // PARTS)
        for begin in range(0, len(rates), step):
            end = min(begin + step, len(rates))
            known = [far for far in distances[begin:end] if far is not None]
            served = [seen.tier for seen in one.outcome.seen[begin:end]]
            table.add(
                *place,
                f"{begin + 1}-{end}",
                Sample.of(known) if known else None,
                Sample.of(rates[begin:end]),
                *(served.count(name) if served else None for name in TIERS),
            )
    return table


def rates_of(one: Found) -> list[float]:
    """GB/s of each restore, in the order in which they were made."""
    sizes = (one.experiment.sizes[version] for version in one.experiment.order)
    seconds = one.outcome.restores
    return [size / max(time, 1e-9) / 1e9 for size, time in zip(sizes, seconds, strict=True)]


def distances_of(one: Found) -> list[float | None]:
    """The prefetch distance of each restore; None of one that was not announced."""
    return [None if seen.distance is None else float(seen.distance) for seen in one.outcome.seen]


def _flushed(one: Found) -> str:
    """Whether the restores waited until everything was flushed."""
    return "yes" if one.experiment.wait else "no"
