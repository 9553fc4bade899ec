"""One run of the driver: action by action, and what is put right when one of them fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter as clock
from typing import Any

from .._unspool import Ahead, Interpreter, Uses
from ..errors import (
    CapacityError,
    Error,
    OptionError,
    ScheduleError,
    UnknownVersionError,
    VersionExistsError,
)
from ..schedules import Auto, Schedule, Stop
from ..schedules.actions import FORWARD, REVERSE, Word, named
from ..schedules.given import figure
from .first_steps import FirstSteps
from .hints import Feeder
from .report import AdjointReport, Progress, moved
from .source import Source, Twin, source_of
from .states import Part, WorkingState, arrays_of

__all__ = ["Job", "Run", "changed"]

# What carries an action out, by its kind as `unspool.schedules.actions` counts them.
DOES = ("forward", "save", "restore", "reverse", "discard", "end")


@dataclass(frozen=True, slots=True)
class Job:
    """What `unspool.adjoint` was asked for."""

    schedule: Schedule
    spool: Any
    forward: Callable[[Any, int, int], Any]
    reverse: Callable[[Any, int], Any]
    state: WorkingState
    part: Part | None
    at_end: Callable[[Any], Any] | None
    first: int
    progress: Callable[[Progress], Any] | None
    stream: Any
    lookahead: int
    codec: Any = None
    #: Whether restores are announced from the schedule.
    announces: bool = True


class Run:
    """Carries the actions out. `held` counts the copies of each state that the schedule keeps: in
    several tiers they are one version of the spool."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.spool, self.state, self.part = job.spool, job.state, job.part
        self.steps = figure(job.schedule, "steps")
        # States that were saved before there was a schedule, and the one that was reached then.
        self.there: set[int] = set()
        self.reached = 0
        # Copies that the schedule does not count.
        self.apart = 0
        self.uses: Uses | None = None
        self.feeder: Feeder | None = None
        self.held: dict[int, int] = {}
        # The states whose copies hold only the part, and the part that was restored last.
        self.partial: set[int] = set()
        self.restored_part: Any = None
        self.lives = 0
        # A version that is being saved, and one that is kept while the last step is taken.
        self.saving: int | None = None
        self.turning: int | None = None
        # What runs now, for the note on an exception.
        self.word: Word | None = None
        self.inside = "the driver"
        self.turned = job.at_end is None
        self.forward_steps = self.reversed = self.saves = self.restores = 0
        # The most copies of a schedule that another one has replaced.
        self.peak = 0
        # States 0 to `farthest` were computed. An earlier run that this one goes on with had
        # computed those to `known`, and reversed so many steps.
        self.farthest = self.known = self.reversed_before = 0
        self.seconds = dict.fromkeys(("forward", "reverse", "at_end", "save", "restore"), 0.0)
        self.slower: frozenset[str] = frozenset()
        # The action before which the driver pauses.
        self.waiting: Word | None = None
        self.first_steps: FirstSteps | None = None
        if isinstance(job.schedule, Auto):
            self.first_steps = FirstSteps(self)
        else:
            self.follow(job.schedule)

    def follow(self, schedule: Schedule, reached: int = 0) -> None:
        """Goes by a schedule from its beginning, of which the steps to `reached` were taken and the
        states in `there` are saved. It has the steps that are not reversed yet."""
        self.source: Source = source_of(schedule)
        self.interpreter = Interpreter(figure(schedule, "steps"), figure(schedule, "slots"))
        self.words = self.checked_words()
        self.reached = reached

    def go(self) -> AdjointReport:
        """Carries everything out."""
        self.begin()
        return self.finish()

    def begin(self) -> None:
        """Carries out what comes before the first step is reversed, `at_end` included."""
        self.begun, self.before = clock(), self.spool.stats()
        # In the fastest tier copies are anyway, and tiers that are not there cannot be preferred.
        self.slower = frozenset(tier.name for tier in self.before.tiers[1:])
        try:
            if self.first_steps is not None:
                self.first_steps.go()
            if self.steps is not None:
                self.look_ahead()
            self.carry_out(pausing=True)
        except BaseException as failure:
            self.clean_up(failure)
            raise

    def finish(self) -> AdjointReport:
        """Carries out the rest."""
        try:
            self.carry_out(pausing=False)
        except BaseException as failure:
            self.clean_up(failure)
            raise
        after = self.spool.stats()
        if after.hints > self.before.hints:
            # A dry run that went another way announced them, and nobody will restore that.
            self.spool.forget_hints()
        return self.report(clock() - self.begun, moved(self.before, after))

    def look_ahead(self) -> None:
        """Begins the dry run: the number of steps is known."""
        job = self.job
        self.inside = "the schedule"
        at_end = None if self.turned or self.state.frozen else job.first + (self.steps or 0)
        ahead = Ahead(job.first, at_end)
        kept = [step for step, copies in self.held.items() for _ in range(copies)]
        ahead.keep(kept)
        if self.part is not None:
            self.uses, self.lives = Uses(at_end=not self.turned), 0
            self.uses.keep(kept)
            self.source.twin(self.steps).into(self.uses)
        if job.announces:
            self.announce(ahead, self.source.twin(self.steps))

    def announce(self, ahead: Ahead, twin: Twin, passed: int = 0) -> None:
        """Has the spool hear of the restores that come, after so many that nobody will make."""
        self.feeder = Feeder(self.spool, ahead, twin, self.job.lookahead, passed)

    def checked_words(self) -> Iterator[Word]:
        """Every action, after the interpreter has seen it."""
        while True:
            self.inside, self.word = "the schedule", None
            words = self.source.batch()
            if not words:
                break
            good, fault = self.interpreter.see(words)
            yield from words if fault is None else words[:good]
            if fault is not None:
                raise ScheduleError(f"This is not a valid schedule: {fault}.")
        self.interpreter.finish()

    def carry_out(self, *, pausing: bool) -> None:
        """The actions that are left, or those before the first step is reversed."""
        word, self.waiting = self.waiting or next(self.words, None), None
        while word is not None:
            self.word = word
            if word[0] == REVERSE and not self.turned and not self.turn_round(word[1]):
                word = next(self.words, None)
                continue
            if pausing and self.turned:
                self.waiting = word
                return
            self.act(word)
            word = next(self.words, None)

    def act(self, word: Word) -> None:
        """Carries one action out."""
        kind, first, second, tier = word
        getattr(self, DOES[kind])(first, second, tier)
        self.tell(word)

    def forward(self, start: int, stop: int, _tier: str | None) -> None:
        """Advances the working state."""
        if self.restored_part is not None:
            raise changed(f"it advances from state {start}")
        if self.reached:
            start = min(self.reached, stop)
            self.arrive(stop)
        if start < stop:
            self.take(start, stop)

    def arrive(self, stop: int) -> None:
        """The schedule has come to a state, perhaps to the one that was reached before: copies that
        it does not keep are of no use."""
        if stop < self.reached:
            return
        self.reached = 0
        for step in sorted(self.there):
            self.spool.discard(self.job.first + step)
        self.there = set()

    def take(self, start: int, stop: int) -> bool:
        """Advances the working state; whether the forward pass goes on."""
        returned = self.advance(start, stop)
        if isinstance(returned, Stop):
            self.stopped(returned, start, stop)
            return False
        self.computed(start, stop)
        self.state.replace(returned)
        return True

    def computed(self, start: int, stop: int) -> None:
        """Counts steps."""
        self.forward_steps += stop - start
        self.farthest = max(self.farthest, stop)

    def advance(self, start: int, stop: int) -> Any:
        """Calls `forward`."""
        self.inside = "state"
        state = self.state.now()
        self.inside = "forward"
        begun = clock()
        returned = self.job.forward(state, start, stop)
        self.seconds["forward"] += clock() - begun
        return returned

    def stopped(self, said: Stop, start: int, stop: int) -> None:
        """The forward pass has ended."""
        if self.steps is not None:
            raise ScheduleError(
                f"forward returned {said!r}, but the schedule knows that there are {self.steps} "
                "steps: use one that does not, such as OnlineRevolve(slots)."
            )
        if not hasattr(said.step, "__index__") or not start <= said.step <= stop:
            raise OptionError(
                f"forward(state, {start}, {stop}) returned Stop({said.step!r}): the forward pass "
                f"can end at a state from {start} to {stop}."
            )
        self.ends_at(said.step)
        self.computed(start, said.step)
        if said.step > start or said.state is not None:
            self.state.replace(said.state)
        if not self.turned:
            self.at_end()
        self.look_ahead()

    def ends_at(self, steps: int) -> None:
        """The number of steps is known by now."""
        self.source.finish(steps)
        self.interpreter.stopped_at(steps)
        self.steps = steps

    def save(self, step: int, _second: int, tier: str | None) -> None:
        """Keeps a copy of the working state."""
        if step in self.held:
            self.held[step] += 1
            return
        if self.restored_part is not None:
            raise changed(f"it saves state {step}")
        only_reversed = self.begin_life()
        version = self.job.first + step
        if step in self.there:
            # As a whole, whatever it is for.
            self.there.discard(step)
            self.hold(step, False)
        elif step < self.reached:
            raise ScheduleError(f"State {step} was passed before the schedule was chosen.")
        elif self.put_or_choose(step, step, only_reversed):
            self.hold(step, only_reversed)
        else:
            return
        if tier in self.slower:
            self.spool._prefer(version, tier)

    def put_or_choose(self, step: int, name: int, only_reversed: bool) -> bool:
        """Saves a state as that of step `name`; where there is no room, follows another schedule if
        that may be."""
        try:
            self.put(self.job.first + name, only_reversed)
        except CapacityError:
            if self.first_steps is None or not self.first_steps.again(step):
                raise
            return False
        return True

    def keep_first(self) -> None:
        """Gives up all copies but that of state 0, and what was announced."""
        self.peak = max(self.peak, self.interpreter.counts()["peak"])
        self.spool.forget_hints()
        for step in self.held:
            if step:
                self.give_up(step)
        self.held, self.partial, self.there = {}, set(), {0}
        self.saving = self.feeder = None

    def begin_life(self) -> bool:
        """Whether the state that is kept next is only restored to be reversed from."""
        self.lives += 1
        return self.uses is not None and self.uses.only_reversed(self.lives - 1)

    def hold(self, step: int, only_reversed: bool) -> None:
        """A state is kept from now on."""
        self.held[step] = 1
        self.saving = None
        if only_reversed:
            self.partial.add(step)

    def put(self, version: int, only_reversed: bool) -> None:
        """Saves the working state, or the part of it that a reverse step reads."""
        self.inside = "state"
        part = self.part if only_reversed else None
        value = self.state.now() if part is None else part.to_save()
        positional, by_name = arrays_of(value)
        self.inside, self.saving = "the spool", version
        begun = clock()
        options = {"stream": self.job.stream}
        codec = self.codec_of(version - self.job.first)
        if codec is not None:
            options["codec"] = codec
        self.spool.save(version, *positional, **options, **by_name)
        self.seconds["save"] += clock() - begun
        self.saves += 1

    def codec_of(self, step: int) -> Any:
        """The codec of the state before a step; None for that of the spool."""
        return self.job.codec

    def restore(self, step: int, _second: int, _tier: str | None) -> None:
        """Makes a copy the working state."""
        self.get(self.job.first + step, step in self.partial)

    def get(self, version: int, only_reversed: bool) -> None:
        """Restores what was saved under a version."""
        self.inside = "the spool"
        begun = clock()
        if only_reversed and self.part is not None:
            self.restored_part = self.part.restored(self.spool, version, self.job.stream)
        else:
            self.state.restore(self.spool, version, self.job.stream)
            self.restored_part = None
        self.seconds["restore"] += clock() - begun
        self.restores += 1
        if self.feeder is not None:
            self.feeder.restored()

    def reverse(self, step: int, _second: int, _tier: str | None) -> None:
        """Takes the adjoint back over a step."""
        self.inside = "state"
        value = self.restored_part
        if value is None:
            value = self.state.now() if self.part is None else self.part.now()
        self.inside = "reverse"
        begun = clock()
        self.job.reverse(value, step)
        self.seconds["reverse"] += clock() - begun
        self.restored_part = None
        self.reversed += 1

    def turn_round(self, last: int) -> bool:
        """Takes the last step, calls `at_end`, and comes back to the state before that step; not
        where the copy of that state has no room and another schedule was chosen."""
        before = self.state.now() if self.state.frozen else None
        version = self.job.first + last + 1
        if not self.state.frozen:
            if not self.put_or_choose(last, last + 1, self.part is not None):
                return False
            self.turning, self.saving = version, None
        returned = self.advance(last, last + 1)
        if isinstance(returned, Stop):
            raise ScheduleError(f"forward returned {returned!r} for the last step.")
        self.computed(last, last + 1)
        self.state.replace(returned)
        self.at_end()
        if self.state.frozen:
            self.state.put_back(before)
            return True
        self.get(version, only_reversed=self.part is not None)
        self.spool.discard(version)
        self.turning = None
        return True

    def at_end(self) -> None:
        """The working state is the last one."""
        self.turned = True
        self.inside = "state"
        state = self.state.now()
        self.inside = "at_end"
        begun = clock()
        if self.job.at_end is not None:
            self.job.at_end(state)
        self.seconds["at_end"] += clock() - begun

    def discard(self, step: int, _second: int, _tier: str | None) -> None:
        """Gives a copy up."""
        self.inside = "the spool"
        copies = self.held[step] - 1
        if copies:
            self.held[step] = copies
            return
        self.give_up(step)
        del self.held[step]
        self.partial.discard(step)

    def give_up(self, step: int) -> None:
        """Discards the copy of a state."""
        self.spool.discard(self.job.first + step)

    def end(self, _first: int, _second: int, _tier: str | None) -> None:
        """Everything was done."""

    def tell(self, word: Word) -> None:
        """Calls `progress`, if there is one."""
        if self.job.progress is None:
            return
        (action,) = named([word])
        self.inside = "progress"
        self.job.progress(Progress(action, self.forward_steps, self.reversed, self.steps))

    def clean_up(self, failure: BaseException | None = None) -> None:
        """Takes back everything that was announced and kept, and says where a failure happened."""
        note = self.note()
        taken = isinstance(failure, VersionExistsError | UnknownVersionError)
        versions = [self.job.first + step for step in [*self.held, *self.there]]
        versions += [] if self.turning is None else [self.turning]
        versions += [] if self.saving is None or taken else [self.saving]
        with contextlib.suppress(Error):
            self.spool.forget_hints()
        for version in versions:
            # What cannot be discarded is not there, or the spool is closed.
            with contextlib.suppress(Error):
                self.spool.discard(version)
        self.held, self.there, self.words = {}, set(), iter(())
        # Last, because an exception's own class may refuse it.
        if failure is not None:
            with contextlib.suppress(Exception):
                failure.add_note(note)

    def note(self) -> str:
        """What ran when an exception was raised."""
        done = (
            f"{self.reversed:,} of {'an unknown number of' if self.steps is None else self.steps}"
        )
        text = f"unspool.adjoint: raised {self.place()}; {done} steps were reversed."
        return text

    def place(self) -> str:
        """Where the driver is, in words."""
        if self.word is None:
            return f"by {self.inside}"
        kind, first, second, _ = self.word
        (action,) = named([self.word])
        if self.inside == "forward" and kind == FORWARD:
            return f"by forward(state, {first}, {second})"
        if self.inside == "forward":
            return f"by forward(state, {first}, {first + 1}), the last step, for at_end"
        if self.inside == "reverse":
            return f"by reverse(state, {first})"
        if self.inside == "at_end":
            return f"by at_end(state) with state {self.steps}"
        if self.inside == "progress":
            return f"by progress(...) after: {action}"
        what = {"state": "the function `state` or `for_reverse`"}.get(self.inside, self.inside)
        return f"by {what}, to {action} (version {self.job.first + first})"

    def report(self, seconds: float, spent: dict[str, Any]) -> AdjointReport:
        """The figures of the whole run."""
        counts = self.interpreter.counts()
        spent |= {f"{name}_seconds": spent_in for name, spent_in in self.seconds.items()}
        spent["choice"] = None if self.first_steps is None else self.first_steps.chosen
        return AdjointReport(
            steps=counts["steps"] if self.steps is None else self.steps,
            forward_steps=self.forward_steps,
            recomputed_steps=self.forward_steps - (self.farthest - self.known),
            reversed_steps=self.reversed - self.reversed_before,
            saves=self.saves,
            restores=self.restores,
            peak_copies=max(self.peak, counts["peak"]),
            seconds=seconds,
            **spent,
        )


def changed(what: str) -> ScheduleError:
    """The error of a schedule whose dry run went another way."""
    return ScheduleError(
        f"The schedule is not the one of its dry run: {what}, from a copy that was only to be "
        "reversed from and holds no more than `for_reverse`. Its iterators must all give the same "
        "actions; or leave `for_reverse` out."
    )
