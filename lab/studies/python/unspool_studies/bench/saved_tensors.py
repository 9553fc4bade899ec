"""A history of saved tensors of PyTorch's autograd, which its hook `save_on_cpu` keeps in pinned
host memory: a baseline of part `orders`.

Every save is a node of a graph of its own that saves the state for its backward pass; the restore
of a checkpoint is that pass. It asks for the tensor when it begins, as the nodes of one long graph
do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from unspool_studies.bench.by_hand import NoBaseline
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Application, Experiment
from unspool_studies.bench.libraries import torch_stream
from unspool_studies.bench.machine import require_memory

__all__ = ["SavedTensors", "pinned_by_torch"]


def pinned_by_torch(sizes: Sequence[int]) -> int:
    """Bytes of pinned memory that PyTorch takes for tensors of these bytes: powers of two."""
    return sum(1 << (size - 1).bit_length() for size in sizes)


class SavedTensors:
    """Checkpoints as tensors that autograd saves.

    Raises:
        NoBaseline: PyTorch is not installed, restores are not in reverse order, or checkpoints
            are wavefields.
        OSError: there is too little memory.
    """

    def __init__(self, cuda: Cuda, application: Application, one: Experiment) -> None:
        if one.order != tuple(reversed(range(len(one.sizes)))):
            raise NoBaseline("autograd has no order but the reverse one")
        if one.codec is not None:
            raise NoBaseline("it saves one tensor, and with --codec each checkpoint has its own")
        try:
            import torch
        except ImportError as error:
            raise NoBaseline(f"it needs PyTorch: pip install torch; {error}") from error
        require_memory(pinned_by_torch(one.sizes))
        self._torch, self._sizes = torch, one.sizes
        self._state = torch.as_tensor(application.state)
        self._on_device = self._state.is_cuda
        self._current: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self._on_device:
            self._current = torch_stream(torch, cuda.ordinal, application.stream)
        self._keep = _keep(torch)
        self._start = torch.zeros((), device=self._state.device, requires_grad=True)
        self._ends: dict[int, Any] = {}

    def save(self, version: int, _state: int) -> None:
        """Adds a node that saves the state."""
        hook = self._torch.autograd.graph.save_on_cpu(pin_memory=True)
        with self._current, hook:
            state = self._state[: self._sizes[version]]
            self._ends[version] = self._keep.apply(self._start, state, self._state)

    def flush(self) -> None:
        """Waits until all copies are done."""
        if self._on_device:
            self._torch.cuda.synchronize()

    def begin_restores(self, order: object) -> None:
        """The order is not made use of."""

    def restore(self, version: int, _state: int) -> None:
        """The backward pass of the node."""
        with self._current:
            self._torch.autograd.grad(self._ends.pop(version), self._start)

    def close(self) -> None:
        """Gives everything back, with what PyTorch keeps for later tensors."""
        self.flush()
        del self._ends, self._start, self._state
        if self._on_device:
            self._torch.cuda.empty_cache()
            # Without a public name before PyTorch 2.10.
            self._torch._C._host_emptyCache()


def _keep(torch: Any) -> Any:
    """The function whose backward pass writes the state that its forward pass has saved."""

    def forward(ctx: Any, start: Any, state: Any, to: Any) -> Any:
        ctx.save_for_backward(state)
        ctx.to = to
        return start.clone()

    def backward(ctx: Any, gradient: Any) -> tuple[Any, None, None]:
        (state,) = ctx.saved_tensors
        ctx.to[: len(state)].copy_(state, non_blocking=True)
        return gradient, None, None

    passes = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Keep", (torch.autograd.Function,), passes)
