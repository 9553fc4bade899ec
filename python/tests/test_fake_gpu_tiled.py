"""Arrays whose tiles are computed on a GPU, on the driver in plain memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool.errors import OptionError
from unspool.types import DeviceBuffer, TiledArray

from fake_gpu import Driver

pytestmark = pytest.mark.fake_gpu

TILE = 4 * 1024


def tiled(tmp_path: Path, rows: int = 30, **options: Any) -> TiledArray:
    """Tiles of four rows, of which three fit into the device and six into the host tier."""
    tiers = {
        "device_memory": 4 * TILE,
        "host_memory": 8 * TILE,
        "disk": tmp_path,
        "device": "cuda",
        "to": None,
    }
    debug = unspool.Debug(check_order=True)
    return unspool.tiled((rows, 1024), "uint8", tile=4, debug=debug, **{**tiers, **options})


def content(driver: Driver, buffer: DeviceBuffer) -> set[int]:
    driver.synchronize()
    return set(driver.read(buffer.ptr, buffer.nbytes))


@pytest.mark.parametrize("codec", [None, "lossless"])
def test_tiles_are_computed_on_the_device_again_and_again(
    driver: Driver, tmp_path: Path, codec: Any
) -> None:
    with tiled(tmp_path, codec=codec, fill=7) as array:
        array.expect(cycle=range(array.tiles))
        for lap in range(4):
            for index, buffer in array.sweep("rw"):
                before = {7} if lap == 0 else {10 * lap + index}
                assert buffer.device == "cuda:0" and content(driver, buffer) == before
                driver.fill(buffer.ptr, 10 * (lap + 1) + index, buffer.nbytes, 1)
        assert array.stats().corrections == 0
        assert (array[...][:, 0] == 40 + np.arange(30) // 4).all()
        assert len(array.spool) == array.tiles + 2


def test_work_on_a_stream_that_is_held_is_in_order_and_is_not_waited_for(
    driver: Driver, tmp_path: Path
) -> None:
    with tiled(tmp_path, rows=8, codec=None, device_memory=8 * TILE) as array:
        stream = driver.stream()
        array[...] = 1
        driver.synchronize()
        driver.control("hold")
        for value in range(2, 6):
            with array.tile(0, "rw", stream=stream) as buffer:
                driver.fill(buffer.ptr, value, buffer.nbytes // 2, stream)
        driver.control("release")
        driver.synchronize()
        assert set(array[0]) == set(array[1]) == {5} and set(array[2]) == {1}


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_are_those_of_a_plain_array(driver: Driver, tmp_path: Path, seed: int) -> None:
    draw, codec = random.Random(seed), [None, "lossless"][seed % 2]
    with tiled(tmp_path, codec=codec) as array:
        values = [0] * array.tiles
        streams = [1, 2, driver.stream()]
        for _ in range(80):
            index, stream = draw.randrange(array.tiles), draw.choice(streams)
            mode, byte = draw.choice(["r", "w", "rw", "part", "fail"]), draw.randrange(256)
            if draw.random() < 0.1:
                array.expect(cycle=range(draw.randint(1, array.tiles)))
            if mode == "part":
                place = array.slices(index)
                assert (array[place] == values[index]).all()
                array[place] = values[index] = byte
                continue
            if mode == "fail":
                with pytest.raises(ZeroDivisionError), array.tile(index, "rw") as buffer:
                    driver.fill(buffer.ptr, byte, buffer.nbytes, 1)
                    raise ZeroDivisionError
                continue
            with array.tile(index, mode, stream=stream) as buffer:
                if mode != "w":
                    assert content(driver, buffer) == {values[index]}
                if mode != "r":
                    driver.fill(buffer.ptr, byte, buffer.nbytes, stream)
                    values[index] = byte
        driver.synchronize()
        assert (array[...][::4, 5] == values).all()


def test_calls_that_need_a_library_of_arrays_say_so(driver: Driver, tmp_path: Path) -> None:
    with tiled(tmp_path) as array:
        with pytest.raises(OptionError, match="library"):
            array.sweep(halo=1)
        with pytest.raises(OptionError, match="on a GPU"):
            array.map(print, threads=2)
        with array.tile(0) as buffer:
            pass
        with pytest.raises(BufferError, match="was left"):
            _ = buffer.ptr
    with tiled(tmp_path, to="numpy") as array, pytest.raises(OptionError), array.tile(0):
        pass


def test_without_a_device_tier_tiles_are_those_of_numpy(driver: Driver, tmp_path: Path) -> None:
    with tiled(tmp_path, device_memory=None, to="auto") as array:
        for index, a in array.sweep("rw"):
            assert isinstance(a, np.ndarray)
            a += np.uint8(index)
        assert (array[...][::4, 0] == range(8)).all()
