"""Arrays of Numba on a real GPU: the CUDA array interface as others speak it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import unspool

from helpers import gpu_library, same_bits

cuda = gpu_library("numba.cuda")
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    if not cuda.is_available():
        pytest.skip("Numba sees no CUDA device")
    with unspool.Spool(
        device_memory="64MiB",
        host_memory="64MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


def numbers() -> np.ndarray:
    return np.arange(4096, dtype="f4").reshape(64, 64)


def test_arrays_come_back_with_their_bits(spool: unspool.Spool) -> None:
    for version, cut in enumerate([np.s_[:], np.s_[::2], np.s_[3:9, 5:50]]):
        spool.save(version, cuda.to_device(numbers())[cut])
        target = cuda.to_device(np.zeros((64, 64), "f4"))[cut]
        spool.restore(version, target)
        cuda.synchronize()
        expected = np.ascontiguousarray(numbers()[cut])
        assert same_bits(spool.load(version), expected)
        spool.save(100 + version, target)
        assert same_bits(spool.load(100 + version), expected)


def test_streams_of_numba_are_taken(spool: unspool.Spool) -> None:
    stream = cuda.stream()
    array = cuda.to_device(numbers(), stream=stream)
    spool.save(0, array, stream=stream)
    target = cuda.device_array((64, 64), "f4", stream=stream)
    spool.restore(0, target, stream=stream)
    assert same_bits(target.copy_to_host(stream=stream), numbers())


def test_numba_computes_in_the_memory_of_the_spool(spool: unspool.Spool) -> None:
    with spool.writing(0, (64, 64), "f4") as buffer:
        cuda.as_cuda_array(buffer).copy_to_device(numbers())
    assert same_bits(spool.load(0), numbers())
    with spool.reading(0) as buffer:
        assert same_bits(cuda.as_cuda_array(buffer).copy_to_host(), numbers())
