"""The part `rates`: three applications make checkpoints. Nothing is asserted about time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool_studies.accumulated import rates
from unspool_studies.accumulated.rates import CODECS, Place, Recorder, shots_of
from unspool_studies.bench import command, report
from unspool_studies.rtm.generated import generated_model

import kernel_shim
from bench_plans import column, plan
from kernel_shim import ShimDevice

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = ["--accumulated-spins=1,2", "--accumulated-cells=4", "--accumulated-shots=3"]
TINY += ["--accumulated-frequencies=1", f"--accumulated-examples={EXAMPLES}"]
#: Checkpoints of a run.
COUNT = 6

ON_CPU = Place("CPU", np, None, lambda: None)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(rates, "COUNT", COUNT)
    monkeypatch.setattr(rates, "SEPARATED", 3 * COUNT)
    monkeypatch.setattr(Recorder.__init__, "__defaults__", (COUNT,))


def test_every_application_has_its_sizes_intervals_and_ratios(tmp_path):
    collected = report.Report({})
    asked = plan(*TINY, f"--accumulated-plot={tmp_path / 'rates.png'}")
    assert command.run_parts(["rates"], asked, None, collected)
    table, shots = collected.tables
    names = ["quantum control, 1 spins", "quantum control, 2 spins"]
    names += ["phase field, 4 cubed", "migration, 1 Hz"]
    assert list(dict.fromkeys(column(table, "application"))) == names
    assert column(table, "part") == ["first third", "middle", "last third"] * len(names)
    sizes = column(table, "MB each")
    assert sizes[0] == 2**2 * 16 / 1e6 and sizes[3] == 4**2 * 16 / 1e6
    assert sizes[6] == 4**3 * 8 / 1e6
    counted = [len(cell.values) for cell in column(table, "ms between")]
    assert counted == [2] * 6 + [6] * 3 + [2] * 3
    for name in CODECS:
        assert all(len(cell.values) == 2 and cell.low > 0 for cell in column(table, name))
    assert column(shots, "checkpoint") == list(range(COUNT))
    assert all(len(cell.values) == 3 for cell in column(shots, "Twine"))
    assert sum("among shots" in note for note in shots.notes) == len(CODECS)
    assert (tmp_path / "rates-shots.png").read_bytes().startswith(b"\x89PNG")


def test_a_recorder_encodes_some_of_a_long_run():
    recorder = Recorder(lambda: None, 4 * COUNT)
    for number in range(4 * COUNT):
        recorder.save(np.full(1000, number, np.float32))
    assert recorder.size == 4000 and len(recorder.intervals) == 4 * COUNT
    assert all(len(values) == COUNT for values in recorder.ratios.values())
    assert min(recorder.ratios["zstd"]) > 10


def test_shots_side_by_side_are_different_ones_and_stay_in_the_model():
    first, second = shots_of(1.0, 2, ON_CPU)
    assert first.size == second.size and first.ratios != second.ratios
    model = generated_model(48, 16, 187.5)
    sources = rates._survey(model, 1.0, 400).sources
    assert len(set(sources)) > 100
    assert all(0 <= at <= model.extent[0] for at, _ in sources)


@pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")
def test_kernels_of_a_gpu_make_the_same_checkpoints(tmp_path):
    shim = ShimDevice(kernel_shim.build(tmp_path))
    (here,) = shots_of(1.0, 1, ON_CPU)
    (there,) = shots_of(1.0, 1, Place("shim", np, shim, lambda: None))
    for name in CODECS:
        assert there.ratios[name] == pytest.approx(here.ratios[name], rel=0.2)


def test_quick_makes_it_small_and_options_win():
    quick = plan("--quick", "--accumulated-shots=7").accumulated
    assert (quick.spins, quick.cells, quick.shots) == ((2, 4), (16,), 7)
    assert plan().accumulated.shots == 20


def test_a_missing_program_is_named_before_anything_is_measured(tmp_path, capsys):
    collected = report.Report({})
    asked = plan(*TINY, f"--accumulated-examples={tmp_path}")
    assert not command.run_parts(["rates"], asked, None, collected)
    assert collected.tables == []
    printed = capsys.readouterr().out
    assert "quantum_control.py" in printed and "--accumulated-examples" in printed


@pytest.mark.parametrize("sizes", ["--accumulated-spins=999999999", "--accumulated-cells=100000"])
def test_what_does_not_fit_into_memory_is_refused(sizes, monkeypatch, capsys):
    monkeypatch.delenv("UNSPOOL_CHECK_FREE", raising=False)
    collected = report.Report({})
    assert not command.run_parts(["rates"], plan(*TINY, sizes), None, collected)
    assert collected.tables == []
    assert "NoRoomError" in capsys.readouterr().out
