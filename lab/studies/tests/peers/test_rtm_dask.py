"""The migration by a Dask cluster: `unspool-rtm --dask ADDRESS`."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from unspool_studies import cli

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    distributed = pytest.importorskip("distributed")

from unspool_studies.rtm import cluster, seat
from unspool_studies.rtm.crew import run_crew
from unspool_studies.rtm.job import run
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.seat import Order

from small_rtm import job_of

# What Dask warns of is its own.
pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def dask():
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, **options) as found:
        yield found


@pytest.fixture
def address(dask):
    return dask.scheduler_address


def _left(client):
    """The names of the jobs that a worker takes part in, by worker."""
    return [name for names in client.run(lambda: list(seat._SEATS)).values() for name in names]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_image_is_that_of_one_process(rtm, alone, dask, address, capfd, workers):
    dask.scale(workers)
    dask.wait_for_workers(workers, timeout=20)
    assert cli.rtm(rtm.words("--dask", address, "--check")) == 0
    image, report = rtm.found()
    assert image == alone[0]
    assert report["image"]["shot_sha256"] == alone[1]["image"]["shot_sha256"]
    assert report["spool"]["saves"] == alone[1]["spool"]["saves"]
    assert "Dask worker" in report["time"]["propagator"]
    assert report["check"]["identical"] is True
    assert capfd.readouterr().err.count("shot 3 of 6") == 1
    with distributed.Client(address, set_as_default=False) as client:
        assert _left(client) == []
    assert os.listdir(rtm.disk) == []


def test_the_example_of_the_guide_runs(tmp_path):
    guide = Path(__file__).parents[4] / "docs" / "howto" / "rtm.md"
    (example,) = re.findall(r"^```py\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        timeout=60,
        check=True,
    )
    assert (tmp_path / "two-workers" / "image.npy").exists()


class _Killer(Silence):
    """Kills one worker when there is progress."""

    def __init__(self, pid):
        self.pid = pid

    def stepped(self, shot, phase, steps):
        if steps and self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.pid = 0


def test_the_shots_of_a_worker_that_is_killed_are_done_again(rtm, address):
    job = job_of(rtm.disk, 1500)
    with distributed.Client(address, set_as_default=False) as client:
        killer = _Killer(next(iter(client.run(os.getpid).values())))
    engine = cluster.Cluster(address)
    try:
        found = run_crew(Order(job, None, False), engine, killer).outcome
    finally:
        engine.close()
    assert killer.pid == 0
    assert found.migrated.digests == run(job, Silence()).migrated.digests


class _Interrupted(Silence):
    def stepped(self, shot, phase, steps):
        if steps:
            raise KeyboardInterrupt


def test_ctrl_c_ends_what_the_workers_do_and_leaves_nothing(rtm, address):
    engine = cluster.Cluster(address)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_crew(Order(job_of(rtm.disk, 1_000_000), None, False), engine, _Interrupted())
    finally:
        engine.close()
    with distributed.Client(address, set_as_default=False) as client:
        limit = time.monotonic() + 10
        while any(client.processing().values()) or os.listdir(rtm.disk):
            assert time.monotonic() < limit, client.processing()
        assert _left(client) == []


@pytest.mark.parametrize("options", [["--trace", "trace.json"], ["--predict"]])
def test_what_one_process_alone_can_do_is_refused(rtm, address, capsys, options):
    assert cli.rtm(rtm.words("--dask", address, *options)) == 2
    assert f"{options[0]} is of one process: leave out --jobs" in capsys.readouterr().err


def test_workers_of_another_version_are_refused(monkeypatch, rtm, address, capsys):
    get_versions = distributed.Client.get_versions

    def changed(self, **options):
        found = get_versions(self, **options)
        found["client"]["packages"]["unspool"] = "9.9.9"
        return found

    monkeypatch.setattr(distributed.Client, "get_versions", changed)
    assert cli.rtm(rtm.words("--dask", address)) == 2
    assert "and here it is 9.9.9: install the same" in capsys.readouterr().err


def test_where_nobody_answers_the_error_says_so(monkeypatch, rtm, capsys):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
        for address in (closed, "nowhere", "nowhere.json"):
            assert cli.rtm(rtm.words("--dask", address)) == 2
            assert f"{address}: no Dask scheduler answers there" in capsys.readouterr().err


def test_a_cluster_without_workers_is_refused(monkeypatch, rtm, capsys):
    monkeypatch.setattr(cluster, "PATIENCE", 2.0)
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty:
        assert cli.rtm(rtm.words("--dask", empty.scheduler_address)) == 2
    assert "the scheduler has no worker" in capsys.readouterr().err
