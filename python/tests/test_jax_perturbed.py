"""`unspool.jax`: parts of a loop that no gradient goes through may come from what has no
derivative, as in the loops of JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import unspool

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from unspool.advice.segments import Cut, Way  # noqa: E402
from unspool.errors import OptionError  # noqa: E402
from unspool.jax import _perturbed, _planned  # noqa: E402

from jax_programs import ROWS, START, WEIGHT, close  # noqa: E402

SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


@pytest.fixture
def spool() -> Any:
    with unspool.Spool(host_memory="16MiB") as opened:
        yield opened
        assert len(opened) == 0


@jax.custom_jvp
def opaque(x: Any) -> Any:
    """Has no derivative, and says so when it is asked for one."""
    return 2.0 * x


@opaque.defjvp
def _(primals: Any, dots: Any) -> Any:
    raise AssertionError("a derivative was asked for")


def table(x: Any) -> Any:
    """A function of NumPy."""
    return jax.pure_callback(lambda x: np.float32(np.sin(x)), SCALAR, x)


def searched(x: Any) -> Any:
    """A loop of unknown length, which has no gradient in reverse."""
    return jax.lax.while_loop(lambda x: x < 40.0, lambda x: 1.5 * x, jnp.abs(x) + 1.0)


def counted(scan: Any, w: Any, of: Callable[[Any], Any]) -> Any:
    """A clock in the carry, which is read by what has no derivative."""

    def step(carry: Any, x: Any) -> Any:
        time, u, key, none = carry
        key, draw = jax.random.split(key)
        pushed = of(time) * jax.random.normal(draw)
        return (time + 0.1, u * w + pushed, key, none), (time, u.sum() * x)

    start = jnp.float32(0), START, jax.random.key(3), None
    (_, u, _, _), (times, sums) = scan(step, start, ROWS)
    return u.sum() + (sums * times).sum()


def from_rows(scan: Any, w: Any, of: Callable[[Any], Any]) -> Any:
    """Inputs, and what the step closes over, without a tangent."""
    fixed = of(ROWS[0])
    step = lambda u, x: (jnp.sin(u * w) + of(x[0]) + of(fixed), (of(x[1]), u))  # noqa: E731
    u, (ys, us) = scan(step, START, (ROWS, 2 * ROWS))
    return u.sum() + (ys[:, None] * us).sum()


def mixed_late(scan: Any, w: Any, of: Callable[[Any], Any]) -> Any:
    """A leaf gets a tangent only from the second step on, one never, and one loses it."""

    def step(carry: Any, x: Any) -> Any:
        first, second, _, clock = carry
        return (first * w, second + first.sum(), 0.5 * second, clock + of(clock) * x), None

    start = START, jnp.float32(0), jnp.float32(0), jnp.float32(0.1)
    first, second, third, clock = scan(step, start, ROWS)[0]
    return first.sum() * clock + second * third


def result_is_read(scan: Any, w: Any, of: Callable[[Any], Any]) -> Any:
    """What is made of the results that have no tangent has no derivative either."""
    step = lambda c, x: ((c[0] + x, c[1] * w), c[0])  # noqa: E731
    (clock, u), clocks = scan(step, (jnp.float32(0), START), ROWS)
    return u.sum() * of(clock) + of(clocks[3])


PROGRAMS = [counted, from_rows, mixed_late, result_is_read]


@pytest.mark.parametrize("of", [opaque, table, searched], ids=["opaque", "callback", "while"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_has_no_derivative_is_not_differentiated(
    spool: unspool.Spool, program: Any, of: Any
) -> None:
    taken = lambda scan: jax.jit(jax.value_and_grad(lambda w: program(scan, w, of)))  # noqa: E731
    for every in (1, 3):
        found = taken(partial(loops.scan, spool=spool, segment=every))(WEIGHT)
        assert close(found, taken(jax.lax.scan)(WEIGHT))
    assert spool.stats().saves > 0


def around(loss: Any, kind: str) -> Any:
    """A gradient under a transformation of JAX."""
    return {
        "eager": lambda w: jax.grad(loss)(w),
        "checkpoint": jax.jit(jax.grad(jax.checkpoint(loss))),
        "jit within": lambda w: jax.grad(jax.jit(loss))(w),
        "vmap of grad": lambda w: jax.vmap(jax.grad(loss))(jnp.stack([w, 2 * w])),
        "grad of vmap": lambda w: jax.grad(lambda ws: jax.vmap(loss)(ws).sum())(
            jnp.stack([w, 2 * w])
        ),
        "in a loop": lambda w: jax.lax.scan(
            lambda w, _: (w - 0.01 * jax.grad(loss)(w), None), w, None, 2
        )[0],
    }[kind]


KINDS = ["eager", "checkpoint", "jit within", "vmap of grad", "grad of vmap", "in a loop"]


@pytest.mark.parametrize("kind", KINDS)
def test_transformations_keep_what_has_no_derivative_apart(spool: unspool.Spool, kind: str) -> None:
    def loss(scan: Any, w: Any) -> Any:
        return counted(scan, w, opaque) + result_is_read(scan, w, opaque)

    found = around(partial(loss, partial(loops.scan, spool=spool, segment=1)), kind)(WEIGHT)
    assert close(found, around(partial(loss, jax.lax.scan), kind)(WEIGHT), 1e-5)


#: Pieces of 13 steps, in XLA's memory and through a spool.
CUTS = [Cut(Way.KEEP, 0, 0, 13), Cut(Way.RECOMPUTE, 2, 5, 3), Cut(Way.SPOOL, 2, 5, 3)]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.way.name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_loop_within_a_budget_keeps_what_has_no_derivative_apart(
    monkeypatch: pytest.MonkeyPatch, program: Any, cut: Cut
) -> None:
    monkeypatch.setattr(_planned, "best", lambda *_: cut)
    for of in (opaque, searched):
        found, expected = (
            jax.jit(jax.value_and_grad(lambda w: program(scan, w, of)))(WEIGHT)  # noqa: B023
            for scan in (loops.scan, jax.lax.scan)
        )
        assert close(found, expected)


@pytest.mark.parametrize("cut", CUTS[1:], ids=lambda cut: cut.way.name)
@pytest.mark.parametrize("kind", KINDS)
def test_transformations_of_a_loop_within_a_budget(
    monkeypatch: pytest.MonkeyPatch, kind: str, cut: Cut
) -> None:
    def loss(scan: Any, w: Any) -> Any:
        return counted(scan, w, opaque) + result_is_read(scan, w, opaque)

    monkeypatch.setattr(_planned, "best", lambda *_: cut)
    found = around(partial(loss, loops.scan), kind)(WEIGHT)
    assert close(found, around(partial(loss, jax.lax.scan), kind)(WEIGHT), 1e-5)


@pytest.mark.parametrize("every", [1, 3])
def test_a_while_loop_differentiates_only_what_a_gradient_goes_through(
    spool: unspool.Spool, every: int
) -> None:
    def body(carry: Any, w: Any) -> Any:
        time, u, n = carry
        return time + 0.1, u * w + opaque(time) + table(time), n + 1

    def last(w: Any) -> Any:
        start = jnp.float32(0), START, 0
        loop = partial(loops.while_loop, spool=spool, segment=every)
        time, u, _ = loop(lambda c: (c[2] < 7) & (opaque(c[0]) < 9), partial(body, w=w), start)
        return u.sum() * opaque(time)

    def plain(w: Any) -> Any:
        carry = jnp.float32(0), START, 0
        for _ in range(7):
            carry = body(carry, w)
        return carry[1].sum() * opaque(carry[0])

    found = jax.jit(jax.value_and_grad(last))(WEIGHT)
    assert close(found, jax.jit(jax.value_and_grad(plain))(WEIGHT))


def test_a_derivative_that_is_needed_and_missing_raises_as_in_jax(spool: unspool.Spool) -> None:
    def loss(scan: Any, w: Any) -> Any:
        return scan(lambda u, x: (u * table(w[0]), None), START, ROWS)[0].sum()

    for scan in (jax.lax.scan, partial(loops.scan, spool=spool, segment=1)):
        with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
            jax.jit(jax.grad(partial(loss, scan)))(WEIGHT)


def test_a_loop_that_no_gradient_goes_through_saves_nothing(spool: unspool.Spool) -> None:
    def loss(scan: Any, w: Any) -> Any:
        fixed = jax.lax.stop_gradient(w)
        return scan(lambda u, x: (opaque(u) * 0.4 + fixed, x), START, ROWS)[0] @ w

    found = jax.jit(jax.grad(partial(loss, partial(loops.scan, spool=spool, segment=1))))(WEIGHT)
    assert close(found, jax.jit(jax.grad(partial(loss, jax.lax.scan)))(WEIGHT))
    assert spool.stats().saves == 0


def test_a_callback_is_called_as_often_as_in_jax_where_its_value_is_not_needed_again(
    spool: unspool.Spool,
) -> None:
    calls: list[float] = []

    def noted(x: Any) -> Any:
        calls.append(float(x))
        return np.float32(np.sin(x))

    of = lambda x: jax.pure_callback(noted, SCALAR, x)  # noqa: E731
    step = lambda w, c, _: ((c[0] + 0.1, c[1] * w + of(c[0])), None)  # noqa: E731

    def count(scan: Any) -> int:
        loss = lambda w: scan(partial(step, w), (0.0, START), None, 9)[0][1].sum()  # noqa: E731
        taken = jax.jit(jax.value_and_grad(loss))
        jax.block_until_ready(taken(WEIGHT))
        calls.clear()
        jax.block_until_ready(taken(WEIGHT))
        return len(calls)

    assert count(partial(loops.scan, spool=spool, segment=1)) == count(jax.lax.scan) == 9


def halves(loop: Any, w: Any) -> Any:
    """A loop that looks at values, as one does where there is a debugger."""
    seen = []

    def step(carry: Any, x: Any = None) -> Any:
        seen.append(float(jax.lax.stop_gradient(carry["u"])[0]))
        return {**carry, "u": jnp.sin(carry["u"] * w), "n": carry["n"] + 1}

    carry = loop(step, {"u": START, "n": 0, "name": "wave"})
    assert len(seen) == 5 and carry["name"] == "wave"
    return carry["u"].sum()


def test_without_jit_steps_see_values(spool: unspool.Spool) -> None:
    def ours(step: Any, start: Any) -> Any:
        return loops.scan(lambda c, x: (step(c, x), None), start, None, 5, spool=spool, segment=1)[
            0
        ]

    def until(step: Any, start: Any) -> Any:
        return loops.while_loop(lambda c: c["n"] < 9, step, start, spool=spool, max_steps=5)

    def plain(step: Any, start: Any) -> Any:
        for _ in range(5):
            start = step(start)
        return start

    with jax.disable_jit():
        expected = jax.value_and_grad(partial(halves, plain))(0.9)
        for loop in (ours, until):
            found = jax.jit(jax.value_and_grad(partial(halves, loop)))(0.9)
            assert close(found, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_without_jit_a_scan_is_that_of_jax(spool: unspool.Spool, reverse: bool) -> None:
    def taken(scan: Any) -> Any:
        loss = lambda w: counted(partial(scan, reverse=reverse), w, opaque)  # noqa: E731
        return jax.value_and_grad(loss)(WEIGHT), jax.grad(jax.checkpoint(loss))(WEIGHT)

    with jax.disable_jit():
        assert close(taken(partial(loops.scan, spool=spool, segment=1)), taken(jax.lax.scan))


def test_a_backward_pass_without_jit_reads_what_was_saved_with_it(spool: unspool.Spool) -> None:
    def loss(scan: Any, w: Any) -> Any:
        return scan(lambda u, x: (jnp.sin(u * w), u), START, ROWS)[0].sum()

    _, pull = jax.vjp(jax.jit(partial(loss, partial(loops.scan, spool=spool, segment=1))), WEIGHT)
    assert len(spool) == 2
    with jax.disable_jit():
        assert close(pull(1.0)[0], jax.grad(partial(loss, jax.lax.scan))(WEIGHT))


def test_a_while_loop_without_values_is_compiled_also_without_jit(spool: unspool.Spool) -> None:
    def last(w: Any) -> Any:
        step = lambda c: (c[0] + 1, jnp.sin(c[1] * w))  # noqa: E731
        return loops.while_loop(lambda c: c[0] < 5, step, (0, START), spool=spool)[1].sum()

    expected = jax.grad(last)(WEIGHT)
    with jax.disable_jit():
        assert close(jax.grad(jax.checkpoint(last))(WEIGHT), expected)


CONTEXTS = [
    partial(jax.debug_nans, True),
    partial(jax.debug_infs, True),
    jax.checking_leaks,
    partial(jax.enable_checks, True),
    partial(jax.numpy_rank_promotion, "raise"),
]


@pytest.mark.parametrize("context", CONTEXTS, ids=["nans", "infs", "leaks", "checks", "ranks"])
def test_checks_of_jax_find_nothing(spool: unspool.Spool, context: Any) -> None:
    loss = lambda scan, w: counted(scan, w, opaque)  # noqa: E731
    expected = jax.grad(partial(loss, jax.lax.scan))(WEIGHT)
    for around in (jax.jit, lambda f: f):
        with context():
            taken = around(jax.grad(partial(loss, partial(loops.scan, spool=spool, segment=1))))
            assert close(taken(WEIGHT), expected)


@pytest.mark.parametrize("forwards", [jax.jacfwd, lambda f: lambda w: jax.linearize(f, w)[1](w)])
def test_tangents_are_refused(spool: unspool.Spool, forwards: Any) -> None:
    for loop in (
        lambda w: loops.scan(lambda u, x: (u * w, None), START, ROWS, spool=spool, segment=1)[0],
        lambda w: loops.while_loop(lambda u: u[0] < 5, lambda u: u * w, START, spool=spool),
    ):
        with pytest.raises((OptionError, TypeError), match="forward-mode"):
            forwards(loop)(1.5)


@pytest.mark.parametrize("every", [1, 4])
def test_effects_of_a_step_happen_once(spool: unspool.Spool, every: int) -> None:
    seen: list[float] = []
    note = partial(jax.debug.callback, lambda x: seen.append(float(x)))

    def within(clock: Any) -> Any:
        """In a step, and in a loop, a branch and a function in it."""
        note(clock)
        inner = jax.lax.scan(lambda c, _: (note(c), (c, None))[1], clock, None, 2)[0]
        inner += jax.lax.cond(clock > 3, lambda: (note(clock), 1.0)[1], lambda: 1.0)
        return jax.jit(lambda c: (note(c), c)[1])(inner)

    def count(scan: Any) -> tuple[list[float], Any]:
        def loss(w: Any) -> Any:
            step = lambda c, _: ((c[0] + 1, c[1] * w * within(c[0])), None)  # noqa: E731
            return scan(step, (0.0, START), None, 9)[0][1].sum()

        seen.clear()
        found = jax.block_until_ready(jax.jit(jax.value_and_grad(loss))(0.9))
        jax.effects_barrier()
        return sorted(seen), found

    (ours, found), (theirs, expected) = (
        count(partial(loops.scan, spool=spool, segment=every)),
        count(jax.lax.scan),
    )
    assert ours == theirs and close(found, expected)


def test_a_step_that_reads_what_would_differ_is_refused(spool: unspool.Spool) -> None:
    drawn = iter(range(10**6))
    draw = lambda: np.float32(next(drawn))  # noqa: E731

    def step(w: Any, u: Any) -> Any:
        return u * w * io_callback(draw, SCALAR)

    def scanned(w: Any) -> Any:
        return loops.scan(lambda u, _: (step(w, u), None), START, None, 5, spool=spool, segment=1)[
            0
        ].sum()

    def until(w: Any) -> Any:
        return loops.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, step(w, c[1])), (0, START), spool=spool
        )[1].sum()

    for loss in (scanned, until):
        for taken in (jax.jit(jax.grad(loss)), jax.grad(loss)):
            with pytest.raises(OptionError, match=r"io_callback.*jax\.pure_callback"):
                taken(WEIGHT)
        assert spool.stats().saves == 0


def test_a_step_is_not_traced_again_to_see_what_is_known(
    spool: unspool.Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    look = _perturbed._perturbed

    def counted(*given: Any) -> Any:
        looks.append(given)
        return look(*given)

    def last(u: Any, w: Any) -> Any:
        step = lambda c: (c[0] + 1, jnp.sin(c[1] * w))  # noqa: E731
        return loops.while_loop(lambda c: c[0] < 5, step, (0, u), spool=spool)[1].sum()

    monkeypatch.setattr(_perturbed, "_perturbed", counted)
    # The carry has a derivative already, or gets it from `w` in the first step.
    for argument, times in ((0, 0), (1, 1)):
        looks.clear()
        jax.make_jaxpr(jax.grad(last, argument))(START, WEIGHT)
        assert len(looks) == times
