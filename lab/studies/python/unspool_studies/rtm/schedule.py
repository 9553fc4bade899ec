"""Which schedule a job follows, from its name to one that drives a shot; and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from unspool import schedules
from unspool.errors import Error
from unspool.schedules import Discard, Forward, Restore, Reverse, Save, Schedule
from unspool.schedules.base import dry_run
from unspool_studies.rtm.errors import MigrationError

__all__ = ["DEFAULT_SNAPSHOTS", "NAMES", "PLANNED", "Choice", "Costs", "Kept", "kept_by", "name_of"]

#: The names that `--schedule` knows beside `trace:FILE`.
NAMES = ("all", "revolve", "online", "uniform", "zcut", "levels", "auto")
#: Those that are made from what was measured here.
PLANNED = ("levels", "auto")
#: What stands before the file of a schedule that was written down.
TRACE = "trace:"
#: Groups in a cut of `zcut` when nothing is given: what its authors' figures imply.
DEFAULT_LENGTH = 36
#: Snapshots of the schedules that need a number of them, when none is given.
DEFAULT_SNAPSHOTS = 20


class Costs(Protocol):
    """What schedules that know this machine are made from; see `unspool_studies.rtm.pace.Pace`."""

    @property
    def best(self) -> Any:
        """The candidate that a plan says is fastest."""

    def levels(self) -> Schedule:
        """The schedule over several tiers."""


@dataclass(frozen=True)
class Choice:
    """The schedule that was asked for.

    Attributes:
        name: one of `NAMES`, or `trace:FILE`.
        snapshots: states that are kept at most.
        cuts: of `zcut`: how many.
        length: of `zcut`: groups of steps in each.

    Raises:
        MigrationError: there is no such schedule, or a figure that it does not take.
    """

    name: str = "all"
    snapshots: int | None = None
    cuts: int | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES and not self.name.startswith(TRACE):
            known = ", ".join(NAMES)
            raise MigrationError(f"there is no schedule {self.name!r}: {known}, or trace:FILE")
        for option, value, takers in (
            ("--snapshots", self.snapshots, ("revolve", "online", "uniform", "zcut")),
            ("--cuts", self.cuts, ("zcut",)),
            ("--cut-length", self.length, ("zcut",)),
        ):
            if value is not None and self.name not in takers:
                raise MigrationError(f"--schedule {self.name} takes no {option}")
            if value is not None and value < 1:
                raise MigrationError(f"{option} must be at least 1, and is {value}")
        if sum(value is not None for value in (self.snapshots, self.cuts, self.length)) > 1:
            raise MigrationError("of --snapshots, --cuts and --cut-length give one")

    def schedule(self, steps: int, costs: Costs) -> Schedule:
        """The schedule of a shot of so many groups of steps.

        Args:
            steps: how many groups there are.
            costs: are measured by `levels` and `auto` only.

        Raises:
            MigrationError: it cannot be made; the text says why.
        """
        try:
            return self._make(steps, costs)
        except (Error, OSError) as error:
            raise MigrationError(f"--schedule {self.name}: {error}") from error

    def _make(self, steps: int, costs: Costs) -> Schedule:
        snapshots = min(self.snapshots or DEFAULT_SNAPSHOTS, max(1, steps - 1))
        if self.name == "all":
            return schedules.StoreAll(steps)
        if self.name == "revolve":
            return schedules.Revolve(steps, snapshots)
        if self.name == "online":
            return schedules.OnlineRevolve(snapshots)
        if self.name == "uniform":
            return schedules.Uniform(steps, snapshots)
        if self.name == "zcut":
            return schedules.ZCut(steps, **self._cuts(steps))
        if self.name == "levels":
            return costs.levels()
        if self.name == "auto":
            found: Schedule = costs.best.schedule
            return found
        return _written(self.name.removeprefix(TRACE), steps)

    def _cuts(self, steps: int) -> dict[str, int]:
        if self.cuts is not None:
            return {"cuts": self.cuts}
        if self.snapshots is not None:
            return {"slots": self.snapshots}
        return {"length": min(steps, self.length or DEFAULT_LENGTH)}


def name_of(schedule: Schedule) -> str:
    """As it is written in Python, without measured costs."""
    if not isinstance(schedule, schedules.MultiLevel):
        return repr(schedule)
    slots = ((tier, getattr(schedule, tier)) for tier in ("device", "host", "disk"))
    kept = ", ".join(f"{tier}={count}" for tier, count in slots if count is not None)
    return f"MultiLevel(steps={schedule.steps}, {kept})"


def _written(path: str, steps: int) -> Schedule:
    trace = schedules.Trace(path)
    if trace.steps != steps:
        raise MigrationError(
            f"{path} is a schedule of {trace.steps} steps, and a shot has {steps} groups of steps: "
            "choose --steps and --every so that they agree"
        )
    return trace


@dataclass(frozen=True)
class Kept:
    """What one shot keeps and computes by a schedule.

    Attributes:
        steps: groups of steps.
        advances: groups that the forward waves are advanced over, again and again perhaps.
        saves: copies made.
        peak_copies: the most at a time.
        peak_bytes: the most bytes at a time.
    """

    steps: int
    advances: int
    saves: int
    peak_copies: int
    peak_bytes: int

    @property
    def recomputed(self) -> int:
        """Groups that were advanced over more than once."""
        return self.advances - (self.steps - 1)


def kept_by(schedule: Schedule, steps: int, state_bytes: int, reverse_bytes: int) -> Kept:
    """Goes through a schedule and adds up.

    Args:
        schedule: of one shot.
        steps: groups of steps.
        state_bytes: of a copy that the forward waves go on from.
        reverse_bytes: of one that is only restored to be reversed.
    """
    if isinstance(schedule, schedules.StoreAll):
        copies = steps - 1
        return Kept(steps, copies, copies, copies, copies * reverse_bytes)
    ledger = _Ledger(steps, schedule.steps is not None)
    for action in dry_run(schedule, steps):
        ledger.see(action)
    sizes = [reverse_bytes if copy.only_reversed else state_bytes for copy in ledger.copies]
    held = copies = peak_bytes = peak_copies = 0
    for copy, sign in ledger.changes:
        held, copies = held + sign * sizes[copy], copies + sign
        peak_bytes, peak_copies = max(peak_bytes, held), max(peak_copies, copies)
    return Kept(steps, ledger.advances, len(sizes), peak_copies, peak_bytes)


@dataclass
class _Copy:
    """A state that is kept, from its first save to the discard of its last copy.

    Attributes:
        number: in the order of the first saves.
        only_reversed: whether it is known, when it is saved, that nothing but a `Reverse` will rely
            on it. What a copy is for is not known before the number of steps is.
        tiers: where copies of it are: a state in several tiers is one checkpoint of the spool.
    """

    number: int
    only_reversed: bool
    tiers: set[str | None]


class _Ledger:
    """Which copies come and go, and what they are for."""

    def __init__(self, steps: int, known: bool) -> None:
        self._steps = steps
        self._known = known
        self.advances = 0
        self.copies: list[_Copy] = []
        self.changes: list[tuple[int, int]] = []
        self._kept: dict[int, _Copy] = {}
        # The copy that the working state comes from, while it is as it was restored.
        self._working: _Copy | None = None

    def see(self, action: Any) -> None:
        """One action after the other."""
        match action:
            case Forward(start, stop):
                self._rely()
                # Where the number of steps is not known, the forward pass ends on the way.
                self.advances += min(stop, self._steps) - start
                self._known |= stop >= self._steps
            case Save(step, tier):
                self._rely()
                self._save(step, tier)
            case Restore(step):
                self._working = self._kept[step]
            case Discard(step, tier):
                self._discard(step, tier)
            case Reverse():
                self._working = None

    def _rely(self) -> None:
        """All of the working state is needed."""
        if self._working is not None:
            self._working.only_reversed = False
            self._working = None

    def _save(self, step: int, tier: str | None) -> None:
        if step in self._kept:
            self._kept[step].tiers.add(tier)
            return
        copy = _Copy(len(self.copies), self._known, {tier})
        self._kept[step] = copy
        self.changes.append((copy.number, 1))
        self.copies.append(copy)

    def _discard(self, step: int, tier: str | None) -> None:
        copy = self._kept[step]
        copy.tiers.discard(tier)
        if not copy.tiers:
            del self._kept[step]
            self.changes.append((copy.number, -1))
