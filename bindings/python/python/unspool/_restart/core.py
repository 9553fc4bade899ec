"""What the extension gives a Checkpointer, for those who read its types."""

from __future__ import annotations

from typing import Literal, Protocol

from .._unspool import RestartCore

__all__ = ["Core", "RestartCore"]

Outcome = Literal["restored", "unreadable", "refused"]


class Core(Protocol):
    """The methods of `RestartCore`; those that talk to other ranks are called by all of them."""

    @property
    def warnings(self) -> list[str]:
        """What was found damaged at the opening."""

    @property
    def stopping(self) -> bool:
        """Whether all ranks know that the run is to stop."""

    @property
    def closed(self) -> bool:
        """Whether `close` has ended it."""

    @property
    def interval(self) -> float | None:
        """Seconds between two checkpoints, where time decides."""

    def take_failure(self) -> Exception | None:
        """What went wrong in the background and was not told yet."""

    def stop(self) -> None:
        """Asks the run to stop."""

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due; talks to other ranks now and then."""

    def begin(self, step: int, values: str) -> None:
        """Begins a save; talks to other ranks."""

    def commit(self) -> None:
        """The arrays of the save are in the spool."""

    def abandon(self) -> None:
        """The arrays of the save could not be saved."""

    def candidate(self, unreadable: list[int] = ...) -> int | None:
        """The newest checkpoint that counts; talks to other ranks."""

    def restored(self, step: int, outcome: Outcome, why: str) -> list[str]:
        """What became of restoring it, and why it did not on some rank; talks to other ranks."""

    def values(self, step: int) -> str:
        """The small values of a checkpoint."""

    def flush(self, timeout: float | None = None) -> None:
        """Waits for what was saved."""

    def close(self, agree: bool, timeout: float | None = None) -> None:
        """Waits for what was saved; talks to other ranks if `agree`."""

    def give_up(self) -> None:
        """Gives up what does not count yet."""
