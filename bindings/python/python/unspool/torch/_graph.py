"""What the graph of one step reaches: the tensors that need a gradient and that nobody listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from unspool.errors import ArrayError

__all__ = ["check_reached"]


def check_reached(outputs: Iterable[Any], listed: Sequence[torch.Tensor]) -> None:
    """Walks the graph of a step from what it returned.

    Whatever the step did to get hold of a tensor (closures, globals, attributes, lists), a tensor
    that needs a gradient and had a part in the result is a leaf of that graph, or the root of one
    that was there before and has such a leaf.

    Raises:
        ArrayError: there is one that is not listed.
    """
    leaves = {id(tensor) for tensor in listed}
    edges = {(tensor.grad_fn, tensor.output_nr) for tensor in listed if tensor.grad_fn is not None}
    ahead = [(out.grad_fn, out.output_nr) for out in outputs if out.grad_fn is not None]
    for out in outputs:
        if out.requires_grad and out.grad_fn is None and id(out) not in leaves:
            _refuse(out)
    seen: set[Any] = set()
    while ahead:
        node, number = ahead.pop()
        if node is None or node in seen or (node, number) in edges:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is None:
            ahead += node.next_functions
        elif id(leaf) not in leaves:
            _refuse(leaf)


def _refuse(leaf: torch.Tensor) -> None:
    kind = type(leaf).__name__.lower()
    raise ArrayError(
        f"adjoint: step reads a {kind} of shape {list(leaf.shape)} that needs a gradient and is "
        "not in `params`, so that its gradient would be missing. Add it, or the tensor that was "
        "computed from it, to `params` (for a module: params=module.parameters()); or read "
        "tensor.detach() where no gradient is wanted."
    )
