"""Pulses that turn a chain of spins into a quantum Fourier transform, by GRAPE with few states.

Spins in a row are coupled to their neighbours, and each is turned by two fields, about x and about
y. A pulse holds the strength of every field in every step. How far the propagator is at the end
from a wanted gate, whatever its phase, is the infidelity 1 - abs(trace(gate^H U) / size)**2, and
its derivative by all strengths comes from one run forwards and one backwards (GRAPE: Khaneja et
al., J. Magn. Reson. 172, 2005). The derivative of each step is exact, by the eigenvalues of its
Hamiltonian (Machnes et al., Phys. Rev. A 84, 022305, 2011). Of the propagators, complex128 arrays,
`--slots` are kept at a time, and `Revolve` computes the others again.

    pip install unspool numpy
    python examples/quantum_control.py --spins 3 --steps 100 --slots 8 --iterations 20

`--device cuda --device-memory 1GiB` computes with CuPy on a GPU. Times are in units of the inverse
coupling.
"""

import argparse
import itertools
import math

import numpy as np
import unspool
from unspool.schedules import Revolve

#: How often an iteration tries half as far.
HALVINGS = 30

X, Y, Z = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])


class Spins:
    """The propagator of a row of spins, complex128, on arrays of `xp`: NumPy or CuPy.

    `pulse` has the shape (steps, fields) and is read by every step: fields are x and y of the first
    spin, then of the second one, and so on.
    """

    def __init__(self, spins, steps, duration, xp=np):
        self.xp, self.dt, self.size = xp, duration / steps, 2**spins
        turns = [_on(matrix, at, spins) for at in range(spins) for matrix in (X, Y)]
        zs = [_on(Z, at, spins) for at in range(spins)]
        pairs = itertools.pairwise(zs)
        self.coupling = xp.asarray(sum((a @ b for a, b in pairs), np.zeros_like(zs[0])))
        self.fields = xp.asarray(np.stack(turns))
        self.pulse = self.weak(steps)

    def weak(self, steps, seed=1):
        """A pulse of weak fields."""
        strengths = np.random.default_rng(seed).normal(size=(steps, len(self.fields)))
        return self.xp.asarray(0.5 * strengths)

    def start(self):
        """The propagator before the first step."""
        return self.xp.eye(self.size, dtype="complex128")

    def forward(self, u, start, stop):
        """The steps start to stop - 1, in place."""
        for step in range(start, stop):
            values, vectors = self._levels(step)
            turned = self.xp.exp(-1j * self.dt * values)[:, None] * (vectors.conj().T @ u)
            u[:] = vectors @ turned

    def back(self, u, step, adjoint):
        """Takes the adjoint back over a step, in place: the derivative by the step's fields.

        `u` is the propagator before the step. The exponential of a Hamiltonian with eigenvalues a
        and b changes by its divided differences, which are a sinc of a - b.
        """
        xp, (values, vectors) = self.xp, self._levels(step)
        middle = self.dt * (values[:, None] + values) / 2
        half = self.dt * (values[:, None] - values) / 2
        divided = -1j * self.dt * xp.exp(-1j * middle) * xp.sinc(half / np.pi)
        inside = vectors.conj().T @ adjoint @ u.conj().T @ vectors
        change = vectors @ (divided.conj() * inside) @ vectors.conj().T
        turned = xp.exp(1j * self.dt * values)[:, None] * (vectors.conj().T @ adjoint)
        adjoint[:] = vectors @ turned
        return (change.conj() * self.fields).sum((1, 2)).real

    def _levels(self, step):
        """Eigenvalues and eigenvectors of the Hamiltonian of a step."""
        turns = (self.pulse[step][:, None, None] * self.fields).sum(0)
        return self.xp.linalg.eigh(self.coupling + turns)


def _on(matrix, at, spins):
    """What acts on one spin of several."""
    return np.kron(np.kron(np.eye(2**at), matrix), np.eye(2 ** (spins - at - 1)))


class Control:
    """The infidelity of pulses, and its derivative."""

    def __init__(self, spins, slots):
        self.spins, self.slots, self.infidelity = spins, slots, 1.0
        states = np.arange(spins.size)
        phases = 2j * np.pi * np.outer(states, states) / spins.size
        self.gate = spins.xp.asarray(np.exp(phases) / spins.size**0.5)
        self.adjoint = spins.start()

    def gradient(self, pulse, spool):
        """The derivative of the infidelity by every strength, and what the adjoint cost."""
        self.spins.pulse, gradient = pulse, self.spins.xp.zeros_like(pulse)

        def reverse(u, step):
            gradient[step] = self.spins.back(u, step, self.adjoint)

        schedule, u = Revolve(len(pulse), self.slots), self.spins.start()
        forward = self.spins.forward
        report = unspool.adjoint(schedule, spool, forward, reverse, u, at_end=self._at_end)
        return gradient, report

    def infidelity_of(self, pulse):
        """The infidelity by the steps alone."""
        self.spins.pulse, u = pulse, self.spins.start()
        self.spins.forward(u, 0, len(pulse))
        self._at_end(u)
        return self.infidelity

    def _at_end(self, u):
        overlap = complex((self.gate.conj() * u).sum()) / self.spins.size
        self.infidelity = 1 - abs(overlap) ** 2
        self.adjoint[:] = -2 * overlap / self.spins.size * self.gate

    def improve(self, pulse, spool, iterations):
        """Goes down the gradient: the last pulse, and the fidelity of each."""
        gradient, report = self.gradient(pulse, spool)
        fidelities, rate = [1 - self.infidelity], 1 / (float(abs(gradient).max()) or 1.0)
        for number in range(iterations):
            rate = self._rate(pulse, gradient, 2 * rate)
            pulse = pulse - rate * gradient
            gradient, report = self.gradient(pulse, spool)
            fidelities.append(1 - self.infidelity)
            print(f"iteration {number + 1}: fidelity {fidelities[-1]:.6f}")
        print(f"\n{report}")
        return pulse, fidelities

    def _rate(self, pulse, gradient, rate):
        """How far to go: half as far until it improves, or nowhere where nothing does."""
        before = self.infidelity
        for _ in range(HALVINGS):
            if self.infidelity_of(pulse - rate * gradient) < before:
                return rate
            rate /= 2
        return 0.0


def differences(control, pulse, gradient):
    """The derivative in a random direction: by the gradient, and by central differences."""
    direction, width = control.spins.weak(len(pulse), seed=2), 1e-5
    change = control.infidelity_of(pulse + width * direction)
    change -= control.infidelity_of(pulse - width * direction)
    return float((gradient * direction).sum()), change / (2 * width)


def main(arguments=None):
    """Checks a gradient and improves a pulse: both slopes, and the fidelities."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spins", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--duration", type=float, default=10.0, help="of the pulse")
    parser.add_argument("--slots", type=int, default=8, help="propagators that are kept")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--host-memory", default="16MiB", help="main memory of the spool")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to compute")
    parser.add_argument("--device-memory", default="64MiB", help="memory of the GPU for the spool")
    options = parser.parse_args(arguments)
    if not 1 <= options.spins <= 10 or options.steps < 1:
        parser.error("--spins are 1 to 10, and --steps at least 1")
    if not 0 < options.duration < math.inf:
        parser.error("--duration is a time that is more than 0")
    xp, tiers = np, {"device": "cpu"}
    if options.device == "cuda":
        try:
            import cupy as xp
        except ModuleNotFoundError:
            parser.error(
                "--device cuda computes with CuPy: pip install cupy-cuda12x (or cupy-cuda13x)"
            )
        tiers = {"device_memory": options.device_memory}
    spins = Spins(options.spins, options.steps, options.duration, xp)
    control, pulse = Control(spins, options.slots), spins.pulse
    with unspool.Spool(host_memory=options.host_memory, **tiers) as spool:
        gradient, _ = control.gradient(pulse, spool)
        slopes = differences(control, pulse, gradient)
        print("slope by the gradient {:.10f}, by central differences {:.10f}".format(*slopes))
        _, fidelities = control.improve(pulse, spool, options.iterations)
    print(f"\nfidelity from {fidelities[0]:.6f} to {fidelities[-1]:.6f}")
    return slopes, fidelities


if __name__ == "__main__":
    main()
