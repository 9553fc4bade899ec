"""The Revolver in place of pyrevolve's: what it calls, what it keeps, what it refuses."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import unspool
from hypothesis import strategies
from unspool import schedules
from unspool.interop.pyrevolve import (
    Checkpoint,
    DiskRevolver,
    MemoryRevolver,
    Operator,
    Profiler,
    Revolver,
    SingleLevelRevolver,
    adjust,
)

from pyrevolve_problems import Problem


def revolver(problem: Problem, copies: int | None = 3, **options: Any) -> SingleLevelRevolver:
    return Revolver(problem, problem.forward, problem.reverse, copies, problem.steps, **options)


def gradient(problem: Problem, made: SingleLevelRevolver) -> list[int]:
    """Both passes from the start; the steps in the order in which they were reversed."""
    problem.start()
    problem.adjoint.clear()
    made.apply_forward()
    made.apply_reverse()
    return problem.adjoint


SCHEDULES = {
    "revolve": schedules.Revolve,
    "uniform": schedules.Uniform,
    "zcut": lambda steps, copies: schedules.ZCut(steps, length=copies),
    "store all": lambda steps, copies: schedules.StoreAll(steps),
    "listed": lambda steps, copies: list(schedules.Revolve(steps, copies)),
}


@hypothesis.given(
    steps=strategies.integers(1, 90),
    copies=strategies.integers(1, 30),
    kind=strategies.sampled_from(sorted(SCHEDULES)),
    room=strategies.integers(1, 6),
)
def test_any_schedule_on_a_small_spool_reverses_every_step(
    tmp_path_factory: pytest.TempPathFactory, steps: int, copies: int, kind: str, room: int
) -> None:
    problem = Problem(steps)
    place = tmp_path_factory.mktemp("spool")
    with unspool.Spool(host_memory=room * 8192, disk=place) as spool:
        schedule = SCHEDULES[kind](steps, copies)
        made = revolver(problem, schedule=schedule, spool=spool, first=-5)
        assert gradient(problem, made) == list(reversed(range(steps)))
        assert spool.versions() == []
        stats = spool.stats()
        assert stats.hints == 0 and stats.hinted_restores == stats.restores


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 57])
@pytest.mark.parametrize("copies", [1, 2, 5, 100, None])
def test_every_step_is_reversed_once_with_its_state(steps: int, copies: int | None) -> None:
    problem = Problem(steps)
    with revolver(problem, copies) as made:
        assert gradient(problem, made) == list(reversed(range(steps)))
        assert made.storage_ckps() == []
        assert made.spool is None or len(made.spool) == 0


def test_the_forward_pass_ends_after_the_last_step_with_copies_kept() -> None:
    problem = Problem(10)
    with revolver(problem, 3) as made:
        made.apply_forward()
        assert problem.calls == [
            ("save", 0),
            ("forward", 0, 4),
            ("save", 4),
            ("forward", 4, 7),
            ("save", 7),
            ("forward", 7, 9),
            ("forward", 9, 10),
        ]
        assert made.storage_ckps() == [0, 4, 7]
        made.apply_reverse()
    assert problem.calls[7:11] == [
        ("reverse", 9, 10),
        ("load", 7),
        ("forward", 7, 8),
        ("forward", 8, 9),
    ]


def test_a_spool_of_the_user_holds_the_copies_and_stays_open(spool: unspool.Spool) -> None:
    problem = Problem(20)
    spool.save(99, np.ones(3))
    made = revolver(problem, 4, spool=spool, first=100)
    problem.start()
    made.apply_forward()
    assert made.spool is spool
    assert spool.versions() == [99, *(100 + step for step in made.storage_ckps())]
    made.apply_reverse()
    made.close()
    assert not spool.closed
    assert spool.versions() == [99]
    assert spool.stats().hints == 0


def test_restores_are_announced_and_none_stalls_when_all_fits(spool: unspool.Spool) -> None:
    problem = Problem(60)
    assert gradient(problem, revolver(problem, 5, spool=spool)) == list(reversed(range(60)))
    loads = sum(call[0] == "load" for call in problem.calls)
    stats = spool.stats()
    assert stats.restores == loads
    assert stats.hinted_restores == loads


def test_copies_that_spill_to_disk_come_back(tmp_path: Path) -> None:
    problem = Problem(200)
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        assert gradient(problem, revolver(problem, 40, spool=spool)) == list(reversed(range(200)))
        assert spool.versions() == []


@pytest.mark.parametrize("singlefile", [True, False])
def test_a_disk_revolver_makes_its_directory_and_leaves_it_empty(
    tmp_path: Path, singlefile: bool
) -> None:
    problem = Problem(40)
    place = tmp_path / "some" / "where"
    made = DiskRevolver(
        problem,
        problem.forward,
        problem.reverse,
        7,
        40,
        filedir=str(place),
        singlefile=singlefile,
    )
    assert gradient(problem, made) == list(reversed(range(40)))
    assert any(place.iterdir())
    made.close()
    assert list(place.iterdir()) == []


def test_a_revolver_may_be_used_again() -> None:
    problem = Problem(12)
    with MemoryRevolver(problem, problem.forward, problem.reverse, 3, 12) as made:
        for _ in range(3):
            assert gradient(problem, made) == list(reversed(range(12)))


def test_the_calls_alternate() -> None:
    problem = Problem(5)
    made = revolver(problem)
    with pytest.raises(
        unspool.errors.OptionError, match=r"apply_reverse\(\).*call apply_forward\(\) first"
    ):
        made.apply_reverse()
    made.apply_forward()
    with pytest.raises(
        unspool.errors.OptionError, match=r"apply_forward\(\).*call apply_reverse\(\)"
    ):
        made.apply_forward()
    made.apply_reverse()
    with pytest.raises(unspool.errors.OptionError, match="call apply_forward"):
        made.apply_reverse()
    assert problem.adjoint == [4, 3, 2, 1, 0]


def test_an_operator_cannot_call_its_revolver() -> None:
    problem = Problem(5)
    made = revolver(problem)
    problem.forward.work = lambda start, stop: made.apply_forward()
    with pytest.raises(unspool.errors.OptionError, match="an operator must not"):
        made.apply_forward()


@pytest.mark.parametrize("failing", ["forward", "reverse"])
def test_an_exception_names_the_steps_and_leaves_nothing_behind(
    spool: unspool.Spool, failing: str
) -> None:
    problem = Problem(30)
    operator = getattr(problem, failing)
    work, made = operator.work, revolver(problem, 4, spool=spool)

    def fail(start: int, stop: int) -> None:
        if stop == 20:
            raise ZeroDivisionError("mine")
        work(start, stop)

    operator.work = fail
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        gradient(problem, made)
    call = {"forward": "fwd_operator.apply", "reverse": "rev_operator.apply"}[failing]
    assert any(call in note and "t_end=20" in note for note in caught.value.__notes__)
    assert spool.versions() == []
    assert spool.stats().hints == 0
    operator.work = work
    assert gradient(problem, made) == list(reversed(range(30)))


def test_the_spool_goes_with_the_revolver() -> None:
    problem = Problem(10)
    made = revolver(problem)
    made.apply_forward()
    own, gone = made.spool, weakref.ref(made)
    assert own is not None and not own.closed
    del made
    gc.collect()
    assert gone() is None
    assert own.closed


def test_a_closed_revolver_says_so() -> None:
    problem = Problem(10)
    made = revolver(problem)
    made.close()
    made.close()
    with pytest.raises(unspool.errors.OptionError, match="closed"):
        made.apply_forward()


def test_arrays_are_asked_for_anew_so_that_buffers_may_swap() -> None:
    class Swapping(Checkpoint):
        dtype, size = np.float64, 4

        def __init__(self) -> None:
            self.buffers = [np.zeros(4), np.full(4, np.nan)]

        def get_data(self, timestep: int) -> list[np.ndarray]:
            return [self.buffers[timestep % 2]]

        get_data_location = get_data

    state, seen = Swapping(), []

    class Add(Operator):
        def apply(self, *, t_start: int, t_end: int) -> None:
            for step in range(t_start, t_end):
                np.add(state.buffers[step % 2], 1, out=state.buffers[(step + 1) % 2])

    class Look(Operator):
        def apply(self, *, t_start: int, t_end: int) -> None:
            seen.append(state.buffers[t_start % 2][0])

    with Revolver(state, Add(), Look(), 3, 17) as made:
        made.apply_forward()
        made.apply_reverse()
    assert state.nbytes == 32
    assert seen == [float(n) for n in reversed(range(17))]


def test_an_array_that_stands_alone_is_one_array(spool: unspool.Spool) -> None:
    problem = Problem(10, np.float64)
    both = np.concatenate([problem.values.ravel(), problem.counts])
    problem.values, problem.counts = both[:6].reshape(2, 3), both[6:]
    problem.get_data = problem.get_data_location = lambda timestep: both
    made = revolver(problem, 3, spool=spool)
    made.apply_forward()
    assert [region.shape for region in spool.regions(0)] == [(10,)]
    made.apply_reverse()
    assert problem.adjoint == list(reversed(range(10)))


def test_another_schedule_can_be_given() -> None:
    problem = Problem(9)
    with revolver(problem, schedule=schedules.StoreAll(9)) as made:
        assert gradient(problem, made) == list(reversed(range(9)))
    assert (
        sum(stop - start for name, start, stop in map(_padded, problem.calls) if name == "forward")
        == 17
    )


def test_a_schedule_for_another_number_of_steps_is_refused() -> None:
    with pytest.raises(unspool.errors.OptionError, match="9 steps, and n_timesteps is 10"):
        revolver(Problem(10), schedule=schedules.StoreAll(9))
    with pytest.raises(
        unspool.errors.OptionError, match="unknown number of steps, and n_timesteps is 10"
    ):
        revolver(Problem(10), schedule=schedules.OnlineRevolve(3))


def test_compression_is_refused_with_what_to_do() -> None:
    problem = Problem(5)
    for params in (None, {"scheme": None}):
        assert revolver(problem, compression_params=params).compression_params is params
    for params in ({"scheme": "blosc"}, {"scheme": "custom", "compressor": len}, "blosc"):
        with pytest.raises(
            unspool.errors.OptionError, match=r"(?s)scheme.*Leave compression_params out"
        ):
            revolver(problem, compression_params=params)


@pytest.mark.parametrize(
    "copies, steps", [(0, 5), (-1, 5), (2.5, 5), ("3", 5), (3, 0), (3, None), (3, 1.5)]
)
def test_numbers_that_make_no_sense_are_refused(copies: Any, steps: Any) -> None:
    problem = Problem(5)
    with pytest.raises(unspool.errors.OptionError, match=r"n_checkpoints|n_timesteps"):
        Revolver(problem, problem.forward, problem.reverse, copies, steps)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"spool": "/scratch"}, "that is not a Spool"),
        ({"spool": unspool.Spool}, "that is not a Spool"),
        ({"first": "one"}, "first='one': give a whole number"),
        ({"first": 1 << 63}, "first=9223372036854775808: versions are integers of 64 bits"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match=why):
        revolver(Problem(10), **options)


@pytest.mark.parametrize("given", [None, 3])
def test_a_state_that_is_no_list_of_arrays_is_an_error_that_names_the_step(given: Any) -> None:
    problem = Problem(10)
    problem.get_data = lambda timestep: given  # type: ignore[method-assign]
    with pytest.raises(unspool.errors.OptionError, match="give a list of arrays") as caught:
        gradient(problem, revolver(problem))
    assert caught.value.__notes__[0] == "saving the state before step 0"


def test_too_small_a_spool_is_an_error_that_names_the_step() -> None:
    problem = Problem(30)
    with (
        unspool.Spool(host_memory="1KiB", timeout=5) as spool,
        pytest.raises(unspool.errors.CapacityError) as caught,
    ):
        gradient(problem, revolver(problem, 20, spool=spool))
    assert any("saving the state before step" in note for note in caught.value.__notes__)


def test_the_profiler_counts_what_was_done() -> None:
    problem = Problem(10)
    mine = Profiler()
    with revolver(problem, 3, profiler=mine) as made:
        gradient(problem, made)
    names = [call[0] for call in problem.calls]
    counts = mine.counts
    assert counts["storage"] == {"copy_save": names.count("save"), "copy_load": names.count("load")}
    assert counts["forward"] == {"advance": 3, "takeshot": 3, "lastfw": 1}
    assert counts["reverse"]["reverse"] == 10
    assert mine.get_dict()["forward_advance_counts"] == 3
    assert all(elapsed >= 0 for elapsed in mine.timings["reverse"].values())
    assert "takeshot" in mine.summary()


def test_few_copies_are_chosen_when_none_are_given() -> None:
    assert [adjust(steps) for steps in (1, 2, 3, 6, 7, 70, 71, 3001)] == [1, 1, 2, 2, 3, 4, 5, 7]
    assert revolver(Problem(70), None).n_checkpoints == 4


def _padded(call: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*call, 0)[:3]
