"""Devito's acoustic gradient with the whole wavefield in a spool, in place of `save=nt`.

Devito's gradient reads the wavefield of every step, which `TimeFunction(save=nt)` keeps in main
memory. Here the same compiled operators run on windows of `--window` steps. What a window holds is
moved from the spool to disk, and back ahead of time, while other windows are computed. The gradient
is the same, bit for bit.

    pip install devito unspool
    python examples/devito_history.py --size 201 --time 1000 --host-memory 32MiB
"""

import argparse
import tempfile
import time

import numpy as np
import unspool
from devito import Function, SparseTimeFunction, TimeFunction, configuration
from examples.seismic.acoustic.acoustic_example import acoustic_setup


class Windows:
    """Devito's operators on windows of steps, which are one checkpoint each.

    A window has the wavefields of `length` steps, and two more that the forward operator needs.
    """

    def __init__(self, solver, length):
        if length % 3:
            raise ValueError(
                f"a window of {length} steps: write a multiple of 3, as the adjoint has three "
                "wavefields, which take turns by the number of the step within the window"
            )
        self.solver, self.length, self.steps = solver, length, solver.geometry.nt
        grid = solver.model.grid
        self.u = TimeFunction(
            name="u", grid=grid, time_order=2, space_order=solver.space_order, save=length + 2
        )
        self.v = TimeFunction(name="v", grid=grid, time_order=2, space_order=solver.space_order)
        self.gradient = Function(name="grad", grid=grid)
        self.source = self._points("src", solver.geometry.src)
        self.receivers = self._points("rec", solver.geometry.rec)
        self.given = {"u": self.u, "dt": solver.dt, **solver.model.physical_params()}

    def _points(self, name, of):
        steps = self.length + 2
        return SparseTimeFunction(
            name=name, grid=of.grid, npoint=of.npoint, nt=steps, coordinates=of.coordinates
        )

    def _held(self, first):
        """The wavefields of a window that begins with step `first`: one contiguous array."""
        return self.u.data_with_halo[: min(self.length, self.steps - first)]

    def forward(self, spool):
        """Records the data, and saves all wavefields: a version is the first step of a window."""
        data = np.zeros((self.steps, self.receivers.npoint), self.receivers.dtype)
        source, operator = self.solver.geometry.src.data, self.solver.op_fwd(True)
        self.u.data_with_halo[:] = 0
        for first in range(0, self.steps, self.length):
            # The last step that is computed from is the one before the last; step 0 is at rest.
            last = min(first + self.length, self.steps - 2)
            if last > first:
                self._fill(self.source, source, first)
                operator.apply(
                    src=self.source, rec=self.receivers, time_m=1, time_M=last - first, **self.given
                )
                data[first + 1 : last + 1] = self.receivers.data[1 : last - first + 1]
            spool.save(first, self._held(first))
            self.u.data_with_halo[:2] = self.u.data_with_halo[self.length :]
        return data

    def adjoint(self, data, spool):
        """The gradient for recorded `data`, from the last window to the first."""
        operator, firsts = self.solver.op_grad(), range(0, self.steps, self.length)
        spool.expect(reversed(firsts), once=True)
        self.v.data_with_halo[:] = 0
        self.gradient.data_with_halo[:] = 0
        for first in reversed(firsts):
            spool.restore(first, self._held(first))
            begin, last = max(first, 1), min(first + self.length - 1, self.steps - 2)
            if last < begin:
                continue
            self._fill(self.receivers, data, first)
            operator.apply(
                rec=self.receivers,
                grad=self.gradient,
                v=self.v,
                time_m=begin - first,
                time_M=last - first,
                **self.given,
            )
        return np.array(self.gradient.data)

    def _fill(self, points, values, first):
        """The values of the steps from `first` on."""
        values = values[first : first + self.length + 2]
        points.data[:] = 0
        points.data[: len(values)] = values


def stored(solver):
    """The same with the whole wavefield in main memory, as Devito does it."""
    data, wavefield, _ = solver.forward(save=True)
    gradient, _ = solver.jacobian_adjoint(data, wavefield)
    return np.array(data.data), np.array(gradient.data)


def spooled(solver, length, spool):
    """The data and the gradient, with the wavefield in `spool`."""
    windows = Windows(solver, length)
    data = windows.forward(spool)
    return data, windows.adjoint(data, spool)


def measured(function, *arguments):
    """The result of a call, its seconds, and the MiB by which main memory grew meanwhile."""
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak begins again
    before, start = _memory("VmRSS"), time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start, (_memory("VmHWM") - before) / 1024


def _memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))


def main(arguments=None, **operators):
    """Compares both: the data and the gradient of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=101, help="points of the model in x and in z")
    parser.add_argument("--time", type=float, default=700.0, help="milliseconds")
    parser.add_argument("--window", type=int, default=24, help="steps of a checkpoint")
    parser.add_argument(
        "--host-memory", default="8MiB", help="main memory for them; the rest on disk"
    )
    options = parser.parse_args(arguments)
    configuration["log-level"] = "WARNING"
    shape = (options.size, options.size)
    solver = acoustic_setup(shape=shape, spacing=(15.0, 15.0), tn=options.time, nbl=20, **operators)
    for operator in (solver.op_fwd(True), solver.op_grad()):
        operator.cfunction  # noqa: B018 - compiles it
    with (
        tempfile.TemporaryDirectory() as disk,
        unspool.Spool(host_memory=options.host_memory, disk=disk) as spool,
    ):
        ours, seconds, memory = measured(spooled, solver, options.window, spool)
        print(spool.stats())
    theirs, their_seconds, their_memory = measured(stored, solver)
    differs = [float(np.abs(one - other).max()) for one, other in zip(ours, theirs, strict=True)]
    print(f"\n{solver.geometry.nt} steps      seconds  MiB more")
    print(f"save=nt         {their_seconds:7.2f}  {their_memory:8.0f}")
    print(f"in the spool    {seconds:7.2f}  {memory:8.0f}")
    print(f"largest difference of the data {differs[0]:.1e}, of the gradient {differs[1]:.1e}")
    return ours, theirs


if __name__ == "__main__":
    main()
