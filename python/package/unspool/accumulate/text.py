"""Plans of accumulated compression in words and tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from unspool.accumulate.planning import DECISIONS, Accumulation, Outcome
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
    """A table of the schedules, and the decisions of the best one."""
    head = ("schedule", "time", "blocked", "of it codec", "overhead", "GB/s", *DECISIONS)
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
        *(f"{one.counts[decision]:,}" for decision in DECISIONS),
    )


def _proof(found: Accumulation) -> str:
    if found.is_optimal:
        return "the best schedule is proven to be optimal:"
    gap = found.best.seconds / found.at_least - 1 if found.at_least else 0.0
    return f"no schedule can be faster than the best one by more than {gap:.2%}:"


def shortened(decisions: Sequence[str]) -> str:
    """Equal decisions in a row with their number: `3 raw, 2 hold, together`."""
    runs = [(decision, len(list(same))) for decision, same in groupby(decisions)]
    words = [decision if count == 1 else f"{count} {decision}" for decision, count in runs]
    more = f" ... ({len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more
