"""PyTorch in one line: time loops and models whose saved tensors do not fit, through a spool.

- `scan` is a loop such as that of `torch.scan`, of which autograd keeps a budget's worth: every
  gradient, also the second one, is that of the plain loop, bit for bit.
- `adjoint` keeps states only, by a schedule, for loops of so many operations that the graph itself
  does not fit.
- `budget` keeps, computes again or moves the blocks of a model, whichever makes a step fastest.
- `offload` is a context in which the tensors that autograd saves are kept up to a budget, and the
  oldest of the rest are moved into a spool.

`import unspool` does not import this module, and so not PyTorch.
"""

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
