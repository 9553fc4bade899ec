"""The figures of several spools as those of one: sums, and of leads and peaks what makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from math import sqrt
from statistics import median
from typing import Any, TypeVar

from unspool.stats import (
    AutoStats,
    CodecStats,
    CodecUse,
    DirectionStats,
    Lead,
    LinkStats,
    Stats,
    TierStats,
)

__all__ = ["merged"]

Figures = TypeVar("Figures", TierStats, DirectionStats, CodecStats, CodecUse)
Coded = TypeVar("Coded", CodecStats, CodecUse)


def merged(stats: Sequence[Stats]) -> Stats:
    """Adds up the statistics of spools that have the same tiers, one at least."""
    first, *others = stats
    if not others:
        return first
    leads = [one.prefetch_lead for one in stats if one.prefetch_lead is not None]
    stalls = [one.longest_stall for one in stats if one.longest_stall is not None]
    plain = {
        field.name: sum(getattr(one, field.name) for one in stats)
        for field in fields(Stats)
        if isinstance(getattr(first, field.name), int | float)
    }
    return Stats(
        **plain,
        longest_stall=max(stalls, key=lambda stall: stall.seconds, default=None),
        prefetch_lead=_lead(leads),
        notes=_notes(one.notes for one in stats),
        tiers=tuple(map(_tier, zip(*(one.tiers for one in stats), strict=True))),
        links=tuple(map(_link, zip(*(one.links for one in stats), strict=True))),
        codec=_codec([one.codec for one in stats]),
        auto=_auto([one.auto for one in stats if one.auto is not None]),
    )


def _auto(parts: Sequence[AutoStats]) -> AutoStats | None:
    """Sums of the decisions; what was measured is that of the first spool which has measured it."""
    if not parts:
        return None
    measured = next((one for one in parts if one.encode_seconds is not None), parts[0])
    counts = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("stays", "keeps_up", "not_worth_it", "chosen", "tried")
    }
    return replace(measured, **counts, latest=parts[-1].latest)


def _codec(parts: Sequence[CodecStats]) -> CodecStats:
    names = dict.fromkeys(use.name for part in parts for use in part.codecs)
    uses = [[use for part in parts for use in part.codecs if use.name == name] for name in names]
    return _coded(parts, codecs=tuple(_coded(use) for use in uses))


def _coded(parts: Sequence[Coded], **given: Any) -> Coded:
    """Sums; the largest error; and what follows from sums."""
    total = _summed(parts)
    squares = sum(part.values * part.rms_error**2 for part in parts)
    return replace(
        total,
        ratio=total.raw_bytes / total.stored_bytes if total.stored_bytes else 1.0,
        max_error=max(part.max_error for part in parts),
        rms_error=sqrt(squares / total.values) if total.values else 0.0,
        **given,
    )


def _lead(leads: Sequence[Lead]) -> Lead | None:
    if not leads:
        return None
    mean = sum(lead.mean for lead in leads) / len(leads)
    middle = round(median(lead.median for lead in leads))
    return Lead(min(lead.min for lead in leads), middle, max(lead.max for lead in leads), mean)


def _tier(tiers: Sequence[TierStats]) -> TierStats:
    return _summed(tiers, notes=_notes(tier.notes for tier in tiers))


def _link(links: Sequence[LinkStats]) -> LinkStats:
    failures = [link.last_failure for link in links if link.last_failure is not None]
    return LinkStats(
        fast=links[0].fast,
        slow=links[0].slow,
        flush=_summed([link.flush for link in links]),
        prefetch=_summed([link.prefetch for link in links]),
        flushes_skipped=sum(link.flushes_skipped for link in links),
        last_failure=failures[-1] if failures else None,
    )


def _summed(parts: Sequence[Figures], **given: Any) -> Figures:
    """The first of them with every number added up; what is None in one is None in all."""
    first = parts[0]
    values = {field.name: getattr(first, field.name) for field in fields(first)}
    for name, value in values.items():
        if isinstance(value, int | float):
            values[name] = sum(getattr(part, name) for part in parts)
    return type(first)(**{**values, **given})


def _notes(notes: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(note for some in notes for note in some))
