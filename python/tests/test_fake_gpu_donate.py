"""Arrays that are given away, on the driver that `UNSPOOL_CUDA_DRIVER` names."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import unspool

from fake_gpu import CaiArray, DlpackArray, Driver

pytestmark = pytest.mark.fake_gpu

ITEMS = 1 << 14


@pytest.fixture
def spool(driver: Driver) -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="256KiB",
        host_memory="8MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


@pytest.fixture
def lone(driver: Driver) -> Iterator[unspool.Spool]:
    """A spool from which nothing is flushed: a flush that is under way keeps an array for a while
    after it was discarded."""
    with unspool.Spool(
        device_memory="256KiB", device="cuda", debug=unspool.Debug(check_order=True)
    ) as opened:
        yield opened


def numbers(version: int) -> np.ndarray:
    return np.arange(ITEMS, dtype="f4") + version


def given(spool: unspool.Spool, driver: Driver, version: int) -> weakref.ref[CaiArray]:
    """Gives an array away: what is left of it here."""
    array = CaiArray(driver, numbers(version))
    spool.save(version, array, donate=True)
    return weakref.ref(array)


def alive(arrays: list[weakref.ref[CaiArray]]) -> int:
    gc.collect()
    return sum(array() is not None for array in arrays)


def test_a_given_array_is_not_copied_and_is_let_go_of_when_it_is_discarded(
    lone: unspool.Spool, driver: Driver
) -> None:
    array = CaiArray(driver, numbers(0))
    before = driver.control("calls", b"cuMemcpyDtoDAsync")
    lone.save(0, array, donate=True)
    assert driver.control("calls", b"cuMemcpyDtoDAsync") == before
    kept = [weakref.ref(array)]
    del array
    assert alive(kept) == 1 and lone.stats().tiers[0].used == 4 * ITEMS
    assert (lone.load(0) == numbers(0)).all()
    lone.discard(0)
    assert alive(kept) == 0 and lone.stats().tiers[0].used == 0


def test_the_device_tier_holds_no_more_than_its_size_of_given_arrays(
    spool: unspool.Spool, driver: Driver
) -> None:
    kept = []
    for version in range(20):
        kept.append(given(spool, driver, version))
        assert alive(kept) <= 4
    for version in reversed(range(20)):
        target = CaiArray(driver, np.zeros(ITEMS, "f4"))
        spool.restore(version, target)
        driver.synchronize()
        assert (target.numpy() == numbers(version)).all()


def test_the_work_before_the_call_is_part_of_what_is_given(
    spool: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    array = CaiArray(driver, np.zeros(ITEMS, "f4"), stream)
    driver.control("hold_stream", ctypes.c_uint64(stream))
    driver.fill(array.block, 7, array.count, stream)
    spool.save(0, array, donate=True)
    driver.control("release")
    assert set(spool.load(0).tobytes()) == {7}


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_spool_that_ends_lets_go_of_what_it_was_given(driver: Driver, end: str) -> None:
    spool = unspool.Spool(device_memory="256KiB", device="cuda")
    kept = [given(spool, driver, version) for version in range(3)]
    assert alive(kept) == 3
    if end == "close":
        spool.close()
    else:
        with pytest.warns(ResourceWarning):
            del spool
            gc.collect()
    assert alive(kept) == 0


def test_other_arrays_are_copied_and_not_kept(spool: unspool.Spool, driver: Driver) -> None:
    strided = CaiArray(driver, numbers(1).reshape(128, 128)[:, ::2])
    coded, one, two = (CaiArray(driver, numbers(version)) for version in (2, 3, 4))
    spool.save(0, numbers(0), donate=True)
    spool.save(1, strided, donate=True)
    spool.save(2, coded, donate=True, codec="lossless")
    spool.save(3, one, two, donate=True)
    kept = [weakref.ref(each) for each in (strided, coded, one, two)]
    del strided, coded, one, two
    assert alive(kept) == 0
    assert (spool.load(0) == numbers(0)).all()
    assert (spool.load(1) == numbers(1).reshape(128, 128)[:, ::2]).all()
    assert (spool.load(2) == numbers(2)).all()
    assert (spool.load(3)[1] == numbers(4)).all()


def test_an_array_whose_stream_is_not_known_is_given_too(
    lone: unspool.Spool, driver: Driver
) -> None:
    array = DlpackArray(driver, numbers(0))
    lone.save(0, array, donate=True)
    exporter = array.exporter
    assert exporter.deleted == 0
    assert (lone.load(0) == numbers(0)).all()
    lone.discard(0)
    driver.synchronize()
    lone.save(1, numbers(1))
    assert exporter.deleted == 1


def test_memory_that_a_spool_lends_is_copied(spool: unspool.Spool, driver: Driver) -> None:
    with spool.writing(0, ITEMS, "float32") as buffer:
        driver.write(buffer.ptr, numbers(0))
        spool.save(1, buffer, donate=True)
    spool.discard(0)
    spool.save(2, CaiArray(driver, numbers(2)))
    assert (spool.load(1) == numbers(0)).all()


def test_a_given_array_can_be_read_in_place(lone: unspool.Spool, driver: Driver) -> None:
    array = CaiArray(driver, numbers(0))
    lone.save(0, array, donate=True)
    with lone.reading(0) as buffer:
        assert buffer.ptr == array.address
    kept = [weakref.ref(array)]
    del array, buffer
    lone.discard(0)
    assert alive(kept) == 0


def test_what_cannot_be_given_away_is_refused(spool: unspool.Spool, driver: Driver) -> None:
    array = CaiArray(driver, numbers(0), read_only=True)
    with pytest.raises(unspool.errors.ArrayError, match=r"read-only.*without donate=True"):
        spool.save(0, array, donate=True)
    spool.save(0, array)
    with pytest.raises(unspool.errors.OptionError, match="donate"):
        spool.save(1, array, donate="yes")
    with pytest.raises(unspool.errors.VersionExistsError):
        given(spool, driver, 0)
    assert (spool.load(0) == numbers(0)).all()
