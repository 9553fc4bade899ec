"""`unspool.jax.while_loop` within a budget: gradients, memory, and how often steps are taken."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import unspool
from unspool.advice import NoPlanError
from unspool.errors import OptionError

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402

from jax_programs import LANES, WEIGHT, by_lane, close, growing, masked, same  # noqa: E402


def least(taken: Any, *arguments: Any) -> int:
    """The smallest budget of a gradient, as its error says it."""
    with pytest.raises(NoPlanError, match="The least budget is") as error:
        jax.eval_shape(taken(partial(loops.while_loop, budget=1)), *arguments)
    return int(str(error.value).split("least budget is ")[1].split()[0])


def counted(loop: Any, weight: Any, count: Any) -> Any:
    """A loop of `count` steps on whole numbers, in which nothing is rounded."""
    body = lambda carry: (carry[0] - 1, weight - carry[1] * jnp.sign(carry[1]))  # noqa: E731
    return loop(lambda carry: carry[0] > 0, body, (count, jnp.arange(6.0) - 3))[1].sum()


WHOLE = jnp.arange(6.0) % 3 - 1
#: An entry is a state, of six numbers and a count, and the number of its step.
STATE = 6 * 4 + 4 + 4


@pytest.mark.parametrize("entries", [7, 9, 31])
def test_loops_of_any_length_have_the_bits_of_a_plain_loop(entries: int) -> None:
    taken = lambda loop: jax.value_and_grad(partial(counted, loop))  # noqa: E731
    budget = least(taken, WHOLE, 5) + (entries - 7) * STATE
    found = jax.jit(taken(partial(loops.while_loop, budget=budget)))
    plain = jax.jit(taken(partial(masked, length=500)))
    for count in [*range(20), 28, 29, 31, 32, 33, 56, 57, 63, 64, 65, 113, 500]:
        assert same(found(WHOLE, count), plain(WHOLE, count)), count


@pytest.mark.parametrize("entries", [7, 15])
def test_steps_are_recomputed_as_often_as_by_revolve(entries: int) -> None:
    seen: list[int] = []

    def noted(u: Any) -> Any:
        like = jax.ShapeDtypeStruct((), jnp.float32)
        note = lambda u: (seen.append(1), u)[1]  # noqa: E731
        return u + jnp.sin(u) + 0 * jax.pure_callback(note, like, jax.lax.stop_gradient(u).sum())

    def taken(loop: Any) -> Any:
        def last(u: Any, length: Any) -> Any:
            body = lambda c: (c[0] + 1, noted(c[1]))  # noqa: E731
            return loop(lambda c: c[0] < length, body, (0, u))[1].sum()

        return jax.grad(last)

    budget = least(taken, jnp.ones(6), 1) + (entries - 7) * STATE
    compiled = jax.jit(taken(partial(loops.while_loop, budget=budget)))
    for length in (1, 7, 8, 15, 16, 40, 200):
        seen.clear()
        jax.block_until_ready(compiled(jnp.ones(6), length))
        if length <= entries:
            # But for its own gradient, which does not need the value.
            assert len(seen) == length
        times = next(n for n in range(10) if math.comb(entries + n, n) >= length)
        assert len(seen) <= (1 + times) * length


@pytest.mark.parametrize("part", [2, 5])
def test_the_memory_of_xla_is_at_most_the_budget(part: int) -> None:
    start = jnp.linspace(0.1, 1.0, 20_000)
    budget = 200 * start.nbytes // part

    def last(w: Any, u: Any) -> Any:
        loop = partial(loops.while_loop, budget=budget)
        return loop(lambda u: u.sum() < 1e5, lambda u: u + jnp.sin(u * w), u).sum()

    made = jax.jit(jax.grad(last, argnums=(0, 1))).lower(start, start).compile()
    analysis = made.memory_analysis()
    taken = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    assert 0.8 * budget < taken <= 1.05 * budget


def test_the_states_of_a_bounded_loop_take_no_more_than_they_need() -> None:
    def room(most: int | None) -> int:
        loop = partial(loops.while_loop, budget="auto", max_steps=most)
        run = partial(loop, lambda u: u.sum() < 1e5, lambda u: u + jnp.sin(u))
        made = jax.jit(jax.grad(lambda u: run(u).sum())).lower(jnp.ones(100)).compile()
        return int(made.memory_analysis().temp_size_in_bytes)

    assert room(9) < 9 * 400 + 20 * 400
    # Numbers of steps, too.
    assert 65_535 * 404 < room(None) < 65_600 * 404


@pytest.mark.parametrize("most", [None, 5])
def test_lanes_that_end_apart(most: int | None) -> None:
    def taken(loop: Any) -> Any:
        bounded = partial(loop, max_steps=most)
        return jax.value_and_grad(partial(growing, bounded), argnums=(0, 1))

    weights = jnp.stack([WEIGHT, -WEIGHT, 2 * WEIGHT, WEIGHT])
    lowest = least(lambda loop: jax.vmap(taken(loop)), weights, LANES)
    assert lowest > 3 * least(taken, WEIGHT, LANES[0])
    ours = partial(loops.while_loop, budget="auto" if most else lowest)
    found = jax.jit(jax.vmap(taken(ours)))(weights, LANES)
    assert close(found, by_lane(jax.jit(taken(masked)), weights, LANES), 1e-5)


def test_several_cotangents_and_several_backward_passes() -> None:
    def last(loop: Any, u: Any) -> Any:
        return loop(lambda u: u.sum() < 30.0, lambda u: u * (1.2 + 0.1 * jnp.cos(u)), u)

    start = jnp.abs(LANES[1])
    ours = partial(last, partial(loops.while_loop, budget="1MiB"))
    expected = jax.jacrev(partial(last, masked))(start)
    assert close(jax.jit(jax.jacrev(ours))(start), expected, 1e-5)
    _, pull = jax.vjp(jax.jit(ours), start)
    for _ in range(2):
        assert close(pull(jnp.ones(6))[0], expected.sum(0), 1e-5)
    with jax.disable_jit():
        assert close(jax.grad(lambda u: ours(u).sum())(start), expected.sum(0), 1e-5)


def test_a_carry_without_arrays_and_one_that_never_moves() -> None:
    loop = partial(loops.while_loop, budget="1KiB", max_steps=3)
    assert loop(lambda _: True, lambda carry: carry, {"name": "u"}) == {"name": "u"}
    still = lambda u: loop(lambda u: u > 9.0, lambda u: u * 2.0, u)  # noqa: E731
    assert jax.jit(jax.value_and_grad(still))(3.0) == (3.0, 1.0)


def test_options_that_exclude_each_other() -> None:
    for options in ({"codec": "lossless"}, {"segment": 3}, {"spool": 3}):
        with pytest.raises(OptionError, match="out"):
            loops.while_loop(jnp.all, jnp.sin, 0.5, budget="1MiB", **options)
    with pytest.raises(unspool.Error, match="budget"):
        loops.while_loop(jnp.all, jnp.sin, 0.5, budget="much")


@pytest.mark.parametrize("twice", [jax.hessian, lambda f: jax.jacrev(jax.grad(f)), jax.jacfwd])
def test_second_and_forward_derivatives_are_refused(twice: Any) -> None:
    loop = partial(loops.while_loop, lambda u: u < 9.0, lambda u: u * u, budget="1MiB")
    with pytest.raises((OptionError, TypeError), match=r"again|forward-mode"):
        twice(loop)(1.5)
