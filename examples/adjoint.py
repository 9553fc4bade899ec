"""The gradient of a nonlinear diffusion by its adjoint; 200 MB of history in 20 MiB of memory."""

import tempfile

import numpy as np
import unspool

STEPS, DT = 400, 0.05


def laplacian(u):
    """Five points, periodic."""
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u


def advance(u):
    """One step of the simulation."""
    return u + DT * (laplacian(u) + u - u**3)


def adjoint(u, v):
    """The transpose of that step at the state u, applied to v."""
    return v + DT * (laplacian(v) + v - 3 * u**2 * v)


u = np.random.default_rng(1).normal(size=(256, 256))
disk = tempfile.gettempdir()
with unspool.Spool("4MiB", "16MiB", disk) as spool:
    for step in range(STEPS):
        spool.save(step, u)
        u = advance(u)
    objective, gradient = 0.5 * np.sum(u**2), u.copy()
    spool.expect(reversed(range(STEPS)), once=True)
    for step in reversed(range(STEPS)):
        spool.restore(step, u)
        gradient = adjoint(u, gradient)
    print(spool.stats())
