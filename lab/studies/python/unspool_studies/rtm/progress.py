"""What a terminal shows while a job runs."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from unspool_studies.rtm.history import SpoolHistory

__all__ = ["Bar", "Lines", "Silence"]

#: Seconds from one look at the spool's figures to the next.
REFRESH = 0.2


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def opened(self, history: SpoolHistory) -> None:
        """The spool is there."""

    def stepped(self, shot: int, phase: str, steps: int) -> None:
        """A group of steps is done."""

    def finished(self, shot: int, seconds: float) -> None:
        """A shot is done."""


class Figures:
    """The restore rate and the stall so far."""

    def __init__(self) -> None:
        self._history: SpoolHistory | None = None
        self._begin = time.monotonic()

    def follow(self, history: SpoolHistory) -> None:
        """Takes the figures from this spool from now on."""
        self._history, self._begin = history, time.monotonic()

    def text(self) -> str:
        """Both, in words; empty without a spool."""
        if self._history is None:
            return ""
        stats = self._history.spool.stats()
        inside = self._history.clock.seconds("restore")
        rate = f"restores at {stats.restored_bytes / inside / 1e9:.1f} GB/s, " if inside else ""
        stall = stats.save_stall_seconds + stats.restore_stall_seconds
        part = 100.0 * stall / max(time.monotonic() - self._begin, 1e-9)
        return f"{rate}stalled {part:.1f} %"


class Lines(Silence):
    """One line a shot, for logs."""

    def __init__(self, console: Console, title: str, shots: int) -> None:
        self._console, self._title, self._shots = console, title, shots
        self._figures = Figures()

    def opened(self, history: SpoolHistory) -> None:
        """The spool is there."""
        self._figures.follow(history)

    def finished(self, shot: int, seconds: float) -> None:
        """A shot is done."""
        figures = self._figures.text()
        line = f"{self._title}: shot {shot + 1} of {self._shots} in {seconds:.1f} s"
        self._console.print(f"{line}; {figures}" if figures else line, highlight=False)


class _Plain(ProgressColumn):
    """A field of a task, as it is."""

    def __init__(self, field: str) -> None:
        super().__init__()
        self._field = field

    def render(self, task: Task) -> Text:
        """The text of the field."""
        return Text(str(task.fields[self._field]))


class Bar(Silence):
    """A bar with shot, phase, restore rate and stall.

    Several processes at once (`crowd`) have no one place where they are. A schedule may take the
    same steps several times: the bar counts each time.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        shots: int,
        total: int,
        crowd: bool = False,
    ) -> None:
        self._crowd, self._shots = crowd, shots
        self._figures, self._looked = Figures(), 0.0
        columns = (BarColumn(28), _Plain("place"), TimeRemainingColumn(), _Plain("figures"))
        self._bar = Progress(TextColumn("{task.description}"), *columns, console=console)
        self._task = self._bar.add_task(title, total=total, place="", figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def opened(self, history: SpoolHistory) -> None:
        """The spool is there."""
        self._figures.follow(history)

    def stepped(self, shot: int, phase: str, steps: int) -> None:
        """A group of steps is done."""
        if self._crowd:
            self._bar.advance(self._task, steps)
            return
        now = time.monotonic()
        if now - self._looked < REFRESH:
            self._bar.advance(self._task, steps)
            return
        self._looked = now
        place = f"shot {shot + 1}/{self._shots} {phase:8}"
        self._bar.update(self._task, advance=steps, place=place, figures=self._figures.text())
