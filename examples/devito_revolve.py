"""Devito's acoustic gradient with checkpointing through a spool.

The classes are Devito's own (`DevitoCheckpoint`, `CheckpointOperator`); only the `Revolver` is
another one. Few states are kept, in main memory and on disk; the other steps are computed again.

    pip install devito unspool
    python examples/devito_revolve.py --copies 20 --host-memory 8MiB

Where pyrevolve is installed, `from unspool.interop.pyrevolve import Revolver` in place of
`from pyrevolve import Revolver` (or `from devito import Revolver`) is all that has to change.
"""

import argparse
import sys
import tempfile

import numpy as np
import unspool
from unspool.interop import pyrevolve

# Devito has its checkpointing classes only if it can import pyrevolve: this does it.
sys.modules.setdefault("pyrevolve", pyrevolve)

from devito import CheckpointOperator, DevitoCheckpoint, Function, TimeFunction  # noqa: E402
from examples.seismic.acoustic.acoustic_example import acoustic_setup  # noqa: E402


def checkpointed(solver, data, copies, spool):
    """The gradient for recorded `data`, with at most `copies` wavefields kept in `spool`."""

    def field(name):
        return TimeFunction(
            name=name, grid=solver.model.grid, time_order=2, space_order=solver.space_order
        )

    # A CheckpointOperator keeps the addresses of its arguments, not the arguments: each one needs a
    # name here that lives as long as the operators, or Python frees its memory under them.
    u, v, source = field("u"), field("v"), solver.geometry.src
    gradient = Function(name="grad", grid=solver.model.grid)
    given = {"u": u, "dt": solver.dt, **solver.model.physical_params()}
    forward = CheckpointOperator(solver.op_fwd(save=False), src=source, **given)
    reverse = CheckpointOperator(solver.op_grad(save=False), v=v, rec=data, grad=gradient, **given)
    steps = data.data.shape[0] - 2
    revolver = pyrevolve.Revolver(
        DevitoCheckpoint([u]), forward, reverse, copies, steps, spool=spool
    )
    revolver.apply_forward()
    revolver.apply_reverse()
    return np.array(gradient.data), revolver


def main(arguments=None):
    """Compares with the gradient for which the whole wavefield is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=101, help="points of the model in x and in z")
    parser.add_argument("--time", type=float, default=500.0, help="milliseconds")
    parser.add_argument("--copies", type=int, help="states that are kept; by default few")
    parser.add_argument(
        "--host-memory", default="2MiB", help="main memory for them; the rest on disk"
    )
    options = parser.parse_args(arguments)
    shape = (options.size, options.size)
    solver = acoustic_setup(shape=shape, spacing=(15.0, 15.0), tn=options.time, nbl=20)
    data, wavefield, _ = solver.forward(save=True)
    stored, _ = solver.jacobian_adjoint(data, wavefield)
    with (
        tempfile.TemporaryDirectory() as disk,
        unspool.Spool(host_memory=options.host_memory, disk=disk) as spool,
    ):
        gradient, revolver = checkpointed(solver, data, options.copies, spool)
        print(revolver.profiler.summary(), spool.stats(), sep="\n\n")
    difference = np.abs(gradient - stored.data).max() / np.abs(stored.data).max()
    print(f"\n{revolver.n_timesteps} steps, {revolver.n_checkpoints} copies instead of as many:")
    print(f"{revolver.ratio:.2f} x the forward steps, gradient the same to {difference:.1e}")
    return gradient, np.array(stored.data)


if __name__ == "__main__":
    main()
