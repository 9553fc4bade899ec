"""Arrays of JAX on the CPU: they are read in place and never written."""

from __future__ import annotations

import numpy as np
import pytest
import unspool

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

DTYPES = """bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 complex64
    float8_e3m4 float8_e4m3 float8_e4m3fn float8_e4m3b11fnuz float8_e5m2 float8_e8m0fnu
    float4_e2m1fn""".split()
WIDE = ["int64", "uint64", "float64", "complex128"]


@pytest.fixture(autouse=True)
def wide_dtypes():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("dtype", DTYPES + WIDE)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, dtype: str) -> None:
    if not hasattr(jnp, dtype):
        pytest.skip(f"this JAX has no {dtype}")
    saved = jnp.arange(12).reshape(3, 4).astype(dtype)
    spool.save(0, saved)
    assert spool.regions(0)[0].dtype == dtype
    for to in ("jax", "numpy"):
        loaded = spool.load(0, to=to)
        assert loaded.dtype == saved.dtype and loaded.shape == (3, 4)
        assert np.asarray(loaded).tobytes() == np.asarray(saved).tobytes()
    assert isinstance(spool.load(0, to="jax"), jax.Array)


def test_a_jax_array_is_no_target_and_the_error_says_what_is(spool: unspool.Spool) -> None:
    for version, dtype in enumerate(["float32", "bfloat16", "int4"]):
        array = jnp.zeros((2, 3), dtype)
        spool.save(version, array)
        with pytest.raises(unspool.errors.ArrayError, match='to="jax"'):
            spool.restore(version, array)


def test_shapes_without_items_and_without_axes(spool: unspool.Spool) -> None:
    spool.save(0, jnp.float32(2.5), jnp.zeros((0, 3)), jnp.zeros((2, 1, 3, 1, 2)))
    scalar, empty, deep = spool.load(0, to="jax")
    assert scalar == 2.5 and empty.shape == (0, 3) and deep.shape == (2, 1, 3, 1, 2)


def test_a_result_that_is_still_being_computed_is_awaited(spool: unspool.Spool) -> None:
    step = jax.jit(lambda a: jax.lax.fori_loop(0, 60, lambda _, x: x @ x * 1e-3 + 1, a))
    start = jnp.ones((400, 400), "float32")
    for version, dtype in enumerate(["float32", "bfloat16"]):
        result = step(start).astype(dtype)
        spool.save(version, result)
        assert np.array_equal(np.asarray(result), spool.load(version))


def test_jax_without_wide_dtypes_does_not_halve_them(spool: unspool.Spool) -> None:
    spool.save(0, np.full(3, 1 / 3))
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(unspool.errors.ArrayError, match="jax_enable_x64"):
        spool.load(0, to="jax")
    jax.config.update("jax_enable_x64", True)
    assert (spool.load(0, to="jax") == 1 / 3).all()


def test_what_jax_cannot_hold_is_refused(spool: unspool.Spool) -> None:
    spool.save(0, np.zeros(3, "M8[s]"))
    with pytest.raises(unspool.errors.ArrayError, match="numpy"):
        spool.load(0, to="jax")


def test_numpy_targets_take_what_jax_saved(spool: unspool.Spool) -> None:
    spool.save(0, jnp.arange(6.0, dtype="float32").reshape(2, 3))
    target = np.zeros((3, 2), "f4").T
    spool.restore(0, target)
    assert (target == np.arange(6).reshape(2, 3)).all()


def test_a_traced_array_is_refused(spool: unspool.Spool) -> None:
    def traced(array):
        with pytest.raises(unspool.errors.ArrayError):
            spool.save(0, array)
        return array

    jax.jit(traced)(jnp.zeros(3))
    assert spool.versions() == []
