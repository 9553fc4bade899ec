"""Plans of accumulated compression in words and tables."""

from __future__ import annotations

from itertools import groupby

from unspool.accumulate.planning import Accumulation, Outcome
from unspool.stats import size, table, time

__all__ = ["report", "shortened"]

#: What the simple schedules are called in a table.
NAMES = {
    "raw": "no compression",
    "alone": "each alone",
    "full": "when the cache is full",
    "pays": "as soon as it pays",
    "batches": "batches of 8",
}

#: Runs of decisions that a text shows.
SHOWN = 40


def report(found: Accumulation) -> str:
    """A table of the schedules, and the best one in letters."""
    head = ("schedule", "time", "blocked", "of it codec", "overhead", "GB/s", "U", "C", "A", "X")
    rows = [head, _row("best", found.best)]
    rows += [_row(NAMES.get(name, name), one) for name, one in found.simple.items()]
    count, best = len(found.best.decisions), found.best
    about = f"{count} checkpoints, {size(best.raw_bytes)}; {found.codec.name}"
    about += f", cache {size(found.cache)}"
    return f"{about}\n\n{table(rows)}\n\n{_proof(found)}\n{shortened(best.decisions)}"


def _row(name: str, one: Outcome) -> tuple[str, ...]:
    return (
        name,
        time(one.seconds),
        time(one.blocked),
        time(one.codec),
        f"{one.overhead:.1%}",
        f"{one.throughput / 1e9:.1f}",
        *(f"{one.counts[letter]:,}" for letter in "UCAX"),
    )


def _proof(found: Accumulation) -> str:
    if found.is_optimal:
        return "the best schedule is proven to be optimal:"
    gap = found.best.seconds / found.at_least - 1 if found.at_least else 0.0
    return f"no schedule can be faster than the best one by more than {gap:.2%}:"


def shortened(decisions: str) -> str:
    """`UUUAAX` as `3U 2A X`."""
    runs = [(letter, len(list(same))) for letter, same in groupby(decisions)]
    words = [letter if count == 1 else f"{count}{letter}" for letter, count in runs]
    more = f" ... ({len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return " ".join(words[:SHOWN]) + more
