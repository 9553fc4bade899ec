"""Records every step of a simulation and plays it back, in any order.

A `Spool` holds the history of a computation: checkpoints, named by integers, which flow through
tiers (memory, then disk) and come back before they are asked for.

    import numpy as np
    import unspool

    u = np.zeros((1601, 401), np.float32)
    with unspool.Spool(host_memory="4GiB", disk="/scratch") as spool:
        for step in range(1000):
            advance(u)
            spool.save(step, u)
        spool.expect(reversed(range(1000)), once=True)
        for step in reversed(range(1000)):
            spool.restore(step, u)
            adjoint(u)
        print(spool.stats())

Arrays may be those of NumPy, CuPy, PyTorch and JAX, on the CPU or a GPU, and everything else that
has DLPack, the buffer protocol or the CUDA array interface. All errors are `unspool.Error`s;
`unspool.errors` lists them.
"""

import atexit as _atexit
import importlib as _importlib
from typing import Any as _Any

from . import advice, codecs, errors, schedules
from ._adjoint import adjoint
from ._doctor import doctor
from ._gradient import Gradient
from ._increments import IncrementalSpool
from ._paging import paged
from ._restart import Checkpointer
from ._tiled import tiled
from ._types import Debug, Disk
from ._unspool import Spool, __version__, trim
from ._unspool import close_all as _close_all
from .advice import advise, plan
from .codecs import Bound
from .errors import Error

__all__ = [
    "Bound",
    "Checkpointer",
    "Debug",
    "Disk",
    "Error",
    "Gradient",
    "IncrementalSpool",
    "Spool",
    "__version__",
    "adjoint",
    "advice",
    "advise",
    "codecs",
    "doctor",
    "errors",
    "paged",
    "plan",
    "schedules",
    "tiled",
    "trim",
]

#: Modules that are loaded when they are first named: `unspool.torch` needs PyTorch, and so on.
_LATER = frozenset({"accumulate", "interop", "jax", "look", "messages", "stats", "torch", "types"})


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


# Spools that nobody closed are closed while the interpreter still works: their workers end and
# their directories are removed.
_atexit.register(_close_all)
