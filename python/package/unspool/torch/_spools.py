"""The spools of this room, and tensors in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from unspool import Spool
from unspool._history import at_death, checked, discard_quietly, free_host, is_exact, own, reserve
from unspool.advice.sizes import bytes_of

from ._layout import Layout

__all__ = ["Snapshot", "budget_bytes", "open_spool", "place_of", "spool_of"]


def spool_of(call: str, spool: Any) -> Any:
    """The spool that was given, if one was.

    Raises:
        OptionError: it is none.
    """
    return None if spool is None else checked(call, spool)


def place_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """Where a loop computes: the first GPU among its tensors, or else the CPU."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device("cpu")


def budget_bytes(call: str, budget: Any, place: torch.device) -> int:
    """The bytes of a budget; `"auto"` is half of what is free where the tensors are.

    Raises:
        OptionError: it is not a size.
    """
    if budget != "auto":
        return 0 if budget == 0 and not isinstance(budget, bool) else bytes_of("budget", budget)
    if place.type != "cuda":
        return free_host() // 2
    free, _ = torch.cuda.mem_get_info(place)
    cached = torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return int(free + cached) // 2


def open_spool(place: torch.device, host: int, *, disk: bool = False) -> Spool:
    """A spool of our own, with main memory and perhaps the folder for temporary files."""
    on = "cpu" if place.type == "cpu" else f"cuda:{place.index or 0}"
    return own(on, max(host, 1 << 20), disk=disk)


class Snapshot:
    """Tensors in a spool, which are discarded when nobody refers to this any more.

    Attributes:
        keeper: what owns the spool, held so that the spool is open as long as this is.
        version: of the checkpoint.
    """

    __slots__ = ("__weakref__", "keeper", "layouts", "spool", "version")

    def __init__(self, keeper: Any, tensors: Sequence[torch.Tensor], codec: Any) -> None:
        # Only a checkpoint that was saved is discarded.
        self.version: int | None = None
        self.keeper, self.spool = keeper, keeper.spool
        self.layouts = [Layout.of(tensor) for tensor in tensors]
        parts = [one.saved(each) for one, each in zip(self.layouts, tensors, strict=True)]
        version = reserve()
        self.spool.save(version, *parts, **({} if codec is None else {"codec": codec}))
        self.version = version
        at_death(self, discard_quietly, self.spool, version)

    def exact(self) -> bool:
        """Whether what comes back is what was saved, bit for bit."""
        return self.version is None or is_exact(self.spool, self.version)

    def load(self) -> list[torch.Tensor]:
        """New tensors with what was saved."""
        made = [layout.empty() for layout in self.layouts]
        self.spool.restore(self.version, *(target for _, target in made))
        return [tensor for tensor, _ in made]
