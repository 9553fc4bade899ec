"""Whole adjoints of one loop from one beginning, whose gradients are compared."""

from __future__ import annotations

import abc
import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .._gradient import Gradient, Learned, norm_of
from ..schedules.given import figure
from ..stats import CodecStats
from .accumulated import Accumulated, duplicate
from .report import AdjointReport
from .run import Job, Run
from .states import named_arrays

__all__ = ["BoundedRun", "DrivenLoop", "Found", "Loop", "Seen", "encoded", "name_of", "share"]


class Found(NamedTuple):
    """What one run has found.

    Attributes:
        gradient: what it added to each array, in double precision.
        begun: the norms of the arrays that the adjoint began with.
        ended: the norms of all arrays at the end.
        added: the arrays to which it added.
        report: what the driver says, if there is one.
        bytes: those that were encoded, and what they became.
        parts: the same by the first step of each stretch of time, where that is known.
    """

    gradient: dict[str, Any]
    begun: dict[str, float]
    ended: dict[str, float]
    added: frozenset[str]
    report: AdjointReport | None
    bytes: tuple[int, int]
    parts: Mapping[int, tuple[int, int]] = {}

    @property
    def source(self) -> float:
        """The norm of all that the adjoint began with."""
        return math.hypot(*self.begun.values())


class Seen(NamedTuple):
    """What one run with known bounds has found, without a copy of anything.

    Attributes:
        sizes: the norm of what it added to each array.
        source: the norm of all that it began with.
        report, bytes, parts: as of `Found`.
    """

    sizes: dict[str, float]
    source: float
    report: AdjointReport | None
    bytes: tuple[int, int]
    parts: Mapping[int, tuple[int, int]] = {}


class BoundedRun(Run):
    """A run in which each state has the bound of its time."""

    def __init__(self, job: Job, learned: Learned | None) -> None:
        super().__init__(job)
        self.learned = learned
        self._firsts = () if learned is None else tuple(first for first, _ in learned.parts)
        self._at, self._before = 0, job.spool.stats().codec
        self._parts: dict[int, tuple[int, int]] = {}

    def codec_of(self, step: int) -> Any:
        """The codec of the state before a step."""
        first = max((each for each in self._firsts if each <= step), default=0)
        if first != self._at:
            self._note(first)
        return "lossless" if self.learned is None else self.learned.bound(step)

    def parts(self) -> dict[int, tuple[int, int]]:
        """The bytes of the states of each stretch of time, and what they became."""
        self._note(0)
        return self._parts if self._firsts else {}

    def _note(self, first: int) -> None:
        """From now on states are those of another stretch."""
        now = self.job.spool.stats().codec
        raw, stored = encoded(self._before, now)
        known = self._parts.get(self._at, (0, 0))
        self._parts[self._at] = known[0] + raw, known[1] + stored
        self._at, self._before = first, now


class Loop(abc.ABC):
    """A loop that can be run several times, and the arrays of its gradient that count.

    Attributes:
        call: what the user called.
        steps: the number of steps, or None.
    """

    def __init__(self, call: str, order: Gradient, steps: int | None) -> None:
        self.call, self.order, self.steps = call, order, steps

    @abc.abstractmethod
    def run(self, learned: Learned | None, quietly: bool = False) -> Found:
        """One adjoint, with lossless states where there are no bounds."""

    @abc.abstractmethod
    def follow(self, learned: Learned) -> Seen:
        """One adjoint with bounds that are known."""

    @abc.abstractmethod
    def copies(self) -> Any:
        """What a run changes."""

    @abc.abstractmethod
    def put(self, copies: Any) -> None:
        """What was copied is there again."""

    def names(self, found: Found) -> list[str]:
        """The arrays that have to be accurate."""
        return [name for name in found.gradient if self.order.counts(name)]

    def worst(self, errors: dict[str, Any], exact: Found) -> float:
        """The largest relative error of an array; infinite where one is not finite."""
        norm = self.order.norm
        shares = [share(norm(each), norm(exact.gradient[name])) for name, each in errors.items()]
        return max((one if math.isfinite(one) else math.inf for one in shares), default=0.0)


class DrivenLoop(Loop):
    """The loop of a call of `unspool.adjoint`."""

    def __init__(self, job: Job, accumulated: Accumulated, order: Gradient) -> None:
        super().__init__("adjoint", order, figure(job.schedule, "steps"))
        self.job, self.accumulated = job, accumulated

    def run(self, learned: Learned | None, quietly: bool = False) -> Found:
        """One adjoint, with lossless states where there are no bounds."""
        before = self.accumulated.numbers()
        begun = dict(before)

        def note() -> None:
            begun.update(self.accumulated.numbers())

        report, coded, _ = self._driven(learned, note, quietly)
        numbers = self.accumulated.numbers()
        kept = frozenset(name for name, one in begun.items() if _same(one, before.get(name)))
        return Found(
            # An array that `at_end` replaced does not add to what it held before.
            {name: one - begun[name] if name in kept else one for name, one in numbers.items()},
            {name: norm_of(one) for name, one in begun.items() if self._is_source(name, kept)},
            {name: norm_of(one) for name, one in numbers.items()},
            kept,
            report,
            coded,
        )

    def follow(self, learned: Learned) -> Seen:
        """One adjoint with bounds that are known, of which only norms are looked at."""
        bases: dict[str, Any] = {}
        begun: dict[str, float] = {}

        def note() -> None:
            arrays = self.accumulated.by_way()
            begun.update({name: norm_of(arrays[name]) for name in learned.began})
            for name in learned.added & learned.errors.keys():
                if norm_of(arrays[name]):
                    bases[name] = duplicate(arrays[name])

        if self.job.at_end is None:
            note()
        report, coded, parts = self._driven(learned, note)
        arrays = self.accumulated.by_way()
        added = {
            name: arrays[name] - bases[name] if name in bases else arrays[name]
            for name in learned.errors
        }
        sizes = {name: self.order.norm(one) for name, one in added.items()}
        return Seen(sizes, math.hypot(*begun.values()), report, coded, parts)

    def _driven(
        self, learned: Learned | None, note: Callable[[], None], quietly: bool = False
    ) -> tuple[AdjointReport, tuple[int, int], dict[int, tuple[int, int]]]:
        """One run, with a look at what the adjoint begins with."""
        job, at_end, spool = self.job, self.job.at_end, self.job.spool
        if at_end is not None:
            job = dataclasses.replace(job, at_end=lambda state: (at_end(state), note()))
        if quietly:
            job = dataclasses.replace(job, progress=None)
        before = spool.stats().codec
        run = BoundedRun(job, learned)
        return run.go(), encoded(before, spool.stats().codec), run.parts()

    def _is_source(self, name: str, kept: frozenset[str]) -> bool:
        """Whether the adjoint begins with an array, which is no sum of earlier calls then."""
        if self.job.at_end is not None:
            return name not in kept
        return self.order.of is None or not self.order.counts(name)

    def copies(self) -> Any:
        """The working state and what reverse steps change."""
        state = self.job.state
        held = state.now() if state.frozen else Accumulated(state.now(), "state").copied()
        return held, self.accumulated.copied()

    def put(self, copies: Any) -> None:
        """What was copied is there again."""
        held, accumulated = copies
        state = self.job.state
        if state.frozen:
            state.put_back(held)
        else:
            Accumulated(state.now(), "state").put(held)
        self.accumulated.put(accumulated)

    def key(self) -> Any:
        """What a loop with the same bounds has in common with this one."""
        arrays = named_arrays(self.job.state.now())
        shapes = {
            name: (tuple(map(int, getattr(one, "shape", ()))), str(getattr(one, "dtype", "")))
            for name, one in arrays.items()
        }
        return name_of(self.job.schedule), repr(shapes), repr(self.accumulated.shapes())


def name_of(schedule: Any) -> str:
    """A schedule in words that are the same for another one like it: without its address."""
    steps, slots = figure(schedule, "steps"), figure(schedule, "slots")
    return f"{re.sub(' at 0x[0-9a-f]+', '', repr(schedule))}, {steps} steps, {slots} slots"


def encoded(before: CodecStats, after: CodecStats) -> tuple[int, int]:
    """Bytes that were encoded meanwhile, and what they became."""
    return after.raw_bytes - before.raw_bytes, after.stored_bytes - before.stored_bytes


def share(error: float, size: float) -> float:
    """An error as part of a size."""
    return 0.0 if error == 0 else error / size if size else math.inf


def _same(one: Any, other: Any) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())
