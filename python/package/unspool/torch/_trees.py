"""Carries, inputs and outputs of a loop: pytrees of tensors, as PyTorch flattens them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from unspool.errors import ArrayError, OptionError

from ._changed import refuse
from ._layout import bytes_of_tensor, can_be_saved

__all__ = ["Outputs", "Rows", "flatten", "taken_apart", "unflatten"]

flatten: Callable[[Any], tuple[list[Any], Any]] = pytree.tree_flatten
unflatten: Callable[[Sequence[Any], Any], Any] = pytree.tree_unflatten


def taken_apart(call: str, returned: Any) -> tuple[Any, Any]:
    """The carry and the output that a step has returned."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise OptionError(
            f"{call}: step(carry, x) returned a {type(returned).__name__}: it must return the pair "
            "(carry, y), with None as y where there is no output."
        )
    carry, y = returned
    return carry, y


class Rows:
    """What `xs[n]` is in every step, and how many steps there are.

    Attributes:
        length: the number of steps, or None where only `until` ends the loop.
    """

    def __init__(self, call: str, xs: Any, length: int | None, *, endless: bool = False) -> None:
        leaves, tree = ([], None) if xs is None else flatten(xs)
        self.leaves: list[Any] = leaves
        self.tree: Any = tree
        self.length = self._length(call, length, endless)
        self._versions = [leaf._version for leaf in self.leaves]
        # One node of the graph for all rows: the gradient of one row alone is as large as all.
        grows = torch.is_grad_enabled()
        self._rows: list[Any] = [
            leaf.unbind(0) if grows and leaf.requires_grad else leaf for leaf in self.leaves
        ]

    def _length(self, call: str, length: int | None, endless: bool) -> int | None:
        for leaf in self.leaves:
            if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
                raise ArrayError(
                    f"{call}(xs=...): a {type(leaf).__name__} in it is not a tensor with one row "
                    "for each step."
                )
        if length is not None and (not isinstance(length, int) or length < 0):
            raise OptionError(f"{call}(length={length!r}): write a number of steps, 0 or more.")
        found: set[int] = {leaf.shape[0] for leaf in self.leaves}
        found |= set() if length is None else {length}
        if len(found) > 1:
            raise OptionError(
                f"{call}: xs and length say different numbers of steps: {sorted(found)}."
            )
        if not found and not endless:
            raise OptionError(f"{call}: give xs, or length, the number of steps.")
        return found.pop() if found else None

    def __getitem__(self, step: int) -> Any:
        """The input of one step, or None."""
        return self.tree_of(self.leaves_of(step))

    def leaves_of(self, step: int) -> list[Any]:
        """The tensors of the input of one step."""
        return [rows[step] for rows in self._rows]

    def tree_of(self, leaves: Sequence[Any]) -> Any:
        """The input of a step that has these tensors."""
        return None if self.tree is None else unflatten(leaves, self.tree)

    def gathered(self, place: int, gradients: Sequence[Any]) -> torch.Tensor | None:
        """The gradient of one tensor of `xs` from those of its rows; None where it has none."""
        leaf = self.leaves[place]
        if not leaf.requires_grad or all(each is None for each in gradients):
            return None
        zero = torch.zeros_like(leaf[0])
        return torch.stack([zero if each is None else each for each in gradients])

    def check(self) -> None:
        """The rows are those of the forward pass.

        Raises:
            RuntimeError: they were changed in place.
        """
        for leaf, version in zip(self.leaves, self._versions, strict=True):
            if leaf._version != version:
                refuse(leaf, version)


def _of_its_own(leaf: Any) -> Any:
    """An output that keeps no more memory than it needs: a view of a few items of a field would
    keep the whole field of its step until the end of the loop."""
    if not can_be_saved(leaf):
        return leaf
    whole: int = leaf.untyped_storage().nbytes()
    return leaf.clone() if whole > 2 * bytes_of_tensor(leaf) else leaf


class Outputs:
    """What the steps of a loop returned beside their carries."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.tree: Any = None
        self._columns: list[list[Any]] = []
        self._count = 0

    def __len__(self) -> int:
        """The number of steps."""
        return self._count

    def append(self, y: Any) -> None:
        """The output of the next step."""
        leaves, tree = flatten(y)
        if self._count == 0:
            self.tree, self._columns = tree, [[] for _ in leaves]
        if tree != self.tree:
            raise OptionError(
                f"{self.call}: the y of step {self._count} has another structure than that of "
                "step 0."
            )
        for column, leaf in zip(self._columns, leaves, strict=True):
            # The same in every step: a tensor or nothing.
            if not isinstance(leaf, torch.Tensor) and leaf is not None:
                raise ArrayError(
                    f"{self.call}: step {self._count} has returned a {type(leaf).__name__} in y: "
                    "return tensors, such as torch.as_tensor(...), or None."
                )
            if column and (column[0] is None) != (leaf is None):
                raise OptionError(
                    f"{self.call}: step {self._count} has returned a y where an earlier one had "
                    "none, or the other way round."
                )
            column.append(_of_its_own(leaf))
        self._count += 1

    def last(self) -> list[Any]:
        """The output of the last step, by its leaves, before `tensors()`."""
        return [column[-1] for column in self._columns if column]

    def tensors(self) -> list[torch.Tensor]:
        """The outputs that are tensors, stacked; what the steps returned is forgotten."""
        made = [torch.stack(column) for column in self._columns if column[0] is not None]
        self._columns = [[column[0] if column[0] is None else True] for column in self._columns]
        return made

    def of_step(self, columns: Sequence[Any], n: int) -> list[Any]:
        """The part of step n of what belongs to `tensors()`, in the order of the leaves."""
        given = iter(columns)
        found = [None if column[0] is None else next(given) for column in self._columns]
        return [None if each is None else each[n] for each in found]

    def tree_of(self, tensors: Sequence[Any]) -> Any:
        """These tensors, in the place of those of `tensors()`; None where there is no output."""
        given = iter(tensors)
        leaves = [None if column[0] is None else next(given) for column in self._columns]
        return None if all(leaf is None for leaf in leaves) else unflatten(leaves, self.tree)

    def stacked(self) -> Any:
        """The outputs of all steps, stacked; None where no step has one."""
        return self.tree_of(self.tensors())
