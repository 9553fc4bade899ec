"""The restore order, fed to the spool ahead of time."""

from __future__ import annotations

from typing import Any

from .._unspool import Ahead
from .source import Twin

__all__ = ["Feeder"]

# The share of the lookahead that is fed at a time.
PIECES = 8


class Feeder:
    """Keeps about `lookahead` restores announced, from a dry run that is as far ahead."""

    __slots__ = ("_ahead", "_done", "_lookahead", "_low", "_outstanding", "_spool", "_twin")

    def __init__(
        self, spool: Any, ahead: Ahead, twin: Twin, lookahead: int, passed: int = 0
    ) -> None:
        """Announces the first ones, after so many that nobody will make."""
        self._spool, self._ahead, self._twin = spool, ahead, twin
        self._lookahead = lookahead
        self._low = lookahead - max(1, lookahead // PIECES)
        self._outstanding = 0
        self._done = lookahead == 0
        if passed and not self._done:
            versions, lasts = self._twin.hints(self._ahead, passed)
            self._done = len(versions) < passed
            self._announce(versions[passed:], lasts[passed:])
        self._feed()

    def restored(self) -> None:
        """One of the restores was made."""
        self._outstanding -= 1
        if self._outstanding <= self._low:
            self._feed()

    def _feed(self) -> None:
        if self._done:
            return
        wanted = self._lookahead - self._outstanding
        versions, lasts = self._twin.hints(self._ahead, wanted)
        self._done = len(versions) < wanted
        self._announce(versions, lasts)

    def _announce(self, versions: list[int], lasts: list[bool]) -> None:
        if versions:
            self._spool.expect(versions, last=lasts)
            self._outstanding += len(versions)
