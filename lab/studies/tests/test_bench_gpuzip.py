"""Parts `gpuzip` and `schedules` of `unspool-bench`: every way makes the same image, and the
figures are those of the schedules. Nothing is asserted about time."""

import json

import numpy as np
import pytest

pytest.importorskip("scipy")

from unspool import schedules
from unspool.codecs import NvComp
from unspool_studies.bench import command, gpuzip, report
from unspool_studies.bench import schedules as by_schedule
from unspool_studies.bench.plain_adjoint import DeviceStore, Nowhere, PinnedStore, follow
from unspool_studies.bench.wave_problem import Problem, plainly, through_spool
from unspool_studies.rtm.device import CupyDevice
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.generated import generated_model

import fake_cupy
import kernel_shim
from bench_plans import column, plan
from fake_cuda import FakeCuda
from kernel_shim import ShimDevice

compiled = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

#: Sizes that take little time.
TINY = ["--gpuzip-shape=40x36x32", "--gpuzip-steps=24", "--gpuzip-snapshots=4"]
TINY += ["--gpuzip-tiers=0,2,3", "--zcut-shape=32x32x32", "--zcut-steps=21", "--zcut-length=6"]
TINY += ["--zcut-tiers=3", "--rounds=2", "--warm=0", "--gpuzip-schedules=revolve,zcut"]
TINY += ["--gpuzip-codecs=none"]
SMALL = ["--rtm-shape=81x51", "--rtm-spacing=15", "--rtm-steps=120", "--rtm-every=3"]
SMALL += ["--rtm-snapshots=5", "--rtm-device=512KiB", "--rtm-host=1MiB", "--rounds=1"]


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
        *["synchronous copies"] * 3,
        "all states in device memory",
        "every step in device memory",
        *["unspool"] * 3,
        *["unspool, newest level"] * 3,
    ]
    assert column(revolve, "states on device") == [0, 0, 2, 3, 4, 24, 0, 2, 3, 0, 2, 3]
    for table in (revolve, zcut):
        assert column(table, "image") == [None, *["same"] * (len(table.rows) - 1)]
        assert all(seconds.median > 0 for seconds in column(table, "s"))
        ways = zip(column(table, "way"), column(table, "bound s"), strict=True)
        assert all((bound is not None) == way.startswith("unspool") for way, bound in ways)
    counts = schedules.Revolve(24, 4).counts()
    again = column(revolve, "recomputed")
    assert again == [counts.recomputed_steps] * 5 + [0] + [counts.recomputed_steps] * 6
    state = 2 * 4 * 40 * 36 * 32
    down, up = column(revolve, "to host GB"), column(revolve, "to device GB")
    assert down[1:4] == [pytest.approx(counts.saves * state / 1e9)] * 3
    assert up[1] == pytest.approx(counts.restores * state / 1e9)
    assert up[1] > up[2] > up[3] > 0
    assert down[4] == up[4] == 0
    # Without a device tier, what is saved and restored crosses the link, as it is.
    assert (down[6], up[6]) == pytest.approx((down[1], up[1]))
    on_device, on_host = column(revolve, "device MB"), column(revolve, "host MB")
    assert on_device[:5] == [None, 0, *(pytest.approx(n * state / 1e6) for n in (2, 3, 4))]
    assert on_device[6] == 0 and 0 < on_device[7] <= 2.1 * state / 1e6
    assert on_host[1] == pytest.approx(4 * state / 1e6)
    assert all(one is not None for one in column(revolve, "times same cache"))


#: A model that reflects, and as few steps as let something arrive after the direct wave.
REFLECTING = ["--gpuzip-shape=40x36x32", "--gpuzip-steps=320", "--gpuzip-snapshots=60"]
REFLECTING += ["--gpuzip-tiers=2", "--rounds=1", "--warm=0", "--gpuzip-schedules=revolve"]


@compiled
def test_codecs_are_judged_by_the_image_and_one_that_fails_is_a_note(shim, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(gpuzip, "CupyDevice", lambda ordinal: shim)
    codecs = "lossless range=1e-6 range=1e-1 nvcomp:bitcomp,range=1e-4"
    asked = plan(*REFLECTING, "--gpuzip-models=salt", f"--gpuzip-codecs={codecs}",
                 f"--gpuzip-maps={tmp_path}")  # fmt: skip
    collected = report.Report({})
    assert command.run_parts(["gpuzip"], asked, FakeCuda(), collected)
    (table,) = collected.tables
    assert table.name == "gpuzip-revolve-salt"
    spools = [row for row in table.rows if row[0] == "unspool"]
    assert [row[1] for row in spools] == ["lossless", "range=1e-6", "range=0.1"]
    place = list(table.columns).index
    assert spools[0][place("image")] == "same" and spools[0][place("PSNR dB")] is None
    fine, coarse = (row[place("PSNR dB")] for row in spools[1:])
    assert fine > coarse
    assert spools[2][place("image")] == "RUINED"
    ratios = [row[place("ratio")] for row in spools]
    assert 1 < ratios[0] < ratios[1] < ratios[2]
    assert all(row[place("coding s")].median > 0 for row in spools)
    assert any("unspool, 2, nvcomp:bitcomp,range=1e-4" in note for note in table.notes)
    drawn = sorted(file.name for file in (tmp_path / "gpuzip-revolve-salt").iterdir())
    stems = ("all", "range-0.1", "range-1e-6")
    assert drawn == [f"{stem}{ending}" for stem in stems for ending in (".png", ".svg")]


@compiled
def test_a_bound_of_nvcomp_is_a_part_of_the_range_of_the_waves(shim):
    (codec,) = plan("--gpuzip-codecs=nvcomp:bitcomp,range=1e-4").gpuzip.codecs
    assert str(codec) == "nvcomp:bitcomp,range=1e-4"
    assert codec.of(2.0) == NvComp("bitcomp", abs=2e-4)
    assert Problem(shim, (32, 32, 32), 9).span() > 0


@compiled
def test_a_row_that_takes_too_long_is_a_note_and_the_others_are_in_the_file(
    shim, monkeypatch, tmp_path
):
    monkeypatch.setattr(gpuzip, "CupyDevice", lambda ordinal: shim)
    save = PinnedStore.save

    def long_one(self, step, state):
        # As if the limit had passed meanwhile.
        problem._ends = 0.0
        save(self, step, state)

    made = Problem.__init__

    def remembered(self, *arguments, **options):
        nonlocal problem
        problem = self
        made(self, *arguments, **options)

    problem = None
    monkeypatch.setattr(Problem, "__init__", remembered)
    monkeypatch.setattr(PinnedStore, "save", long_one)
    file = tmp_path / "figures.json"
    asked = plan(*TINY, "--gpuzip-schedules=revolve", "--gpuzip-tiers=2", "--rounds=1")
    collected = report.Report({}, file)
    assert command.run_parts(["gpuzip"], asked, FakeCuda(), collected)
    (table,) = collected.tables
    assert "synchronous copies" not in column(table, "way")
    assert sum("OverTimeError: it takes longer" in note for note in table.notes) == 2
    assert column(table, "image")[1:] == ["same"] * (len(table.rows) - 1)
    assert [row["way"] for row in json.loads(file.read_text())["tables"][0]["rows"]] == column(
        table, "way"
    )


@compiled
def test_uniform_keeps_as_many_states_as_zcut_unless_it_is_told(shim):
    zcut, uniform = gpuzip.experiments_of(plan(*TINY, "--gpuzip-schedules=zcut,uniform"))
    assert uniform.schedule() == schedules.Uniform(21, zcut.schedule().counts().peak)
    assert (uniform.shape, uniform.steps, uniform.tiers) == ((32, 32, 32), 21, (3,))
    (uniform,) = gpuzip.experiments_of(
        plan(*TINY, "--gpuzip-schedules=uniform", "--uniform-snapshots=5")
    )
    assert uniform.schedule() == schedules.Uniform(21, 5)
    table = gpuzip.table_of(shim, uniform, plan(*TINY), report.Report({}))
    assert column(table, "image")[1:] == ["same"] * (len(table.rows) - 1)


@compiled
def test_a_section_of_a_file_is_extended_and_fits_into_the_fields(shim, tmp_path):
    path = tmp_path / "section.f32"
    generated_model(121, 61, 10.0).velocity.tofile(path)
    asked = plan(*REFLECTING, "--gpuzip-models=file", f"--gpuzip-file={path}",
                 "--gpuzip-file-shape=121x61", "--gpuzip-file-spacing=10")  # fmt: skip
    (experiment,) = gpuzip.experiments_of(asked)
    model = experiment.model((40, 30, 32))
    assert model.shape == (41, 30, 21) and model.spacing == (30.0, 30.0, 30.0)
    assert (model.velocity == model.velocity[:, :1]).all()


def test_a_model_that_cannot_be_had_fails_before_anything_is_measured(tmp_path):
    with pytest.raises(MigrationError, match="--gpuzip-file"):
        gpuzip.experiments_of(plan("--gpuzip-models=file"))
    with pytest.raises(MigrationError, match="no model file"):
        gpuzip.experiments_of(plan("--gpuzip-models=file", f"--gpuzip-file={tmp_path / 'none'}"))


@compiled
def test_too_few_steps_for_an_image_are_told_and_nothing_measured_fails_the_part(
    shim, monkeypatch, capsys
):
    monkeypatch.setattr(gpuzip, "CupyDevice", lambda ordinal: shim)
    asked = plan(*TINY, "--gpuzip-models=salt")
    assert not command.run_parts(["gpuzip"], asked, FakeCuda(), report.Report({}))
    shown = capsys.readouterr().out
    assert "nothing arrives after the direct wave within 24 steps" in shown
    assert "nothing was measured of gpuzip-revolve-salt, gpuzip-zcut-salt" in shown


@pytest.mark.parametrize(("option", "value", "why"), [
    ("--gpuzip-codecs", "zip", "is not a codec"),
    ("--gpuzip-codecs", "nvcomp:lz4,range=1e-4", "bitcomp"),
    ("--gpuzip-codecs", "nvcomp:bitcomp,range=x", "has no number after range="),
    ("--gpuzip-codecs", "nvcomp:bitcomp,range=0", "above 0"),
    ("--gpuzip-codecs", "nvcomp:bitcomp,range=nan", "above 0"),
    ("--gpuzip-models", "marble", "there is no 'marble'"),
    ("--gpuzip-schedules", "best", "there is no 'best'"),
    ("--gpuzip-tiers", "2,-1", "not a list of numbers"),
    ("--gpuzip-limit", "0", "from 1"),
])  # fmt: skip
def test_what_the_part_does_not_know_is_refused(option, value, why, capsys):
    with pytest.raises(SystemExit):
        plan(f"{option}={value}")
    assert why in capsys.readouterr().err


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
    assert through.costs is not None and kept.costs is None


@compiled
def test_a_cache_keeps_the_states_that_were_used_last(shim):
    shape, states = (4, 4, 4), [(shim.load(np.full((4, 4, 4), n, np.float32)),) for n in range(3)]
    store, found = PinnedStore(shim, shape, 1, 3, cached=2), (shim.zeros(shape),)
    for step, state in enumerate(states):
        store.save(step, state)
    assert store.down == 3 * 256
    for step, up in ((2, 0), (1, 0), (0, 256), (1, 256), (2, 512)):
        store.restore(step, found)
        assert found[0][0, 0, 0] == step
        assert store.up == up
    store.discard(1)
    store.save(1, states[0])
    store.restore(1, found)
    assert found[0][0, 0, 0] == 0 and store.up == 512


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
