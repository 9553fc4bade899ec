"""A Revolver with copies in main memory and on disk, whose costs are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from unspool import Spool
from unspool.errors import OptionError
from unspool.interop.pyrevolve.keeper import frame_bytes
from unspool.interop.pyrevolve.options import STAGED, disk_spool, positive
from unspool.interop.pyrevolve.revolver import BaseRevolver
from unspool.schedules import Action, MultiLevel, Restore, Save

__all__ = ["DiskStorage", "MultiLevelRevolver", "NumpyStorage"]


class _Level:
    """What a place for copies costs and holds."""

    def __init__(
        self,
        size_ckp: int,
        n_ckp: int,
        dtype: Any,
        profiler: Any,
        wd: float,
        rd: float,
        name: str,
    ) -> None:
        self.size_ckp = size_ckp
        self.n_ckp = n_ckp
        self.dtype = dtype
        self.profiler = profiler
        self.wd = wd
        self.rd = rd
        self.name = name

    @property
    def nckp(self) -> int:
        """How many copies it holds."""
        return self.n_ckp


class NumpyStorage(_Level):
    """Room for `n_ckp` copies in main memory; writing one costs `wd` and reading one `rd`.

    Only says so: the bytes are in the Revolver's spool, and none are taken up before that.
    """

    def __init__(
        self,
        size_ckp: int,
        n_ckp: int,
        dtype: Any,
        profiler: Any = None,
        wd: float = 0,
        rd: float = 0,
        name: str = "MemoryStorage",
    ) -> None:
        super().__init__(size_ckp, n_ckp, dtype, profiler, wd, rd, name)


class DiskStorage(_Level):
    """Room for `n_ckp` copies in the directory `filedir`; writing one costs `wd`, reading one `rd`.

    Only says so: the bytes are in the Revolver's spool, which makes and removes the files.
    `singlefile` has no effect. `keepfiles=True` is refused: an `unspool.Disk` with `durable=True`
    in a spool of one's own keeps files.
    """

    def __init__(
        self,
        size_ckp: int,
        n_ckp: int,
        dtype: Any,
        profiler: Any = None,
        filedir: str | os.PathLike[str] | None = "./",
        singlefile: bool = True,
        wd: float = 0,
        rd: float = 0,
        name: str = "DiskStorage",
        keepfiles: bool = False,
    ) -> None:
        super().__init__(size_ckp, n_ckp, dtype, profiler, wd, rd, name)
        if keepfiles:
            raise OptionError(
                "keepfiles=True: the copies of a run are removed when they were used. To keep "
                "states, save them in a spool with disk=unspool.Disk(path, durable=True)."
            )
        self.filedir = "./" if filedir is None else filedir
        self.singlefile = singlefile


class MultiLevelRevolver(BaseRevolver):
    """Reverses `n_timesteps` steps with copies in main memory and on disk: the schedule
    `unspool.schedules.MultiLevel`, which knows what a copy costs in each. pyrevolve uses H-Revolve
    here (Herrmann and Pallez, ACM TOMS 46(2), 2020); the calls are not the same, the results are.

    Arguments:
        checkpoint, fwd_operator, rev_operator, n_timesteps, timings, profiler: as for
            `SingleLevelRevolver`.
        storage_list: where copies may lie: a `NumpyStorage`, a `DiskStorage`, or one of each. The
            costs in them are in the same unit as the three that follow.
        uf: the cost of a forward step.
        ub: the cost of reversing a step.
        up: the cost of turning round after the forward pass.
        spool, first: as for `SingleLevelRevolver`.

    Raises:
        OptionError, ScheduleError: one of these makes no sense.
    """

    def __init__(
        self,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_timesteps: int,
        storage_list: Sequence[Any],
        timings: Any = None,
        profiler: Any = None,
        uf: float = 1,
        ub: float = 1,
        up: float = 1,
        *,
        spool: Spool | None = None,
        first: int = 0,
    ) -> None:
        steps = positive("n_timesteps", n_timesteps)
        levels = _by_tier(storage_list)
        super().__init__(
            checkpoint,
            fwd_operator,
            rev_operator,
            steps,
            MultiLevel(
                steps,
                **{tier: level.n_ckp for tier, level in levels.items()},
                write_seconds={tier: level.wd for tier, level in levels.items()},
                read_seconds={tier: level.rd for tier, level in levels.items()},
                step_seconds=uf,
            ),
            _opener(steps, levels),
            spool=spool,
            first=first,
            timings=timings,
            profiler=profiler,
        )
        self.storage_list = list(storage_list)
        self.n_checkpoints = steps
        self.uf, self.ub, self.up = uf, ub, up
        self._levels = levels

    @property
    def makespan(self) -> float:
        """The predicted cost of a run: forward steps (`uf`), reversals (`ub`), the turn (`up`), and
        what is written and read."""
        steps = self.uf * (self.schedule.counts().advances + 1) + self.ub * self.n_timesteps
        return float(steps + self.up) + sum(self._copying(action) for action in self.schedule)

    def storage_ckps(self, k: int = 0) -> list[int]:
        """The steps whose states are kept at the moment in level `k` of `storage_list`."""
        return self._keeper.steps(_tier(self.storage_list[k]))

    def _copying(self, action: Action) -> float:
        match action:
            case Save(tier=str(tier)):
                return float(self._levels[tier].wd)
            case Restore(tier=str(tier)):
                return float(self._levels[tier].rd)
        return 0


def _tier(level: Any) -> str:
    return "disk" if hasattr(level, "filedir") else "host"


def _by_tier(storage_list: Sequence[Any]) -> dict[str, Any]:
    given = list(storage_list or ())
    levels = {_tier(level): level for level in given if hasattr(level, "n_ckp")}
    if not levels or len(levels) != len(given):
        raise OptionError(
            "storage_list: give a NumpyStorage, a DiskStorage, or one of each: the copies go into "
            "a spool, which has one tier in main memory and one on disk."
        )
    return {tier: levels[tier] for tier in ("host", "disk") if tier in levels}


def _opener(steps: int, levels: dict[str, Any]) -> Callable[[Sequence[Any]], Spool]:
    """Opens a spool with room for the copies in memory, and those on disk in its directory."""

    def open_spool(arrays: Sequence[Any]) -> Spool:
        room = frame_bytes(arrays)
        copies = {tier: min(level.n_ckp, steps) for tier, level in levels.items()}
        if "disk" not in levels:
            return Spool(host_memory=copies["host"] * room)
        return disk_spool(max(copies.get("host", 0), STAGED) * room, levels["disk"].filedir)

    return open_spool
