"""Shots that end in any order, fail and are done again: one loop for all engines."""

import random
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import unspool

pytest.importorskip("scipy")

from unspool_studies.rtm import crew, seat
from unspool_studies.rtm.crew import counted, run_crew
from unspool_studies.rtm.errors import GpuError, MigrationError
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job, run
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.seat import Failed, Order, Seat, leave, sit, work
from unspool_studies.rtm.survey import plan

from helpers import children

SHOTS = 7


@pytest.fixture
def job(tmp_path):
    model = generated_model(61, 41, 15.0)
    survey = plan(model, shots=SHOTS, steps=220, every=4)
    return Job(model, smooth(model, 60.0), survey, 8, 1, Memory("1MiB", "1MiB", tmp_path))


class Drawn:
    """Workers of this process, which are done with their shots in a drawn order.

    `spoil` is asked for each attempt: what it returns is the result, what it raises is that of the
    engine, and for None the shot is migrated.
    """

    kind = "drawn worker"

    def __init__(self, workers, seed, spoil=lambda shot: None):
        self._workers, self._random, self._spoil = workers, random.Random(seed), spoil
        self._queue, self._told = [], 0
        self.most = self.attempts = 0

    @contextmanager
    def hire(self, order):
        seats = count()

        def tell(steps):
            self._told += steps
            return False

        self.name = order.name
        sit(order, next(seats), 1, tell)
        try:
            yield
        finally:
            leave(order.name)

    def workers(self):
        return self._workers

    def submit(self, task, name, shot, avoid):
        future = Future()
        self._queue.append((future, task, name, shot, avoid))
        self.most = max(self.most, len(self._queue))
        return future

    def steps(self):
        # Some end at once.
        for _ in range(self._random.randrange(1, 4)):
            if self._queue:
                self._end_one()
        told, self._told = self._told, 0
        return told

    def close(self):
        """Is not called."""

    def _end_one(self):
        # The first ones that were handed out are those at work.
        at = self._random.randrange(min(self._workers, len(self._queue)))
        future, task, name, shot, avoid = self._queue.pop(at)
        self.attempts += 1
        try:
            spoilt = self._spoil(shot)
            future.set_result(spoilt or task(name, shot, avoid))
        except BrokenExecutor as error:
            future.set_exception(error)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    for module in (crew, seat):
        monkeypatch.setattr(module, "REFRESH", 0.0)
    monkeypatch.setattr(seat, "PAUSE", 0.0)


class Counted(Silence):
    def __init__(self):
        self.steps, self.shots = 0, []

    def stepped(self, shot, phase, steps):
        self.steps += steps

    def finished(self, shot, seconds):
        self.shots.append(shot)


def _same(found, one):
    assert np.abs(one.migrated.image).max() > 0
    assert found.digests == one.migrated.digests
    assert found.image.tobytes() == one.migrated.image.tobytes()
    assert found.illumination.tobytes() == one.migrated.illumination.tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_image_is_that_of_one_process_for_any_number_of_workers(job, tmp_path, workers, seed):
    one, heard = run(job, Silence()), Counted()
    found = run_crew(Order(job, None, check=True), Drawn(workers, seed), heard)
    _same(found.outcome.migrated, one)
    _same(found.again, one)
    assert sorted(heard.shots) == list(range(SHOTS))
    assert workers == 1 or heard.shots != list(range(SHOTS))
    assert heard.steps == job.steps_to_do + job.steps_to_check
    assert found.outcome.stats.saves == one.stats.saves
    assert found.outcome.stats.restores == one.stats.restores
    assert found.outcome.followed.advances == one.followed.advances
    assert children(tmp_path) == []


def test_the_sum_depends_on_the_order_and_so_the_tests_above_say_something(job):
    shots = []
    run_job = Drawn(1, 0)
    with run_job.hire(Order(job, None, check=False)):
        shots = [work(run_job.name, shot, frozenset()).shot for shot in range(SHOTS)]
    forwards, backwards = (crew.Stack(job.model.shape) for _ in range(2))
    for one, other in zip(shots, reversed(shots), strict=True):
        forwards.add(one)
        backwards.add(other)
    assert forwards.migrated().image.tobytes() != backwards.migrated().image.tobytes()


def _once(*results):
    """Spoils the first attempts of shot 2, with these."""
    left = list(results)

    def spoil(shot):
        if shot != 2 or not left:
            return None
        spoilt = left.pop(0)
        if isinstance(spoilt, BrokenExecutor):
            raise spoilt
        return spoilt

    return spoil


@pytest.mark.parametrize(
    "spoilt",
    [
        [Failed("elsewhere", MemoryError(), True)],
        [Failed("elsewhere", GpuError("lost"), True), Failed("elsewhere", None, True)],
        [BrokenExecutor("killed"), BrokenExecutor("killed")],
    ],
)
def test_a_shot_that_failed_is_done_again_and_counted_once(job, tmp_path, spoilt):
    one, engine = run(job, Silence()), Drawn(2, 1, _once(*spoilt))
    found = run_crew(Order(job, None, check=False), engine, Silence())
    _same(found.outcome.migrated, one)
    assert found.outcome.stats.saves == one.stats.saves
    assert engine.attempts == SHOTS + len(spoilt)
    assert children(tmp_path) == []


@pytest.mark.parametrize(
    ("workers", "spoilt", "reason"),
    [
        (2, [Failed("one", MigrationError("no such thing"), False)], "no such thing"),
        (1, [Failed("one", GpuError("lost"), True)], "lost"),
        (2, [Failed("one", GpuError("a"), True), Failed("two", GpuError("b"), True)], "b"),
        (2, [BrokenExecutor("killed")] * 3, "shot 3 ended before it was done.*killed"),
    ],
)
def test_a_shot_that_fails_too_often_ends_the_job(job, tmp_path, workers, spoilt, reason):
    engine = Drawn(workers, 1, _once(*spoilt))
    with pytest.raises(unspool.Error, match=reason):
        run_crew(Order(job, None, check=False), engine, Silence())
    assert children(tmp_path) == []


def test_images_that_wait_for_an_earlier_shot_are_bounded(job, monkeypatch):
    monkeypatch.setattr(crew, "AHEAD", 2)
    engine = Drawn(2, 0)
    found = run_crew(Order(job, None, check=False), engine, Silence())
    assert found.outcome.migrated.digests == run(job, Silence()).migrated.digests
    assert engine.most == 4


def test_a_shot_is_handed_back_where_it_failed_and_where_there_is_no_such_job(job):
    engine = Drawn(1, 0)
    here = seat.worker()
    with engine.hire(Order(job, None, check=False)):
        assert work(engine.name, 0, frozenset({here})) == Failed(here, None, True)
    with pytest.raises(BrokenExecutor, match="no part in this job"):
        work(engine.name, 0, frozenset())


class _Stopping(Seat):
    """Is told to stop in the middle of a shot."""

    def finished(self, shot, seconds):
        self.stop()


def test_a_worker_that_is_told_to_stop_stops_and_leaves_nothing(job, tmp_path):
    told = []
    stopping = Seat(Order(job, None, False), 0, 1, lambda steps: bool(told.append(steps) or 1))
    with pytest.raises(BrokenExecutor, match="was stopped"):
        stopping.migrate(0)
    assert told[0] == job.survey.timing.every
    _Stopping(Order(job, None, False), 0, 1, lambda steps: False).migrate(0)
    assert children(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "reason", "elsewhere"),
    [
        (
            {"disk": "8KiB", "device_memory": None, "host_memory": "8KiB"},
            "the largest tier holds",
            False,
        ),
        ({"directory": "nowhere"}, "is not a directory on", False),
    ],
)
def test_what_a_worker_cannot_do_is_told_by_it(job, tmp_path, change, reason, elsewhere):
    if "directory" in change:
        change = {"directory": tmp_path / "nowhere"}
    broken = replace(job, memory=replace(job.memory, **change))
    engine = Drawn(1, 0)
    with engine.hire(Order(broken, None, check=False)):
        failed = work(engine.name, 0, frozenset())
    assert reason in str(failed.error)
    assert failed.elsewhere is elsewhere


def test_a_mistake_in_the_program_is_told_with_where_it_happened(job):
    engine = Drawn(1, 0)
    with engine.hire(Order(replace(job, layer="wide"), None, check=False)):
        failed = work(engine.name, 0, frozenset())
    assert isinstance(failed.error, seat.CrewError)
    assert "Traceback" in str(failed.error)
    assert failed.worker in str(failed.error)


def test_one_spool_migrates_shots_in_any_order_and_again(job):
    one = run(job, Silence())
    engine = Drawn(1, 0)
    with engine.hire(Order(job, None, check=False)):
        found = [work(engine.name, shot, frozenset()) for shot in (5, 0, 0, 5, 3)]
    assert [one.shot.number for one in found] == [5, 0, 0, 5, 3]
    assert len({one.spool for one in found}) == 1
    for each in found:
        assert each.shot.digest == one.migrated.digests[each.shot.number]


def test_workers_are_counted_in_words():
    assert [counted(1, "process"), counted(2, "process")] == ["1 process", "2 processes"]
    assert [counted(1, "MPI rank"), counted(3, "MPI rank")] == ["1 MPI rank", "3 MPI ranks"]
