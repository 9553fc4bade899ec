"""The spools of this room, given ones and own ones, the versions in use, and states in them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from unspool import Spool
from unspool.advice.sizes import bytes_of, tiers_of
from unspool.errors import Error, OptionError

from ._layout import Layout

__all__ = [
    "Snapshot",
    "at_death",
    "budget_bytes",
    "checked",
    "close_quietly",
    "discard_quietly",
    "free_host",
    "is_exact",
    "open_spool",
    "place_of",
    "reserve",
]

#: Versions of this room begin here, far from the steps that people count.
FIRST_VERSION = 1 << 61

_lock = threading.Lock()
_next = FIRST_VERSION


def reserve(count: int = 1) -> int:
    """The first of `count` versions that nothing else in this process uses."""
    global _next
    with _lock:
        first, _next = _next, _next + count
    return first


def checked(call: str, spool: Any) -> Any:
    """A spool that was given.

    Raises:
        OptionError: it is none.
    """
    if spool is None:
        return None
    if isinstance(spool, type) or not callable(getattr(spool, "save", None)):
        raise OptionError(f"{call}(spool={spool!r}): that is not a Spool.")
    return spool


def place_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """Where a loop computes: the first GPU among its tensors, or else the CPU."""
    for tensor in tensors:
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device("cpu")


def free_host() -> int:
    """The bytes of main memory that a spool takes by itself."""
    return tiers_of(None, "auto", None, "cpu").capacity["host"]


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
    return Spool(
        host_memory=max(host, 1 << 20), disk=tempfile.gettempdir() if disk else None, device=on
    )


def at_death(owner: Any, call: Callable[..., Any], *args: Any) -> Any:
    """Calls a function when nobody refers to `owner` any more; not while the interpreter ends, when
    all spools are closed and little of Python is left."""
    made = weakref.finalize(owner, call, *args)
    made.atexit = False
    return made


def close_quietly(spool: Any) -> None:
    """Closes a spool of our own, at a moment when nobody could handle an error."""
    with contextlib.suppress(Error):
        spool.close(discard_unflushed=True)


def discard_quietly(spool: Any, version: int) -> None:
    """Discards what nobody will read; it may be gone, or the spool closed."""
    with contextlib.suppress(Error):
        spool.discard(version)


def is_exact(spool: Any, version: int) -> bool:
    """Whether a checkpoint was kept without loss."""
    try:
        found = spool.achieved(version).values()
    except Error:
        return False
    return all(each.codec == "raw" or each.max_error == 0.0 for each in found)


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
