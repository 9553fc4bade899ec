"""States of a computation in a spool that a user need not see: whose spool it is, the versions
under which they lie, and their end."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ._unspool import Spool
from .advice.sizes import tiers_of
from .errors import Error, OptionError

__all__ = [
    "at_death",
    "checked",
    "close_quietly",
    "discard_quietly",
    "free_host",
    "is_exact",
    "own",
    "reserve",
]

#: Versions of such states begin here, far from the steps that people count.
FIRST_VERSION = 1 << 61

_lock = threading.Lock()
_next = FIRST_VERSION


def reserve(count: int = 1) -> int:
    """The first of `count` versions that nothing else in this process uses."""
    global _next
    with _lock:
        first, _next = _next, _next + count
    return first


def checked(call: str, spool: Any, method: str = "save") -> Any:
    """A spool that was given, or what has this method of one.

    Raises:
        OptionError: it is none.
    """
    if isinstance(spool, type) or not callable(getattr(spool, method, None)):
        raise OptionError(f"{call}(spool={spool!r}): that is not a Spool.")
    return spool


def own(place: str, host: int | str, *, disk: bool) -> Spool:
    """A spool of our own, with main memory and perhaps the folder for temporary files."""
    folder = tempfile.gettempdir() if disk else None
    return Spool(host_memory=host, disk=folder, device=place)


def free_host() -> int:
    """The bytes of main memory that a spool takes by itself."""
    return tiers_of(None, "auto", None, "cpu").capacity["host"]


def at_death(owner: Any, call: Callable[..., Any], *args: Any) -> Any:
    """Calls a function when nobody refers to `owner` any more. While the interpreter ends it is not
    called: all spools are closed then, and little of Python is left."""
    made = weakref.finalize(owner, call, *args)
    made.atexit = False
    return made


def close_quietly(spool: Any) -> None:
    """Closes a spool of our own. Raises nothing, as nobody could handle an error here."""
    with contextlib.suppress(Error):
        spool.close(discard_unflushed=True)


def discard_quietly(spool: Any, version: int) -> None:
    """Discards a version that nobody will read. It may be gone already, or the spool closed."""
    with contextlib.suppress(Error):
        spool.discard(version)


def is_exact(spool: Any, version: int) -> bool:
    """Whether a checkpoint was kept without loss."""
    try:
        found = spool.achieved(version).values()
    except Error:
        return False
    return all(each.codec == "raw" or each.max_error == 0.0 for each in found)
