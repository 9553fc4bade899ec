"""`schedules.Auto`: the schedule is chosen while the adjoint runs; nothing else is different."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from adjoints import SIZE, Problem, reference, same_gradient
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool import errors
from unspool._adjoint import first_steps
from unspool.advice import NoPlanError, choosing
from unspool.schedules import (
    Auto,
    Forward,
    Revolve,
    Save,
    Schedule,
    StoreAll,
    as_schedule,
)
from unspool.types import Access

N = 40
BYTES = 2 * 8 * SIZE
REFERENCE = reference(N)

KINDS: dict[str, dict[str, Any]] = {
    "host": {"host_memory": "1MiB"},
    "few states": {"host_memory": 5 * BYTES},
    "one state": {"host_memory": 2 * BYTES},
    "two tiers": {"device_memory": 3 * BYTES, "host_memory": 7 * BYTES},
    "three tiers": {"device_memory": 3 * BYTES, "host_memory": 4 * BYTES, "disk": Path()},
    "disk": {"disk": Path()},
    "small disk": {"host_memory": 3 * BYTES, "disk": (Path(), 8 * (BYTES + 4096))},
    "codec": {"device_memory": 3 * BYTES, "host_memory": 7 * BYTES, "codec": "lossless"},
}


def spool_of(kind: str, folder: Path, **more: Any) -> unspool.Spool:
    """A spool with room for all states, or for few of them."""
    options = {**KINDS[kind], **more}
    disk = options.get("disk")
    if disk is not None:
        options["disk"] = (folder, disk[1]) if isinstance(disk, tuple) else folder
    return unspool.Spool(device="cpu", **options)


def taken(problem: Problem) -> Counter[int]:
    """How often each step was taken."""
    return Counter(step for call in problem.calls for step in range(*call))


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_one_that_stores_everything(
    kind: str, part: bool, tmp_path: Path
) -> None:
    with spool_of(kind, tmp_path) as spool:
        for _ in range(2):
            problem = Problem(N)
            report = problem.run(Auto(N), spool, part, first=1000)
            assert same_gradient(problem, REFERENCE)
            assert len(spool) == 0 and spool.stats().hints == 0
            counts = report.choice.schedule.counts()
            # `at_end` takes the last step once more.
            assert report.forward_steps == taken(problem).total()
            if "codec" not in kind:
                assert report.forward_steps == counts.advances + 1
                assert report.saves <= counts.saves + 1 + first_steps.MOST + 1
                assert report.restores == counts.restores + 1


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9])
def test_few_steps_are_taken_as_often_as_the_schedule_says(
    steps: int, at_end: bool, tmp_path: Path
) -> None:
    for kind in KINDS:
        expected, problem = reference(steps), Problem(steps)
        more: dict[str, Any] = {} if at_end else {"at_end": None}
        if not at_end:
            expected.gradient = problem.gradient = np.ones(SIZE), np.zeros(SIZE)
            with spool_of("host", tmp_path) as whole:
                expected.u[:], expected.forcing[:] = problem.u, 0
                expected.run(StoreAll(steps), whole, at_end=None)
                expected.objective = None
        with spool_of(kind, tmp_path) as spool:
            report = problem.run(Auto(steps), spool, **more)
            assert same_gradient(problem, expected) and len(spool) == 0
        assert report.forward_steps == taken(problem).total()
        # What a codec makes of tiny states may leave holes, for which there is another choice.
        if "codec" not in kind:
            assert report.forward_steps == report.choice.schedule.counts().advances + at_end


@settings(max_examples=40, deadline=None)
@given(data=st.data(), steps=st.integers(1, 60), device=st.integers(2, 8), host=st.integers(2, 8))
def test_any_room_gives_the_same_gradient(
    data: st.DataObject,
    steps: int,
    device: int,
    host: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    codec = data.draw(st.sampled_from([None, "lossless", "auto"]))
    disk = tmp_path_factory.mktemp("disk") if data.draw(st.booleans()) else None
    tiers = {"device_memory": (device + 1) * BYTES, "host_memory": host * BYTES}
    expected, problem = reference(steps), Problem(steps)
    with unspool.Spool(**tiers, disk=disk, device="cpu", codec=codec) as spool:
        report = problem.run(
            Auto(steps),
            spool,
            data.draw(st.booleans()),
            lookahead=data.draw(st.sampled_from([0, 1, 7, 1024])),
        )
        assert same_gradient(problem, expected) and len(spool) == 0
        assert spool.stats().hints == 0
    if codec is None:
        assert report.forward_steps == report.choice.schedule.counts().advances + 1


def test_states_of_every_kind_are_restored(spool: unspool.Spool) -> None:
    u, v = np.zeros(4), np.zeros((2, 3), np.int8)
    for state in (u, [u], (u, v), {"u": u, "v": v}, lambda: u, lambda: {"u": u, "v": v}):
        u[:], seen = 0, []

        def forward(_: Any, start: int, stop: int) -> None:
            u[:] = stop

        def reverse(_: Any, step: int, seen: list[int] = seen) -> None:
            seen.append(int(u[0]))

        unspool.adjoint(Auto(30), spool, forward, reverse, state)
        assert seen == list(reversed(range(30)))


def test_forward_may_return_the_state(tmp_path: Path) -> None:
    seen: list[float] = []

    def forward(u: Any, start: int, stop: int) -> Any:
        return u + (stop - start)

    with unspool.Spool(host_memory=5 * 800) as spool:
        unspool.adjoint(
            Auto(30), spool, forward, lambda u, n: seen.append(float(u[0])), np.zeros(100)
        )
    assert seen == list(map(float, reversed(range(30))))


def test_progress_hears_of_the_actions_of_the_chosen_schedule(tmp_path: Path) -> None:
    told: list[Any] = []
    with spool_of("few states", tmp_path) as spool:
        report = Problem(N).run(
            Auto(N), spool, progress=lambda event: told.append((event.action, event.steps))
        )
    assert told == [(action, N) for action in report.choice.schedule]


def test_a_check_is_that_of_the_schedule(tmp_path: Path) -> None:
    found = []
    for schedule in (StoreAll(N), Auto(N)):
        problem = Problem(N)
        by_u = np.zeros(SIZE)

        def reverse(_: Any, step: int, problem: Problem = problem, by_u: Any = by_u) -> None:
            by_u[:] = by_u * (1 - 0.3 * problem.u**2) + problem.u

        with unspool.Spool(host_memory="1MiB", codec=unspool.Bound(abs=1e-3)) as spool:
            report = unspool.adjoint(
                schedule,
                spool,
                lambda state, a, b, problem=problem: problem.advance(a, b),
                reverse,
                (problem.u, problem.forcing),
                adjoint_state={"by_u": by_u},
                check=6,
            )
            assert len(spool) == 0
        found.append(report.fidelity)
        assert len(report.fidelity.checked) == 6
    assert found[0].checked == found[1].checked


def test_checked_states_have_their_room(tmp_path: Path) -> None:
    problem, sums = Problem(N), np.zeros(SIZE)
    with unspool.Spool(host_memory=9 * BYTES, codec=unspool.Bound(abs=1e-3)) as spool:
        report = unspool.adjoint(
            Auto(N),
            spool,
            lambda state, a, b: problem.advance(a, b),
            lambda state, n: sums.__iadd__(problem.u),
            (problem.u, problem.forcing),
            adjoint_state={"sums": sums},
            check=4,
        )
    assert report.choice.schedule.steps == N and len(report.fidelity.checked) == 4


def test_what_others_keep_in_the_spool_is_not_taken_for_room(tmp_path: Path) -> None:
    with unspool.Spool(host_memory=8 * BYTES) as spool:
        spool.save(-1, np.arange(2 * SIZE, dtype=float))
        spool.save(-2, np.arange(2 * SIZE, dtype=float))
        problem = Problem(N)
        report = problem.run(Auto(N), spool)
        assert same_gradient(problem, REFERENCE) and spool.versions() == [-2, -1]
    assert report.peak_copies <= 5


def test_a_spool_that_is_too_small_says_so(tmp_path: Path) -> None:
    with unspool.Spool(host_memory=BYTES // 2) as spool, pytest.raises(errors.CapacityError):
        Problem(N).run(Auto(N), spool)
    # One state has room, but not the one beside the last step.
    with unspool.Spool(host_memory=BYTES) as spool:
        with pytest.raises(NoPlanError, match="need room for a state of 4"):
            Problem(N).run(Auto(N), spool)
        assert len(spool) == 0


@pytest.mark.parametrize("when", [0, 1, 2, 5, 30])
def test_a_step_that_raises_leaves_a_usable_spool(when: int, tmp_path: Path) -> None:
    class Broken(Problem):
        def advance(self, start: int, stop: int) -> None:
            if start <= when < stop:
                raise FloatingPointError("no")
            super().advance(start, stop)

    with spool_of("two tiers", tmp_path) as spool:
        with pytest.raises(FloatingPointError) as raised:
            Broken(N).run(Auto(N), spool)
        assert "raised by forward(state, " in raised.value.__notes__[0]
        assert "0 of 40 steps were reversed" in raised.value.__notes__[0]
        assert len(spool) == 0 and spool.stats().hints == 0
        problem = Problem(N)
        problem.run(Auto(N), spool)
        assert same_gradient(problem, REFERENCE)


class Noisy:
    """States of silence, and of noise that no codec makes smaller where `is_loud` says so."""

    def __init__(self, steps: int, is_loud: Callable[[int], bool]) -> None:
        self.steps, self.is_loud = steps, is_loud
        self.noise = np.random.default_rng(1).integers(0, 1 << 62, 4096).view(np.float64)
        self.u = self.at(0)
        self.taken = 0
        self.seen: list[int] = []

    def at(self, step: int) -> Any:
        """State `step`; its first value says which it is."""
        u = self.noise.copy() if self.is_loud(step) else np.zeros(4096)
        u[0] = step
        return u

    def forward(self, u: Any, start: int, stop: int) -> None:
        assert u.tobytes() == self.at(start).tobytes()
        u[:] = self.at(stop)
        self.taken += stop - start

    def reverse(self, u: Any, step: int) -> None:
        assert u.tobytes() == self.at(step).tobytes()
        self.seen.append(step)

    def run(self, states: int, **options: Any) -> Any:
        """An adjoint in memory for so many states without a codec."""
        room = states * (self.u.nbytes + 1024)
        with unspool.Spool(host_memory=room, codec="lossless") as spool:
            report = unspool.adjoint(
                Auto(self.steps), spool, self.forward, self.reverse, self.u, **options
            )
            assert len(spool) == 0 and spool.stats().hints == 0
        assert self.seen == list(reversed(range(self.steps)))
        assert report.forward_steps == self.taken and report.steps == self.steps
        assert report.recomputed_steps == self.taken - self.steps + ("at_end" not in options)
        assert "whose copy had no room" in report.choice.why
        return report


def choosing_first(monkeypatch: pytest.MonkeyPatch, schedule: Schedule) -> None:
    """Has the first choice be this one."""
    # Whatever saves cost, the states of the first steps are there.
    monkeypatch.setattr(first_steps, "DEAR", math.inf)
    choose = choosing.choose

    def chosen(seen: choosing.Seen) -> Any:
        return choose(seen) if seen.ratio is None else (schedule, "for the test", None)

    monkeypatch.setattr(choosing, "choose", chosen)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("loud", [1, 4, 20, 95])
def test_states_that_grow_in_the_codec_get_another_schedule(
    loud: int, at_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing_first(monkeypatch, StoreAll(100))
    options: dict[str, Any] = {"at_end": lambda u: None} if at_end else {}
    report = Noisy(100, lambda step: step >= loud).run(4, **options)
    # The forward pass once more, and what few states cost.
    assert report.forward_steps < 100 + Revolve(100, 2).counts().advances


def test_a_copy_of_the_reverse_sweep_without_room_is_another_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = Revolve(100, 8)
    sweep = list(itertools.takewhile(lambda one: isinstance(one, Save | Forward), schedule))
    silent = {one.step for one in sweep if isinstance(one, Save)} | {0, 1, 2, 3}
    choosing_first(monkeypatch, schedule)
    Noisy(100, lambda step: step not in silent).run(3)


def test_the_last_copy_may_be_the_one_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing_first(monkeypatch, Revolve(50, 3))
    report = Noisy(50, lambda step: True).run(3, at_end=lambda u: None)
    assert report.choice.schedule.before.steps == 49
    # With room for one state and none beside the last step there is no other one.
    choosing_first(monkeypatch, Revolve(50, 1))
    with pytest.raises(errors.CapacityError, match="There is no room for version 50"):
        Noisy(50, lambda step: True).run(1, at_end=lambda u: None)


def test_the_report_says_what_was_chosen_and_why(tmp_path: Path) -> None:
    with spool_of("few states", tmp_path) as spool:
        report = Problem(N).run(Auto(N), spool)
    choice = report.choice
    assert choice.plan is not None and choice.schedule is choice.plan.best.schedule
    assert "the fastest of" in choice.why
    smaller, larger = choice.what_if()
    assert smaller.capacity * 2 < larger.capacity
    text = str(report)
    assert f"chosen: {choice.schedule!r}, {choice.why}" in text and "of host" in text
    found = json.loads(json.dumps(report.to_dict()))["choice"]
    assert found["schedule"] == repr(choice.schedule) and found["plan"]["candidates"]
    with spool_of("host", tmp_path) as spool:
        assert Problem(N).run(StoreAll(N), spool).choice is None


def test_what_has_to_be_known_before_the_run_is_refused(
    spool: unspool.Spool, tmp_path: Path
) -> None:
    with pytest.raises(errors.OptionError, match="another schedule in the process"):
        Problem(N).run(Auto(N), spool, resume=tmp_path, adjoint_state={"a": np.ones(1)})
    with pytest.raises(errors.OptionError, match=r"schedules.Auto\(steps\).*OnlineRevolve"):
        as_schedule("auto")
    for ask in (list, Auto.counts):
        with pytest.raises(errors.ScheduleError, match="chosen while"):
            ask(Auto(3))
    for steps in (0, -1, 1.5, True):
        with pytest.raises(errors.ScheduleError):
            Auto(steps)
    assert len(spool) == 0


def test_a_spool_that_learns_may_announce(tmp_path: Path) -> None:
    with spool_of("few states", tmp_path) as spool:
        for _ in range(3):
            problem = Problem(N)
            access = Access(lookahead="learn")
            unspool.adjoint(
                Auto(N),
                spool,
                lambda state, a, b, problem=problem: problem.advance(a, b),
                problem.reverse,
                (problem.u, problem.forcing),
                at_end=problem.at_end,
                access=access,
            )
            assert same_gradient(problem, REFERENCE)


def test_a_history_of_increments_takes_it() -> None:
    problem = Problem(N)
    with unspool.Spool(host_memory="4MiB") as spool:
        history = unspool.IncrementalSpool(spool, unspool.Bound(abs=1e-9))
        problem.run(Auto(N), history)
        assert len(history) == len(spool) == 0
    assert np.allclose(problem.gradient[0], REFERENCE.gradient[0], rtol=1e-5, atol=1e-5)


# The decision by itself


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[choosing.Seen]:
    """A run of 200 steps of 1 ms, with room for eight states of 1 MiB in memory, and a disk."""
    with unspool.Spool(host_memory="8MiB", disk=tmp_path, device="cpu") as spool:
        stats, size = spool.stats(), 1 << 20
        yield choosing.Seen(
            200, size, size, 1e-3, 2e-4, 1e-4, None, "cpu", before=stats, now=stats, reserved=0
        )


def with_disk(seen: choosing.Seen, rate: float) -> choosing.Seen:
    """The same with a disk of so many bytes per second."""
    (link,) = seen.now.links
    ways = {
        name: dataclasses.replace(getattr(link, name), bytes_per_second=rate)
        for name in ("flush", "prefetch")
    }
    links = (dataclasses.replace(link, **ways),)
    return dataclasses.replace(seen, now=dataclasses.replace(seen.now, links=links))


def test_a_fast_disk_is_used_and_a_slow_one_is_not(seen: choosing.Seen) -> None:
    fast, _, _ = choosing.choose(with_disk(seen, 4e9))
    assert fast.counts().recomputed_steps == 0
    slow, _, plan = choosing.choose(with_disk(seen, 1e6))
    assert slow.counts().recomputed_steps > 0
    assert plan is not None and plan.best.seconds < 2


def test_all_that_fits_is_kept_without_a_plan(seen: choosing.Seen) -> None:
    found, why, plan = choosing.choose(dataclasses.replace(seen, steps=8))
    assert (found, plan) == (StoreAll(8), None) and "fits the host tier" in why
    # Unless copies take longer than steps.
    quick = dataclasses.replace(seen, steps=8, step_seconds=1e-9)
    found, _, plan = choosing.choose(quick)
    assert plan is not None and found != StoreAll(8)


def test_room_that_is_reserved_comes_off_the_slowest_tiers(seen: choosing.Seen) -> None:
    (host, disk), free = seen.before.tiers, 100 << 20
    before = dataclasses.replace(
        seen.before, tiers=(host, dataclasses.replace(disk, capacity=free))
    )
    assert host.capacity is not None
    assert choosing.room_of(before, 30 << 20).capacity == {"host": host.capacity, "disk": 70 << 20}
    assert choosing.room_of(before, 101 << 20).capacity == {"host": host.capacity - (1 << 20)}


def test_links_are_measured_once_where_a_long_run_knows_nothing(
    seen: choosing.Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(tiers: Any, size: int, limit: float) -> Any:
        asked.append((tiers.names, size))
        return choosing._links(dataclasses.replace(seen, steps=1), tiers)

    monkeypatch.setattr("unspool.advice.measuring.measure", measured)
    monkeypatch.setattr(choosing, "_known", {})
    for _ in range(2):
        choosing.choose(dataclasses.replace(seen, step_seconds=1.0))
    assert asked == [(("host", "disk"), 1 << 20)]


def test_a_revolve_is_chosen_where_memory_is_all_there_is(seen: choosing.Seen) -> None:
    tiers = seen.before.tiers[:1]
    only: dict[str, Any] = {
        name: dataclasses.replace(getattr(seen, name), tiers=tiers, links=())
        for name in ("before", "now")
    }
    alone = dataclasses.replace(seen, **only)
    found, _, _ = choosing.choose(alone)
    assert isinstance(found, Revolve) and found.slots == 8
    # With a codec more states fit, and fewer steps are taken again.
    coded, why, _ = choosing.choose(dataclasses.replace(alone, ratio=4.0))
    assert coded.counts().recomputed_steps < found.counts().recomputed_steps / 2
    assert "stored in 284.44 KiB" in why, "counted on for the most part"


def test_states_that_were_not_saved_cost_slots_and_not_nearly_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Saves are dear, so that states 1 and 2 are passed; the best plan may have them.
    seen: list[choosing.Seen] = []
    choose = choosing.choose
    monkeypatch.setattr(first_steps, "DEAR", 0.0)
    monkeypatch.setattr(choosing, "choose", lambda one: seen.append(one) or choose(one))
    with unspool.Spool(host_memory=20 * BYTES, device="cpu") as spool:
        report = Problem(N).run(Auto(N), spool)
    assert report.forward_steps <= 2 * N
    (one,) = seen
    tiers = choosing.room_of(one.before, one.reserved)
    plan = choosing.make_plan(choosing._problem(one), tiers, choosing._links(one, tiers))
    sparse = choosing._sparse(one, plan)
    assert choosing._can_follow(sparse.schedule, one)
    assert sparse.peak_copies >= 4


def test_a_state_that_was_passed_without_a_save_is_in_no_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[choosing.Seen] = []
    choose = choosing.choose
    monkeypatch.setattr(first_steps, "DEAR", 0.0)

    # The first saves were dear, and the later ones cost nothing: every state would be kept.
    def quick(one: choosing.Seen) -> Any:
        seen.append(dataclasses.replace(one, save_seconds=1e-9, step_seconds=1e-3))
        return choose(seen[-1])

    monkeypatch.setattr(choosing, "choose", quick)
    problem = Problem(N)
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        problem.run(Auto(N), spool)
    assert seen[0].taken > 1 and seen[0].there == {0}
    assert same_gradient(problem, REFERENCE)
