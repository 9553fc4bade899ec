"""`unspool.torch.adjoint`: a loop of which no graph is kept, only states, by a schedule.

The loop is one node of autograd's graph. Its forward pass is the first half of what
`unspool.adjoint` does, its backward pass the second half: the same driver, which is left in the
middle. A step is differentiated by itself, when it is reversed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from unspool._gradient import Gradient
from unspool.errors import ArrayError, OptionError
from unspool.schedules import as_schedule
from unspool.schedules.given import figure

from ._changed import refuse
from ._checked import Told, count_of
from ._eager import uncompiled
from ._graph import parts_reached
from ._passes import Loop, Passes
from ._spools import spool_of
from ._surroundings import transformed
from ._trees import Outputs, Rows, flatten, taken_apart, unflatten

__all__ = ["adjoint"]


@uncompiled
def adjoint(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    params: Iterable[torch.Tensor],
    schedule: Any = "auto",
    spool: Any = None,
    codec: Any = None,
    check: int = 0,
    fidelity: Told | None = None,
) -> tuple[Any, Any]:
    """A loop of `step` over `xs`, of which only states are kept, by any schedule.

    Arguments and result are those of `scan`. Autograd sees one operation, whose inputs are `init`,
    `xs` and `params`, so that a loop of any number of operations takes no memory but that of its
    states. Each gradient is computed once for each step, and summed over the steps in the order of
    the plain loop. There are no second derivatives: `scan` has them.

    Arguments:
        step: `step(carry, x)` returns `(carry, y)`. It is called several times for a step, with the
            same random numbers, buffers, variables and surroundings, which are put back afterwards.
            It must not change its arguments in place.
        init: the first carry: a tensor, or a pytree of tensors, whose shapes and dtypes stay.
        xs: a tensor, or a pytree of tensors, whose first dimension is that of the steps; or None.
        length: the number of steps, where `xs` does not say it.
        params: all tensors that `step` reads besides its arguments and that need a gradient, such
            as `model.parameters()`. One that is missing is an error.
        schedule: which states to keep: one of `unspool.schedules`, or whatever `unspool.adjoint`
            takes. `"auto"` keeps all states if the spool has room, and otherwise as many as it has
            room for, by `Revolve`.
        spool: where states are kept, under versions of its own. Without one, a spool is opened in
            main memory, and closed when the graph is gone.
        codec: of the states, as in `Spool`; or an `unspool.Gradient`, which chooses bounds from the
            accuracy that the gradient has to have. In its first backward pass the loop is run
            several times.
        check: the number of states, spread over the loop, that are also kept without loss, to
            estimate what a codec with a bound does to the gradient, as for `unspool.adjoint`. In a
            backward pass every step is then reversed twice, the checked ones three times. Above 5 %
            there is an `unspool.types.FidelityWarning`.
        fidelity: is called with what `check` or a `Gradient` has found in a backward pass, an
            `unspool.types.Fidelity`. Its arrays are called `init[0]`, `xs[0]`, `params[0]` and so
            on, by the leaves of these arguments.

    Returns:
        The last carry, and the outputs stacked; None as outputs where no step has one.

    Raises:
        ArrayError: `step` reads a tensor that needs a gradient and is not in `params`, changes its
            carry in place or to other shapes, or takes a gradient through its arguments; the carry
            has something that is not a tensor; in the backward pass, a step computes something else
            than in the forward pass.
        OptionError: an argument makes no sense, or `step` returned no pair; `check` with a schedule
            that does not know the number of steps; a `Gradient` with `check`, `schedules.Auto` or
            an `IncrementalSpool`.
        ScheduleError: the schedule breaks a rule, or is for another number of steps.
        All that `Spool.save` and `Spool.restore` raise, also in the backward pass.
    """
    if not callable(step):
        raise OptionError(f"adjoint(step={step!r}): that is not a function.")
    ordered = isinstance(codec, Gradient)
    given, checks = spool_of("adjoint", spool), count_of("adjoint", check, fidelity, ordered)
    rows = Rows("adjoint", xs, length)
    leaves, tree = flatten(init)
    listed = _params(params)
    chosen = None if isinstance(schedule, str) and schedule == "auto" else as_schedule(schedule)
    steps = rows.length or 0
    known = None if chosen is None else figure(chosen, "steps")
    if known not in (None, steps):
        raise OptionError(f"adjoint: the schedule is for {known} steps, and the loop has {steps}.")
    if not steps:
        return init, None
    if not torch.is_grad_enabled() or transformed():
        return _plain(step, init, rows)
    loop = Loop(step, rows, tree, leaves, listed)
    passes = Passes(loop, chosen, given, codec, checks, fidelity)
    found = list(_Node.apply(passes, *leaves, *rows.leaves, *listed))
    carry, ys = found[: len(leaves)], found[len(leaves) :]
    return unflatten(carry, tree), passes.outputs.tree_of(ys)


def _plain(step: Callable[[Any, Any], Any], carry: Any, rows: Rows) -> tuple[Any, Any]:
    """The loop, when nobody goes back through it."""
    outputs = Outputs("adjoint")
    for n in range(rows.length or 0):
        carry, y = taken_apart("adjoint", step(carry, rows[n]))
        outputs.append(y)
    return carry, outputs.stacked()


def _params(params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for tensor in [params] if isinstance(params, torch.Tensor) else params:
        if not isinstance(tensor, torch.Tensor):
            raise ArrayError(
                f"adjoint(params=...): a {type(tensor).__name__} in it is not a tensor; of a "
                "module, give module.parameters()."
            )
        if tensor.requires_grad:
            found[id(tensor)] = tensor
    listed = list(found.values())
    for tensor in listed:
        others = [other for other in listed if other is not tensor]
        if tensor.grad_fn is not None and any(parts_reached([tensor], others)):
            raise ArrayError(
                f"adjoint(params=...): its tensor of shape {list(tensor.shape)} is computed from "
                "another one in it, whose gradient would be counted twice: list only what the step "
                "reads itself, or compute the one from the other within the step."
            )
    return listed


class _Node(torch.autograd.Function):
    """The loop as one operation."""

    @staticmethod
    def forward(ctx: Any, passes: Passes, *inputs: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        # Not by save_for_backward: `step` reads these very tensors.
        ctx.passes, ctx.inputs = passes, inputs
        made = passes.forward()
        # Taken after it: a step may change what it reads in place, such as the rows of a table.
        ctx.versions = [tensor._version for tensor in inputs]
        memory = {tensor.untyped_storage()._cdata for tensor in inputs}
        found = [
            # What goes through the loop as it is would be a view of an input.
            each.clone() if each.untyped_storage()._cdata in memory else each.detach()
            for each in made
        ]
        ctx.mark_non_differentiable(*(each for each in found if not _has_gradient(each)))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        for tensor, version in zip(ctx.inputs, ctx.versions, strict=True):
            if tensor._version != version and not ctx.passes.brings_back(tensor):
                refuse(tensor, version)
        with torch.no_grad():
            found = ctx.passes.backward(gradients)
        if torch.is_grad_enabled():
            # Those of `torch.autograd.function.once_differentiable` are refused only where the
            # gradients that came in have a graph.
            mark = torch.empty(0, requires_grad=True)
            found = [None if each is None else _Once.apply(mark, each) for each in found]
        return (None, *found)


class _Once(torch.autograd.Function):
    """A gradient of which there is no derivative."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "unspool.torch.adjoint has no second derivatives, as it keeps no graph: use "
            "unspool.torch.scan, which has."
        )


def _has_gradient(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
