"""A run of the driver that a folder outlives: it goes on where an earlier one was killed.

The schedule is followed from its beginning without doing anything, up to where the run goes on.
What the schedule keeps there is *missing*: the memory that had it is gone. It is computed again
when it is restored, from the newest durable state before it, with all that is missing on that way.
As a reverse sweep restores what comes last first, steps are reversed again as soon as the states
since one durable state are there, however often the run is killed.
"""

from __future__ import annotations

from .._unspool import Ahead
from ..errors import LostCheckpointError
from ..schedules.actions import DISCARD, FORWARD, RESTORE, REVERSE, SAVE, Word
from .durable import Durable, Place
from .run import Job, Run, changed
from .source import Twin

__all__ = ["ResumableRun"]


class ResumableRun(Run):
    """Goes on from the place that a folder has, and keeps there what is due."""

    def __init__(self, job: Job, durable: Durable) -> None:
        super().__init__(job)
        self.durable = durable
        self.origin = durable.place or Place(0, 0, self.steps)
        #: Whether actions are passed over that an earlier run has carried out.
        self.passing = bool(self.origin.state or self.origin.reversed)
        #: Restores that were passed over since the dry run began, and that dry run.
        self.passed = 0
        self.dry_run: tuple[Ahead, Twin] | None = None
        #: States that the schedule keeps and the spool does not have.
        self.missing: set[int] = set()
        self.known = self.farthest = self.origin.state
        self.reversed_before = self.origin.reversed
        if self.origin.reversed:
            self.turned = True
            self.known = self.farthest = self.origin.steps or 0

    def announce(self, ahead: Ahead, twin: Twin, passed: int = 0) -> None:
        """Has the spool hear of the restores that come, once they do."""
        if self.passing:
            self.dry_run, self.passed = (ahead, twin), 0
        else:
            super().announce(ahead, twin, passed)

    def act(self, word: Word) -> None:
        """Carries an action out, or passes it over."""
        if self.passing:
            self.inside = "the folder of `resume`"
            self.pass_over(word)
        else:
            super().act(word)

    def pass_over(self, word: Word) -> None:
        """Does nothing but what the schedule and the books need."""
        kind, first, second, _ = word
        if kind == FORWARD:
            self.pass_forward(first, second)
        elif kind == SAVE and first in self.held:
            self.held[first] += 1
        elif kind == SAVE:
            self.hold(first, self.begin_life())
            self.missing.add(first)
        elif kind == RESTORE:
            self.passed += 1
        elif kind == DISCARD:
            self.discard(first, 0, None)
        elif kind == REVERSE:
            self.reversed += 1
            if self.reversed == self.origin.reversed:
                self.arrive()

    def pass_forward(self, start: int, stop: int) -> None:
        """The forward sweep went on, and perhaps to its end, or to where this run begins."""
        if not self.origin.reversed:
            if stop >= self.origin.state:
                self.arrive()
                self.forward(max(start, self.origin.state), stop, None)
                self.tell((FORWARD, start, stop, None))
        elif self.steps is None and self.origin.steps is not None and stop >= self.origin.steps:
            self.ends_at(self.origin.steps)
            self.look_ahead()

    def arrive(self) -> None:
        """This run begins here."""
        self.passing = False
        if self.dry_run is not None:
            self.announce(*self.dry_run, self.passed)

    def forward(self, start: int, stop: int, _tier: str | None) -> None:
        """Advances the working state: from a durable one where that is nearer, and piece by piece
        where nobody has been."""
        if self.restored_part is not None:
            raise changed(f"it advances from state {start}")
        if start < self.farthest:
            self.inside = "the folder of `resume`"
            start = self.durable.bring(start + 1, stop) or start
        while start < stop:
            end = self.durable.piece(start, stop) if stop > self.farthest else stop
            is_new = end > self.farthest
            before = self.seconds["forward"]
            if not self.take(start, end):
                return
            if is_new:
                self.inside = "the folder of `resume`"
                self.durable.advanced(end, end - start, self.seconds["forward"] - before)
            start = end

    def restore(self, step: int, second: int, tier: str | None) -> None:
        """Makes a copy the working state."""
        if step in self.missing:
            self.make(step)
        super().restore(step, second, tier)

    def make(self, step: int) -> None:
        """Computes a state that is missing, and saves it with those on the way to it."""
        self.inside = "the folder of `resume`"
        at = self.durable.bring(0, step)
        if at is None:
            raise LostCheckpointError(
                "adjoint(resume=...): no state in the folder can be read, not even state 0: "
                "delete it to begin anew."
            )
        for wanted in sorted(one for one in self.missing if at <= one <= step):
            if wanted > at:
                self.take(at, wanted)
            at = wanted
            self.put(self.job.first + at, at in self.partial)
            self.saving = None
            self.missing.remove(at)

    def reverse(self, step: int, second: int, tier: str | None) -> None:
        """Takes the adjoint back over a step."""
        super().reverse(step, second, tier)
        self.inside = "the folder of `resume`"
        self.durable.reversed(self.reversed, self.steps or 0)

    def give_up(self, step: int) -> None:
        """Discards the copy of a state, if there is one."""
        if step in self.missing:
            self.missing.remove(step)
        else:
            super().give_up(step)
