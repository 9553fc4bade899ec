"""A checkpointed tape of NVIDIA Warp has the gradients of one tape, or says that it cannot have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import unspool

wp = pytest.importorskip("warp", reason="pip install warp-lang to run the example with its tapes")

pytestmark = pytest.mark.peer

EXAMPLE = Path(__file__).parents[3] / "examples" / "warp_tape.py"


@pytest.fixture(scope="module")
def example():
    wp.config.quiet = True
    spec = importlib.util.spec_from_file_location("warp_tape", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def problem(example):
    return example.Problem(24, 40, "cpu")


@pytest.fixture(scope="module")
def whole(problem):
    return problem.whole()


def test_the_example_compares_both(example, capsys):
    ours, theirs = example.main(["--points", "32", "--steps", "60", "--host-memory", "16KiB"])
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(other).max() > 0
        assert np.array_equal(one, other)
    assert "host -> disk" in capsys.readouterr().out


@pytest.mark.parametrize("segment", [1, 7, 39, 40, 50])
def test_segments_of_any_length(problem, whole, segment):
    with unspool.Spool("1MiB") as spool:
        ours = problem.segmented(segment, spool)
        assert len(spool) == 0
    assert all(np.array_equal(one, other) for one, other in zip(ours, whole, strict=True))


def test_what_changed_between_the_passes_is_noticed(example):
    def faster(problem):
        values = problem.speed.numpy()
        values[3, 4] += 0.125
        problem.speed.assign(values)

    problem = example.Problem(24, 40, "cpu")
    with (
        unspool.Spool("1MiB") as spool,
        pytest.raises(example.Changed, match="begins with step 35"),
    ):
        problem.segmented(7, spool, between=faster)


@pytest.mark.skipif(not wp.is_cuda_available(), reason="there is no GPU that Warp could use")
def test_on_a_gpu(example):
    ours, theirs = example.main(
        ["--device", "cuda:0", "--device-memory", "1MiB", "--host-memory", "1MiB"]
    )
    for one, other in zip(ours, theirs, strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-6)
