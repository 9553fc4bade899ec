"""Loops that keep what their gradient needs in the fastest way within a budget: all of it, or
segments that are recomputed, whose states wait in XLA's memory or in a spool.

The way is chosen when JAX takes a derivative: only then it is known what that goes through. It is
chosen from sizes, for which a loop is traced and nothing is run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import tree_util
from jax.extend.core import Literal
from unspool._history import free_host
from unspool.advice.plans import NoPlanError
from unspool.advice.segments import Cut, ScanReport, Sizes, Way, balanced, best, least
from unspool.advice.sizes import bytes_of
from unspool.errors import OptionError
from unspool.stats import size

from ._closures import Halves
from ._lanes import lanes
from ._perturbed import Parts, divided, joined

__all__ = ["Planner", "entries", "host_of", "in_pieces", "limit_of"]

#: How many carries, and gradients of constants, there are at once while a step runs. By XLA's
#: account, loops that are drawn at random have no more (`test_jax_peak.py`).
CARRIES, SUMS = 4, 3
#: The least main memory of a spool of our own.
LEAST_HOST = 1 << 20


def limit_of(call: str, budget: Any, segment: Any) -> int | None:
    """The bytes of a budget; None for `"auto"`.

    Raises:
        OptionError: it is not a size, or there is nothing to choose.
    """
    if budget == "auto":
        return None
    if segment != "auto":
        raise OptionError(
            f"{call}(segment={segment!r}, budget={budget!r}): a budget chooses the segments. Leave "
            "one of them out."
        )
    return bytes_of("budget", budget)


class Planner:
    """What chooses the way of a loop.

    Attributes:
        limit: bytes, or None for half of what is free.
        given: whether the states have a spool or a codec that somebody has chosen.
        report: what is told each choice.
    """

    def __init__(self, limit: int | None, given: bool, report: Any) -> None:
        if not (report is None or callable(report)):
            raise OptionError(f"scan(report={report!r:.60}): give a function, such as print.")
        self.limit, self.given, self.report = limit, given, report
        self._told: set[ScanReport] = set()

    def cut(self, steps: Any, parts: Parts, groups: Sequence[Sequence[Any]]) -> ScanReport:
        """How a loop is cut whose gradient goes through these parts.

        Raises:
            NoPlanError: nothing fits into the budget that was given.
        """
        shared = not self.given and jax.default_backend() == "cpu"
        of = _sizes(steps, parts, groups, shared)
        # What a callback does is not to be done again: only our own loop leaves it out.
        alone = self.given or steps.step.calls_back
        ways = (Way.SPOOL,) if alone else (Way.RECOMPUTE, Way.SPOOL)
        budget = self._budget(of)
        if (cut := best(of, budget, ways)) is None:
            budget = self._least(of, ways)
            cut = best(of, budget, ways)
        assert cut is not None
        found = ScanReport(budget, of, cut, ways)
        if self.report is not None and found not in self._told:
            self._told.add(found)
            self.report(found)
        return found

    def _budget(self, of: Sizes) -> int:
        if self.limit is not None:
            return self.limit
        return min(self._half, balanced(of)) if self.given else self._half

    def _least(self, of: Sizes, ways: Sequence[Way]) -> int:
        """What is taken where no more is free; a budget that was given is kept."""
        found = least(of, ways)
        if self.limit is None:
            return found
        raise NoPlanError(
            f"scan(budget={self.limit}): a step saves {size(of.saved)} for its gradient, and a "
            f"state has {size(of.state)}. The least budget is {found} ({size(found)})."
        )

    @functools.cached_property
    def _half(self) -> int:
        return _free() // 2


def in_pieces(steps: Any, cut: Cut, through: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    """A loop in its pieces, as a function of constants, carry and inputs.

    Arguments:
        through: the steps of a loop as such a function, with their states in a spool.
    """
    length = cut.recomputed

    def head(consts: Any, carry: Any, xs: Any) -> Any:
        if cut.way is Way.SPOOL:
            part = steps.part(length, cut.segment)
            return part.apart(through(part)(consts, carry, xs))
        again = jax.checkpoint(lambda carry, x: steps.run(consts, carry, x, cut.segment))
        body = lambda carry, x, *_: again(carry, x)  # noqa: E731
        return steps.over(body, list(carry), xs, length, cut.segment)

    def looped(consts: Any, carry: Any, xs: Any) -> list[Any]:
        if not cut.kept:
            carry, ys = head(consts, carry, xs)
            return [*carry, *ys]
        first, last = steps.cut(xs, 1, length)
        carry, ys = head(consts, carry, [leaf[0] for leaf in first])
        carry, more = steps.run(consts, carry, last, cut.kept)
        return [*carry, *steps.joined([leaf[None] for leaf in ys], more)]

    return looped if cut.count else steps.whole


def host_of(found: ScanReport) -> int | None:
    """The main memory of a spool of our own; None for a share of what is free. Few sizes are told
    apart, as such a spool stays open."""
    half = max(found.budget // 2, LEAST_HOST)
    return 1 << half.bit_length() - 1 if found.sizes.shared else None


def entries(
    steps: Any, parts: Parts, groups: Sequence[Sequence[Any]], limit: int | None, counts: range
) -> int:
    """How many states of a loop of unknown length, of these numbers, fit a budget: the largest odd
    one, or the smallest.

    Arguments:
        steps: has `step`, a function of constants and of the leaves of a carry.
        limit: bytes, or None for half of what is free.

    Raises:
        NoPlanError: the budget that was given is too small.
    """
    step = lambda consts, carry, _: steps.step(consts, *carry)  # noqa: E731
    saved = sum(map(_bytes, _saved(step, parts.step, parts.results, groups)))
    count = lanes(groups)
    fixed = count * (saved + _running(steps, parts, groups))
    # An entry has the number of its step, too. One more has what is not kept.
    entry = count * sum(map(_bytes, steps.carry.leaves)) + 4
    lowest = fixed + (counts[0] + 1) * entry
    if limit is not None and limit < lowest:
        raise NoPlanError(
            f"while_loop(budget={limit}): a state has {size(entry - 4)}. The least budget is "
            f"{lowest} ({size(lowest)})."
        )
    budget = _free() // 2 if limit is None else limit
    found = (budget - fixed) // entry - 1
    return (min(max(found, counts[0]), counts[-1]) - 1) | 1


def _sizes(steps: Any, parts: Parts, groups: Sequence[Sequence[Any]], shared: bool) -> Sizes:
    """What a loop takes: what `jax.vjp` of it holds that its arguments do not."""

    def run(consts: Any, carry: Any, xs: Any) -> list[Any]:
        carry, ys = steps.run(consts, carry, xs, steps.length)
        return [*carry, *ys]

    made = _saved(run, parts.arguments, parts.results, groups)
    # Beside what is stacked over the steps, what is the same in all of them is computed once.
    stacked = sum(_bytes(each) for each in made if each.shape[:1] == (steps.length,))
    outputs = steps.step.avals[len(steps.carry.leaves) :]
    once = sum(map(_bytes, made)) - stacked + _running(steps, parts, groups)
    count = lanes(groups)
    return Sizes(
        steps.length,
        saved=count * stacked // max(steps.length, 1),
        state=count * sum(map(_bytes, steps.carry.leaves)),
        fixed=count * once,
        rows=count * (sum(map(_bytes, steps.xs)) + steps.length * sum(map(_bytes, outputs))),
        shared=shared,
    )


def _saved(
    function: Callable[..., Sequence[Any]],
    arguments: Sequence[Halves],
    results: Sequence[bool],
    groups: Sequence[Sequence[Any]],
) -> list[Any]:
    """What `jax.vjp` of a function holds that its arguments do not."""
    chosen, others = divided(arguments, groups)

    def saved(chosen: Any, others: Any) -> list[Any]:
        def of_chosen(*chosen: Any) -> list[Any]:
            return Halves(tuple(results)).chosen(function(*joined(arguments, chosen, others)))

        return tree_util.tree_leaves(jax.vjp(of_chosen, *chosen)[1])

    jaxpr = jax.make_jaxpr(saved)(chosen, others).jaxpr
    there = {*jaxpr.invars, *jaxpr.constvars}
    found = {each for each in jaxpr.outvars if not isinstance(each, Literal)} - there
    return [each.aval for each in found]


def _running(steps: Any, parts: Parts, groups: Sequence[Sequence[Any]]) -> int:
    """What the step that is running takes beside what it saves: the carry, its gradient and those
    of constants, before and after it, and once more where one loop hands them to the next."""
    consts = parts.arguments[0].chosen(groups[0])
    return CARRIES * sum(map(_bytes, steps.carry.leaves)) + SUMS * sum(map(_bytes, consts))


def _bytes(like: Any) -> int:
    return int(like.size * like.dtype.itemsize)


def _free() -> int:
    """The bytes that are free where JAX computes."""
    given = jax.config.jax_default_device
    device = given if isinstance(given, jax.Device) else jax.local_devices(backend=given)[0]
    if device.platform == "cpu":
        return free_host()
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        raise OptionError('scan(budget="auto"): this device does not say what is free: give bytes.')
    return max(0, int(stats["bytes_limit"] - stats["bytes_in_use"]))
