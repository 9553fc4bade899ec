"""Going back through copies of the segments of a scan, beside autograd.

What a codec does to a gradient is measured so: `Check` and `OrderedScan` go back through the
segments from states of their choice, before autograd does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from unspool._adjoint.accumulated import in_numpy
from unspool.errors import ArrayError

from ._again import Moment
from ._graph import leaves_reached
from ._trees import Outputs, Rows, flatten, taken_apart, unflatten

__all__ = ["Backwards", "Gradients", "Segment"]


class Gradients:
    """The gradients of a loop while they are taken back over its steps. Lists in it are replaced
    and never changed, so that a copy is another reference.

    Attributes:
        after: those of the carry, by its leaves.
        sums: those of what the steps read, so far.
    """

    def __init__(self, init: Sequence[Any], rows: Rows) -> None:
        self._grows = [_needs_gradient(leaf) for leaf in init]
        self._xs = rows
        self.after: list[Any] = []
        self.sums: list[Any] = []
        # The inputs of the last step that was taken back, and those of the later ones.
        self._rows: tuple[list[Any], Any] | None = None

    def add_row(self, gradients: list[Any]) -> None:
        """Those of the inputs of the step before those that were taken back."""
        self._rows = gradients, self._rows

    def rows(self) -> Iterator[list[Any]]:
        """Those of the inputs of all steps that were taken back, in the order of the steps."""
        ahead = self._rows
        while ahead is not None:
            row, ahead = ahead
            yield row

    def copied(self) -> Any:
        """What is there now."""
        return self.after, self.sums, self._rows

    def put(self, copies: Any) -> None:
        """What was there when `copied` was called is there again."""
        self.after, self.sums, self._rows = copies

    def numbers(self) -> dict[str, Any]:
        """Those of tensors that need a gradient, by name, in double precision."""
        return {name: in_numpy(each) for name, each in self.named().items()}

    def named(self) -> dict[str, Any]:
        """Those of tensors that need a gradient, by name, as they are."""
        named = {
            f"init[{n}]": each
            for n, (grows, each) in enumerate(zip(self._grows, self.after, strict=False))
            if grows
        }
        named |= {f"params[{n}]": each for n, each in enumerate(self.sums)}
        found = {name: each for name, each in named.items() if each is not None}
        rows = list(self.rows())
        for n, leaf in enumerate(self._xs.leaves):
            if leaf.requires_grad and rows:
                column = [None] * (len(leaf) - len(rows)) + [row[n] for row in rows]
                zero = torch.zeros_like(leaf[0])
                found[f"xs[{n}]"] = torch.stack([zero if each is None else each for each in column])
        return found


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps, and the carry with which they start.

    Attributes:
        first, count: the steps.
        start: says the carry as it comes back, or None where nobody refers to it any more; None
            for a segment that is not computed again.
        exact: says it without loss, for the last segment and for others where that is asked for.
        moment: what was there when it began.
    """

    first: int
    count: int
    start: Callable[[], Any] | None
    exact: Any
    moment: Moment


class Backwards:
    """The segments of one scan, and the gradients while they are taken back.

    Attributes:
        option: of `scan`, for messages.
        params: tensors that the steps read besides their arguments, as far as they are known.
    """

    def __init__(self, step: Callable[[Any, Any], Any], init: Any, rows: Rows, option: str) -> None:
        self.step, self.rows, self.option = step, rows, option
        self.gradients = Gradients(flatten(init)[0], rows)
        self.segments: list[Segment] = []
        self.params: list[torch.Tensor] = []
        self.y: Callable[[int], list[Any]] = lambda n: []
        # Whether compiled steps take the memory of what they have saved.
        self._donated = False

    def note(
        self, steps: range, start: Callable[[], Any] | None, exact: Any, moment: Moment
    ) -> None:
        """The next segment begins."""
        held: Any = exact or (None if start is None else start())
        for kept in held.kept:
            if _needs_gradient(kept) and kept.numel():
                raise ArrayError(
                    f"scan({self.option}): the carry has a {type(kept).__name__} of shape "
                    f"{list(kept.shape)} on {kept.device} that needs a gradient and is not saved, "
                    f"so that its part cannot be checked: run without `{self.option}`."
                )
        self.segments.append(Segment(steps.start, len(steps), start, exact, moment))

    def results(self, carry: Any, outputs: Outputs) -> tuple[Any, Any]:
        """The results of the loop, through which nobody goes back without `run`."""
        leaves, tree = flatten(carry)
        made = [*leaves, *outputs.tensors()]
        places = [n for n, each in enumerate(made) if _needs_gradient(each)]

        def run(gradients: Sequence[Any]) -> None:
            found = dict(zip(places, gradients, strict=True))
            given = [found.get(n) for n in range(len(made))]
            after, ys = given[: len(leaves)], given[len(leaves) :]
            self.run(after, ys, lambda n: outputs.of_step(ys, n))

        # With nothing to take a gradient of there is nothing to watch.
        watched = _Watched.apply(run, *(made[n] for n in places)) if places else ()
        for n, each in zip(places, watched, strict=True):
            made[n] = each
        return unflatten(made[: len(leaves)], tree), outputs.tree_of(made[len(leaves) :])

    def run(self, after: Sequence[Any], ys: Sequence[Any], y: Callable[[int], list[Any]]) -> None:
        """Autograd begins to go back: `after` are the gradients of the last carry, `ys` those of
        the stacked outputs, and `y(n)` those of the output of step n."""
        raise NotImplementedError

    def back(self, segment: Segment, start: Any) -> None:
        """Takes the gradients back over a segment that starts with a carry."""
        what = f"scan({self.option}): a segment from step {segment.first} on"
        segment.moment.again(what, functools.partial(self._back_now, segment, start))

    def _back_now(self, segment: Segment, start: Any) -> None:
        with torch.enable_grad():
            begun, carry = start.leaves_and_carry()
            xs, ys = [], []
            for n in range(segment.first, segment.first + segment.count):
                xs.append(self._inputs(n))
                carry, y = taken_apart("scan", self.step(carry, self.rows.tree_of(xs[-1])))
                ys.append(flatten(y)[0])
        outputs, gradients = flatten(carry)[0], list(self.gradients.after)
        for n, y in enumerate(ys, segment.first):
            outputs += y
            gradients += self.y(n) or [None] * len(y)
        found = self._derivatives(outputs, gradients, [*begun, *(x for row in xs for x in row)])
        self.gradients.after = start.by_leaf(found[: len(begun)])
        rows = iter(found[len(begun) :])
        for row in reversed([[next(rows) for _ in row] for row in xs]):
            self.gradients.add_row(row)

    def _inputs(self, n: int) -> list[torch.Tensor]:
        return [
            row.detach().requires_grad_(leaf.requires_grad)
            for row, leaf in zip(self.rows.leaves_of(n), self.rows.leaves, strict=True)
        ]

    def _derivatives(
        self, outputs: Sequence[Any], gradients: Sequence[Any], inputs: Sequence[torch.Tensor]
    ) -> list[Any]:
        """The gradients of the inputs; those of what the steps read besides are added up."""
        pairs = [
            (out, gradient)
            for out, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and _needs_gradient(out)
        ]
        if not pairs:
            return [None] * len(inputs)
        own, known = {id(each) for each in inputs}, {id(each) for each in self.params}
        for leaf in leaves_reached(out for out, _ in pairs):
            if id(leaf) not in own and id(leaf) not in known:
                known.add(id(leaf))
                self.params.append(leaf)
        wanted = [each for each in (*inputs, *self.params) if each.requires_grad]
        outs, given = zip(*pairs, strict=True)
        made = iter(self._grad(outs, given, wanted) if wanted else ())
        found = [next(made) if each.requires_grad else None for each in inputs]
        sums = [*self.gradients.sums, *[None] * (len(self.params) - len(self.gradients.sums))]
        self.gradients.sums = [_sum(one, next(made)) for one in sums]
        return found

    def _grad(self, outs: Any, given: Any, wanted: list[torch.Tensor]) -> Sequence[Any]:
        options: dict[str, Any] = {"allow_unused": True}
        if not self._donated:
            # What was computed before the loop is in this graph too, and autograd still needs it.
            try:
                return torch.autograd.grad(outs, wanted, given, retain_graph=True, **options)
            except RuntimeError as error:
                if "donated buffer" not in str(error):
                    raise
                self._donated = True
        return torch.autograd.grad(outs, wanted, given, **options)


class _Watched(torch.autograd.Function):
    """Passes results on; and their gradients, after a function was given them."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Sequence[Any]], None], *results: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.run = run
        return tuple(each.detach() for each in results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        ctx.run([None if each is None else each.detach() for each in gradients])
        return (None, *gradients)


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one + other
