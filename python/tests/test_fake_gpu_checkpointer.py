"""`unspool.Checkpointer` with arrays on a GPU, on the driver that `UNSPOOL_CUDA_DRIVER` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool._restart.core import RestartCore

from fake_gpu import CaiArray, Driver
from helpers import same_bits

pytestmark = pytest.mark.fake_gpu


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    tiers = {"device_memory": "8MiB", "host_memory": "8MiB", "device": "cuda"}
    return flat.checkpointer(path, **{"every": 1, "signals": (), **tiers, **options})


def numbers() -> np.ndarray:
    return np.arange(4800, dtype="f4").reshape(60, 80)


@pytest.mark.parametrize("increments", [False, True])
@pytest.mark.parametrize("codec", [None, "lossless"])
def test_a_save_returns_when_the_copy_is_enqueued(
    driver: Driver, tmp_path: Path, codec: str | None, increments: bool
) -> None:
    with opened(tmp_path / "run", codec=codec, increments=increments) as checkpoints:
        # What the codec needs is made with the first save.
        checkpoints.save(1, u=CaiArray(driver, numbers()))
        checkpoints.flush()
        array = CaiArray(driver, numbers() + 1)
        driver.control("hold")
        checkpoints.save(2, u=array)
        assert not checkpoints.spool.durable(2), "nothing has run on the GPU yet"
        driver.control("release")
        driver.synchronize()
        driver.write(array.block, np.zeros(array.count, np.uint8))
        checkpoints.flush()
        assert checkpoints.latest() == 2
    again = CaiArray(driver, np.zeros((60, 80), "f4"))
    with opened(tmp_path / "run", codec=codec) as checkpoints:
        assert checkpoints.restore(u=again) == 2
        driver.synchronize()
    assert same_bits(again.numpy(), numbers() + 1)


def test_arrays_of_a_gpu_are_stored_as_increments_and_come_back_there(
    driver: Driver, tmp_path: Path
) -> None:
    def state(step: int) -> np.ndarray:
        u = np.arange(100_000, dtype="f4").reshape(100, 1000)
        u[step] = -step
        return u

    with opened(tmp_path / "run", increments=True, keep=9) as checkpoints:
        for step in range(1, 5):
            checkpoints.save(step, u=CaiArray(driver, state(step)), rate=step)
            checkpoints.flush()
    found, _ = RestartCore.listed(tmp_path / "run")
    assert [one["increment_to"] for one in found] == [[], [1], [2], [3]]
    again = CaiArray(driver, np.zeros((100, 1000), "f4"))
    with opened(tmp_path / "run", increments=True) as checkpoints:
        assert checkpoints.restore(u=again) == 4
        driver.synchronize()
    assert same_bits(again.numpy(), state(4))


def test_only_what_has_changed_leaves_the_gpu(driver: Driver, tmp_path: Path) -> None:
    u = np.arange(500_000, dtype="f4")
    # Room for a little more than two.
    with opened(tmp_path / "run", increments=True, keep=9, device_memory="4100KiB") as checkpoints:
        for step in range(1, 5):
            u[step * 40_000] = -step
            array = CaiArray(driver, u)
            before = driver.control("count", b"bytes_to_host")
            checkpoints.save(step, u=array, rate=step)
            checkpoints.flush()
            came = driver.control("count", b"bytes_to_host") - before
            assert came == u.nbytes if step == 1 else came < 2 << 16
        assert checkpoints._core.hashed_on_gpu == 3
        again = CaiArray(driver, np.zeros_like(u))
        assert checkpoints.restore(u=again) == 4
        driver.synchronize()
    assert same_bits(again.numpy(), u)


def test_what_the_device_tier_has_no_room_for_is_compared_in_main_memory(
    driver: Driver, tmp_path: Path
) -> None:
    u = np.arange(500_000, dtype="f4")
    with opened(tmp_path / "run", increments=True, keep=9, device_memory="1MiB") as checkpoints:
        for step in range(1, 4):
            u[step] = -step
            checkpoints.save(step, u=CaiArray(driver, u))
            checkpoints.flush()
        assert checkpoints._core.hashed_on_gpu == 0
        again = CaiArray(driver, np.zeros_like(u))
        assert checkpoints.restore(u=again) == 3
        driver.synchronize()
    assert same_bits(again.numpy(), u)


@pytest.mark.parametrize("increments", [False, True])
def test_a_device_that_hangs_ends_no_close_and_costs_no_checkpoint_that_counts(
    driver: Driver, tmp_path: Path, increments: bool
) -> None:
    checkpoints = opened(tmp_path / "run", on_error="warn", increments=increments)
    checkpoints.save(1, u=numbers())
    checkpoints.flush()
    array = CaiArray(driver, numbers())
    driver.control("hold")
    checkpoints.save(2, u=array)
    with pytest.warns(RuntimeWarning, match="still waits for checkpoints to become durable"):
        checkpoints.close(timeout=0.2)
    (part,) = unspool.Checkpointer.parts(tmp_path / "run")
    assert part.step == 1 and same_bits(part["u"], numbers())
    driver.control("release")
    driver.synchronize()
