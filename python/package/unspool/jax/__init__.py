"""JAX in one line: loops that are differentiated through a spool, inside of compiled programs.

- `scan` is `jax.lax.scan` whose backward pass stays within a budget of memory: it keeps what fits,
  and recomputes the rest from states in the memory of XLA or in a spool.
- `while_loop` is `jax.lax.while_loop` with a gradient, and may take any number of steps. The states
  for the backward pass are in a spool, or within a budget of memory.
- `SpoolAdjoint` gives the same to `diffrax.diffeqsolve`.
- `forget` discards what forward passes have saved whose backward passes never came.

`import unspool` does not import this module, and so not JAX.
"""

# The files of this room. A file imports from its own line or a later one:
#   _diffrax: `SpoolAdjoint`; _scan, _while: the loops; _online: a `_while` within a budget
#   _planned: how a scan is cut for a budget, decided in `advice/segments.py`; _steps: those of a
#   `_while`; _states: states on their way into a spool; _lanes: those of `jax.vmap`
#   _perturbed: which leaves a gradient goes through; _calls: operations that become calls of XLA
#   _linear: how JAX is told a backward pass
#   _closures: steps as functions of all that they read; _spools; _leftovers: of failed calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool.errors import MissingLibraryError

try:
    import jax as _jax  # noqa: F401 - the room below needs it
    from jax import ffi as _ffi  # noqa: F401 - and this, which older versions do not have
except ImportError as missing:
    raise MissingLibraryError(
        f"unspool.jax needs JAX with jax.ffi, which cannot be imported here ({missing}): "
        "`pip install jax`, 0.10 or later."
    ) from missing

from . import _leftovers  # noqa: F401 - it says how to find what failed calls have left
from ._scan import scan
from ._spools import forget
from ._while import while_loop

if TYPE_CHECKING:
    from ._diffrax import SpoolAdjoint

__all__ = ["SpoolAdjoint", "forget", "scan", "while_loop"]


def __getattr__(name: str) -> Any:
    """What needs packages besides JAX, when it is first asked for."""
    if name == "SpoolAdjoint":
        from ._diffrax import SpoolAdjoint

        return SpoolAdjoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
