"""`unspool.jax.while_loop` under `jax.vmap` with a predicate that is mapped over: lanes that take
different numbers of steps have the values of `jax.lax.while_loop`, and the gradients that each of
them has alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import unspool

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from unspool.errors import OptionError  # noqa: E402

from jax_programs import (  # noqa: E402
    LANES,
    WEIGHT,
    by_lane,
    close,
    growing,
    masked,
    python_loop,
    same,
)


@pytest.fixture
def spool() -> Any:
    with unspool.Spool(host_memory="64MiB") as opened:
        yield opened
        assert len(opened) == 0


@pytest.mark.parametrize(("every", "most"), [(1, None), (50, None), (3, 5)])
def test_gradients_are_those_of_each_lane(spool: unspool.Spool, every: int, most: Any) -> None:
    loop = partial(loops.while_loop, spool=spool, segment=every, max_steps=most)
    taken = lambda loop: jax.value_and_grad(partial(growing, loop), argnums=(0, 1))  # noqa: E731
    weights = jnp.stack([WEIGHT, -WEIGHT, 2 * WEIGHT, WEIGHT])
    found = jax.jit(jax.vmap(taken(loop)))(weights, LANES)
    alone = jax.jit(taken(partial(masked, max_steps=most)))
    assert close(found, by_lane(alone, weights, LANES), 1e-5)


def test_each_order_of_transformations(spool: unspool.Spool) -> None:
    def grown(loop: Any, weight: Any, start: Any) -> Any:
        body = lambda u: u * (1.2 + 0.1 * jnp.cos(u * weight))  # noqa: E731
        return (loop(lambda u: jnp.abs(u).sum() < 30.0, body, start) ** 2).sum()

    loss = partial(grown, partial(loops.while_loop, spool=spool, segment=3))
    alone = partial(jax.jit(jax.grad(partial(grown, masked), argnums=(0, 1))), WEIGHT)
    of_weight, of_lanes = by_lane(alone, LANES)
    inner = lambda f, axes: jax.vmap(jax.jit(f), axes)  # noqa: E731
    for vmap in (jax.vmap, inner):
        each = vmap(loss, (None, 0))
        total = lambda *given, each=each: each(*given).sum()  # noqa: E731
        found = jax.jit(jax.grad(total, argnums=(0, 1)))(WEIGHT, LANES)
        assert close(found, (of_weight.sum(0), of_lanes), 1e-5)
    assert close(jax.grad(total, argnums=1)(WEIGHT, LANES), of_lanes, 1e-5)
    each = jax.vmap(jax.checkpoint(jax.grad(loss, argnums=(0, 1))), (None, 1))
    assert close(jax.jit(each)(WEIGHT, LANES.T), (of_weight, of_lanes), 1e-5)


#: Of the arguments of the loop below, in one lane.
RANKS = [(0, 0), (1, 1), (2, 1)]
LIMIT, FIRST, FACTOR = (0, None, None), (None, 0, None), (None, None, 0)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(LIMIT, FIRST), (FIRST, LIMIT), (LIMIT, FACTOR), (FACTOR, LIMIT)],
    ids=["both", "both, the other way", "outer", "inner"],
)
def test_lanes_of_lanes_by_which_of_them_end_apart(
    spool: unspool.Spool, outer: Any, inner: Any
) -> None:
    def loss(loop: Any, limit: Any, first: Any, factor: Any) -> Any:
        body = lambda carry: (carry[0] * 1.5, jnp.sin(carry[1] * factor) + carry[0])  # noqa: E731
        return (loop(lambda carry: carry[0].sum() < limit, body, (first, factor))[1] ** 2).sum()

    ends = [jnp.array([30.0, 8.0, 1.0]), jnp.array([[1.0, 2.0], [0.1, 0.5]]), jnp.ones((2, 2, 2))]
    ends[2] = ends[2] * jnp.arange(1.0, 3).reshape(2, 1, 1)
    # Those that are not mapped over are those of the first lane.
    ranks = [n + sum(axes[place] is not None for axes in (outer, inner)) for place, n in RANKS]
    given = [each[(0,) * (each.ndim - rank)] for each, rank in zip(ends, ranks, strict=True)]

    def taken(loop: Any) -> Any:
        gradient = jax.grad(partial(loss, loop), argnums=(1, 2))
        return jax.jit(jax.vmap(jax.vmap(gradient, inner), outer))(*given)

    assert close(taken(partial(loops.while_loop, spool=spool)), taken(masked), 1e-5)


@pytest.mark.parametrize("every", [1, 2])
def test_whole_numbers_have_the_bits_of_each_lane(spool: unspool.Spool, every: int) -> None:
    def loss(loop: Any, weight: Any, count: Any) -> Any:
        body = lambda carry: (carry[0] - 1, weight - carry[1] * jnp.sign(carry[1]))  # noqa: E731
        return loop(lambda carry: carry[0] > 0, body, (count, jnp.arange(6.0) - 3))[1].sum()

    counts, weight = jnp.array([0, 1, 17, 5]), jnp.arange(6.0) % 3 - 1
    taken = lambda loop: jax.value_and_grad(partial(loss, loop))  # noqa: E731
    ours = taken(partial(loops.while_loop, spool=spool, segment=every))
    found = jax.jit(jax.vmap(ours, (None, 0)))(weight, counts)
    assert same(found, by_lane(partial(taken(python_loop), weight), counts))
    # A block has eight states of all lanes.
    assert spool.stats().saves == (3 if every == 1 else 9)


def test_what_a_lane_computes_after_its_end_is_in_no_gradient(spool: unspool.Spool) -> None:
    # A step on a carry that has ended divides by zero, and takes the root of a negative number.
    def loss(loop: Any, weight: Any, start: Any) -> Any:
        def body(carry: Any) -> Any:
            u, v = carry
            return u - 1, v * weight + jnp.sqrt(u - 0.5) / u

        return loop(lambda carry: carry[0] > 0, body, (start, weight))[1]

    lanes, weight = jnp.array([0.0, 1.0, 4.0, 2.0]), jnp.float32(0.9)
    expected = by_lane(
        partial(jax.value_and_grad(partial(loss, python_loop), argnums=(0, 1)), weight), lanes
    )
    assert all(jnp.isfinite(each).all() for each in jax.tree.leaves(expected))
    for every in (1, 2):
        ours = partial(loss, partial(loops.while_loop, spool=spool, segment=every))
        taken = jax.value_and_grad(ours, argnums=(0, 1))
        assert close(jax.jit(jax.vmap(taken, (None, 0)))(weight, lanes), expected)
        each = jax.vmap(ours, (None, 0))
        total = lambda weight, each=each: each(weight, lanes).sum()  # noqa: E731
        assert close(jax.jit(jax.grad(total))(weight), expected[1][0].sum())


def test_loops_in_loops_of_lanes(spool: unspool.Spool) -> None:
    def loss(loop: Any, scan: Any, start: Any) -> Any:
        def body(carry: Any) -> Any:
            n, u = carry
            # The inner loop has another length in each step of each lane.
            v = loop(lambda c: jnp.abs(c[1]).sum() < 9.0, lambda c: (c[0] + 1, c[1] * 1.4), (0, u))[
                1
            ]
            v, _ = scan(lambda v, x: (jnp.sin(v) + x, None), v, jnp.arange(3.0) / 9)
            return n + 1, 0.9 * v

        return loop(lambda c: (c[0] < 3) & (c[1].sum() < 60.0), body, (0, start))[1].sum()

    lanes = jnp.stack([jnp.full(3, 30.0), jnp.ones(3), jnp.full(3, 0.3)])
    ours = partial(loops.while_loop, spool=spool), partial(loops.scan, spool=spool, segment=1)
    found = jax.jit(jax.vmap(jax.value_and_grad(partial(loss, *ours))))(lanes)
    expected = by_lane(jax.jit(jax.value_and_grad(partial(loss, masked, jax.lax.scan))), lanes)
    assert close(found, expected, 1e-5)


def test_several_cotangents_of_lanes(spool: unspool.Spool) -> None:
    def last(loop: Any, start: Any) -> Any:
        return loop(lambda u: u.sum() < 30.0, lambda u: u * (1.2 + 0.1 * jnp.cos(u)), start)

    found = jax.jit(jax.vmap(jax.jacrev(partial(last, partial(loops.while_loop, spool=spool)))))
    lanes = jnp.abs(LANES)
    assert close(found(lanes), by_lane(jax.jit(jax.jacrev(partial(last, masked))), lanes), 1e-5)


def along(spool: unspool.Spool, cond: Any, body: Any) -> Any:
    """The gradient of a loop over lanes that have a name."""
    loss = lambda u: loops.while_loop(cond, body, u, spool=spool).sum()  # noqa: E731
    return jax.vmap(jax.grad(loss), axis_name="lane")(jnp.array([0.5, 1.0, 3.0]))


def test_steps_that_read_other_lanes_need_one_predicate_for_all(spool: unspool.Spool) -> None:
    mixing = lambda u: 1.2 * u + 0.1 * jax.lax.psum(u, "lane")  # noqa: E731
    with pytest.raises(OptionError, match=r"jax\.lax\.pmax"):
        along(spool, lambda u: u < 9.0, mixing)
    found = along(spool, lambda u: jax.lax.pmax((u < 9.0).astype(int), "lane") > 0, mixing)

    def plain(lanes: Any) -> Any:
        while bool((lanes < 9.0).any()):
            lanes = 1.2 * lanes + 0.1 * lanes.sum()
        return lanes.sum()

    assert close(found, jax.grad(plain)(jnp.array([0.5, 1.0, 3.0])))


def test_callbacks_with_effects_are_refused_as_by_jax(spool: unspool.Spool) -> None:
    def noted(u: Any) -> Any:
        io_callback(lambda _: None, None, jax.lax.stop_gradient(u))
        return u * 2.0

    with pytest.raises(OptionError, match=r"jax\.lax\.map"):
        along(spool, lambda u: u < 9.0, noted)
    with pytest.raises(Exception, match="IO effects not supported"):
        jax.vmap(lambda u: loops.while_loop(lambda u: u < 9.0, noted, u))(jnp.ones(3))


@pytest.mark.parametrize("options", [{}, {"segment": 3}, {"budget": "64KiB"}], ids=str)
def test_predicates_and_steps_call_back_as_in_lax_while_loop(
    spool: unspool.Spool, options: Any
) -> None:
    seen: list[str] = []

    def noted(name: str, value: Any) -> Any:
        jax.debug.callback(lambda _: seen.append(name), value)
        return value

    def called(loop: Any, lanes: bool) -> list[str]:
        going, step = lambda u: noted("cond", u) < 9.0, lambda u: noted("body", 2 * u)
        taken = partial(loop, going, step)
        found = jax.vmap(taken)(jnp.array([0.5, 3.0])) if lanes else taken(0.5)
        jax.block_until_ready(found)
        jax.effects_barrier()
        names, seen[:] = sorted(seen), []
        return names

    options = options if "budget" in options else {"spool": spool, **options}
    ours = partial(loops.while_loop, **options)
    alone = lambda cond, body, u: jax.grad(partial(ours, cond, body))(u)  # noqa: E731
    assert called(alone, False) == called(jax.lax.while_loop, False)
    # In lanes that have ended, steps are computed as well.
    assert called(alone, True).count("body") == called(jax.lax.while_loop, True).count("body")


def test_a_condition_that_is_mapped_over_around_a_loop(spool: unspool.Spool) -> None:
    branch = partial(loops.while_loop, lambda u: u < 9.0, lambda u: u * u, spool=spool)
    chosen = lambda u: jax.lax.cond(u > 2.0, branch, jnp.sin, u)  # noqa: E731
    with pytest.raises(OptionError, match=r"jax\.lax\.cond"):
        jax.vmap(jax.grad(chosen))(jnp.array([1.5, 3.0]))
