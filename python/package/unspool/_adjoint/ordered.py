"""An adjoint whose bounds follow from the accuracy that its gradient has to have.

`Ordered` runs the loop with lossless states and again with bounds, from the same first state and
the same `adjoint_state`, and compares the gradients: recomputed states and everything that is not
linear are in what it measures. `unspool._gradient.search` says which bound is next.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

from .._gradient import Gradient, Learned
from .._gradient.search import COARSEST, Search, shaped
from ..codecs.values import Bound
from .accumulated import Accumulated
from .report import AdjointReport, Effect, Fidelity, FidelityWarning
from .run import Job, Run
from .states import named_arrays

__all__ = ["Ordered"]

#: Stretches of time with bounds of their own, and the steps for which that is worth the trials.
STRETCHES, LONG = 4, 16

#: The first bound that is tried, as part of the target.
FIRST = 0.03

#: How far an adjoint may grow for bounds to be trusted in the next gradient.
GROWTH = 1e6

#: Adjoints after which bounds are measured again.
EVERY = 50


class Found(NamedTuple):
    """What one run has found.

    Attributes:
        gradient: what it added to each array, in double precision.
        begun: the norms of what the adjoint began with.
        ended: the norms of the same arrays at the end.
        report: what the driver says.
        bytes: those that were encoded, and what they became.
    """

    gradient: dict[str, Any]
    begun: dict[str, float]
    ended: dict[str, float]
    report: AdjointReport
    bytes: tuple[int, int]


class BoundedRun(Run):
    """A run in which each state has the bound of its time."""

    def __init__(self, job: Job, learned: Learned | None) -> None:
        super().__init__(job)
        self.learned = learned

    def codec_of(self, step: int) -> Any:
        """The codec of the state before a step."""
        return "lossless" if self.learned is None else self.learned.bound(step)


class Ordered:
    """One call of `unspool.adjoint` with a `Gradient`."""

    def __init__(self, job: Job, accumulated: Accumulated, order: Gradient) -> None:
        self.job, self.accumulated, self.order = job, accumulated, order
        self.steps = job.schedule.steps
        self.key = self._key()
        self.trials = 0

    def go(self) -> AdjointReport:
        """Carries everything out."""
        order = self.order
        if order.learned is not None and order.learned.key != self.key:
            order.learned = None
        order.since += 1
        if order.learned is None or (order.learned.bounds and order.since >= EVERY):
            return self._learn(self._copies())
        start = self._copies() if order.strict and order.learned.bounds else None
        return self._follow(order.learned, start)

    def _follow(self, learned: Learned, start: Any) -> AdjointReport:
        """An adjoint with the bounds that are known."""
        found = self._run(learned, self.job)
        effects = self._estimates(learned, found)
        worst = max(effects.values(), default=0.0)
        if learned.bounds and not worst <= self.order.relative:
            self.order.learned = None
            if start is not None:
                self._put(start)
                return self._learn(start)
            self._warn(
                f"the gradient that was returned is off by about {worst:.1e}, and {self._asked()}; "
                "the next adjoint measures new bounds. strict=True computes such a gradient again."
            )
        return self._said(found, learned, effects)

    def _estimates(self, learned: Learned, found: Found) -> dict[str, float]:
        """The error of each array, from that which was measured."""
        source = math.hypot(*found.begun.values())
        grown = source / learned.source if learned.source else 1.0
        return {
            name: _share(error * grown, self.order.norm(found.gradient[name]))
            for name, error in learned.errors.items()
        }

    def _learn(self, start: Any) -> AdjointReport:
        """An adjoint with lossless states, and those with bounds."""
        first = self.order.learned
        exact = self._run(None, self.job)
        end, self.order.since = self._copies(), 0
        why, lasting = self._refusal(exact)
        if why:
            learned = self._lossless(exact, why)
            self.order.learned = learned if lasting else None
        else:
            learned = self.order.learned = self._chosen(exact, start, first)
            self._put(end)
        if learned.why:
            self._warn(f"{learned.why}. Its states stay lossless.")
        return self._said(exact, learned, dict.fromkeys(self._names(exact), 0.0))

    def _refusal(self, exact: Found) -> tuple[str, bool]:
        """Why no bound may be chosen, and whether that is so for later gradients too."""
        sizes = {name: self.order.norm(exact.gradient[name]) for name in self._names(exact)}
        if not all(map(math.isfinite, sizes.values())):
            return "the gradient is not finite", False
        if not any(sizes.values()):
            return "the gradient is zero, and nothing is accurate relative to that", False
        for name, begun in exact.begun.items():
            if begun and exact.ended[name] > GROWTH * begun:
                grown = exact.ended[name] / begun
                return (
                    f"the adjoint {name!r} grew {grown:.0e} times over the loop, as in chaotic "
                    "ones: no bound that holds now is known to hold for the next gradient. Use "
                    "shorter loops",
                    True,
                )
        return "", False

    def _chosen(self, exact: Found, start: Any, first: Learned | None) -> Learned:
        """The bounds of later adjoints."""
        target = self.order.relative
        one = first.bounds[0][1].value if first and first.bounds else FIRST * target
        shape: tuple[tuple[int, float], ...] = ((0, 1.0),)
        errors: dict[float, dict[str, Any]] = {}
        search = Search(target, one)
        self._searched(search, shape, exact, start, errors)
        found = search.chosen()
        if found is not None and found < COARSEST and any(map(_any, errors[found].values())):
            shape = self._shape(found, exact, start)
            largest = max(factor for _, factor in shape)
            search = Search(target, found, COARSEST / largest)
            errors = {}
            self._searched(search, shape, exact, start, errors)
            found = search.chosen()
        if found is None:
            return self._lossless(exact, self._why(start, exact))
        bounds = tuple((step, _bound(found * factor)) for step, factor in shape)
        norms = {name: self.order.norm(each) for name, each in errors[found].items()}
        return Learned(self.key, bounds, norms, math.hypot(*exact.begun.values()))

    def _searched(
        self, search: Search, shape: Any, exact: Found, start: Any, errors: dict[float, Any]
    ) -> None:
        """Measures bounds until one is near the target."""
        while (bound := search.next()) is not None:
            bounds = tuple((step, _bound(bound * factor)) for step, factor in shape)
            errors[bound] = self._errors(bounds, exact, start)
            search.add(bound, self._worst(errors[bound], exact))

    def _shape(self, bound: float, exact: Found, start: Any) -> tuple[tuple[int, float], ...]:
        """The factors of the bounds of stretches of time, and the steps that they begin with."""
        steps = self.steps
        if steps is None or steps < LONG:
            return ((0, 1.0),)
        edges = [n * steps // STRETCHES for n in range(STRETCHES)]
        ends = [*edges[1:], steps + 1]
        single = [
            self._errors(_only(begin, end, bound), exact, start)
            for begin, end in zip(edges, ends, strict=True)
        ]
        products = [[self._product(one, other, exact) for other in single] for one in single]
        counts = [end - begin for begin, end in zip(edges, ends, strict=True)]
        return tuple(zip(edges, shaped(products, counts), strict=True))

    def _product(self, one: dict[str, Any], other: dict[str, Any], exact: Found) -> float:
        """How the errors of two stretches go together: in the array where that is the most."""
        found = [0.0]
        for name, mine in one.items():
            size = self.order.norm(exact.gradient[name])
            if self.order.component:
                both = self.order.norm(mine) * self.order.norm(other[name])
            else:
                both = float((mine * other[name].conj()).real.sum())
            found.append(_share(both, size**2))
        return max(found)

    def _errors(self, bounds: Any, exact: Found, start: Any) -> dict[str, Any]:
        """What bounds do to each array of the gradient."""
        self._put(start)
        self.trials += 1
        quietly = dataclasses.replace(self.job, progress=None)
        found = self._run(Learned(None, bounds, {}, 0.0), quietly)
        return {name: found.gradient[name] - exact.gradient[name] for name in self._names(exact)}

    def _worst(self, errors: dict[str, Any], exact: Found) -> float:
        """The largest relative error of an array; infinite where one is not finite."""
        norm = self.order.norm
        shares = [_share(norm(each), norm(exact.gradient[name])) for name, each in errors.items()]
        return max((one if math.isfinite(one) else math.inf for one in shares), default=0.0)

    def _why(self, start: Any, exact: Found) -> str:
        """Why there is no bound: perhaps the steps do not repeat themselves."""
        errors = self._errors((), exact, start)
        if self._worst(errors, exact) > 0:
            return (
                "the same loop with lossless states gave another gradient: its steps do not repeat "
                "themselves, or `adjoint_state` is not all that they change"
            )
        zero = [name for name, one in exact.gradient.items() if not self.order.norm(one)]
        about = (
            f" Of these arrays, {', '.join(zero)} were zero: name others by `of`" if zero else ""
        )
        return f"no bound of the states holds {self.order.relative:g} of the gradient.{about}"

    def _lossless(self, exact: Found, why: str) -> Learned:
        return Learned(self.key, (), dict.fromkeys(self._names(exact), 0.0), 0.0, why)

    def _run(self, learned: Learned | None, job: Job) -> Found:
        """One whole adjoint."""
        spool, before = job.spool, self.accumulated.numbers()
        begun: dict[str, Any] = dict(before)
        if job.at_end is not None:
            at_end = job.at_end

            def noted(state: Any) -> None:
                at_end(state)
                begun.update(self.accumulated.numbers())

            job = dataclasses.replace(job, at_end=noted)
        moved = spool.stats().codec
        report = BoundedRun(job, learned).go()
        after, numbers = spool.stats().codec, self.accumulated.numbers()
        # What was replaced at the end of the forward pass is no sum that the gradient is added to.
        bases = {name: one if _same(one, before.get(name)) else 0.0 for name, one in begun.items()}
        gradient = {name: one - bases.get(name, 0.0) for name, one in numbers.items()}
        sources = {name: _norm(one) for name, one in begun.items()}
        ended = {name: _norm(numbers[name]) for name in sources if name in numbers}
        encoded = after.raw_bytes - moved.raw_bytes, after.stored_bytes - moved.stored_bytes
        return Found(gradient, sources, ended, report, encoded)

    def _names(self, exact: Found) -> list[str]:
        return [name for name in exact.gradient if self.order.counts(name)]

    def _said(self, found: Found, learned: Learned, effects: dict[str, float]) -> AdjointReport:
        """The report, with what is known of the gradient."""
        arrays = {name: Effect(one, one, one) for name, one in effects.items()}
        fidelity = Fidelity(
            (),
            found.report.steps,
            arrays,
            target=self.order.relative,
            bounds=learned.bounds,
            trials=self.trials,
            raw_bytes=found.bytes[0],
            stored_bytes=found.bytes[1],
        )
        return dataclasses.replace(found.report, fidelity=fidelity)

    def _asked(self) -> str:
        return f"{self.order.relative:g} was asked for"

    def _warn(self, text: str) -> None:
        warnings.warn(f"unspool.adjoint, Gradient: {text}", FidelityWarning, stacklevel=6)

    def _copies(self) -> Any:
        """The working state and what reverse steps change."""
        state = self.job.state
        held = state.now() if state.frozen else Accumulated(state.now(), "state").copied()
        return held, self.accumulated.copied()

    def _put(self, copies: Any) -> None:
        """What was copied is there again."""
        held, accumulated = copies
        state = self.job.state
        if state.frozen:
            state.put_back(held)
        else:
            Accumulated(state.now(), "state").put(held)
        self.accumulated.put(accumulated)

    def _key(self) -> Any:
        arrays = named_arrays(self.job.state.now())
        shapes = {
            name: (tuple(map(int, getattr(one, "shape", ()))), str(getattr(one, "dtype", "")))
            for name, one in arrays.items()
        }
        return repr(self.job.schedule), repr(shapes), repr(self.accumulated.shapes())


def _bound(value: float) -> Bound:
    return Bound(range=min(value, COARSEST))


def _only(begin: int, end: int, bound: float) -> tuple[tuple[int, Any], ...]:
    """Bounds of one stretch alone."""
    return ((0, "lossless"), (begin, _bound(bound)), (end, "lossless"))


def _share(error: float, size: float) -> float:
    return 0.0 if error == 0 else error / size if size else math.inf


def _any(array: Any) -> bool:
    return bool(array.any())


def _same(one: Any, other: Any) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())


def _norm(array: Any) -> float:
    return math.sqrt(float((abs(array) ** 2).sum()))
