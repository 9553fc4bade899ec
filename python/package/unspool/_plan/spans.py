"""What the trace of a spool says about its links: bytes, and the time in which they moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Span", "busy_seconds", "rate_of", "read_spans"]


@dataclass(frozen=True, slots=True)
class Span:
    """One transfer that was completed.

    Attributes:
        lane: source and target, such as `"host-disk"`.
        version: of the checkpoint.
        bytes: that moved.
        begin: in seconds.
        end: likewise.
    """

    lane: str
    version: int
    bytes: int
    begin: float
    end: float


def read_spans(path: Path) -> list[Span]:
    """The transfers in a trace that `Spool.write_trace` has just written."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [_span(event) for event in events if _is_transfer(event)]


def _is_transfer(event: dict[str, Any]) -> bool:
    if event["ph"] != "X" or "-" not in event["cat"]:
        return False
    return bool(event["args"]["outcome"] == "done" and event["args"]["bytes"] > 0)


def _span(event: dict[str, Any]) -> Span:
    begin = event["ts"] / 1e6
    facts = event["args"]
    return Span(event["cat"], facts["version"], facts["bytes"], begin, begin + event["dur"] / 1e6)


def busy_seconds(spans: Iterable[Span]) -> float:
    """The time in which at least one of them was under way."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def rate_of(spans: Iterable[Span], wanted: Callable[[Span], bool]) -> float | None:
    """Bytes per second of all workers of a lane together; None without such a transfer."""
    chosen = [span for span in spans if wanted(span)]
    seconds = busy_seconds(chosen)
    return sum(span.bytes for span in chosen) / seconds if seconds > 0 else None
