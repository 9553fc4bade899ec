"""The example with Devito's whole wavefields in a spool has the gradient of `save=nt`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import unspool

pytest.importorskip("devito", reason="pip install devito to run the example with its operators")
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "devito_history.py"
#: One thread: the order in which threads add up what receivers inject is not fixed.
ONE_THREAD = {"opt": ("advanced", {"openmp": False})}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("devito_history", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_data_and_gradient_are_those_of_save_bit_for_bit(example, capsys):
    ours, theirs = example.main(
        ["--size", "41", "--time", "300", "--host-memory", "1MiB"], **ONE_THREAD
    )
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(other).max() > 0
        assert np.array_equal(one, other)
    assert "host -> disk" in capsys.readouterr().out


def test_windows_of_any_length_that_keeps_the_turns(example):
    solver = example.acoustic_setup(
        shape=(31, 31), spacing=(15.0, 15.0), tn=205.0, nbl=10, **ONE_THREAD
    )
    steps, (data, gradient) = solver.geometry.nt, example.stored(solver)
    lengths = (3, 21, steps - 1, steps + 2, 999)
    assert {steps % length for length in lengths} >= {1, steps}, "a last window of one step"
    for length in lengths:
        with unspool.Spool("64MiB") as spool:
            ours = example.spooled(solver, length, spool)
            assert len(spool) == 0
        assert np.array_equal(ours[0], data)
        assert np.array_equal(ours[1], gradient)
    with pytest.raises(ValueError, match="multiple of 3"):
        example.Windows(solver, 4)
