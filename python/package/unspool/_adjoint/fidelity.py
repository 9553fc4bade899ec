"""What a codec with a bound does to a gradient, estimated while an adjoint runs.

A few states are kept without loss beside the copies that the schedule keeps. From the first of them
on, every step is reversed twice: for the gradient that is returned, from what was restored, and for
another one that differs in nothing but the exact states at the checked steps. Their difference at
the end is the effect of the errors of these states, carried on through all other reverse steps.

The states that were not checked have errors too. How those of different states go together, whether
they cancel or add, is seen in the checked steps, which are pairs of neighbours: each is reversed a
third time, from the exact state alone, and what that changes is compared within a pair.

`Comparison` is that, whatever carries the steps out; `CheckedRun` is a run of `unspool.adjoint`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..errors import Error, OptionError
from .accumulated import Accumulated
from .report import AdjointReport, Effect, Fidelity, FidelityWarning
from .run import Job, Run
from .states import arrays_of

__all__ = ["CheckedRun", "Comparison", "Copied", "spread", "warn"]

#: The share of the gradient from which on a warning is given.
WARNS = 0.05


class Copied(Protocol):
    """What reverse steps change, as `Accumulated` has it."""

    def copied(self) -> Any:
        """A copy of it."""

    def put(self, copies: Any) -> None:
        """It is again what was copied."""

    def numbers(self) -> dict[str, Any]:
        """The arrays of the gradient by name, as those of NumPy in double precision."""


class Comparison:
    """Two adjoints that are taken back over the same steps.

    Attributes:
        total: the number of steps.
        checked: those of which the exact state is known.
    """

    def __init__(self, accumulated: Copied, total: int, checked: tuple[int, ...]) -> None:
        self.accumulated, self.total, self.checked = accumulated, total, checked
        self.other: Any = None
        self.together: dict[str, _Together] = {}

    def back(
        self,
        step: int,
        first: Callable[[], None],
        again: Callable[[Any], None],
        value: Any,
        exactly: AbstractContextManager[Any] | None,
    ) -> None:
        """Takes the adjoint back over a step, and the other one after it.

        Arguments:
            step: its number.
            first: takes what is accumulated back over it, from the state that was restored.
            again: does so from a given state.
            value: the state that was restored.
            exactly: gives the exact state, of a step that is checked.
        """
        before = None if exactly is None else self.accumulated.copied()
        if self.other is None:
            self.other = before
        first()
        if self.other is None:
            return
        after = self.accumulated.copied()
        if exactly is None:
            self._again(again, value, self.other)
            self.other = self.accumulated.copied()
        else:
            with exactly as exact:
                self._again(again, exact, before)
                self._compare(step, after)
                self._again(again, exact, self.other)
                self.other = self.accumulated.copied()
        self.accumulated.put(after)

    def _again(self, again: Callable[[Any], None], value: Any, begun: Any) -> None:
        """Takes another adjoint back over a step."""
        self.accumulated.put(begun)
        again(value)

    def _compare(self, step: int, after: Any) -> None:
        """Notes what the exact state has changed in this step alone."""
        exact = self.accumulated.numbers()
        self.accumulated.put(after)
        for name, lossy in self.accumulated.numbers().items():
            self.together.setdefault(name, _Together()).add(step, lossy - exact[name])

    def found(self) -> Fidelity:
        """What was found, after the last step."""
        return Fidelity(self.checked, self.total, self._effects())

    def _effects(self) -> dict[str, Effect]:
        """The effect on each array."""
        mine = self.accumulated.numbers()
        if self.other is None:
            return dict.fromkeys(mine, Effect(0.0, 0.0, 0.0))
        after = self.accumulated.copied()
        self.accumulated.put(self.other)
        others = self.accumulated.numbers()
        self.accumulated.put(after)
        found = {name: one.correlation() for name, one in self.together.items()}
        correlations = {name: one for name, one in found.items() if one is not None}
        # What no step changes by itself gets its errors from what a step does change.
        usual = max(correlations.values(), default=0.0)
        effects = {}
        for name, array in mine.items():
            norm, apart = _norm(array), _norm(array - others[name])
            share = 0.0 if apart == 0 else apart / norm if norm else math.inf
            effects[name] = self._effect(share, correlations.get(name, usual))
        return effects

    def _effect(self, share: float, correlation: float) -> Effect:
        """The effect of the errors of all steps, of which those of the checked ones have `share`.

        With errors that have nothing to do with one another, the squares add. With a correlation c
        of neighbours, and c**k of steps k apart, a long sum of them has (1 + c) / (1 - c) of that,
        and a sum of pairs of neighbours 1 + c.
        """
        times = self.total / len(self.checked)
        independent, worst = share * math.sqrt(times), share * times
        together = max(1 - correlation, 1 / times) if len(self.checked) > 1 else 1.0
        return Effect(min(independent / math.sqrt(together), worst), independent, worst)


class CheckedRun(Run):
    """A run that keeps exact states of some steps, and reverses twice."""

    def __init__(self, job: Job, accumulated: Copied, count: int, call: str = "adjoint") -> None:
        super().__init__(job)
        if self.steps is None:
            raise OptionError(
                "adjoint(check=...): the steps to be checked are spread over the run, and this "
                "schedule does not know how many there are: use one that does."
            )
        self.call, self.total, self.apart = call, self.steps, count
        chosen = spread(self.total, count)
        # The versions after those of the states.
        self.exact = {step: job.first + self.total + 1 + n for n, step in enumerate(chosen)}
        self.kept: set[int] = set()
        self.comparison = Comparison(accumulated, self.total, tuple(chosen))

    def begin(self) -> None:
        """Carries out what comes before the first step is reversed."""
        self.keep(0)
        super().begin()

    def keep(self, step: int) -> None:
        """Keeps the exact state of a step that is to be checked."""
        if step not in self.exact or step in self.kept:
            return
        value = self.state.now() if self.part is None else self.part.now()
        positional, named = arrays_of(value)
        options = {"stream": self.job.stream, "codec": "raw"}
        self.spool.save(self.exact[step], *positional, **options, **named)
        self.kept.add(step)

    def take(self, start: int, stop: int) -> bool:
        """Advances the working state, with a stop at each state that is to be checked."""
        at = start
        for step in sorted(step for step in self.exact if start < step < stop):
            if step > self.farthest:
                super().take(at, step)
                self.keep(step)
                at = step
        super().take(at, stop)
        # The state after the last step is not reversed from.
        if stop == self.farthest and stop < self.total:
            self.keep(stop)
        return True

    def reverse(self, step: int, second: int, tier: str | None) -> None:
        """Takes the adjoint back over a step, and the other one after it."""
        value = self.restored_part
        if value is None:
            value = self.state.now() if self.part is None else self.part.now()
        first = functools.partial(super().reverse, step, second, tier)
        exactly = self.exactly(step, value) if step in self.kept else None
        self.comparison.back(step, first, functools.partial(self.again, step), value, exactly)

    def again(self, step: int, value: Any) -> None:
        """Calls `reverse` once more."""
        self.inside = "reverse"
        self.job.reverse(value, step)

    @contextlib.contextmanager
    def exactly(self, step: int, value: Any) -> Any:
        """The exact state of a step, in the place of the one that was restored meanwhile."""
        version = self.exact[step]
        self.inside = "the spool"
        if self.state.frozen:
            yield self.state.loaded(self.spool, version, value)
        else:
            held = Accumulated(value, "state")
            restored = held.copied()
            positional, named = arrays_of(value)
            self.spool.restore(version, *positional, stream=self.job.stream, **named)
            yield value
            held.put(restored)
        self.kept.discard(step)
        self.spool.discard(version)

    def clean_up(self, failure: BaseException | None = None) -> None:
        """Takes back everything that was kept."""
        super().clean_up(failure)
        for step in self.kept:
            with contextlib.suppress(Error):
                self.spool.discard(self.exact[step])
        self.kept = set()

    def report(self, seconds: float, spent: dict[str, Any]) -> AdjointReport:
        """The figures of the whole run, with what the codec has changed."""
        spent["fidelity"] = found = self.comparison.found()
        warn(self.call, found, stacklevel=6)
        return super().report(seconds, spent)


def warn(call: str, found: Fidelity, stacklevel: int) -> None:
    """Warns of a codec that changes the gradient by too much."""
    if found.estimate > WARNS:
        text = f"unspool.{call}, {found}. See the guide on compression."
        warnings.warn(text, FidelityWarning, stacklevel)


class _Together:
    """How the errors of neighbouring steps go together."""

    def __init__(self) -> None:
        self.last: tuple[int, Any] | None = None
        self.products = self.squares = 0.0

    def add(self, step: int, error: Any) -> None:
        """That of one more step."""
        if self.last is not None and self.last[0] == step + 1:
            after = self.last[1]
            self.products += float((error * after.conj()).real.sum())
            self.squares += (_norm(error) ** 2 + _norm(after) ** 2) / 2
        self.last = step, error

    def correlation(self) -> float | None:
        """That of two neighbours, at least 0; None where there were no errors."""
        return min(max(self.products / self.squares, 0.0), 1.0) if self.squares else None


def _norm(array: Any) -> float:
    return math.sqrt(float((abs(array) ** 2).sum()))


def spread(total: int, count: int) -> list[int]:
    """Steps to be checked: pairs of neighbours, spread over all steps."""
    if count >= total:
        return list(range(total))
    pairs = -(-count // 2)
    firsts = [max((2 * each + 1) * total // (2 * pairs) - 1, 0) for each in range(pairs)]
    return sorted({step for first in firsts for step in (first, first + 1)})[-count:]
