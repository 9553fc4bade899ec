"""The start from which two phases separate into a wanted pattern, by the adjoint of the time loop.

Two phases separate by the Cahn-Hilliard equation (Cahn and Hilliard, J. Chem. Phys. 28, 1958),

    dc/dt = laplacian(c**3 - c - WIDTH**2 * laplacian(c)),

in a periodic box of two or three dimensions: c is -1 in one phase and 1 in the other, lengths are
in cells. The steps are taken in Fourier space, where what is linear is implicit (Chen and Shen,
Comput. Phys. Commun. 108, 1998), with a term that keeps long steps stable (He, Liu and Tang, Appl.
Numer. Math. 57, 2007). `unspool.adjoint` goes back over them with every state in a spool, of which
memory holds a part, and gives the derivative of the misfit by the first state at every point.

    pip install unspool numpy
    python examples/phase_field.py --shape 128 128 --steps 200 --host-memory 8MiB

`--device cuda --device-memory 1GiB` computes with CuPy, on a GPU whose memory holds the newest
states.
"""

import argparse
import tempfile

import numpy as np
import unspool
from unspool.schedules import StoreAll
from unspool.stats import size

DT, WIDTH, STABLE = 0.2, 1.0, 2.0
#: How often an iteration tries half as far.
HALVINGS = 30

CODECS = None, "lossless", unspool.Bound(range=1e-4)


class PhaseField:
    """The time loop in a box of `shape` cells, on arrays of `xp`: NumPy or CuPy."""

    def __init__(self, shape, dtype="float64", xp=np):
        self.shape, self.dtype, self.xp = tuple(shape), np.dtype(dtype), xp
        self.axes = tuple(range(len(shape)))
        waves = [np.fft.fftfreq(n) for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1])]
        squares = sum((2 * np.pi * k) ** 2 for k in np.meshgrid(*waves, indexing="ij"))
        below = 1 + DT * squares * (STABLE + WIDTH**2 * squares)
        self.linear = self.array((1 + DT * STABLE * squares) / below)
        self.reaction = self.array(-DT * squares / below)

    def array(self, values):
        """An array of this dtype, where the loop computes."""
        return self.xp.asarray(values, self.dtype)

    def mixed(self, seed=1):
        """A state in which the phases are mixed but for some noise."""
        return self.array(0.1 * np.random.default_rng(seed).normal(size=self.shape))

    def pattern(self):
        """The state that is wanted: drops of both phases in turn."""
        turns = np.meshgrid(*(2 * np.pi * np.arange(n) / n for n in self.shape), indexing="ij")
        return self.array(np.tanh(4 * sum(map(np.cos, turns))))

    def forward(self, c, start, stop):
        """The steps start to stop - 1, in place."""
        for _ in range(start, stop):
            c[:] = self._back(self.linear * self._waves(c) + self.reaction * self._waves(c**3 - c))

    def transposed(self, c, v):
        """The transpose of the derivative of one step at its state c, applied to v."""
        waves = self._waves(v)
        return self._back(self.linear * waves) + (3 * c**2 - 1) * self._back(self.reaction * waves)

    def _waves(self, c):
        return self.xp.fft.rfftn(c, axes=self.axes)

    def _back(self, waves):
        return self.xp.fft.irfftn(waves, self.shape, self.axes)


class Inversion:
    """The first state of `steps` steps that leads to the pattern."""

    def __init__(self, field, steps):
        self.field, self.steps, self.wanted = field, steps, field.pattern()
        self.misfit, self.adjoint = 0.0, field.xp.zeros_like(self.wanted)

    def gradient(self, first, spool):
        """The derivative of the misfit by the first state, and what the adjoint cost."""
        schedule, c = StoreAll(self.steps), first.copy()
        forward = self.field.forward
        report = unspool.adjoint(schedule, spool, forward, self._reverse, c, at_end=self._at_end)
        return self.adjoint.copy(), report

    def misfit_of(self, first):
        """Half the mean square of the difference to the pattern, by the steps alone."""
        c = first.copy()
        self.field.forward(c, 0, self.steps)
        self._at_end(c)
        return self.misfit

    def _at_end(self, c):
        self.adjoint[:] = (c - self.wanted) / c.size
        self.misfit = 0.5 * float(((c - self.wanted) ** 2).mean())

    def _reverse(self, c, step):
        self.adjoint[:] = self.field.transposed(c, self.adjoint)

    def descend(self, first, spool, iterations):
        """Goes down the gradient: the last start, and the misfit of each."""
        gradient, _ = self.gradient(first, spool)
        misfits, rate = [self.misfit], 0.1 / (float(abs(gradient).max()) or 1.0)
        for number in range(iterations):
            rate = self._rate(first, gradient, 2 * rate)
            first = first - rate * gradient
            gradient, _ = self.gradient(first, spool)
            misfits.append(self.misfit)
            print(f"iteration {number + 1}: misfit {self.misfit:.4f}")
        return first, misfits

    def _rate(self, first, gradient, rate):
        """How far to go: half as far until it improves, or nowhere where nothing does."""
        before = self.misfit
        for _ in range(HALVINGS):
            if self.misfit_of(first - rate * gradient) < before:
                return rate
            rate /= 2
        return 0.0


def compare(inversion, first, opened):
    """The gradient through a spool with each codec, and a line of what the states took."""
    found = {}
    for codec in CODECS:
        with opened(codec) as spool:
            found[str(codec)], report = inversion.gradient(first, spool)
            ratio = spool.stats().codec.ratio
        exact = found[str(None)]
        far = inversion.field.xp.linalg.norm(found[str(codec)] - exact)
        kept = ", ".join(f"{tier} {size(count)}" for tier, count in report.tiers.items())
        print(f"{codec!s:>20}: {kept}; {ratio:.2f} times smaller, ", end="")
        print(f"gradient {float(far / inversion.field.xp.linalg.norm(exact)):.1e} off")
    return found[str(None)]


def differences(inversion, first, gradient):
    """The derivative in a random direction: by the gradient, and by central differences.

    The differences are taken in float64, whatever the dtype of the gradient is.
    """
    field = PhaseField(inversion.field.shape, "float64", inversion.field.xp)
    direction, width = field.mixed(seed=2), 1e-5
    exact, start = Inversion(field, inversion.steps), field.array(first)
    change = exact.misfit_of(start + width * direction)
    change -= exact.misfit_of(start - width * direction)
    return float((gradient * direction).sum()), change / (2 * width)


def main(arguments=None):
    """The gradient with each codec, its check, and some iterations: both slopes, the misfits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=int, nargs="+", default=[96, 96], help="two or three")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument(
        "--host-memory", default="4MiB", help="main memory of the spool; the rest on disk"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to compute")
    parser.add_argument("--device-memory", default="64MiB", help="memory of the GPU for the spool")
    options = parser.parse_args(arguments)
    if len(options.shape) not in (2, 3) or min(options.shape) < 2 or options.steps < 1:
        parser.error("--shape takes two or three numbers of cells from 2, --steps one from 1")
    xp, tiers = np, {"device": "cpu"}
    if options.device == "cuda":
        try:
            import cupy as xp
        except ModuleNotFoundError:
            parser.error(
                "--device cuda computes with CuPy: pip install cupy-cuda12x (or cupy-cuda13x)"
            )
        tiers = {"device_memory": options.device_memory}
    inversion = Inversion(PhaseField(options.shape, options.dtype, xp), options.steps)
    first = inversion.field.mixed()
    print(f"{options.steps} states of {size(first.nbytes)}")
    with tempfile.TemporaryDirectory() as disk:

        def opened(codec=None):
            return unspool.Spool(host_memory=options.host_memory, disk=disk, codec=codec, **tiers)

        gradient = compare(inversion, first, opened)
        slopes = differences(inversion, first, gradient)
        print("slope by the gradient {:.10f}, by central differences {:.10f}".format(*slopes))
        with opened() as spool:
            _, misfits = inversion.descend(first, spool, options.iterations)
    print(f"misfit from {misfits[0]:.4f} to {misfits[-1]:.4f}")
    return slopes, misfits


if __name__ == "__main__":
    main()
