"""What the application did when: compute, save and restore."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Clock", "Span"]


@dataclass(slots=True)
class Span:
    """One stretch of the application's time.

    Attributes:
        name: `"compute"`, `"save"` or `"restore"`.
        detail: what was computed, or which version was moved.
        begin: nanoseconds of the system's monotonic clock.
        end: likewise.
        stall: nanoseconds at its beginning in which it waited.
    """

    name: str
    detail: str
    begin: int
    end: int = 0
    stall: int = 0


class Clock:
    """Adds up the time of each kind, and keeps the spans where a trace is wanted."""

    def __init__(self, keep_spans: bool = False) -> None:
        self.keeps_spans = keep_spans
        self.spans: list[Span] = []
        self._nanoseconds = {"compute": 0, "save": 0, "restore": 0}

    def seconds(self, name: str) -> float:
        """The time spent in spans of this name so far."""
        return self._nanoseconds[name] / 1e9

    def times(self) -> dict[str, float]:
        """Seconds by name."""
        return {name: self.seconds(name) for name in self._nanoseconds}

    def put(self, name: str, spans: list[Span]) -> None:
        """Replaces the kept spans of one name: where work is enqueued, others know when it ran."""
        self.spans = [span for span in self.spans if span.name != name] + spans

    @contextmanager
    def span(self, name: str, detail: str) -> Iterator[Span]:
        """Measures what is done inside, also when it fails."""
        span = Span(name, detail, time.monotonic_ns())
        try:
            yield span
        finally:
            span.end = time.monotonic_ns()
            self._nanoseconds[name] += span.end - span.begin
            if self.keeps_spans:
                self.spans.append(span)
