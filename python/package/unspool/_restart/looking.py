"""What a Checkpointer shows of itself: a line, and a table in a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from .. import stats

__all__ = ["Shown", "age", "as_html", "as_line", "due_text"]

#: Units of an age, each as long as it is the largest that fits.
_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"))

Row = Mapping[str, Any]


class Shown(NamedTuple):
    """What is shown of a Checkpointer.

    Attributes:
        path: the folder.
        state: `"open"`, `"closed"` or `"stopping"`.
        rows: its checkpoints that count, as the folder lists them, by step.
        coming: the step that was saved and does not count yet, or None.
        due: when the next one is due, or an empty text.
    """

    path: str
    state: str
    rows: Sequence[Row]
    coming: int | None
    due: str


def age(written: float, now: Callable[[], float] = time.time) -> str:
    """How old something is that was written at a time in seconds since 1970: `3 min`."""
    return span(max(now() - written, 0.0))


def span(seconds: float) -> str:
    """A duration in the largest unit of which there are two, or in seconds."""
    for size, unit in _UNITS:
        if seconds >= 2 * size or size == 1:
            return f"{seconds / size:,.0f} {unit}"
    return ""


def due_text(every: object, interval: float | None, since: float, last: int | None) -> str:
    """When the next checkpoint is due: `at step 300`, `in 8 min`; empty where nothing says so."""
    if isinstance(every, int):
        return f"at step {((last or 0) // every + 1) * every}"
    if interval is None:
        return ""
    left = interval - since
    return f"in {span(left)}" if left > 0 else "now"


def as_line(shown: Shown) -> str:
    """One line: the path, what counts, and what comes next."""
    words = [f"{shown.path!r}: {shown.state}"]
    if shown.rows:
        last, count = shown.rows[-1], len(shown.rows)
        many = f"{count} checkpoint{'' if count == 1 else 's'}"
        size = stats.size(sum(map(_stored, shown.rows)))
        words.append(f"{many} of {size}, the newest of step {last['step']}")
        words.append(f"{age(last['written'])} old")
    else:
        words.append("no checkpoint that counts")
    if shown.coming is not None:
        words.append(f"step {shown.coming} on its way")
    if shown.due:
        words.append(f"next due {shown.due}")
    return f"<unspool.Checkpointer {', '.join(words)}>"


def as_html(shown: Shown) -> str:
    """The line, and a table of the checkpoints."""
    head = ("step", "size", "durable after", "age")
    rows = [
        (
            f"{row['step']}",
            stats.size(_stored(row)),
            f"{row['seconds']:.2f} s",
            age(row["written"]),
        )
        for row in reversed(shown.rows)
    ]
    table = _row("th", head) + "".join(_row("td", row) for row in rows)
    return f"<p><code>{escape(as_line(shown))}</code></p>" + (
        f"<table>{table}</table>" if rows else ""
    )


def _row(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"


def _stored(row: Row) -> int:
    return int(row["nbytes"] if row["stored"] is None else row["stored"])
