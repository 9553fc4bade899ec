"""Arrays of CuPy on a real GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool.schedules import Auto

from gpu_kernels import slow_fill, warm_up
from helpers import gpu_library, random_array, same_bits

cupy = gpu_library("cupy")
pytestmark = pytest.mark.gpu

DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split()
CUTS = [
    np.s_[:],
    np.s_[::2],
    np.s_[:, 2:7],
    np.s_[::-1, ::-3],
    np.s_[:, 3],
    np.s_[:0],
    np.s_[1:5:2, 1:8:3],
]


@pytest.fixture(autouse=True)
def device() -> None:
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as absent:
        pytest.skip(f"no CUDA device: {absent}")
    assert count > 0


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="64MiB",
        host_memory="64MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


def numbers() -> Any:
    return cupy.arange(4096, dtype="f4").reshape(64, 64)


def filled(byte: int, count: int = 1 << 20) -> Any:
    return cupy.full(count, byte, cupy.uint8)


def only(array: Any) -> set[int]:
    return set(cupy.unique(array.view(cupy.uint8)).tolist())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, dtype: str) -> None:
    values = random_array((16, 24), np.dtype(dtype))
    for version, cut in enumerate(CUTS):
        saved = cupy.asarray(values)[cut]
        spool.save(version, saved)
        expected = np.ascontiguousarray(values[cut])
        target = cupy.zeros((16, 24), dtype)[cut]
        spool.restore(version, target)
        assert same_bits(cupy.asnumpy(cupy.ascontiguousarray(target)), expected)
        assert same_bits(spool.load(version), expected)
        loaded = spool.load(version, to="cupy")
        assert isinstance(loaded, cupy.ndarray) and same_bits(cupy.asnumpy(loaded), expected)


def test_transposed_and_broadcast_arrays_are_saved(spool: unspool.Spool) -> None:
    deep = cupy.arange(5.0 * 6 * 7 * 8).reshape(5, 6, 7, 8)
    for version, view in enumerate([deep.T, deep.transpose(2, 0, 3, 1), deep[:, ::-2, None]]):
        spool.save(version, view)
        assert same_bits(spool.load(version), np.ascontiguousarray(cupy.asnumpy(view)))
        target = cupy.zeros_like(deep)
        target = [target.T, target.transpose(2, 0, 3, 1), target[:, ::-2, None]][version]
        spool.restore(version, target)
        assert (target == view).all()
    wide = cupy.broadcast_to(cupy.arange(8.0), (3, 8))
    spool.save(9, wide)
    assert (spool.load(9) == cupy.asnumpy(wide)).all()
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(9, wide)


def test_a_save_returns_while_a_kernel_still_writes_the_array(spool: unspool.Spool) -> None:
    array = filled(0)
    warm_up(array)
    spool.save(-1, array)
    slow_fill(array, 7)
    begin = time.perf_counter()
    spool.save(0, array)
    took = time.perf_counter() - begin
    assert not cupy.cuda.get_current_stream().done
    array.fill(9)
    assert only(spool.load(0, to="cupy")) == {7}
    assert only(array) == {9} and took < 0.05


def test_a_restore_is_seen_by_the_next_kernel_and_does_not_wait(spool: unspool.Spool) -> None:
    array, busy = filled(5), filled(0)
    warm_up(busy)
    assert only(array * 2) == {10}
    spool.save(0, array)
    array.fill(1)
    slow_fill(busy, 3)
    begin = time.perf_counter()
    spool.restore(0, array)
    doubled = array * 2
    took = time.perf_counter() - begin
    assert not cupy.cuda.get_current_stream().done
    assert only(doubled) == {10} and took < 0.05


def test_the_current_stream_is_the_default(spool: unspool.Spool) -> None:
    array = filled(0)
    warm_up(array)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        slow_fill(array, 4)
        spool.save(0, array)
        array.fill(8)
        spool.restore(0, array)
        spool.save(1, array)
        stream.synchronize()
    assert only(spool.load(0, to="cupy")) == {4} == only(spool.load(1, to="cupy"))


def test_an_explicit_stream_is_used(spool: unspool.Spool) -> None:
    array, stream = filled(0), cupy.cuda.Stream(non_blocking=True)
    warm_up(array)
    for version, given in enumerate([stream, stream.ptr]):
        with stream:
            slow_fill(array, 10 + version)
        spool.save(version, array, stream=given)
        with stream:
            array.fill(1)
    target = filled(0)
    spool.restore(1, target, stream=stream)
    with stream:
        copy = target + 1
    stream.synchronize()
    assert only(copy) == {12} and only(spool.load(0, to="cupy")) == {10}


def test_several_streams_order_what_they_share(spool: unspool.Spool) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    array = filled(0)
    warm_up(array)
    for version, stream in enumerate(streams):
        with stream:
            mine = filled(version)
            slow_fill(mine, 20 + version, 20_000_000)
            spool.save(version, mine)
    for version, stream in enumerate(reversed(streams)):
        with stream:
            target = filled(0)
            spool.restore(version, target)
            assert only(target) == {20 + version}


def test_a_stream_that_is_being_captured_is_refused(spool: unspool.Spool) -> None:
    array = filled(3)
    spool.save(0, array)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for call in (spool.save, spool.restore):
            with pytest.raises(unspool.errors.DeviceError, match="captured"):
                call(1 if call == spool.save else 0, array)
        array.fill(4)
        stream.end_capture()
    spool.save(1, array)
    assert only(spool.load(1, to="cupy")) == {3}


def test_arrays_of_another_device_are_refused() -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is only one GPU")
    with unspool.Spool(device_memory="16MiB", device="cuda:1") as spool:
        array = numbers()
        with pytest.raises(unspool.errors.DeviceError, match=r"device 0.*device 1"):
            spool.save(0, array)
        with cupy.cuda.Device(1):
            spool.save(0, numbers())
            assert (spool.load(0, to="cupy") == numbers()).all()
        with pytest.raises(unspool.errors.DeviceError):
            spool.restore(0, array)


def test_host_arrays_and_spools_in_main_memory_mix_with_the_gpu(spool: unspool.Spool) -> None:
    spool.save(0, u=numbers(), v=cupy.asnumpy(numbers()))
    u, v = np.zeros((64, 64), "f4"), cupy.zeros((64, 64), "f4")
    spool.restore(0, u=u, v=v)
    assert (u == cupy.asnumpy(numbers())).all() and (v == numbers()).all()
    with unspool.Spool(host_memory="16MiB", device="cpu") as plain:
        plain.save(0, numbers(), numbers()[::2, ::-1])
        assert (plain.load(0)[0] == u).all()
        target = cupy.zeros((64, 128), "f4")[:, ::2]
        plain.restore(0, target, cupy.zeros((32, 64), "f4"))
        assert (target == numbers()).all()
        assert (plain.load(0, to="cupy")[1] == numbers()[::2, ::-1]).all()


def test_pinned_arrays_of_the_host_are_taken(spool: unspool.Spool) -> None:
    memory = cupy.cuda.alloc_pinned_memory(4096)
    pinned = np.frombuffer(memory, np.float32, 1024)
    pinned[...] = np.arange(1024)
    spool.save(0, pinned)
    assert (spool.load(0, to="cupy") == cupy.arange(1024)).all()


def test_managed_memory_is_taken(spool: unspool.Spool) -> None:
    memory = cupy.cuda.malloc_managed(4096)
    managed = cupy.ndarray(1024, "f4", memptr=memory)
    managed[...] = cupy.arange(1024)
    spool.save(0, managed)
    managed.fill(0)
    spool.restore(0, managed)
    assert (managed == cupy.arange(1024)).all()


def test_a_checkpoint_is_computed_in_place(spool: unspool.Spool) -> None:
    with spool.writing(0, (64, 64), cupy.float32) as buffer:
        array = cupy.asarray(buffer)
        assert array.data.ptr == buffer.ptr
        array[...] = numbers()
    with spool.writing(1, (64, 64), "f4", to="cupy") as array:
        cupy.multiply(numbers(), 2, out=array)
    with spool.writing(2, u=((64, 64), "f4"), v=(3, "i8")) as buffers:
        cupy.from_dlpack(buffers["u"])[...] = 1
        cupy.asarray(buffers["v"])[...] = 7
    with spool.reading(1) as buffer, spool.reading(0, to="cupy") as array:
        assert (cupy.asarray(buffer) == 2 * array).all()
    assert (spool.load(2)["v"] == 7).all()


def test_leaving_a_block_does_not_wait_for_its_kernels(spool: unspool.Spool) -> None:
    warm_up(filled(0))
    assert only(filled(0) + 1) == {1}
    begin = time.perf_counter()
    with spool.writing(0, (1 << 20,), "u1", to="cupy") as array:
        slow_fill(array, 6)
    with spool.reading(0, to="cupy") as array:
        copy = array + 1
    took = time.perf_counter() - begin
    assert not cupy.cuda.get_current_stream().done
    assert only(copy) == {7} and took < 0.05


def test_a_history_larger_than_the_device_comes_back_from_all_tiers(tmp_path: Path) -> None:
    tiers = {"device_memory": "8MiB", "host_memory": "16MiB", "disk": tmp_path}
    with unspool.Spool(**tiers, device="cuda", debug=unspool.Debug(check_order=True)) as spool:
        array = filled(0)
        for version in range(48):
            array.fill(version)
            spool.save(version, array)
        spool.expect(reversed(range(48)))
        for version in reversed(range(48)):
            spool.restore(version, array)
            assert only(array) == {version}
        with spool.reading(0, to="cupy") as lent:
            assert only(lent) == {0}


def test_many_threads_with_streams_of_their_own(spool: unspool.Spool) -> None:
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            with cupy.cuda.Stream(non_blocking=True):
                array = filled(0, 100_000)
                for step in range(40):
                    version, byte = 1000 * thread + step, 16 * thread + step % 16
                    array.fill(byte)
                    spool.save(version, array)
                    array.fill(255)
                    spool.restore(version, array)
                    assert only(array) == {byte}
                    spool.discard(version)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures


def test_subclasses_and_empty_arrays_are_taken(spool: unspool.Spool) -> None:
    class Field(cupy.ndarray):
        """An array with more to it."""

    field = numbers().view(Field)
    spool.save(0, field, cupy.zeros((0, 3)), cupy.array(2.5))
    target, empty, scalar = numbers() * 0, cupy.zeros((0, 3)), cupy.array(0.0)
    spool.restore(0, target, empty, scalar)
    assert (target == numbers()).all() and scalar == 2.5


def test_given_arrays_are_the_copies_and_go_back_in_stream_order() -> None:
    with (
        unspool.Spool(device_memory="4MiB", host_memory="64MiB", device="cuda") as tiers,
        cupy.cuda.Stream(non_blocking=True),
    ):
        for version in range(40):
            tiers.save(version, cupy.full(1 << 20, version, cupy.uint8), donate=True)
            # Whoever gets the memory next writes to it.
            cupy.full(1 << 20, 0xEE, cupy.uint8)
        for version in reversed(range(40)):
            assert (tiers.load(version, to="cupy") == version).all()


@pytest.mark.parametrize("states", [3, 12, 100])
def test_an_adjoint_that_chooses_its_schedule_reads_the_states_of_the_forward_pass(
    states: int,
) -> None:
    start, seen = cupy.arange(1 << 18, dtype="f4"), []

    def forward(u: Any, first: int, last: int) -> None:
        for _ in range(first, last):
            u += 1

    def reverse(u: Any, step: int) -> None:
        seen.append((u - start - step).any())

    room = states * start.nbytes
    with unspool.Spool(
        device_memory=room, host_memory=room, device="cuda", debug=unspool.Debug(check_order=True)
    ) as opened:
        report = unspool.adjoint(Auto(60), opened, forward, reverse, start.copy())
        assert len(opened) == 0
    assert len(seen) == 60 and not any(map(bool, seen))
    assert report.forward_steps == report.choice.schedule.counts().advances
