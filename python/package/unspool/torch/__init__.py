"""PyTorch in one line: time loops and models whose saved tensors do not fit, through a spool.

- `scan` is a loop with the arguments of `jax.lax.scan`. Autograd keeps only a budget of it. Every
  gradient, also the second one, is that of the plain loop, bit for bit.
- `adjoint` keeps states only, by a schedule, for loops whose graph does not fit.
- `budget` keeps, recomputes or moves each block of a model, whichever makes a step fastest.
- `offload` is a context that moves the oldest saved tensors beyond a budget into a spool.

`import unspool` does not import this module, and so not PyTorch.
"""

# The files of this room. A file imports from its own line or a later one:
#   _scan, _adjoint, _offload, _budget: the functions; _passes: of adjoint; _told: `report=` of scan
#   _ordered_scan, _ordered: a Gradient; _checked: `check=`; _backwards: copies of a scan's segments
#   _stack, _states, _moving, _found, _clock: of budget, whose decisions are in `advice/blocks.py`
#   _kept, _entry, _lanes: of offload; _segments: how long those of scan are, pure
#   _recompute, _again, _reached, _places, _generators, _hooks: recomputation; _inputs: checkpoints
#   dcp: storage of torch.distributed.checkpoint, which needs none of the others
#   _spools, _layout, _trees, _surroundings, _changed, _eager, _graph: what the others share

from __future__ import annotations

from unspool.errors import MissingLibraryError

try:
    import torch as _torch  # noqa: F401 - the room below needs it
except ImportError as missing:
    raise MissingLibraryError(
        f"unspool.torch needs PyTorch, which cannot be imported here ({missing}): "
        "`pip install torch`, 2.4 or later."
    ) from missing

from ._adjoint import adjoint
from ._budget import budget
from ._offload import offload
from ._scan import scan

__all__ = ["adjoint", "budget", "offload", "scan"]
