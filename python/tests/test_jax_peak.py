"""`unspool.jax`: a budget holds. Loops that are drawn at random, and the memory that XLA says their
gradients take, results included."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from unspool.advice.segments import ScanReport, Way, least

jax = pytest.importorskip("jax", "0.10")
import jax.numpy as jnp  # noqa: E402
import unspool.jax as loops  # noqa: E402

#: What a step does to one array of its carry, from the next one and a constant.
MOVES = [
    lambda u, v, w: jnp.sin(u * w) + 0.1 * v,
    lambda u, v, w: 2 * u - v + w * w * (jnp.roll(u, 1) + jnp.roll(u, -1) - 2 * u),
    lambda u, v, w: jnp.tanh(u + w) * v,
    lambda u, v, w: jnp.where(u > 0.5, u * w, jnp.exp(-v * v)),
    lambda u, v, w: u + 0.01 * jnp.cumsum(jnp.cos(v * w)) / u.size,
    lambda u, v, w: 0.99 * u + 0.01 * jnp.sqrt(1 + v * v) * w,
]


def drawn(draw: random.Random) -> tuple[Any, Any]:
    """The gradient of a loop, as a function of the loop, and its arguments."""
    size, steps = draw.randrange(4000, 40_000), draw.randrange(20, 200)
    moves = draw.choices(MOVES, k=draw.randrange(1, 4))
    weights = [jnp.linspace(0.5, 1.0, size) for _ in range(draw.randrange(3))]

    def loss(scan: Any, weights: Any, start: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            us, count = carry
            pairs = zip(moves, us, [*us[1:], us[0]], [*weights, 0.9, 0.8, 0.7], strict=False)
            us = [move(u, v, w) + 0.01 * x for move, u, v, w in pairs]
            return (us, count + 1), us[0].sum()

        (us, _), ys = scan(step, (start, 0), jnp.linspace(0.0, 1.0, steps))
        return sum((u * u).sum() for u in us) + (ys * ys).sum()

    start = [jnp.linspace(0.0, 1.0, size) for _ in moves]
    taken = lambda scan: jax.jit(jax.grad(partial(loss, scan), argnums=(0, 1)))  # noqa: E731
    return taken, (weights, start)


def room(taken: Any, arguments: Any) -> int:
    """What XLA needs for a function, besides its arguments."""
    found = taken.lower(*arguments).compile().memory_analysis()
    return int(found.temp_size_in_bytes + found.output_size_in_bytes)


def parts_of_budgets(seed: int) -> list[float]:
    """What the gradient of a loop takes, in parts of its budget: what is kept, and segments."""
    draw = random.Random(seed)
    taken, arguments = drawn(draw)
    seen: list[ScanReport] = []
    jax.eval_shape(taken(partial(loops.scan, report=seen.append)), *arguments)
    most, lowest = seen[0].kept_bytes, least(seen[0].sizes, (Way.RECOMPUTE,))
    budgets = [most, int(lowest + (most - lowest) * draw.random() ** 2), lowest]
    ways = [partial(loops.scan, budget=budget) for budget in budgets]
    pairs = zip(ways, budgets, strict=True)
    return [room(taken(way), arguments) / budget for way, budget in pairs]


def test_a_gradient_takes_its_budget() -> None:
    found = parts_of_budgets(4)
    assert max(found) <= 1.05
    # And uses it.
    assert found[0] > 0.9


if __name__ == "__main__":
    import sys

    for seed in map(int, sys.argv[1:]):
        print(seed, *(f"{part:.3f}" for part in parts_of_budgets(seed)), flush=True)
