"""Checkpoints of a GPU that are encoded together, on the driver in plain memory."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, Spool, accumulate
from unspool.accumulate import Batched, Profile, Recorded
from unspool.advice import Rate
from unspool.errors import OptionError

from codec_arrays import wave
from fake_gpu import CaiArray, Driver
from helpers import same_bits

pytestmark = pytest.mark.fake_gpu

BOUND = Bound(range=1e-3)
SHAPE = (40, 50)
BYTES = 8000


def opened(together: Any = None, profile: Path | None = None, **more: Any) -> Any:
    options = {
        "device_memory": "4MiB",
        "host_memory": "4MiB",
        "device": "cuda",
        "debug": unspool.Debug(check_order=True),
    }
    spool = Spool(**options, **({"codec": BOUND} | more))
    return Batched(spool, together, profile=profile) if together or profile else spool


def save(spool: Spool, driver: Driver, versions: range, **more: Any) -> None:
    for version in versions:
        spool.save(version, CaiArray(driver, wave(SHAPE, "float32", version)), **more)


def restored(spool: Spool, driver: Driver, version: int) -> np.ndarray:
    target = CaiArray(driver, np.zeros(SHAPE, np.float32))
    spool.restore(version, target)
    driver.synchronize()
    return target.numpy().reshape(SHAPE)


@pytest.mark.parametrize(("given", "most"), [(8, 8), ("64KB", 8), ((5, "1MiB"), 5)])
def test_checkpoints_of_one_launch_are_those_of_launches_of_their_own(
    driver: Driver, given: Any, most: int
) -> None:
    with opened() as alone, opened(given) as together:
        for spool in (alone, together):
            save(spool, driver, range(40))
        for version in range(40):
            assert together.achieved(version) == alone.achieved(version)
            found = restored(together, driver, version)
            assert same_bits(found, restored(alone, driver, version))
        codec = together.stats().codec
        assert codec.launched == 40 and 1 < codec.most_together <= most
        assert alone.stats().codec.launches == 40 > codec.launches


def test_a_codec_of_its_own_and_raw_checkpoints_mix(driver: Driver) -> None:
    with opened(8) as spool:
        save(spool, driver, range(3))
        save(spool, driver, range(3, 5), codec="raw")
        save(spool, driver, range(5, 7), codec="lossless")
        spool.save(7, np.arange(50.0))
        spool.discard(1)
        assert spool.versions() == [0, 2, 3, 4, 5, 6, 7]
        for version in range(3, 7):
            exact = wave(SHAPE, "float32", version)
            assert same_bits(restored(spool, driver, version), exact)
        assert np.array_equal(spool.load(7), np.arange(50.0))


def recorded(path: Path, intervals: float, codec: str) -> None:
    """A profile of twelve checkpoints that follow each other at once, or slowly."""
    rows = tuple(Recorded(intervals, BYTES, BYTES // 10, 0, 1e-6) for _ in range(12))
    layouts = ((("0", "float32", SHAPE),),)
    Profile(rows, layouts, codec, "cuda:0", 4 << 20, Rate(5e8)).save_to(path)


def test_a_plan_is_carried_out_with_all_its_decisions(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    recorded(path, 1e-6, repr(BOUND))
    known = Profile.load_from(path)
    found = accumulate.plan(known, codec=accumulate.TWINE, cache="4MiB", most_together=4096)
    counts = found.best.counts
    assert counts["hold"] > 0 and counts["together"] > 0, found.best.decisions
    with warnings.catch_warnings():
        # How fast this machine is at the moment does not matter here.
        warnings.filterwarnings("ignore", "The plan .*of computing", accumulate.PlanDroppedWarning)
        with opened(profile=path) as spool:
            save(spool, driver, range(12))
            kept = [spool.achieved(version)["0"].codec for version in range(12)]
            assert kept == ["raw" if one == "raw" else "twine" for one in found.best.decisions]
            codec = spool.stats().codec
            assert codec.launched == 12 - counts["raw"] and codec.most_together > 1
            for version in range(12):
                error = np.abs(restored(spool, driver, version) - wave(SHAPE, "float32", version))
                assert error.max() <= 1e-3 * np.ptp(wave(SHAPE, "float32", version))


def test_a_plan_holds_checkpoints_for_as_long_as_its_run_takes(
    driver: Driver, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    recorded(path, 1e-6, repr(BOUND))
    found = accumulate.plan(
        Profile.load_from(path), codec=accumulate.TWINE, cache="4MiB", most_together=4096
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The plan .*of computing", accumulate.PlanDroppedWarning)
        with opened(profile=path) as spool:
            for version in range(12):
                # Without a plan a checkpoint waits no longer than 20 ms.
                time.sleep(0.03)
                save(spool, driver, [version])
            codec = spool.stats().codec
    assert codec.launches == sum(one in ("alone", "together") for one in found.best.decisions)


def test_a_plan_for_main_memory_holds_nothing(tmp_path: Path, driver: Driver) -> None:
    path = tmp_path / "run.json"
    recorded(path, 1e-6, repr(BOUND))
    options = {"host_memory": "4MiB", "device": "cuda", "codec": BOUND}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", accumulate.PlanDroppedWarning)
        with Batched(Spool(**options), profile=path) as spool:
            save(spool, driver, range(12))
            assert spool.stats().codec.most_together <= 1
            assert spool.versions() == list(range(12))


def test_without_a_plan_a_profile_holds_nothing(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with opened(profile=path) as spool:
        save(spool, driver, range(12))
        assert spool.stats().codec.most_together == 1
    assert len(Profile.load_from(path).checkpoints) == 12


@pytest.mark.parametrize("given", [0, -1, 4097, 1.5, "many", (8,), (0, "1MiB"), [8], True])
def test_what_makes_no_sense_is_refused(given: Any) -> None:
    with (
        Spool(host_memory="1MiB", device="cpu", codec="lossless") as spool,
        pytest.raises(OptionError, match="together"),
    ):
        Batched(spool, given)


def test_in_main_memory_it_changes_nothing() -> None:
    values = wave(SHAPE, "float32", 1)
    with Batched(Spool(host_memory="1MiB", device="cpu", codec="lossless"), 8) as spool:
        spool.save(0, values)
        assert same_bits(spool.load(0), values)
