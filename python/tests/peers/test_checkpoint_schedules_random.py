"""Any valid list of our actions can be offered as a CheckpointSchedule, and taken back."""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest
import unspool
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from unspool import schedules
from unspool.interop import as_checkpoint_schedule, from_checkpoint_schedules
from unspool.schedules import Action, Discard, End, Forward, Restore, Reverse, Save

from sdists import fetch, load

theirs = pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")

pytestmark = pytest.mark.peer


class Maker:
    """Writes a random schedule: it saves and gives up copies at will, but never that of state 0."""

    def __init__(self, steps: int, seed: int) -> None:
        self.random = Random(seed)
        self.steps = steps
        self.at = 0
        self.kept: set[tuple[int, str | None]] = set()
        self.actions: list[Action] = []

    def made(self) -> list[Action]:
        self.save(None)
        self.advance(self.steps - 1)
        for step in reversed(range(self.steps)):
            if self.at != step or self.random.random() < 0.2:
                self.restore(step)
                self.advance(step)
            self.actions.append(Reverse(step))
            self.at = -1
        self.actions += [Discard(*copy) for copy in sorted(self.kept, key=str)]
        return [*self.actions, End()]

    def advance(self, stop: int) -> None:
        while self.at < stop:
            self.give_up()
            there = self.random.randint(self.at + 1, stop)
            self.actions.append(Forward(self.at, there))
            self.at = there
            for tier in (None, "host", "disk"):
                if self.random.random() < 0.4:
                    self.save(tier)

    def save(self, tier: str | None) -> None:
        if (self.at, tier) not in self.kept:
            self.kept.add((self.at, tier))
            self.actions.append(Save(self.at, tier))

    def restore(self, step: int) -> None:
        self.give_up()
        usable = sorted((copy for copy in self.kept if copy[0] <= step), key=str)
        copy = self.random.choice(usable)
        self.actions.append(Restore(*copy))
        self.at = copy[0]
        if copy != (0, None) and self.random.random() < 0.3:
            self.kept.remove(copy)
            self.actions.append(Discard(*copy))

    def give_up(self) -> None:
        for copy in sorted(self.kept - {(0, None)}, key=str):
            if self.random.random() < 0.1:
                self.kept.remove(copy)
                self.actions.append(Discard(*copy))


@settings(max_examples=300)
@example(14, 179, True)
@given(st.integers(1, 14), st.integers(0, 2**32), st.booleans())
def test_there_and_back(steps: int, seed: int, adjoint_data: bool) -> None:
    given_actions = schedules.Listed(Maker(steps, seed).made())
    before = given_actions.counts()
    offered = as_checkpoint_schedule(given_actions, adjoint_data=adjoint_data, whole_states=True)
    back = from_checkpoint_schedules(offered, storage_map={"RAM": None})
    after = schedules.check(back)
    assert after.steps == steps
    assert after.advances <= before.advances
    assert after.restores <= before.restores
    assert after.peak <= before.peak


@pytest.fixture(scope="module")
def validity() -> ModuleType:
    return load(fetch("checkpoint-schedules") / "tests" / "test_validity.py")


@settings(max_examples=200)
@given(st.integers(1, 7), st.integers(0, 2**32), st.booleans())
def test_their_interpreter_accepts_what_is_not_refused(
    validity: ModuleType, steps: int, seed: int, adjoint_data: bool
) -> None:
    listed = schedules.Listed(Maker(steps, seed).made())

    def offered() -> Any:
        return as_checkpoint_schedule(listed, adjoint_data=adjoint_data)

    try:
        offered()
    except unspool.errors.ScheduleError:
        assume(False)
    peak = listed.slots
    limits = dict.fromkeys((theirs.StorageType.RAM, theirs.StorageType.DISK), peak)
    with pytest.MonkeyPatch.context() as patch:
        # It asks a Move or Copy for `storage`, which they do not have: `to_storage` is meant.
        for action in (theirs.Move, theirs.Copy):
            patch.setattr(action, "storage", property(lambda done: done.to_storage), False)
        validity.test_validity(lambda n, s: (offered(), limits, 1), steps, (1,))
