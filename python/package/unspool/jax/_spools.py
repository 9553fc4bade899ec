"""The spools of this room: given ones, and those of this process where none is given."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import jax
from unspool import Spool
from unspool._gradient import refuse_gradient
from unspool._history import own
from unspool._unspool import jax_drop, jax_forget, jax_give_up, jax_loop, jax_may_join
from unspool.advice.sizes import bytes_of
from unspool.errors import OptionError

__all__ = ["Loop", "forget", "give_up", "loop_of", "tie"]

#: The most bytes of several states that are saved together. Each state is copied once more for it:
#: on the host that is worth a call only while they stay in a processor's cache.
TOGETHER = {"cpu": 256 << 10, "gpu": 8 << 20}
#: What part of the smallest tier they may take: several are on their way at once.
PART = 16

_lock = threading.Lock()
#: By the kind of machine and the budget: a compiled program may be called until the process ends.
_own: dict[tuple[str, int | None], list[Spool]] = {}
#: Loops by the first spool, and then by the others and the codec.
_loops: weakref.WeakKeyDictionary[Spool, dict[Any, Loop]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Loop:
    """Where a loop keeps its states.

    Attributes:
        number: by which compiled programs name it.
        together: the most bytes of several states that are saved together.
    """

    number: int
    together: int


def forget(spool: Spool | None = None) -> int:
    """Discards what forward passes have saved and no backward pass has begun to read.

    What is saved goes as the backward pass reads it. A forward pass whose backward pass never comes
    (a function of `jax.vjp` that is not called) leaves its states in the spool until this is
    called, or the spool is closed. A backward pass that comes later raises an error.

    Arguments:
        spool: only what is in this one; None for all spools, those of this module among them.

    Returns:
        The number of forward passes.
    """
    return jax_forget(spool)


def loop_of(call: str, spool: Any, budget: Any, codec: Any) -> Loop:
    """Where a loop keeps its states.

    Raises:
        OptionError: no spool was given, or a budget beside one; `codec` is a `Gradient`.
    """
    refuse_gradient(f"jax.{call}", codec)
    if spool is not None and budget is not None:
        raise OptionError(
            f"{call}: a budget is for a spool of its own; the tiers of the one that is given say "
            "how much it takes."
        )
    spools = _opened(budget) if spool is None else _given(call, spool)
    key = (tuple(id(each) for each in spools), repr(codec))
    with _lock:
        loops = _loops.setdefault(spools[0], {})
        if key not in loops:
            number = jax_loop(spools, codec)
            loops[key] = Loop(number, _together(spools) if jax_may_join(number) else 0)
        return loops[key]


def _together(spools: list[Spool]) -> int:
    """The most bytes that are saved together, so that the smallest tier has room for several."""
    tiers = [tier for spool in spools for tier in spool.stats().tiers]
    most = TOGETHER.get(jax.default_backend(), 0)
    return min([most, *(tier.capacity // PART for tier in tiers if tier.capacity is not None)])


def _given(call: str, spool: Any) -> list[Spool]:
    spools = list(spool) if isinstance(spool, list | tuple) else [spool]
    if not spools or not all(isinstance(each, Spool) for each in spools):
        raise OptionError(
            f"{call}(spool={spool!r}): give a Spool, or a list with one for each GPU."
        )
    if any(each.closed for each in spools):
        raise OptionError(f"{call}: the spool is closed. Open one for as long as the loop is used.")
    return spools


def _opened(budget: Any) -> list[Spool]:
    size = None if budget is None else bytes_of("budget", budget)
    backend = jax.default_backend()
    with _lock:
        spools = _own.get((backend, size), [])
        if not spools or any(each.closed for each in spools):
            spools = [
                own(place, "auto" if size is None else size, disk=True)
                for place in _places(backend)
            ]
            _own[backend, size] = spools
        return spools


def _places(backend: str) -> list[str]:
    if backend != "gpu":
        return ["cpu"]
    return [f"cuda:{device.local_hardware_id}" for device in jax.local_devices()]


def tie(token: Any) -> None:
    """Discards a history when nothing refers to its token, a residual, any more. That is known only
    outside of compiled programs, where residuals are arrays and not tracers."""
    if _is_array(token):
        # Another array with the same number: the token itself would be kept alive.
        weakref.finalize(token, lambda other: jax_drop(_number(other)), token + 0).atexit = False


def give_up(token: Any) -> None:
    """Discards the history of a pass that has failed, outside of compiled programs."""
    if _is_array(token):
        jax_give_up(_number(token))


def _is_array(token: Any) -> bool:
    """Whether a token has a value, as it has outside of compiled programs."""
    return isinstance(token, jax.Array) and not isinstance(token, jax.core.Tracer)


def _number(token: Any) -> int:
    low, high = token.tolist()
    return int(low | high << 32)
