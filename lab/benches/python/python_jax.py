"""What a step of a loop of JAX costs in a forward and a backward pass: microseconds a step.

The gradient of a loop whose state is small, so that the calls themselves are what is measured: as
JAX takes it, with `jax.checkpoint` on the step, as `unspool.jax.scan` chooses, and through a spool:
with each state, with each saved alone, and with one in ten. All of them are measured in turns in
the same run, on the first GPU where JAX has one; the best of several rounds counts, of the time
that passed and of that of the processors, workers included. Run it with the package and JAX
installed:

    python lab/benches/python/python_jax.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

# JAX would take most of a GPU's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import unspool
import unspool.jax
from unspool.jax import _states

#: In KiB.
SIZES = [32, 1024]


def step(u: Any, x: Any) -> Any:
    """A cheap step whose gradient needs the state."""
    return u - 1e-3 * u * u * x, u[0]


def gradient(scan: Callable[..., Any]) -> Any:
    """The compiled gradient of a loop."""

    def loss(u: Any, xs: Any) -> Any:
        u, ys = scan(step, u, xs)
        return jnp.sum(u * u) + jnp.sum(ys)

    return jax.jit(jax.grad(loss))


def checkpointed(f: Any, init: Any, xs: Any) -> Any:
    """`jax.lax.scan` that keeps the carry of each step, as a loop through a spool does."""
    return jax.lax.scan(jax.checkpoint(f), init, xs)


def alone(*arguments: Any, **options: Any) -> Any:
    """`unspool.jax.scan` with blocks of one state."""
    with mock.patch.object(_states, "MOST", 1):
        return unspool.jax.scan(*arguments, **options)


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """The microseconds that an action takes, and those of all processors of this process."""
    start, used = time.perf_counter(), time.process_time()
    action()
    return (time.perf_counter() - start) * 1e6, (time.process_time() - used) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps and rounds")
    quick = parser.parse_args().quick
    steps, rounds = (300, 3) if quick else (1_000, 7)
    place = "cuda" if jax.default_backend() == "gpu" else "cpu"
    print(f"{jax.devices()[0]}, JAX {jax.__version__}, {steps} steps")
    for kibibytes in SIZES:
        table(kibibytes, steps, rounds, place)


def table(kibibytes: int, steps: int, rounds: int, place: str) -> None:
    u, xs = jnp.ones(kibibytes * 256), jnp.ones(steps)
    tier = "device" if place == "cuda" else "host"
    room = f"{(kibibytes + 4) * (steps + 8) * 2}KiB"
    with unspool.Spool(**{tier: room}, device=place) as spool:
        ways = {
            "jax.lax.scan": gradient(jax.lax.scan),
            "jax.checkpoint on the step": gradient(checkpointed),
            "unspool.jax.scan": gradient(unspool.jax.scan),
            "unspool.jax.scan, segment=1": gradient(
                partial(unspool.jax.scan, spool=spool, segment=1)
            ),
            "  each state alone": gradient(partial(alone, spool=spool, segment=1)),
            "unspool.jax.scan, segment=10": gradient(
                partial(unspool.jax.scan, spool=spool, segment=10)
            ),
        }
        best = dict.fromkeys(ways, (float("inf"), float("inf")))
        for _ in range(rounds + 1):
            for name, taken in ways.items():
                found = timed(lambda taken=taken: jax.block_until_ready(taken(u, xs)))
                best[name] = tuple(map(min, best[name], found))
    print(f"\n{f'a state of {kibibytes} KiB':32}{'a step':>10}{'processor':>12}  microseconds")
    for name, found in best.items():
        print(f"{name:32}{found[0] / steps:10.2f}{found[1] / steps:12.2f}")


if __name__ == "__main__":
    main()
