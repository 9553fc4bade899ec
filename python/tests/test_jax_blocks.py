"""States of `unspool.jax` that are saved together: how many are in a block, and that gradients do
not know of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import unspool
from unspool import Bound
from unspool.codecs import Zfp

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402
from unspool.jax import _states  # noqa: E402

from jax_programs import START, WEIGHT, close, exact, gradients, same, wave  # noqa: E402


@pytest.fixture
def spool() -> Any:
    with unspool.Spool(host_memory="64MiB") as opened:
        yield opened
        assert len(opened) == 0


def whole_numbers(length: int) -> tuple[Any, Any, Any]:
    """The arguments of `exact`: XLA fuses different programs in different ways, so that only where
    nothing is rounded bits can be compared."""
    return jnp.arange(6.0) % 3 - 1, jnp.arange(6.0) - 3, jnp.arange(float(length)) % 3 - 1


#: Steps, steps in a segment, and the saves that this takes: blocks are of eight states, or of five
#: to seven where these divide all of them.
CUTS = [
    (0, 1, 0),
    (1, 1, 1),
    (1, 3, 1),
    (5, 1, 1),
    (8, 1, 1),
    (9, 1, 2),
    (12, 1, 2),
    (13, 1, 2),
    (20, 1, 4),
    (24, 1, 3),
    (8, 2, 1),
    (22, 3, 1),
    (27, 3, 2),
    (28, 3, 2),
    (40, 2, 4),
    (19, 50, 1),
]


@pytest.mark.parametrize(("length", "every", "saves"), CUTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_has_the_bits_of_lax_scan_and_saves_blocks(
    spool: unspool.Spool, length: int, every: int, saves: int, reverse: bool
) -> None:
    given = whole_numbers(length)
    scan = partial(loops.scan, spool=spool, segment=every, reverse=reverse)
    found = gradients(exact, scan, *given)
    assert same(found, gradients(exact, partial(jax.lax.scan, reverse=reverse), *given))
    # Each state is there, and none twice.
    states = -(-length // every)
    stats = spool.stats()
    assert (stats.saves, stats.saved_bytes) == (saves, states * START.nbytes)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(("every", "unroll"), [(1, 1), (1, 3), (1, True), (2, 5), (3, 1), (3, 0)])
def test_blocks_of_other_sizes_give_the_same_bits(
    spool: unspool.Spool, monkeypatch: pytest.MonkeyPatch, most: int, every: int, unroll: int
) -> None:
    given, options = whole_numbers(17), {"spool": spool, "segment": every, "unroll": unroll}
    expected = jax.block_until_ready(gradients(exact, partial(loops.scan, **options), *given))
    together = spool.stats().saves
    monkeypatch.setattr(_states, "MOST", most)
    assert same(gradients(exact, partial(loops.scan, **options), *given), expected)
    apart = spool.stats().saves - together
    assert apart > together and (most > 1 or apart == -(-17 // every))


@pytest.mark.parametrize("unroll", [-1, "two"])
def test_an_unroll_that_makes_no_sense_is_refused_as_by_jax(
    spool: unspool.Spool, unroll: Any
) -> None:
    with pytest.raises((ValueError, TypeError)):
        gradients(wave, partial(loops.scan, spool=spool, segment=1, unroll=unroll))


@pytest.mark.parametrize("steps", [0, 1, 7, 8, 9, 21])
@pytest.mark.parametrize("most", [None, 3, 40])
def test_while_loop_saves_blocks(spool: unspool.Spool, steps: int, most: int | None) -> None:
    taken = steps if most is None else min(steps, most)

    def last(weight: Any, start: Any) -> Any:
        body = lambda c: (c[0] + 1, weight * jnp.abs(c[1]) - 1)  # noqa: E731
        going = lambda c: c[0] < steps  # noqa: E731
        return loops.while_loop(going, body, (0, start), spool=spool, max_steps=most)[1].sum()

    def plain(weight: Any, start: Any) -> Any:
        body = lambda u, _: (weight * jnp.abs(u) - 1, None)  # noqa: E731
        return jax.lax.scan(body, start, None, taken)[0].sum()

    weight, start, _ = whole_numbers(1)
    found = jax.jit(jax.grad(last, argnums=(0, 1)))(weight, start)
    assert same(found, jax.jit(jax.grad(plain, argnums=(0, 1)))(weight, start))
    size, stats = min(most or 8, 8), spool.stats()
    assert stats.saves == -(-taken // size)
    # Blocks have room for all of their states, the last one too. Arrays begin at multiples of 64.
    padding = stats.saved_bytes - stats.saves * size * (start.nbytes + 4)
    assert 0 <= padding <= stats.saves * 128


def steps_of(scan: Any, items: int, steps: int = 16) -> Any:
    """The gradient of a loop whose state is an array of `items` numbers."""
    start, rows = jnp.ones(items), jnp.ones(steps)
    body = lambda u, x: (u - 1e-3 * u * u * x, None)  # noqa: E731
    taken = jax.jit(jax.grad(lambda u: scan(body, u, rows)[0].sum()))
    return jax.block_until_ready(taken(start))


@pytest.mark.parametrize(("items", "saves"), [(10_000, 4), (32_768, 8), (32_769, 16)])
def test_the_bytes_of_a_block_are_bounded(spool: unspool.Spool, items: int, saves: int) -> None:
    # 256 KiB on the host; six states of 40,000 bytes do not divide the sixteen.
    found = steps_of(partial(loops.scan, spool=spool, segment=1), items)
    assert close(found, steps_of(jax.lax.scan, items))
    assert spool.stats().saves == saves


def test_a_block_is_small_beside_the_smallest_tier(tmp_path: Any) -> None:
    with unspool.Spool(device_memory="256KiB", host_memory="64MiB", device="cpu") as spool:
        # A sixteenth are four states.
        steps_of(partial(loops.scan, spool=spool, segment=1), 1024)
        assert spool.stats().saves == 4
    with unspool.Spool(host_memory="16KiB", disk=tmp_path) as spool:
        steps_of(partial(loops.scan, spool=spool, segment=1), 1024)
        assert spool.stats().saves == 16


KEEP = [None, "raw", "lossless", "auto", Bound(abs=1e-6), Bound(pointwise=1e-6)]
SPREAD = [Bound(range=1e-6), Bound(rms=1e-6), Bound(psnr=120), Bound(l2=1e-6), Zfp(precision=24)]
MIXED = [({"*": "lossless", 0: Bound(abs=1e-6)}, 2), ({"*": None, 0: Bound(range=1e-6)}, 16)]
CODECS = [*((codec, 2) for codec in KEEP), *((codec, 16) for codec in SPREAD), *MIXED]


@pytest.mark.parametrize(("codec", "saves"), CODECS, ids=str)
@pytest.mark.parametrize("of", ["loop", "spool"])
def test_what_a_codec_does_to_an_array_it_does_to_a_state(codec: Any, saves: int, of: str) -> None:
    options = {"codec": codec} if of == "loop" else {}
    if codec == "raw" and of == "spool":
        codec = None
    with unspool.Spool(host_memory="64MiB", **({"codec": codec} if of == "spool" else {})) as spool:
        found = steps_of(partial(loops.scan, spool=spool, segment=1, **options), 1024)
        assert close(found, steps_of(jax.lax.scan, 1024), 1e-5)
        assert spool.stats().saves == saves


def test_the_codec_of_a_loop_goes_before_that_of_its_spool() -> None:
    with unspool.Spool(host_memory="64MiB", codec=Bound(range=1e-3)) as spool:
        steps_of(partial(loops.scan, spool=spool, segment=1, codec="lossless"), 1024)
        assert spool.stats().saves == 2


def mixed(scan: Any, start: Any, rows: Any) -> Any:
    """A carry of many kinds of leaves."""

    def step(carry: Any, x: Any) -> Any:
        key, draw = jax.random.split(carry["key"])
        drawn = jax.random.bernoulli(draw, 0.5, start.shape)
        u = jnp.where(drawn, jnp.sin(carry["u"] + x), carry["half"].astype(float) * carry["scale"])
        return {
            **carry,
            "u": u,
            "half": (0.5 * u).astype(jnp.bfloat16),
            "scale": carry["scale"] * 0.9,
            "seen": carry["seen"] | drawn,
            "small": carry["small"] + jnp.int8(1),
            "key": key,
        }, (u.sum(), carry["small"], carry["empty"])

    carry = {
        "u": start,
        "half": jnp.ones(start.shape, jnp.bfloat16),
        "scale": 1.0,
        "seen": jnp.zeros(start.shape, bool),
        "small": jnp.int8(3),
        "key": jax.random.split(jax.random.key(7), 2)[0],
        "empty": jnp.zeros((0, 3)),
        "none": None,
    }
    carry, (sums, small, _) = scan(step, carry, rows)
    return (carry["u"] ** 2).sum() + (sums * small).sum() * jnp.where(carry["seen"].any(), 1, 2)


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("lanes", [False, True])
def test_carries_of_many_kinds(spool: unspool.Spool, every: int, lanes: bool) -> None:
    rows = jnp.linspace(-1.0, 1.0, 21)

    def taken(scan: Any) -> Any:
        gradient = jax.grad(partial(mixed, scan), argnums=(0, 1))
        if lanes:
            return jax.jit(jax.vmap(gradient, (0, None)))(jnp.stack([START, -START]), rows)
        return jax.jit(gradient)(START, rows)

    assert close(taken(partial(loops.scan, spool=spool, segment=every)), taken(jax.lax.scan), 1e-5)
    assert spool.stats().saves == (3 if every == 1 else 2)


def test_a_loop_in_a_block_has_blocks_of_its_own(spool: unspool.Spool) -> None:
    def last(scan: Any, weight: Any, rows: Any) -> Any:
        within = lambda u, x: (jnp.sin(u * weight + x), None)  # noqa: E731
        step = lambda u, x: (scan(within, u, rows * x)[0], None)  # noqa: E731
        return scan(step, START, rows)[0].sum()

    def taken(scan: Any) -> Any:
        return jax.jit(jax.grad(partial(last, scan), argnums=(0, 1)))(WEIGHT, jnp.ones(9) / 3)

    assert close(taken(partial(loops.scan, spool=spool, segment=1)), taken(jax.lax.scan))
    # Nine steps are two blocks; the inner loop saves in each step, when that is taken again.
    assert spool.stats().saves == 2 + 9 * 2
