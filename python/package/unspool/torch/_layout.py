"""How a tensor lies in memory: what is saved of it, and where it comes back to.

What is saved is dense memory in the order in which it lies. What comes back has the strides of what
was there, since results of kernels may depend on them in their last bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

__all__ = ["Layout", "bytes_of_tensor", "can_be_saved"]


def can_be_saved(value: object) -> bool:
    """Whether it is a plain tensor with memory of its own: others stay where they are."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type in ("cpu", "cuda")
        and value.numel() > 0
        and not value.is_quantized
    )


def bytes_of_tensor(tensor: torch.Tensor) -> int:
    """The bytes of its items."""
    return tensor.numel() * tensor.element_size()


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a tensor and how it lies.

    Attributes:
        size, stride, dtype, device: as of the tensor.
        order: its dimensions, the slowest in memory first.
        distinct: its shape without repetitions: 1 where the stride is 0.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    order: tuple[int, ...]
    distinct: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """That of a tensor."""
        return _layout(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)

    @classmethod
    def _of(
        cls,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Layout:
        order = tuple(sorted(range(len(size)), key=lambda each: -stride[each]))
        distinct = tuple(1 if step == 0 else n for n, step in zip(size, stride, strict=True))
        if _overlaps(distinct, stride, order):
            # Windows over the same memory: they come back as tensors of their own.
            stride = torch.empty(size, device="meta").stride()
            return cls._of(size, stride, dtype, device)
        return cls(size, stride, dtype, device, order, distinct)

    @classmethod
    def whole(cls, tensor: torch.Tensor) -> Layout:
        """One without repetitions, for other tensors of the same shape too."""
        found = cls.of(tensor)
        return found if found.distinct == found.size else cls.of(tensor.contiguous())

    def saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of the tensor that is saved: each item once, in the order of its memory."""
        plain = tensor.detach().resolve_conj().resolve_neg()
        for each, (n, kept) in enumerate(zip(self.size, self.distinct, strict=True)):
            if n != kept:
                plain = plain.narrow(each, 0, kept)
        return plain.permute(self.order)

    def empty(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A new tensor that lies as the old one did, and the view that a restore goes into."""
        memory = torch.empty_strided(
            self.distinct, self.stride, dtype=self.dtype, device=self.device
        )
        return memory.expand(self.size), memory.permute(self.order)


# The carries of a loop lie in few ways, and each step asks for theirs.
_layout = functools.lru_cache(maxsize=1024)(Layout._of)


def _overlaps(size: tuple[int, ...], stride: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether two items may share memory."""
    reach = 0
    for each in reversed(order):
        if size[each] > 1:
            if stride[each] <= reach:
                return True
            reach += (size[each] - 1) * stride[each]
    return False
