"""Revolvers with one kind of place for the copies, and binomial checkpointing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unspool import Spool
from unspool.interop.pyrevolve.binomial import adjust
from unspool.interop.pyrevolve.keeper import frame_bytes
from unspool.interop.pyrevolve.options import STAGED, disk_spool, positive, refuse_compression
from unspool.interop.pyrevolve.revolver import BaseRevolver
from unspool.schedules import Revolve, Schedule, as_schedule, check

__all__ = ["DiskRevolver", "MemoryRevolver", "Revolver", "SingleLevelRevolver"]


class SingleLevelRevolver(BaseRevolver):
    """Reverses `n_timesteps` steps with at most `n_checkpoints` copies of the state: Revolve
    (Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26(1), 2000), which computes the
    fewest steps again.

    Arguments:
        checkpoint: gives the arrays of the state, see `Checkpoint`. Any arrays that `Spool.save`
            takes, several dtypes among them.
        fwd_operator, rev_operator: compute, see `Operator`. Reversing step n is
            `fwd_operator.apply(t_start=n, t_end=n + 1)` with the state before step n, and then
            `rev_operator.apply(t_start=n, t_end=n + 1)`; for the last step the first of the two is
            the end of `apply_forward`.
        n_checkpoints: the most copies at a time; None chooses `adjust(n_timesteps)`.
        n_timesteps: the number of steps.
        timings: kept as an attribute, for programs that expect it.
        profiler: a `Profiler`, or anything with its `get_timer`; None makes one.
        compression_params: None, or a dictionary whose "scheme" is None. Others are refused.
        diskstorage: keep the copies on disk instead of in main memory.
        filedir: the directory for that, made if it is missing. What is written there goes when the
            spool is closed.
        singlefile: has no effect; which copies share a file is the spool's choice.
        spool: a spool of one's own, instead of one made with room for `n_checkpoints` copies. It is
            not closed.
        schedule: another schedule for these steps: one of `unspool.schedules`, a list of actions,
            or one of the package checkpoint_schedules.
        first: the version of the state before step 0 in `spool`; that before step n is version
            `first + n`.

    Raises:
        OptionError: one of these makes no sense.
    """

    def __init__(
        self,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_checkpoints: int | None,
        n_timesteps: int,
        timings: Any = None,
        profiler: Any = None,
        compression_params: Mapping[str, Any] | None = None,
        diskstorage: bool = False,
        filedir: str | os.PathLike[str] | None = "./",
        singlefile: bool = True,
        *,
        spool: Spool | None = None,
        schedule: Any = None,
        first: int = 0,
    ) -> None:
        steps = positive("n_timesteps", n_timesteps)
        copies = (
            adjust(steps) if n_checkpoints is None else positive("n_checkpoints", n_checkpoints)
        )
        refuse_compression(compression_params)
        chosen = Revolve(steps, copies) if schedule is None else _checked(schedule)
        super().__init__(
            checkpoint,
            fwd_operator,
            rev_operator,
            steps,
            chosen,
            _opener(chosen, (filedir or "./") if diskstorage else None),
            spool=spool,
            first=first,
            timings=timings,
            profiler=profiler,
        )
        self.n_checkpoints = copies
        self.compression_params = compression_params
        self.filedir = filedir
        self.singlefile = singlefile


class MemoryRevolver(SingleLevelRevolver):
    """A `SingleLevelRevolver` with its copies in main memory, or in the spool that is given."""

    def __init__(
        self,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_checkpoints: int | None,
        n_timesteps: int,
        timings: Any = None,
        profiler: Any = None,
        compression_params: Mapping[str, Any] | None = None,
        *,
        spool: Spool | None = None,
        schedule: Any = None,
        first: int = 0,
    ) -> None:
        super().__init__(
            checkpoint,
            fwd_operator,
            rev_operator,
            n_checkpoints,
            n_timesteps,
            timings,
            profiler,
            compression_params,
            spool=spool,
            schedule=schedule,
            first=first,
        )


class DiskRevolver(SingleLevelRevolver):
    """A `SingleLevelRevolver` with its copies on disk, or in the spool that is given."""

    def __init__(
        self,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_checkpoints: int | None,
        n_timesteps: int,
        timings: Any = None,
        profiler: Any = None,
        filedir: str | os.PathLike[str] | None = "./",
        singlefile: bool = True,
        *,
        spool: Spool | None = None,
        schedule: Any = None,
        first: int = 0,
    ) -> None:
        super().__init__(
            checkpoint,
            fwd_operator,
            rev_operator,
            n_checkpoints,
            n_timesteps,
            timings,
            profiler,
            diskstorage=True,
            filedir=filedir,
            singlefile=singlefile,
            spool=spool,
            schedule=schedule,
            first=first,
        )


#: With pyrevolve this is `MemoryRevolver`; here it takes the options of the disk as well.
Revolver = SingleLevelRevolver


def _checked(given: Any) -> Schedule:
    """A schedule that somebody else made; what is wrong with it is said before the first step."""
    schedule = as_schedule(given)
    if schedule.steps is not None:
        check(schedule)
    return schedule


def _opener(
    schedule: Schedule, filedir: str | os.PathLike[str] | None
) -> Callable[[Sequence[Any]], Spool]:
    """Opens a spool with room for the copies of this schedule, in main memory or a directory."""

    def open_spool(arrays: Sequence[Any]) -> Spool:
        room = frame_bytes(arrays)
        peak = schedule.counts().peak if schedule.slots is None else schedule.slots
        copies = max(1, min(peak, schedule.steps - 1))
        if filedir is None:
            return Spool(host_memory=copies * room)
        return disk_spool(min(copies, STAGED) * room, filedir)

    return open_spool
