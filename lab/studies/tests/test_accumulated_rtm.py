"""The rows of the part `accumulated-gpu` whose checkpoints are wavefields, on a device in plain
memory. Nothing is asserted about time."""

from __future__ import annotations

import json
import math

import pytest

pytest.importorskip("scipy")

from test_bench import column
from test_bench_gpuzip import compiled, plan
from unspool import Spool
from unspool.errors import CapacityError
from unspool_studies.accumulated import gpu as accumulated_gpu
from unspool_studies.accumulated import rtm as accumulated_rtm
from unspool_studies.accumulated import waves as accumulated_waves
from unspool_studies.accumulated.gpu import SPOOLS
from unspool_studies.accumulated.options import TABLES, Accumulated
from unspool_studies.accumulated.rtm import BOUNDED, Forward, NoRoomError, check_room
from unspool_studies.accumulated.virtual import APPROACHES
from unspool_studies.bench import command, report
from unspool_studies.rtm.device import CupyDevice

import fake_cupy
import kernel_shim
from fake_cuda import FakeCuda
from kernel_shim import ShimDevice

#: Cells of a field at 4 and at 16 Hz, along each axis.
SIDES = (28, 32)
#: Checkpoints of a run, and runs that count.
COUNT, ROUNDS = 5, 2
#: Every approach that plain memory has.
HAD = ("no compression", "Twine single", "Twine batched", *BOUNDED)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def small(kernels, monkeypatch):
    """Small wavefields, and what computes them."""
    shot = tuple(accumulated_waves.COUNT * 4.0 * side**3 for side in SIDES)
    monkeypatch.setattr(accumulated_waves, "SHOT", shot)
    monkeypatch.setattr(accumulated_rtm, "COUNT", COUNT)
    monkeypatch.setattr(accumulated_rtm, "ROUNDS", ROUNDS)
    monkeypatch.setattr(Forward.__init__, "__defaults__", (COUNT,))
    shim = ShimDevice(kernels)
    monkeypatch.setattr(accumulated_rtm, "CupyDevice", lambda ordinal: shim)
    return shim


def measured(*arguments):
    """Whether the part went well, and its tables."""
    shown = report.Report({})
    asked = plan("--accumulated-tables=frequency", "--warm=0", *arguments)
    return command.run_parts(["accumulated-gpu"], asked, FakeCuda(), shown), shown.tables


@compiled
def test_every_frequency_has_a_figure_of_each_approach_or_says_why_not(small):
    well, (table,) = measured("--accumulated-frequencies=4,16")
    assert well and table.name == "accumulated-gpu-frequency"
    assert column(table, "frequency") == ["4 Hz", "16 Hz"]
    assert column(table, "MB each") == [4 * side**3 / 1e6 for side in SIDES]
    for approach in HAD:
        for cell in column(table, approach):
            assert len(cell.values) == ROUNDS and cell.low > 0
    assert all(len(cell.values) == ROUNDS for cell in column(table, "made GB/s"))
    for exact, bounded in zip(
        column(table, "smaller: lossless"), column(table, "smaller: 1e-5"), strict=True
    ):
        assert 1 < exact < bounded
    assert all(words.startswith("-/") for words in column(table, "together"))
    for approach in ("nvCOMP single", "nvCOMP accumulated"):
        assert column(table, approach) == [None, None]
        assert sum(note.startswith(f"{approach} cannot be had: ") for note in table.notes) == 1


@compiled
def test_the_file_and_the_plot_have_the_frequencies(small, tmp_path, monkeypatch, capsys):
    plot, file = tmp_path / "runs.svg", tmp_path / "runs.json"
    asked = plan(
        "--accumulated-tables=frequency", "--accumulated-frequencies=4,16",
        f"--accumulated-plot={plot}", "--warm=0",
    )  # fmt: skip
    drawn = {}
    from unspool_studies.accumulated import plot as accumulated_plot

    draw = accumulated_plot.draw
    monkeypatch.setattr(
        accumulated_plot, "draw", lambda found, to: (drawn.update(found), draw(found, to))
    )
    command.run_parts(["accumulated-gpu"], asked, FakeCuda(), report.Report({}, file))
    (table,) = json.loads(file.read_text())["tables"]
    rows = {row["frequency"]: row for row in table["rows"]}
    assert [name for name, _ in drawn["migration"]] == ["4 Hz", "16 Hz"] == list(rows)
    for name, rates in drawn["migration"]:
        assert tuple(rates) == HAD
        assert rates == {approach: rows[name][approach]["median"] for approach in HAD}
        assert rows[name]["nvCOMP single"] is None
    written = tmp_path / "runs-gpu.svg"
    assert written.read_text().lstrip().startswith("<?xml")
    assert f"written: {written}" in capsys.readouterr().out


@compiled
def test_wavefields_are_those_of_one_shot_in_every_run(small):
    forward = Forward(small, 4.0)
    with (
        Spool(host_memory="16MiB", device="cpu") as one,
        Spool(host_memory="16MiB", device="cpu") as again,
    ):
        assert forward.once(one) > 0 and forward.once(again) > 0
        fields = [one.load(version) for version in range(COUNT)]
        assert one.versions() == again.versions() == list(range(COUNT))
        assert all((again.load(version) == fields[version]).all() for version in range(COUNT))
    assert all(field.any() for field in fields)
    assert len({field.tobytes() for field in fields}) == COUNT
    timing = forward.survey.timing
    assert timing.steps == timing.saves * timing.every and timing.saves >= COUNT
    assert (forward.survey.wavelet**2).sum() > 0


@compiled
def test_cupys_arrays_go_the_same_way(small, kernels, monkeypatch):
    fake_cupy.install(monkeypatch, kernels)
    monkeypatch.setattr(accumulated_rtm, "CupyDevice", CupyDevice)
    well, (table,) = measured("--accumulated-frequencies=4")
    assert well and column(table, "Twine batched")[0].low > 0


@compiled
def test_a_run_that_fails_leaves_the_others(small, monkeypatch):
    once, calls = Forward.once, []

    def failing(self, spool=None):
        calls.append(spool)
        # Without a spool, and with one, it is called so often; nvCOMP's two fail the first time.
        if len(calls) in (2 * (ROUNDS + 1), 2 * (ROUNDS + 1) + 3):
            raise CapacityError("there is no room at all")
        return once(self, spool)

    monkeypatch.setattr(Forward, "once", failing)
    well, (table,) = measured("--accumulated-frequencies=4")
    assert well
    assert len(column(table, "no compression")[0].values) == ROUNDS - 1
    assert f"no compression at 4 Hz stopped after run {ROUNDS} of {ROUNDS + 1}" in str(table)
    assert column(table, "Twine single") == [None]
    assert "Twine single cannot be had: CapacityError: there is no room" in str(table)
    assert column(table, "Twine batched")[0].low > 0


@compiled
def test_a_frequency_that_fails_is_noted_and_the_part_fails_with_the_last(small, monkeypatch):
    once = Forward.once

    def failing(self, spool=None):
        if self.survey.timing.frequency == 4.0:
            raise RuntimeError("the device is gone")
        return once(self, spool)

    monkeypatch.setattr(Forward, "once", failing)
    well, (table,) = measured("--accumulated-frequencies=4,16")
    assert well and column(table, "frequency") == ["16 Hz"]
    assert "4 Hz left out: RuntimeError: the device is gone" in table.notes
    well, (table,) = measured("--accumulated-frequencies=4")
    assert not well and table.rows == []


@compiled
def test_no_frequency_is_begun_when_the_time_is_over(small, monkeypatch):
    monkeypatch.setattr(accumulated_rtm, "LIMIT", 0.0)
    well, (table,) = measured("--accumulated-frequencies=4,16")
    assert not well and table.rows == []
    assert any(note.startswith("16 Hz left out") for note in table.notes)


@pytest.mark.parametrize("place", ["the GPU", "the host"])
def test_what_does_not_fit_is_refused_before_anything_is_measured(place, monkeypatch, capsys):
    cuda = FakeCuda()
    if place == "the GPU":
        cuda.free_memory = lambda: 100 << 20
    else:
        monkeypatch.setattr(accumulated_rtm, "available_memory", lambda: 1 << 30)
        monkeypatch.delenv("UNSPOOL_CHECK_FREE", raising=False)
    with pytest.raises(NoRoomError, match=f"16 Hz takes .* of {place}.*--accumulated-freq"):
        check_room(cuda, Accumulated(frequencies=(16.0,)))
    shown = report.Report({})
    assert not command.run_parts(["accumulated-gpu"], plan("--warm=0"), cuda, shown)
    assert shown.tables == [] and "NoRoomError" in capsys.readouterr().out
    assert cuda.leaked == 0


def test_it_can_be_left_out(monkeypatch):
    monkeypatch.setattr(accumulated_rtm, "run", None)
    monkeypatch.setattr(accumulated_rtm, "check_room", None)
    shown, asked = report.Report({}), "--accumulated-tables=rate --accumulated-size=64KiB --warm=0"
    sizes = ("--accumulated-checkpoints=4", *asked.split())
    assert command.run_parts(["accumulated-gpu"], plan(*sizes), FakeCuda(), shown)
    assert [table.name for table in shown.tables] == ["accumulated-gpu-rate"]


@pytest.mark.parametrize("text", ["0", "8,", "nan", "65", "8;12", "-4"])
def test_frequencies_that_make_no_sense_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        plan(f"--accumulated-frequencies={text}")
    assert "frequencies from 1 to 64 Hz" in capsys.readouterr().err


def test_options_choose_tables_and_frequencies():
    found = plan("--accumulated-frequencies=8,12.5", "--accumulated-tables=frequency,ratio")
    assert found.accumulated.frequencies == (8.0, 12.5)
    assert found.accumulated.tables == ("frequency", "ratio")
    assert plan().accumulated.tables == TABLES


def test_fields_have_the_sizes_that_virtual_times_are_made_for():
    for frequency in (4.0, 8.0, 12.0, 16.0):
        shape = accumulated_rtm.padded_shape(*accumulated_rtm._cells(frequency))
        wanted = accumulated_waves.checkpoint_bytes(frequency)
        assert 4 * math.prod(shape) == pytest.approx(wanted, rel=0.04)


def test_approaches_are_those_of_equal_checkpoints_and_two_with_a_bound():
    names = tuple(name for name, _, _ in accumulated_rtm.ALL)
    assert names == (*APPROACHES, *BOUNDED)
    assert tuple(how for _, *how in accumulated_rtm.ALL[:5]) == tuple(map(list, SPOOLS))
    assert accumulated_gpu.ROUNDS == accumulated_rtm.ROUNDS
