"""Every schedule of checkpoint_schedules becomes a valid list of our actions, with no more copies
than its own, and drives an adjoint on a spool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import schedules
from unspool.interop import from_checkpoint_schedules

theirs = pytest.importorskip("checkpoint_schedules", reason="pip install checkpoint-schedules")

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning"),
]

RAM, DISK = theirs.StorageType.RAM, theirs.StorageType.DISK
#: Steps and checkpoints.
SIZES = [(n, s) for n in (1, 2, 3, 5, 10, 33, 60) for s in (1, 2, 3, 4, 9, 22) if s < n or n == 1]
KINDS: dict[str, Callable[[int, int], Any]] = {
    "Revolve": lambda n, s: theirs.Revolve(n, s),
    "DiskRevolve": lambda n, s: theirs.DiskRevolve(n, s),
    "PeriodicDiskRevolve": lambda n, s: theirs.PeriodicDiskRevolve(n, s),
    "HRevolve": lambda n, s: theirs.HRevolve(n, s, max(1, s // 2)),
    "Multistage, maximum": lambda n, s: theirs.MultistageCheckpointSchedule(n, s // 2, s - s // 2),
    "Multistage, revolve": lambda n, s: theirs.MultistageCheckpointSchedule(
        n, s // 2, s - s // 2, trajectory="revolve"
    ),
    "TwoLevel": lambda n, s: theirs.TwoLevelCheckpointSchedule(3, s, binomial_storage=RAM),
    "TwoLevel, on disk": lambda n, s: theirs.TwoLevelCheckpointSchedule(
        2, s, binomial_trajectory="revolve"
    ),
    "Mixed": lambda n, s: theirs.MixedCheckpointSchedule(n, s),
    "SingleDisk, moving": lambda n, s: theirs.SingleDiskStorageSchedule(move_data=True),
    "SingleDisk, copying": lambda n, s: theirs.SingleDiskStorageSchedule(),
    "SingleMemory": lambda n, s: theirs.SingleMemoryStorageSchedule(),
}
ONLINE = [name for name, make in KINDS.items() if make(3, 1).max_n is None]
#: Kinds whose checkpoints may hold the data of the adjoint, so that they recompute less.
ADJOINT_DATA = {"Mixed", "SingleDisk, moving", "SingleDisk, copying", "SingleMemory"}


def sizes(name: str) -> list[tuple[int, int]]:
    """Those that a kind can be made for: their HRevolve fails for one step."""
    return [(n, s) for n, s in SIZES if n > 1 or name != "HRevolve"]


def costs(schedule: Any, steps: int) -> tuple[dict[Any, int], int]:
    """The most checkpoints in each storage, and the forward steps, by their own actions."""
    kept: dict[Any, set[int]] = {RAM: set(), DISK: set()}
    most = {RAM: 0, DISK: 0}
    forward = 0
    for action in schedule:
        if isinstance(action, theirs.Forward):
            forward += min(action.n1, steps) - action.n0
            if action.storage in kept and (action.write_ics or action.write_adj_deps):
                kept[action.storage].add(action.n0)
            if schedule.max_n is None and action.n1 >= steps:
                schedule.finalize(steps)
        elif isinstance(action, theirs.Move):
            kept[action.from_storage].discard(action.n)
        elif isinstance(action, theirs.EndReverse):
            break
        most = {storage: max(most[storage], len(kept[storage])) for storage in kept}
    return most, forward


@pytest.mark.parametrize("name", KINDS)
def test_it_is_valid_with_no_more_copies_and_steps_than_theirs(name: str) -> None:
    for steps, units in sizes(name):
        most, forward = costs(KINDS[name](steps, units), steps)
        ours = from_checkpoint_schedules(KINDS[name](steps, units), steps)
        counts = schedules.check(ours)
        assert counts.steps == ours.steps == steps
        assert counts.tiers.get("host", 0) <= most[RAM], (steps, units)
        assert counts.tiers.get("disk", 0) <= most[DISK], (steps, units)
        # Their step over which the adjoint's data is computed is not one of ours.
        needless = 0 if name in ADJOINT_DATA else steps - 1
        assert counts.advances <= forward - 1 - needless, (steps, units)


@pytest.mark.parametrize("name", ONLINE)
def test_the_number_of_steps_may_be_found_on_the_way(name: str) -> None:
    for steps, units in SIZES:
        most, _ = costs(KINDS[name](steps, units), steps)
        ours = from_checkpoint_schedules(KINDS[name](steps, units))
        assert ours.steps is None
        counts = schedules.check(ours, steps=steps)
        assert counts.steps == steps
        assert counts.tiers.get("disk", 0) <= most[DISK], (steps, units)
        assert schedules.check(ours, steps=steps + 1).steps == steps + 1


class Model:
    """x[n + 1] = x[n] + h sin(a x[n]) and its adjoint in plain arrays."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.a = np.linspace(0.5, 1.5, 64)
        self.start = np.linspace(-2.0, 2.0, 64)
        self.adjoint = np.ones(64)

    def forward(self, x: np.ndarray, begin: int, end: int) -> schedules.Stop | None:
        for _ in range(begin, min(end, self.steps)):
            x += 0.1 * np.sin(self.a * x)
        return schedules.Stop(self.steps) if end >= self.steps else None

    def known(self, x: np.ndarray, begin: int, end: int) -> None:
        self.forward(x, begin, end)

    def reverse(self, x: np.ndarray, step: int) -> None:
        self.adjoint *= 1 + 0.1 * self.a * np.cos(self.a * x)

    @functools.cached_property
    def gradient(self) -> np.ndarray:
        """With every state in memory."""
        model = Model(self.steps)
        x = model.start.copy()
        states = []
        for step in range(self.steps):
            states.append(x.copy())
            model.known(x, step, step + 1)
        for step in reversed(range(self.steps)):
            model.reverse(states[step], step)
        return model.adjoint


@pytest.fixture
def small(tmp_path: Path) -> Iterator[unspool.Spool]:
    """A spool whose fastest tier has room for a few states."""
    with unspool.Spool(device_memory="4KiB", host_memory="16KiB", disk=tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "steps"), [(name, n) for name in KINDS for n in (1, 2, 25) if (n, 1) in sizes(name)]
)
def test_it_drives_an_adjoint(name: str, steps: int, small: unspool.Spool) -> None:
    model = Model(steps)
    ours = from_checkpoint_schedules(KINDS[name](steps, max(1, min(3, steps - 1))), steps)
    state = model.start.copy()
    report = unspool.adjoint(ours, small, model.known, model.reverse, state)
    assert np.array_equal(model.adjoint, model.gradient)
    assert report.steps == steps


@pytest.mark.parametrize("name", ONLINE)
def test_it_drives_an_adjoint_whose_length_is_found_on_the_way(
    name: str, small: unspool.Spool
) -> None:
    model = Model(25)
    state = model.start.copy()
    # The driver takes their objects as they are.
    unspool.adjoint(KINDS[name](25, 3), small, model.forward, model.reverse, state)
    assert np.array_equal(model.adjoint, model.gradient)


def test_labels_become_tiers_as_asked() -> None:
    def tiers(**options: Any) -> set[str | None]:
        ours = from_checkpoint_schedules(theirs.HRevolve(20, 2, 3), **options)
        return {action.tier for action in ours if isinstance(action, schedules.Save)}

    assert tiers() == {"host", "disk"}
    assert tiers(storage_map={"ram": "device", DISK: "host"}) == {"device", "host"}
    # Two of their places become one: a state that was in both is kept once.
    assert tiers(storage_map={RAM: None, DISK: None}) == {None}


def test_the_object_stays_as_it_was() -> None:
    given = theirs.Revolve(10, 3)
    ours = schedules.as_schedule(given)
    assert list(ours) == list(ours) != []
    assert given.n == 0
    assert isinstance(next(given), theirs.Forward)


def test_what_has_begun_is_refused() -> None:
    given = theirs.Revolve(10, 3)
    next(given)
    with pytest.raises(unspool.errors.ScheduleError, match="were taken already"):
        from_checkpoint_schedules(given)


@pytest.mark.parametrize("steps", [None, 7])
def test_what_computes_no_adjoint_is_refused_before_the_forward_pass(steps: int | None) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match="computes no adjoint"):
        from_checkpoint_schedules(theirs.NoneCheckpointSchedule(), steps)


def test_another_number_of_steps_is_refused() -> None:
    with pytest.raises(unspool.errors.ScheduleError, match="for 10 steps, not for 11"):
        from_checkpoint_schedules(theirs.Revolve(10, 3), 11)
    with pytest.raises(unspool.errors.ScheduleError, match="at least one step"):
        from_checkpoint_schedules(theirs.SingleMemoryStorageSchedule(), 0)


@pytest.mark.parametrize("stop", [4, 10])
def test_a_forward_pass_ends_only_where_the_last_forward_was(stop: int) -> None:
    actions = iter(from_checkpoint_schedules(theirs.TwoLevelCheckpointSchedule(4, 1)))
    assert [next(actions) for _ in range(4)] == [
        schedules.Save(0, "disk"),
        schedules.Forward(0, 4),
        schedules.Save(4, "disk"),
        schedules.Forward(4, 8),
    ]
    if stop == 4:
        # Nothing was done after the second save, which is given up then.
        actions.finish(stop)
        assert next(actions) == schedules.Discard(4, "disk")
        with pytest.raises(unspool.errors.ScheduleError, match="is known"):
            actions.finish(stop)
    else:
        with pytest.raises(unspool.errors.ScheduleError, match="cannot have ended at state 10"):
            actions.finish(stop)


def listed(*actions: Any) -> Any:
    """A schedule of theirs that someone wrote down."""

    class Written(theirs.CheckpointSchedule):
        is_exhausted = False

        def __init__(self) -> None:
            super().__init__(3)

        def _iterator(self) -> Iterator[Any]:
            yield from actions

        def uses_storage_type(self, storage_type: Any) -> bool:
            return True

    return Written()


WORK, NONE = theirs.StorageType.WORK, theirs.StorageType.NONE
F, R, C, M = theirs.Forward, theirs.Reverse, theirs.Copy, theirs.Move
ENDS = theirs.EndForward(), theirs.EndReverse()


def test_copies_between_storages_go_through_the_working_state() -> None:
    given = listed(
        F(0, 2, True, False, RAM),
        F(2, 3, False, True, WORK),
        ENDS[0],
        R(3, 2, True),
        M(0, RAM, DISK),
        C(0, DISK, WORK),
        F(0, 2, False, True, WORK),
        M(0, DISK, NONE),
        R(2, 0, True),
        ENDS[1],
    )
    assert list(from_checkpoint_schedules(given)) == [
        schedules.Save(0, "host"),
        schedules.Forward(0, 2),
        schedules.Reverse(2),
        schedules.Restore(0, "host"),
        schedules.Discard(0, "host"),
        schedules.Save(0, None),
        schedules.Forward(0, 1),
        schedules.Reverse(1),
        schedules.Restore(0, None),
        schedules.Discard(0, None),
        schedules.Reverse(0),
        schedules.End(),
    ]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([F(1, 2, True, False, RAM)], "the forward is at 0"),
        ([F(0, 3, False, True, WORK), R(2, 0, True)], "the adjoint is at 3"),
        ([F(0, 3, False, False, NONE), R(3, 2, True)], "step 2 is not in WORK"),
        ([F(0, 3, True, False, NONE)], "not a place for it"),
        ([F(0, 3, True, False, RAM), C(1, RAM, WORK)], "no such checkpoint"),
        ([F(0, 3, True, False, RAM), M(0, RAM, NONE), C(0, RAM, WORK)], "no such checkpoint"),
        ([F(0, 2, True, False, RAM), C(0, RAM, WORK), F(0, 1, True, True, RAM)], "holds a check"),
        ([F(0, 3, True, False, RAM), C(0, RAM, DISK), C(0, RAM, DISK)], "holds a checkpoint"),
        ([F(0, 3, False, True, RAM), C(0, RAM, WORK), F(0, 1, False, True, WORK)], "is at None"),
        ([F(0, 3, False, True, WORK), R(3, 1, True), ENDS[1]], "ends before every step"),
        (["go"], "not a known action of checkpoint_schedules"),
    ],
)
def test_what_is_not_there_is_refused(actions: list[Any], message: str) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match=message):
        from_checkpoint_schedules(listed(*actions))


def test_other_objects_and_tiers_are_refused() -> None:
    with pytest.raises(TypeError, match=r"a CheckpointSchedule is needed, not \[\]; unspool"):
        from_checkpoint_schedules([])
    storage_map: Any
    for storage_map, why in [
        ({"TAPE": "disk"}, "storage_map has 'TAPE'"),
        ({"RAM": "tape"}, "storage_map has 'RAM': 'tape'"),
        ("disk", "storage_map='disk': write a mapping"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=why):
            from_checkpoint_schedules(theirs.Revolve(3, 1), storage_map=storage_map)


@pytest.mark.parametrize("steps", [0, -1, "three", 2.5, True])
def test_a_number_of_steps_that_makes_no_sense_is_refused(steps: Any) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match="step"):
        from_checkpoint_schedules(theirs.SingleMemoryStorageSchedule(), steps)
