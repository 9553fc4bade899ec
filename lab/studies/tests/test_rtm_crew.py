"""Several processes of one migration: the same image, their figures together, their ends."""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import unspool

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli
from unspool_studies.rtm.crew import run_crew
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job, run
from unspool_studies.rtm.merge import merged
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.processes import Processes
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.seat import Order
from unspool_studies.rtm.survey import plan

from helpers import children

SMALL = ["--shape", "71x41", "--spacing", "15", "--shots", "3", "--steps", "220", "--every", "2"]
SMALL += ["--device-memory", "1MiB", "--host-memory", "1MiB", "--layer", "12"]


@pytest.fixture
def job(tmp_path):
    model = generated_model(71, 41, 15.0)
    memory = Memory("1MiB", "1MiB", tmp_path)
    return Job(model, smooth(model, 60.0), plan(model, shots=3, steps=220), 12, 1, memory)


def _rtm(tmp_path, *options):
    (tmp_path / "disk").mkdir(exist_ok=True)
    places = ["--out", tmp_path / "out", "--disk-dir", tmp_path / "disk"]
    return cli.rtm([*map(str, [*SMALL, *places, *options])])


def test_two_processes_make_the_image_of_one_bit_for_bit(job, tmp_path):
    one = run(job, Silence())
    two = run_crew(Order(job, None, check=True), Processes(2), Silence())
    assert np.abs(one.migrated.image).max() > 0
    for found in (two.outcome.migrated, two.again):
        assert found.digests == one.migrated.digests
        assert found.image.tobytes() == one.migrated.image.tobytes()
        assert found.illumination.tobytes() == one.migrated.illumination.tobytes()
    assert two.outcome.stats.restores == one.stats.restores
    assert two.outcome.stats.saved_bytes == one.stats.saved_bytes
    assert two.plain == "plain NumPy arrays"
    assert children(tmp_path) == []


def test_a_job_of_two_processes_reports_and_checks(tmp_path, capsys):
    assert _rtm(tmp_path, "--jobs", "2", "--check") == 0
    printed = capsys.readouterr()
    assert "every bit of the image is the same with plain NumPy arrays" in printed.out
    assert "shot 3 of 3" in printed.err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    # The first process that is there may have done all before the other one is.
    worked, kind = report["time"]["propagator"].split(",")[0].split()
    assert (worked, kind) in {("1", "process"), ("2", "processes")}
    assert report["history"]["memory_bytes"] == int(worked) * 2 * 2**20
    assert report["spool"]["saves"] == 3 * 109
    assert report["check"]["identical"] is True


def test_there_are_no_more_processes_than_shots(tmp_path):
    assert _rtm(tmp_path, "--shots", "1", "--jobs", "4", "--quiet") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "processes" not in report["time"]["propagator"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--jobs", "2", "--trace", "trace.json"], "of one process"),
        (["--gpus", "all"], "not a list of numbers"),
        (["--mpi", "--dask", "somewhere:1"], "not allowed with argument --mpi"),
        (["--mpi", "--jobs", "2"], "--jobs is of one machine"),
        (["--dask", "somewhere:1", "--gpus", "0"], "dask-cuda chooses the GPUs"),
        (["--mpi"], "pip install 'unspool-studies[mpi]'"),
        (["--dask", "somewhere:1"], "pip install 'unspool-studies[dask]'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, options, reason):
    for package in ("mpi4py", "distributed"):
        monkeypatch.setitem(sys.modules, package, None)
    # Imported again, as tests of others may have done before.
    monkeypatch.delitem(sys.modules, "unspool_studies.rtm.cluster", raising=False)
    try:
        code = _rtm(tmp_path, *options)
    except SystemExit as exit_:
        code = exit_.code
    printed = capsys.readouterr()
    assert code == 2, printed
    assert reason in printed.err
    assert printed.err.count("\n") == 1


def test_what_one_process_fails_with_is_raised_and_the_others_end(job, tmp_path):
    memory = dataclasses.replace(
        job.memory, disk="100KiB", device_memory=None, host_memory="200KiB"
    )
    broken = dataclasses.replace(job, memory=memory)
    with pytest.raises(unspool.Error) as failed:
        run_crew(Order(broken, None, check=False), Processes(2), Silence())
    assert str(failed.value)
    assert not multiprocessing.active_children()
    assert children(tmp_path) == []


class _Interrupted(Silence):
    """Hears of progress once, and then what Ctrl-C makes of it."""

    def stepped(self, shot, phase, steps):
        raise KeyboardInterrupt


def test_ctrl_c_ends_every_process_and_leaves_nothing(job, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_crew(Order(job, None, check=False), Processes(2), _Interrupted())
    assert not multiprocessing.active_children()
    assert children(tmp_path) == []


class _Masks(Silence):
    """Looks which signals the processes do not hear, as soon as they are started."""

    def stepped(self, shot, phase, steps):
        self.blocked = [_blocked(process.pid) for process in multiprocessing.active_children()]
        raise KeyboardInterrupt


def _blocked(pid):
    """The signals that a process blocks, but not those of the moment in which it starts a thread:
    then it blocks all, also the one that ends it.
    """
    for _ in range(1000):
        text = Path(f"/proc/{pid}/status").read_text()
        mask = int(re.search(r"SigBlk:\s+(\w+)", text)[1], 16)
        if not mask & 1 << signal.SIGTERM - 1:
            break
    return mask


def test_ctrl_c_of_a_terminal_does_not_reach_processes_even_while_they_start(job):
    masks = _Masks()
    with pytest.raises(KeyboardInterrupt):
        run_crew(Order(job, None, check=False), Processes(2), masks)
    assert masks.blocked == [1 << signal.SIGINT - 1] * 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


class _Killer(Silence):
    """Kills the first process when there is progress: so often."""

    def __init__(self, deaths):
        self.deaths = deaths

    def stepped(self, shot, phase, steps):
        for process in multiprocessing.active_children()[: steps and self.deaths and 1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
                self.deaths -= 1


def test_the_shots_of_a_process_that_is_killed_are_done_again(job):
    killer = _Killer(1)
    found = run_crew(Order(job, None, check=False), Processes(2), killer)
    assert killer.deaths == 0
    assert found.outcome.migrated.digests == run(job, Silence()).migrated.digests
    assert not multiprocessing.active_children()


def test_a_shot_that_kills_every_process_is_an_error_that_says_so(job):
    long = dataclasses.replace(job, survey=plan(job.model, shots=3, steps=20000))
    with pytest.raises(unspool.Error, match="ended before it was done"):
        run_crew(Order(long, None, check=False), Processes(2), _Killer(1000))
    assert not multiprocessing.active_children()


LED = """
import os, signal, sys
from test_rtm_crew import endless
from unspool_studies.rtm.crew import run_crew
from unspool_studies.rtm.processes import Processes
from unspool_studies.rtm.progress import Silence
import multiprocessing

class Killed(Silence):
    def stepped(self, shot, phase, steps):
        if steps:
            print(*(one.pid for one in multiprocessing.active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    run_crew(endless(sys.argv[1]), Processes(2), Killed())
"""


def endless(directory):
    """A job that takes minutes."""
    model = generated_model(71, 41, 15.0)
    survey = plan(model, shots=3, steps=200_000)
    memory = Memory("1MiB", "1MiB", Path(directory))
    return Order(Job(model, smooth(model, 60.0), survey, 12, 1, memory), None, check=False)


def test_processes_do_not_outlive_a_leader_that_is_killed(tmp_path):
    script, disk = tmp_path / "led.py", tmp_path / "disk"
    script.write_text(LED)
    disk.mkdir()
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    led = subprocess.run(
        [sys.executable, script, disk],
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert led.returncode == -signal.SIGKILL
    for pid in map(int, led.stdout.split()):
        _wait_for_the_end_of(pid)
    assert children(disk) == []


def _wait_for_the_end_of(pid):
    try:
        ends = select.poll()
        ends.register(os.pidfd_open(pid), select.POLLIN)
    except ProcessLookupError:
        return
    assert ends.poll(20_000), f"process {pid} goes on"


def test_figures_of_two_spools_add_up(job):
    stats = run(job, Silence()).stats
    both = merged([stats, stats])
    assert merged([stats]) is stats
    assert both.saves == 2 * stats.saves
    assert both.tiers[0].capacity == 2 * stats.tiers[0].capacity
    assert both.tiers[-1].name == "disk"
    assert both.links[0].flush.bytes == 2 * stats.links[0].flush.bytes
    assert both.prefetch_lead == stats.prefetch_lead
    assert both.longest_stall == stats.longest_stall


def test_choices_of_two_spools_add_up_and_keep_what_was_measured(job):
    stats = run(job, Silence()).stats
    parts = [
        unspool.stats.AutoStats(1, 2, 3, 0, 1, None, None, None, "one"),
        unspool.stats.AutoStats(4, 5, 6, 5, 2, 3.0, 1e-3, 1e-3, "two"),
    ]
    both = merged([dataclasses.replace(stats, auto=part) for part in parts]).auto
    assert both == unspool.stats.AutoStats(5, 7, 9, 5, 3, 3.0, 1e-3, 1e-3, "two")
    assert merged([stats, stats]).auto is None
