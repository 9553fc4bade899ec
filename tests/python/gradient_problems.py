"""Loops of many kinds whose gradients `unspool.Gradient` has to keep accurate.

Each is written out with its adjoint, in double precision. The gradient is the array "gradient".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from checked_problems import Checked, burgers, tails

__all__ = ["PROBLEMS"]


def _lap(u: Any) -> Any:
    return sum(np.roll(u, 1, axis) + np.roll(u, -1, axis) - 2 * u for axis in range(u.ndim))


def acoustic(shape: tuple[int, ...], steps: int, filled: bool) -> Checked:
    """A wave from a point, or one that fills the domain; the gradient by the speed."""
    axes = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    speed = 0.35 + 0.1 * np.sin(9 * axes[0]) * (axes[-1] > 0.4)
    far = sum((axis - 0.3) ** 2 for axis in axes)
    begun = np.exp(-far / 0.003)
    if filled:
        begun = _smooth(np.random.default_rng(1).normal(size=shape))
    levels = np.stack([begun, begun])
    after, gradient = np.zeros((2, *shape)), np.zeros(shape)
    seen = np.exp(-((axes[-1] - 0.7) ** 2) / 0.002)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u[0], u[1] = u[1].copy(), 2 * u[1] - u[0] + speed**2 * _lap(u[1])

    def at_end(u: Any) -> None:
        gradient[...], after[0], after[1] = 0, 0, seen * u[1]

    def reverse(u: Any, step: int) -> None:
        old, new = after.copy()
        gradient[...] += 2 * speed * _lap(u[1]) * new
        after[0], after[1] = -new, old + 2 * new + _lap(speed**2 * new)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, levels, forward, reverse, at_end, held)


def _smooth(u: Any) -> Any:
    for _ in range(10):
        u = u + 0.15 * _lap(u)
    return u / abs(u).max()


def elastic(size: int = 64, steps: int = 200, filled: bool = False) -> Checked:
    """Displacements in two dimensions; the gradient by the shear modulus."""
    x, y = np.meshgrid(*2 * [np.linspace(0, 1, size)], indexing="ij")
    lam, mu = 0.1 + 0.03 * (x > 0.5), 0.08 + 0.02 * np.sin(5 * y)
    pulse = np.exp(-((x - 0.4) ** 2 + (y - 0.4) ** 2) / 0.003)
    if filled:
        pulse = _smooth(np.random.default_rng(2).normal(size=(size, size)))
    levels = np.stack([[pulse, 0.5 * pulse]] * 2)
    after, gradient = np.zeros_like(levels), np.zeros((size, size))

    def strains(u: Any) -> Any:
        d = [[np.roll(each, -1, axis) - each for axis in (0, 1)] for each in u]
        return d[0][0], d[1][1], d[0][1] + d[1][0]

    def force(u: Any) -> Any:
        xx, yy, xy = strains(u)
        trace = lam * (xx + yy)
        sx, sy, s = trace + 2 * mu * xx, trace + 2 * mu * yy, mu * xy
        back = [[each - np.roll(each, 1, axis) for axis in (0, 1)] for each in (sx, sy, s)]
        return np.stack([back[0][0] + back[2][1], back[2][0] + back[1][1]])

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u[0], u[1] = u[1].copy(), 2 * u[1] - u[0] + force(u[1])

    def at_end(u: Any) -> None:
        gradient[...], after[0], after[1] = 0, 0, u[1] * (y > 0.6)

    def reverse(u: Any, step: int) -> None:
        old, new = after.copy()
        mine, other = strains(new), strains(u[1])
        parts = [2 * mine[0] * other[0], 2 * mine[1] * other[1], mine[2] * other[2]]
        gradient[...] -= sum(parts)
        after[0], after[1] = -new, old + 2 * new + force(new)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, levels, forward, reverse, at_end, held)


def cahn_hilliard(size: int = 64, steps: int = 200) -> Checked:
    """Two phases that separate; the gradient by their mobility."""
    u = 0.1 * np.random.default_rng(3).normal(size=(size, size))
    mobility = 0.02 + 0.005 * np.cos(np.linspace(0, 6, size))[:, None] * np.ones(size)
    after, gradient = np.zeros((size, size)), np.zeros((size, size))

    def potential(u: Any) -> Any:
        return u**3 - u - 0.5 * _lap(u)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u += mobility * _lap(potential(u))

    def at_end(u: Any) -> None:
        gradient[...], after[...] = 0, u

    def reverse(u: Any, step: int) -> None:
        gradient[...] += _lap(potential(u)) * after
        by = _lap(mobility * after)
        after[...] += (3 * u**2 - 1) * by - 0.5 * _lap(by)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


def quantum(levels: int = 40, many: int = 16, steps: int = 300) -> Checked:
    """Oscillators that a pulse drives; the gradient by the pulse at each step."""
    ladder = np.diag(np.sqrt(np.arange(1, levels)), 1)
    drive, energy = ladder + ladder.T, np.diag(np.arange(levels) * 1.0)
    pulse, dt = 0.3 * np.sin(0.05 * np.arange(steps)), 0.02
    psi = np.zeros((levels, many), complex)
    psi[0], psi[1] = np.cos(np.arange(many)), np.sin(np.arange(many))
    after, gradient = np.zeros_like(psi), np.zeros(steps)

    def moved(psi: Any, step: int, sign: int) -> Any:
        made, part = psi, psi
        for order in range(1, 7):
            part = sign * -1j * dt / order * ((energy + pulse[step] * drive) @ part)
            made = made + part
        return made

    def forward(psi: Any, start: int, stop: int) -> None:
        for step in range(start, stop):
            psi[...] = moved(psi, step, 1)

    def at_end(psi: Any) -> None:
        gradient[:], after[...] = 0, psi
        after[3:] = 0

    def reverse(psi: Any, step: int) -> None:
        part, changed, made = psi, 0 * psi, 0 * psi
        for order in range(1, 7):
            rate = -1j * dt / order
            changed = rate * (drive @ part + (energy + pulse[step] * drive) @ changed)
            part = rate * ((energy + pulse[step] * drive) @ part)
            made = made + changed
        gradient[step] = 2 * (after.conj() * made).real.sum()
        after[...] = moved(after, step, -1)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, psi, forward, reverse, at_end, held)


def neural_ode(width: int = 32, many: int = 128, steps: int = 200) -> Checked:
    """One layer over and over; the gradient by its weights."""
    draw = np.random.default_rng(4)
    weights, dt = draw.normal(size=(width, width)) / np.sqrt(width), 0.02
    u = draw.normal(size=(width, many))
    after, gradient = np.zeros_like(u), np.zeros_like(weights)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u += dt * np.tanh(weights @ u)

    def at_end(u: Any) -> None:
        gradient[...], after[...] = 0, u - 1

    def reverse(u: Any, step: int) -> None:
        by = dt * (1 - np.tanh(weights @ u) ** 2) * after
        gradient[...] += by @ u.T
        after[...] += weights.T @ by

    held = {"gradient": gradient, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


def lorenz(steps: int, many: int = 500) -> Checked:
    """Many Lorenz systems; the gradient by their parameter rho, for each."""
    draw = np.random.default_rng(5)
    u = draw.normal(size=(3, many)) * 5 + np.array([[0], [0], [25.0]])
    rho, dt = 28 + draw.normal(size=many), 0.005
    after, gradient = np.zeros_like(u), np.zeros(many)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            x, y, z = u.copy()
            u += dt * np.stack([10 * (y - x), x * (rho - z) - y, x * y - 8 / 3 * z])

    def at_end(u: Any) -> None:
        gradient[:], after[...] = 0, [0 * u[0], 0 * u[0], u[2]]

    def reverse(u: Any, step: int) -> None:
        (x, y, z), (a, b, c) = u, after.copy()
        gradient[:] += dt * x * b
        after[0] += dt * (-10 * a + (rho - z) * b + y * c)
        after[1] += dt * (10 * a - b + x * c)
        after[2] += dt * (-x * b - 8 / 3 * c)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


def layers(width: int = 32, many: int = 64, steps: int = 48) -> Checked:
    """A stack of residual layers with weights of their own; the gradient by all of them."""
    draw = np.random.default_rng(6)
    inner = draw.normal(size=(steps, 2 * width, width)) / np.sqrt(width)
    outer = 0.2 * draw.normal(size=(steps, width, 2 * width)) / np.sqrt(width)
    u, target = draw.normal(size=(2, width, many))
    after = np.zeros_like(u)
    gradient, other = np.zeros_like(inner), np.zeros_like(outer)

    def forward(u: Any, start: int, stop: int) -> None:
        for n in range(start, stop):
            u += outer[n] @ np.tanh(inner[n] @ (u / np.sqrt(1 + (u**2).mean(0))))

    def at_end(u: Any) -> None:
        gradient[...], other[...], after[...] = 0, 0, u - target

    def reverse(u: Any, n: int) -> None:
        scale = np.sqrt(1 + (u**2).mean(0))
        normal = u / scale
        hidden = np.tanh(inner[n] @ normal)
        other[n] = after @ hidden.T
        by = (outer[n].T @ after) * (1 - hidden**2)
        gradient[n] = by @ normal.T
        by = inner[n].T @ by
        after[...] += by / scale - u * (by * u).mean(0) / scale**3

    held = {"gradient": gradient, "other": other, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


def heat(size: int = 64, steps: int = 400) -> Checked:
    """Heat that spreads, seen at one point; the gradient by its conductivity."""
    x, y = np.meshgrid(*2 * [np.linspace(0, 1, size)], indexing="ij")
    u = np.exp(-((x - 0.3) ** 2 + (y - 0.3) ** 2) / 0.01) + 0.2 * np.sin(9 * x * y)
    conductivity = 0.2 + 0.04 * np.sin(9 * y)
    after, gradient = np.zeros_like(u), np.zeros_like(u)

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u += conductivity * _lap(u)

    def at_end(u: Any) -> None:
        gradient[...], after[...] = 0, 0
        after[size // 2, size // 2] = 1

    def reverse(u: Any, step: int) -> None:
        gradient[...] += _lap(u) * after
        after[...] += _lap(conductivity * after)

    held = {"gradient": gradient, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


def stiff(size: int = 1000, steps: int = 200) -> Checked:
    """A bistable reaction by implicit steps; the gradient by its rate."""
    x = np.linspace(0, 1, size)
    u, rate, dt = 0.9 * np.sin(40 * x) + 0.05, 20 + 10 * np.cos(7 * x), 0.05
    after, gradient = np.zeros(size), np.zeros(size)

    def stepped(u: Any) -> Any:
        new = np.sign(u) * np.maximum(abs(u), 0.9)
        for _ in range(12):
            change = new - dt * rate * (new - new**3) - u + 0.02
            new = new - change / (1 - dt * rate * (1 - 3 * new**2))
        return new

    def forward(u: Any, start: int, stop: int) -> None:
        for _ in range(start, stop):
            u[:] = stepped(u)

    def at_end(u: Any) -> None:
        gradient[:], after[:] = 0, u

    def reverse(u: Any, step: int) -> None:
        new = stepped(u)
        by = after / (1 - dt * rate * (1 - 3 * new**2))
        gradient[:] += dt * (new - new**3) * by
        after[:] = by

    held = {"gradient": gradient, "after": after}
    return Checked(steps, u, forward, reverse, at_end, held)


#: What makes each problem, by name.
PROBLEMS = {
    "acoustic 2-D, silent": lambda: acoustic((96, 96), 150, False),
    "acoustic 2-D, filled": lambda: acoustic((96, 96), 150, True),
    "acoustic 3-D, silent": lambda: acoustic((32, 32, 32), 80, False),
    "acoustic 3-D, filled": lambda: acoustic((32, 32, 32), 80, True),
    "elastic 2-D, silent": lambda: elastic(),
    "elastic 2-D, filled": lambda: elastic(filled=True),
    "tails": tails,
    "Burgers": burgers,
    "Cahn-Hilliard": cahn_hilliard,
    "quantum control": quantum,
    "neural ODE": neural_ode,
    "Lorenz, short": lambda: lorenz(200),
    "Lorenz, long": lambda: lorenz(6000),
    "stack of layers": layers,
    "heat, one point": heat,
    "stiff reaction": stiff,
}
