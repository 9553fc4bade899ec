"""An inversion with `unspool.Gradient`: estimates beside true errors, misfits beside exact ones.

A wave in two dimensions from one source, receivers beside it, L-BFGS. Each gradient is computed
twice: with the bounds that were chosen, and with lossless states for the true error. Run it in the
repository with the package installed:

    python lab/benches/python/python_gradient_inversion.py [--iterations 20] [--target 1e-3]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import unspool
from unspool.schedules import StoreAll

SIZE, STEPS, DEPTH = 80, 240, 12
TIMES = np.arange(STEPS) - 30
SOURCE = (1 - 2 * (np.pi * 0.04 * TIMES) ** 2) * np.exp(-((np.pi * 0.04 * TIMES) ** 2))


def models() -> tuple[Any, Any]:
    """The true speeds, and those at the start."""
    z, x = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    body = 0.04 * np.exp(-((x - 40) ** 2 + (z - 30) ** 2) / 60)
    return 0.3 + 0.1 * (z > 40) + 0.05 * (z > 60) + body, 0.3 + 0.1 * np.clip((z - 25) / 40, 0, 1)


def damping() -> Any:
    """What waves keep of themselves near the edges."""
    near = np.minimum(np.arange(SIZE), np.arange(SIZE)[::-1])
    each = 1 - 0.02 * np.clip(1 - near / 10, 0, 1) ** 2
    return each[:, None] * each


def _lap(u: Any) -> Any:
    return sum(np.roll(u, 1, axis) + np.roll(u, -1, axis) - 2 * u for axis in (0, 1))


class Shot:
    """One source, whose waves are compared with data."""

    def __init__(self, data: Any) -> None:
        self.data, self.damp = data, damping()
        self.residual = np.zeros((STEPS, SIZE))
        self.gradient, self.after = np.zeros((SIZE, SIZE)), np.zeros((2, SIZE, SIZE))

    def forward(self, u: Any, start: int, stop: int) -> None:
        """Takes steps, and notes how far the traces are from the data."""
        for n in range(start, stop):
            new = self.damp * (2 * u[1] - self.damp * u[0] + self.speed**2 * _lap(u[1]))
            new[DEPTH, SIZE // 2] += SOURCE[n]
            u[0], u[1] = u[1].copy(), new
            self.residual[n] = new[DEPTH] - self.data[n]

    def at_end(self, u: Any) -> None:
        """Says the misfit, and clears the adjoint."""
        self.gradient[...], self.after[...] = 0, 0
        self.misfit = float((self.residual**2).sum()) / 2

    def reverse(self, u: Any, n: int) -> None:
        """Takes the adjoint back over a step."""
        self.after[1, DEPTH] += self.residual[n]
        old, new = self.after[0].copy(), self.damp * self.after[1]
        self.gradient += 2 * self.speed * _lap(u[1]) * new
        self.after[0], self.after[1] = -self.damp * new, old + 2 * new + _lap(self.speed**2 * new)

    def run(self, speed: Any, codec: Any) -> tuple[float, Any, Any]:
        """Misfit, gradient and report."""
        self.speed = speed
        held = {"gradient": self.gradient, "after": self.after}
        with unspool.Spool(host_memory="1GiB", device="cpu") as spool:
            report = unspool.adjoint(
                StoreAll(STEPS),
                spool,
                self.forward,
                self.reverse,
                np.zeros((2, SIZE, SIZE)),
                at_end=self.at_end,
                adjoint_state=held,
                access=unspool.types.Access(codec=codec),
            )
        return self.misfit, self.gradient.copy(), report


class Lbfgs:
    """Directions of L-BFGS from the last changes of model and gradient."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def direction(self, gradient: Any) -> Any:
        """Where to go from a gradient."""
        found = gradient.ravel().copy()
        if not self.pairs:
            return (0.02 / abs(found).max() * found).reshape(gradient.shape)
        parts = []
        for s, y in reversed(self.pairs):
            parts.append(s @ found / (s @ y))
            found -= parts[-1] * y
        s, y = self.pairs[-1]
        found *= s @ y / (y @ y)
        for (s, y), part in zip(self.pairs, reversed(parts), strict=True):
            found += (part - y @ found / (s @ y)) * s
        return found.reshape(gradient.shape)

    def add(self, s: Any, y: Any) -> None:
        """Notes one step."""
        if s @ y > 0:
            self.pairs = [*self.pairs, (s, y)][-8:]


def invert(shot: Shot, model: Any, codec: Any, iterations: int, watch: Any) -> tuple[Any, list]:
    """The model after so many iterations, and the misfits."""
    way, (misfit, gradient, _) = Lbfgs(), shot.run(model, codec)
    misfits = [misfit]
    for n in range(iterations):
        direction, length = way.direction(gradient), 1.0
        while True:
            tried = np.clip(model - length * direction, 0.2, 0.6)
            found, other, report = shot.run(tried, codec)
            if found < misfits[-1] or length < 1e-3:
                break
            length /= 2
        watch(n, tried, other, report.fidelity)
        way.add((tried - model).ravel(), (other - gradient).ravel())
        model, gradient = tried, other
        misfits.append(found)
    return model, misfits


def main() -> None:
    """Prints a line for each iteration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--target", type=float, default=1e-3)
    options = parser.parse_args()
    true, start = models()
    observed = Shot(np.zeros((STEPS, SIZE)))
    observed.run(true, "lossless")
    shot, beside = Shot(observed.residual.copy()), Shot(observed.residual.copy())
    model, exact = invert(beside, start, "lossless", options.iterations, lambda *_: None)
    order = unspool.Gradient(options.target, of="gradient")

    def watch(n: int, tried: Any, found: Any, fidelity: Any) -> None:
        right = beside.run(tried, "lossless")[1]
        off = np.linalg.norm(found - right) / np.linalg.norm(right)
        size, ratio = np.linalg.norm(right), fidelity.raw_bytes / fidelity.stored_bytes
        print(
            f"| {n + 1} | {size:.1f} | {off:.1e} | {fidelity.estimate:.1e} | {ratio:.1f} |",
            flush=True,
        )

    print("| iteration | norm of the gradient | true error | estimate | times smaller |")
    print("| --- | --- | --- | --- | --- |")
    other, misfits = invert(shot, start, order, options.iterations, watch)
    apart = max(abs(a / b - 1) for a, b in zip(misfits, exact, strict=True))
    print(f"misfit {misfits[0]:.4f} to {misfits[-1]:.4f}; at most {apart:.1e} from exact ones")
    print(
        f"model: {np.linalg.norm(other - model) / np.linalg.norm(model - start):.1e} of its change"
    )
    print(order)


if __name__ == "__main__":
    main()
