"""Times, and what is computed from them. Pure but for the clock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = [
    "Sample",
    "gigabytes_per_second",
    "lost_share",
    "ratio",
    "repeat",
    "seconds_of",
    "share",
]


@dataclass(frozen=True, slots=True)
class Sample:
    """The readings of one quantity, at least one.

    Attributes:
        values: in the order in which they were taken.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a sample needs at least one reading")

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """The sample of these readings."""
        return cls(tuple(values))

    @property
    def median(self) -> float:
        """The median reading."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least reading."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest reading."""
        return max(self.values)

    @property
    def p90(self) -> float:
        """The least reading that is not exceeded by nine in ten."""
        return sorted(self.values)[math.ceil(0.9 * len(self.values)) - 1]

    def map(self, change: Callable[[float], float]) -> Sample:
        """The sample of the changed readings."""
        return Sample.of(map(change, self.values))


def gigabytes_per_second(count: int, seconds: Sample) -> Sample:
    """The rates at which `count` bytes moved in those times, in 1e9 bytes a second."""
    return seconds.map(lambda time: count / max(time, 1e-12) / 1e9)


def ratio(ours: Sample, raw: Sample) -> float:
    """Our median over the raw one."""
    return ours.median / raw.median if raw.median else math.nan


def share(part: float, whole: float) -> float:
    """A part in per cent of the whole; zero of nothing."""
    return 100.0 * part / whole if whole else 0.0


def lost_share(whole: float, alone: float) -> float:
    """By how much a run took longer than its computation alone, in per cent of the run."""
    return share(max(0.0, whole - alone), whole)


def seconds_of(run: Callable[[], object]) -> float:
    """How long `run` takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def repeat(run: Callable[[], float], rounds: int, budget: float = math.inf) -> Sample:
    """The readings that `run` returns: once at least, `rounds` times at most, and no further round
    once `budget` seconds are spent.
    """
    begin = time.perf_counter()
    values = [run()]
    while len(values) < rounds and time.perf_counter() - begin < budget:
        values.append(run())
    return Sample.of(values)
