"""`unspool.jax` on a GPU: the same gradients, through main memory and a device tier."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import unspool

from helpers import gpu_library

jax = gpu_library("jax")

import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402
from unspool.advice.segments import ScanReport, Way, least  # noqa: E402

from jax_programs import (  # noqa: E402
    ROWS,
    START,
    WEIGHT,
    close,
    exact,
    gradients,
    nested,
    network,
    wave,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def device() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no CUDA device")


@pytest.fixture(params=[False, True], ids=["32 bits", "64 bits"])
def wide(request: pytest.FixtureRequest) -> Any:
    jax.config.update("jax_enable_x64", request.param)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("program", [wave, network, nested])
@pytest.mark.parametrize("every", [1, 4])
def test_scan(gpu_spool: unspool.Spool, wide: None, program: Any, every: int) -> None:
    given = [jnp.asarray(v, float) for v in (jnp.tile(WEIGHT, 40), jnp.tile(START, 40), ROWS)]
    found = gradients(program, partial(loops.scan, spool=gpu_spool, segment=every), *given)
    assert close(found, gradients(program, jax.lax.scan, *given), 1e-4)


def test_scan_within_budgets() -> None:
    given = jnp.tile(WEIGHT, 40), jnp.tile(START, 40), ROWS
    expected = gradients(wave, jax.lax.scan, *given)
    seen: list[ScanReport] = []
    gradients(wave, partial(loops.scan, report=seen.append), *given)
    lowest = least(seen[0].sizes, (Way.RECOMPUTE, Way.SPOOL))
    for budget in (seen[0].kept_bytes * 2 // 3, lowest):
        found = gradients(wave, partial(loops.scan, budget=budget, report=seen.append), *given)
        assert close(found, expected, 1e-4)
    assert [each.cut.way for each in seen] == list(Way)


def test_states_of_some_size_come_back_with_their_bits(gpu_spool: unspool.Spool) -> None:
    given = [jnp.arange(50_000.0) % 5, jnp.arange(50_000.0) % 7 - 3, jnp.arange(80.0) % 3 - 1]
    found = gradients(exact, partial(loops.scan, spool=gpu_spool, segment=1), *given)
    expected = gradients(exact, jax.lax.scan, *given)
    assert jnp.array_equal(found[1][1], expected[1][1])


@pytest.mark.parametrize(("items", "saves"), [(8_192, 10), (500_000, 20), (1_200_000, 80)])
def test_small_states_are_saved_together(items: int, saves: int) -> None:
    # Of 32 KiB eight, of 2 MB four, and of 4.8 MB one.
    given = [jnp.arange(items) % 3 - 1.0, jnp.arange(items) % 7 - 3.0, jnp.arange(80.0) % 3 - 1]

    def last(scan: Any) -> Any:
        step = lambda u, x: (given[0] * x - u * jnp.sign(u), None)  # noqa: E731
        return jax.jit(jax.grad(lambda u: scan(step, u, given[2])[0].sum()))(given[1])

    with unspool.Spool(host_memory="512MiB", device="cuda") as spool:
        found = last(partial(loops.scan, spool=spool, segment=1))
        assert jnp.array_equal(found, last(jax.lax.scan))
        assert spool.stats().saves == saves and len(spool) == 0


@pytest.mark.parametrize("every", [1, 4])
def test_while_loop(gpu_spool: unspool.Spool, wide: None, every: int) -> None:
    def taken(u: Any) -> Any:
        going = lambda u: jnp.abs(u).sum() < 1e3  # noqa: E731
        options = {"spool": gpu_spool, "segment": every}
        return loops.while_loop(going, lambda u: u * (1.1 + 0.01 * jnp.sin(u)), u, **options).sum()

    def plain(u: Any) -> Any:
        while bool(jnp.abs(u).sum() < 1e3):
            u = u * (1.1 + 0.01 * jnp.sin(u))
        return u.sum()

    start = jnp.asarray(START, float)
    assert close(jax.jit(jax.grad(taken))(start), jax.grad(plain)(start), 1e-4)


def test_residuals_that_are_alive_at_once_and_histories_of_one_place(
    gpu_spool: unspool.Spool,
) -> None:
    compiled = jax.jit(partial(wave, partial(loops.scan, spool=gpu_spool, segment=1)))
    plain = jax.grad(partial(wave, jax.lax.scan), argnums=(0, 1, 2))
    pulls = [(f, jax.vjp(compiled, f * WEIGHT, START, ROWS)[1]) for f in (1.0, -1.0, 0.5)]
    for factor, pull in pulls:
        assert close(pull(1.0), plain(factor * WEIGHT, START, ROWS), 1e-4)

    def through_both(scan: Any) -> Any:
        part = jax.jit(lambda u: scan(lambda u, x: (jnp.sin(u * WEIGHT + x), None), u, ROWS)[0])
        return jax.jit(jax.grad(lambda u: (part(part(u)) * part(u) * part(-u)).sum()))(START)

    expected = through_both(jax.lax.scan)
    assert close(through_both(partial(loops.scan, spool=gpu_spool, segment=1)), expected, 1e-4)


def test_vmap(gpu_spool: unspool.Spool) -> None:
    lanes = jnp.stack([START, START * 2])

    def taken(scan: Any) -> Any:
        return jax.jit(jax.vmap(jax.grad(partial(wave, scan), argnums=1), (None, 0, None)))(
            WEIGHT, lanes, ROWS
        )

    assert close(taken(partial(loops.scan, spool=gpu_spool, segment=1)), taken(jax.lax.scan), 1e-4)


def test_a_full_spool_is_an_error_that_leaves_nothing() -> None:
    start = jnp.ones(100_000)
    with unspool.Spool(host_memory="2MiB", device="cuda", timeout=5) as small:
        taken = jax.jit(
            jax.grad(lambda w: wave(partial(loops.scan, spool=small, segment=1), w, start, ROWS))
        )
        with pytest.raises(Exception, match="There is no room for version"):
            jax.block_until_ready(taken(start))
        assert len(small) == 0
