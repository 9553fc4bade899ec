"""Several checkpoints by one call, in main memory and on the driver in plain memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from unspool import Spool
from unspool.accumulate import Batched
from unspool.errors import ArrayError, Error

from fake_gpu import CaiArray, Driver

SHAPE = (40, 50)


def values(version: int) -> np.ndarray:
    return np.sin(np.arange(2000, dtype=np.float32).reshape(SHAPE) * 0.01 + version)


@pytest.mark.parametrize("codec", [None, "lossless"])
def test_a_mapping_or_pairs_with_one_array_several_or_names(codec: str | None) -> None:
    with Spool(host_memory="1MiB", device="cpu", codec=codec) as spool:
        spool.save_many({0: values(0), 1: (values(1), values(2).T), 2: {"u": values(3)}})
        spool.save_many([(3, [values(4)]), (4, {"u": values(5)[::2], "v": values(6)})])
        assert spool.versions() == [0, 1, 2, 3, 4]
        assert np.array_equal(spool.load(0), values(0))
        first, second = spool.load(1)
        assert np.array_equal(first, values(1)) and np.array_equal(second, values(2).T)
        assert np.array_equal(spool.load(2)["u"], values(3))
        assert np.array_equal(spool.load(3), values(4))
        assert np.array_equal(spool.load(4)["u"], values(5)[::2])


def test_what_is_refused_is_named_and_the_others_are_saved() -> None:
    with Spool(host_memory="1MiB", device="cpu") as spool:
        spool.save(1, values(1))
        with pytest.raises(Error) as caught:
            spool.save_many({0: values(0), 1: values(1), 2: values(2)})
        assert caught.value.unsaved == [1]
        assert spool.versions() == [0, 1, 2]


@pytest.mark.parametrize("given", [1, None, [1], [(1,)], [("a", 1)], {1: object()}, {1: ()}])
def test_what_is_not_a_pair_with_arrays_is_refused(given: object) -> None:
    with Spool(host_memory="1MiB", device="cpu") as spool:
        with pytest.raises((ArrayError, Error)):
            spool.save_many(given)
        assert spool.versions() == []


def test_a_version_that_is_there_twice_is_refused_before_anything_is_saved() -> None:
    with Spool(host_memory="1MiB", device="cpu") as spool:
        with pytest.raises(ArrayError, match="version 3 is there twice, and nothing was saved"):
            spool.save_many([(2, values(2)), (3, values(3)), (np.int64(3), values(4))])
        assert spool.versions() == []


def test_an_iterator_without_an_end_is_refused_and_nothing_is_saved() -> None:
    array = np.zeros(1, np.uint8)
    with Spool(host_memory="1MiB", device="cpu") as spool:
        with pytest.raises(ArrayError, match="more than 131072 checkpoints"):
            spool.save_many((version, array) for version in itertools.count())
        with pytest.raises(ArrayError, match="twice"):
            spool.save_many(itertools.repeat((1, array)))
        assert spool.versions() == []


@pytest.mark.fake_gpu
@pytest.mark.parametrize("together", [None, 8])
def test_arrays_of_a_gpu_share_one_launch(driver: Driver, together: int | None) -> None:
    options = {"device_memory": "4MiB", "device": "cuda", "codec": "lossless"}
    opened = Spool(**options)
    with Batched(opened, together) if together else opened as spool:
        spool.save_many([(version, CaiArray(driver, values(version))) for version in range(6)])
        codec = spool.stats().codec
        assert (codec.launches, codec.launched, codec.most_together) == (1, 6, 6)
        for version in range(6):
            assert np.array_equal(spool.load(version), values(version))
