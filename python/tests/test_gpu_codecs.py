"""Encoded histories on a real GPU, for each library: what it reconstructs is what the CPU does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, Spool, codecs
from unspool.codecs import NvComp, Zfp

from codec_arrays import BOUNDS, FLOATS, SHAPES, assert_holds, wave, with_specials
from helpers import gpu_library, same_bits

pytestmark = pytest.mark.gpu

BOUND = Bound(range=1e-3)


def _cupy() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray]]:
    cupy = gpu_library("cupy")
    return cupy.asarray, cupy.asnumpy


def _torch() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray]]:
    torch = gpu_library("torch")
    return lambda values: torch.from_numpy(values).cuda(), lambda tensor: tensor.cpu().numpy()


def _jax() -> tuple[Callable[[np.ndarray], Any], Callable[[Any], np.ndarray]]:
    jax = gpu_library("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.device_put, np.asarray


LIBRARIES = {"cupy": _cupy, "torch": _torch, "jax": _jax}


@pytest.fixture(autouse=True)
def device() -> Any:
    cupy = gpu_library("cupy")
    try:
        assert cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError as absent:
        pytest.skip(f"no CUDA device: {absent}")
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", False)


def expected(values: np.ndarray, codec: object = BOUND) -> np.ndarray:
    return codecs.decode(codecs.encode(values, codec))


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gets_what_the_cpu_reconstructs(library: str) -> None:
    put, get = LIBRARIES[library]()
    with Spool(
        device_memory="64MiB",
        host_memory="64MiB",
        device="cuda",
        codec=BOUND,
        debug=unspool.Debug(check_order=True),
    ) as spool:
        for version, (dtype, shape) in enumerate((d, s) for d in FLOATS for s in SHAPES):
            values = with_specials(wave(shape, dtype, version), version)
            spool.save(version, put(values))
            found = get(spool.load(version, to=library))
            assert same_bits(np.asarray(found), expected(values)), (dtype, shape)
            assert_holds(values, np.asarray(found), BOUND)


@pytest.mark.parametrize("codec", [*BOUNDS, "lossless", Zfp(rate=8), Zfp(rate=11)], ids=repr)
def test_every_codec_gives_the_bits_and_bytes_of_the_cpu(codec: Any) -> None:
    cupy = gpu_library("cupy")
    with Spool(device_memory="256MiB", device="cuda", codec=codec) as spool:
        for version, shape in enumerate([(1 << 20,), (1601, 401), (60, 70, 80)]):
            for dtype in ("float32", "float64"):
                values = wave(shape, dtype, version)
                spool.save(version, cupy.asarray(values))
                target = cupy.zeros(shape, dtype)
                spool.restore(version, target)
                assert same_bits(cupy.asnumpy(target), expected(values, codec))
                one, wanted = spool.achieved(version)["0"], codecs.encode(values, codec)
                assert one.stored_bytes == wanted.nbytes
                if one.max_error is not None:
                    assert one.max_error == wanted.achieved.max_error
                spool.discard(version)


def test_a_sweep_with_pending_saves_comes_back(tmp_path: Path) -> None:
    cupy = gpu_library("cupy")
    steps, shape = int(os.environ.get("UNSPOOL_GPU_STEPS", "400")), (512, 512)
    u = cupy.asarray(wave(shape, "float32"))
    options = {"device_memory": "24MiB", "host_memory": "32MiB", "disk": tmp_path, "device": "cuda"}
    with Spool(**options, codec=BOUND) as spool:
        spool.expect(reversed(range(steps)), once=True)
        for step in range(steps):
            u *= np.float32(1.001)
            spool.save(step, u)
        again = cupy.zeros_like(u)
        for step in reversed(range(steps)):
            spool.restore(step, again)
            span = float(cupy.ptp(u))
            assert float(cupy.abs(again - u).max()) <= 1.2e-3 * span
            u /= np.float32(1.001)
        stats = spool.stats()
    assert stats.restores == steps and stats.codec.ratio > 3
    assert stats.codec.max_error > 0


def test_strided_arrays_and_streams_of_ones_own() -> None:
    cupy = gpu_library("cupy")
    whole = wave((200, 300), "float32")
    with Spool(
        device_memory="64MiB", device="cuda", codec=BOUND, debug=unspool.Debug(check_order=True)
    ) as spool:
        for version, cut in enumerate([np.s_[::2], np.s_[:, 3:70], np.s_[::-1, ::-3]]):
            with cupy.cuda.Stream(non_blocking=True):
                spool.save(version, cupy.asarray(whole)[cut])
                target = cupy.zeros_like(cupy.asarray(whole))[cut]
                spool.restore(version, target)
                found = cupy.asnumpy(target)
            dense = np.ascontiguousarray(whole[cut])
            assert same_bits(np.ascontiguousarray(found), expected(dense))


def test_small_checkpoints_are_many_and_all_of_them_come_back() -> None:
    cupy = gpu_library("cupy")
    values = [wave((64, 64), "float32", seed) for seed in range(8)]
    arrays = [cupy.asarray(one) for one in values]
    wanted = [cupy.asarray(expected(one)) for one in values]
    with Spool(device_memory="64MiB", device="cuda", codec=BOUND) as spool:
        for version in range(2000):
            spool.save(version, arrays[version % 8])
        target = cupy.zeros_like(arrays[0])
        for version in reversed(range(2000)):
            spool.restore(version, target)
            assert bool((target == wanted[version % 8]).all()), version


def test_check_codec_finds_nothing_wrong() -> None:
    cupy = gpu_library("cupy")
    for codec in ("lossless", *BOUNDS):
        with Spool(
            device_memory="64MiB", device="cuda", codec=codec, debug=unspool.Debug(check_codec=True)
        ) as spool:
            spool.save(0, cupy.asarray(wave((500, 600), "float32")))
            assert spool.achieved(0)["0"].codec == "twine"


@pytest.mark.parametrize("name", ["bitcomp", "ans", "lz4", "cascaded", "gdeflate", "zstd"])
def test_nvcomp_brings_back_every_bit(name: str, tmp_path: Path) -> None:
    cupy = gpu_library("cupy")
    values = [np.round(8 * wave((60, 70, 80), "float32", seed)) for seed in range(8)]
    options: dict[str, Any] = {
        "device_memory": "5MiB",
        "host_memory": "5MiB",
        "disk": unspool.Disk(tmp_path),
    }
    with Spool(
        **options, device="cuda", codec=NvComp(name), debug=unspool.Debug(check_codec=True)
    ) as spool:
        try:
            spool.save(0, cupy.asarray(values[0]))
        except unspool.errors.ArrayError as why:
            pytest.skip(f"no nvCOMP with this codec: {why}")
        for version, one in enumerate(values[1:], 1):
            spool.save(version, cupy.asarray(one))
        for version, one in reversed(list(enumerate(values))):
            target = cupy.zeros_like(cupy.asarray(one))
            spool.restore(version, target)
            assert same_bits(cupy.asnumpy(target), one)
            assert same_bits(np.asarray(spool.load(version)), one)
            assert spool.achieved(version)["0"].codec == "nvcomp"
