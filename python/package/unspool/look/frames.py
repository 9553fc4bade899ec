"""What durable frames say of themselves, from which is known what may differ without reading it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from .._partial import PIECE
from .._unspool import Spool

__all__ = ["Frame", "Stream", "differing"]


class Stream(NamedTuple):
    """What an encoded array says of the codec that made it.

    Attributes:
        kind: `"lossless"`, `"abs"`, `"pointwise"`, or the mode of zfp.
        bound: the bound or the parameter; 0.0 for none.
        floor: with `"pointwise"`, the magnitude below which values became 0.
        max_error: the largest error of a value, or None where it is not said.
    """

    kind: str
    bound: float
    floor: float
    max_error: float | None


class Frame:
    """The frame of a checkpoint, if a durable tier has one. It is asked when something is wanted.

    Raises:
        CorruptCheckpointError, LostCheckpointError: it cannot be read.
    """

    def __init__(self, spool: Spool, step: int) -> None:
        self._spool, self._step = spool, step

    @cached_property
    def _said(self) -> tuple[list[int] | None, bool, list[Any]]:
        return self._spool._stored(self._step) or (None, False, [])

    @property
    def is_in_parts(self) -> bool:
        """Whether pieces of it can be read alone."""
        return self._said[1]

    @cached_property
    def sums(self) -> Any | None:
        """The checksums of the pieces of its payload, or None."""
        import numpy as np

        sums = self._said[0]
        return None if sums is None else np.array(sums, "u8")

    def place(self, at: int) -> range | None:
        """The bytes of the payload that are those of the array at this place, or None."""
        places = self._said[2]
        return range(*places[at][:2]) if places else None

    def stream(self, at: int) -> Stream | None:
        """What the array at this place says of its codec, or None."""
        places = self._said[2]
        made = places[at][2] if places else None
        return made and Stream(*made)


def differing(a: tuple[Frame, int], b: tuple[Frame, int], count: int) -> list[range]:
    """Where `count` stored bytes may differ of two arrays, each by its frame and its place among
    the arrays there: pieces, by their checksums. All of them, where these do not say it."""
    import numpy as np

    if count == 0:
        return []
    sums, others = (frame.sums for frame, _ in (a, b))
    mine, theirs = (frame.place(at) for frame, at in (a, b))
    everything = [range(count)]
    if mine is None or theirs is None or sums is None or others is None:
        return everything
    shift, besides = divmod(theirs.start - mine.start, PIECE)
    if besides:
        return everything
    pieces = range(mine.start // PIECE, -(-mine.stop // PIECE))
    sums = sums[pieces.start :][: len(pieces)]
    others = others[pieces.start + shift :][: len(pieces)]
    if len(sums) != len(others):
        return everything
    edges = np.diff(np.concatenate(([False], sums != others, [False])).astype("i1"))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    begins = (starts + pieces.start) * PIECE - mine.start
    ends = (stops + pieces.start) * PIECE - mine.start
    return [
        range(max(low, 0), min(high, count))
        for low, high in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
