"""`unspool.jax`: gradients of loops against those of JAX, and nothing left in the spool."""

from __future__ import annotations

import gc
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import unspool

from helpers import python

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402

from jax_programs import (  # noqa: E402
    BLOCKS,
    ROWS,
    START,
    WEIGHT,
    close,
    exact,
    gradients,
    nested,
    network,
    remade,
    same,
    wave,
)

PROGRAMS = [wave, network, nested]


@pytest.fixture
def spool() -> Any:
    with unspool.Spool(host_memory="64MiB") as opened:
        yield opened
        if not opened.closed:
            assert len(opened) == 0


def through(spool: unspool.Spool, **options: Any) -> Any:
    """A scan that saves every state, unless `options` say otherwise."""
    return partial(loops.scan, spool=spool, **{"segment": 1, **options})


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_lax_scan(spool: unspool.Spool, program: Any) -> None:
    found = gradients(program, through(spool))
    assert close(found, gradients(program, jax.lax.scan))
    assert spool.stats().saves >= BLOCKS


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_inputs_and_outputs_may_have_no_items(
    spool: unspool.Spool, every: int, reverse: bool
) -> None:
    def step(carry: Any, x: Any) -> Any:
        return 1.1 * carry + x.sum(), (jnp.zeros((0, 3)), carry)

    def program(scan: Any, carry: Any) -> Any:
        last, (empty, rows) = scan(step, carry, jnp.zeros((4, 0)), reverse=reverse)
        assert empty.shape == (4, 0, 3)
        return last.sum() + (rows**2).sum()

    start = jnp.ones(3)
    found = jax.grad(partial(program, through(spool, segment=every)))(start)
    assert close(found, jax.grad(partial(program, jax.lax.scan))(start))


@pytest.fixture
def wide() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_of_64_bits(spool: unspool.Spool, wide: None, program: Any, every: int) -> None:
    given = [jnp.asarray(each, jnp.float64) for each in (WEIGHT, START, ROWS)]
    found = gradients(program, through(spool, segment=every), *given)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float64")}
    assert close(found, gradients(program, jax.lax.scan, *given), 1e-14)


@pytest.mark.parametrize("every", [1, 4])
def test_gradients_have_the_same_bits_where_nothing_is_rounded(
    spool: unspool.Spool, every: int
) -> None:
    # XLA fuses the two programs in different ways: only whole numbers can be compared bit by bit.
    given = (jnp.arange(6.0), jnp.arange(6.0) - 3, jnp.arange(7.0) - 2)
    found = gradients(exact, through(spool, segment=every), *given)
    assert same(found, gradients(exact, jax.lax.scan, *given))


@pytest.mark.parametrize(
    ("program", "options"),
    [
        pytest.param(network, {"segment": 4}, id="network-4"),
        pytest.param(wave, {"segment": 4}, id="wave-4"),
        pytest.param(wave, {"segment": 50}, id="wave-50"),
        pytest.param(wave, {"unroll": 3}, id="wave-unrolled"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_segments_and_directions(
    spool: unspool.Spool, program: Any, options: Any, reverse: bool
) -> None:
    found = gradients(program, through(spool, reverse=reverse, **options))
    assert close(found, gradients(program, partial(jax.lax.scan, reverse=reverse)))


def test_without_a_gradient_nothing_is_saved(spool: unspool.Spool) -> None:
    expected = jax.jit(partial(wave, jax.lax.scan))(WEIGHT, START, ROWS)
    assert same(jax.jit(partial(wave, through(spool)))(WEIGHT, START, ROWS), expected)
    # What nobody goes back through is left out of the program.
    jax.jit(lambda w: jax.vjp(lambda w: wave(through(spool), w, START, ROWS), w)[0])(WEIGHT)
    assert spool.stats().saves == 0


def test_without_jit(spool: unspool.Spool) -> None:
    def taken(scan: Any) -> Any:
        return jax.grad(partial(wave, scan), argnums=(0, 1, 2))(WEIGHT, START, ROWS)

    assert close(taken(through(spool)), taken(jax.lax.scan))


def test_arguments_and_results_are_those_of_lax_scan(spool: unspool.Spool) -> None:
    def step(carry: Any, _: Any) -> Any:
        return (carry[0] + 1, carry[1] * 1.5), None

    found = through(spool)(step, (0, 1.0), None, 5)
    expected = jax.lax.scan(step, (0, 1.0), None, 5)
    assert same(found, expected) and found[1] is None
    for length in (0, 1):
        rows = jnp.ones(length)
        times = lambda c, x: (c * x, c)  # noqa: E731
        found = through(spool, segment=3)(times, 2.0, rows)
        assert same(found, jax.lax.scan(times, 2.0, rows))
        last = lambda c, rows=rows: through(spool)(times, c, rows)[0]  # noqa: B023, E731
        assert jax.grad(last)(3.0) == 1.0


def test_what_is_no_array_is_static(spool: unspool.Spool) -> None:
    def last(scale: Any) -> Any:
        carry = {"u": START, "name": "wave", "by": jnp.sin}
        step = lambda c, _: ({**c, "u": c["by"](c["u"]) * scale}, None)  # noqa: E731
        carry, _ = through(spool)(step, carry, None, 5)
        assert carry["name"] == "wave"
        return carry["u"].sum()

    step = lambda u, scale: jnp.sin(u) * scale  # noqa: E731
    plain = jax.grad(
        lambda s: jax.lax.scan(lambda u, _: (step(u, s), None), START, None, 5)[0].sum()
    )
    assert close(jax.jit(jax.grad(last))(0.9), plain(0.9))


@pytest.mark.parametrize("empty", [None, (), jnp.zeros((0, 3))], ids=["none", "empty", "zero"])
def test_carries_without_items(spool: unspool.Spool, empty: Any) -> None:
    def taken(scan: Any) -> Any:
        return jax.grad(lambda xs: scan(lambda c, x: (c, jnp.sin(x)), empty, xs)[1].sum())(ROWS)

    assert close(taken(through(spool)), taken(jax.lax.scan))
    assert close(taken(through(spool, segment=5)), taken(jax.lax.scan))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_rows_without_items(spool: unspool.Spool, every: int, reverse: bool) -> None:
    rows = (ROWS, jnp.zeros((len(ROWS), 0, 3)))

    def taken(scan: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            return jnp.sin(carry + x[0]), (x[1] * 2, carry)

        found = lambda xs: scan(step, 0.5, xs, reverse=reverse)[1]  # noqa: E731
        assert found(rows)[0].shape == (len(ROWS), 0, 3)
        return jax.grad(lambda xs: found(xs)[1].sum())(rows)[0]

    assert close(taken(through(spool, segment=every)), taken(jax.lax.scan))


def doubled(loop: Any, weight: Any, start: Any, **options: Any) -> Any:
    """A loop whose length depends on the data."""

    def body(carry: Any) -> Any:
        count, u = carry
        return count + 1, u * (1.1 + 0.1 * jnp.cos(u * weight))

    count, u = loop(lambda carry: jnp.abs(carry[1]).sum() < 30.0, body, (0, start), **options)
    return (u**2).sum() + 0.0 * count


def plain_while(cond: Any, body: Any, init: Any) -> Any:
    carry = init
    while bool(cond(carry)):
        carry = body(carry)
    return carry


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_while_loop_of_unknown_length_has_a_gradient(spool: unspool.Spool, every: int) -> None:
    loop = partial(loops.while_loop, spool=spool, segment=every)
    taken = jax.jit(jax.grad(partial(doubled, loop), argnums=(0, 1)))
    plain = jax.grad(partial(doubled, plain_while), argnums=(0, 1))
    # The same compiled program takes another number of steps.
    for factor in (1.0, 0.1, 100.0):
        start = START * factor
        assert close(taken(WEIGHT, start), plain(WEIGHT, start), 1e-5)


@pytest.mark.parametrize("every", [1, 3])
def test_max_steps_ends_a_while_loop(spool: unspool.Spool, every: int) -> None:
    def taken(most: int) -> Any:
        options = {"spool": spool, "segment": every, "max_steps": most}
        loop = partial(loops.while_loop, lambda u: u < 1e6, lambda u: u * 2.0, **options)
        return jax.jit(jax.value_and_grad(loop))(3.0)

    assert [taken(most)[1] for most in (0, 1, 4, 7)] == [1.0, 2.0, 16.0, 128.0]
    assert taken(4)[0] == 48.0


@pytest.mark.parametrize("axes", [(None, 0, None), (0, None, None), (0, 1, 0)], ids=str)
@pytest.mark.parametrize("every", [1, 4, 20])
def test_vmap(spool: unspool.Spool, axes: Any, every: int) -> None:
    given = []
    for value, axis in zip((WEIGHT, START, ROWS), axes, strict=True):
        lanes = [value, value * 2, value * 3]
        given.append(value if axis is None else jnp.stack(lanes, axis))

    def taken(scan: Any) -> Any:
        return jax.jit(jax.vmap(jax.grad(partial(wave, scan), argnums=(0, 1, 2)), axes))(*given)

    assert close(taken(through(spool, segment=every)), taken(jax.lax.scan))


def test_jacrev_and_vmap_of_it(spool: unspool.Spool) -> None:
    def last(scan: Any, weight: Any, start: Any) -> Any:
        return scan(lambda u, x: (jnp.sin(u * weight + x), None), start, ROWS)[0]

    def taken(scan: Any, lanes: Any) -> Any:
        jacobian = jax.jacrev(partial(last, scan), argnums=(0, 1))
        return jax.jit(jax.vmap(jacobian, (None, 0)) if lanes.ndim == 2 else jacobian)(
            WEIGHT, lanes
        )

    for lanes in (START, jnp.stack([START, -START])):
        assert close(taken(through(spool), lanes), taken(jax.lax.scan, lanes))


def test_a_predicate_that_is_mapped_over(spool: unspool.Spool) -> None:
    lanes = jnp.stack([START, START * 3])
    loop = partial(doubled, partial(loops.while_loop, spool=spool), WEIGHT)
    found = jax.jit(jax.vmap(jax.grad(loop)))(lanes)
    assert close(found, jax.lax.map(jax.grad(loop), lanes), 1e-5)
    plain = jax.grad(partial(doubled, plain_while, WEIGHT))
    assert close(found, jnp.stack([plain(lane) for lane in lanes]), 1e-5)
    # Without a gradient it is a loop of JAX.
    saves = spool.stats().saves
    native = partial(doubled, jax.lax.while_loop, WEIGHT)
    assert same(jax.jit(jax.vmap(loop))(lanes), jax.jit(jax.vmap(native))(lanes))
    assert spool.stats().saves == saves


@pytest.mark.parametrize("outer", ["ours", "plain"])
@pytest.mark.parametrize("every", [1, 3])
def test_loops_in_loops(spool: unspool.Spool, outer: str, every: int) -> None:
    ours = through(spool, segment=every)
    first, second = (ours, jax.lax.scan) if outer == "ours" else (jax.lax.scan, ours)
    found = gradients(partial(nested, inner=second), first)
    assert close(found, gradients(nested, jax.lax.scan))


def test_a_loop_that_is_called_twice_in_a_program_has_two_histories(spool: unspool.Spool) -> None:
    def through_both(scan: Any) -> Any:
        part = jax.jit(lambda u: scan(lambda u, x: (jnp.sin(u * WEIGHT + x), None), u, ROWS)[0])
        # One after the other, and twice the same.
        return jax.jit(jax.grad(lambda u: (part(part(u)) * part(u) * part(u)).sum()))(START)

    assert close(through_both(through(spool)), through_both(jax.lax.scan))


def test_conditions_around_a_loop(spool: unspool.Spool) -> None:
    def taken(scan: Any, flag: bool) -> Any:
        branch = lambda u: (scan(lambda u, x: (u * x, None), u, ROWS)[0] ** 2).sum()  # noqa: E731
        return jax.jit(jax.grad(lambda u: jax.lax.cond(flag, branch, jnp.sum, u)))(START)

    for flag in (True, False):
        assert close(taken(through(spool), flag), taken(jax.lax.scan, flag))


def test_two_residuals_alive_keep_their_histories_apart(spool: unspool.Spool) -> None:
    compiled = jax.jit(partial(wave, through(spool)))
    _, first = jax.vjp(compiled, WEIGHT, START, ROWS)
    _, second = jax.vjp(compiled, -WEIGHT, START, ROWS)
    assert len(spool) == 2 * BLOCKS
    plain = jax.grad(partial(wave, jax.lax.scan), argnums=(0, 1, 2))
    assert close(first(1.0), plain(WEIGHT, START, ROWS))
    assert close(second(1.0), plain(-WEIGHT, START, ROWS))


def test_threads_that_call_one_compiled_program(spool: unspool.Spool) -> None:
    taken = jax.jit(jax.grad(partial(wave, through(spool))))
    inputs = [WEIGHT * factor for factor in (0.5, 1.0, 1.5, 2.0)]
    expected = [jax.grad(partial(wave, jax.lax.scan))(each, START, ROWS) for each in inputs]
    found: list[Any] = [None] * len(inputs)

    def call(n: int) -> None:
        for _ in range(20):
            found[n] = jax.block_until_ready(taken(inputs[n], START, ROWS))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert close(found, expected)


def test_a_history_is_for_one_backward_pass(spool: unspool.Spool) -> None:
    _, pull = jax.vjp(jax.jit(partial(wave, through(spool))), WEIGHT, START, ROWS)
    pull(1.0)
    with pytest.raises(Exception, match=r"read back already.*jax\.vjp again"):
        pull(1.0)


def test_what_no_backward_pass_reads_is_discarded_with_its_residuals_or_by_forget(
    spool: unspool.Spool,
) -> None:
    value, pull = jax.vjp(partial(wave, through(spool)), WEIGHT, START, ROWS)
    assert len(spool) == BLOCKS
    del pull
    gc.collect()
    assert len(spool) == 0
    value, pull = jax.vjp(jax.jit(partial(wave, through(spool))), WEIGHT, START, ROWS)
    jax.block_until_ready(value)
    assert len(spool) == BLOCKS
    assert loops.forget(spool) == 1 and len(spool) == 0
    with pytest.raises(Exception, match=r"forget\(\)"):
        pull(1.0)
    assert loops.forget() == 0


def test_states_that_no_gradient_needs_are_discarded_too(spool: unspool.Spool) -> None:
    def last(start: Any) -> Any:
        return through(spool)(lambda u, x: (2 * u + x, None), start, ROWS)[0].sum()

    for taken in (jax.grad(last), jax.grad(jax.checkpoint(last))):
        assert close(jax.jit(taken)(START), jnp.full(START.shape, 2.0**ROWS.size))
        assert len(spool) == 0
    # The backward pass is a program of its own, in which no state is needed.
    _, pull = jax.vjp(jax.jit(last), START)
    assert len(spool) == BLOCKS
    jax.block_until_ready(pull(1.0))
    assert len(spool) == 0


def test_remat_around_a_loop_and_in_its_step(spool: unspool.Spool) -> None:
    plain = gradients(wave, jax.lax.scan)
    around = lambda scan, *given: jax.checkpoint(partial(wave, scan))(*given)  # noqa: E731
    assert close(gradients(around, through(spool)), plain)
    assert spool.stats().saves == BLOCKS
    assert close(gradients(wave, remade(through(spool))), plain)


def test_donated_arguments(spool: unspool.Spool) -> None:
    taken = jax.jit(jax.grad(partial(wave, through(spool)), argnums=1), donate_argnums=1)
    expected = jax.grad(partial(wave, jax.lax.scan), argnums=1)(WEIGHT, START, ROWS)
    assert close(taken(WEIGHT, START + 0, ROWS), expected)


@pytest.mark.parametrize("twice", [jax.hessian, lambda f: jax.jacrev(jax.grad(f)), jax.jacfwd])
def test_second_and_forward_derivatives_are_refused(spool: unspool.Spool, twice: Any) -> None:
    with pytest.raises((unspool.errors.OptionError, TypeError), match=r"second|again|forward-mode"):
        twice(lambda weight: wave(through(spool), weight, START, ROWS))(WEIGHT)


def test_states_go_through_all_tiers_with_a_codec(tmp_path: Path) -> None:
    start = jnp.tile(START, 5_000)
    weight = jnp.tile(WEIGHT, 5_000)
    rows = jnp.linspace(-1, 1, 40)
    expected = gradients(wave, jax.lax.scan, weight, start, rows)
    for codec in (None, "lossless", "raw"):
        with unspool.Spool(host_memory="1MiB", disk=tmp_path, codec="lossless") as spool:
            found = gradients(wave, through(spool, codec=codec), weight, start, rows)
            assert close(found, expected, 1e-5)
            assert len(spool) == 0
            assert spool.stats().tiers[1].peak > 0


def test_a_full_spool_is_an_error_that_leaves_nothing() -> None:
    start = jnp.ones(100_000)
    with unspool.Spool(host_memory="2MiB", timeout=5) as spool:
        taken = jax.jit(jax.grad(lambda w: wave(through(spool), w, start, ROWS)))
        with pytest.raises(Exception, match="There is no room for version"):
            jax.block_until_ready(taken(start))
        assert len(spool) == 0
        # What others have left is named.
        value, _ = jax.vjp(jax.jit(partial(wave, through(spool))), WEIGHT, START, ROWS)
        jax.block_until_ready(value)
        with pytest.raises(Exception, match=r"unspool\.jax\.forget\(\)"):
            jax.block_until_ready(taken(start))
        assert loops.forget(spool) == 1
        # And the program can be called again.
        small = jax.jit(jax.grad(partial(wave, through(spool))))
        assert small(WEIGHT, START, ROWS).shape == WEIGHT.shape


def test_a_compiled_program_whose_spool_was_closed_says_so() -> None:
    with unspool.Spool(host_memory="1MiB") as spool:
        taken = jax.jit(jax.grad(partial(wave, through(spool))))
        taken(WEIGHT, START, ROWS)
    with pytest.raises(Exception, match=r"the spool that this compiled function names was closed"):
        jax.block_until_ready(taken(WEIGHT, START, ROWS))
    del spool
    gc.collect()
    with pytest.raises(Exception, match=r"the spool that this compiled function names was closed"):
        jax.block_until_ready(taken(WEIGHT, START, ROWS))


def test_a_disk_that_fails_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    start = jnp.ones(100_000)
    with unspool.Spool(host_memory="1MiB", disk=(folder, "1MiB"), timeout=5) as spool:
        taken = jax.jit(jax.grad(lambda w: wave(through(spool), w, start, ROWS)))
        with pytest.raises(Exception, match="There is no room for version"):
            jax.block_until_ready(taken(start))
        assert len(spool) == 0


def test_without_a_spool_one_is_opened_and_kept() -> None:
    found = gradients(wave, partial(loops.scan, segment=1))
    assert close(found, gradients(wave, jax.lax.scan))
    loop = partial(loops.while_loop, budget="8MiB")
    assert jax.jit(jax.grad(partial(doubled, loop), argnums=1))(WEIGHT, START).shape == START.shape


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spool": 3}, "give a Spool"),
        ({"spool": []}, "give a Spool"),
        ({"segment": 0}, "1 or more"),
        ({"segment": "long"}, "1 or more"),
        ({"report": "all"}, "a function"),
        ({"length": 3}, "different numbers"),
        ({"budget": "much", "spool": None}, "budget"),
        ({"codec": "best"}, "codec"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(spool: unspool.Spool, options: Any, said: str) -> None:
    with pytest.raises(unspool.Error, match=said):
        loops.scan(lambda c, x: (c, None), START, ROWS, **{"spool": spool, **options})
    with pytest.raises(unspool.errors.OptionError, match="budget"):
        loops.scan(lambda c, x: (c, None), START, ROWS, segment=2, budget="1MiB")


def test_steps_that_return_something_else(spool: unspool.Spool) -> None:
    for step, said in [
        (lambda c, x: c, "the pair"),
        (lambda c, x: ((c, c), None), "have to be the same"),
        (lambda c, x: (c[:2], None), "have to be the same"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=said):
            loops.scan(step, START, ROWS, spool=spool)


SHARDED = """
import jax, jax.numpy as jnp, unspool, unspool.jax
from functools import partial
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jax_programs import BLOCKS, ROWS, START, WEIGHT, close, wave

mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
lanes = jnp.stack([START, -START])
spool = unspool.Spool(host_memory="16MiB")
ours = partial(unspool.jax.scan, spool=spool, segment=1)

def total(scan, weight, lanes):
    part = lambda weight, lane: jax.lax.psum(wave(scan, weight, lane[0], ROWS), "d")
    specs = {"mesh": mesh, "in_specs": (P(), P("d")), "out_specs": P()}
    return jax.shard_map(part, **specs)(weight, lanes)

@jax.grad
def doubled(weight, u):
    while bool(jnp.abs(u).sum() < 30.0):
        u = u * (1.1 + 0.1 * jnp.cos(u * weight))
    return (u**2).sum()

taken = lambda scan: jax.jit(jax.grad(partial(total, scan), argnums=(0, 1)))(WEIGHT, lanes)
assert close(taken(ours), taken(jax.lax.scan))
assert spool.stats().saves == 2 * BLOCKS and len(spool) == 0
for budget in ("auto", 600):
    assert close(taken(partial(unspool.jax.scan, budget=budget)), taken(jax.lax.scan))

def longer(vary, weight, lanes, **options):
    def part(weight, lane):
        weight = jax.lax.pcast(weight, ("d",), to="varying") if vary else weight
        step = lambda c: (c[0] + 1, c[1] * (1.1 + 0.1 * jnp.cos(c[1] * weight)))
        going = lambda c: jnp.abs(c[1]).sum() < 30.0
        _, u = unspool.jax.while_loop(going, step, (0, lane[0]), **options)
        return (u**2).sum()[None]

    specs = {"mesh": mesh, "in_specs": (P(), P("d")), "out_specs": P("d")}
    return jax.shard_map(part, **specs)(weight, lanes).sum()

uneven = jnp.stack([START, 0.1 * START])
each = [doubled(WEIGHT, lane) for lane in uneven]
for options in ({"spool": spool}, {"spool": spool, "segment": 3}, {"budget": 1200}):
    found = jax.jit(jax.grad(partial(longer, True, **options)))(WEIGHT, uneven)
    assert close(found, each[0] + each[1], 1e-5) and len(spool) == 0
try:
    jax.jit(jax.grad(partial(longer, False)))(WEIGHT, uneven)
except unspool.errors.OptionError as error:
    assert "jax.lax.pcast" in str(error)
else:
    raise SystemExit("devices that would wait for each other were not refused")
try:
    lanes = jax.device_put(lanes, NamedSharding(mesh, P("d")))
    jax.jit(jax.grad(lambda u: ours(lambda u, x: (u * x, None), u, ROWS)[0].sum()))(lanes)
except unspool.errors.OptionError as error:
    assert "jax.shard_map" in str(error)
else:
    raise SystemExit("a program that XLA divides was not refused")
# XLA divides what is in its own memory.
seen = []
for budget in ("auto", lambda: seen[0].kept_bytes - 1):
    budget = budget() if callable(budget) else budget
    ways = partial(unspool.jax.scan, budget=budget, report=seen.append), jax.lax.scan
    found, expected = (
        jax.jit(jax.grad(lambda u: scan(lambda u, x: (u * x * u, None), u, ROWS)[0].sum()))(lanes)
        for scan in ways
    )
    assert close(found, expected)
assert [each.cut.way.name for each in seen] == ["KEEP", "RECOMPUTE"]
spool.close()
"""


def test_each_part_of_a_shard_map_has_a_history_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    found = python(SHARDED)
    assert found.returncode == 0, found.stderr


LIGHT = """
import sys
import unspool
assert "jax" not in sys.modules and "unspool.jax" not in sys.modules
sys.modules["jax"] = None
try:
    import unspool.jax
except unspool.errors.MissingLibraryError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


def test_the_package_is_light_and_the_room_says_what_to_install() -> None:
    found = python(LIGHT)
    assert found.returncode == 0, found.stderr
    assert "pip install jax" in found.stdout
