"""How many steps `forward` is given at once where states of the forward sweep are to be kept."""

from __future__ import annotations

__all__ = ["Pieces"]

#: The longest that a call is to take, in seconds, and as a share of the time between two saves.
LONGEST, SHARE = 1.0, 0.1


class Pieces:
    """Cuts a way through the steps so that a state is there soon after it is due: at the multiples
    of a number of steps, or, where time decides, after calls of about a second."""

    def __init__(self, every: int | str) -> None:
        self._every = every if isinstance(every, int) else None
        self._count = 1

    def end(self, start: int, stop: int) -> int:
        """Where a call ends that begins at `start`."""
        if self._every is None:
            return min(stop, start + self._count)
        return min(stop, start - start % self._every + self._every)

    def took(self, steps: int, seconds: float, interval: float | None) -> None:
        """A call took so many steps and seconds; `interval` is the time between two saves."""
        longest = LONGEST if interval is None else min(LONGEST, SHARE * interval)
        if seconds > longest:
            self._count = max(1, self._count // 2)
        elif steps == self._count and 2 * seconds <= longest:
            self._count *= 2
