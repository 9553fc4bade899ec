"""The guide's example runs; the inversion with Deepwave has the gradient of its device mode."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from helpers import guide_blocks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("deepwave", reason="pip install 'deepwave>=0.1,<0.2'")

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

EXAMPLE = Path(__file__).parents[3] / "examples" / "deepwave_fwi.py"
SMALL = ["--shape", "70", "40", "--seconds", "0.5", "--shots", "2", "--iterations", "2"]


@pytest.fixture(autouse=True)
def _one_thread():
    # What is computed is small, and threads that wait for one another would take most of the time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_gradient_is_that_of_the_device_mode_and_the_misfit_falls(capsys):
    spec = importlib.util.spec_from_file_location("deepwave_fwi", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found, misfits = example.main([*SMALL, "--host-memory", "3MiB"])
    misfit, gradient = found["spool"]
    assert gradient.abs().max() > 0
    assert torch.equal(found["device, in chunks"][1], gradient)
    for name in ("device", "cpu", "disk"):
        assert (found[name][1] - gradient).abs().max() <= 1e-4 * gradient.abs().max()
        assert torch.equal(found[name][0], misfit)
    assert misfits[1] < 0.98 * misfits[0]
    printed = capsys.readouterr().out
    assert "history in" in printed and "host -> disk" in printed


def test_the_example_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = guide_blocks("deepwave.md")
    exec(block, {"__name__": "example"})
