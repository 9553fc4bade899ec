"""Reads the actions of checkpoint_schedules as ours.

Theirs speak of data, ours of states. What restarts the forward at step n is state n, and so is what
the adjoint of step n needs, as reversing step n reads a function of state n. A checkpoint of theirs
is therefore a set of states: that of its first step, or those of all the steps whose adjoint data
it holds.

The forward is followed late: the working state advances only when something needs it further on.
Their forward over the last step, and over each step that is reversed next, computes only adjoint
data; here it falls away. While the number of steps is not known, every advance is a real one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import checkpoint_schedules as theirs
from unspool.errors import ScheduleError
from unspool.interop.checkpoint_schedules.prune import Key
from unspool.schedules.actions import Action, End, Forward, Restore, Reverse, Save

__all__ = ["Translator"]


@dataclass
class _Checkpoint:
    """What one checkpoint of theirs holds.

    Attributes:
        tier: where its states are.
        restarts: whether the forward may start from it.
        steps: the steps whose states it holds.
        adjoints: the steps whose adjoint data it holds.
    """

    tier: str | None
    restarts: bool
    steps: list[int]
    adjoints: list[int]


class Translator:
    """Follows one schedule of theirs from its first action to the end of its first adjoint sweep.

    Attributes:
        steps: the number of steps, or None until it is known.
    """

    def __init__(self, source: Any, steps: int | None, tiers: Mapping[Any, str | None]) -> None:
        self.steps = steps
        self._source = source
        self._tiers = tiers
        self._left = steps  # Steps that are not reversed yet.
        self._at: int | None = 0  # The working state; None when it is worthless.
        self._ahead: int | None = 0  # Where their forward is.
        self._base: Key | None = None  # The copy that it starts from, not restored yet.
        self._work: dict[int, str | None] = {}  # Adjoint data at hand: step to tier.
        self._only_in_work: list[int] = []  # Those that no checkpoint on a shelf has.
        self._shelves: dict[Any, dict[int, _Checkpoint]] = {
            theirs.StorageType.RAM: {},
            theirs.StorageType.DISK: {},
        }
        self._held: Counter[Key] = Counter()  # How many of their places hold a copy of ours.

    def actions(self) -> Iterator[Action]:
        """Our actions. Saves may turn out to be useless, and nothing is discarded: see `prune`."""
        for action in self._source:
            yield from self._translated(action)
            if isinstance(action, theirs.EndReverse):
                break
        if self._left != 0:
            raise ScheduleError(
                "the schedule of checkpoint_schedules ends before every step was reversed: it "
                "computes no adjoint; choose one that does"
            )
        yield End()

    def finish(self, steps: int) -> None:
        """Says that the forward has ended at state `steps`, within the last Forward."""
        self._source.finalize(steps)
        self.steps = self._left = self._at = self._ahead = steps

    def _translated(self, action: Any) -> Iterator[Action]:
        if isinstance(action, theirs.Forward):
            return self._forward(action)
        if isinstance(action, theirs.Reverse):
            return self._reverse(action)
        if isinstance(action, theirs.Copy | theirs.Move):
            return self._carry(action, isinstance(action, theirs.Move))
        if isinstance(action, theirs.EndForward | theirs.EndReverse):
            return iter(())
        raise ScheduleError(f"{action!r} is not a known action of checkpoint_schedules")

    # Forward.

    def _forward(self, action: Any) -> Iterator[Action]:
        if action.n0 != self._ahead or action.n1 <= action.n0:
            raise ScheduleError(f"{action!r}: the forward is at {self._ahead}, and goes forward")
        if action.write_ics or action.write_adj_deps:
            yield from self._record(action)
        if self.steps is None:
            yield from self._reach(action.n1)
        self._ahead = action.n1 if self.steps is None else min(action.n1, self.steps)
        if self._source.max_n is None and self.steps is not None and action.n1 >= self.steps:
            self._source.finalize(self.steps)

    def _record(self, action: Any) -> Iterator[Action]:
        """Saves the states that the data which a Forward writes is made of."""
        if action.storage not in self._tiers:
            raise ScheduleError(f"{action!r}: data is to be kept, and that is not a place for it")
        tier = self._tiers[action.storage]
        checkpoint = self._place(action, tier)
        for step in range(action.n0, action.n1 if action.write_adj_deps else action.n0 + 1):
            yield from self._reach(step)
            if self.steps is not None and step >= self.steps:
                break
            yield from self._keep(step, tier)
            checkpoint.steps.append(step)
            if action.write_adj_deps:
                checkpoint.adjoints.append(step)
                if action.storage == theirs.StorageType.WORK:
                    self._work[step] = tier
                    self._only_in_work.append(step)

    def _place(self, action: Any, tier: str | None) -> _Checkpoint:
        """An empty checkpoint, on the shelf of its storage."""
        checkpoint = _Checkpoint(tier, action.write_ics, [], [])
        shelf = self._shelves.get(action.storage)
        if shelf is not None:
            if action.n0 in shelf:
                raise ScheduleError(f"{action!r}: that storage holds a checkpoint of {action.n0}")
            shelf[action.n0] = checkpoint
        return checkpoint

    def _reach(self, step: int) -> Iterator[Action]:
        """Makes the working state that of `step`."""
        if self.steps is not None and step >= self.steps:
            return
        base, self._base = self._base, None
        if base and not (self._at is not None and base[0] <= self._at <= step):
            self._at = base[0]
            yield Restore(*base)
        if self._at is None or self._at > step:
            raise ScheduleError(
                f"state {step} is needed, and neither the working state ({self._at}) nor a "
                "checkpoint that was copied to WORK leads to it"
            )
        if self._at < step:
            start, self._at = self._at, step
            yield Forward(start, step)

    # Copies.

    def _keep(self, step: int, tier: str | None) -> Iterator[Action]:
        """Keeps the working state, unless another place of theirs holds the same copy."""
        self._held[step, tier] += 1
        if self._held[step, tier] == 1:
            yield Save(step, tier)

    def _release(self, steps: list[int], tier: str | None) -> None:
        for step in steps:
            self._held[step, tier] -= 1
            if not self._held[step, tier]:
                del self._held[step, tier]

    def _offer(self, checkpoint: _Checkpoint) -> None:
        """Adjoint data of a checkpoint becomes that of the working storage."""
        for step in checkpoint.adjoints:
            self._work[step] = checkpoint.tier

    def _carry(self, action: Any, moves: bool) -> Iterator[Action]:
        """A Copy or a Move."""
        shelf = self._shelves.get(action.from_storage, {})
        checkpoint = shelf.get(action.n)
        if checkpoint is None:
            raise ScheduleError(f"{action!r}: there is no such checkpoint")
        if moves:
            del shelf[action.n]
        if action.to_storage == theirs.StorageType.WORK:
            self._load(action.n, checkpoint)
        elif action.to_storage in self._shelves:
            yield from self._relocate(action, checkpoint)
        if moves:
            self._release(checkpoint.steps, checkpoint.tier)

    def _load(self, step: int, checkpoint: _Checkpoint) -> None:
        """The forward may go on from a checkpoint, and the adjoint may use what it has."""
        self._ahead = step if checkpoint.restarts else None
        self._base = (step, checkpoint.tier) if checkpoint.restarts else None
        self._offer(checkpoint)

    def _relocate(self, action: Any, checkpoint: _Checkpoint) -> Iterator[Action]:
        """From one storage to another: through the working state, which is lost."""
        tier = self._tiers[action.to_storage]
        shelf = self._shelves[action.to_storage]
        if action.n in shelf:
            raise ScheduleError(f"{action!r}: that storage holds a checkpoint of {action.n}")
        shelf[action.n] = _Checkpoint(
            tier, checkpoint.restarts, [*checkpoint.steps], [*checkpoint.adjoints]
        )
        for step in checkpoint.steps:
            if tier != checkpoint.tier and self._at != step:
                self._at = step
                yield Restore(step, checkpoint.tier)
            yield from self._keep(step, tier)

    # The adjoint.

    def _reverse(self, action: Any) -> Iterator[Action]:
        if self._left is None or action.n1 != self._left or action.n0 >= action.n1:
            raise ScheduleError(f"{action!r}: the adjoint is at {self._left}, and goes backwards")
        for step in range(action.n1 - 1, action.n0 - 1, -1):
            if step not in self._work:
                raise ScheduleError(f"{action!r}: the adjoint data of step {step} is not in WORK")
            if self._at != step:
                yield Restore(step, self._work[step])
            yield Reverse(step)
            self._at = None
        self._left = action.n0
        if action.clear_adj_deps:
            self._work.clear()
            self._release(self._only_in_work, self._tiers[theirs.StorageType.WORK])
            self._only_in_work.clear()
