"""Devito's acoustic gradient with a Revolver that stores through a spool.

`pip install devito pyrevolve` (Devito has its checkpointing classes only where pyrevolve is), and a
C compiler: Devito compiles its operators when they first run.
"""

from __future__ import annotations

import gc
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import schedules
from unspool.interop.pyrevolve import DiskRevolver, Revolver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    theirs = pytest.importorskip("pyrevolve", reason="pip install pyrevolve")
    devito = pytest.importorskip("devito", reason="pip install devito")
    pytest.importorskip("examples.seismic", reason="Devito's wheel brings its examples")
    from examples.seismic.acoustic.acoustic_example import acoustic_setup

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning"),
]

#: One thread: the order in which threads add up what receivers inject is not fixed.
ONE_THREAD = {"opt": ("advanced", {"openmp": False})}


class Shot:
    """A small acoustic model with one source, and its gradient with everything stored."""

    def __init__(self) -> None:
        self.solver = acoustic_setup(
            shape=(41, 37), spacing=(15.0, 15.0), tn=300.0, space_order=4, nbl=10, **ONE_THREAD
        )
        self.data, field, _ = self.solver.forward(save=True)
        stored, _ = self.solver.jacobian_adjoint(self.data, field)
        self.gradient = np.array(stored.data)
        self.steps = self.data.data.shape[0] - 2

    def field(self, name: str) -> Any:
        return devito.TimeFunction(
            name=name, grid=self.solver.model.grid, time_order=2, space_order=4
        )

    def revolved(self, make: Callable[..., Any], copies: int | None, **options: Any) -> np.ndarray:
        """The gradient with checkpointing, computed as Devito's own solver does it."""
        # The operators keep addresses alone: these names keep what they point to.
        solver, u, v = self.solver, self.field("u"), self.field("v")
        source = solver.geometry.src
        gradient = devito.Function(name="grad", grid=solver.model.grid)
        given = {"dt": solver.dt, "u": u, **solver.model.physical_params()}
        recorded = solver.geometry.rec
        forward = devito.CheckpointOperator(
            solver.op_fwd(save=False), src=source, rec=recorded, **given
        )
        reverse = devito.CheckpointOperator(
            solver.op_grad(save=False), v=v, rec=self.data, grad=gradient, **given
        )
        checkpoint = devito.DevitoCheckpoint([u])
        revolver = make(checkpoint, forward, reverse, copies, self.steps, **options)
        revolver.apply_forward()
        revolver.apply_reverse()
        assert np.array_equal(recorded.data[1:-1], self.data.data[1:-1])
        return np.array(gradient.data)


@pytest.fixture(scope="module")
def shot() -> Shot:
    devito.configuration["log-level"] = "ERROR"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Shot()
    assert made.steps == 126
    assert np.abs(made.gradient).max() > 0
    return made


@pytest.mark.parametrize("copies", [1, 2, 10, 125, None])
def test_the_gradient_is_that_of_full_storage_bit_for_bit(shot: Shot, copies: int | None) -> None:
    assert np.array_equal(shot.revolved(Revolver, copies), shot.gradient)


def test_the_gradient_is_that_of_pyrevolve_bit_for_bit(shot: Shot) -> None:
    mine, peer = (shot.revolved(library, 7) for library in (Revolver, theirs.Revolver))
    assert np.array_equal(mine, peer)


def test_the_gradient_is_the_same_when_copies_spill_to_disk(shot: Shot, tmp_path: Path) -> None:
    with unspool.Spool(host_memory="256KiB", disk=tmp_path) as spool:
        assert np.array_equal(shot.revolved(Revolver, 60, spool=spool), shot.gradient)
        stats = spool.stats()
    assert stats.links[0].flush.bytes > 0
    assert stats.hinted_restores == stats.restores > 0


def test_the_gradient_is_the_same_with_copies_on_disk(shot: Shot, tmp_path: Path) -> None:
    found = shot.revolved(DiskRevolver, 12, filedir=str(tmp_path))
    assert np.array_equal(found, shot.gradient)


@pytest.mark.parametrize(
    "schedule",
    [schedules.StoreAll(126), schedules.Uniform(126, 11), schedules.ZCut(126, cuts=9)],
    ids=repr,
)
def test_the_gradient_is_the_same_with_other_schedules(shot: Shot, schedule: Any) -> None:
    assert np.array_equal(shot.revolved(Revolver, None, schedule=schedule), shot.gradient)


IN_PLACE = """
import sys
import unspool.interop.pyrevolve
sys.modules["pyrevolve"] = unspool.interop.pyrevolve
import devito
import numpy as np
from examples.seismic.acoustic.acoustic_example import acoustic_setup
assert devito.Revolver is unspool.interop.pyrevolve.Revolver
solver = acoustic_setup(shape=(41, 37), spacing=(15.0, 15.0), tn=300.0, space_order=4, nbl=10,
                        opt=("advanced", {"openmp": False}))
data, field, _ = solver.forward(save=True)
stored, _ = solver.jacobian_adjoint(data, field)
revolved, _ = solver.jacobian_adjoint(data, None, checkpointing=True)
assert np.abs(stored.data).max() > 0
assert np.array_equal(stored.data, revolved.data)
print("same")
"""


def test_the_example_computes_the_same_gradient(capfd: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "devito_revolve.py"))
    found, stored = example["main"](["--size", "51", "--time", "300", "--host-memory", "512KiB"])
    assert "the forward steps, gradient the same to" in capfd.readouterr().out
    scale = np.abs(stored).max()
    assert scale > 0 and np.abs(found - stored).max() < 1e-4 * scale


def test_the_example_keeps_the_memory_that_its_operators_point_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "devito_revolve.py"))
    allocator, apply_forward = devito.data.allocators.PosixAllocator, Revolver.apply_forward
    freed, free = set(), allocator.free
    used = {}

    def freeing(self: Any, pointer: Any) -> None:
        freed.add(pointer.value)
        free(self, pointer)

    def collected(self: Any) -> None:
        monkeypatch.setattr(allocator, "free", freeing)
        gc.collect()
        monkeypatch.undo()
        for operator in (self.fwd_operator, self.rev_operator):
            given = ((name, getattr(value, "_obj", None)) for name, value in operator.args.items())
            used.update((name, array.data.value) for name, array in given if hasattr(array, "data"))
        apply_forward(self)

    monkeypatch.setattr(Revolver, "apply_forward", collected)
    gc.disable()
    try:
        example["main"](["--size", "51", "--time", "100"])
    finally:
        gc.enable()
    assert used.keys() >= {"u", "v", "grad", "src", "rec"}
    assert not freed & set(used.values())


def test_devito_itself_uses_it_in_place_of_pyrevolve() -> None:
    done = subprocess.run([sys.executable, "-c", IN_PLACE], capture_output=True, text=True)
    assert done.stdout.endswith("same\n"), done.stderr[-3000:]
