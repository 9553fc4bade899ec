"""`unspool-rtm` from the outside: its files, its report, its errors, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from helpers import children

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli, timeline
from unspool_studies.rtm import history, job

MARMOUSI = Path(__file__).parents[4] / "shared" / "data" / "marmousi_vp_x1601_z401.f32"
SMALL = ["--shape", "101x61", "--spacing", "15", "--shots", "2", "--steps", "360", "--every", "1"]
SMALL += ["--device-memory", "1MiB", "--host-memory", "2MiB", "--layer", "20"]


@pytest.fixture
def rtm(tmp_path):
    """Runs a small job with its files in a folder of their own; returns the exit code."""
    (tmp_path / "disk").mkdir()

    def call(*options):
        places = ["--out", tmp_path / "out", "--disk-dir", tmp_path / "disk"]
        return cli.rtm([*map(str, [*SMALL, *places, *options])])

    return call


def test_a_job_leaves_an_image_its_values_and_a_report(rtm, tmp_path, capsys):
    assert rtm() == 0
    assert children(tmp_path / "out") == ["image.npy", "image.png", "report.json"]
    assert children(tmp_path / "disk") == []
    assert (tmp_path / "out" / "image.png").read_bytes().startswith(b"\x89PNG")
    image = np.load(tmp_path / "out" / "image.npy")
    assert image.shape == (101, 61)
    assert np.isfinite(image).all()
    table = capsys.readouterr().out
    for words in ("history of one shot", "restores from device", "moved host -> disk", "stalled"):
        assert words in table


def test_the_report_adds_up(rtm, tmp_path):
    assert rtm("--quiet") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    sampled, kept = report["survey"], report["history"]
    # The last one is still there when its step is reversed.
    assert kept["wavefields_a_shot"] == sampled["steps"] - 1
    assert kept["wavefield_bytes"] == 4 * (101 + 48) * (61 + 48)
    assert kept["shot_bytes"] == kept["wavefields_a_shot"] * kept["wavefield_bytes"]
    assert kept["memory_bytes"] == 3 * 2**20
    assert kept["shot_over_memory"] == pytest.approx(kept["shot_bytes"] / kept["memory_bytes"])
    assert kept["shot_over_memory"] > 3
    spool = report["spool"]
    assert spool["saves"] == spool["restores"] == 2 * (sampled["steps"] - 1)
    assert sum(tier["restores"] for tier in spool["tiers"]) == spool["restores"]
    assert spool["saved_bytes"] == kept["job_bytes"]
    assert 0 <= report["time"]["stall_fraction"] < 1
    assert report["peak_resident_bytes"] > kept["memory_bytes"]


def test_json_goes_to_standard_output_and_nothing_else_does(rtm, capsys):
    assert rtm("--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["survey"]["shots"] == 2
    assert "shot 2 of 2" in printed.err


def test_quiet_is_quiet(rtm, capsys):
    assert rtm("--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_a_check_that_passes_is_said(rtm, tmp_path, capsys):
    assert rtm("--check") == 0
    assert "every bit of the image is the same" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"]["identical"] is True


def test_one_wrong_value_in_one_wavefield_fails_the_check(rtm, capsys, monkeypatch):
    restore = history.SpoolHistory.restore

    def careless(self, version, array, **options):
        restore(self, version, array, **options)
        if version == 200:
            array[60, 40] += 1e-3

    monkeypatch.setattr(history.SpoolHistory, "restore", careless)
    assert rtm("--check", "--quiet") == 1
    assert "differs" in capsys.readouterr().err


def test_a_check_without_memory_for_it_is_refused_before_anything_runs(
    rtm, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(job, "available_memory", lambda: 10**6)
    assert rtm("--check") == 2
    assert "0.0 GB are available" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_trace_has_the_calls_the_computing_and_the_stalls(rtm, tmp_path):
    path = tmp_path / "trace.json"
    assert rtm("--trace", path, "--quiet") == 0
    bars = timeline.read_bars(path)
    own = [bar for bar in bars if bar.lane == "application"]
    names = [bar.name for bar in own]
    assert names.count("save") == names.count("restore") > 100
    assert names.count("compute") >= 3 * names.count("save")
    assert len({bar.row for bar in own}) == 1
    assert {bar.lane for bar in bars} >= {"device-host", "host-disk", "disk-host"}
    calls = sorted((bar.begin, bar.end) for bar in own if bar.name != "stall")
    overlaps = [next_[0] - this[1] for this, next_ in pairwise(calls)]
    assert min(overlaps) > -200e-6, "computing and calls take turns"
    out = tmp_path / "timeline.png"
    assert cli.timeline([str(path), "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "nowhere.f32"], "no model file"),
        (["--shape", "abc"], "not a pair of counts"),
        (["--spacing", "wide"], "not a length"),
        (["--shots", "0"], "number of shots"),
        (["--every", "-1"], "history interval"),
        (["--device-memory", "much"], "device"),
        (["--disk-dir", "/nowhere/at/all"], "not a directory"),
        (["--time", "1"], "not allowed with"),
        (["--layer", "-3"], "cannot be negative"),
        (["--threads", "100000"], "at most 1024"),
        (["--shots", "1000000000"], "at most 100,000,000"),
        (["--out", "/dev/null/x"], "cannot be made"),
        (["--frequency", "nan"], "frequency"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(rtm, capsys, options, reason):
    try:
        code = rtm(*options)
    except SystemExit as exit_:
        code = exit_.code
    printed = capsys.readouterr()
    assert code == 2, printed
    assert reason in printed.err
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("unspool-rtm")


def test_a_history_that_the_disk_cannot_hold_is_refused_with_figures(rtm, capsys):
    assert rtm("--steps", "5000000") == 2
    assert "GB of disk" in capsys.readouterr().err


def test_dispersion_is_warned_of(rtm, capsys):
    assert rtm("--frequency", "25") == 0
    assert "numerical dispersion" in capsys.readouterr().err


@pytest.mark.skipif(not MARMOUSI.exists(), reason="the Marmousi model is not here")
def test_the_marmousi_model_is_migrated_and_checked(rtm, tmp_path):
    marmousi = ["--model", MARMOUSI, "--shape", "1601x401", "--spacing", "7.5"]
    few = [
        "--shots",
        "1",
        "--steps",
        "300",
        "--every",
        "4",
        "--device-memory",
        "8MiB",
        "--host-memory",
        "32MiB",
    ]
    assert rtm(*marmousi, *few, "--check", "--quiet") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"]["identical"] is True
    assert report["history"]["shot_over_memory"] > 5


def _start(tmp_path):
    (tmp_path / "disk").mkdir()
    command = [sys.executable, "-m", "unspool", "rtm", "--time", "60", "--disk-dir", "disk"]
    command += ["--trace", "trace.json"]
    # A shell's background jobs inherit an ignored Ctrl-C, and these tests may be one.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )


def _written(directory):
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def test_ctrl_c_leaves_no_files_behind(tmp_path):
    with _start(tmp_path) as process:
        deadline = time.monotonic() + 60
        while not os.listdir(tmp_path / "disk"):
            assert time.monotonic() < deadline, "the spool never opened its disk tier"
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "unspool-rtm: interrupted; nothing was written"
    assert children(tmp_path) == ["disk"]
    assert children(tmp_path / "disk") == []
