"""Options of `adjoint` that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from .._files import AnyPath
from .._gradient import Gradient
from ..codecs.values import Codecs

__all__ = ["Access", "Resume"]

# How many restores ahead of the current one are announced.
LOOKAHEAD = 1024


@dataclass(frozen=True, slots=True)
class Access:
    """How `adjoint` uses its spool.

    Attributes:
        first: the version of state 0. The versions to `first + N` must be free.
        stream: the stream of copies of arrays on a GPU, as for `Spool.save`.
        lookahead: how many restores are announced ahead of time, from a dry run of the schedule.
            `"learn"` leaves it to a `Spool(learn=True)`: from the second adjoint with the same
            saves and restores on, what is restored after each run of saves is announced when these
            are made. It is for schedules whose dry run is expensive or goes another way.
        codec: of the states, in the place of the spool's; or an `unspool.Gradient`, which chooses
            bounds from the accuracy that the gradient has to have. That needs `adjoint_state`, as
            for `check`. Its first adjoint runs the loop several times, `at_end` included, from the
            same state and `adjoint_state`: steps must repeat themselves.
    """

    first: SupportsIndex = 0
    stream: Any = None
    lookahead: SupportsIndex | Literal["learn"] = LOOKAHEAD
    codec: Codecs | Gradient = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Where `adjoint` keeps what another process can go on from.

    Attributes:
        path: a folder on a file system that outlives the process.
        every: the time between two checkpoints, a number of steps, or `"auto"`, as for a
            `Checkpointer`. States of the forward sweep stay until the end, so that there has to be
            room for one for each `every` of it.
    """

    path: AnyPath
    every: int | str = "auto"
