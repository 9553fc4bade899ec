"""Parts `gpuzip` and `schedules` of `unspool-bench`: every way makes the same image, and the
figures are those of the schedules. Nothing is asserted about time."""

import argparse

import pytest

pytest.importorskip("scipy")

from unspool import schedules
from unspool_studies.bench import command, gpuzip, options, report
from unspool_studies.bench import schedules as by_schedule
from unspool_studies.bench.plain_adjoint import DeviceStore, Nowhere, PinnedStore, follow
from unspool_studies.bench.wave_problem import Problem, plainly, through_spool
from unspool_studies.rtm.device import CupyDevice

import fake_cupy
import kernel_shim
from fake_cuda import FakeCuda
from kernel_shim import ShimDevice

compiled = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

#: Sizes that take little time.
TINY = ["--gpuzip-shape=40x36x32", "--gpuzip-steps=24", "--gpuzip-snapshots=4"]
TINY += ["--gpuzip-tiers=2,3", "--zcut-shape=32x32x32", "--zcut-steps=21", "--zcut-length=6"]
TINY += ["--zcut-tiers=3", "--rounds=2", "--warm=0"]
SMALL = ["--rtm-shape=81x51", "--rtm-spacing=15", "--rtm-steps=120", "--rtm-every=3"]
SMALL += ["--rtm-snapshots=5", "--rtm-device=512KiB", "--rtm-host=1MiB", "--rounds=1"]


def plan(*arguments):
    parser = argparse.ArgumentParser()
    options.add_options(parser)
    return options.plan_of(parser.parse_args(arguments))


def column(table, name):
    place = list(table.columns).index(name)
    return [row[place] for row in table.rows]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def shim(kernels):
    return ShimDevice(kernels)


@compiled
def test_every_way_of_a_schedule_makes_the_same_image(shim, monkeypatch):
    monkeypatch.setattr(gpuzip, "CupyDevice", lambda ordinal: shim)
    collected = report.Report({})
    assert command.run_parts(["gpuzip"], plan(*TINY), FakeCuda(), collected)
    revolve, zcut = collected.tables
    assert column(revolve, "way") == [
        "computing alone",
        "synchronous copies",
        "all states in device memory",
        "every step in device memory",
        "unspool",
        "unspool",
        "unspool, newest level",
        "unspool, newest level",
    ]
    assert column(revolve, "states on device") == [0, 0, 4, 24, 2, 3, 2, 3]
    for table in (revolve, zcut):
        assert column(table, "image") == [None, *["same"] * (len(table.rows) - 1)]
        assert all(seconds.median > 0 for seconds in column(table, "s"))
        ways = zip(column(table, "way"), column(table, "bound s"), strict=True)
        assert all((bound is not None) == way.startswith("unspool") for way, bound in ways)
    counts = schedules.Revolve(24, 4).counts()
    again = column(revolve, "recomputed")
    assert again == [counts.recomputed_steps] * 3 + [0] + [counts.recomputed_steps] * 4
    state = 2 * 4 * 40 * 36 * 32
    assert column(revolve, "to host GB")[1] == pytest.approx(counts.saves * state / 1e9)
    assert column(revolve, "to device GB")[1] == pytest.approx(counts.restores * state / 1e9)
    assert column(revolve, "to host GB")[2] == 0


@compiled
def test_cupys_arrays_go_the_same_ways(kernels, monkeypatch):
    fake_cupy.install(monkeypatch, kernels)

    def in_plain_memory(ordinal):
        opened = CupyDevice(ordinal)
        # The arrays are in plain memory, and so is the spool.
        opened.on = "cpu"
        return opened

    monkeypatch.setattr(gpuzip, "CupyDevice", in_plain_memory)
    collected = report.Report({})
    assert command.run_parts(["gpuzip"], plan(*TINY, "--rounds=1"), FakeCuda(), collected)
    for table in collected.tables:
        assert column(table, "image") == [None, *["same"] * (len(table.rows) - 1)]


@compiled
def test_what_does_not_fit_is_left_out_and_the_rest_is_measured(shim, monkeypatch):
    shim.free = 3 * 2 * 4 * 40 * 36 * 32
    experiment = gpuzip.experiments_of(plan(*TINY))[0]
    table = gpuzip.table_of(shim, experiment, plan(*TINY), report.Report({}))
    assert "all states in device memory" not in column(table, "way")
    assert any("left out" in note and "the device has" in note for note in table.notes)
    assert column(table, "image")[1:] == ["same"] * (len(table.rows) - 1)


@compiled
def test_another_image_fails_the_part(shim, monkeypatch, capsys):
    monkeypatch.setattr(gpuzip, "CupyDevice", lambda ordinal: shim)
    restore = DeviceStore.restore

    def careless(self, step, state):
        restore(self, step, state)
        state[-1][20, 20, 20] += 1e-3

    monkeypatch.setattr(DeviceStore, "restore", careless)
    assert not command.run_parts(["gpuzip"], plan(*TINY), FakeCuda(), report.Report({}))
    assert "another image than that of the first way" in capsys.readouterr().out


@compiled
def test_stores_count_what_crosses_the_link(shim):
    problem = Problem(shim, (32, 32, 32), 9)
    schedule = schedules.StoreAll(9)
    field = 4 * 32**3
    kept = plainly(problem, schedule, PinnedStore(shim, problem.shape, 1, 8), whole=False)
    assert (kept.down, kept.up) == (8 * field, 8 * field)
    on_device = plainly(problem, schedule, DeviceStore(shim, problem.shape, 1, 8), whole=False)
    assert (on_device.down, on_device.up) == (0, 0)
    assert kept.digest == on_device.digest
    assert plainly(problem, schedule, Nowhere()).digest != kept.digest
    through = next(through_spool(problem, schedule, 2, newest=True))
    assert through.digest == kept.digest
    assert through.stall is not None


@compiled
def test_a_store_gives_places_back(shim):
    problem = Problem(shim, (32, 32, 32), 20)
    store, schedule = DeviceStore(shim, problem.shape, 2, 3), schedules.Revolve(20, 3)
    for _ in range(2):
        passes = problem.passes()
        follow(schedule, store, passes)
        assert passes.result()[0].any()


def test_a_migration_by_all_schedules_is_the_same_image(tmp_path, capsys):
    collected = report.Report({})
    asked = plan(*SMALL, f"--dir={tmp_path}")
    assert command.run_parts(["schedules"], asked, None, collected)
    (table,) = collected.tables
    names = [name.split(":")[0] for name in column(table, "schedule")]
    assert names == ["no spool, plain NumPy arrays", *asked.migration.schedules]
    assert set(column(table, "image")) == {"same"}
    again = dict(zip(names, column(table, "steps again"), strict=True))
    assert again["all"] == 0
    assert again["revolve"] == 3 * schedules.Revolve(40, 5).counts().recomputed_steps
    predicted = dict(zip(names, column(table, "predicted s"), strict=True))
    assert all(predicted[name] > 0 for name in asked.migration.schedules), table.notes
    bounds = dict(zip(names, column(table, "bound s"), strict=True))
    # What is best was predicted at another pace.
    named = [name for name in asked.migration.schedules if name != "auto"]
    assert all(0 < bounds[name] <= predicted[name] * (1 + 1e-6) for name in named)
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_that_makes_another_image_fails_the_part(tmp_path, monkeypatch, capsys):
    digests = iter(range(100))
    monkeypatch.setattr(by_schedule, "_digest", lambda migrated: str(next(digests)))
    asked = plan(*SMALL, "--schedules=all,revolve", f"--dir={tmp_path}")
    assert not command.run_parts(["schedules"], asked, None, report.Report({}))
    assert "another image than that of the first row" in capsys.readouterr().out


def test_a_schedule_that_cannot_be_made_is_noted(tmp_path):
    asked = plan(*SMALL, "--schedules=all,trace:none", f"--dir={tmp_path}")
    table = by_schedule.table_of(by_schedule.job_of(asked), asked, report.Report({}))
    assert len(table.rows) == 2
    assert any("trace:none: left out: --schedule trace:none" in note for note in table.notes)


@pytest.mark.parametrize(
    ("names", "why"), [("all,best", "there is no schedule 'best'"), (",", "no schedule is named")]
)
def test_a_schedule_that_there_is_not_is_refused_before_anything_runs(names, why, capsys):
    with pytest.raises(SystemExit):
        plan("--schedules", names)
    assert why in capsys.readouterr().err


def test_options_of_both_parts_are_their_own():
    found = plan("--zcut-steps", "50", "--rtm-shots", "3", "--rtm-gpu")
    assert (found.gpuzip.zcut_steps, found.gpuzip.steps) == (50, 300)
    assert (found.migration.shots, found.migration.gpu) == (3, True)
    assert plan().migration.gpu is False
