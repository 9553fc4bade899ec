"""Which schedule a job follows, from its name to one that drives a shot; and what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from unspool import schedules
from unspool._unspool import Uses
from unspool.errors import Error
from unspool.rtm.errors import MigrationError
from unspool.schedules import Discard, Forward, Save, Schedule
from unspool.schedules.base import dry_run
from unspool.schedules.given import word_of

__all__ = ["DEFAULT_SNAPSHOTS", "NAMES", "Choice", "Costs", "Kept", "kept_by", "name_of"]

#: The names that `--schedule` knows beside `trace:FILE`.
NAMES = ("all", "revolve", "online", "uniform", "zcut", "levels", "auto")
#: What stands before the file of a schedule that was written down.
TRACE = "trace:"
#: Groups in a cut of `zcut` when nothing is given: what its authors' figures imply.
DEFAULT_LENGTH = 36
#: Snapshots of the schedules that need a number of them, when none is given.
DEFAULT_SNAPSHOTS = 20


class Costs(Protocol):
    """What schedules that know this machine are made from; see `unspool.rtm.pace.Pace`."""

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
    ledger, uses = _Ledger(steps, schedule.steps is not None), Uses()
    for action in dry_run(schedule, steps):
        ledger.see(action)
        uses.see([word_of(action)])
    sizes = [
        reverse_bytes if known and uses.only_reversed(copy) else state_bytes
        for copy, known in enumerate(ledger.known)
    ]
    held = copies = peak_bytes = peak_copies = 0
    for copy, sign in ledger.changes:
        held, copies = held + sign * sizes[copy], copies + sign
        peak_bytes, peak_copies = max(peak_bytes, held), max(peak_copies, copies)
    return Kept(steps, ledger.advances, len(sizes), peak_copies, peak_bytes)


class _Ledger:
    """Which copies come and go, and of which it is known by then what they are for."""

    def __init__(self, steps: int, known: bool) -> None:
        self._steps = steps
        # What a copy is for is not known before the number of steps is: it then holds everything.
        self._known = known
        self.advances = 0
        self.known: list[bool] = []
        self.changes: list[tuple[int, int]] = []
        self._copies: dict[int, tuple[int, set[str | None]]] = {}

    def see(self, action: Any) -> None:
        """One action after the other."""
        match action:
            case Forward(start, stop):
                # Where the number of steps is not known, the forward pass ends on the way.
                self.advances += min(stop, self._steps) - start
                self._known |= stop >= self._steps
            case Save(step, tier):
                self._save(step, tier)
            case Discard(step, tier):
                self._discard(step, tier)

    def _save(self, step: int, tier: str | None) -> None:
        """A state that is kept in several tiers is one checkpoint of the spool."""
        if step in self._copies:
            self._copies[step][1].add(tier)
            return
        self._copies[step] = (len(self.known), {tier})
        self.changes.append((len(self.known), 1))
        self.known.append(self._known)

    def _discard(self, step: int, tier: str | None) -> None:
        copy, tiers = self._copies[step]
        tiers.discard(tier)
        if not tiers:
            del self._copies[step]
            self.changes.append((copy, -1))
