"""What the extension gives a Checkpointer, for those who read its types."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from .._unspool import RestartCore, Spool

__all__ = ["Chains", "Core", "ManifestOfPart", "RestartCore"]

Outcome = Literal["restored", "unreadable", "refused"]


class Chains(Protocol):
    """The checkpoints of a durable spool, put together one after the other: what
    `RestartCore.chains(spool)` gives.
    """

    def put_together(self, version: int) -> Spool | None:
        """A spool that has a version in full and is to be closed; None where it lies in full."""


class ManifestOfPart(Protocol):
    """What says that a rank's part of a checkpoint counts."""

    @property
    def rank(self) -> int:
        """The rank whose part it is."""

    @property
    def ranks(self) -> int:
        """The number of ranks that have a part."""

    @property
    def step(self) -> int:
        """The step of the checkpoint."""

    @property
    def values(self) -> str:
        """The small values, as the text that was saved with it."""

    def in_full(self) -> bytes:
        """The bytes of the manifest of a copy that is stored in full."""


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

    @property
    def hashed_on_gpu(self) -> int:
        """The checkpoints of which a GPU has found what has changed."""

    def take_failure(self) -> Exception | None:
        """What went wrong in the background and was not told yet."""

    def take_copy_failure(self) -> str | None:
        """What went wrong with copies beyond the machine and was not told yet."""

    def copies(self) -> dict[str, Any] | None:
        """How far the copies beyond the machine are."""

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

    def ready(self, step: int) -> None:
        """Fetches this rank's part where only the remote place has it."""

    def reading(self, step: int) -> Spool | None:
        """The spool to restore it from, when it is ready: None for the one that `make` has opened,
        else one that is to be closed."""

    def fetch(self, step: int) -> bool:
        """Fetches it in place of what is here; whether the remote place has it."""

    def score(self, step: int, score: float) -> None:
        """How good the checkpoint of a step is: lower is better."""

    def values(self, step: int) -> str:
        """The small values of a checkpoint."""

    def loaded(self, step: int) -> None:
        """The application may go on from what was saved under `step`."""

    def flush(self, timeout: float | None = None) -> None:
        """Waits for what was saved."""

    def close(self, agree: bool, timeout: float | None = None) -> None:
        """Waits for what was saved; talks to other ranks if `agree`."""

    def give_up(self) -> None:
        """Gives up what does not count yet."""
