"""The examples run, and compute what they say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


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
