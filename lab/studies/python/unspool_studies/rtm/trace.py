"""The trace of a migration: the spool's lanes, and what the application computed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from unspool.errors import Error
from unspool_studies.rtm.clock import Span
from unspool_studies.rtm.history import SpoolHistory

__all__ = ["write_trace"]

APPLICATION = "application"
Event = dict[str, Any]


def write_trace(history: SpoolHistory, path: Path) -> None:
    """Writes the spool's trace to `path`, with the application's computing and stalls added.

    The spool counts microseconds from its own beginning; saves and restores are in both records,
    and their beginnings tell how far apart the clocks are.
    """
    history.spool.write_trace(path)
    trace = json.loads(path.read_text())
    events: list[Event] = trace["traceEvents"]
    calls = [event for event in events if event.get("cat") == APPLICATION]
    if not calls:
        raise Error("the trace has no call of the application: was anything saved?")
    shift = _shift(history.clock.spans, calls)
    row = {"pid": calls[0]["pid"], "tid": calls[0]["tid"], "ph": "X", "cat": APPLICATION}
    for span in history.clock.spans:
        begin = span.begin / 1e3 - shift
        if span.name == "compute":
            events.append(_event(row, "compute", begin, span.end - span.begin, span.detail))
        elif span.stall:
            events.append(_event(row, "stall", begin, span.stall, f"{span.name} {span.detail}"))
    path.write_text(json.dumps(trace))


def _shift(spans: list[Span], calls: list[Event]) -> float:
    """Microseconds that the system's clock is ahead of the spool's."""
    began: dict[tuple[str, Any], float] = {
        (call["name"], call["args"].get("version")): call["ts"] for call in calls
    }
    moves = [span for span in spans if span.name != "compute"]
    gaps = [
        span.begin / 1e3 - began[key]
        for span in moves
        if (key := (span.name, int(span.detail))) in began
    ]
    return float(median(gaps))


def _event(row: Event, name: str, begin: float, nanoseconds: int, detail: str) -> Event:
    times = {"ts": round(begin, 3), "dur": round(nanoseconds / 1e3, 3)}
    return {**row, "name": name, **times, "args": {"of": detail}}
