"""Tensors of PyTorch on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import unspool

from helpers import gpu_library

torch = gpu_library("torch")
pytestmark = pytest.mark.gpu

DTYPES = """bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64
    complex64 complex128 float8_e4m3fn float8_e5m2""".split()


@pytest.fixture(autouse=True)
def device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="64MiB",
        host_memory="64MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


def random_tensor(dtype: Any, *shape: int) -> Any:
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 256, count, np.uint8))
    if dtype is torch.bool:
        return (bits % 2).bool().reshape(shape).cuda()
    return bits.view(dtype).reshape(shape).cuda()


def bits(tensor: Any) -> bytes:
    return tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()


def filled(byte: int) -> Any:
    return torch.full((1 << 20,), byte, dtype=torch.uint8, device="cuda")


def only(tensor: Any) -> set[int]:
    return set(torch.unique(tensor).tolist())


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, name: str) -> None:
    dtype = getattr(torch, name)
    whole = random_tensor(dtype, 6, 10)
    for version, saved in enumerate([whole, whole[::2, 1:], whole.T]):
        spool.save(version, saved)
        assert spool.regions(version)[0].dtype == name
        loaded = spool.load(version, to="torch")
        assert loaded.is_cuda and loaded.dtype == dtype and bits(loaded) == bits(saved)
        named = spool.load(version, to="torch", device=str(loaded.device))
        assert named.device == loaded.device and bits(named) == bits(saved)
        on_cpu = spool.load(version, to="torch", device="cpu")
        assert not on_cpu.is_cuda and bits(on_cpu) == bits(saved)
        target = torch.empty_like(whole)
        target = [target, target[::2, 1:], target.T][version]
        spool.restore(version, target)
        assert bits(target) == bits(saved)


def test_what_is_enqueued_before_is_saved_and_what_comes_after_is_not(
    spool: unspool.Spool,
) -> None:
    tensor = filled(0)
    spool.save(-1, tensor)
    for version, stream in enumerate([torch.cuda.Stream(), torch.cuda.default_stream()]):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            tensor.fill_(40 + version)
            spool.save(version, tensor)
            busy = not stream.query()
            tensor.fill_(1)
            spool.restore(version, tensor)
            doubled = tensor * 2
        assert busy
        assert only(doubled) == {80 + 2 * version}
        assert only(spool.load(version, to="torch")) == {40 + version}


def test_an_explicit_stream_is_used(spool: unspool.Spool) -> None:
    tensor, stream = filled(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    for version, given in enumerate([stream, stream.cuda_stream]):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            tensor.fill_(50 + version)
        spool.save(version, tensor, stream=given)
        with torch.cuda.stream(stream):
            tensor.fill_(2)
    stream.synchronize()
    assert only(spool.load(0, to="torch")) == {50} and only(spool.load(1, to="torch")) == {51}


def test_tensors_that_are_not_their_memory_are_refused(spool: unspool.Spool) -> None:
    with pytest.raises(unspool.errors.ArrayError, match=r"tensor\.detach\(\)"):
        spool.save(0, torch.zeros(3, device="cuda", requires_grad=True))
    conjugated = torch.full((3,), 1 + 2j, device="cuda").conj()
    with pytest.raises(unspool.errors.ArrayError, match=r"resolve_conj\(\)"):
        spool.save(0, conjugated)
    spool.save(0, conjugated.resolve_conj())
    assert (spool.load(0) == 1 - 2j).all()


def test_parameters_and_subclasses_are_taken(spool: unspool.Spool) -> None:
    parameter = torch.nn.Parameter(filled(9).float(), requires_grad=False)
    spool.save(0, parameter)
    parameter.zero_()
    spool.restore(0, parameter)
    assert only(parameter) == {9.0}


def test_a_stream_that_is_being_captured_is_refused(spool: unspool.Spool) -> None:
    tensor, graph = filled(3), torch.cuda.CUDAGraph()
    spool.save(0, tensor)
    with torch.cuda.graph(graph):
        with pytest.raises(unspool.errors.DeviceError, match="captured"):
            spool.save(1, tensor)
        tensor.add_(1)
    spool.save(1, tensor)
    assert only(spool.load(1, to="torch")) == {3}


def test_a_checkpoint_is_computed_in_place(spool: unspool.Spool) -> None:
    with spool.writing(0, (64, 64), torch.float32) as buffer:
        tensor = torch.from_dlpack(buffer)
        assert tensor.data_ptr() == buffer.ptr
        tensor.fill_(5)
    with spool.writing(1, (64, 64), "bfloat16", to="torch") as tensor:
        torch.cuda._sleep(50_000_000)
        tensor.fill_(6)
    with spool.reading(0, to="torch") as five, spool.reading(1, to="torch") as six:
        total = five + six
    assert only(total) == {11.0}
    other = torch.cuda.Stream()
    with torch.cuda.stream(other), spool.writing(2, (1 << 20,), torch.uint8, to="torch") as tensor:
        torch.cuda._sleep(50_000_000)
        tensor.fill_(7)
    assert only(spool.load(2, to="torch")) == {7}


def test_libraries_mix_on_the_gpu(spool: unspool.Spool) -> None:
    cupy = gpu_library("cupy")
    spool.save(0, torch.arange(12.0, device="cuda").reshape(3, 4))
    target = cupy.zeros((4, 3), "f4").T
    spool.restore(0, target)
    assert (target == cupy.arange(12).reshape(3, 4)).all()
    with spool.reading(0) as buffer:
        assert (cupy.asarray(buffer) == cupy.from_dlpack(torch.from_dlpack(buffer))).all()


def test_given_tensors_are_the_copies_and_go_back_in_stream_order() -> None:
    with unspool.Spool(device_memory="4MiB", host_memory="64MiB", device="cuda") as tiers:
        most = 0
        before = torch.cuda.memory_allocated()
        for version in range(40):
            tensor = filled(version)
            tiers.save(version, tensor, donate=True)
            del tensor
            # Whoever gets the memory next writes to it.
            filled(0xEE)
            most = max(most, torch.cuda.memory_allocated() - before)
        assert most <= 6 << 20
        for version in reversed(range(40)):
            assert only(tiers.load(version, to="torch")) == {version}
        tiers.clear()
        assert torch.cuda.memory_allocated() == before


def test_a_given_tensor_is_read_in_place() -> None:
    tensor = filled(3)
    with unspool.Spool(device_memory="4MiB", device="cuda") as tiers:
        tiers.save(0, tensor, donate=True)
        with tiers.reading(0, to="torch") as seen:
            assert seen.data_ptr() == tensor.data_ptr()
