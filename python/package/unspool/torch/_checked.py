"""What a codec does to the gradient of a loop: `check=` of `scan` and of `adjoint`.

`adjoint` is checked by the driver of `unspool.adjoint`, which has to know what a reverse step
changes. A `scan` has no driver, as autograd goes back through it. Before autograd
does, `Check` goes back through copies of the segments, once from the states that a codec has
changed and once more with exact states at some of them, and compares the two.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from unspool._adjoint.fidelity import Comparison, spread, warn
from unspool._adjoint.report import Fidelity
from unspool.errors import OptionError

from ._again import Moment
from ._backwards import Backwards, Gradients
from ._trees import Rows

__all__ = ["Check", "Told", "count_of"]

Told = Callable[[Fidelity], Any]


def count_of(call: str, check: Any, fidelity: Told | None, ordered: bool = False) -> int:
    """The number of states that are to be checked; `ordered` if a `Gradient` is given.

    Raises:
        OptionError: it is not a number of states, or there is a function and nothing to tell it, or
            a `Gradient` beside it.
    """
    try:
        count = operator.index(check)
    except TypeError:
        count = -1
    if count < 0:
        raise OptionError(f"{call}(check={check!r}): write a number of states, 0 or more.")
    if fidelity is not None and not callable(fidelity):
        raise OptionError(f"{call}(fidelity={fidelity!r}): that is not a function.")
    if count and ordered:
        raise OptionError(f"{call}(check={check}): not together with a Gradient, which checks.")
    if fidelity is not None and not count and not ordered:
        raise OptionError(f"{call}(fidelity=...): say how many states to check, as by check=16.")
    return count


class Check(Backwards):
    """What is checked of one scan.

    Nothing in it keeps the states of the loop alive: they are discarded when the graph lets go of
    its segments.
    """

    def __init__(
        self,
        step: Callable[[Any, Any], Any],
        init: Any,
        rows: Rows,
        restored: int,
        count: int,
        told: Told | None,
    ) -> None:
        super().__init__(step, init, rows, "check=...")
        self.restored, self.told = restored, told
        self.chosen = tuple(spread(restored, count))

    def add(
        self, carry: Any, steps: range, start: Any, moment: Moment, exact: Callable[[], Any]
    ) -> None:
        """The next segment begins with a carry; `exact` makes a copy of it without loss."""
        wanted = start is None or len(self.segments) in self.chosen
        held = None if start is None else weakref.ref(start)
        self.note(steps, held, exact() if wanted else None, moment)

    def run(self, after: Sequence[Any], ys: Sequence[Any], y: Callable[[int], list[Any]]) -> None:
        """Goes back through copies of all segments, once."""
        segments, self.segments = self.segments, []
        starts = [None if each.start is None else each.start() for each in segments]
        if not segments or None in starts[:-1]:
            return
        self.gradients.after, self.y = list(after), y
        comparison = Comparison(self.gradients, self.restored, self.chosen)
        self.back(segments[-1], segments[-1].exact)
        for n in reversed(range(self.restored)):
            again = functools.partial(self.back, segments[n])
            exact = segments[n].exact
            exactly = None if exact is None else contextlib.nullcontext(exact)
            comparison.back(n, functools.partial(again, starts[n]), again, starts[n], exactly)
        found = comparison.found()
        self.gradients, self.y = Gradients([], self.rows), lambda n: []
        warn("torch.scan", found, stacklevel=3)
        if self.told is not None:
            self.told(found)
