"""The tables of the part `accumulated-gpu` whose shots follow a plan, on a device in plain memory,
where plans have only `raw` and `alone`, and on the driver of the tests, where they have all four.
Nothing is asserted about time."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("scipy")

from unspool import Spool
from unspool.accumulate import TWINE, Profile, watch
from unspool.advice import Rate
from unspool_studies.accumulated import rtm as accumulated_rtm
from unspool_studies.accumulated import shots as accumulated_shots
from unspool_studies.accumulated import waves as accumulated_waves
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.accumulated.rtm import Forward
from unspool_studies.accumulated.shots import FOLLOWING, WAYS, Ensemble, Found, Shot, paid_back
from unspool_studies.bench import command, report
from unspool_studies.bench.measure import Sample
from unspool_studies.codecs.cost import Point
from unspool_studies.rtm.clock import Span
from unspool_studies.rtm.device import CupyDevice

import fake_cupy
import kernel_shim
from bench_plans import column, plan
from driver_cuda import DriverCuda
from driver_device import DriverDevice
from fake_cuda import FakeCuda
from kernel_shim import ShimDevice

compiled = pytest.mark.skipif(kernel_shim.COMPILER is None, reason="there is no C++ compiler")

#: Cells of a field along each axis, checkpoints of a shot, and shots.
SIDE, COUNT, SHOTS = 28, 5, 4
#: Codecs that plain memory has.
HAD = ["Twine", "Twine 1e-5"]
#: Times of a call for which a plan compresses everything, and nothing.
FREE, DEAR = 1e-12, 1.0


class Here:
    """A place where a call of every codec takes so long, whatever it is given."""

    name = "a place of tests"

    def __init__(self, seconds):
        self._seconds = seconds

    def free(self):
        return None

    def run(self, values, codec):
        return Point(values.nbytes, values.nbytes // 2, Sample.of([self._seconds]))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return kernel_shim.build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def small(kernels, monkeypatch):
    """Small wavefields, what computes them, and codecs that take no time."""
    shot = accumulated_waves.COUNT * 4.0 * SIDE**3
    monkeypatch.setattr(accumulated_waves, "SHOT", (shot, shot))
    monkeypatch.setattr(accumulated_rtm, "COUNT", COUNT)
    monkeypatch.setattr(Forward.__init__, "__defaults__", (COUNT,))
    monkeypatch.setattr(accumulated_shots, "OnGpu", lambda cuda: Here(FREE))
    shim = ShimDevice(kernels)
    monkeypatch.setattr(accumulated_shots, "CupyDevice", lambda ordinal: shim)
    return shim


def measured(*arguments, file=None):
    """Whether the part went well, and its tables."""
    shown = report.Report({"device": "a device of tests"}, file)
    words = ["--accumulated-tables=shots", "--accumulated-frequencies=4", "--warm=0"]
    asked = plan(*words, f"--accumulated-shots={SHOTS}", *arguments)
    return command.run_parts(["accumulated-gpu"], asked, FakeCuda(), shown), shown.tables


def following(table, name):
    """The cells of a column in the rows of shots that follow."""
    pairs = zip(column(table, "way"), column(table, name), strict=True)
    return [cell for way, cell in pairs if way == FOLLOWING]


@compiled
@pytest.mark.parametrize(("seconds", "raw"), [(FREE, 0), (DEAR, COUNT)])
def test_shots_carry_out_what_is_planned_with_the_measured_curve(small, monkeypatch, seconds, raw):
    monkeypatch.setattr(accumulated_shots, "OnGpu", lambda cuda: Here(seconds))
    well, (shots, costs, curves) = measured()
    assert well
    assert column(shots, "way") == [*WAYS] * len(HAD)
    assert list(dict.fromkeys(column(shots, "codec"))) == HAD == column(costs, "codec")
    assert following(shots, "raw") == [raw] * len(HAD)
    assert following(shots, "alone") == [COUNT - raw] * len(HAD)
    assert following(shots, "hold") == following(shots, "together") == [0] * len(HAD)
    # Nothing of the way "made" is kept; of raw everything is, and of single and batched nothing.
    kept = [None, str(COUNT), "0", "0", str(raw)]
    assert column(shots, "kept raw") == kept * len(HAD)
    assert following(shots, "dropped") == [0] * len(HAD)
    for name in ("ms a shot", "GB/s", "of forecast"):
        assert all(len(cell.values) == SHOTS - 1 for cell in column(shots, name))
    assert all(cell > 0 for cell in column(shots, "forecast ms"))
    notes = [f"4 Hz, {name}: {COUNT} {'raw' if raw else 'alone'}" for name in HAD]
    assert set(notes) <= set(shots.notes)
    assert sum(note.startswith("4 Hz, nvCOMP left out: ") for note in shots.notes) == 1
    assert all(len(cell.values) == COUNT for cell in column(costs, "smaller"))
    assert all(cell.low > 1 for cell in column(costs, "smaller"))
    assert {cell.median for cell in column(curves, "us")} == {1e6 * seconds}


@compiled
def test_the_file_has_every_reading_and_the_machine(small, tmp_path):
    file = tmp_path / "shots.json"
    measured(file=file)
    found = json.loads(file.read_text())
    assert found["device"] == "a device of tests"
    names = [table["name"] for table in found["tables"]]
    assert names == [f"accumulated-gpu-{name}" for name in ("shots", "profiles", "curves")]
    shots, profiles, _ = found["tables"]
    assert all(len(row["ms a shot"]["values"]) == SHOTS - 1 for row in shots["rows"])
    for row in profiles["rows"]:
        assert len(row["us between"]["values"]) == len(row["smaller"]["values"]) == COUNT
        assert row["once s"] >= 0 and row["planning ms"] > 0
        assert row["paid back: raw"] == "never" or row["paid back: raw"] >= 0


@compiled
def test_a_plan_that_is_dropped_is_counted_and_told_with_its_place(small, monkeypatch):
    monkeypatch.setattr(accumulated_shots, "OnGpu", lambda cuda: Here(DEAR))
    # Any pace differs from the recorded one, from the third checkpoint on.
    for name, value in (("PACE_FROM", 3), ("PACE_SECONDS", -1.0), ("PACE_FACTOR", 0.0)):
        monkeypatch.setattr(watch, name, value)
    well, (shots, _, _) = measured()
    assert well
    assert following(shots, "dropped") == [SHOTS - 1] * len(HAD)
    # The plan keeps all of them raw; the codec is used for those after it was dropped.
    assert following(shots, "raw") == [COUNT] * len(HAD)
    assert following(shots, "kept raw") == ["3"] * len(HAD)
    for name in HAD:
        said = f"4 Hz, {name}: plan dropped in shot 1: the first 3 checkpoints came within "
        (note,) = (note for note in shots.notes if note.startswith(said))
        assert note.endswith(f"(and {SHOTS - 2} more)") and "Delete" not in note


@compiled
@pytest.mark.parametrize("asked", ["device", "host"])
def test_plans_are_made_from_the_intervals_that_were_asked_for(small, kernels, monkeypatch, asked):
    fake_cupy.install(monkeypatch, kernels)
    monkeypatch.setattr(accumulated_shots, "CupyDevice", CupyDevice)
    well, (_, costs, _) = measured(f"--accumulated-intervals={asked}")
    assert well and any(f"of the {asked}" in note for note in costs.notes)
    for mine, recorded in zip(
        column(costs, "us between"), column(costs, "us between, host"), strict=True
    ):
        assert (mine == recorded) == (asked == "host")
        # The host's begin with the first save.
        assert recorded.values[0] == 0 and (mine.values[0] > 0) == (asked == "device")
    assert all((cell > 0) == (asked == "device") for cell in column(costs, "intervals s"))


@compiled
def test_a_device_without_times_leaves_the_intervals_of_the_host(small):
    _, (_, costs, _) = measured()
    assert any("of the host, as recorded: the device tells none" in note for note in costs.notes)
    assert column(costs, "us between") == column(costs, "us between, host")
    assert column(costs, "intervals s") == [0.0] * len(HAD)


def test_intervals_are_from_one_state_to_the_next():
    spans = [Span("compute", "", 1000 * at, 1000 * at + 400) for at in range(6)]
    assert accumulated_shots._between(spans, 3) == pytest.approx((0.4e-6, 1e-6, 1e-6))
    assert accumulated_shots._between(spans, 7) == ()


@compiled
def test_every_shot_has_its_own_source(small):
    forward = Forward(small, 4.0, shots=3)
    fields = []
    for shot in (0, 1, 2, 1):
        with Spool(host_memory="16MiB", device="cpu") as spool:
            forward.once(spool, shot)
            fields.append(spool.load(COUNT - 1).tobytes())
    assert len(set(fields)) == 3 and fields[1] == fields[3]


def test_what_was_spent_once_is_paid_back_by_what_each_shot_gains():
    assert [paid_back(1.0, gain) for gain in (0.3, 0.5, 2.0)] == [4, 2, 1]
    assert paid_back(0.0, 0.1) == 0
    assert paid_back(1.0, 0.0) is None and paid_back(1.0, -0.1) is None


def found_with(ways, recorded=1.7, took=(2.0, 0.25, 0.25)):
    """Results in which each way of taking a shot took the seconds that `ways` has for it."""
    profile = Profile.of([10] * 4, ratio=2.0)
    shots = {way: [Shot(seconds)] for way, seconds in ways.items()}
    plain, recordings = [Shot(1.0, 0.1)], [Shot(recorded - 0.2, 0.2)]
    none = SimpleNamespace()
    return Found(profile, profile, none, none, plain, recordings, took, shots)


def test_the_cost_of_a_profile_is_paid_back_or_never_is():
    ways = {"raw": 2.0, "single": 1.9, "batched": 0.5, "following": 1.0}
    found = found_with(ways)
    # Recording took 0.6 s more, the curve 2.0 s, the intervals 0.25 s and the plan 0.25 s.
    assert found.once == pytest.approx(3.1)
    assert accumulated_shots._costs(found)[-3:] == [4, 4, "never"]
    assert found_with(ways, recorded=0.9).once == pytest.approx(2.5)


@pytest.mark.parametrize(("count", "together", "words"), [
    (5, 2, "hold together hold together alone"),
    (3, 1, "alone alone alone"),
    (3, 0, "alone alone alone"),
    (3, 8, "hold hold together"),
])  # fmt: skip
def test_batches_end_with_the_shot(count, together, words):
    assert " ".join(accumulated_shots._batches(count, together)) == words


def test_one_shot_has_none_that_follows(monkeypatch, capsys):
    monkeypatch.setattr(accumulated_shots, "CupyDevice", None)
    well, tables = measured("--accumulated-shots=1")
    assert not well and tables == []
    assert "--accumulated-shots 1" in capsys.readouterr().out


@compiled
def test_the_part_fails_where_no_codec_can_be_had(small, monkeypatch):
    for name in HAD:
        monkeypatch.delitem(accumulated_shots.CODECS, name)
    well, tables = measured()
    assert not well and tables[0].rows == []


def test_options_choose_the_intervals(capsys):
    assert plan().accumulated.intervals == "device"
    assert plan("--accumulated-intervals=host").accumulated.intervals == "host"
    with pytest.raises(SystemExit):
        plan("--accumulated-intervals=both")
    assert "choose from" in capsys.readouterr().err


@compiled
@pytest.mark.fake_gpu
def test_shots_on_a_driver_hold_and_encode_together_as_planned(driver, kernels, small, monkeypatch):
    def slow(self, recorded, curve):
        """A run for whose link and codec it pays to hold checkpoints."""
        rows = tuple(
            replace(row, interval=1e-6, stored=row.raw // 10) for row in recorded.checkpoints
        )
        return replace(recorded, checkpoints=rows, cost=TWINE, link=Rate(5e9))

    monkeypatch.setattr(Ensemble, "_completed", slow)
    monkeypatch.setattr(accumulated_shots, "RECORDINGS", 1)
    asked = Accumulated(shots=3, cache=4 << 20, together=2)
    forward = Forward(DriverDevice(kernels, driver), 4.0, shots=3)
    found = Ensemble(DriverCuda(), asked, forward, "lossless").measured()
    counts = found.plan.best.counts
    assert counts["hold"] > 0 and counts["together"] > 0, counts
    assert found.recorded.device == "cuda:0"
    for shot in found.shots[FOLLOWING]:
        assert shot.kept == counts["raw"] and shot.dropped == ""
        assert shot.launches == counts["alone"] + counts["together"]
    assert [shot.launches for shot in found.shots["single"]] == [COUNT] * 2
    assert [shot.launches for shot in found.shots["raw"]] == [0] * 2
