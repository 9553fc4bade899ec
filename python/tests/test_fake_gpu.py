"""Arrays on a GPU, on the driver that `UNSPOOL_CUDA_DRIVER` names: protocols, streams, lifetimes.

That driver makes everything asynchronous that CUDA may make so, and can hold streams back: what
must not wait does not wait here, and what is not ordered shows. The tests of `test_gpu_*.py` run
on real hardware with the real libraries.
"""

from __future__ import annotations

import ctypes
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool

from fake_gpu import MEMORY, CaiArray, DlpackArray, Driver
from helpers import gpu_library, random_array, same_bits

pytestmark = pytest.mark.fake_gpu

DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
OPAQUE = ["M8[ns]", "m8[s]", "S5", "U3", ">f8"]


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


CUTS = [
    np.s_[:],
    np.s_[::2],
    np.s_[:, 2:7],
    np.s_[::-1, ::-3],
    np.s_[:, 3],
    np.s_[:0],
    np.s_[1:5:2, 1:8:3],
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("make", [CaiArray, DlpackArray])
def test_arrays_come_back_with_their_bits(
    spool: unspool.Spool, driver: Driver, make: type, cut: object
) -> None:
    source = make(driver, numbers()[cut])
    spool.save(0, source)
    target = make(driver, np.zeros((6, 8), "f4")[cut])
    spool.restore(0, target)
    driver.synchronize()
    assert same_bits(target.numpy(), np.ascontiguousarray(numbers()[cut]))
    assert same_bits(spool.load(0), np.ascontiguousarray(numbers()[cut]))


@pytest.mark.parametrize("dtype", DTYPES + OPAQUE)
def test_every_dtype_of_the_interface_comes_back(
    spool: unspool.Spool, driver: Driver, dtype: str
) -> None:
    values = random_array((3, 5), np.dtype(dtype))
    spool.save(0, CaiArray(driver, values))
    loaded = spool.load(0)
    assert loaded.dtype == values.dtype and loaded.tobytes() == values.tobytes()
    target = CaiArray(driver, np.zeros_like(values))
    spool.restore(0, target)
    driver.synchronize()
    assert target.numpy().tobytes() == values.tobytes()


def test_structures_keep_their_fields(spool: unspool.Spool, driver: Driver) -> None:
    values = np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f8")])
    spool.save(0, CaiArray(driver, values))
    assert spool.load(0).dtype == values.dtype and (spool.load(0) == values).all()


def test_save_and_restore_do_not_wait_for_the_device(spool: unspool.Spool, driver: Driver) -> None:
    source, target = CaiArray(driver, numbers()), CaiArray(driver, numbers() * 0)
    driver.control("hold")
    for version in range(20):
        spool.save(version, source)
        spool.restore(version, target)
    assert not target.numpy().any()
    driver.control("release")
    driver.synchronize()
    assert same_bits(target.numpy(), numbers())


def test_what_is_enqueued_before_is_saved_and_what_comes_after_is_not(
    spool: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    array = CaiArray(driver, numbers() * 0, stream)
    driver.control("hold_stream", ctypes.c_uint64(stream))
    driver.fill(array.block, 1, array.count, stream)
    spool.save(0, array)
    driver.fill(array.block, 2, array.count, stream)
    spool.restore(0, array)
    spool.save(1, array)
    driver.fill(array.block, 3, array.count, stream)
    driver.control("release")
    assert set(spool.load(0).tobytes()) == {1} == set(spool.load(1).tobytes())
    driver.synchronize()
    assert set(array.numpy().tobytes()) == {3}


def test_an_explicit_stream_is_used_and_the_array_kept_until_the_copy_is_done(
    spool: unspool.Spool, driver: Driver
) -> None:
    stream = driver.stream()
    array = CaiArray(driver, numbers() * 0)
    alive = weakref.ref(array)
    driver.control("hold_stream", ctypes.c_uint64(stream))
    driver.fill(array.block, 5, array.count, stream)
    spool.save(0, array, stream=stream)
    del array
    gc.collect()
    assert alive() is not None
    driver.control("release")
    driver.synchronize()
    spool.save(1, CaiArray(driver, numbers()))
    gc.collect()
    assert alive() is None
    assert set(spool.load(0).tobytes()) == {5}


class Stream:
    """A stream of another library, in each of the ways in which they show their handles."""

    def __init__(self, handle: int, kind: str) -> None:
        if kind == "method":
            self.__cuda_stream__ = lambda: (0, handle)
        elif kind == "attribute":
            self.__cuda_stream__ = (0, handle)
        elif kind == "numba":
            self.handle = ctypes.c_void_p(handle)
        else:
            setattr(self, kind, handle)


@pytest.mark.parametrize("kind", ["ptr", "cuda_stream", "method", "attribute", "numba", "int"])
def test_streams_of_all_libraries_are_taken(
    spool: unspool.Spool, driver: Driver, kind: str
) -> None:
    handle = driver.stream()
    stream = handle if kind == "int" else Stream(handle, kind)
    array = CaiArray(driver, numbers() * 0)
    driver.control("hold_stream", ctypes.c_uint64(handle))
    driver.fill(array.block, 6, array.count, handle)
    spool.save(0, array, stream=stream)
    driver.control("release")
    assert set(spool.load(0).tobytes()) == {6}
    spool.restore(0, array, stream=stream)


def test_what_is_no_stream_is_refused(spool: unspool.Spool, driver: Driver) -> None:
    array = CaiArray(driver, numbers())
    for nonsense in (True, "fast", 1.5, -1, object(), numbers(), Stream(3, "other")):
        with pytest.raises(unspool.errors.OptionError, match="not a CUDA stream"):
            spool.save(0, array, stream=nonsense)
    for default in (0, 1, 2, None):
        spool.save(0, array, stream=default)
        spool.discard(0)


def test_the_dlpack_stream_protocol_is_spoken(spool: unspool.Spool, driver: Driver) -> None:
    theirs, ours = driver.stream(), driver.stream()
    array = DlpackArray(driver, numbers() * 0, theirs)
    driver.control("hold_stream", ctypes.c_uint64(theirs))
    driver.fill(array.block, 7, array.count, theirs)
    driver.control("release")
    spool.save(0, array)
    spool.save(1, array, stream=ours)
    spool.restore(0, array)
    assert array.asked[0] not in (None, 0, -1, theirs) and array.asked[1] == ours
    assert set(spool.load(0).tobytes()) == {7} == set(spool.load(1).tobytes())
    assert array.exporter.exported == 3
    driver.synchronize()
    spool.close()
    assert array.exporter.deleted == 3


def test_without_a_known_stream_a_call_returns_when_the_copy_is_done(
    spool: unspool.Spool, driver: Driver
) -> None:
    driver.control("set", b"latency_us", ctypes.c_uint64(2000))
    for array in (DlpackArray(driver, numbers()), CaiArray(driver, numbers(), stream=None)):
        spool.save(0, array)
        driver.write(array.block, np.full(array.count, 9, np.uint8))
        assert same_bits(spool.load(0), numbers())
        spool.restore(0, array)
        assert same_bits(array.numpy(), numbers())
        spool.discard(0)


class Immutable(DlpackArray):
    """An array that never changes, as those of JAX."""


Immutable.__module__ = "jaxlib"


def test_an_array_that_never_changes_is_kept_and_not_waited_for(
    spool: unspool.Spool, driver: Driver
) -> None:
    array = Immutable(driver, numbers())
    driver.control("hold")
    spool.save(0, array)
    assert array.exporter.deleted == 0
    driver.control("release")
    driver.synchronize()
    spool.save(1, numbers())
    spool.close()
    assert array.exporter.deleted == 1


def test_arrays_of_cupy_are_known_by_their_attributes(spool: unspool.Spool, driver: Driver) -> None:
    cupy = gpu_library("cupy")

    def array(values: np.ndarray) -> Any:
        memory = CaiArray(driver, values)
        block = cupy.cuda.UnownedMemory(memory.address, memory.count, memory, 0)
        return cupy.ndarray(values.shape, values.dtype, cupy.cuda.MemoryPointer(block, 0))

    source, target = array(numbers()), array(numbers() * 0)
    for version, cut in enumerate([np.s_[:], np.s_[::2, ::-1], np.s_[:0]]):
        # Without a real driver CuPy cannot name its current stream.
        spool.save(version, source[cut], stream=1)
        assert same_bits(spool.load(version), np.ascontiguousarray(numbers()[cut]))
    spool.restore(0, target, stream=1)
    spool.save(9, target.T, stream=1)
    assert same_bits(spool.load(9), np.ascontiguousarray(numbers().T))


def test_managed_memory_is_copied_as_its_device_sees_it(
    spool: unspool.Spool, driver: Driver
) -> None:
    spool.save(0, DlpackArray(driver, numbers(), kind=13))
    assert same_bits(spool.load(0), numbers())


def test_arrays_of_the_host_and_of_the_device_mix(spool: unspool.Spool, driver: Driver) -> None:
    spool.save(0, u=CaiArray(driver, numbers()), v=numbers() + 1)
    u, v = numbers() * 0, CaiArray(driver, numbers() * 0)
    spool.restore(0, u=u, v=v)
    driver.synchronize()
    assert same_bits(u, numbers()) and same_bits(v.numpy(), numbers() + 1)


def test_a_spool_in_main_memory_takes_arrays_of_a_device(driver: Driver) -> None:
    with unspool.Spool(host_memory="8MiB", device="cpu") as spool:
        assert spool.device == "cpu" and "cuda" not in repr(spool)
        for make in (CaiArray, DlpackArray):
            spool.save(0, make(driver, numbers()))
            assert same_bits(spool.load(0), numbers())
            target = make(driver, numbers() * 0)
            spool.restore(0, target)
            driver.synchronize()
            assert same_bits(target.numpy(), numbers())
            spool.discard(0)


def test_a_spool_without_memory_takes_arrays_of_a_device(driver: Driver, tmp_path: Path) -> None:
    with unspool.Spool(disk=tmp_path) as spool:
        for version, cut in enumerate([np.s_[:], np.s_[::2, ::-1]]):
            spool.save(version, CaiArray(driver, numbers()[cut]))
            target = CaiArray(driver, (numbers() * 0)[cut])
            spool.restore(version, target)
            driver.synchronize()
            assert same_bits(target.numpy(), np.ascontiguousarray(numbers()[cut]))


def test_arrays_of_another_device_are_refused(driver: Driver) -> None:
    with unspool.Spool(device_memory="8MiB", device="cuda:1") as spool:
        assert spool.device == "cuda:1" and 'device="cuda:1"' in repr(spool)
        for array in (CaiArray(driver, numbers()), DlpackArray(driver, numbers())):
            with pytest.raises(unspool.errors.DeviceError, match=r"device 0.*device 1.*cuda:0"):
                spool.save(0, array)
        spool.save(0, numbers())
        with pytest.raises(unspool.errors.DeviceError):
            spool.restore(0, array)
        assert array.exporter.exported == 0 and same_bits(spool.load(0), numbers())
        with pytest.raises(unspool.errors.DeviceError), spool.reading(0, stream=driver.stream()):
            pass


def test_a_stream_of_another_device_is_refused(driver: Driver) -> None:
    driver.context(1)
    elsewhere = driver.stream()
    driver.context(0)
    with unspool.Spool(device_memory="8MiB", device="cuda:0") as spool:
        array = CaiArray(driver, numbers())
        with pytest.raises(unspool.errors.DeviceError, match="stream"):
            spool.save(0, array, stream=elsewhere)
        assert 0 not in spool


def test_a_device_that_is_not_there_is_named(driver: Driver) -> None:
    with pytest.raises(unspool.errors.DeviceError, match="device 7"):
        unspool.Spool(device_memory="8MiB", device="cuda:7")


def test_a_stream_that_is_being_captured_is_refused(spool: unspool.Spool, driver: Driver) -> None:
    stream, graph = driver.stream(), ctypes.c_void_p()
    array = CaiArray(driver, numbers(), stream)
    spool.save(0, numbers())
    driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 2)
    for call in (lambda: spool.save(1, array), lambda: spool.restore(0, array)):
        with pytest.raises(unspool.errors.DeviceError, match="captured"):
            call()
    driver.call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
    spool.save(1, array)
    assert same_bits(spool.load(1), numbers())


def test_a_capture_of_another_stream_is_left_alone(driver: Driver) -> None:
    captured, stream, graph = driver.stream(), driver.stream(), ctypes.c_void_p()
    array = CaiArray(driver, numbers(), stream)
    # In the global mode, which is PyTorch's, unsafe calls of any thread spoil the capture.
    driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(captured), 0)
    with unspool.Spool(device_memory="4MiB", host_memory="8MiB", device="cuda") as spool:
        for version in range(8):
            spool.save(version, array)
            spool.restore(version, array)
        spool.flush()
        assert same_bits(spool.load(3), numbers())
    driver.call("cuStreamEndCapture", ctypes.c_void_p(captured), ctypes.byref(graph))


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"mask": numbers()}, "mask"),
        ({"stream": 0}, "stream 0"),
        ({"version": 1}, "version 1"),
        ({"typestr": "|O8"}, "objects"),
        ({"typestr": 3}, "typestr"),
        ({"shape": (-1,)}, "shape"),
        ({"strides": (4,)}, "different lengths"),
        ({"data": (0, False)}, "null"),
        ({"data": None}, "data"),
    ],
    ids=str,
)
def test_an_interface_that_cannot_be_used_is_refused(
    spool: unspool.Spool, driver: Driver, lie: dict[str, object], reason: str
) -> None:
    with pytest.raises(unspool.errors.ArrayError, match=reason):
        spool.save(0, CaiArray(driver, numbers(), **lie))
    assert 0 not in spool


def test_an_interface_over_memory_of_the_host_is_read_there(
    spool: unspool.Spool, driver: Driver
) -> None:
    values = numbers()
    spool.save(0, CaiArray(driver, values, data=(values.ctypes.data, False)))
    assert same_bits(spool.load(0), values)


def test_targets_that_cannot_be_written_are_refused(spool: unspool.Spool, driver: Driver) -> None:
    spool.save(0, numbers())
    with pytest.raises(unspool.errors.ArrayError, match="read-only"):
        spool.restore(0, CaiArray(driver, numbers(), read_only=True))
    broadcast = np.broadcast_to(numbers()[0], (6, 8))
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(0, CaiArray(driver, broadcast))
    array = CaiArray(driver, numbers())
    spool.save(1, numbers(), numbers())
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(1, array, array)
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(0, CaiArray(driver, numbers()[:2]))
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(0, CaiArray(driver, numbers().view("i4")))


def test_a_failing_copy_gives_everything_back(spool: unspool.Spool, driver: Driver) -> None:
    good, bad = DlpackArray(driver, numbers()), CaiArray(driver, numbers())
    driver.control("fail", b"cuLaunchKernel", ctypes.c_uint64(1), 1)
    with pytest.raises(unspool.errors.DeviceError):
        spool.save(0, good, bad)
    driver.synchronize()
    assert 0 not in spool and good.exporter.deleted == 1
    spool.save(0, good, bad)
    assert same_bits(spool.load(0)[1], numbers())


def test_a_history_larger_than_the_device_tier_comes_back(driver: Driver) -> None:
    with unspool.Spool(
        device_memory="1MiB",
        host_memory="4MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as spool:
        array = CaiArray(driver, np.zeros(1 << 16, "f4"))
        for version in range(12):
            driver.fill(array.block, version, array.count, 1)
            spool.save(version, array)
        spool.expect(reversed(range(12)))
        for version in reversed(range(12)):
            spool.restore(version, array)
            driver.synchronize()
            assert set(array.numpy().tobytes()) == {version}


def test_the_sizes_that_auto_picks_are_shown(driver: Driver) -> None:
    # The pinned memory of a whole machine is too much for a test: test_without_gpu.py has the host.
    with unspool.Spool(device_memory="auto", host_memory="8MiB") as spool:
        assert "(auto)" in repr(spool) and spool.device == "cuda:0"
        device, host = spool.stats().tiers
        assert device.capacity > 0 and any("auto" in note for note in device.notes)
        assert host.ready is not None and not any("auto" in note for note in host.notes)


def test_a_smaller_device_tier_is_taken_only_when_asked(driver: Driver) -> None:
    # What other tests had is given back in the background.
    gc.collect()
    deadline = time.monotonic() + 30
    while driver.free_memory() < MEMORY - (64 << 20) and time.monotonic() < deadline:
        time.sleep(0.01)
    driver.control("take", 0, ctypes.c_uint64(MEMORY - (1 << 30)))
    with pytest.raises(unspool.Error, match="memory"):
        unspool.Spool(device_memory=2 << 30, device="cuda")
    with (
        pytest.warns(RuntimeWarning, match="instead of 2 GiB"),
        unspool.Spool(device_memory=2 << 30, device="cuda", shrink_ok=True) as spool,
    ):
        assert 0 < spool.stats().tiers[0].capacity < 1 << 30


def test_the_host_memory_of_a_closed_spool_is_ready_for_the_next_one(driver: Driver) -> None:
    def ready(spool: unspool.Spool) -> int:
        return next(tier.ready or 0 for tier in spool.stats().tiers if tier.name == "host")

    unspool.trim()
    for cycle in range(5):
        with unspool.Spool(device_memory="4MiB", host_memory="48MiB", device="cuda") as spool:
            if cycle == 0:
                spool.prepare()
                deadline = time.monotonic() + 20
                while ready(spool) < 48 << 20:
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
            assert ready(spool) == 48 << 20
            arrays = [CaiArray(driver, np.full(1 << 18, version, "f4")) for version in range(8)]
            for version, array in enumerate(arrays):
                spool.save(version, array)
            for version in reversed(range(8)):
                assert (spool.load(version) == version).all()
    assert unspool.trim() >= 48 << 20
    assert unspool.trim() == 0


@pytest.mark.parametrize("codec", [None, "lossless"])
def test_many_arrays_cost_the_driver_no_more_calls_than_a_few(
    driver: Driver, codec: str | None
) -> None:
    names = (b"cuMemcpyDtoDAsync_v2", b"cuStreamIsCapturing", b"cuStreamGetCtx", b"cuMemAlloc_v2")

    def calls() -> int:
        driver.synchronize()
        return sum(driver.control("calls", name) for name in names)

    stream, made = driver.stream(), []
    with unspool.Spool(device_memory="8MiB", device="cuda:0", codec=codec) as spool:
        for count in (3, 100, 1000):
            values = [np.full(9, index, "f4") for index in range(count)]
            arrays = {f"a{at}": CaiArray(driver, one, stream) for at, one in enumerate(values)}
            spool.save(0, **arrays)
            spool.restore(0, **arrays)
            spool.discard(0)
            before = calls()
            spool.save(1, **arrays)
            between = calls()
            for array in arrays.values():
                driver.fill(array.block, 0xEE, array.count, stream)
            spool.restore(1, **arrays)
            made.append((between - before, calls() - between))
            for array, one in zip(arrays.values(), values, strict=True):
                assert same_bits(array.numpy(), one)
            spool.discard(1)
    assert made[0] == made[1] == made[2], made


def test_arrays_that_only_the_spool_holds_are_let_go_of_by_the_next_call(driver: Driver) -> None:
    made: list[weakref.ref[CaiArray]] = []

    def arrays(version: int) -> dict[str, CaiArray]:
        values = {f"a{at}": CaiArray(driver, np.full(9, version, "f4")) for at in range(50)}
        made.extend(map(weakref.ref, values.values()))
        return values

    def held_after(call: Callable[..., object], *version: int, **given: CaiArray) -> int:
        # Copies are under way until the driver is released.
        driver.control("hold")
        call(*version, **given)
        given.clear()
        held = sum(each() is not None for each in made)
        driver.control("release")
        driver.synchronize()
        return held

    with unspool.Spool(device_memory="8MiB", device="cuda:0") as spool:
        for version in range(6):
            assert held_after(spool.save, version, **arrays(version)) == 50
        for version in range(6):
            assert held_after(spool.restore, version, **arrays(9)) == 50
        assert held_after(spool.save, 20, u=CaiArray(driver, np.zeros(9, "f4"))) == 0
