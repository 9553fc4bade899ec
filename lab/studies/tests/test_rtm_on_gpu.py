"""`unspool-rtm --gpu` on a real device: `pytest -m gpu`. The same without one: test_rtm_gpu."""

import json

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli
from unspool_studies.rtm.device import CupyDevice
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory, PinnedHistory
from unspool_studies.rtm.job import Job, migrate_again, run
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.survey import plan

pytestmark = pytest.mark.gpu

PLANE = ["--shape", "101x61", "--spacing", "15", "--shots", "2", "--steps", "360", "--every", "1"]
SPACE = ["--shape", "50x46x41", "--spacing", "20", "--shots", "2", "--steps", "300", "--every", "2"]


@pytest.fixture(scope="module")
def device():
    try:
        return CupyDevice(0)
    except MigrationError as error:
        pytest.skip(str(error))


def _job(tmp_path, shape, **options):
    nx, *ny, nz = shape
    model = generated_model(nx, nz, 15.0, ny=ny[0] if ny else None)
    survey = plan(model, shots=2, every=2, steps=300)
    memory = Memory("2MiB", "4MiB", tmp_path)
    return Job(model, smooth(model, 60.0), survey, 12, 0, memory, **options)


def test_the_image_in_two_dimensions_is_that_of_the_cpu(device, tmp_path):
    one = run(_job(tmp_path, (101, 61), device=device), Silence())
    other = run(_job(tmp_path, (101, 61)), Silence())
    assert np.abs(other.migrated.image).max() > 0
    for left, right in (
        (one.migrated.image, other.migrated.image),
        (one.migrated.illumination, other.migrated.illumination),
    ):
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-5 * np.abs(right).max())
        if "avx2" in other.propagator:
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("options", [PLANE, SPACE], ids=["plane", "space"])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_job_is_checked_bit_for_bit(device, tmp_path, options, processes):
    options = ["--gpu", "--check", *options, "--layer", "12", "--jobs", processes]
    options += ["--device-memory", "2MiB", "--host-memory", "8MiB", "--quiet"]
    places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
    assert cli.rtm([*options, *places]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"]["identical"] is True
    assert report["check"]["memory"] == "plain device memory"
    assert np.load(tmp_path / "out" / "image.npy").any()
    tiers = {tier["name"]: tier["restores"] for tier in report["spool"]["tiers"]}
    assert sum(tiers.values()) == report["spool"]["restores"] > 0
    assert report["time"]["kernels"]["milliseconds_a_step"] > 0


@pytest.mark.parametrize("options", [PLANE, SPACE], ids=["plane", "space"])
@pytest.mark.parametrize("name", ["revolve", "online", "uniform", "zcut", "levels", "auto"])
def test_a_job_by_a_schedule_is_checked_bit_for_bit(device, tmp_path, options, name):
    options = ["--gpu", "--check", *options, "--layer", "12", "--schedule", name, "--predict"]
    options += ["--device-memory", "2MiB", "--host-memory", "8MiB", "--quiet"]
    places = ["--out", str(tmp_path / "out"), "--disk-dir", str(tmp_path)]
    assert cli.rtm([*options, *places]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["check"]["identical"] is True
    assert report["schedule"]["restores"] == report["spool"]["restores"] > 0
    assert report["schedule"]["predicted_seconds"] > 0
    assert np.load(tmp_path / "out" / "image.npy").any()


def test_a_history_in_pinned_memory_gives_the_same_bits(device, tmp_path, monkeypatch):
    job = _job(tmp_path, (40, 36, 31), device=device)
    outcome = run(job, Silence(), keep_records=True)
    plain = "unspool_studies.rtm.job.plain_history"
    monkeypatch.setattr(plain, lambda job: PinnedHistory(job.device))
    again = migrate_again(job, outcome.records, Silence())
    assert np.abs(again.image).max() > 0
    assert outcome.migrated.digests == again.digests


def test_two_runs_give_the_same_bits(device, tmp_path):
    first, second = (
        run(_job(tmp_path, (40, 36, 31), device=device), Silence()).migrated for _ in range(2)
    )
    assert np.abs(first.image).max() > 0
    assert first.image.tobytes() == second.image.tobytes()
