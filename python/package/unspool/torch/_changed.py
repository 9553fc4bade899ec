"""Tensors that were changed in place after autograd had saved them."""

from __future__ import annotations

from typing import NoReturn

import torch

__all__ = ["Held", "refuse"]


def refuse(tensor: torch.Tensor, expected: int, found: int | None = None) -> NoReturn:
    """Raises what PyTorch raises for a tensor that is no longer the one that was saved."""
    shape = ", ".join(str(size) for size in tensor.shape)
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{_kind(tensor)} [{shape}]] is at version "
        f"{tensor._version if found is None else found}; expected version {expected} instead. "
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
        "with torch.autograd.set_detect_anomaly(True)."
    )


def _kind(tensor: torch.Tensor) -> str:
    # Of a tensor without memory, the name that one in main memory has.
    return (
        tensor.type() if tensor.device.type != "meta" else tensor.new_empty(0, device="cpu").type()
    )


class Held:
    """A tensor kept by reference, with the version that it had.

    A hook that keeps references has to look itself: autograd checks only what it keeps without one.
    """

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        # Not the tensor itself: an output that its own node saves would keep the graph alive.
        self.tensor, self.version = tensor.detach(), tensor._version

    def let_go(self) -> None:
        """Keeps of the tensor its version alone, which later changes in place still count."""
        tensor = self.tensor
        self.tensor = tensor.detach()
        self.tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    def get(self) -> torch.Tensor:
        """The tensor, if it is still what was saved."""
        if self.tensor._version != self.version:
            refuse(self.tensor, self.version)
        return self.tensor
