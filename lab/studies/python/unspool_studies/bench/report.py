"""Tables of figures: text for people, and plain data for machines."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool.stats import table as table_text
from unspool_studies.bench.measure import Sample
from unspool_studies.files import write_json

__all__ = ["Cell", "Report", "Table", "number"]

#: A word, a figure, several readings of one (median and spread are shown), or nothing.
Cell = str | int | float | Sample | None


@dataclass
class Table:
    """One table.

    Attributes:
        name: a short name for machines.
        title: what it shows, one line.
        columns: names, with units.
        rows: as many cells as there are columns.
        notes: what has to be known to read it.
        live: is told of each row when it is added.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    live: Callable[[str], object] | None = None

    def add(self, *cells: Cell) -> None:
        """Adds a row."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.name}: {len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)
        if self.live is not None:
            pairs = zip(self.columns, map(_in_order, cells), strict=True)
            self.live(", ".join(f"{name} {text}" for name, text in pairs))

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def __str__(self) -> str:
        texts = [tuple(self.columns), *(tuple(map(_text, row)) for row in self.rows)]
        notes = (f"  ({note})" for note in self.notes)
        return "\n".join([self.title, table_text(texts), *notes])

    def as_dict(self) -> dict[str, Any]:
        """The table as dictionaries, lists and numbers."""
        rows = [dict(zip(self.columns, map(_plain, row), strict=True)) for row in self.rows]
        return {"name": self.name, "title": self.title, "rows": rows, "notes": list(self.notes)}


class Report:
    """The tables of one run: each is shown when it is ready, and kept for the file."""

    def __init__(self, about: dict[str, Any], file: Path | None = None) -> None:
        self.about = about
        self.tables: list[Table] = []
        self._begun: list[Table] = []
        self._file = file

    def begin(self, table: Table) -> Table:
        """Shows the rows of a table on standard error as they come, and writes them to the file:
        some take long, and a run may be ended before the table is.
        """

        def tell(row: str) -> None:
            print(f"  {table.name}: {row}", file=sys.stderr, flush=True)
            self._write()

        table.live = tell
        self._begun.append(table)
        return table

    def show(self, table: Table) -> None:
        """Prints a table and writes the file with all tables so far."""
        self._begun = [one for one in self._begun if one is not table]
        self.tables.append(table)
        print(f"\n{table}", flush=True)
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        tables = [table.as_dict() for table in (*self.tables, *self._begun)]
        content = self.about | {"tables": tables}
        # Replaced as a whole: a run that is ended early leaves a file that can be read.
        write_json(self._file, content, indent=1)


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    if value != value:
        return "-"
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, Sample):
        if len(cell.values) == 1:
            return number(cell.median)
        return f"{number(cell.median)} ({number(cell.low)}-{number(cell.high)})"
    return (
        number(cell) if isinstance(cell, float) else f"{cell:,}" if _is_count(cell) else str(cell)
    )


def _in_order(cell: Cell) -> str:
    """All of a few readings, in the order in which they were taken."""
    if isinstance(cell, Sample) and 1 < len(cell.values) <= 5:
        return "/".join(map(number, cell.values))
    return _text(cell)


def _is_count(cell: Cell) -> bool:
    return isinstance(cell, int)


def _plain(cell: Cell) -> Any:
    if not isinstance(cell, Sample):
        # JSON has no such numbers.
        return None if isinstance(cell, float) and not math.isfinite(cell) else cell
    ends = {"median": cell.median, "low": cell.low, "high": cell.high}
    return ends | {"values": list(cell.values)}
