"""The tables of the part `shapes`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unspool_studies.bench.report import Cell, Table
from unspool_studies.bench.shapes_cases import Case, size_class
from unspool_studies.bench.shapes_measure import WAYS, Figures, Pair

__all__ = ["GROUPS", "WORST", "add_draw", "draws", "groups", "modes", "refused", "worst"]

#: Rows of the tables of groups and of the worst cases.
GROUPS, WORST = 40, 10

#: The aims: of a case of at least so many bytes, this part of the best rate, and GB/s.
AIMED, PART, RATE = 32 << 20, 0.5, 150.0

DRAW_COLUMNS = (
    "draw", "case", "MiB", "ratio", "save GB/s", "of friendly", "whole save GB/s", "save call us",
    "restore GB/s", "of friendly back", "whole restore GB/s", "restore call us", "wrong values",
    "friendly", "friendly save GB/s", "friendly restore GB/s", "friendly wrong values",
)  # fmt: skip
GROUP_COLUMNS = (
    "codec", "dtype", "data", "size", "cases", "way", "best GB/s", "worst GB/s", "worst/best",
    "worst case",
)  # fmt: skip
WORST_COLUMNS = (
    "draw", "case", "MiB", "way", "GB/s", "friendly GB/s", "case/friendly", "whole GB/s",
    "friendly whole GB/s",
)  # fmt: skip
MODE_COLUMNS = (
    "codec", "cases", "worst save", "worst restore", "from 32 MiB", "save GB/s", "restore GB/s",
    "below half", "below half of group", "below 150 GB/s", "wrong",
)  # fmt: skip

NOTES = (
    "GB/s of the arrays by the device's time; whole: from the call until its work is done; "
    "without a GPU both are the call",
    "friendly: one dense array of the same bytes, dtype, data and codec, a row or a box of "
    "multiples of 64",
)


@dataclass(frozen=True, slots=True)
class _One:
    """One rate of one case."""

    pair: Pair
    way: str

    @property
    def rate(self) -> float:
        return self.pair.case.rate(self.way)

    @property
    def ratio(self) -> float:
        return self.pair.ratio(self.way)

    @property
    def key(self) -> tuple[str, ...]:
        """Of the group."""
        return *_key(self.pair.case.case), self.way


def _key(case: Case) -> tuple[str, ...]:
    return case.mode, case.dtype, case.kind, size_class(case.nbytes)


def _each(pairs: Iterable[Pair]) -> list[_One]:
    return [_One(pair, way) for pair in pairs for way in WAYS]


def _best(pairs: Iterable[Pair]) -> dict[tuple[str, ...], float]:
    """The best rate of each group, the friendly ones among them."""
    found: dict[tuple[str, ...], float] = {}
    for pair in pairs:
        for figures in (pair.case, pair.friend):
            for way in WAYS:
                key = (*_key(figures.case), way)
                found[key] = max(found.get(key, 0.0), figures.rate(way))
    return found


def draws() -> Table:
    """The table with every draw, empty."""
    return Table("shapes-draws", "Every case, beside the friendly one", DRAW_COLUMNS)


def add_draw(table: Table, pair: Pair) -> None:
    """Adds a row to `draws`."""
    case, friend = pair.case, pair.friend
    cells: list[Cell] = [pair.number, str(case.case), case.case.nbytes / 2**20]
    cells.append(case.case.nbytes / max(1, case.stored))
    for way in WAYS:
        cells += [case.rate(way), pair.ratio(way), case.whole_rate(way)]
        cells.append(case.readings[way].call.median * 1e6)
    cells += [case.wrong, str(friend.case), *map(friend.rate, WAYS), friend.wrong]
    table.add(*cells)


def groups(pairs: list[Pair]) -> Table:
    """The groups with the worst ratios."""
    best, found = _best(pairs), {}
    for one in _each(pairs):
        found.setdefault(one.key, []).append(one)
    table = Table("shapes-groups", "By codec, dtype, data and size", GROUP_COLUMNS)
    lowest = {key: min(ones, key=lambda one: one.rate) for key, ones in found.items()}
    order = sorted(lowest, key=lambda key: lowest[key].rate / best[key])
    for key in order[:GROUPS]:
        one, top = lowest[key], best[key]
        cells = [*key[:-1], len(found[key]), key[-1], top, one.rate, one.rate / top]
        table.add(*cells, str(one.pair.case.case))
    if len(order) > GROUPS:
        least = lowest[order[GROUPS]].rate / best[order[GROUPS]]
        table.note(f"{len(order) - GROUPS} further groups are at {least:.2f} or above")
    return table


def worst(pairs: list[Pair]) -> Table:
    """The cases that are the farthest below their friendly ones."""
    table = Table("shapes-worst", "The worst cases", WORST_COLUMNS, notes=list(NOTES))
    for one in sorted(_each(pairs), key=lambda one: one.ratio)[:WORST]:
        case, friend, way = one.pair.case, one.pair.friend, one.way
        cells: list[Cell] = [one.pair.number, str(case.case), case.case.nbytes / 2**20, way]
        cells += [one.rate, friend.rate(way), one.ratio, case.whole_rate(way)]
        table.add(*cells, friend.whole_rate(way))
    return table


def modes(pairs: list[Pair], gpu: bool) -> Table:
    """What was aimed at, by codec, and of all together."""
    title = "Rates of a case in parts of the friendly one's"
    table = Table("shapes", title, MODE_COLUMNS)
    best = _best(pairs)
    for mode in [*dict.fromkeys(pair.case.case.mode for pair in pairs), "all"]:
        of = [pair for pair in pairs if mode in (pair.case.case.mode, "all")]
        table.add(mode, *_summary(of, best, gpu))
    table.note("below: saves and restores of cases from 32 MiB on, by the device's time")
    return table


def _summary(pairs: list[Pair], best: dict[tuple[str, ...], float], gpu: bool) -> Iterator[Cell]:
    yield len(pairs)
    for way in WAYS:
        yield min((pair.ratio(way) for pair in pairs), default=None)
    large = [pair for pair in pairs if pair.case.case.nbytes >= AIMED]
    yield len(large)
    for way in WAYS:
        rates = [pair.case.rate(way) for pair in large]
        yield statistics.median(rates) if rates else None
    ones = _each(large)
    yield sum(one.ratio < PART for one in ones)
    yield sum(one.rate < PART * best[one.key] for one in ones)
    yield sum(one.rate < RATE for one in ones) if gpu else None
    yield sum(_is_wrong(figures) for pair in pairs for figures in (pair.case, pair.friend))


def _is_wrong(figures: Figures) -> bool:
    return bool(figures.wrong)


def refused(table: Table, why: Counter[str]) -> None:
    """Notes what could not be measured."""
    for text, count in why.most_common():
        table.note(f"{count} could not be measured: {text}")
