"""`unspool.jax`: nothing of a call that has failed stays in the spool."""

from __future__ import annotations

import gc
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import unspool

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402

from helpers import python  # noqa: E402
from jax_programs import START, WEIGHT, close  # noqa: E402

STEPS = 40
#: Blocks of eight states.
BLOCKS = 5


class Failing:
    """A function in the middle of a program that fails when it is called once too often."""

    def __init__(self) -> None:
        self.left = 10**9

    def __call__(self, x: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("that was once too often")
        return np.float32(1)

    def after(self, calls: int) -> None:
        self.left = calls


@pytest.fixture
def failing() -> Failing:
    return Failing()


@pytest.fixture
def spool() -> Any:
    with unspool.Spool(host_memory="1MiB", timeout=10) as opened:
        yield opened


@pytest.fixture
def loss(spool: unspool.Spool, failing: Failing) -> Any:
    """A loop that calls `failing` once a step, and in the backward pass once a step too."""

    @jax.custom_vjp
    def watched(x: Any) -> Any:
        return x * jax.pure_callback(failing, jax.ShapeDtypeStruct((), jnp.float32), 1.0)

    def back(_: Any, by: Any) -> Any:
        one = jax.pure_callback(failing, jax.ShapeDtypeStruct((), jnp.float32), by.sum())
        return (by * one,)

    watched.defvjp(lambda x: (watched(x), None), back)

    def summed(w: Any) -> Any:
        step = lambda u, _: (watched(jnp.sin(u * w)), None)  # noqa: E731
        return loops.scan(step, START, None, STEPS, spool=spool, segment=1)[0].sum()

    return summed


def calls_of(function: Any, failing: Failing) -> int:
    """How often a call of `function` calls `failing`."""
    failing.after(10**6)
    jax.block_until_ready(function(WEIGHT))
    return 10**6 - failing.left


def attempt(function: Any) -> None:
    with pytest.raises(Exception, match="once too often"):
        jax.block_until_ready(function(WEIGHT))


def doubled(loss: Any) -> Any:
    return lambda w: loss(w) * loss(2 * w)


def pulled(loss: Any) -> Any:
    """Forward and backward pass as two programs."""
    compiled = jax.jit(loss)
    return lambda w: jax.vjp(compiled, w)[1](1.0)


WAYS = {
    "one program": lambda loss: jax.jit(jax.grad(loss)),
    "two loops": lambda loss: jax.jit(jax.grad(doubled(loss))),
    "two programs": pulled,
    "without jit": jax.grad,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", [0.1, 0.5, 0.95], ids=["early", "middle", "late"])
def test_a_call_that_has_raised_leaves_nothing(
    spool: unspool.Spool, loss: Any, failing: Failing, way: str, part: float
) -> None:
    taken = WAYS[way](loss)
    calls = calls_of(taken, failing)
    for _ in range(3):
        failing.after(int(part * calls))
        attempt(taken)
        gc.collect()
        assert len(spool) == 0
    failing.after(10**6)
    assert close(taken(WEIGHT), taken(WEIGHT)) and len(spool) == 0


def test_calls_that_fail_do_not_fill_the_spool(loss: Any, failing: Failing) -> None:
    taken = jax.jit(jax.grad(loss))
    calls = calls_of(taken, failing)
    for _ in range(1_000):
        # A spool with room for fewer calls; nobody looks at it.
        failing.after(calls - 1)
        attempt(taken)


def test_what_a_later_backward_pass_reads_stays(
    spool: unspool.Spool, loss: Any, failing: Failing
) -> None:
    compiled, taken = jax.jit(loss), jax.jit(jax.grad(loss))
    pulls = [jax.vjp(compiled, WEIGHT * k)[1] for k in (1, 2)]
    calls = calls_of(taken, failing)
    for _ in range(20):
        failing.after(calls - 1)
        attempt(taken)
    assert len(spool) == 2 * BLOCKS
    failing.after(10**6)
    for k, pull in enumerate(pulls, 1):
        assert close(pull(1.0)[0], taken(WEIGHT * k))
    assert len(spool) == 0


def test_what_a_call_left_is_gone_in_the_next_one_beside_a_function_that_is_held(
    spool: unspool.Spool, loss: Any, failing: Failing
) -> None:
    seen: list[int] = []

    def look(_: Any) -> Any:
        # In the middle of a program this counts, and drops nothing.
        seen.append(len(spool))
        return np.float32(1)

    @jax.custom_vjp
    def same(x: Any) -> Any:
        return x

    def back(_: Any, by: Any) -> Any:
        # In the backward pass: the forward pass of the same call has begun before.
        return (by * jax.pure_callback(look, jax.ShapeDtypeStruct((), jnp.float32), by.sum()),)

    same.defvjp(lambda x: (x, None), back)

    def last(w: Any) -> Any:
        step = lambda u, _: (same(jnp.sin(u * w)), None)  # noqa: E731
        return loops.scan(step, START, None, 2, spool=spool, segment=1)[0].sum()

    taken, looking = jax.jit(jax.grad(loss)), jax.jit(jax.grad(last))
    calls = calls_of(taken, failing)
    failing.after(10**6)
    pull = jax.vjp(jax.jit(loss), WEIGHT)[1]
    for _ in range(20):
        jax.block_until_ready(looking(WEIGHT))
    failing.after(calls // 2)
    attempt(taken)
    jax.block_until_ready(looking(WEIGHT))
    assert set(seen) <= {BLOCKS, BLOCKS + 1}
    failing.after(10**6)
    assert close(pull(1.0)[0], taken(WEIGHT)) and len(spool) == 0


def test_what_a_function_that_was_dropped_would_have_read_goes(
    spool: unspool.Spool, loss: Any
) -> None:
    _, pull = jax.vjp(jax.jit(loss), WEIGHT)
    assert len(spool) == BLOCKS
    del pull
    gc.collect()
    assert len(spool) == 0


def test_a_spool_that_was_full_has_nothing_of_the_other_loops_of_the_program() -> None:
    with unspool.Spool(host_memory="1MiB", timeout=5) as spool:

        def last(start: Any, w: Any) -> Any:
            step = lambda u, _: (jnp.sin(u * w), None)  # noqa: E731
            return loops.scan(step, start, None, STEPS, spool=spool, segment=1)[0].sum()

        loss = lambda w: last(jnp.ones(10), w) * last(jnp.ones(30_000), w)  # noqa: E731
        with pytest.raises(Exception, match="There is no room for version"):
            jax.block_until_ready(jax.jit(jax.grad(loss))(0.5))
        assert len(spool) == 0


def test_a_forward_pass_that_is_computed_again_is_not_kept_twice(spool: unspool.Spool) -> None:
    def last(w: Any) -> Any:
        step = lambda c: (c[0] + 1, jnp.sin(c[1] * w))  # noqa: E731
        return loops.while_loop(lambda c: c[0] < 7, step, (0, START), spool=spool)[1].sum()

    # XLA does not leave the states out of the first forward pass, which nobody reads.
    taken = jax.jit(jax.value_and_grad(jax.checkpoint(last)))
    for _ in range(3):
        found = jax.block_until_ready(taken(WEIGHT))
        assert len(spool) == 0
    assert close(found, jax.value_and_grad(last)(WEIGHT))


def test_a_look_at_the_spool_in_the_middle_of_a_program_drops_nothing(
    spool: unspool.Spool,
) -> None:
    seen: list[int] = []

    def look() -> Any:
        seen.append(len(spool))
        return np.float32(1)

    def last(w: Any) -> Any:
        one = lambda: jax.pure_callback(look, jax.ShapeDtypeStruct((), jnp.float32))  # noqa: E731
        step = lambda u, _: (jnp.sin(u * w) * one(), None)  # noqa: E731
        return loops.scan(step, START, None, STEPS, spool=spool, segment=1)[0].sum()

    step = lambda w, u, _: (jnp.sin(u * w), None)  # noqa: E731
    plain = jax.grad(lambda w: jax.lax.scan(partial(step, w), START, None, STEPS)[0].sum())
    for taken in (jax.jit(jax.grad(last)), jax.grad(last)):
        assert close(taken(WEIGHT), plain(WEIGHT))
    assert max(seen) > 0 and len(spool) == 0


def test_threads_that_look_while_others_compute(spool: unspool.Spool) -> None:
    def last(w: Any) -> Any:
        step = lambda u, _: (jnp.sin(u * w), None)  # noqa: E731
        return loops.scan(step, START, None, STEPS, spool=spool, segment=1)[0].sum()

    taken, over = jax.jit(jax.grad(last)), threading.Event()
    expected = taken(WEIGHT)
    looks: list[int] = []

    def look() -> None:
        while not over.is_set():
            looks.append(len(spool))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(200):
            assert close(jax.block_until_ready(taken(WEIGHT)), expected)
    finally:
        over.set()
        watcher.join(60)
    assert looks and len(spool) == 0


def test_threads_that_ask_at_once_do_not_wait_for_each_other() -> None:
    """Each lets the other one go on while it asks, as calls of Python may; a lock that was held
    meanwhile stopped both for ever."""
    program = """if True:
        import threading
        import jax, jax.numpy as jnp, unspool, unspool.jax as loops
        from unspool._unspool import jax_tidied_by

        with unspool.Spool(host_memory="1MiB") as spool:
            given = {"spool": spool, "segment": 1}
            run = lambda x: loops.scan(lambda u, _: (u * x, None), x, None, 8, **given)[0]
            kept = jax.vjp(run, jnp.float32(1))
            both = threading.Barrier(2)
            before = jax_tidied_by(lambda of_python, run: both.wait(20))
            threads = [threading.Thread(target=len, args=(spool,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            jax_tidied_by(before)
            print("broken" if both.broken else "passed")
    """
    done = python(program, timeout=120)
    assert done.stdout.strip() == "passed", done.stderr
