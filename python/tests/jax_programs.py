"""Loops of JAX for the tests of `unspool.jax`, and how gradients are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: A loop such as `jax.lax.scan`.
Scan = Callable[..., Any]

WEIGHT = jnp.linspace(0.1, 0.9, 6)
START = jnp.cos(jnp.arange(6.0))
ROWS = jnp.linspace(-1.0, 1.0, 13)
#: What is saved of the small states of as many steps: a block of 8 and one of 5.
BLOCKS = 2


def wave(scan: Scan, weight: Any, start: Any, rows: Any) -> Any:
    """A step that closes over a traced value, with a counter in its carry and a tree of outputs."""

    def step(carry: Any, row: Any) -> Any:
        u, count = carry["u"], carry["count"]
        u = jnp.sin(u * weight + row) + 0.5 * u
        return {"u": u, "count": count + 1}, (u.sum() * row, count)

    carry, (sums, counts) = scan(step, {"u": start, "count": 0}, rows)
    return (carry["u"] ** 2).sum() + (sums**2).sum() + 0.1 * (counts * sums).sum()


def network(scan: Scan, weight: Any, start: Any, rows: Any) -> Any:
    """A step that reads two closed-over values, one of them not differentiated, and a mask."""
    mixing = jnp.eye(weight.size) + 0.1

    def step(carry: Any, row: Any) -> Any:
        hidden, seen, key = carry
        key, draw = jax.random.split(key)
        noise = jax.random.normal(draw, hidden.shape)
        hidden = jnp.tanh(mixing @ hidden * weight + row + 0.1 * noise)
        return (hidden, seen | (hidden > 0.9), key), None

    rest = (start, jnp.zeros(start.shape, bool), jax.random.key(3))
    (hidden, seen, _), _ = scan(step, rest, rows)
    return jnp.where(seen, 2.0, 1.0) @ hidden


def nested(scan: Scan, weight: Any, start: Any, rows: Any, inner: Scan | None = None) -> Any:
    """A loop in a loop."""
    within = inner or scan

    def step(u: Any, row: Any) -> Any:
        u, ys = within(lambda u, x: (jnp.sin(u * weight + x * row), u.sum()), u, rows[:4])
        return u, ys.sum()

    u, ys = scan(step, start, rows)
    return (u**2).sum() + (ys**2).sum()


def exact(scan: Scan, weight: Any, start: Any, rows: Any) -> Any:
    """A loop of small whole numbers, in which nothing is rounded."""
    step = lambda u, x: (weight * x - u * jnp.sign(u), u.sum() * x)  # noqa: E731
    u, ys = scan(step, start, rows)
    return (u * u).sum() + (ys * ys).sum()


def gradients(program: Any, scan: Scan, *arguments: Any) -> Any:
    """The value of a program and all of its gradients, compiled."""
    arguments = arguments or (WEIGHT, START, ROWS)
    taken = jax.value_and_grad(lambda *given: program(scan, *given), argnums=(0, 1, 2))
    return jax.jit(taken)(*arguments)


def close(found: Any, expected: Any, tolerance: float = 2e-6) -> bool:
    """Whether two trees are the same up to rounding, relative to the largest item of each leaf."""

    def of(one: Any, other: Any) -> bool:
        one, other = np.asarray(one), np.asarray(other)
        scale = float(np.abs(other).max()) if other.size else 0.0
        return one.shape == other.shape and bool(np.all(np.abs(one - other) <= tolerance * scale))

    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(of(one, other) for one, other in pairs)


def same(found: Any, expected: Any) -> bool:
    """Whether two trees have the same bits."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)


def remade(scan: Scan) -> Scan:
    """`jax.lax.scan` whose steps are computed again, as a program with a spool does."""
    return lambda step, *rest, **options: scan(jax.checkpoint(step), *rest, **options)


#: The first lane takes no step.
LANES = jnp.stack([100.0 * START, START, 0.1 * START, 0.01 * START])


def python_loop(cond: Any, body: Any, carry: Any, *, max_steps: int | None = None) -> Any:
    """The loop of one lane, which JAX differentiates step by step."""
    taken = 0
    while bool(cond(carry)) and (max_steps is None or taken < max_steps):
        carry, taken = body(carry), taken + 1
    return carry


def masked(
    cond: Any, body: Any, carry: Any, *, max_steps: int | None = None, length: int = 60
) -> Any:
    """The same as a loop of a known number of steps, in a lane that is mapped over too."""

    def step(carry: Any, _: Any) -> Any:
        active, after = cond(carry), body(carry)
        return jax.tree.map(lambda *pair: jnp.where(active, *pair), after, carry), None

    return jax.lax.scan(step, carry, length=length if max_steps is None else max_steps)[0]


def growing(loop: Any, weight: Any, start: Any) -> Any:
    """Counters, a mask and a key in the carry, and a value that the steps close over."""

    def body(carry: Any) -> Any:
        words = jax.random.key_data(carry["key"]) + 1
        key = jax.random.wrap_key_data(words)
        u = carry["u"] * (1.2 + 0.1 * jnp.cos(carry["u"] * weight)) + 1e-3 * words[-1]
        return {"u": u, "n": carry["n"] + 1, "seen": carry["seen"] | (u > 3), "key": key}

    carry = {"u": start, "n": 0, "seen": start > 3, "key": jax.random.key(5)}
    last = loop(lambda carry: jnp.abs(carry["u"]).sum() < 30.0, body, carry)
    return (jnp.where(last["seen"], 2.0, 1.0) * last["u"] ** 2).sum() * (1 + last["n"])


def by_lane(taken: Callable[..., Any], *lanes: Any) -> Any:
    """What a function returns for each lane alone, stacked."""
    found = [taken(*(each[n] for each in lanes)) for n in range(len(lanes[0]))]
    return jax.tree.map(lambda *each: jnp.stack(each), *found)
