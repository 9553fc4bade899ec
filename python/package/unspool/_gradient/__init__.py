"""Bounds of states from the accuracy that a gradient has to have.

`Gradient` is what a caller gives and keeps; `search` the rule by which its bounds are found. What
measures with them is the driver of the adjoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..codecs.values import Bound
from ..errors import OptionError

__all__ = ["EVERY", "Gradient", "Learned", "norm_of", "refuse_gradient"]

#: Adjoints after which bounds are measured again for the first time.
EVERY = 50

#: Largest and smallest relative error that can be asked for.
LARGEST, SMALLEST = 0.5, 1e-12


@dataclass(frozen=True, slots=True)
class Learned:
    """What was found for one loop.

    Attributes:
        key: the loop: its steps and shapes.
        bounds: the bound of each stretch of time and the step that it begins with; empty where
            states have to stay lossless.
        errors: the error that they cause in each array of the gradient, in its unit.
        source: the norm of what the adjoint began with.
        began: the names of the arrays that it began with.
        added: the names of those to which it adds.
        why: why states stay lossless.
        levels: bounds and errors that were measured, the coarsest first; these are among them.
        parts: stretches of time, by their first steps, and the relative error of the gradient that
            a bound of 1 in each alone would cause; empty where they were not measured.
    """

    key: Any
    bounds: tuple[tuple[int, Bound], ...]
    errors: Mapping[str, float]
    source: float
    began: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    why: str = ""
    levels: tuple[tuple[tuple[tuple[int, Bound], ...], Mapping[str, float]], ...] = ()
    parts: tuple[tuple[int, float], ...] = ()

    def at(self, level: int) -> Learned:
        """The same with other bounds that were measured."""
        bounds, errors = self.levels[level]
        return replace(self, bounds=bounds, errors=errors)

    def finer(self, factor: float) -> Learned:
        """The same with bounds that are smaller, of which nothing is known."""
        made = tuple((n, Bound(**{one.kind: one.value * factor})) for n, one in self.bounds)
        return replace(self, bounds=made, levels=())

    def bound(self, step: int) -> Bound | str:
        """The codec of the state before a step."""
        found: Bound | str = "lossless"
        for first, bound in self.bounds:
            if first <= step:
                found = bound
        return found


class Gradient:
    """Accuracy of a gradient, in the place of a codec: `access=Access(codec=Gradient(1e-3))` of
    `unspool.adjoint`, `codec=Gradient(1e-3)` of `unspool.torch.adjoint`, `unspool.torch.scan` and
    `unspool.interop.deepwave.history`.

    The first adjoint returns the gradient of lossless states. It runs the loop several times more,
    with bounds, and measures what each does to the gradient. Later adjoints of the same loop use
    the largest bound whose error was at most 0.7 of the target. Keep the object between them: it
    holds what was found, and begins anew when shapes, the number of steps or the schedule change.

    An adjoint with bounds estimates its error: that of the bounds, scaled by what the adjoint
    began with, compared with the gradient that was found. If the estimate is above 0.7 of the
    target, the next adjoint goes by smaller bounds that were measured as well, or measures again.
    If it is above the target there is an `unspool.types.FidelityWarning`. One in 50 adjoints
    measures in any case, and one in 100 once bounds have held.

    Where bounds cannot hold the target, states stay lossless, and a warning says why.

    Arguments:
        relative: the largest error of each array of the gradient, as part of its norm.
        component: the largest error of a value as part of the largest value, in place of L2.
        strict: where an estimate is above the target, run the loop again at once and return the
            gradient of lossless states.
        of: names in `adjoint_state` of the arrays that have to be so accurate; None for all. In
            `unspool.torch` they are `"init"`, `"xs"` and `"params"`, or `"params[0]"`.

    Raises:
        OptionError: an argument makes no sense.
    """

    def __init__(
        self,
        relative: float,
        *,
        component: bool = False,
        strict: bool = False,
        of: Iterable[str] | str | None = None,
    ) -> None:
        number = isinstance(relative, int | float) and not isinstance(relative, bool)
        if not number or not SMALLEST <= relative <= LARGEST:
            raise OptionError(
                f"Gradient({relative!r}): write a relative error from {SMALLEST:g} to {LARGEST:g}, "
                "such as Gradient(1e-3)."
            )
        self.relative, self.component, self.strict = float(relative), component, strict
        self.of = (of,) if isinstance(of, str) else None if of is None else tuple(of)
        self.learned: Learned | None = None
        # Bounds that do not hold any more, with which a search begins.
        self.before: Learned | None = None
        # Adjoints since the last measurement, and those after which there is another one.
        self.since, self.every = 0, EVERY

    def __repr__(self) -> str:
        options = [f"{self.relative:g}"]
        options += [f"{name}=True" for name in ("component", "strict") if getattr(self, name)]
        options += [] if self.of is None else [f"of={self.of!r}"]
        return f"<Gradient({', '.join(options)}): {self._state()}>"

    def _state(self) -> str:
        if self.learned is None:
            return "nothing measured yet"
        if not self.learned.bounds:
            return f"lossless, {self.learned.why}"
        values = [bound.value for _, bound in self.learned.bounds]
        low, high = min(values), max(values)
        shown = f"{low:.1e}" if low == high else f"{low:.1e} to {high:.1e}"
        return f"{self.learned.bounds[0][1].kind} bounds of {shown}"

    def counts(self, name: str) -> bool:
        """Whether an array of `adjoint_state` has to be so accurate."""
        return self.of is None or name in self.of or _group(name) in self.of

    def check(self, call: str, held: Mapping[str, Any]) -> None:
        """Whether all names of `of` are among those of arrays.

        Raises:
            OptionError: one is not.
        """
        for name in self.of or ():
            if name not in held and name not in map(_group, held):
                known = ", ".join(map(repr, held))
                raise OptionError(f"{call}({self!r}): there is no gradient {name!r}, but {known}.")

    def norm(self, array: Any) -> float:
        """The size of an array of any library, or of an error of it."""
        return largest(array) if self.component else norm_of(array)


def largest(array: Any) -> float:
    """The largest magnitude in an array, where the array is."""
    return float(abs(array).max()) if math.prod(array.shape) else 0.0


def norm_of(array: Any) -> float:
    """The L2 norm of an array, where the array is; relative to the largest value, so that squares
    of short floating point numbers neither vanish nor overflow."""
    most = largest(array)
    if not most or not math.isfinite(most):
        return most
    return most * math.sqrt(float(((abs(array) / most) ** 2).mean()) * math.prod(array.shape))


def _group(name: str) -> str:
    """What an array is part of: `params` of `params[0]`, `all` of `all/0`."""
    return name.replace("[", "/").partition("/")[0]


def refuse_gradient(call: str, codec: Any) -> None:
    """Refuses a `Gradient` where only a codec can be given.

    Raises:
        OptionError: it is one.
    """
    if isinstance(codec, Gradient):
        raise OptionError(
            f"{call}(codec={codec!r}): its bounds are chosen outside of a traced program, by "
            "gradients that are computed one after the other. Use unspool.adjoint with jitted "
            "steps, which takes it; or give a Bound and compare two gradients."
        )
