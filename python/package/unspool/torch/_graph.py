"""What the graph of steps reaches: the tensors that need a gradient, and those nobody listed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from unspool.errors import ArrayError

__all__ = ["check_reached", "leaves_reached", "parts_reached"]


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
    for leaf in leaves_reached(outputs, edges):
        if id(leaf) not in leaves:
            _refuse(leaf)


def leaves_reached(
    outputs: Iterable[torch.Tensor], edges: Collection[tuple[Any, int]] = ()
) -> Iterator[torch.Tensor]:
    """The leaves that need a gradient and had a part in these tensors, each once for each of its
    nodes; the graph is not followed past `edges`."""
    ahead = []
    for out in outputs:
        if out.grad_fn is not None:
            ahead.append((out.grad_fn, out.output_nr))
        elif out.requires_grad:
            yield out
    seen: set[Any] = set()
    while ahead:
        node, number = ahead.pop()
        if node is None or node in seen or (node, number) in edges:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is None:
            ahead += node.next_functions
        else:
            yield leaf


def parts_reached(outputs: Iterable[torch.Tensor], listed: Sequence[torch.Tensor]) -> list[int]:
    """For each of the outputs, which of the listed tensors had a part in it: a number with a bit
    for each. The graph is not followed past them, and each node is visited once."""
    bits = [(each, 1 << place) for place, each in enumerate(listed)]
    leaves = {id(each): bit for each, bit in bits if each.grad_fn is None}
    edges = {(each.grad_fn, each.output_nr): bit for each, bit in bits if each.grad_fn is not None}
    known: dict[Any, int] = {}
    found = []
    for out in outputs:
        edge = (out.grad_fn, out.output_nr)
        if out.grad_fn is None:
            found.append(leaves.get(id(out), 0))
            continue
        if edge not in edges:
            _visit(out.grad_fn, leaves, edges, known)
        found.append(edges[edge] if edge in edges else known[out.grad_fn])
    return found


def _visit(
    first: Any, leaves: dict[int, int], edges: dict[Any, int], known: dict[Any, int]
) -> None:
    """Makes the number of a node known, after those of all nodes that it leads to."""
    stack = [first]
    while stack:
        node = stack[-1]
        inner = [edge for edge in node.next_functions if edge[0] is not None and edge not in edges]
        ahead = [each for each, _ in inner if each not in known]
        if ahead and node not in known:
            stack += ahead
            continue
        stack.pop()
        leaf = getattr(node, "variable", None)
        bits = 0 if leaf is None else leaves.get(id(leaf), 0)
        for edge in node.next_functions:
            bits |= edges[edge] if edge in edges else known.get(edge[0], 0)
        known[node] = bits


def _refuse(leaf: torch.Tensor) -> None:
    kind = type(leaf).__name__.lower()
    raise ArrayError(
        f"adjoint: step reads a {kind} of shape {list(leaf.shape)} that needs a gradient and is "
        "not in `params`, so that its gradient would be missing. Add it, or the tensor that was "
        "computed from it, to `params` (for a module: params=module.parameters()); or read "
        "tensor.detach() where no gradient is wanted."
    )
