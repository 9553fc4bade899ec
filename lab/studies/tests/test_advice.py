"""The parts `advise` and `failures` of `unspool-bench`."""

from __future__ import annotations

import numpy as np
import pytest
from unspool_studies.advice.failures import Job
from unspool_studies.advice.figures import panels_of, run
from unspool_studies.advice.machines import GPU_MTBF, THESIS, TODAY
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report


def test_the_numbers_of_the_dissertation_come_out(capsys):
    report = Report({})
    run(Plan(), report)
    rows = {row[0]: row[2] for row in report.tables[0].rows}
    assert rows["efficiency of SCR, %"] == pytest.approx(90.9, abs=0.05)
    assert rows["compressed increments, %"] == pytest.approx(79.3, abs=0.05)
    assert rows["the best codec gains at 100,000 sockets, points"] == pytest.approx(7.2, abs=0.2)
    assert rows["break-even of LAMMPS pbzip2, MB/s"] == pytest.approx(224.6, abs=0.2)
    assert capsys.readouterr().out


def test_a_gpu_of_the_training_of_llama_3_failed_every_five_point_eight_years():
    years = GPU_MTBF / (365.25 * 86_400)
    assert years == pytest.approx(5.78, abs=0.01)


@pytest.mark.parametrize("machine", [THESIS, TODAY])
def test_every_figure_has_lines_and_shares_are_shares(machine):
    panels = panels_of(machine)
    assert len(panels) == 7
    for panel in panels:
        assert panel.lines and all(panel.lines.values())
        if panel.y == "efficiency, %":
            assert all(0 <= y <= 100 for line in panel.lines.values() for _, y in line)


def test_both_pictures_are_written(tmp_path):
    from unspool_studies.advice.plot import draw

    draw(panels_of(THESIS), "title", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 20_000


@pytest.mark.parametrize("blocking", [True, False])
def test_a_job_gets_done_whatever_fails_and_loses_what_was_not_durable(tmp_path, blocking):
    state = np.arange(1000, dtype=np.float32)
    job = Job(tmp_path / "run", state, 10.0, blocking, 40.0, 3)
    share = job.run(200.0)
    assert job.failures > 0 and len(job.durable) >= 19
    assert 200.0 / share >= 200.0 + 10.0 * len(job.restarts)
    # Each restart reads the state again and compares it.
    assert len(job.restarts) <= job.failures
    assert job.place().write > 0 and job.costs()["restart"] >= 10.0


def test_a_job_that_never_fails_waits_for_its_checkpoints_alone(tmp_path):
    state = np.arange(1000, dtype=np.float32)
    job = Job(tmp_path / "run", state, 10.0, True, 1e12, 3)
    share = job.run(100.0)
    assert job.failures == 0 and len(job.durable) == 9
    assert 100.0 / share == pytest.approx(100.0 + sum(job.blocked))
