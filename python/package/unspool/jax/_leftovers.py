"""What failed calls have left in a spool: which executions are over, and which tokens are held."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import jax
import numpy as np
from unspool._unspool import jax_tidied_by, jax_tidy

#: Where JAX calls functions of Python in the middle of an execution.
CALLBACKS = ("callback.py", "debugging.py")


def tidy(of_python: bool, run: int | None) -> None:
    """Gives up the histories that nobody can read, of executions that are over.

    Arguments:
        of_python: whether this is a thread of Python, which waits for what it starts, and not one
            of XLA's, behind which there is one of Python.
        run: the execution in which this is called.
    """
    frames = sys._current_frames()
    if any(map(_is_called_by_jax, frames.values())):
        return  # Within another execution.
    arrays = jax.live_arrays()
    live = _numbers(arrays)
    if live is not None:
        others = frames.keys() - {threading.get_ident()}
        alone = len(others) <= (0 if of_python else 1) and all(each.is_ready() for each in arrays)
        jax_tidy(live, of_python, alone, run)


def _is_called_by_jax(frame: FrameType | None) -> bool:
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("jax._src") and frame.f_code.co_filename.endswith(CALLBACKS):
            return True
        frame = frame.f_back
    return False


def _numbers(arrays: list[Any]) -> set[int] | None:
    """The numbers of histories in arrays that may be tokens; None where some cannot be read yet."""
    found: set[int] = set()
    for array in arrays:
        if array.dtype != np.uint32 or array.size % 2 or not array.size:
            continue
        if not array.is_ready() or not array.is_fully_addressable:
            return None
        try:
            words = np.asarray(array).reshape(-1, 2).astype(np.uint64)
        except jax.errors.JaxRuntimeError:
            continue  # The call whose result it is has failed.
        found.update((words[:, 0] | words[:, 1] << np.uint64(32)).tolist())
    return found


jax_tidied_by(tidy)
