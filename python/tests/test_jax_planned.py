"""`unspool.jax.scan` within a budget: what it chooses, and that gradients, memory and callbacks are
those of a loop that somebody has cut by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import unspool
from unspool.advice import NoPlanError
from unspool.advice.segments import Cut, ScanReport, Way, best, least
from unspool.errors import OptionError

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

from jax_programs import (  # noqa: E402
    ROWS,
    START,
    WEIGHT,
    close,
    exact,
    gradients,
    nested,
    network,
    same,
    wave,
)

WAYS = (Way.RECOMPUTE, Way.SPOOL)
WHOLE = jnp.arange(6.0), jnp.arange(6.0) - 3, jnp.arange(13.0) % 5 - 2


def report_of(program: Any, *arguments: Any, **options: Any) -> ScanReport:
    """What is chosen for the gradients of a program, without running it."""
    seen: list[ScanReport] = []
    scan = partial(loops.scan, report=seen.append, **options)
    jax.eval_shape(partial(gradients, program, scan), *(arguments or (WEIGHT, START, ROWS)))
    assert len(seen) == 1
    return seen[0]


def budget_of(way: Way, program: Any, *arguments: Any) -> int:
    """A budget with which a loop goes this way, or the least one."""
    found = report_of(program, *arguments)
    lowest = least(found.sizes, WAYS)
    if way is Way.RECOMPUTE:
        budgets = range(found.kept_bytes - 1, lowest, -1)
        cuts = ((each, best(found.sizes, each, WAYS)) for each in budgets)
        return next((each for each, cut in cuts if cut and cut.way is way and cut.kept), lowest)
    return found.kept_bytes if way is Way.KEEP else lowest


def by_hand(cut: Cut, step: Any, start: Any, rows: Any) -> Any:
    """A loop with `jax.checkpoint`, cut in this way."""
    first = rows[: cut.recomputed].reshape(cut.count, cut.segment)
    segment = jax.checkpoint(lambda carry, x: jax.lax.scan(step, carry, x))
    carry, ys = jax.lax.scan(segment, start, first)
    carry, more = jax.lax.scan(step, carry, rows[cut.recomputed :])
    apart = jax.tree.map(lambda y: y.reshape(cut.recomputed, *y.shape[2:]), ys)
    return carry, jax.tree.map(lambda *pair: jnp.concatenate(pair), apart, more)


@pytest.mark.parametrize("program", [wave, network, nested])
def test_what_fits_is_kept_and_has_the_bits_of_lax_scan(program: Any) -> None:
    ways = []
    scan = partial(loops.scan, report=lambda found: ways.append(found.cut.way))
    assert same(gradients(program, scan), gradients(program, jax.lax.scan))
    assert set(ways) == {Way.KEEP}


@pytest.mark.parametrize("program", [wave, network])
def test_recomputed_segments_have_the_bits_of_jax_checkpoint(program: Any) -> None:
    budget = budget_of(Way.RECOMPUTE, program)
    cut = report_of(program, budget=budget).cut
    assert cut.way is Way.RECOMPUTE and cut.count > 1
    found = gradients(program, partial(loops.scan, budget=budget))
    assert same(found, gradients(program, partial(by_hand, cut)))
    assert close(found, gradients(program, jax.lax.scan))


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize(
    "options", [{}, {"reverse": True}, {"unroll": 3}, {"unroll": True}], ids=str
)
def test_each_way_has_the_bits_of_lax_scan_where_nothing_is_rounded(way: Way, options: Any) -> None:
    budget = budget_of(way, exact, *WHOLE)
    assert report_of(exact, *WHOLE, budget=budget).cut.way is way
    found = gradients(exact, partial(loops.scan, budget=budget, **options), *WHOLE)
    assert same(found, gradients(exact, partial(jax.lax.scan, **options), *WHOLE))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 11])
@pytest.mark.parametrize("way", Way)
def test_loops_of_any_length_without_inputs(way: Way, length: int) -> None:
    def last(scan: Any, w: Any) -> Any:
        return scan(lambda u, _: (w - u * jnp.sign(u), None), WHOLE[1], None, length)[0].sum()

    def program(scan: Any, w: Any, start: Any, rows: Any) -> Any:
        return last(scan, w) + 0 * (start.sum() + rows.sum())

    budget = budget_of(way, program, *WHOLE) or 1
    found = jax.jit(jax.grad(partial(last, partial(loops.scan, budget=budget))))(WHOLE[0])
    assert same(found, jax.jit(jax.grad(partial(last, jax.lax.scan)))(WHOLE[0]))


@pytest.mark.parametrize("way", Way)
def test_without_jit_and_without_a_gradient(way: Way) -> None:
    scan = partial(loops.scan, budget=budget_of(way, wave))
    expected = jax.grad(partial(wave, jax.lax.scan))(WEIGHT, START, ROWS)
    assert close(jax.grad(partial(wave, scan))(WEIGHT, START, ROWS), expected)
    assert same(wave(scan, WEIGHT, START, ROWS), wave(jax.lax.scan, WEIGHT, START, ROWS))


@pytest.mark.parametrize("part", [2, 4, 8])
def test_the_memory_of_xla_is_the_budget_and_a_few_states(part: int) -> None:
    start = jnp.ones(10_000)

    def last(scan: Any, w: Any) -> Any:
        return scan(lambda u, _: (jnp.sin(u * w), None), start, None, 400)[0].sum()

    def room(scan: Any) -> int:
        made = jax.jit(jax.grad(partial(last, scan))).lower(start).compile()
        return int(made.memory_analysis().temp_size_in_bytes)

    kept = room(loops.scan)
    assert kept > 400 * start.nbytes
    assert room(partial(loops.scan, budget=kept // part)) < kept // part + 10 * start.nbytes


def test_a_budget_that_is_too_small_says_the_least_one() -> None:
    lowest = budget_of(Way.SPOOL, wave)
    with pytest.raises(NoPlanError, match=rf"The least budget is {lowest} \({lowest} B\)"):
        gradients(wave, partial(loops.scan, budget=lowest - 1))
    # Without a gradient, none is needed.
    wave(partial(loops.scan, budget=1), WEIGHT, START, ROWS)
    found = gradients(wave, partial(loops.scan, budget=lowest))
    assert close(found, gradients(wave, jax.lax.scan))


@pytest.mark.parametrize("way", [Way.KEEP, Way.RECOMPUTE])
@pytest.mark.parametrize("twice", [jax.hessian, lambda f: jax.jacrev(jax.grad(f)), jax.jacfwd])
def test_second_and_forward_derivatives_in_xlas_memory(way: Way, twice: Any) -> None:
    scan = partial(loops.scan, budget=budget_of(way, wave))
    found = twice(lambda w: wave(scan, w, START, ROWS))(WEIGHT)
    assert close(found, twice(lambda w: wave(jax.lax.scan, w, START, ROWS))(WEIGHT), 1e-5)


@pytest.mark.parametrize("noisy", [False, True])
def test_other_derivatives_through_a_spool_are_refused_and_leave_nothing(noisy: bool) -> None:
    def step(u: Any, x: Any) -> Any:
        if noisy:
            jax.debug.callback(lambda _: None, x)
        return jnp.sin(u * x), None

    with unspool.Spool(host_memory="16MiB") as spool:
        for twice in (jax.jacfwd, lambda f: jax.jacrev(jax.grad(f))):
            with pytest.raises((OptionError, TypeError), match=r"forwards|forward-mode|Effects"):
                twice(lambda u: loops.scan(step, u, ROWS, spool=spool)[0].sum())(START)
        assert len(spool) == 0


def test_sizes_are_those_of_all_lanes_of_vmap() -> None:
    lanes = jnp.stack([WEIGHT] * 3)
    one = report_of(wave).sizes
    seen: list[ScanReport] = []
    alone = partial(wave, partial(loops.scan, report=seen.append))
    taken = jax.vmap(jax.grad(alone), (0, None, None))
    around = jax.grad(lambda w, *rest: jax.vmap(alone, (0, None, None))(w, *rest).sum())
    for call in (taken, jax.jit(taken), around, jax.vmap(taken, (None, 0, None))):
        start = START if call in (taken, around) or len(seen) < 3 else jnp.stack([START] * 5)
        found = call(lanes, start, ROWS)
        assert found.shape[-2:] == lanes.shape
    assert [each.sizes.state for each in seen] == [one.state * n for n in (3, 3, 3, 15)]
    # Of a compiled function that is mapped over, nobody knows.
    jax.vmap(jax.jit(jax.grad(alone)), (0, None, None))(lanes, START, ROWS)
    assert seen[-1].sizes.state == one.state


def test_only_what_a_gradient_needs_is_counted() -> None:
    def saved(of: int) -> int:
        def last(w: Any, u: Any) -> Any:
            scan = partial(loops.scan, report=seen.append)
            return scan(lambda u, x: (u * w, None), u, None, 50)[0].sum()

        seen: list[ScanReport] = []
        jax.jit(jax.grad(last, argnums=of))(WEIGHT, START)
        return seen[0].sizes.saved

    # The gradient of the state needs the weight alone.
    assert (saved(0), saved(1)) == (START.nbytes, 0)


@pytest.mark.parametrize("way", Way)
def test_callbacks_run_once_a_step(way: Way) -> None:
    seen: list[float] = []

    def noisy(scan: Any, weight: Any, start: Any, rows: Any) -> Any:
        def step(u: Any, x: Any) -> Any:
            note = lambda: jax.debug.callback(lambda v: seen.append(float(v)), x)  # noqa: E731
            note()
            # What is the same in all steps of an inner loop stays in it.
            x = jax.lax.stop_gradient(x)
            inner = jax.lax.scan(lambda c, _: (note(), (c, None))[1], x, None, 2)[0]
            return jnp.sin(u * weight + inner), None

        return scan(step, start, rows)[0].sum()

    budget = budget_of(way, noisy)
    # What would be recomputed in XLA's memory goes through a spool, which leaves the callbacks out.
    chosen = report_of(noisy, budget=budget).cut.way
    assert chosen is (Way.KEEP if way is Way.KEEP else Way.SPOOL)
    found = gradients(noisy, partial(loops.scan, budget=budget))
    jax.effects_barrier()
    assert sorted(seen) == sorted(3 * ROWS.tolist())
    assert close(found, gradients(noisy, jax.lax.scan), 1e-5)


def test_a_step_that_reads_a_callback_is_kept_or_refused() -> None:
    def reads(scan: Any, weight: Any, start: Any, rows: Any) -> Any:
        def step(u: Any, x: Any) -> Any:
            like = jax.ShapeDtypeStruct((), x.dtype)
            double = io_callback(lambda v: v * 2, like, jax.lax.stop_gradient(x))
            return jnp.sin(u * weight + double), None

        return scan(step, start, rows)[0].sum()

    assert close(gradients(reads, loops.scan), gradients(reads, jax.lax.scan))
    with pytest.raises(OptionError, match="io_callback"):
        gradients(reads, partial(loops.scan, budget=budget_of(Way.SPOOL, reads)))


@pytest.mark.parametrize("options", [{}, {"codec": "lossless"}, {"codec": unspool.Bound(abs=1e-7)}])
def test_a_spool_that_was_given_is_used_in_segments(options: Any) -> None:
    with unspool.Spool(host_memory="64MiB") as spool:
        cut = report_of(wave, spool=spool, **options).cut
        assert cut.way is Way.SPOOL and 1 < cut.segment < 5
        found = gradients(wave, partial(loops.scan, spool=spool, **options))
        assert close(found, gradients(wave, jax.lax.scan), 1e-5)
        assert spool.stats().saves == 1 and len(spool) == 0
    assert report_of(wave, codec="lossless").cut.way is Way.SPOOL


def test_a_budget_beside_a_spool_is_for_the_segments() -> None:
    with unspool.Spool(host_memory="64MiB") as spool:
        options = {"spool": spool, "budget": budget_of(Way.RECOMPUTE, wave)}
        longest = report_of(wave, **options).cut
        assert longest.way is Way.SPOOL
        assert longest.recomputed < report_of(wave, spool=spool).cut.recomputed
        found = gradients(wave, partial(loops.scan, **options))
        assert close(found, gradients(wave, jax.lax.scan)) and spool.stats().saves == 1
        gradients(wave, partial(loops.scan, spool=spool, budget="1GiB"))
        assert spool.stats().saves == 1


def test_a_choice_is_told_once_a_trace() -> None:
    seen: list[ScanReport] = []
    taken = jax.jit(jax.grad(partial(wave, partial(loops.scan, report=seen.append))))
    for _ in range(2):
        taken(WEIGHT, START, ROWS)
    assert len(seen) == 1 and str(seen[0]).startswith("13 steps within")
