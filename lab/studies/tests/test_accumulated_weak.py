"""Several processes of `accumulated-gpu`, on devices in plain memory. Nothing is asserted about
time."""

from __future__ import annotations

import contextlib
import json

import pytest

pytest.importorskip("scipy")

from test_accumulated_rtm import COUNT, HAD, ROUNDS, kernels, small
from test_bench import column
from test_bench_gpuzip import compiled, plan
from unspool_studies.accumulated import weak
from unspool_studies.accumulated.rtm import Forward
from unspool_studies.bench import command, report
from unspool_studies.bench.processes import ProcessError

from fake_cuda import FakeCuda

__all__ = ["kernels", "small"]

TASK = weak.Task(0, 4.0, 1 << 20, 2)


@pytest.fixture
def processes(small, monkeypatch):
    """Processes that are this one: what they were asked to do."""
    asked = []

    @contextlib.contextmanager
    def started(commands, _environment):
        tasks = [weak.Task(**json.loads(one[-1])) for one in commands]
        yield [(task, Forward(small, task.frequency)) for task in tasks]

    def phase(found, name):
        asked.append((name, [task.ordinal for task, _ in found]))
        said = []
        for task, forward in found:
            weak.work(FakeCuda(), forward, task, [name], said.append)
        return json.loads(json.dumps(said))

    monkeypatch.setattr(weak, "started", started)
    monkeypatch.setattr(weak, "phase", phase)
    return asked


def measured(*arguments):
    shown = report.Report({})
    options = "--accumulated-tables=processes", "--accumulated-frequencies=4", "--warm=0"
    asked = plan(*options, *arguments)
    return command.run_parts(["accumulated-gpu"], asked, FakeCuda(), shown), shown.tables


@compiled
def test_each_number_of_processes_has_a_row_with_the_rates_of_all(processes):
    well, (table,) = measured("--accumulated-processes=1,2,4")
    assert well and table.name == "accumulated-gpu-processes"
    assert column(table, "processes") == [1, 2]
    assert any(note.startswith("4 processes left out") for note in table.notes)
    for approach in ("made GB/s", *HAD):
        assert [len(cell.values) for cell in column(table, approach)] == [1, 2]
    assert column(table, "nvCOMP single") == [None, None]
    assert any(note.startswith("nvCOMP single cannot be had") for note in table.notes)
    assert {len(ordinals) for _, ordinals in processes} == {1, 2}
    assert (weak.MADE, [0, 1]) in processes


@compiled
def test_a_process_says_what_its_runs_took_and_refuses_what_it_does_not_know(small):
    said = []
    weak.work(FakeCuda(), Forward(small, 4.0), TASK, [weak.MADE, "Twine batched"], said.append)
    assert [(one["count"], len(one["seconds"]), one["why"]) for one in said] == 2 * [
        (COUNT, ROUNDS, "")
    ]
    with pytest.raises(KeyError):
        weak.work(FakeCuda(), Forward(small, 4.0), TASK, ["dance"], said.append)


@compiled
def test_a_process_that_fails_costs_its_row_alone(processes, monkeypatch):
    phase = weak.phase

    def failing(found, name):
        if len(found) == 2:
            raise ProcessError("a process failed with 1: no device")
        return phase(found, name)

    monkeypatch.setattr(weak, "phase", failing)
    well, (table,) = measured("--accumulated-processes=1,2")
    assert well and column(table, "processes") == [1]
    assert "4 Hz, 2 processes left out: a process failed with 1: no device" in table.notes
