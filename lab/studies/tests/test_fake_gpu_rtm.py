"""A migration whose fields and history are on the driver that `UNSPOOL_CUDA_DRIVER` names.

The kernels are those of the shim, on what is read from the device and written back to it; saves and
restores go through the spool's tiers on that driver, on a stream of the propagator's own.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool import schedules
from unspool_studies.bench import gpuzip
from unspool_studies.bench.options import Plan
from unspool_studies.bench.plain_adjoint import DeviceStore, PinnedStore
from unspool_studies.bench.report import Report
from unspool_studies.bench.wave_problem import Problem, plainly, through_spool
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job, migrate_again, run
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.pace import Pace
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.resume import Resume
from unspool_studies.rtm.survey import plan

import kernel_shim
from driver_device import DriverDevice

pytestmark = [
    pytest.mark.fake_gpu,
    pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler"),
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


def test_a_migration_on_the_driver_is_that_of_the_cpu_and_of_plain_device_memory(
    driver, kernels, tmp_path
):
    model = generated_model(41, 31, 15.0)
    survey = plan(model, shots=1, steps=220, every=2, frequency=9.0)
    memory = Memory("128KiB", "512KiB", tmp_path)
    device = DriverDevice(kernels, driver)
    job = Job(model, smooth(model, 60.0), survey, 6, 1, memory, device)
    assert job.kept.peak_bytes > 2 * 640 * 2**10
    outcome = run(job, Silence(), keep_records=True)
    again = migrate_again(job, outcome.records, Silence())
    assert np.abs(again.image).max() > 0
    assert outcome.migrated.digests == again.digests
    assert outcome.stats.restores == survey.timing.saves - 1
    cpu = run(Job(model, job.background, survey, 6, 1, memory), Silence())
    scale = np.abs(cpu.migrated.image).max()
    np.testing.assert_allclose(again.image, cpu.migrated.image, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize(
    "made",
    [
        partial(schedules.Revolve, 40, 4),
        partial(schedules.OnlineRevolve, 4),
        partial(schedules.Uniform, 40, 5),
        partial(schedules.ZCut, 40, length=7),
    ],
    ids=["revolve", "online", "uniform", "zcut"],
)
def test_a_schedule_on_the_driver_makes_the_image_of_plain_device_memory(
    driver, kernels, tmp_path, made
):
    model = generated_model(41, 31, 15.0)
    survey = plan(model, shots=1, steps=240, every=6, frequency=9.0)
    memory = Memory("128KiB", "256KiB", tmp_path)
    device = DriverDevice(kernels, driver)
    job = Job(model, smooth(model, 60.0), survey, 6, 1, memory, device, schedule=made())
    outcome = run(job, Silence(), keep_records=True)
    again = migrate_again(job, outcome.records, Silence())
    assert np.abs(again.image).max() > 0
    assert outcome.migrated.digests == again.digests
    assert outcome.followed.recomputed > 0
    assert outcome.stats.tiers[0].restores > 0


class Interrupting(Silence):
    """Ends a job once, after so many groups of steps."""

    def __init__(self, groups):
        self.left = groups

    def stepped(self, shot, phase, steps):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("groups", [60, 130])
def test_a_migration_on_the_driver_goes_on_where_it_was_interrupted(
    driver, kernels, tmp_path, groups
):
    model = generated_model(41, 31, 15.0)
    survey = plan(model, shots=1, steps=240, every=6, frequency=9.0)
    memory, follows = Memory("128KiB", "256KiB", tmp_path), schedules.Revolve(40, 4)
    device = DriverDevice(kernels, driver)
    job = Job(model, smooth(model, 60.0), survey, 6, 1, memory, device, schedule=follows)
    expected = run(job, Silence()).migrated
    job = replace(job, resume=Resume(tmp_path / "resume", 6))
    with pytest.raises(KeyboardInterrupt):
        run(job, Interrupting(groups))
    found = run(job, Silence())
    assert found.migrated.digests == expected.digests
    assert found.followed.seconds > 0 and found.followed.advances > 0


def test_a_state_that_a_kernel_writes_on_is_not_the_one_that_was_saved(driver, kernels):
    """Saves and the kernels after them are on one stream: neither waits for the host."""
    problem = Problem(DriverDevice(kernels, driver), (32, 32, 32), 14)
    schedule, store = schedules.Revolve(14, 3), DeviceStore(problem.device, problem.shape, 2, 3)
    wanted = plainly(problem, schedule, store).digest
    for newest in (False, True):
        readings = through_spool(problem, schedule, 2, newest)
        found = [next(readings) for _ in range(2)]
        readings.close()
        assert {one.digest for one in found} == {wanted}
        assert all(one.down > 0 for one in found)


def test_every_cache_makes_the_same_image_on_the_driver_with_and_without_a_spool(driver, kernels):
    problem = Problem(DriverDevice(kernels, driver), (32, 32, 32), 14)
    schedule = schedules.Uniform(14, 4)
    stores = [PinnedStore(problem.device, problem.shape, 2, 4, cached) for cached in (0, 2)]
    copied = [plainly(problem, schedule, store) for store in stores]
    assert copied[0].up > copied[1].up and copied[0].down == copied[1].down
    for states, codec in ((0, None), (2, None), (0, "lossless"), (2, "lossless")):
        readings = through_spool(problem, schedule, states, newest=False, codec=codec)
        found = next(readings)
        readings.close()
        assert {found.digest} == {one.digest for one in copied}
        assert (found.costs.device > 0) == (states > 0)
        if codec is None:
            assert found.down > 0 and found.costs.host > 0
        else:
            assert found.costs.ratio > 1 and found.costs.coding > 0


def test_a_table_of_gpuzip_on_the_driver_has_every_row_and_one_image(driver, kernels):
    made, codecs = partial(schedules.Revolve, 14, 3), (None, "lossless")
    experiment = gpuzip.Experiment("tiny", (32, 32, 32), 14, made, (0, 2), codecs)
    device = DriverDevice(kernels, driver)
    table = gpuzip.table_of(device, experiment, Plan(rounds=1), Report({}))
    assert len(table.rows) == 1 + 2 + 2 + 4 + 2, table.notes
    assert {row[-1] for row in table.rows[1:]} == {"same"}


def test_a_codec_is_tried_on_waves_that_are_on_the_driver(driver, kernels, tmp_path):
    model = generated_model(41, 31, 15.0)
    survey = plan(model, shots=1, steps=220, every=2, frequency=9.0)
    memory = Memory("256KiB", "512KiB", tmp_path, codec="lossless")
    job = Job(model, smooth(model, 60.0), survey, 6, 1, memory, DriverDevice(kernels, driver))
    pace = Pace(job)
    pace.__dict__["seconds"] = 1e-3, 1e-3
    assert 1 < pace.compression.ratio < 10
    assert pace.compression.encode is None, "speeds on a GPU are Twine's"
    on_cpu = Pace(replace(job, device=None))
    on_cpu.__dict__["seconds"] = 1e-3, 1e-3
    assert pace.compression.ratio == pytest.approx(on_cpu.compression.ratio, rel=0.05)
