"""The spool's own memory on a GPU, computed in and read in place, on the driver in plain memory."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import unspool

from fake_gpu import CaiArray, Driver
from helpers import same_bits

pytestmark = pytest.mark.fake_gpu

COUNT = 48 * 4


@pytest.fixture
def spool(driver: Driver) -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="32MiB",
        host_memory="32MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


def numbers() -> np.ndarray:
    return np.arange(48, dtype="f4").reshape(6, 8)


def test_a_checkpoint_is_written_in_the_device_tier(spool: unspool.Spool, driver: Driver) -> None:
    driver.control("hold")
    with spool.writing(1, (6, 8), "f4") as buffer:
        assert buffer.device == "cuda:0" and buffer.nbytes == COUNT
        assert buffer.__dlpack_device__() == (2, 0)
        driver.fill(buffer.ptr, 1, COUNT, 1)
    driver.control("release")
    assert set(spool.load(1).tobytes()) == {1}


def test_the_block_ends_when_the_work_on_its_stream_is_done(
    spool: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    driver.control("hold_stream", ctypes.c_uint64(stream))
    with spool.writing(1, (6, 8), "f4", stream=stream) as buffer:
        driver.fill(buffer.ptr, 2, COUNT, stream)
    copy = CaiArray(driver, numbers())
    spool.restore(1, copy)
    with spool.reading(1, stream=stream) as buffer:
        driver.fill(copy.block, 7, 1, stream)
    driver.control("release")
    driver.synchronize()
    assert set(copy.numpy().tobytes()[1:]) == {2}


def test_the_interface_names_the_stream_on_which_the_data_is_ready(
    spool: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    spool.save(1, numbers())
    with spool.reading(1, stream=stream) as buffer:
        interface = buffer.__cuda_array_interface__
    assert interface["stream"] == stream and interface["version"] == 3
    assert interface["shape"] == (6, 8) and interface["typestr"] == "<f4"
    assert interface["data"][1] is True
    with pytest.raises(BufferError, match="was left"):
        _ = buffer.__cuda_array_interface__
    with pytest.raises(BufferError, match="was left"):
        buffer.__dlpack__()
    with pytest.raises(unspool.errors.ArrayError, match="was left"):
        spool.save(2, buffer)


def test_dlpack_orders_the_stream_of_the_consumer(spool: unspool.Spool, driver: Driver) -> None:
    ours, theirs = driver.stream(), driver.stream()
    target = CaiArray(driver, np.zeros(COUNT, "u1"))
    driver.control("hold_stream", ctypes.c_uint64(ours))
    with spool.writing(1, (COUNT,), "u1", stream=ours) as buffer:
        driver.fill(buffer.ptr, 3, COUNT, ours)
        capsule = buffer.__dlpack__(stream=theirs, max_version=(1, 0))
        assert "dltensor_versioned" in repr(capsule)
        arguments = [ctypes.c_uint64(target.block), ctypes.c_uint64(buffer.ptr)]
        arguments += [ctypes.c_size_t(COUNT), ctypes.c_void_p(theirs)]
        driver.call("cuMemcpyDtoDAsync_v2", *arguments)
        for stream in (0, -2):
            with pytest.raises(BufferError, match="stream"):
                buffer.__dlpack__(stream=stream)
        for wish in ({"copy": True}, {"dl_device": (1, 0)}):
            with pytest.raises(BufferError):
                buffer.__dlpack__(**wish)
        driver.control("release")
        buffer.__dlpack__(stream=-1, dl_device=(2, 0), copy=False)
    driver.synchronize()
    assert set(target.numpy()) == {3}


def test_numpy_is_told_where_the_memory_lies(spool: unspool.Spool, driver: Driver) -> None:
    spool.save(1, numbers())
    with spool.reading(1) as buffer:
        with pytest.raises(TypeError, match="load the checkpoint"):
            np.asarray(buffer)
        with pytest.raises(unspool.errors.OptionError, match="load"), spool.reading(1, to="numpy"):
            pass


def test_buffers_are_saved_and_restored_into(spool: unspool.Spool, driver: Driver) -> None:
    spool.save(1, numbers())
    with spool.writing(2, (6, 8), "f4") as buffer:
        spool.restore(1, buffer)
    with spool.reading(2) as buffer:
        spool.save(3, buffer)
        with pytest.raises(unspool.errors.ArrayError):
            spool.restore(1, buffer)
    assert same_bits(spool.load(3), numbers())


def test_a_block_that_is_given_up_leaves_the_memory_in_order(
    spool: unspool.Spool, driver: Driver
) -> None:
    with pytest.raises(ZeroDivisionError), spool.writing(1, (6, 8), "f4") as buffer:
        driver.fill(buffer.ptr, 9, COUNT, 1)
        raise ZeroDivisionError
    block = spool.writing(1, (6, 8), "f4")
    driver.fill(block.__enter__().ptr, 9, COUNT, 1)
    del block
    gc.collect()
    assert 1 not in spool
    spool.save(1, numbers())
    assert same_bits(spool.load(1), numbers())


def test_a_checkpoint_of_a_slower_tier_is_copied_for_reading_and_refused_for_writing(
    driver: Driver,
) -> None:
    with unspool.Spool(
        device_memory="1MiB",
        host_memory="16MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        large = np.arange(1 << 18, dtype="f8")
        spool.save(1, large)
        with spool.reading(1) as buffer:
            assert buffer.device == "cuda:0"
            driver.synchronize()
            assert driver.read(buffer.ptr, buffer.nbytes) == large.tobytes()
        with (
            pytest.raises(unspool.errors.CapacityError, match="save"),
            spool.writing(2, (1 << 18,), "f8"),
        ):
            pass
        assert 2 not in spool


def test_a_device_tier_that_is_full_at_the_moment_is_stood_in_for(driver: Driver) -> None:
    with unspool.Spool(
        device_memory="1MiB",
        host_memory="16MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        blocks = [spool.writing(version, 400_000, "u1") for version in range(4)]
        buffers = [block.__enter__() for block in blocks]
        for version, buffer in enumerate(buffers):
            driver.fill(buffer.ptr, version, buffer.nbytes, 1)
        for block in blocks:
            block.__exit__(None, None, None)
        assert [set(spool.load(version)) for version in range(4)] == [{0}, {1}, {2}, {3}]


def test_without_a_device_tier_pinned_memory_is_lent(driver: Driver) -> None:
    with unspool.Spool(
        host_memory="4MiB", device="cuda", debug=unspool.Debug(check_order=True)
    ) as spool:
        with spool.writing(1, (6, 8), "f4", to="numpy") as array:
            array[...] = numbers()
        target = CaiArray(driver, numbers() * 0)
        spool.restore(1, target)
        with spool.reading(1, to="numpy") as array:
            assert same_bits(np.array(array), numbers())
        driver.synchronize()
        assert same_bits(target.numpy(), numbers())


def test_buffers_outlive_the_spool_without_a_crash(driver: Driver) -> None:
    spool = unspool.Spool(device_memory="4MiB", device="cuda")
    with spool.writing(1, (6, 8), "f4") as buffer:
        capsule = buffer.__dlpack__()
        address = buffer.ptr
    spool.close()
    del spool, buffer
    gc.collect()
    assert len(driver.read(address, COUNT)) == COUNT
    del capsule


def test_many_threads_use_one_spool(spool: unspool.Spool, driver: Driver) -> None:
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            driver.context()
            stream = driver.stream()
            array = CaiArray(driver, np.zeros(5000, "u1"), stream)
            for step in range(12):
                version, byte = 100 * thread + step, 16 * thread + step
                driver.fill(array.block, byte, array.count, stream)
                spool.save(version, array)
                driver.fill(array.block, 255, array.count, stream)
                spool.restore(version, array)
                spool.save(version + 50, array)
            assert all(
                set(spool.load(100 * thread + 50 + s)) == {16 * thread + s} for s in range(12)
            )
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


class Sequence:
    """A random history of calls, and what each checkpoint has to hold."""

    def __init__(self, spool: unspool.Spool, driver: Driver, seed: int) -> None:
        self.spool, self.driver, self.random = spool, driver, random.Random(seed)
        self.streams = [1, 2, *(driver.stream() for _ in range(3))]
        self.expected: dict[int, bytes] = {}
        self.version = 0

    def array(self, count: int) -> CaiArray:
        stream = self.random.choice(self.streams)
        return CaiArray(self.driver, np.zeros(count, "u1"), stream)

    def save(self) -> None:
        array, byte = self.array(self.random.randint(1, 60_000)), self.random.randrange(256)
        self.driver.fill(array.block, byte, array.count, array.stream)
        self.spool.save(self.version, array)
        self.driver.fill(array.block, byte ^ 1, array.count, array.stream)
        self.keep(bytes([byte]) * array.count)

    def keep(self, content: bytes) -> None:
        self.expected[self.version] = content
        self.version += 1

    def write(self) -> None:
        count, byte = self.random.randint(1, 60_000), self.random.randrange(256)
        stream = self.random.choice(self.streams)
        with self.spool.writing(self.version, count, "u1", stream=stream) as buffer:
            self.driver.fill(buffer.ptr, byte, count, stream)
        self.keep(bytes([byte]) * count)

    def restore(self) -> None:
        if self.expected:
            version = self.random.choice(list(self.expected))
            array = self.array(len(self.expected[version]))
            self.spool.restore(version, array)
            self.driver.synchronize()
            assert array.numpy().tobytes() == self.expected[version]

    def load(self) -> None:
        if self.expected:
            version = self.random.choice(list(self.expected))
            assert self.spool.load(version).tobytes() == self.expected[version]

    def read(self) -> None:
        if self.expected:
            version, stream = (
                self.random.choice(list(self.expected)),
                self.random.choice(self.streams),
            )
            with self.spool.reading(version, stream=stream) as buffer:
                self.driver.synchronize()
                assert self.driver.read(buffer.ptr, buffer.nbytes) == self.expected[version]

    def discard(self) -> None:
        if len(self.expected) > 6:
            version = self.random.choice(list(self.expected))
            self.spool.discard(version)
            del self.expected[version]

    def step(self) -> None:
        actions = [
            self.save,
            self.save,
            self.write,
            self.restore,
            self.load,
            self.read,
            self.discard,
        ]
        self.random.choice(actions)()


@pytest.mark.parametrize("seed", range(10))
def test_random_histories_come_back_byte_for_byte(driver: Driver, seed: int, tmp_path) -> None:
    driver.control("set", b"seed", ctypes.c_uint64(seed))
    tiers = {"device_memory": "256KiB", "host_memory": "512KiB", "disk": tmp_path}
    with unspool.Spool(**tiers, device="cuda", debug=unspool.Debug(check_order=True)) as spool:
        sequence = Sequence(spool, driver, seed)
        for _ in range(120):
            sequence.step()
        for version, content in sequence.expected.items():
            assert spool.load(version).tobytes() == content


@pytest.fixture
def encoded(driver: Driver) -> Iterator[unspool.Spool]:
    """Two checkpoints that a block decodes, of 1s and of 2s."""
    with unspool.Spool(
        device_memory="1MiB", codec="lossless", device="cuda", debug=unspool.Debug(check_order=True)
    ) as opened:
        for version in (1, 2):
            opened.save(version, CaiArray(driver, np.full(40_000, version, "u1")))
        yield opened


def test_blocks_of_encoded_checkpoints_use_memory_again(
    encoded: unspool.Spool, driver: Driver
) -> None:
    streams, places, found = [driver.stream(), driver.stream()], set(), []
    for turn in range(8):
        stream = streams[turn // 3 % 2]
        with encoded.reading(1 + turn % 2, stream=stream) as buffer:
            copy = driver.allocate(40_000)
            # After the block, the next one decodes into the same place.
            address, count = ctypes.c_uint64(buffer.ptr), ctypes.c_size_t(40_000)
            handle = ctypes.c_void_p(stream)
            driver.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(copy), address, count, handle)
            places.add(buffer.ptr)
        found.append(copy)
        del buffer
    driver.synchronize()
    assert [set(driver.read(copy, 40_000)) for copy in found] == [{1}, {2}] * 4
    assert len(places) == 1
    for version in range(3, 9):
        with encoded.writing(version, 40_000, "u1", stream=streams[0]) as buffer:
            driver.fill(buffer.ptr, version, 40_000, streams[0])
            places.add(buffer.ptr)
        del buffer
    assert [set(encoded.load(version)) for version in range(3, 9)] == [{n} for n in range(3, 9)]
    assert len(places) == 1


def test_memory_that_is_still_referred_to_is_not_used_again(
    encoded: unspool.Spool, driver: Driver
) -> None:
    with encoded.reading(1) as first:
        place = first.ptr
    with encoded.reading(2) as second:
        assert second.ptr != place
    del first, second
    with encoded.reading(1) as third:
        driver.synchronize()
        assert set(driver.read(third.ptr, 40_000)) == {1}


def test_a_block_that_fails_gives_its_memory_to_others_after_its_work(
    encoded: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    driver.control("hold_stream", ctypes.c_uint64(stream))
    with pytest.raises(ZeroDivisionError), encoded.reading(1, stream=stream) as buffer:
        raise ZeroDivisionError
    del buffer
    with encoded.reading(2) as other:
        driver.control("release")
        driver.synchronize()
        assert set(driver.read(other.ptr, 40_000)) == {2}
