"""A real adjoint: its gradient from a spool equals the one from storing everything, bit for bit.

The model is the viscous Burgers equation on a periodic line, with a passive tracer, in explicit
steps. Both equations are nonlinear in the unknowns, so that the adjoint of each step needs the
state before it. The gradient of the misfit at the end with respect to the initial state is checked
against a central difference as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool

CELLS, STEPS = 512, 300
DX = 2 * np.pi / CELLS
DT, VISCOSITY = 0.2 * DX, 0.02


def slope(f: np.ndarray) -> np.ndarray:
    """The central difference on the periodic line; it is antisymmetric."""
    return (np.roll(f, -1) - np.roll(f, 1)) / (2 * DX)


def bend(f: np.ndarray) -> np.ndarray:
    """The second difference on the periodic line; it is symmetric."""
    return (np.roll(f, -1) - 2 * f + np.roll(f, 1)) / DX**2


def step(u: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step: `u` velocity, `c` tracer."""
    moved = u + DT * (VISCOSITY * bend(u) - u * slope(u))
    carried = c + DT * (VISCOSITY * bend(c) - u * slope(c))
    return moved, carried


def step_back(
    u: np.ndarray, c: np.ndarray, u_bar: np.ndarray, c_bar: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The transposed derivative of `step` at (u, c), applied to (u_bar, c_bar)."""
    u_new = u_bar + DT * (VISCOSITY * bend(u_bar) - slope(u) * u_bar + slope(u * u_bar))
    u_new -= DT * slope(c) * c_bar
    c_new = c_bar + DT * (VISCOSITY * bend(c_bar) + slope(u * c_bar))
    return u_new, c_new


def start() -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(CELLS) * DX
    return np.sin(x) + 0.5, np.cos(3 * x)


Save = Callable[[int, np.ndarray, np.ndarray], None]
Restore = Callable[[int, np.ndarray, np.ndarray], None]


def misfit(u: np.ndarray, c: np.ndarray) -> float:
    return 0.5 * float(np.sum((u - 0.3) ** 2) + np.sum(c**2))


def gradient(save: Save, restore: Restore, turn: Callable[[], None]) -> np.ndarray:
    """Forward with `save`, then back with `restore`."""
    u, c = start()
    for n in range(STEPS):
        save(n, u, c)
        u, c = step(u, c)
    turn()
    u_bar, c_bar = u - 0.3, c.copy()
    u, c = np.empty(CELLS), np.empty(CELLS)
    for n in reversed(range(STEPS)):
        restore(n, u, c)
        u_bar, c_bar = step_back(u, c, u_bar, c_bar)
    return np.concatenate([u_bar, c_bar])


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    """The gradient with every state kept in a list."""
    history: list[tuple[np.ndarray, np.ndarray]] = []

    def restore(n: int, u: np.ndarray, c: np.ndarray) -> None:
        u[:], c[:] = history[n]

    return gradient(lambda n, u, c: history.append((u.copy(), c.copy())), restore, lambda: None)


def test_the_gradient_is_a_derivative(stored: np.ndarray) -> None:
    u, c = start()
    random = np.random.default_rng(0)
    direction = random.standard_normal(2 * CELLS)
    values = []
    for sign in (1, -1):
        v, d = u + sign * 1e-6 * direction[:CELLS], c + sign * 1e-6 * direction[CELLS:]
        for _ in range(STEPS):
            v, d = step(v, d)
        values.append(misfit(v, d))
    difference = (values[0] - values[1]) / 2e-6
    assert difference == pytest.approx(stored @ direction, rel=1e-7)


TIERS = [
    {"host_memory": "64MiB"},
    {"host_memory": "200KiB", "disk": True},
    {"device_memory": "100KiB", "host_memory": "300KiB", "disk": True},
    {"disk": True},
]


@pytest.mark.parametrize("tiers", TIERS, ids=lambda tiers: "+".join(tiers))
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("hints", ["first", "at the turn", "none"])
def test_the_gradient_from_a_spool_is_the_stored_one(
    tiers: dict[str, object], once: bool, hints: str, stored: np.ndarray, tmp_path: Path
) -> None:
    options = {**tiers, **({"disk": tmp_path} if "disk" in tiers else {})}
    with unspool.Spool(**options) as spool:
        order = reversed(range(STEPS))
        if hints == "first":
            spool.expect(order, once=once)

        def turn() -> None:
            if hints == "at the turn":
                spool.expect(order, once=once)

        found = gradient(spool.save, spool.restore, turn)
        assert found.tobytes() == stored.tobytes()
        assert len(spool) == (0 if once and hints != "none" else STEPS)


def test_a_gradient_with_recomputation_is_the_stored_one(
    stored: np.ndarray, tmp_path: Path
) -> None:
    """Every tenth state is kept by name; the others are computed again, ten at a time."""
    with unspool.Spool(host_memory="64KiB", disk=tmp_path) as spool:
        assert _recomputed(spool).tobytes() == stored.tobytes()


def _recomputed(spool: unspool.Spool, every: int = 10) -> np.ndarray:
    u, c = start()
    for n in range(STEPS):
        if n % every == 0:
            spool.save(n, velocity=u, tracer=c)
        u, c = step(u, c)
    spool.expect(reversed(range(0, STEPS, every)))
    u_bar, c_bar = u - 0.3, c.copy()
    for first in reversed(range(0, STEPS, every)):
        spool.restore(first, tracer=c, velocity=u)
        for v, d in reversed(list(_segment(u, c, every))):
            u_bar, c_bar = step_back(v, d, u_bar, c_bar)
    return np.concatenate([u_bar, c_bar])


def _segment(u: np.ndarray, c: np.ndarray, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _ in range(count):
        yield u, c
        u, c = step(u, c)
