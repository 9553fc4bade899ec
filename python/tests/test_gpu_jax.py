"""Arrays of JAX on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import unspool

from helpers import gpu_library

jax = gpu_library("jax")
jnp = gpu_library("jax.numpy")
pytestmark = pytest.mark.gpu

DTYPES = """bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16
    float32 float64 complex64 complex128 float8_e4m3fn float8_e5m2""".split()


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no CUDA device")
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def spool() -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="64MiB",
        host_memory="64MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


def on_gpu(array: Any) -> bool:
    return all(place.platform == "gpu" for place in array.devices())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, dtype: str) -> None:
    saved = jnp.arange(12).reshape(3, 4).astype(dtype)
    assert on_gpu(saved)
    spool.save(0, saved)
    assert spool.regions(0)[0].dtype == dtype
    for to in ("jax", "numpy"):
        loaded = spool.load(0, to=to)
        assert loaded.dtype == saved.dtype and loaded.shape == (3, 4)
        assert np.asarray(loaded).tobytes() == np.asarray(saved).tobytes()
    assert on_gpu(spool.load(0, to="jax"))
    assert on_gpu(spool.load(0, to="jax", device="cuda:0"))
    assert not on_gpu(spool.load(0, to="jax", device="cpu"))


def test_a_result_that_is_still_being_computed_is_saved(spool: unspool.Spool) -> None:
    step = jax.jit(lambda a: jax.lax.fori_loop(0, 200, lambda _, x: x @ x * 1e-3 + 1, a))
    start = jnp.ones((1000, 1000), "float32")
    for version in range(4):
        result = step(start + version)
        spool.save(version, result)
        expected = np.asarray(result)
        del result
        assert np.array_equal(expected, spool.load(version))


def test_what_is_loaded_is_used_at_once(spool: unspool.Spool) -> None:
    spool.save(0, jnp.arange(1 << 20, dtype="float32"))
    doubled = spool.load(0, to="jax") * 2
    assert (doubled == 2 * jnp.arange(1 << 20)).all()


def test_arrays_that_are_dropped_at_once_are_saved_whole(spool: unspool.Spool) -> None:
    for version in range(50):
        spool.save(version, jnp.full(100_000, version, "int32"))
    for version in range(50):
        assert (spool.load(version) == version).all()


def test_a_jax_array_is_no_target(spool: unspool.Spool) -> None:
    spool.save(0, jnp.zeros(3, "float32"))
    with pytest.raises(unspool.errors.ArrayError, match='to="jax"'):
        spool.restore(0, jnp.zeros(3, "float32"))


def test_a_checkpoint_is_read_in_place(spool: unspool.Spool) -> None:
    spool.save(0, jnp.arange(12, dtype="float32"))
    with spool.reading(0, to="jax") as array:
        total = jax.block_until_ready(array + 1)
    assert (total == jnp.arange(1, 13)).all()
