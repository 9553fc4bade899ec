"""What stands for the graph of the steps before a step of `adjoint`, which is not there."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from unspool.errors import ArrayError

Plain = Callable[[torch.Tensor], torch.Tensor]

__all__ = ["Earlier", "Plain", "count_nodes", "mark_of", "through"]

#: How many nodes of graphs this thread has made.
count_nodes: Callable[[], int] = torch._C._autograd._get_sequence_nr


class Earlier:
    """Makes the arguments of a step results of what they depend on by the steps before.

    A gradient that the step takes with respect to an argument is not affected. One that would go on
    through the argument to something that it depends on is an error.

    What a tensor depends on is a set of them, a number with a bit for each.

    Arguments:
        init: the tensors of the first carry.
        beside: what steps depend on beside their carry: `xs`, and parameters.
    """

    def __init__(self, init: Sequence[torch.Tensor], beside: Sequence[torch.Tensor]) -> None:
        roots = {id(each): each for each in (*init, *beside) if each.requires_grad}
        self._roots = list(roots.values())
        self._sets = {key: 1 << place for place, key in enumerate(roots)}
        self._beside, self._marks = self.sets(beside), dict[int, torch.Tensor]()
        self.all = (1 << len(roots)) - 1

    def sets(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        """Of each tensor the set with it alone; the empty one if it needs no gradient."""
        return [self._sets.get(id(each), 0) for each in tensors]

    def after(self, carry: Sequence[int], parts: Sequence[int]) -> list[int]:
        """What the carry after a step depends on, from that of the carry before it, and from which
        inputs, as bits, had a part in each of its tensors."""
        sets = [(1 << place, each) for place, each in enumerate((*carry, *self._beside))]
        return [
            functools.reduce(operator.or_, (each for bit, each in sets if bit & part), 0)
            for part in parts
        ]

    def repeated(self, carry: Sequence[int], steps: Sequence[Sequence[int]]) -> list[int]:
        """What the carry depends on after any number of such steps, in any order."""
        before, now = list[int](), list(carry)
        while before != now:
            before = now
            for parts in steps:
                pairs = zip(now, self.after(now, parts), strict=True)
                now = [one | other for one, other in pairs]
        return now

    def arguments(
        self, n: int, tensors: Sequence[torch.Tensor], sets: Sequence[int], rest: Plain
    ) -> list[torch.Tensor]:
        """The arguments of step n, which depend on these sets. What depends on nothing goes through
        `rest`."""
        with torch.enable_grad():
            return [
                _Argument.apply(n, self._mark(roots), each) if roots else rest(each)
                for each, roots in zip(tensors, sets, strict=True)
            ]

    def _mark(self, roots: int) -> torch.Tensor:
        if roots not in self._marks:
            found = [root for n, root in enumerate(self._roots) if roots >> n & 1]
            self._marks[roots] = mark_of(found)
        return self._marks[roots]


def mark_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """A result of tensors without items, which keeps their graph and not their memory."""
    mark: torch.Tensor = _Mark.apply(*tensors)
    return mark


class _Mark(torch.autograd.Function):
    """A result of tensors, through which no gradient goes."""

    @staticmethod
    def forward(ctx: Any, *roots: torch.Tensor) -> torch.Tensor:
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None,) * len(ctx.needs_input_grad)


class _Argument(torch.autograd.Function):
    """Makes a tensor the result of a mark. Autograd comes back through it only on its way to what
    the mark depends on."""

    @staticmethod
    def forward(ctx: Any, n: int, _: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.n = n
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> Any:
        if gradient is not None:
            raise through(ctx.n)
        return None, None, None


def through(n: int) -> ArrayError:
    """The error of a step that takes a gradient through its arguments."""
    return ArrayError(
        f"adjoint: step {n} calls backward() on something that depends on its arguments, or takes "
        "a gradient of it with respect to what these were computed from, such as a parameter. In a "
        "plain loop that goes back through the steps before, and adjoint keeps no graph of them. "
        "Use detach() of the arguments there, or torch.autograd.grad with respect to the arguments "
        "or to a tensor of the step; or unspool.torch.scan, which goes back through them."
    )
