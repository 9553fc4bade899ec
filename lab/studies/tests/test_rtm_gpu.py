"""`unspool-rtm --gpu` with the kernels on the CPU: the same job, the same files, the same check."""

import argparse
import dataclasses
import json
import sys

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from unspool_studies import cli
from unspool_studies.rtm import command, device, history, job, seat
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import ArrayHistory, DeviceHistory, Memory, PinnedHistory
from unspool_studies.rtm.image import finish
from unspool_studies.rtm.job import Job, migrate_again, plain_history, run
from unspool_studies.rtm.model import Model, smooth
from unspool_studies.rtm.options import add_options
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.seat import Order, Seat
from unspool_studies.rtm.survey import plan

import kernel_shim
from helpers import children, python
from kernel_shim import ShimDevice

pytestmark = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

PLANE = ["--shape", "81x51", "--spacing", "15", "--shots", "2", "--steps", "200", "--every", "2"]
SPACE = [
    "--shape",
    "30x26x21",
    "--spacing",
    "20",
    "--shots",
    "1",
    "--steps",
    "300",
    "--every",
    "12",
]
SMALL = ["--device-memory", "1MiB", "--host-memory", "2MiB", "--layer", "12"]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def shim(kernels):
    return ShimDevice(kernels)


@pytest.fixture
def rtm(tmp_path, shim, monkeypatch):
    """Runs a small job on the shim with its files in a folder of their own."""
    monkeypatch.setattr(command, "CupyDevice", lambda ordinal: shim)
    monkeypatch.setattr(command, "count_devices", lambda: 1)
    (tmp_path / "disk").mkdir()

    def call(*options):
        places = ["--out", tmp_path / "out", "--disk-dir", tmp_path / "disk"]
        return cli.rtm([*map(str, [*SMALL, *places, *options])])

    return call


def _report(tmp_path):
    return json.loads((tmp_path / "out" / "report.json").read_text())


def _job(tmp_path, shape=(81, 51), **options):
    nx, *ny, nz = shape
    model = generated_model(nx, nz, 15.0, ny=ny[0] if ny else None)
    survey = plan(model, shots=2, every=2, steps=options.pop("steps", 200))
    memory = Memory("1MiB", "2MiB", tmp_path)
    return Job(model, smooth(model, 60.0), survey, 12, 2, memory, **options)


def test_a_job_in_the_plane_leaves_the_same_files_as_on_the_cpu(rtm, tmp_path, capsys):
    assert rtm(*PLANE, "--gpu", "--check") == 0
    assert children(tmp_path / "out") == ["image.npy", "image.png", "report.json"]
    report, table = _report(tmp_path), capsys.readouterr().out
    assert report["check"]["identical"] is True
    assert report["time"]["propagator"] == "CUDA on a shim"
    assert "kernels of one step" in table
    assert "the same with plain device memory" in table


def test_the_image_is_that_of_the_cpu(tmp_path, shim):
    one = run(_job(tmp_path, device=shim), Silence())
    other = run(_job(tmp_path), Silence())
    assert np.abs(other.migrated.image).max() > 0
    for left, right in (
        (one.migrated.image, other.migrated.image),
        (one.migrated.illumination, other.migrated.illumination),
    ):
        # Equal bits where the CPU has fused multiply-add; test_rtm_kernels says why not elsewhere.
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-5 * np.abs(right).max())
        if "avx2" in other.propagator:
            np.testing.assert_array_equal(left, right)


def test_a_job_in_space_is_imaged_checked_and_drawn(rtm, tmp_path):
    assert rtm(*SPACE, "--gpu", "--check", "--quiet") == 0
    report = _report(tmp_path)
    assert report["check"]["identical"] is True
    assert report["model"]["shape"] == [30, 26, 21]
    kept = report["history"]
    assert kept["wavefield_bytes"] == 4 * (30 + 32) * (26 + 32) * 56
    assert kept["shot_over_memory"] > 4
    assert report["survey"]["receivers"] == 30 * 26
    image = np.load(tmp_path / "out" / "image.npy")
    assert image.shape == (30, 26, 21)
    assert np.isfinite(image).all() and image.any()
    assert (tmp_path / "out" / "image.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["revolve", "auto"])
def test_a_job_in_space_by_a_schedule_is_checked(rtm, tmp_path, name):
    assert rtm(*SPACE, "--gpu", "--check", "--schedule", name, "--predict", "--quiet") == 0
    report = _report(tmp_path)
    assert report["check"]["identical"] is True
    assert report["schedule"]["groups_a_shot"] == 25
    assert report["schedule"]["predicted_seconds"] > 0


def test_a_flat_reflector_in_space_is_imaged_at_its_depth(tmp_path, shim):
    speed = np.full((40, 36, 44), 2000.0, np.float32)
    background = Model(speed, (10.0,) * 3, "uniform")
    model = Model(np.where(np.arange(44) >= 26, 2600.0, speed).astype(np.float32), (10.0,) * 3, "")
    survey = plan(model, shots=1, frequency=18.0, time=0.42, every=4)
    memory = Memory("2MiB", "8MiB", tmp_path)
    migrated = run(Job(model, background, survey, 12, 1, memory, shim), Silence()).migrated
    image = finish(migrated.image, migrated.illumination, model)
    middle = np.abs(image[12:-12, 12:-12]).mean(axis=(0, 1))
    assert abs(int(np.argmax(middle)) - 26) <= 3
    assert middle.max() > 20 * middle[:16].mean()


def test_a_model_file_in_space_is_migrated(rtm, tmp_path):
    path = tmp_path / "model.f32"
    generated_model(30, 21, 20.0, ny=26).velocity.tofile(path)
    assert rtm(*SPACE, "--gpu", "--model", path, "--quiet") == 0
    assert _report(tmp_path)["model"]["name"] == "model.f32"


def test_the_kernels_time_and_traffic_are_in_the_report(rtm, tmp_path):
    assert rtm(*PLANE, "--gpu", "--quiet") == 0
    kernels = _report(tmp_path)["time"]["kernels"]
    # Recording, forward but for the last two steps, and backward, of two shots.
    assert kernels["steps"] == 2 * (200 + 198 + 200)
    assert kernels["milliseconds_a_step"] == pytest.approx(1.0)
    assert kernels["step_bytes"] == 16 * (81 + 32) * (51 + 32)
    assert kernels["of_copy_bandwidth"] == pytest.approx(kernels["step_bytes"] / 1e-3 / 1e10)


def test_one_wrong_value_in_one_wavefield_fails_the_check(rtm, capsys, monkeypatch):
    restore = history.SpoolHistory.restore

    def careless(self, version, array, **options):
        restore(self, version, array, **options)
        if version == 60:
            array[50, 30] += 1e-3

    monkeypatch.setattr(history.SpoolHistory, "restore", careless)
    assert rtm(*PLANE, "--gpu", "--check", "--quiet") == 1
    assert "differs from that with plain device memory" in capsys.readouterr().err


def test_a_check_goes_to_pinned_memory_when_the_device_is_too_small(tmp_path, shim):
    wanted = _job(tmp_path, device=shim)
    assert isinstance(plain_history(wanted), DeviceHistory)
    outcome = run(wanted, Silence(), keep_records=True)
    shim.free = wanted.kept.peak_bytes
    assert isinstance(plain_history(wanted), PinnedHistory)
    again = migrate_again(wanted, outcome.records, Silence())
    assert outcome.migrated.digests == again.digests
    assert np.abs(again.image).max() > 0


def test_a_check_that_fits_nowhere_is_refused_with_figures(tmp_path, shim, monkeypatch):
    monkeypatch.setattr(job, "available_memory", lambda: 10**7)
    shim.free = 2 * 10**6
    with pytest.raises(MigrationError, match=r"are available; the GPU has .* GB free"):
        plain_history(_job(tmp_path, device=shim, steps=2000))


def test_without_a_gpu_the_check_is_in_plain_numpy_arrays(tmp_path):
    assert type(plain_history(_job(tmp_path))) is ArrayHistory


def test_three_dimensions_without_a_gpu_are_refused(rtm, capsys):
    assert rtm(*SPACE) == 2
    assert capsys.readouterr().err == "unspool-rtm: in three dimensions a GPU computes: add --gpu\n"


def test_the_middle_section_of_the_model_in_space_is_the_plane_one():
    plane, space = generated_model(41, 31, 10.0), generated_model(41, 31, 10.0, ny=25)
    assert space.shape == (41, 25, 31)
    np.testing.assert_array_equal(space.velocity[:, 12], plane.velocity)
    assert (space.velocity[:, 0] != plane.velocity).any()


def test_shots_in_space_are_spread_over_the_surface():
    survey = plan(generated_model(41, 31, 10.0, ny=25), shots=6)
    x, y, depth = np.array(survey.sources).T
    assert set(depth) == {20.0}
    assert len(set(x)) == 3 and len(set(y)) == 2
    assert len(survey.receivers) == 41 * 25


def test_without_cupy_the_error_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert cli.rtm([*PLANE, "--gpu"]) == 2
    said = capsys.readouterr().err
    assert "cupy-cuda13x" in said and "cupy-cuda12x" in said
    assert said.count("\n") == 1


class _NoDriver:
    """What CuPy is on a machine without a driver, as far as it is asked."""

    def __init__(self, found):
        class CUDARuntimeError(RuntimeError):
            pass

        def count():
            if isinstance(found, str):
                raise CUDARuntimeError(found)
            return found

        self.cuda = self.runtime = self
        self.CUDARuntimeError, self.getDeviceCount = CUDARuntimeError, count


@pytest.mark.parametrize(
    ("found", "reason"),
    [("cudaErrorNoDevice: no device", "no device"), (0, "there is none")],
)
def test_without_a_gpu_the_error_says_so(monkeypatch, capsys, found, reason):
    monkeypatch.setitem(sys.modules, "cupy", _NoDriver(found))
    assert cli.rtm([*PLANE, "--gpu"]) == 2
    assert reason in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", _NoDriver(2))
    with pytest.raises(MigrationError, match="no GPU 2: CUDA sees 2"):
        device.CupyDevice(2)


@pytest.mark.parametrize(
    ("options", "seats"),
    [
        (["--gpu"], [0]),
        (["--gpus", "2,0"], [2, 0]),
        (["--gpus", "0,1", "--jobs", "5"], [0, 1, 0, 1, 0]),
        (["--gpu", "--jobs", "3"], [0, 0, 0]),
        (["--gpus", "0,1,2", "--jobs", "1"], [0]),
        (["--gpus", "0,1", "--jobs", "50"], [0, 1] * 4),
        (["--jobs", "2"], [None, None]),
    ],
)
def test_processes_take_turns_on_the_gpus(tmp_path, monkeypatch, options, seats):
    monkeypatch.setattr(command, "count_devices", lambda: 3)
    parser = argparse.ArgumentParser()
    add_options(parser)
    model = generated_model(31, 31, 15.0)
    survey = plan(model, shots=8, steps=10)
    job = Job(model, model, survey, 4, 1, Memory("1MiB", None, tmp_path))
    parsed = parser.parse_args(options)
    gpus = command._gpus(job, parsed, None)
    opened = []
    monkeypatch.setattr(seat, "CupyDevice", opened.append)
    monkeypatch.setattr(seat, "Migrator", lambda job: opened.append(job.device))
    found = []
    for number in range(command._processes(job, parsed, gpus)):
        opened.clear()
        Seat(Order(job, gpus, False), number, 1, bool)._open()
        found.append(opened[0])
    assert found == seats


def test_workers_elsewhere_take_turns_on_all_gpus_that_they_see(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(seat, "count_devices", lambda: 2)
    monkeypatch.setattr(seat, "CupyDevice", opened.append)
    monkeypatch.setattr(seat, "Migrator", lambda job: None)
    for number in range(3):
        Seat(Order(_job(tmp_path), (), False), number, 1, bool)._open()
    assert opened == [0, 1, 0]


def test_a_gpu_that_cuda_does_not_see_is_refused(rtm, capsys):
    assert rtm(*PLANE, "--gpus", "0,1") == 2
    assert "there is no GPU 1: CUDA sees 1" in capsys.readouterr().err


def test_importing_the_package_imports_no_cupy():
    modules = "sys, unspool_studies.rtm.job, unspool_studies.rtm.command"
    done = python(f"import {modules}; print('cupy' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_a_job_can_be_given_to_another_device(tmp_path, shim):
    wanted = _job(tmp_path)
    assert dataclasses.replace(wanted, device=shim).propagator(wanted.model).description
