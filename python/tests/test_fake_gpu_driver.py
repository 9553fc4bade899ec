"""The adjoint driver with arrays on a GPU, on the driver that `UNSPOOL_CUDA_DRIVER` names."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool.schedules import (
    Auto,
    MultiLevel,
    OnlineRevolve,
    Revolve,
    Schedule,
    Stop,
    StoreAll,
    ZCut,
)

from fake_gpu import LEGACY, CaiArray, DlpackArray, Driver

pytestmark = pytest.mark.fake_gpu

N = 30
BYTES = 4096
SCHEDULES = [
    StoreAll(N),
    Revolve(N, 3),
    ZCut(N, length=6),
    OnlineRevolve(4),
    MultiLevel(N, device=2, host=3, write_seconds={"host": 0.5}),
]


class Problem:
    """State n is an array of bytes n; what reversing a step reads is copied to a log, in the order
    of the stream and at the device's time."""

    def __init__(self, driver: Driver, stream: int, make: type = CaiArray) -> None:
        self.driver, self.stream = driver, stream
        self.array = make(driver, np.zeros(BYTES, np.uint8), stream)
        self.log = CaiArray(driver, np.full((N + 1, 8), 99, np.uint8), stream)

    def forward(self, state: Any, start: int, stop: int) -> Stop | None:
        """Only enqueues."""
        end = min(stop, N)
        self.driver.fill(self.array.block, end, BYTES, self.stream)
        return Stop(end) if self.unknown and end == N else None

    def note(self, row: int) -> None:
        """Copies the first bytes of the state to the log; only enqueues."""
        target, source = self.log.block + 8 * row, self.array.block
        handle = ctypes.c_void_p(self.stream)
        places = ctypes.c_uint64(target), ctypes.c_uint64(source)
        self.driver.call("cuMemcpyDtoDAsync_v2", *places, ctypes.c_size_t(8), handle)

    def run(self, schedule: Schedule, spool: unspool.Spool, **options: Any) -> Any:
        """Drives it."""
        self.unknown = schedule.steps is None
        return flat.adjoint(
            schedule,
            spool,
            self.forward,
            lambda state, step: self.note(step),
            self.array,
            at_end=lambda state: self.note(N),
            **options,
        )

    def assert_right(self) -> None:
        """Every step was reversed at its state."""
        self.driver.synchronize()
        expected = np.repeat(np.arange(N + 1, dtype=np.uint8)[:, None], 8, axis=1)
        assert (self.log.numpy() == expected).all()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("explicit", [False, True])
def test_with_room_nothing_waits_for_the_device(
    schedule: Schedule, explicit: bool, driver: Driver
) -> None:
    with unspool.Spool(
        device_memory="8MiB", device="cuda", debug=unspool.Debug(check_order=True)
    ) as spool:
        stream = driver.stream()
        problem = Problem(driver, stream)
        if explicit:
            # The array names a stream on which its work is not.
            problem.array.stream = LEGACY
        driver.control("hold")
        report = problem.run(schedule, spool, stream=stream if explicit else None)
        assert (problem.log.numpy() == 99).all()
        driver.control("release")
        problem.assert_right()
        assert report.save_stall_seconds == report.restore_stall_seconds == 0
        assert len(spool) == 0 and spool.stats().hinted_restores == report.restores


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("make", [CaiArray, DlpackArray])
def test_with_little_room_states_go_to_the_host_and_come_back(
    schedule: Schedule, make: type, driver: Driver
) -> None:
    with unspool.Spool(
        device_memory=3 * BYTES,
        host_memory="1MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        problem = Problem(driver, driver.stream(), make)
        report = problem.run(schedule, spool)
        problem.assert_right()
        assert report.restores == spool.stats().hinted_restores
        assert report.tiers["device"] <= 3 * BYTES and len(spool) == 0


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("explicit", [False, True])
def test_an_adjoint_of_a_gpu_goes_on_where_it_was_interrupted(
    schedule: Schedule, explicit: bool, driver: Driver, tmp_path: Path
) -> None:
    left = limit = 7

    def progress(event: unspool.types.Progress) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise ZeroDivisionError

    with unspool.Spool(
        device_memory=3 * BYTES,
        host_memory="1MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        stream = driver.stream()
        problem = Problem(driver, stream)
        if explicit:
            problem.array.stream = problem.log.stream = LEGACY
        options = {"resume": tmp_path / "run", "adjoint_state": {"log": problem.log}, "every": 4}
        given = stream if explicit else None
        while True:
            with contextlib.suppress(ZeroDivisionError):
                problem.run(schedule, spool, stream=given, progress=progress, **options)
                break
            # What another process begins with.
            driver.fill(problem.array.block, 0, BYTES, stream)
            driver.fill(problem.log.block, 99, (N + 1) * 8, stream)
            left = limit = limit + 1
        problem.assert_right()
        assert len(spool) == 0 and not (tmp_path / "run").exists()


def test_an_exception_leaves_the_spool_of_a_gpu_usable(driver: Driver) -> None:
    with unspool.Spool(
        device_memory=3 * BYTES,
        host_memory="1MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        problem = Problem(driver, driver.stream())

        def progress(event: unspool.types.Progress) -> None:
            if event.reversed_steps == 12:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as raised:
            problem.run(StoreAll(N), spool, progress=progress)
        assert "12 of 30 steps were reversed" in raised.value.__notes__[0]
        assert len(spool) == 0 and spool.stats().hints == 0
        driver.fill(problem.array.block, 0, BYTES, problem.stream)
        problem.run(Revolve(N, 3), spool)
        problem.assert_right()


@pytest.mark.parametrize("room", [3, 40])
def test_a_schedule_is_chosen_in_the_order_of_the_stream(room: int, driver: Driver) -> None:
    tiers = {"device_memory": room * BYTES, "host_memory": "8MiB"}
    with unspool.Spool(**tiers, device="cuda", debug=unspool.Debug(check_order=True)) as spool:
        problem = Problem(driver, driver.stream())
        report = problem.run(Auto(N), spool)
        problem.assert_right()
        assert len(spool) == 0 and report.choice.schedule.steps == N
        assert report.forward_steps == report.choice.schedule.counts().advances + 1
