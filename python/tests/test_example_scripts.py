"""The examples run, and compute what they say."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import gpu_library

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_adjoint_example_computes_the_gradient(capsys):
    example = runpy.run_path(str(EXAMPLES / "adjoint.py"))
    assert "restore" in capsys.readouterr().out
    start, gradient = example["u"], example["gradient"]

    def objective(u):
        for _ in range(example["STEPS"]):
            u = example["advance"](u)
        return 0.5 * np.sum(u**2)

    assert objective(start) == example["objective"], "the last restore gave the first state"
    direction = np.random.default_rng(2).normal(size=start.shape)
    step = 1e-6
    change = objective(start + step * direction) - objective(start - step * direction)
    assert change / (2 * step) == pytest.approx(np.sum(gradient * direction), rel=1e-5)


def test_the_example_of_views_restores_every_layout(capsys):
    example = runpy.run_path(str(EXAMPLES / "views.py"))
    saved, results = example["main"]()
    assert "wave" in capsys.readouterr().out
    assert len(results) >= 3
    assert all(np.array_equal(saved, result) for result in results)


def test_the_example_of_revolve_computes_the_gradient(capsys):
    example = runpy.run_path(str(EXAMPLES / "revolve.py"))
    assert "computed again" in capsys.readouterr().out
    start, gradient, report = example["start"], example["gradient"], example["report"]
    assert report.peak_copies == example["SLOTS"] and report.steps == example["STEPS"]

    def objective(u):
        example["forward"](u, 0, example["STEPS"])
        return 0.5 * np.sum(u**2)

    assert objective(start.copy()) == example["objective"]
    direction = np.random.default_rng(2).normal(size=start.shape)
    step = 1e-6
    change = objective(start + step * direction) - objective(start - step * direction)
    assert change / (2 * step) == pytest.approx(np.sum(gradient * direction), rel=1e-5)


SMALL = {
    "phase_field.py": ["--shape", "24", "24", "--steps", "40", "--host-memory", "64KiB"],
    "quantum_control.py": ["--spins", "2", "--steps", "30", "--slots", "4"],
}


def run(name, *arguments):
    """What `main` of an example returns, in a small size."""
    return runpy.run_path(str(EXAMPLES / name))["main"]([*SMALL[name], *arguments])


def test_the_example_of_a_phase_field_goes_down_the_gradient(capsys):
    (slope, change), misfits = run("phase_field.py", "--iterations", "3")
    assert slope == pytest.approx(change, rel=1e-6) and slope != 0
    assert len(misfits) == 4 and misfits == sorted(misfits, reverse=True)
    assert misfits[3] < 0.8 * misfits[0]
    printed = capsys.readouterr().out
    exact, lossless, bounded = printed.splitlines()[1:4]
    assert "host 64.00 KiB" in exact and "disk" in exact and "1.00 times smaller" in exact
    assert lossless.lstrip().startswith("lossless") and "gradient 0.0e+00 off" in lossless
    assert "Bound(range=0.0001)" in bounded and "gradient 0.0e+00 off" not in bounded


def test_a_phase_field_in_space_and_single_precision(capsys):
    sizes = ["--shape", "9", "8", "7", "--dtype", "float32", "--iterations", "1"]
    (slope, change), misfits = run("phase_field.py", *sizes)
    assert slope == pytest.approx(change, rel=1e-3)
    assert misfits[1] < misfits[0]
    assert f"40 states of {9 * 8 * 7 * 4 / 1024:.2f} KiB" in capsys.readouterr().out


def test_the_phases_of_a_field_separate_and_nothing_is_lost():
    field = runpy.run_path(str(EXAMPLES / "phase_field.py"))["PhaseField"]((32, 32))
    c = field.mixed()
    before = c.copy()
    field.forward(c, 0, 400)
    assert c.mean() == pytest.approx(before.mean(), abs=1e-12)
    assert 0.8 < abs(c).max() < 1.2 and abs(before).max() < 0.5


def test_the_example_of_quantum_control_reaches_the_gate_with_few_states(capsys):
    (slope, change), fidelities = run("quantum_control.py", "--iterations", "8")
    assert slope == pytest.approx(change, rel=1e-6) and slope != 0
    assert len(fidelities) == 9 and fidelities == sorted(fidelities)
    assert fidelities[8] > 0.9
    assert "at most 4 copies" in capsys.readouterr().out


def test_a_spin_that_is_alone_turns_by_its_fields():
    example = runpy.run_path(str(EXAMPLES / "quantum_control.py"))
    spins = example["Spins"](1, 5, 2.0)
    spins.pulse = np.tile([0.7, 0.0], (5, 1))
    u = spins.start()
    spins.forward(u, 0, 5)
    angle = 0.7 * 2.0
    about_x = [[np.cos(angle), -1j * np.sin(angle)], [-1j * np.sin(angle), np.cos(angle)]]
    assert np.allclose(u, about_x, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("phase_field.py", ["--shape", "8"], "two or three"),
        ("phase_field.py", ["--steps", "0"], "from 1"),
        ("quantum_control.py", ["--spins", "0"], "1 to 10"),
        ("quantum_control.py", ["--duration", "nan"], "more than 0"),
        ("phase_field.py", ["--device", "cuda"], "pip install cupy"),
        ("quantum_control.py", ["--device", "cuda"], "pip install cupy"),
    ],
)
def test_examples_refuse_what_they_cannot_compute(name, arguments, why, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit):
        run(name, *arguments)
    assert why in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMALL)
def test_examples_compute_the_same_on_a_gpu(name):
    gpu_library("cupy")
    sizes = ["--iterations", "2", "--device-memory", "1MiB"]
    for here, there in zip(
        run(name, *sizes[:2]), run(name, *sizes, "--device", "cuda"), strict=True
    ):
        assert there == pytest.approx(here, rel=1e-6)
