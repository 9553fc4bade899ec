"""Which tiles are read next, and how often each will have been written by then.

A spool is told versions ahead, and the version of a tile that is rewritten before its turn is not
there yet. It is foreseen: a tile that was rewritten between its last two turns will be again. What
comes otherwise is noticed, and announced once more. Nothing here calls a spool.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import OptionError

__all__ = ["Order"]

#: A tile, how often it will have been written, and whether it is rewritten after that read.
Turn = tuple[int, int, bool]


class Order:
    """The turns to come, of which a window is known ahead.

    Attributes:
        stale: what was announced is not what will come; `again` says it anew.
    """

    def __init__(self, source: Iterable[Any], tiles: int, rewritten: bool) -> None:
        self._source: Iterator[Any] | None = iter(source)
        self._tiles = tiles
        # One lap of a cycle: what stays in memory depends on the next turn of every tile.
        self._window = min(max(tiles, 16), 16_000)
        self._coming: deque[int] = deque()
        self._skipped = 0
        self._foreseen: dict[int, deque[int]] = {}
        self._rewritten = [rewritten] * tiles
        # How often each tile had been written when it was read last.
        self._read = [-1] * tiles
        self.stale = False

    def __bool__(self) -> bool:
        """Whether there is more to come."""
        return self._source is not None or bool(self._coming)

    def more(self, written: list[int]) -> list[Turn]:
        """The turns that the window has room for. `written`: how often each tile was.

        Raises:
            OptionError: the order names what is not a tile.
        """
        added = []
        while self._source is not None and len(self._coming) < self._window:
            try:
                tile = self._tile(next(self._source))
            except StopIteration:
                self._source = None
                break
            self._coming.append(tile)
            added.append(self._foresee(tile, written))
        return added

    def again(self, written: list[int]) -> list[Turn]:
        """All turns that are known, as they are foreseen now."""
        self.stale = False
        self._foreseen.clear()
        return [self._foresee(tile, written) for tile in self._coming]

    def read(self, tile: int, count: int) -> None:
        """A tile is read that was written `count` times: its next turn is taken."""
        before, self._read[tile] = self._read[tile], count
        if before >= 0:
            self._rewritten[tile] = count > before
        foreseen = self._foreseen.get(tile)
        if not foreseen:
            return
        self.stale |= foreseen.popleft() != count
        if not foreseen:
            del self._foreseen[tile]
        self._take(tile)

    def wrote(self, tile: int, count: int) -> None:
        """A tile has been written `count` times now."""
        foreseen = self._foreseen.get(tile)
        if foreseen:
            self.stale |= foreseen[0] != count

    def _take(self, tile: int) -> None:
        """Takes a turn out. One out of order leaves the others where they are; after two in a row
        that pass over the head the program does not come back, as a spool sees it too."""
        place = self._coming.index(tile)
        del self._coming[place]
        if place < self._skipped:
            self._skipped -= 1
            return
        for _ in range(self._skipped):
            passed = self._coming.popleft()
            foreseen = self._foreseen[passed]
            foreseen.popleft()
            if not foreseen:
                del self._foreseen[passed]
        self._skipped = place - self._skipped

    def _foresee(self, tile: int, written: list[int]) -> Turn:
        foreseen = self._foreseen.setdefault(tile, deque())
        again = self._rewritten[tile]
        if foreseen:
            count = foreseen[-1] + again
        else:
            # It was read: what rewrites it is still to come.
            count = written[tile] + (again and self._read[tile] == written[tile])
        foreseen.append(count)
        return tile, count, again

    def _tile(self, item: Any) -> int:
        try:
            tile = operator.index(item)
        except TypeError:
            raise OptionError(f"expect(): {item!r} is not the number of a tile.") from None
        if not 0 <= tile < self._tiles:
            raise OptionError(f"expect(): there is no tile {tile}, only 0 to {self._tiles - 1}.")
        return tile
