"""The gradient of a nonlinear diffusion with 12 states kept instead of 400.

The steps in between are computed again, as few as 12 slots allow. `examples/adjoint.py` takes the
same steps and stores every state.
"""

import numpy as np
import unspool
from unspool.schedules import Revolve

STEPS, DT, SLOTS = 400, 0.05, 12


def laplacian(u):
    """Five points, periodic."""
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u


def forward(u, start, stop):
    """The steps of the simulation, in place."""
    for _ in range(start, stop):
        u += DT * (laplacian(u) + u - u**3)


def at_end(u):
    """Half the sum of squares of the last state, and its derivative."""
    global objective
    objective = 0.5 * np.sum(u**2)
    gradient[:] = u


def reverse(u, step):
    """The transpose of one step at its state u."""
    v = gradient
    v += DT * (laplacian(v) + v - 3 * u**2 * v)


u = np.random.default_rng(1).normal(size=(128, 128))
start, gradient, objective = u.copy(), np.zeros_like(u), 0.0
with unspool.Spool(host_memory="2MiB") as spool:
    report = unspool.adjoint(Revolve(STEPS, SLOTS), spool, forward, reverse, u, at_end=at_end)
print(report)
