"""An adjoint whose bounds follow from the accuracy that its gradient has to have.

`Ordered` has a loop run with lossless states and again with bounds, from the same first state and
the same `adjoint_state`, and compares the gradients: recomputed states and everything that is not
linear are in what it measures. `choice` runs the trials, and `unspool._gradient.search` says which
bound is next.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

from .._gradient import EVERY, Gradient, Learned
from .._increments import IncrementalSpool
from ..errors import OptionError
from ..schedules import Auto
from .accumulated import Accumulated
from .choice import Choice
from .measured import DrivenLoop, Found, Loop, Seen, share
from .report import AdjointReport, Effect, Fidelity, FidelityWarning, Stretch
from .run import Job

__all__ = ["Ordered", "check_order", "ordered"]

#: How far an adjoint may grow for bounds to be trusted in the next gradient.
GROWTH = 1e6

#: Adjoints after which bounds are measured again, once they have held.
SELDOM = 100

#: Parts of the target: above the first one the next adjoint goes by smaller bounds, and with an
#: estimate up to the second one by larger ones.
HIGH, LOW = 0.7, 0.5


class Ordered:
    """One adjoint with a `Gradient`.

    Attributes:
        trials: adjoints that were run beside it.
        report: what the driver says of it, if there is one.
    """

    def __init__(self, loop: Loop, key: Any) -> None:
        self.loop, self.order, self.key = loop, loop.order, key
        self.trials = 0
        self.report: AdjointReport | None = None

    def due(self) -> Learned | None:
        """What this adjoint goes by; None if it has to learn."""
        order = self.order
        if order.learned is not None and order.learned.key != self.key:
            order.learned = order.before = None
        order.since += 1
        again = order.learned is not None and order.learned.bounds and order.since >= order.every
        return None if again else order.learned

    def go(self, learned: Learned | None) -> Fidelity:
        """Carries everything out."""
        start = self.loop.copies() if learned is None or self.order.strict else None
        return self._learn(start) if learned is None else self._follow(learned, start)

    def _follow(self, learned: Learned, start: Any) -> Fidelity:
        """An adjoint with the bounds that are known."""
        found = self.loop.follow(learned)
        effects = self._estimates(learned, found)
        worst = max(effects.values(), default=0.0)
        self._settle(learned, found, worst)
        if worst > self.order.relative:
            if self.order.strict:
                self.loop.put(start)
                return self._learn(start)
            now = "measures new bounds" if self.order.learned is None else "goes by smaller bounds"
            self._warn(
                f"the gradient that was returned is off by about {worst:.1e}, and "
                f"{self.order.relative:g} was asked for; the next adjoint {now}. "
                "strict=True computes such a gradient again."
            )
        return self._said(found, learned, effects)

    def _settle(self, learned: Learned, found: Seen, worst: float) -> None:
        """What the next adjoint goes by: the largest measured bounds with an error that would have
        been well below the target in this one; without any, it measures again."""
        order, levels = self.order, [bounds for bounds, _ in learned.levels]
        held = levels.index(learned.bounds) if levels else 0
        for level in range(len(levels)):
            other = learned.at(level)
            limit = LOW if level < held else HIGH
            if max(self._estimates(other, found).values(), default=0.0) <= limit * order.relative:
                order.learned = other
                return
        if worst > HIGH * order.relative:
            order.before = learned.finer(max(LOW * order.relative / worst, 1e-3))
            order.learned = None

    def _estimates(self, learned: Learned, found: Seen) -> dict[str, float]:
        """The error of each array: that which was measured, as far as the adjoint began with more
        or less than then."""
        grown = found.source / learned.source if learned.source else 1.0
        shares = {
            name: share(error * grown, found.sizes[name])
            for name, error in learned.errors.items()
            if name in found.sizes
        }
        return {name: one if math.isfinite(one) else math.inf for name, one in shares.items()}

    def _learn(self, start: Any) -> Fidelity:
        """An adjoint with lossless states, and those with bounds."""
        before, exact = self.order.before or self.order.learned, self.loop.run(None)
        self.order.check(self.loop.call, exact.gradient)
        end, self.order.since, self.order.before = self.loop.copies(), 0, None
        why, lasting = self._refusal(exact)
        learned = Learned(self.key, (), {}, 0.0, why=why)
        if not why:
            choice = Choice(self.loop, exact, start)
            learned, self.trials = choice.go(self.key, before), choice.trials
            self.order.every = SELDOM if before is not None and self.trials == 1 else EVERY
            self.loop.put(end)
        self.order.learned = learned if lasting else None
        if learned.why:
            self._warn(f"{learned.why}. The states stay lossless.")
        return self._said(exact, learned, dict.fromkeys(self.loop.names(exact), 0.0))

    def _refusal(self, exact: Found) -> tuple[str, bool]:
        """Why no bound may be chosen, and whether what is found now is for later gradients too."""
        sizes = [self.order.norm(exact.gradient[name]) for name in self.loop.names(exact)]
        if not all(map(math.isfinite, sizes)):
            return "the gradient is not finite", False
        if not any(sizes):
            return "the gradient is zero, and nothing is accurate relative to that", False
        for name, begun in exact.begun.items():
            if begun and exact.ended[name] > GROWTH * begun:
                return (
                    f"the adjoint in {name!r} grew {exact.ended[name] / begun:.0e} times over the "
                    "loop, as in chaotic ones: a bound that holds now says nothing of the next "
                    "gradient. Use a shorter loop, or a Bound and `check`",
                    True,
                )
        return "", True

    def _said(self, found: Found | Seen, learned: Learned, effects: dict[str, float]) -> Fidelity:
        """What is known of the gradient."""
        self.report = found.report
        return Fidelity(
            (),
            (self.loop.steps or 0) if found.report is None else found.report.steps,
            {name: Effect(one, one, one) for name, one in effects.items()},
            target=self.order.relative,
            bounds=learned.bounds,
            trials=self.trials,
            raw_bytes=found.bytes[0],
            stored_bytes=found.bytes[1],
            times=self._times(found, learned),
        )

    def _times(self, found: Found | Seen, learned: Learned) -> tuple[Stretch, ...]:
        """What is known by time."""
        stretches = []
        for first, error in learned.parts:
            bound = learned.bound(first)
            assert not isinstance(bound, str), "bounds that were measured begin with the loop"
            known = found.parts.get(first, (0, 0))
            stretches.append(Stretch(first, bound, error * bound.value, *known))
        return tuple(stretches)

    def _warn(self, text: str) -> None:
        told = f"unspool.{self.loop.call}, Gradient: {text}"
        warnings.warn(told, FidelityWarning, stacklevel=6)


def ordered(order: Gradient, job: Job, accumulated: Accumulated) -> AdjointReport:
    """A call of `unspool.adjoint` with a `Gradient`."""
    order.check("adjoint", accumulated.numbers())
    loop = DrivenLoop(job, accumulated, order)
    one = Ordered(loop, loop.key())
    fidelity = one.go(one.due())
    assert one.report is not None, "the driver says what it did"
    return dataclasses.replace(one.report, fidelity=fidelity)


def check_order(call: str, spool: Any, schedule: Any) -> None:
    """Whether bounds can be chosen for a schedule and a spool.

    Raises:
        OptionError: they cannot.
    """
    if isinstance(schedule, Auto):
        raise OptionError(
            f"{call}: {schedule!r} may choose another schedule each time. Give "
            "the one that a run without a `Gradient` has chosen, report.choice.schedule."
        )
    if isinstance(spool, IncrementalSpool):
        raise OptionError(
            f"{call}: its bounds are parts of the range, and a "
            f"{type(spool).__name__} has absolute ones: give a Spool."
        )
