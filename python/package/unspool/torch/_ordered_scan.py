"""`codec=unspool.Gradient(...)` of `unspool.torch.scan`: its loop, as it is gone back through
several times.

Steps go forwards from exact states whatever the codec is, so that a trial needs no forward pass:
copies of the segments are computed again from states that were encoded with a bound, and gone back
through. Autograd then goes back by itself. With known bounds it alone does, and hooks note the
norms of the gradients that it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import Variable
from unspool._adjoint.measured import Found, Loop, Seen, encoded
from unspool._adjoint.ordered import Ordered, check_order
from unspool._gradient import Gradient, Learned, norm_of
from unspool.errors import OptionError

from ._again import Moment
from ._backwards import Backwards, Segment
from ._checked import Told
from ._graph import leaves_reached
from ._trees import Outputs, Rows, flatten, unflatten

__all__ = ["OrderedScan", "check_scan"]


def check_scan(order: Gradient, spool: Any, until: Any) -> None:
    """Whether bounds can be chosen for a scan.

    Raises:
        OptionError: they cannot.
    """
    call = f"torch.scan(codec={order!r})"
    if until is not None:
        raise OptionError(
            f"{call}: bounds are chosen for a loop of a known length, and `until` ends this one at "
            "any step: give `length` alone."
        )
    if order.strict:
        raise OptionError(
            f"{call}: with strict=True a gradient would have to be taken back that autograd has "
            "passed on: use unspool.torch.adjoint, or leave strict=True away."
        )
    if spool is not None:
        check_order(call, spool, None)


class OrderedScan(Backwards):
    """What is known and measured of one scan.

    Attributes:
        learned: what its states are encoded by; None if they are lossless, to learn.
        restored: the number of states that are kept.
        coded: the bytes of these states, and what they became.
    """

    def __init__(
        self,
        step: Callable[[Any, Any], Any],
        init: Any,
        rows: Rows,
        order: Gradient,
        told: Told | None,
    ) -> None:
        super().__init__(step, init, rows, "codec=Gradient(...)")
        self.order, self.told = order, told
        self.learned: Learned | None = None
        self.restored, self.coded = 0, (0, 0)
        self.spool: Any = None
        self._init = flatten(init)[0]
        # The first steps, of which there is a graph: the carry before them.
        self._early: tuple[Any, range, Moment] | None = None
        self._edges: set[tuple[Any, int]] = set()
        self._versions = {name: each._version for name, each in self._watched().items()}

    def early(self, carry: Any, steps: range, moment: Moment) -> None:
        """Some steps are taken before it is known how the loop is cut."""
        leaves, tree = flatten(carry)
        copies = {
            id(each): each.detach().clone().requires_grad_(each.requires_grad)
            for each in leaves
            if isinstance(each, torch.Tensor)
        }
        carry = unflatten([copies.get(id(each), each) for each in leaves], tree)
        self._early = carry, steps, moment

    def segment(self, longest: int, leaves: Sequence[Any], steps: Any, free: bool) -> int:
        """The steps of a segment: as when bounds were chosen, if that is not too long."""
        shapes = [(tuple(each.shape), str(each.dtype)) for each in leaves]
        rows = [(tuple(each.shape), str(each.dtype)) for each in self.rows.leaves]
        loop = "torch.scan", steps, repr(shapes), repr(rows)
        learned = self.order.learned
        held: Any = learned.key if learned is not None else None
        same = isinstance(held, tuple) and held[:-1] == loop and held[-1] <= longest
        length = held[-1] if free and same else longest
        self.key = *loop, length
        return length

    def begin(self, restored: int) -> Learned | None:
        """What so many states are encoded by."""
        self.restored = restored
        self.learned = Ordered(_ScanLoop(self, ()), self.key).due()
        return self.learned

    def keep_early(self, exact: Callable[[Any], Any], spool: Any) -> None:
        """The first steps are a segment too, where the loop is to be learned."""
        early, self._early, self.spool = self._early, None, spool
        self._before = spool.stats().codec
        if early is not None and self.learned is None:
            carry, steps, moment = early
            self.note(steps, None, exact(carry), moment)

    def add(
        self, carry: Any, steps: range, start: Any, moment: Moment, exact: Callable[[], Any]
    ) -> None:
        """The next segment begins with a carry; `exact` makes a copy of it without loss."""
        if start is None:
            known = [*flatten(carry)[0], *self.rows.leaves]
            tensors = [each for each in known if isinstance(each, torch.Tensor)]
            self._edges = {(each.grad_fn, each.output_nr) for each in tensors}
        if self.learned is not None:
            return
        if start is None:
            self.note(steps, None, exact(), moment)
        else:
            # The graph may let go of a segment from which it needs nothing.
            self.note(steps, lambda: start, None, moment)

    def results(self, carry: Any, outputs: Outputs) -> tuple[Any, Any]:
        """The results of the loop, through which nobody goes back without `run`."""
        last = [*flatten(carry)[0], *outputs.last()]
        tensors = [each for each in last if isinstance(each, torch.Tensor)]
        given = {id(each) for each in (*self._init, *self.rows.leaves)}
        found = {id(each): each for each in leaves_reached(tensors, self._edges)}
        self.params = [each for key, each in found.items() if key not in given]
        self._edges = set()
        watched = self._watched().items()
        self._versions = {name: each._version for name, each in watched} | self._versions
        self.coded = encoded(self._before, self.spool.stats().codec)
        return super().results(carry, outputs)

    def _watched(self) -> dict[str, torch.Tensor]:
        """The tensors whose gradients are looked at."""
        given = {"init": self._init, "xs": self.rows.leaves, "params": self.params}
        named = {f"{of}[{n}]": each for of, all_ in given.items() for n, each in enumerate(all_)}
        return {
            name: each
            for name, each in named.items()
            if isinstance(each, torch.Tensor) and each.requires_grad
        }

    def run(self, after: Sequence[Any], ys: Sequence[Any], y: Callable[[int], list[Any]]) -> None:
        """Autograd begins to go back: learns, or notes what it finds."""
        loop = _ScanLoop(self, [each for each in (*after, *ys) if each is not None])
        one = Ordered(loop, self.key)
        if self.learned is None:
            if self.segments:
                loop.begin(after, y)
                self._tell(one.go(None))
            self.segments, self.y = [], lambda n: []
            return
        learned = self.learned
        hooks = [
            each.register_hook(loop.noting(name))
            for name, each in self._watched().items()
            if name in learned.errors and each._version == self._versions[name]
        ]

        def ended() -> None:
            for hook in hooks:
                hook.remove()
            self._tell(one.go(learned))

        Variable._execution_engine.queue_callback(ended)

    def _tell(self, found: Any) -> None:
        if self.told is not None:
            self.told(found)


class _ScanLoop(Loop):
    """One pass of autograd, and the copies of segments that are gone back through before it."""

    def __init__(self, scan: OrderedScan, given: Sequence[torch.Tensor]) -> None:
        super().__init__("torch.scan", scan.order, scan.restored)
        self.scan = scan
        self.source = math.hypot(*(norm_of(each.detach()) for each in given))
        self.sizes: dict[str, float] = {}
        self._after: list[Any] = []

    def noting(self, name: str) -> Callable[[torch.Tensor], None]:
        """A hook that notes the norm of a gradient: the last one in a pass is the whole one."""

        def note(gradient: torch.Tensor) -> None:
            self.sizes[name] = self.order.norm(gradient.detach())

        return note

    def begin(self, after: Sequence[Any], y: Callable[[int], list[Any]]) -> None:
        """Takes the gradients with which autograd begins to go back."""
        self._after, self.scan.y = list(after), y

    def run(self, learned: Learned | None, quietly: bool = False) -> Found:
        """A pass over copies of the segments, with lossless states where there are no bounds."""
        scan, grown, number = self.scan, 0.0, self.scan.restored
        found = scan.gradients
        found.put((self._after, [None] * len(scan.params), None))
        for segment in reversed(scan.segments):
            number -= segment.exact is None
            scan.back(segment, self._start(segment, number, learned))
            norms = [norm_of(each) for each in found.after if each is not None]
            grown = max(grown, math.hypot(*norms))
        begun, ended = {"carry": self.source}, {"carry": grown}
        return Found(found.numbers(), begun, ended, frozenset(), None, scan.coded)

    def _start(self, segment: Segment, number: int, learned: Learned | None) -> Any:
        """The carry with which a segment starts; `number` counts those that are kept."""
        if segment.exact is not None:
            return segment.exact
        assert segment.start is not None
        start = segment.start()
        return start if learned is None else start.within(learned.bound(number))

    def follow(self, learned: Learned) -> Seen:
        """What autograd has found with bounds that are known."""
        return Seen(self.sizes, self.source, None, self.scan.coded)

    def copies(self) -> Any:
        """Nothing: a pass over copies changes nothing."""
        return None

    def put(self, copies: Any) -> None:
        """Nothing was changed."""
