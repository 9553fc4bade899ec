"""Schedules in Python: actions, iterators, counts, what is refused, other objects as schedules."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import unspool
from hypothesis import given
from hypothesis import strategies as st
from unspool.schedules import (
    Action,
    Counts,
    Discard,
    End,
    Forward,
    Listed,
    MultiLevel,
    OnlineRevolve,
    Restore,
    Reverse,
    Revolve,
    Save,
    Schedule,
    Stop,
    StoreAll,
    Trace,
    Uniform,
    ZCut,
    as_schedule,
    check,
    to_trace,
)

KNOWN = [
    StoreAll(12),
    Revolve(12, 3),
    Uniform(12, 3),
    ZCut(12, cuts=3),
    ZCut(12, length=4),
    ZCut(12, slots=6),
    MultiLevel(12, device=2, disk=3, write_seconds={"disk": 2.0}, read_seconds={"disk": 1}),
    Listed(Revolve(12, 2)),
    Trace(to_trace(Uniform(12, 2))),
]
ALL = [*KNOWN, OnlineRevolve(3)]


def test_actions_have_a_reading_and_are_equal_by_value() -> None:
    readings = {
        Forward(10, 25): "advance state 10 to state 25",
        Save(10): "save state 10",
        Save(10, "disk"): "save state 10 on disk",
        Restore(10, "host"): "restore state 10 from host",
        Reverse(10): "reverse step 10",
        Discard(10): "discard state 10",
        End(): "end",
    }
    assert all(str(action) == reading for action, reading in readings.items())
    assert Forward(1, 2) == Forward(1, 2) != Forward(1, 3) and Save(1) != Restore(1)
    with pytest.raises(AttributeError):
        Save(1).step = 2  # type: ignore[misc]
    match Save(3, "disk"):
        case Save(step, tier):
            assert (step, tier) == (3, "disk")


def test_the_actions_of_revolve_are_those_of_the_paper() -> None:
    assert list(Revolve(3, 1)) == [
        Save(0),
        Forward(0, 2),
        Reverse(2),
        Restore(0),
        Forward(0, 1),
        Reverse(1),
        Restore(0),
        Discard(0),
        Reverse(0),
        End(),
    ]


@pytest.mark.parametrize("schedule", KNOWN, ids=repr)
def test_each_iterator_begins_anew_and_the_counts_are_those_of_its_actions(
    schedule: Schedule,
) -> None:
    one, other = iter(schedule), iter(schedule)
    next(one)
    assert list(other) == list(schedule) and len(list(one)) == len(list(schedule)) - 1
    assert next(one, None) is None
    counts = check(schedule)
    assert counts == schedule.counts() == Schedule.counts(schedule)
    actions = list(schedule)
    assert counts.saves == sum(isinstance(action, Save) for action in actions) == counts.discards
    assert counts.reverses == counts.steps == schedule.steps == 12
    assert counts.peak <= schedule.slots
    restored = [action.step for action in actions if isinstance(action, Restore)]
    assert list(schedule.restores()) == restored


def test_the_recomputed_steps_are_those_beyond_a_single_forward_pass() -> None:
    assert StoreAll(12).counts().recomputed_steps == 0
    assert Revolve(10, 3).counts().recomputed_steps == Revolve(10, 3).counts().advances - 9
    assert ZCut(9, length=3).counts().advances == 2 * 9 - 3 - 3


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_schedules_survive_pickling_and_are_equal_by_value(schedule: Schedule) -> None:
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule and repr(again) == repr(schedule)
    steps = None if schedule.steps else 7
    assert again.counts(steps) == schedule.counts(steps)
    assert schedule != StoreAll(1)


def test_schedules_name_themselves_with_their_figures() -> None:
    assert repr(Revolve(300, 6)) == "Revolve(steps=300, slots=6)"
    assert repr(ZCut(300, length=36)) == "ZCut(steps=300, length=36)"
    assert repr(OnlineRevolve(6)) == "OnlineRevolve(slots=6)"
    assert repr(Listed(Revolve(9, 2))) == "<Listed of 9 steps with 2 slots>"


def test_an_unknown_number_of_steps_becomes_known_by_finish() -> None:
    actions = OnlineRevolve(2).actions()
    assert actions.steps is None and OnlineRevolve(2).steps is None
    taken: list[Action] = [next(actions)]
    while not (isinstance(taken[-1], Forward) and taken[-1].stop >= 5):
        taken.append(next(actions))
    actions.finish(5)
    assert actions.steps == 5
    taken += actions
    reversed_steps = [action.step for action in taken if isinstance(action, Reverse)]
    assert reversed_steps == [4, 3, 2, 1, 0] and taken[-1] == End()
    with pytest.raises(unspool.errors.ScheduleError, match="known: 5"):
        actions.finish(5)


def test_a_single_slot_needs_no_action_before_the_end() -> None:
    actions = OnlineRevolve(1).actions()
    assert next(actions) == Save(0)
    assert next(actions).start == 0
    actions.finish(3)
    assert [a.step for a in actions if isinstance(a, Reverse)] == [2, 1, 0]


@given(slots=st.integers(1, 6), steps=st.integers(1, 60))
def test_dry_runs_of_an_unknown_number_of_steps_end_where_they_are_told(
    slots: int, steps: int
) -> None:
    schedule = OnlineRevolve(slots)
    counts = schedule.counts(steps)
    assert counts.steps == counts.reverses == steps and counts.peak <= slots
    assert len(list(schedule.restores(steps))) == counts.restores
    assert Schedule.counts(schedule, steps) == counts
    with pytest.raises(unspool.errors.ScheduleError, match="`steps`"):
        schedule.counts()


WRONG: list[tuple[list[object], str]] = [
    ([Forward(0, 1), Save(0)], r"action 1, Save\(0\): .*state 0, but it is 1"),
    ([Forward(0, 1), Reverse(1), End()], "1 steps were not reversed"),
    ([Save(0), Forward(0, 1), Reverse(1), Reverse(0), End()], "restore a state first"),
    ([Reverse(0)], "without End"),
    ([Reverse(0), End(), End()], "nothing may follow"),
    ([Restore(0, "disk")], r'Restore\(0, "disk"\): .*not kept'),
    ([Save(0), Save(0)], "kept already"),
    ([Save(0), Reverse(0), End()], "still kept"),
    ([], "without End"),
    ([Forward(-1, 2)], "is not an action"),
    ([Save(0, "tape")], "is not an action"),
    (["save"], "is not an action"),
    ([Forward(0, 1 << 64)], "is not an action"),
]


@pytest.mark.parametrize(("actions", "why"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_lists_are_refused_with_the_action_that_is_wrong(
    actions: list[Action], why: str
) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match=why):
        Listed(actions)


REFUSED: list[Callable[[], object]] = [
    lambda: StoreAll(0),
    lambda: Revolve(5, 0),
    lambda: Revolve(-1, 2),
    lambda: Revolve(2.5, 2),  # type: ignore[arg-type]
    lambda: Revolve(True, 2),
    lambda: Uniform(1 << 63, 2),
    lambda: OnlineRevolve(0),
    lambda: ZCut(5),
    lambda: ZCut(5, cuts=2, length=2),
    lambda: ZCut(500, slots=3),
    lambda: MultiLevel(5),
    lambda: MultiLevel(5, disk=2, write_seconds={"tape": 1.0}),
    lambda: MultiLevel(5, disk=2, write_seconds={"disk": -1.0}),
    lambda: MultiLevel(5, disk=2, write_seconds={"disk": "slow"}),  # type: ignore[dict-item]
    lambda: MultiLevel(5, disk=2, read_seconds=3),  # type: ignore[arg-type]
    lambda: MultiLevel(5, disk=2, read_seconds={1: 1.0, "tape": 1.0}),  # type: ignore[dict-item]
    lambda: MultiLevel(5, disk=2, step_seconds=math.nan),
    lambda: MultiLevel(5, disk=2, step_seconds="slow"),  # type: ignore[arg-type]
    lambda: check(OnlineRevolve(2), steps=-1),
    lambda: check(OnlineRevolve(2), steps=2.5),  # type: ignore[arg-type]
    lambda: Revolve(5, 2).counts(7),
    lambda: list(Revolve(5, 2).restores(7)),
    lambda: Trace("0 FOO\n"),
    lambda: check(StoreAll(9), slots=3),
]


@pytest.mark.parametrize("make", REFUSED)
def test_figures_that_make_no_sense_are_schedule_errors(make: Callable[[], object]) -> None:
    with pytest.raises(unspool.errors.ScheduleError) as raised:
        make()
    assert isinstance(raised.value, ValueError) and str(raised.value).endswith(".")


def test_traces_are_read_from_files_and_texts(tmp_path: Path) -> None:
    text = to_trace(Revolve(5, 2))
    (tmp_path / "trace.txt").write_text(text)
    assert list(Trace(tmp_path / "trace.txt")) == list(Trace(text)) == list(Revolve(5, 2))
    assert "4 FIRSTURN" in text and text.endswith("TERMINATE\n")
    with pytest.raises(FileNotFoundError):
        Trace(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"0 SAVE\n\xff\xfe")
    with pytest.raises(
        unspool.errors.ScheduleError, match="it is not text, but has other bytes from byte 7"
    ):
        Trace(tmp_path / "bytes")
    with pytest.raises(unspool.errors.ScheduleError, match="write the path of a file"):
        Trace("")


def test_tiers_have_as_many_slots_as_they_are_given() -> None:
    levels = MultiLevel(40, device=2, disk=math.inf, write_seconds={"disk": 0.5})
    counts = levels.counts()
    assert counts.tiers["device"] <= 2 and set(counts.tiers) <= {"device", "disk"}
    assert {a.tier for a in levels if isinstance(a, Save)} == set(counts.tiers)


class Own(Schedule):
    """One copy of state 0, written in Python."""

    slots = 1

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def actions(self) -> Iterator[Action]:
        yield Save(0)
        for step in reversed(range(self.steps)):
            if step < self.steps - 1:
                yield Restore(0)
            if step:
                yield Forward(0, step)
            if step == 0:
                yield Discard(0)
            yield Reverse(step)
        yield End()


def test_a_schedule_of_ones_own_is_checked_and_counted() -> None:
    counts = check(Own(6))
    assert isinstance(counts, Counts) and (counts.peak, counts.advances) == (1, 15)
    assert list(Own(3).restores()) == [0, 0]
    assert as_schedule(own := Own(3)) is own
    with pytest.raises(unspool.errors.ScheduleError, match="actions"):
        iter(Schedule())
    wrong = Own(6)
    wrong.steps = 7
    wrong.slots = 0
    with pytest.raises(unspool.errors.ScheduleError, match="all 0 slots are taken"):
        check(wrong)


class Odd(Schedule):
    """Says of itself, and gives, whatever it is told."""

    def __init__(self, given: object, **figures: Any) -> None:
        self.given = given
        for name, value in figures.items():
            setattr(self, name, value)

    def actions(self) -> Any:
        return self.given


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (Odd(iter([])), "does not define steps: it must be a number, or None"),
        (Odd(iter([]), steps=1), "does not define slots"),
        (Odd(iter([]), steps=-3, slots=1), r"Odd\(steps=-3\): write a whole number"),
        (Odd(iter([]), steps="3", slots=1), "steps='3'"),
        (Odd(iter([]), steps=1, slots=0.5), "slots=0.5"),
        (Odd(None, steps=1, slots=0), "gave a NoneType: it must give a new iterator"),
        (Odd([Reverse(0), End()], steps=1, slots=0), "gave a list: it must give a new iterator"),
        (Odd(iter([3]), steps=1, slots=0), "3 is not an action"),
        (Odd(iter([Save]), steps=1, slots=0), "is not an action"),
        (Odd(iter([Forward(0, 5)]), steps=None, slots=0), r"has no method finish\(steps\)"),
    ],
)
def test_what_is_wrong_with_a_schedule_of_ones_own_is_said_in_words(odd: Odd, why: str) -> None:
    steps = 5 if getattr(odd, "steps", 1) is None else None
    with pytest.raises(unspool.errors.ScheduleError, match=why):
        check(odd, steps=steps)


def test_a_schedule_that_waits_for_its_number_of_steps_is_not_listed_without_end() -> None:
    online = OnlineRevolve(3)
    for refused in (Listed, to_trace, lambda given: as_schedule(iter(given))):
        with pytest.raises(
            unspool.errors.ScheduleError, match="has no end: give the schedule itself"
        ):
            refused(online)


def test_a_list_for_which_there_is_no_memory_is_a_memory_error() -> None:
    program = """import resource, sys
from unspool.schedules import Listed, StoreAll
actions = list(StoreAll(20_000))
(size,) = [int(x.split()[1]) for x in open("/proc/self/status") if x.startswith("VmSize")]
limit = (size << 10) + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    print(Listed(actions).steps)
except MemoryError:
    print("no memory")
"""
    told = set()
    for room in range(0, 24 << 20, 3 << 19):
        command = [sys.executable, "-c", program, str(room)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (room, done.stderr)
        told.add(done.stdout)
    assert told == {"20000\n", "no memory\n"}


def test_any_list_or_iterator_of_actions_is_a_schedule() -> None:
    actions = list(Revolve(6, 2))
    for given_as in (actions, tuple(actions), iter(actions), (a for a in actions)):
        assert list(as_schedule(given_as)) == actions
    for nonsense in (3, "Revolve", None, object()):
        with pytest.raises(unspool.errors.OptionError, match="is not a schedule"):
            as_schedule(nonsense)


def test_stop_says_where_the_forward_pass_ends() -> None:
    assert Stop(7) == Stop(7, None) and repr(Stop(7)) == "Stop(step=7, state=None)"
