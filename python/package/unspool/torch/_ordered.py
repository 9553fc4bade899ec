"""`codec=unspool.Gradient(...)` of `unspool.torch.adjoint`: its loop, as it is run several times.

A run is a forward pass and a backward pass with the same gradients of the results. The first
forward pass was made before these were known, with the codecs of what was learned before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from unspool._adjoint.measured import Found, Loop, Seen, encoded
from unspool._adjoint.report import AdjointReport
from unspool._gradient import Gradient, Learned, norm_of

from ._backwards import Gradients

__all__ = ["TorchLoop"]

#: What a run returns: its gradients as they are given to autograd, the same by name, its report.
Ran = tuple[list[Any], Gradients, AdjointReport]


class TorchLoop(Loop):
    """The loop of one call.

    Attributes:
        gradients: those that the last run returned.
    """

    def __init__(
        self,
        order: Gradient,
        steps: int,
        spool: Any,
        given: Sequence[Any],
        back: Callable[[Learned | None], Ran],
    ) -> None:
        super().__init__("torch.adjoint", order, steps)
        self.spool, self.back = spool, back
        self.source = math.hypot(*(norm_of(one) for one in given if one is not None))
        self.gradients: list[Any] = []

    def run(self, learned: Learned | None, quietly: bool = False) -> Found:
        """Both passes, with lossless states where there are no bounds."""
        before = self.spool.stats().codec
        self.gradients, named, report = self.back(learned)
        numbers = named.numbers()
        ended = math.hypot(*(norm_of(one) for one in named.after if one is not None))
        coded = encoded(before, self.spool.stats().codec)
        begun = {"carry": self.source}
        return Found(numbers, begun, {"carry": ended}, frozenset(), report, coded)

    def follow(self, learned: Learned) -> Seen:
        """Both passes with bounds that are known, of which only norms are looked at."""
        before = self.spool.stats().codec
        self.gradients, found, report = self.back(learned)
        named = found.named()
        sizes = {name: self.order.norm(named[name].detach()) for name in learned.errors}
        return Seen(sizes, self.source, report, encoded(before, self.spool.stats().codec))

    def copies(self) -> Any:
        """The gradients: all else is put back by each pass."""
        return self.gradients

    def put(self, copies: Any) -> None:
        """Gradients of an earlier run are those that are returned."""
        self.gradients = copies
