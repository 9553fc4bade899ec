"""Our schedules under the interface of checkpoint_schedules pass that project's own tests.

Its source distribution brings test_validity (any schedule, by an interpreter of its actions) and
test_multistage (binomial schedules: the number of steps is the optimum). test_mixed is about one
algorithm, which keeps either restart data or the adjoint's data in each unit and whose number of
steps it states; none of ours is that one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import unspool
from unspool import schedules
from unspool.interop import as_checkpoint_schedule, from_checkpoint_schedules

from sdists import fetch, load

theirs = pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")

pytestmark = pytest.mark.peer

RAM, DISK = theirs.StorageType.RAM, theirs.StorageType.DISK
WORK, NONE = theirs.StorageType.WORK, theirs.StorageType.NONE
#: A schedule, the limit of each storage, and the most steps whose adjoint data is in WORK.
Case = tuple[Any, dict[Any, int], int]


@pytest.fixture(scope="module")
def validity() -> ModuleType:
    return load(fetch("checkpoint-schedules") / "tests" / "test_validity.py")


@pytest.fixture(scope="module")
def multistage() -> ModuleType:
    return load(fetch("checkpoint-schedules") / "tests" / "test_multistage.py")


def sizes(test: Any) -> list[tuple[int, tuple[int, ...]]]:
    """The numbers of steps that a test of theirs is run with, and those of checkpoints for each."""
    (found,) = (mark.args[1] for mark in test.pytestmark if mark.args[0] == "n, S")
    assert len(found) >= 7
    return list(found)


def offered(schedule: Any, ram: int, disk: int = 0, **options: Any) -> Case:
    return as_checkpoint_schedule(schedule, **options), {RAM: ram, DISK: disk}, 1


def store_all(n: int, s: int) -> Case:
    return offered(schedules.StoreAll(n), n - 1)


def store_all_restarts(n: int, s: int) -> Case:
    return offered(schedules.StoreAll(n), 0, n - 1, storage="DISK", adjoint_data=False)


def revolve(n: int, s: int) -> Case:
    return offered(schedules.Revolve(n, s), s)


def revolve_adjoint_data(n: int, s: int) -> Case:
    return offered(schedules.Revolve(n, s), s, adjoint_data=True)


def uniform(n: int, s: int) -> Case:
    return offered(schedules.Uniform(n, max(s, 1)), 0, max(s, 1), storage=DISK)


def z_cut(n: int, s: int) -> Case:
    made = schedules.ZCut(n, length=max(s, 1))
    return offered(made, made.slots)


def z_cut_restarts(n: int, s: int) -> Case:
    made = schedules.ZCut(n, cuts=max(min(s, n), 1))
    return offered(made, made.slots, adjoint_data=False)


def multi_level(n: int, s: int) -> Case:
    ram, disk = max(s // 3, 1), s
    made = schedules.MultiLevel(
        n, host=ram, disk=disk, write_seconds={"disk": 2.0}, read_seconds={"disk": 2.0}
    )
    return offered(made, ram, disk)


def online(n: int, s: int) -> Case:
    """With so many slots no copy is given up in the forward pass."""
    return offered(schedules.OnlineRevolve(n + 1), n + 1, whole_states=True)


def listed(n: int, s: int) -> Case:
    return offered(list(schedules.Revolve(n, s)), s)


def translated(n: int, s: int) -> Case:
    """One of theirs, as ours, as theirs again."""
    most = max(s, 1)
    given = theirs.MultistageCheckpointSchedule(n, most, 0)
    return offered(from_checkpoint_schedules(given), most)


def translated_online(n: int, s: int) -> Case:
    ours = from_checkpoint_schedules(theirs.TwoLevelCheckpointSchedule(2, s, binomial_storage=RAM))
    return offered(ours, s, 1 + (n - 1) // 2)


KINDS: list[Callable[[int, int], Case]] = [
    store_all,
    store_all_restarts,
    revolve,
    revolve_adjoint_data,
    uniform,
    z_cut,
    z_cut_restarts,
    multi_level,
    online,
    listed,
    translated,
    translated_online,
]


@pytest.mark.parametrize("kind", KINDS)
def test_their_interpreter_accepts_it(
    kind: Callable[[int, int], Case], validity: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It asks a Move that deletes for `storage`, which no Move has: `to_storage` is meant.
    monkeypatch.setattr(theirs.Move, "storage", property(lambda move: move.to_storage), False)
    for n, units in sizes(validity.test_validity):
        validity.test_validity(kind, n, units)


def test_revolve_takes_the_fewest_steps(
    multistage: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ours(n: int, ram: int, disk: int, trajectory: str) -> Any:
        assert ram == 0
        return as_checkpoint_schedule(schedules.Revolve(n, disk), "DISK")

    monkeypatch.setattr(multistage, "MultistageCheckpointSchedule", ours)
    for n, units in sizes(multistage.test_multistage):
        multistage.test_multistage("revolve", n, units)


def texts(*actions: Any) -> list[str]:
    """Their actions to be compared: `==` of two actions of theirs raises a TypeError."""
    return [repr(action) for action in actions]


def test_the_actions_of_a_small_revolve() -> None:
    made = as_checkpoint_schedule(schedules.Revolve(4, 2))
    assert (made.max_n, made.n, made.r, made.is_exhausted) == (4, 0, 0, False)
    assert texts(*made) == texts(
        theirs.Forward(0, 1, True, False, RAM),
        theirs.Forward(1, 3, True, False, RAM),
        theirs.Forward(3, 4, False, True, WORK),
        theirs.EndForward(),
        theirs.Reverse(4, 3, True),
        theirs.Copy(1, RAM, WORK),
        theirs.Forward(1, 2, False, False, WORK),
        theirs.Forward(2, 3, False, True, WORK),
        theirs.Reverse(3, 2, True),
        theirs.Move(1, RAM, WORK),
        theirs.Forward(1, 2, False, True, WORK),
        theirs.Reverse(2, 1, True),
        theirs.Move(0, RAM, WORK),
        theirs.Forward(0, 1, False, True, WORK),
        theirs.Reverse(1, 0, True),
        theirs.EndReverse(),
    )
    assert made.is_exhausted
    assert next(made, None) is None


def forward_steps(schedule: Any) -> int:
    return sum(len(action) for action in schedule if isinstance(action, theirs.Forward))


def test_copies_for_the_adjoint_alone_save_the_steps_that_would_recompute_its_data() -> None:
    everything = schedules.StoreAll(30)
    assert forward_steps(as_checkpoint_schedule(everything)) == 30
    assert forward_steps(as_checkpoint_schedule(everything, adjoint_data=False)) == 59
    cut = schedules.ZCut(30, length=6)
    saved = forward_steps(as_checkpoint_schedule(cut, adjoint_data=False)) - forward_steps(
        as_checkpoint_schedule(cut)
    )
    assert saved == cut.counts().restores - 2 * 4


def test_only_the_storage_in_use_is_said_to_be_used() -> None:
    ram = as_checkpoint_schedule(schedules.Revolve(4, 2))
    disk = as_checkpoint_schedule(schedules.Revolve(4, 2), "disk")
    both = as_checkpoint_schedule(from_checkpoint_schedules(theirs.HRevolve(20, 2, 3)))
    one = as_checkpoint_schedule(
        from_checkpoint_schedules(theirs.HRevolve(20, 2, 3)), {"disk": "RAM"}
    )
    uses = [
        [schedule.uses_storage_type(storage) for storage in (RAM, DISK, WORK, NONE)]
        for schedule in (ram, disk, both, one)
    ]
    assert uses == [
        [True, False, True, False],
        [False, True, True, False],
        [True, True, True, False],
        [True, False, True, False],
    ]


def test_the_number_of_steps_is_told_to_an_online_schedule() -> None:
    made = as_checkpoint_schedule(schedules.OnlineRevolve(3), whole_states=True)
    assert made.max_n is None
    reached = 0
    while reached < 7:
        action = next(made)
        if isinstance(action, theirs.Forward):
            reached = action.n1
    with pytest.raises(RuntimeError, match="Invalid checkpointing state"):
        made.finalize(reached + 1)
    made.finalize(7)
    assert (made.n, made.max_n) == (7, 7)
    assert isinstance(next(made), theirs.EndForward)
    reversals = [action.n0 for action in made if isinstance(action, theirs.Reverse)]
    assert reversals == [6, 5, 4, 3, 2, 1, 0]


def test_running_on_from_a_copy_past_the_next_one_is_refused_when_the_schedule_is_made() -> None:
    S, F, R, D = schedules.Save, schedules.Forward, schedules.Restore, schedules.Discard
    back = schedules.Reverse
    first = [S(0), F(0, 1), S(1), F(1, 3), back(3)]
    # Step 2 is computed from state 0 although state 1 was saved after it.
    past = [*first, R(0), F(0, 2), back(2), R(1), D(1), back(1), R(0), D(0), back(0)]
    with pytest.raises(unspool.errors.ScheduleError, match="only up to state 1"):
        as_checkpoint_schedule([*past, schedules.End()])
    right = [*first, R(1), F(1, 2), back(2), R(1), D(1), back(1), R(0), D(0), back(0)]
    assert len(list(as_checkpoint_schedule([*right, schedules.End()]))) == 16
    # The same run of the forward in two parts.
    parts = [*first[:3], F(1, 2), F(2, 3), *right[4:], schedules.End()]
    assert texts(*as_checkpoint_schedule(parts)) == texts(
        *as_checkpoint_schedule([*right, schedules.End()])
    )
    assert list(as_checkpoint_schedule([*past, schedules.End()], whole_states=True))
    with pytest.raises(unspool.errors.ScheduleError, match="gives up copies"):
        as_checkpoint_schedule(schedules.OnlineRevolve(3))


def written(*actions: Any) -> list[str]:
    given = [*actions, schedules.End()]
    return texts(*as_checkpoint_schedule(given, {"disk": "DISK"}, whole_states=True))


def test_saves_that_cannot_be_used_are_not_written() -> None:
    S, D, back = schedules.Save, schedules.Discard, schedules.Reverse
    restored = schedules.Restore(0)
    assert written(S(0), restored, back(0), D(0)) == written(back(0))
    assert written(S(0), D(0), back(0)) == written(back(0))
    assert written(S(0), back(0), restored, D(0)) == written(back(0))


def test_a_state_in_two_storages_is_written_once_and_copied() -> None:
    S, R, D = schedules.Save, schedules.Restore, schedules.Discard
    actions = written(
        S(0, "host"),
        S(0, "disk"),
        schedules.Forward(0, 2),
        schedules.Reverse(2),
        *(R(0, "host"), D(0, "host"), schedules.Forward(0, 1), schedules.Reverse(1)),
        *(R(0, "disk"), D(0, "disk"), schedules.Reverse(0)),
    )
    assert actions == texts(
        theirs.Forward(0, 2, True, False, RAM),
        theirs.Copy(0, RAM, DISK),
        theirs.Forward(2, 3, False, True, WORK),
        theirs.EndForward(),
        theirs.Reverse(3, 2, True),
        theirs.Move(0, RAM, WORK),
        theirs.Forward(0, 1, False, False, WORK),
        theirs.Forward(1, 2, False, True, WORK),
        theirs.Reverse(2, 1, True),
        theirs.Move(0, DISK, WORK),
        theirs.Forward(0, 1, False, True, WORK),
        theirs.Reverse(1, 0, True),
        theirs.EndReverse(),
    )


def test_the_forward_is_run_to_its_end_before_a_schedule_goes_back() -> None:
    S, R, D, F = schedules.Save, schedules.Restore, schedules.Discard, schedules.Forward
    actions = written(
        *(S(0), F(0, 1), R(0), F(0, 1), schedules.Reverse(1), R(0), D(0), schedules.Reverse(0))
    )
    assert actions[:5] == texts(
        theirs.Forward(0, 1, True, False, RAM),
        theirs.Forward(1, 2, False, False, NONE),
        theirs.EndForward(),
        theirs.Copy(0, RAM, WORK),
        theirs.Forward(0, 1, False, False, WORK),
    )


class States:
    """Runs actions of theirs on states: a checkpoint is the state of its first step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.at = 0
        self.kept: set[int] = set()
        self.most = 0
        self.reversed: list[int] = []

    def run(self, schedule: Any) -> None:
        for action in schedule:
            if isinstance(action, theirs.Forward):
                self.forward(action)
                if self.at == self.steps and schedule.max_n is None:
                    schedule.finalize(self.steps)
            elif isinstance(action, theirs.Copy | theirs.Move):
                self.carry(action)
            elif isinstance(action, theirs.Reverse):
                assert self.at == action.n1
                self.reversed.append(action.n0)

    def forward(self, action: Any) -> None:
        assert self.at == action.n0
        self.at = min(action.n1, self.steps)
        if action.write_ics:
            assert action.n0 not in self.kept
            self.kept.add(action.n0)
            self.most = max(self.most, len(self.kept))

    def carry(self, action: Any) -> None:
        assert action.n in self.kept
        if isinstance(action, theirs.Move):
            self.kept.remove(action.n)
        if action.to_storage == WORK:
            self.at = action.n


@pytest.mark.parametrize("steps", [1, 2, 5, 10, 100, 250])
def test_online_revolve_gives_up_copies_in_the_forward_pass(steps: int) -> None:
    for slots in {1, 2, 3, min(10, steps), max(1, steps // 2)}:
        states = States(steps)
        made = as_checkpoint_schedule(schedules.OnlineRevolve(slots), whole_states=True)
        states.run(made)
        assert states.reversed == [*reversed(range(steps))]
        assert states.most <= slots
        assert not states.kept
        assert (made.max_n, made.r, made.is_exhausted) == (steps, steps, True)


@pytest.mark.parametrize("storage", ["WORK", "tape", {"disk": NONE}, {"tape": "RAM"}])
def test_other_storages_are_refused(storage: Any) -> None:
    with pytest.raises(unspool.errors.OptionError, match='choose "RAM" or "DISK"'):
        as_checkpoint_schedule(schedules.Revolve(4, 2), storage)


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(unspool.Error, match="is not a schedule"):
        as_checkpoint_schedule(3)
