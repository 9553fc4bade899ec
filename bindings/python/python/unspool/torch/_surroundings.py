"""What a step depends on besides what it reads: random numbers, and autocast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

__all__ = ["Surroundings"]


class Surroundings:
    """The generators of random numbers that a step may draw from, and autocast as it is now."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        devices = {tensor.device for tensor in tensors}
        self.gpus = sorted({each.index for each in devices if each.type == "cuda"})
        kinds = sorted({each.type for each in devices} | {"cpu"})
        self._autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in kinds
            if torch.amp.is_autocast_available(kind)
        ]

    def random(self) -> list[torch.Tensor]:
        """The states of the generators."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self.gpus)]

    def set_random(self, states: Sequence[torch.Tensor]) -> None:
        """Lets the generators go on from other states."""
        torch.set_rng_state(states[0])
        for gpu, state in zip(self.gpus, states[1:], strict=True):
            torch.cuda.set_rng_state(state, gpu)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The same autocast, without its cache: what it converts without a graph must not be found
        there when a graph is made, nor the other way round."""
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self._autocast:
                context = torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False)
                stack.enter_context(context)
            yield

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """The same autocast, and random numbers that nobody outside notices."""
        with torch.random.fork_rng(self.gpus), self.entered():
            yield
