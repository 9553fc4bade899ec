"""A drop-in for the part of pyrevolve that Devito programs use, storing through a spool.

    from unspool.interop.pyrevolve import Revolver       # was: from pyrevolve import Revolver

    revolver = Revolver(checkpoint, forward, gradient, n_checkpoints, n_timesteps)
    revolver.apply_forward()
    revolver.apply_reverse()

The operators are called as pyrevolve (https://github.com/devitocodes/pyrevolve) calls them: with
the same steps, in the same order. The copies of the state lie in a spool instead of one array: they
go straight from the arrays of the checkpoint object into it and back, may spill to disk, and are
brought back before they are restored. `spool=` takes a spool of one's own, `schedule=` any schedule
of `unspool.schedules`.

Left out: compression (a spool keeps bytes as they are), pyrevolve's storage classes as places to
keep bytes oneself, and its scheduler classes. pyrevolve itself is not needed, but the classes
`DevitoCheckpoint` and `CheckpointOperator` of Devito are there only if `import pyrevolve` works.
"""

from unspool.interop.pyrevolve.binomial import adjust
from unspool.interop.pyrevolve.levels import DiskStorage, MultiLevelRevolver, NumpyStorage
from unspool.interop.pyrevolve.profiler import Profiler
from unspool.interop.pyrevolve.revolver import BaseRevolver
from unspool.interop.pyrevolve.single import (
    DiskRevolver,
    MemoryRevolver,
    Revolver,
    SingleLevelRevolver,
)
from unspool.interop.pyrevolve.words import Checkpoint, Operator

__all__ = [
    "BaseRevolver",
    "Checkpoint",
    "DiskRevolver",
    "DiskStorage",
    "MemoryRevolver",
    "MultiLevelRevolver",
    "NumpyStorage",
    "Operator",
    "Profiler",
    "Revolver",
    "SingleLevelRevolver",
    "adjust",
]
