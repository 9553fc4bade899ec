"""`unspool.torch.offload`: a context in which autograd keeps no more than a budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from unspool.advice.sizes import bytes_of
from unspool.errors import OptionError

from ._eager import uncompiled
from ._inputs import see_all_inputs
from ._kept import Kept, unpack
from ._spools import budget_bytes, spool_of

__all__ = ["offload"]


class offload(saved_tensors_hooks):
    """A context in which the tensors that autograd saves are kept up to a budget, and the oldest of
    the rest are moved into a spool until the backward pass needs them.

        keep = unspool.torch.offload(model, budget="12GiB")
        for batch in data:
            with keep:
                loss = model(batch)
            loss.backward()

    Tensors are kept by reference as long as they fit into the budget: nothing is copied then. What
    is moved is whole storages, each once, however many tensors over them were saved. Parameters,
    buffers and views of them stay, as do tensors that are smaller than `min_bytes`, sparse ones,
    and those of other classes than `Tensor`. Gradients are those without it, bit for bit.

    One context is used for all steps: it learns from each step in which order tensors come back,
    and how many bytes are saved in all. Those of a GPU leave as soon as they are written once that
    is known, and come back beside computing, as many ahead as the budget has room for. It may be
    entered by several threads. What a graph has saved is discarded with the graph.

    Arguments:
        model: the module (or the tensors) whose parameters stay; without it, tensors that need a
            gradient and were not computed, and views of them.
        budget: the bytes that are kept by reference, or text such as `"12GiB"`, beside gradients
            and what an operation works on. `"auto"` is half of what is free where the model is when
            the context is first entered.
        spool: where the rest goes, under versions of its own. Without one, a spool is opened when
            it is first needed: in main memory for tensors of a GPU, and in the folder for temporary
            files for those in main memory.
        codec: of what is moved, as in `Spool`. With a bound, gradients are approximate.
        min_bytes: storages that are smaller always stay.

    Raises:
        OptionError: an argument makes no sense.
        RuntimeError: in the backward pass, as PyTorch has it, for a tensor that was changed in
            place after it was saved.
        All that `Spool.save` raises, in an operation of the forward pass, and all that
        `Spool.restore` raises, in the backward pass.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.Tensor] | None = None,
        *,
        budget: int | str = "auto",
        spool: Any = None,
        codec: Any = None,
        min_bytes: int | str = 1 << 16,
    ) -> None:
        self._model = model if isinstance(model, torch.nn.Module) else list(model or ())
        for tensor in () if isinstance(self._model, torch.nn.Module) else self._model:
            if not isinstance(tensor, torch.Tensor):
                raise OptionError(f"offload(model=...): a {type(tensor).__name__} is not a tensor.")
        self._budget = budget
        if budget != "auto":
            budget_bytes("offload", budget, torch.device("cpu"))
        least = bytes_of("min_bytes", min_bytes) if min_bytes else 0
        self._kept = Kept(spool_of("offload", spool), codec, 0, least)
        see_all_inputs()
        super().__init__(uncompiled(self._kept.pack), unpack)

    def __enter__(self) -> None:
        stay = self._staying()
        if self._budget is not None:
            place = next((tensor.device for tensor in stay), _default_place())
            self._kept.budget = budget_bytes("offload", self._budget, place)
            # What is free is looked at once: later, it is what this has left.
            self._budget = None  # type: ignore[assignment]
        self._kept.stay = frozenset(
            tensor.untyped_storage()._cdata
            for tensor in stay
            if type(tensor) in (torch.Tensor, torch.nn.Parameter)
        )
        self._kept.enter()
        super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if raised[0] is None:
            self._kept.leave()

    def _staying(self) -> list[torch.Tensor]:
        """Looked at anew each time: some ways of training in parallel exchange parameters."""
        if isinstance(self._model, torch.nn.Module):
            return [*self._model.parameters(), *self._model.buffers()]
        return self._model


def _default_place() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
