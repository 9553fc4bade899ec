"""Other projects' schedules and interfaces, in both directions.

- `from_checkpoint_schedules` drives a schedule of the checkpoint_schedules package on a spool;
  `as_checkpoint_schedule` hands one of ours to pyadjoint, Firedrake and everything else that takes
  those.
- `unspool.interop.pyrevolve` is a drop-in for the part of pyrevolve that Devito programs use.
- `unspool.interop.deepwave` keeps the histories of Deepwave's propagators in a spool.
- `unspool.interop.zarr` has the codec Twine for arrays that are written to Zarr.

None of those packages is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["as_checkpoint_schedule", "from_checkpoint_schedules"]


def from_checkpoint_schedules(
    schedule: Any, steps: int | None = None, storage_map: Mapping[Any, str | None] | None = None
) -> Any:
    """A schedule of checkpoint_schedules as one of ours, to be driven on a spool.

    Arguments:
        schedule: any `checkpoint_schedules.CheckpointSchedule` of which no action was taken yet.
            It is copied and stays as it is.
        steps: the number of steps, for those that do not know it (`max_n` is None). Without it the
            forward pass ends where the application says so, with `schedules.Stop`.
        storage_map: the tier (`"device"`, `"host"`, `"disk"`, or None for no preference) of each
            `StorageType`, or of its name. RAM is the host tier and DISK the disk tier otherwise.

    Returns:
        A `schedules.Schedule`. Of a schedule that allows several adjoint sweeps it has the first.

    Raises:
        ScheduleError: it has begun, computes no adjoint, knows another number of steps, or asks for
            what is not there; or `steps` is not a number of steps.
        OptionError: `storage_map` names no storage or no tier.
        TypeError: it is not a CheckpointSchedule.
    """
    from unspool.interop import checkpoint_schedules

    return checkpoint_schedules.adapt(schedule, steps, storage_map)


def as_checkpoint_schedule(
    schedule: Any,
    storage: Any = "RAM",
    *,
    adjoint_data: bool | None = None,
    whole_states: bool = False,
) -> Any:
    """One of our schedules as a `checkpoint_schedules.CheckpointSchedule`.

    Arguments:
        schedule: anything that `schedules.as_schedule` takes.
        storage: where copies go that name no tier: `"RAM"`, `"DISK"`, or the `StorageType`. Or a
            mapping from tiers (None included) to these; the device and host tiers are RAM
            otherwise, the others DISK.
        adjoint_data: whether copies that are only read in order to reverse hold the data of the
            adjoint (`write_adj_deps`) instead of what restarts the forward: the forward step that
            would recompute that data falls away. None: for `StoreAll` and `ZCut`.
        whole_states: whether the restart data of a step is all that any later step needs. The
            package promises only the steps up to the next copy; `OnlineRevolve` needs more.

    Returns:
        An iterator that can be used once, like all of that package.

    Raises:
        MissingLibraryError: the package is not installed.
        ScheduleError: the schedule runs on from a copy past the next one that was saved, without
            `whole_states`.
        OptionError: `storage` names no tier, or no storage for copies.
    """
    from unspool.interop import checkpoint_schedules
    from unspool.schedules import as_schedule

    return checkpoint_schedules.offer(as_schedule(schedule), storage, adjoint_data, whole_states)
