"""The adjoint driver: gradients with the bits of one that stores everything, and its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from adjoints import SIZE, Problem, finite_difference, reference, same_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from random_schedules import random_schedule
from unspool.schedules import (
    Action,
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
    to_trace,
)

N = 40
BYTES = 2 * 8 * SIZE
SCHEDULES = [
    StoreAll(N),
    Revolve(N, 1),
    Revolve(N, 4),
    Revolve(N, 99),
    Uniform(N, 4),
    ZCut(N, length=7),
    OnlineRevolve(1),
    OnlineRevolve(4),
    MultiLevel(N, device=2, host=2, disk=4, write_seconds={"disk": 2.0}),
    Listed(Revolve(N, 3)),
    Trace(to_trace(Revolve(N, 3))),
]
REFERENCE = reference(N)


def spool_of(kind: str, folder: Path) -> unspool.Spool:
    """A spool of few states in memory, or of none."""
    kinds: dict[str, dict[str, Any]] = {
        "host": {"host_memory": "1MiB"},
        "tiny device": {"device_memory": 3 * BYTES, "host_memory": "1MiB"},
        "tiny memory": {"device_memory": 3 * BYTES, "host_memory": 4 * BYTES, "disk": folder},
        "disk": {"disk": folder},
    }
    return unspool.Spool(device="cpu", **kinds[kind])


@pytest.mark.parametrize("kind", ["host", "tiny device", "tiny memory", "disk"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_every_schedule_gives_the_gradient_of_one_that_stores_everything(
    schedule: Schedule, kind: str, tmp_path: Path
) -> None:
    with spool_of(kind, tmp_path) as spool:
        for part in (False, True):
            problem = Problem(N)
            problem.run(schedule, spool, part, first=1000 * part)
            assert same_gradient(problem, REFERENCE)
            assert len(spool) == 0 and spool.stats().hints == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    direction = np.random.default_rng(3).normal(size=SIZE)
    change = finite_difference(REFERENCE, direction)
    assert change == pytest.approx(float(REFERENCE.gradient[0] @ direction), rel=1e-6)


@settings(max_examples=60)
@given(data=st.data(), steps=st.integers(1, 50))
def test_any_sizes_of_schedules_and_tiers_give_the_same_gradient(
    data: st.DataObject, steps: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    slots = data.draw(st.integers(1, 12))
    make = [
        lambda: StoreAll(steps),
        lambda: Revolve(steps, slots),
        lambda: Uniform(steps, slots),
        lambda: ZCut(steps, length=slots),
        lambda: OnlineRevolve(slots),
        lambda: MultiLevel(steps, device=slots, disk=slots, write_seconds={"disk": 0.7}),
    ]
    schedule = data.draw(st.sampled_from(make))()
    device, host = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    tiers = {"device_memory": device * BYTES, "host_memory": host * BYTES}
    options = {
        "part": data.draw(st.booleans()),
        "lookahead": data.draw(st.sampled_from([0, 1, 2, 7, 1024])),
        "first": data.draw(st.sampled_from([-(1 << 63), -7, 0, 1 << 40])),
    }
    disk = tmp_path_factory.mktemp("disk")
    expected, problem = reference(steps), Problem(steps)
    with unspool.Spool(**tiers, disk=disk, device="cpu", learn=False) as spool:
        report = problem.run(schedule, spool, **options)
        assert same_gradient(problem, expected) and len(spool) == 0
        hinted = report.restores if options["lookahead"] else 0
        assert spool.stats().hinted_restores == hinted and spool.stats().hints == 0


@settings(max_examples=150)
@given(data=st.data(), steps=st.integers(1, 14), seed=st.integers(0, 1 << 32))
def test_any_valid_list_of_actions_gives_the_same_gradient(
    data: st.DataObject, steps: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schedule = Listed(random_schedule(steps, seed))
    tiers = {"device_memory": data.draw(st.integers(1, 6)) * BYTES, "host_memory": 3 * BYTES}
    part, at_end = data.draw(st.booleans()), data.draw(st.booleans())
    problems = [Problem(steps), Problem(steps)]
    expected = StoreAll(steps), "1MiB", None
    for problem, (driven, host, disk) in zip(
        problems,
        [expected, (schedule, tiers["host_memory"], tmp_path_factory.mktemp("disk"))],
        strict=True,
    ):
        problem.gradient = np.ones(SIZE), np.ones(SIZE)
        with unspool.Spool(tiers["device_memory"], host, disk, device="cpu") as spool:
            report = problem.run(driven, spool, part, at_end=problem.at_end if at_end else None)
            assert spool.stats().hinted_restores == report.restores and len(spool) == 0
    assert same_gradient(*problems)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("at_end", [False, True])
def test_the_report_agrees_with_the_interpreter_and_with_the_calls(
    schedule: Schedule, at_end: bool, spool: unspool.Spool
) -> None:
    problem = Problem(N)
    problem.gradient = np.zeros(SIZE), np.zeros(SIZE)
    before = spool.stats()
    report = problem.run(schedule, spool, at_end=problem.at_end if at_end else None)
    known = schedule.steps is not None
    counts, extra = schedule.counts(None if known else N), int(at_end and known)
    taken = Counter(step for call in problem.calls for step in range(*call))
    assert (report.steps, report.peak_copies) == (N, counts.peak)
    assert report.forward_steps == counts.advances + extra == taken.total()
    assert report.recomputed_steps == taken.total() - len(taken)
    assert (report.saves, report.restores) == (counts.saves + extra, counts.restores + extra)
    assert report.saved_bytes == report.saves * BYTES
    assert report.restored_bytes == report.restores * BYTES
    after = spool.stats()
    assert after.hinted_restores - before.hinted_restores == report.restores
    assert after.saves == report.saves and after.discards == report.saves
    assert 0 < report.forward_seconds + report.reverse_seconds < report.seconds
    shown = str(report)
    assert f"{N} steps in" in shown and "computed again" in shown and "host" in shown
    assert report.to_dict()["restores"] == report.restores


def test_copies_that_are_only_reversed_from_hold_the_part_alone(spool: unspool.Spool) -> None:
    for schedule, full in ((StoreAll(N), 0), (Revolve(N, 1), 1), (ZCut(N, length=10), 3)):
        problem = Problem(N)
        report = problem.run(schedule, spool, part=True)
        part = report.saves - full
        assert report.saved_bytes == full * BYTES + part * BYTES // 2


def test_reverse_gets_the_part_whatever_was_restored(spool: unspool.Spool) -> None:
    u, other = np.zeros(3), np.zeros(3)
    seen = []

    def forward(state: Any, start: int, stop: int) -> None:
        u[:] = stop

    def reverse(part: Any, step: int) -> None:
        assert part is u
        seen.append((step, int(part[0])))

    for schedule in (StoreAll(9), Revolve(9, 2), OnlineRevolve(9)):
        u[:] = 0
        known = schedule.steps is not None
        stops = forward if known else lambda s, a, b: forward(s, a, min(b, 9)) or _stop(b, 9)
        flat.adjoint(schedule, spool, stops, reverse, [u, other], for_reverse=u)
    assert seen == [(step, step) for step in reversed(range(9))] * 3


def _stop(stop: int, end: int) -> Stop | None:
    return Stop(end) if stop >= end else None


def test_the_forward_pass_may_end_anywhere(spool: unspool.Spool) -> None:
    for steps in range(1, 30):
        expected, problem = reference(steps), Problem(steps)
        report = problem.run(OnlineRevolve(3), spool)
        assert same_gradient(problem, expected) and report.steps == steps
        assert report.peak_copies <= 3


def test_forward_may_say_that_it_ended_before_the_first_step_of_a_call(
    spool: unspool.Spool,
) -> None:
    u, done = np.zeros(2), []

    def forward(state: Any, start: int, stop: int) -> Stop | None:
        # Whether there is a step more is only seen when it is asked for.
        if start == 3:
            return Stop(3)
        u[:] = stop
        return None

    report = flat.adjoint(OnlineRevolve(9), spool, forward, lambda u, n: done.append(n), u)
    assert report.steps == 3 and done == [2, 1, 0]
    assert report.recomputed_steps == report.forward_steps - 3


def test_turn_sees_the_last_state_once_before_the_first_reverse(spool: unspool.Spool) -> None:
    for schedule in (StoreAll(5), Revolve(5, 1), Revolve(1, 1), Listed(Revolve(5, 2))):
        u, events = np.zeros(1), []

        def forward(state: np.ndarray, start: int, stop: int) -> None:
            assert state[0] == start
            state[:] = stop

        def reverse(state: np.ndarray, step: int, events: list[Any] = events) -> None:
            events.append((step, state[0]))

        def at_end(state: np.ndarray, events: list[Any] = events) -> None:
            events.append(("at_end", state[0]))

        flat.adjoint(schedule, spool, forward, reverse, u, at_end=at_end)
        steps = schedule.steps
        assert events == [("at_end", steps), *((n, n) for n in reversed(range(steps)))]


def test_a_copy_of_the_last_state_is_whole_when_turn_advances_from_it(spool: unspool.Spool) -> None:
    actions = [Save(0), Forward(0, 1), Save(1), Restore(1), Discard(1), Reverse(1)]
    schedule = Listed([*actions, Restore(0), Discard(0), Reverse(0), End()])
    problem = Problem(2)
    problem.run(schedule, spool, part=True)
    assert same_gradient(problem, reference(2))


def test_states_may_be_arrays_sequences_mappings_or_functions(spool: unspool.Spool) -> None:
    u, v = np.zeros(4), np.zeros((2, 3), np.int8)
    for state in (u, [u], (u, v), [u, v], {"u": u, "v": v}, lambda: u, lambda: {"u": u}):
        u[:], seen = 0, []

        def forward(given: Any, start: int, stop: int, state: Any = state) -> None:
            assert callable(state) or given is state
            u[:] = stop

        def reverse(given: Any, step: int, seen: list[int] = seen) -> None:
            seen.append(int(u[0]))

        flat.adjoint(Revolve(7, 2), spool, forward, reverse, state)
        assert seen == [6, 5, 4, 3, 2, 1, 0]


def test_buffers_that_are_swapped_are_asked_for_anew(spool: unspool.Spool) -> None:
    buffers = [np.zeros(3), np.zeros(3)]
    seen = []

    def forward(state: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            older, newer = buffers
            older[:] = newer + 1
            buffers.reverse()

    def reverse(state: Any, step: int) -> None:
        assert state[1] is buffers[1]
        seen.append(buffers[1][0])

    flat.adjoint(Revolve(9, 2), spool, forward, reverse, lambda: tuple(buffers))
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    seen.clear()
    buffers[0][:] = buffers[1][:] = 0
    part = {"for_reverse": lambda state: state[1]}
    flat.adjoint(
        ZCut(9, length=3),
        spool,
        forward,
        lambda part, step: seen.append(part[0]),
        lambda: tuple(buffers),
        **part,
    )
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_forward_may_return_the_new_state(spool: unspool.Spool) -> None:
    first, seen = np.zeros(3), []

    def reverse(state: Any, step: int) -> None:
        seen.append(state[0][0])

    flat.adjoint(Revolve(9, 2), spool, lambda s, a, b: (s[0] + (b - a),), reverse, (first,))
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1, 0] and not first.any()


def test_views_and_empty_arrays_are_restored_where_they_are(spool: unspool.Spool) -> None:
    field = np.zeros((6, 8))
    inner, empty = field[1:-1:2, ::-2], np.zeros((0, 3))
    seen = []

    def forward(state: Any, start: int, stop: int) -> None:
        inner[...] = stop

    flat.adjoint(
        Revolve(6, 1),
        spool,
        forward,
        lambda state, step: seen.append((inner.min(), inner.max(), field.sum())),
        {"inner": inner, "empty": empty},
    )
    assert seen == [(n, n, n * inner.size) for n in reversed(range(6))]


def test_two_adjoints_one_after_the_other_and_beside_other_versions(spool: unspool.Spool) -> None:
    spool.save(-1, np.arange(3))
    spool.save(N + 1, np.arange(3))
    for _ in range(2):
        problem = Problem(N)
        problem.run(Revolve(N, 4), spool)
        assert same_gradient(problem, REFERENCE)
    problem.run(Revolve(N, 4), spool, first=N + 2)
    assert spool.versions() == [-1, N + 1]


def test_progress_is_told_after_every_action(spool: unspool.Spool) -> None:
    for schedule in (Revolve(9, 2), OnlineRevolve(2)):
        problem, told = Problem(9), []
        report = problem.run(schedule, spool, progress=told.append)
        actions = [event.action for event in told]
        assert actions[-1] == End() and sum(isinstance(a, Reverse) for a in actions) == 9
        assert told[-1].reversed_steps == 9 == told[-1].steps
        assert told[-1].forward_steps == report.forward_steps
        assert told[0].steps == schedule.steps and told[0].action == Save(0)


class Doubled(Schedule):
    """Keeps state 0 in two tiers at once, and is written in Python."""

    steps = 3
    slots = 2

    def actions(self) -> Iterator[Action]:
        yield from (Save(0, "disk"), Save(0, "device"), Forward(0, 2), Reverse(2))
        yield from (Restore(0, "device"), Discard(0, "device"), Forward(0, 1), Reverse(1))
        yield from (Restore(0, "disk"), Discard(0, "disk"), Reverse(0), End())


def test_a_state_in_two_tiers_is_one_version(tmp_path: Path) -> None:
    problem = Problem(3)
    with unspool.Spool("1MiB", disk=tmp_path, device="cpu") as spool:
        report = problem.run(Doubled(), spool, at_end=problem.at_end)
        assert same_gradient(problem, reference(3))
        assert report.saves == 2 and spool.stats().hinted_restores == 3 and len(spool) == 0


class Counted(Schedule):
    """Another schedule, drawn from in Python."""

    def __init__(self, inner: Schedule) -> None:
        self.inner, self.steps, self.slots = inner, inner.steps, inner.slots

    def actions(self) -> Iterator[Action]:
        return iter(self.inner)


@pytest.mark.parametrize("inner", [Revolve(N, 4), ZCut(N, length=6), OnlineRevolve(4)], ids=repr)
@pytest.mark.parametrize("part", [False, True])
def test_schedules_in_python_are_foreseen_as_well(
    inner: Schedule, part: bool, spool: unspool.Spool
) -> None:
    problem, native = Problem(N), Problem(N)
    report = problem.run(Counted(inner), spool, part, lookahead=5)
    assert same_gradient(problem, REFERENCE)
    assert spool.stats().hinted_restores == report.restores
    assert report.saved_bytes == native.run(inner, spool, part).saved_bytes


def test_a_copy_that_should_rest_on_disk_is_sent_there(tmp_path: Path) -> None:
    levels = MultiLevel(N, device=1, disk=9, write_seconds={"disk": 0.1})
    slow = levels.counts().tiers["disk"]
    problem = Problem(N)
    with unspool.Spool("1MiB", disk=tmp_path, device="cpu") as spool:
        report = problem.run(levels, spool)
    assert same_gradient(problem, REFERENCE) and slow > 0
    assert set(report.tiers) == {"device", "disk"} and "device -> disk" in report.links
