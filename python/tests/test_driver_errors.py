"""The adjoint driver when something goes wrong: what it refuses, and what it leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from adjoints import Problem, reference, same_gradient
from unspool import errors
from unspool.schedules import (
    Action,
    Discard,
    End,
    Forward,
    OnlineRevolve,
    Restore,
    Reverse,
    Revolve,
    Save,
    Schedule,
    Stop,
    StoreAll,
)

N = 20


def nothing(*_: Any) -> None:
    """A function that takes what it is given."""


def notes(raised: pytest.ExceptionInfo[BaseException]) -> str:
    """The notes of an exception."""
    return "\n".join(getattr(raised.value, "__notes__", []))


def assert_usable(spool: unspool.Spool) -> None:
    """Nothing is left of the run that failed, and another one succeeds."""
    assert spool.stats().hints == 0 and -5 in spool and len(spool) == 1
    problem = Problem(N)
    problem.run(Revolve(N, 3), spool)
    assert same_gradient(problem, reference(N))


@pytest.fixture
def used(spool: unspool.Spool) -> unspool.Spool:
    """A spool in which there is something else as well."""
    spool.save(-5, np.arange(3))
    return spool


class Failing(Problem):
    """Raises in one of its functions."""

    def __init__(self, where: str, when: int, error: BaseException) -> None:
        super().__init__(N)
        self.where, self.when, self.error = where, when, error

    def fail(self, where: str, now: int) -> None:
        if where == self.where and now == self.when:
            raise self.error

    def forward(self, state: Any, start: int, stop: int) -> Stop | None:
        self.fail("forward", start)
        return super().forward(state, start, stop)

    def reverse(self, state: Any, step: int) -> None:
        self.fail("reverse", step)
        super().reverse(state, step)

    def at_end(self, state: Any) -> None:
        self.fail("at_end", N)
        super().at_end(state)

    def progress(self, event: unspool.types.Progress) -> None:
        self.fail("progress", event.reversed_steps)


PLACES = [
    ("forward", 0, r"by forward\(state, 0, \d+\); 0 of"),
    ("forward", N - 1, rf"by forward\(state, {N - 1}, {N}\), the last step, for at_end"),
    ("reverse", 7, r"by reverse\(state, 7\); 12 of 20 steps were reversed"),
    ("at_end", N, rf"by at_end\(state\) with state {N}"),
    ("progress", 3, r"by progress\(...\) after: reverse step 17"),
]


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt, StopIteration, MemoryError])
@pytest.mark.parametrize(("where", "when", "note"), PLACES)
def test_an_exception_of_a_function_goes_on_with_the_step_and_leaves_nothing_behind(
    where: str, when: int, note: str, kind: type[BaseException], used: unspool.Spool
) -> None:
    error = kind("mine")
    problem = Failing(where, when, error)
    with pytest.raises(kind) as raised:
        problem.run(Revolve(N, 3), used, part=True, progress=problem.progress)
    assert raised.value is error
    raised.match("mine")
    assert len(raised.value.__notes__) == 1
    assert_matches(note, notes(raised))
    assert_usable(used)


def assert_matches(pattern: str, text: str) -> None:
    """With the text in the message when it does not."""
    assert re.search(pattern, text), text


class TakesNoNotes(Exception):
    """An exception of a class that has other plans with notes."""

    def add_note(self, note: str) -> None:
        raise RuntimeError(note)


def test_an_exception_that_takes_no_note_leaves_nothing_behind_either(used: unspool.Spool) -> None:
    def broken(*_: object) -> None:
        raise TakesNoNotes

    with pytest.raises(TakesNoNotes):
        flat.adjoint(Revolve(N, 3), used, nothing, broken, np.zeros(2))
    assert_usable(used)


def test_an_exception_before_the_end_is_known_says_so(used: unspool.Spool) -> None:
    problem = Failing("forward", 4, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError) as raised:
        problem.run(OnlineRevolve(9), used)
    assert_matches(r"by forward\(state, 4, 5\); 0 of an unknown number of steps", notes(raised))
    assert_usable(used)


@pytest.mark.parametrize("name", ["state", "for_reverse"])
def test_an_exception_of_a_function_that_gives_arrays_is_noted(
    name: str, used: unspool.Spool
) -> None:
    u, calls = np.zeros(3), []

    def give(*_: Any) -> np.ndarray:
        calls.append(0)
        if len(calls) > 6:
            raise ZeroDivisionError
        return u

    state, part = (give, None) if name == "state" else (u, give)
    with pytest.raises(ZeroDivisionError) as raised:
        flat.adjoint(StoreAll(N), used, nothing, nothing, state, for_reverse=part)
    assert_matches("by the function `state` or `for_reverse`, to", notes(raised))
    assert_usable(used)


def test_a_full_spool_is_an_error_that_names_the_step() -> None:
    u = np.zeros(1000)
    with unspool.Spool(host_memory=8000 * 4, device="cpu") as spool:
        with pytest.raises(unspool.errors.CapacityError) as raised:
            flat.adjoint(StoreAll(9), spool, nothing, nothing, u, first=100)
        assert_matches(r"by the spool, to save state 4 \(version 104\)", notes(raised))
        assert raised.value.version == 104 and len(spool) == 0 and spool.stats().hints == 0
        flat.adjoint(Revolve(9, 3), spool, nothing, nothing, u)


def test_a_wait_that_takes_too_long_leaves_the_spool_usable(spool: unspool.Spool) -> None:
    class Slow:
        """A spool whose fourth restore fails as one of a medium that is too slow."""

        def __init__(self) -> None:
            self.restores = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(spool, name)

        def restore(self, version: int, *arrays: Any, **others: Any) -> None:
            self.restores += 1
            if self.restores == 4:
                raise unspool.errors.WaitTimeoutError("restore waited too long")
            spool.restore(version, *arrays, **others)

    spool.save(-5, np.arange(3))
    with pytest.raises(unspool.errors.WaitTimeoutError) as raised:
        Problem(N).run(Revolve(N, 3), Slow())
    assert_matches("by the spool, to restore state", notes(raised))
    assert_usable(spool)


def test_a_spool_that_is_closed_meanwhile_is_an_error_and_no_more() -> None:
    spool = unspool.Spool(host_memory="1MiB", device="cpu")
    with pytest.raises(unspool.errors.ClosedError):
        flat.adjoint(Revolve(9, 2), spool, nothing, lambda u, n: spool.close(), np.zeros(3))
    with pytest.raises(unspool.errors.ClosedError):
        flat.adjoint(Revolve(9, 2), spool, nothing, nothing, np.zeros(3))


def fail(*_: Any) -> None:
    """A function that must not be called."""
    raise AssertionError("called")


def test_versions_in_use_are_refused_before_anything_is_done(used: unspool.Spool) -> None:
    for first, schedule in ((-N - 5, Revolve(N, 3)), (-5, Revolve(N, 3)), (-9, OnlineRevolve(3))):
        with pytest.raises(
            unspool.errors.VersionExistsError, match="-5 is already saved"
        ) as raised:
            flat.adjoint(schedule, used, fail, fail, np.zeros(3), first=first)
        assert raised.value.version == -5
    for beyond in ((1 << 63) - N, -(1 << 63) - 1):
        with pytest.raises(unspool.errors.OptionError, match="64 bits"):
            flat.adjoint(Revolve(N, 3), used, fail, fail, np.zeros(3), first=beyond)
    assert_usable(used)


def test_a_version_that_another_saves_meanwhile_stays(used: unspool.Spool) -> None:
    def forward(u: np.ndarray, start: int, stop: int) -> None:
        if start == 0:
            used.save(stop, np.arange(5))
            taken.append(stop)

    taken: list[int] = []
    with pytest.raises(unspool.errors.VersionExistsError):
        flat.adjoint(Revolve(N, 3), used, forward, nothing, np.zeros(3))
    assert used.load(taken[0]).tolist() == [0, 1, 2, 3, 4]
    used.discard(taken[0])
    assert_usable(used)


class Wrong(Schedule):
    """Breaks a rule after some valid actions."""

    steps = 3
    slots = 2

    def __init__(self, *actions: Action) -> None:
        self.tail = actions

    def actions(self) -> Iterator[Action]:
        yield from (Save(0), Forward(0, 2), Reverse(2))
        yield from self.tail


WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((), "without End"),
    ((Restore(1),), r"Restore\(1\): this copy is not kept"),
    ((Forward(2, 3),), "a Reverse came before"),
    ((Restore(0), Reverse(0)), "reversed next is 1"),
    ((Restore(0), Forward(0, 2)), "goes past state 1"),
    ((End(),), "were not reversed"),
    ((Restore(0), Save(0, "disk"), Save(0, "host")), "all 2 slots are taken"),
    (("reverse",), "is not an action"),
    ((Discard(0), Restore(0)), "not kept"),
]


@pytest.mark.parametrize(("tail", "why"), WRONG, ids=str)
def test_a_wrong_action_is_refused_before_the_spool_sees_it(
    tail: tuple[Any, ...], why: str, used: unspool.Spool
) -> None:
    for part in (None, np.zeros(2)):
        with pytest.raises(unspool.errors.ScheduleError, match=why):
            flat.adjoint(
                Wrong(*tail), used, nothing, nothing, np.zeros(2), for_reverse=part, lookahead=0
            )
        assert_usable(used)


def test_a_list_is_refused_before_anything_is_done(used: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match="without End"):
        flat.adjoint([Save(0), Forward(0, 3)], used, fail, fail, np.zeros(2))


class Fickle(Schedule):
    """Says something else each time."""

    steps = 3
    slots = 2

    def __init__(self) -> None:
        self.times = 0

    def actions(self) -> Iterator[Action]:
        self.times += 1
        if self.times > 2:
            # The dry run sees that each copy is only reversed from.
            return iter(StoreAll(3))
        return iter(Revolve(3, 1))


def test_a_schedule_that_changes_its_mind_does_not_get_half_a_state(used: unspool.Spool) -> None:
    u, other = np.zeros(2), np.zeros(2)
    with pytest.raises(
        unspool.errors.ScheduleError, match="is not the one of its dry run: it advances"
    ):
        flat.adjoint(Fickle(), used, nothing, nothing, (u, other), for_reverse=u)
    assert_usable(used)


def test_hints_of_a_dry_run_that_went_another_way_are_forgotten(used: unspool.Spool) -> None:
    flat.adjoint(Fickle(), used, nothing, nothing, np.zeros(2))
    assert_usable(used)


class Spent(Schedule):
    """Gives the same iterator again."""

    steps = 3
    slots = 2

    def __init__(self) -> None:
        self.iterator = iter(StoreAll(3))

    def actions(self) -> Iterator[Action]:
        return self.iterator


class Endless(Schedule):
    """Does not know its steps and cannot be told."""

    steps = None
    slots = 1

    def actions(self) -> Iterator[Action]:
        yield Forward(0, 3)


def test_iterators_that_cannot_be_run_dry_are_refused(used: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ScheduleError, match="a new one each time"):
        flat.adjoint(Spent(), used, fail, fail, np.zeros(2))
    with pytest.raises(unspool.errors.ScheduleError, match=r"no method finish\(steps\)"):
        flat.adjoint(Endless(), used, lambda *_: Stop(2), fail, np.zeros(2))
    assert_usable(used)


STOPS: list[tuple[Schedule, Stop, type[Exception], str]] = [
    (OnlineRevolve(3), Stop(2), unspool.errors.OptionError, "can end at a state from 0 to 1"),
    (OnlineRevolve(3), Stop(-1), unspool.errors.OptionError, "can end at a state from 0 to 1"),
    (OnlineRevolve(3), Stop(1.0), errors.OptionError, r"Stop\(1.0\)"),  # type: ignore[arg-type]
    (OnlineRevolve(3), Stop(None), unspool.errors.OptionError, "Stop"),  # type: ignore[arg-type]
    (OnlineRevolve(3), Stop(0), unspool.errors.ScheduleError, "at least one step"),
    (Revolve(9, 3), Stop(2), unspool.errors.ScheduleError, "there are 9 steps.*OnlineRevolve"),
    (Revolve(1, 1), Stop(1), unspool.errors.ScheduleError, "for the last step"),
]


@pytest.mark.parametrize(("schedule", "stop", "kind", "why"), STOPS, ids=str)
def test_an_end_that_cannot_be_is_refused(
    schedule: Schedule, stop: Stop, kind: type[Exception], why: str, used: unspool.Spool
) -> None:
    with pytest.raises(kind, match=why):
        flat.adjoint(schedule, used, lambda *_: stop, fail, np.zeros(2), at_end=nothing)
    assert_usable(used)


def test_a_state_of_another_kind_is_refused(used: unspool.Spool) -> None:
    u, v = np.zeros(3), np.zeros(3)
    for state, returned, why in [
        (u, (u, v), r"returned a tuple of 2 \(ndarray, ndarray\), but the state is one ndarray"),
        ((u, v), (u,), r"a tuple of 1 \(ndarray\), but the state is a tuple of 2"),
        ({"u": u}, {"v": v}, "a mapping of 'v', but the state is a mapping of 'u'"),
        (u, {"elapsed": 3}, "a mapping of 'elapsed'"),
        (u, np.float64(0.5), "one float64, but the state is one ndarray"),
        ((u, v), (u, 17), r"a tuple of 2 \(ndarray, int\)"),
        ({"u": u}, {"u": 0.5}, "a mapping of 'u'"),
        (lambda: u, u, "`state` is a function: change its arrays in place"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=why) as raised:
            flat.adjoint(Revolve(N, 3), used, lambda *_, r=returned: r, fail, state)
        assert_matches(r"forward\(state, 0, ", notes(raised))
    assert_usable(used)


def test_arrays_that_cannot_be_restored_are_errors_that_name_the_step(used: unspool.Spool) -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    with pytest.raises(unspool.errors.ArrayError) as raised:
        flat.adjoint(Revolve(N, 3), used, nothing, nothing, fixed)
    assert_matches("to restore state", notes(raised))
    shapes = iter([3, 4, 5, 6, 7, 8, 9, 10] * 9)
    with pytest.raises(unspool.errors.ArrayError) as raised:
        flat.adjoint(Revolve(N, 3), used, nothing, nothing, lambda: np.zeros(next(shapes)))
    assert_matches("to restore state", notes(raised))
    assert_usable(used)


ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"forward": 3}, unspool.errors.OptionError, "forward=3"),
    ({"reverse": None}, unspool.errors.OptionError, "reverse=None"),
    ({"at_end": 3}, unspool.errors.OptionError, "at_end=3"),
    ({"progress": 3}, unspool.errors.OptionError, "progress=3"),
    ({"spool": None}, unspool.errors.OptionError, "that is not a Spool"),
    ({"lookahead": -1}, unspool.errors.OptionError, "lookahead=-1"),
    ({"schedule": 3}, unspool.errors.OptionError, "is not a schedule"),
    ({"state": ()}, unspool.errors.OptionError, "no array in it"),
    ({"for_reverse": []}, unspool.errors.OptionError, "no array in it"),
    ({"state": {"stream": np.zeros(2)}}, unspool.errors.OptionError, "'stream'"),
    ({"state": {0: np.zeros(2)}}, unspool.errors.OptionError, "names are strings"),
    ({"state": "text"}, unspool.errors.ArrayError, "str"),
]


@pytest.mark.parametrize(("changes", "kind", "why"), ARGUMENTS, ids=str)
def test_arguments_that_make_no_sense_are_refused(
    changes: dict[str, Any], kind: type[Exception], why: str, used: unspool.Spool
) -> None:
    given: dict[str, Any] = {
        "schedule": Revolve(N, 3),
        "spool": used,
        "forward": fail,
        "reverse": fail,
        "state": np.zeros(3),
    }
    with pytest.raises(kind, match=why):
        flat.adjoint(**{**given, **changes})
    assert_usable(used)


def test_an_interrupt_in_a_save_leaves_no_copy(
    used: unspool.Spool,
) -> None:
    class Interrupted:
        """A spool in which Ctrl-C arrives when a copy was just made."""

        def __getattr__(self, name: str) -> Any:
            return getattr(used, name)

        def save(self, version: int, *arrays: Any, **others: Any) -> None:
            used.save(version, *arrays, **others)
            if version >= 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Problem(N).run(StoreAll(N), Interrupted())
    assert_usable(used)
