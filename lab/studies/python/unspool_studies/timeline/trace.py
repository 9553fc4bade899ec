"""Reading traces: the spans of an application and of the links of its spool."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool.errors import Error

__all__ = ["APPLICATION", "TIERS", "Bar", "TraceError", "read_bars"]

APPLICATION = "application"
TIERS = ("device", "host", "disk", "remote")


class TraceError(Error, ValueError):
    """A file that is not a trace of a spool, or a stretch of time that it does not cover."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One span of a trace.

    Attributes:
        lane: `"application"`, or a link with its direction such as `"host-disk"`.
        row: the worker in the lane.
        name: what was done.
        begin: seconds from the first span of the trace.
        end: likewise.
    """

    lane: str
    row: int
    name: str
    begin: float
    end: float


def read_bars(path: Path) -> list[Bar]:
    """The spans of a Chrome trace, from the first one on; lanes of others are left out.

    Raises:
        TraceError: the file is missing, cut off, or of another origin.
    """
    try:
        trace = json.loads(path.read_text())
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise TraceError(f"{path} is not a trace, or was cut off: {error}") from error
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise TraceError(f"{path} is not a Chrome trace: it has no list of events")
    try:
        spans = [event for event in events if event.get("ph") == "X" and _known(event)]
        return _bars(spans, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{path} holds an event that is none: {error!r}") from error


def _bars(spans: list[dict[str, Any]], path: Path) -> list[Bar]:
    if not spans:
        raise TraceError(
            f"{path} has no lane of a spool (application, or a link such as host-disk): "
            "was it written by `unspool-rtm --trace` or `Spool.write_trace`?"
        )
    origin = min(float(span["ts"]) for span in spans)
    return [_bar(span, origin) for span in spans]


def _known(event: dict[str, Any]) -> bool:
    lane = str(event.get("cat", ""))
    fast, _, slow = lane.partition("-")
    return lane == APPLICATION or (fast in TIERS and slow in TIERS)


def _bar(span: dict[str, Any], origin: float) -> Bar:
    begin = (float(span["ts"]) - origin) / 1e6
    end = begin + float(span["dur"]) / 1e6
    if not (math.isfinite(begin) and math.isfinite(end) and end >= begin):
        raise ValueError(f"a span from {begin} to {end}")
    return Bar(str(span["cat"]), int(span["tid"]), str(span["name"]), begin, end)
