"""`unspool.advise`: what is measured, what is said, and the line that is copied."""

import itertools
import json
import math
import os
import time
from dataclasses import replace
from typing import NamedTuple

import flat
import numpy as np
import pytest
import unspool
from unspool import _energy, cli
from unspool._unspool import automatic_rule, duration_in_seconds
from unspool.advice import Compression, Meter, Place, Power, Prices, Rate, places, power
from unspool.advice.jobs import duration
from unspool.advice.places import endurance_in, endurance_of
from unspool.errors import MissingLibraryError, OptionError, StorageError

USAGE = places.shutil.disk_usage("/")._replace(total=1 << 40, free=1 << 39)


@pytest.fixture(autouse=True)
def disk_with_room(monkeypatch):
    # Whatever else is on the disk of the machine.
    monkeypatch.setattr(places.shutil, "disk_usage", lambda _: USAGE)


DISK, FAR = Place(2e9, 4e9), Place(0.5e9, 1e9)
CODED = Compression(4.0, Rate(3e9), Rate(6e9), "lossless")

#: Everything that may stand in a line.
NAMES = {"Checkpointer": unspool.Checkpointer, "Bound": unspool.Bound, "unspool": unspool}
NAMES |= {"Auto": unspool.types.Auto, "Copies": unspool.types.Copies}


def advice(**options):
    # How fast this machine copies would be measured, and is not the same each time.
    given = {"checkpoint": "10GB", "disk": DISK, "mtbf": "2h", "codecs": [CODED], "blocked": "1s"}
    given |= options
    return flat.advise(given.pop("checkpoint"), given.pop("disk"), **given)


def test_the_choices_are_every_codec_with_and_without_increments_in_every_place():
    found = advice(increments=0.2, remote=FAR)
    names = {(one.name, one.place) for one in found.choices}
    kinds = ["none", "increments", "lossless", "lossless, increments"]
    assert names == {(name, place) for name in kinds for place in ("remote", "both")}
    shares = [one.efficiency for one in found.choices]
    assert shares == sorted(shares, reverse=True) and 0 < shares[-1] < shares[0] < 1


def test_every_row_has_a_line_whose_codec_is_known():
    for one in advice(increments=0.2, remote=FAR).choices:
        assert ("increments=True" in one.line) == ("increments" in one.name)
        assert ('codec="lossless"' in one.line) == ("lossless" in one.name)


#: The dissertation's machine, where a codec with increments is far better than anything else.
SLOW = {"checkpoint": 683e6, "disk": Place(1e6, 1e6), "mtbf": 804.0, "blocking": True}
SLOW |= {"codecs": [Compression(13.7, Rate(154.2e6), Rate(564.9e6), "lossless")], "restart": "0s"}


def test_what_to_take_is_the_best_row():
    found = advice(**SLOW, increments=0.2)
    assert found.best == found.choices[0] and found.best.name == "lossless, increments"
    assert f"Take: {found.best.line}" in found.sentence
    assert found.choices[0].efficiency > found.choices[1].efficiency + 0.05


def test_what_no_option_does_is_taken_by_hand():
    unknown = [Compression(13.7, Rate(154.2e6), Rate(564.9e6))]
    found = advice(**SLOW | {"codecs": unknown}, increments=0.2)
    assert found.best == found.choices[0] and found.best.line is None
    assert f"Take: by hand, as no option does it: {found.best.name}, to disk\n" in found.sentence


@pytest.mark.parametrize("text", ["0s", "0min", "0.0 s", 0])
def test_a_restart_may_begin_at_once(text):
    assert advice(restart=text).problem.restart == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"blocking": True},
        {"blocked": "1min", "mtbf": "2h"},
        {"disk": Place(1e8, 1e8), "codecs": [replace(CODED, codec=unspool.Bound(range=1e-4))]},
        {"remote": FAR, "healed": 0.5},
        {"remote": Place(1e8, 1e8), "mtbf": "12h"},
        {"mtbf": 3.1e8},
        {"increments": 0.2, "disk": Place(1e8, 1e8)},
    ],
)
def test_every_line_can_be_copied(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for one in advice(**options).choices:
        line = one.line.replace("PLACE", str(tmp_path / "remote"))
        with eval(line, NAMES) as checkpoints:
            interval = checkpoints.interval
        if "Auto" not in line.partition("copies")[0]:
            assert interval == pytest.approx(one.interval, rel=0.02)


def test_a_size_may_be_any_number():
    for size in (10**10, 1e10, np.int64(10**10), "10GB"):
        assert advice(checkpoint=size, codecs=[]).problem.checkpoint_bytes == 10**10


def test_a_directory_that_was_measured_is_in_the_line(tmp_path):
    found = advice(disk=tmp_path, checkpoint="1MB")
    assert f'"{tmp_path}/run"' in found.best.line
    assert found.problem.disk.writers == 1 and found.problem.disk.write > 1e5
    assert os.listdir(tmp_path) == []


def test_several_writers_share_what_a_directory_takes(tmp_path):
    found = Place.measured(tmp_path, writers=3, most="24MiB", limit=1.0)
    assert found.writers == 3 and found.read > 1e5
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_too_full_is_not_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(places.shutil, "disk_usage", lambda _: USAGE._replace(free=1 << 20))
    monkeypatch.setattr(places.os, "write", None)
    with pytest.raises(StorageError, match=r"1\.00 MiB are free"):
        Place.measured(tmp_path)


def test_a_disk_that_fills_up_is_an_error_that_says_so(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places.os, "write", full)
    with pytest.raises(StorageError, match="No space left on device; make room there"):
        Place.measured(tmp_path, writers=2)
    assert os.listdir(tmp_path) == []


def test_a_medium_that_does_not_answer_ends_the_probe(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "PATIENCE", 0.0)
    asleep = places.threading.Event()
    monkeypatch.setattr(places.os, "write", lambda *_: asleep.wait(20.0))
    with pytest.raises(StorageError, match="gave no answer"):
        Place.measured(tmp_path, limit=0.01)
    asleep.set()


def test_codecs_are_tried_on_arrays_of_every_kind():
    wave = np.sin(np.linspace(0, 9, 1 << 15)).astype(np.float32).reshape(128, -1)
    state = {"u": wave, "more": [wave * 2, {"n": np.arange(99)}], "nothing": np.zeros(0)}
    bound = unspool.Bound(range=1e-3)
    found = advice(checkpoint=state, codecs=["lossless", bound])
    assert found.problem.checkpoint_bytes == 2 * wave.nbytes + 99 * 8
    exact, bounded = found.problem.codecs
    assert 1 < exact.ratio < bounded.ratio and min(exact.encode, bounded.decode) > 1e5
    assert (exact.codec, bounded.codec) == ("lossless", bound)


def test_a_checkpoint_is_any_tree_that_save_takes():
    class Pair(NamedTuple):
        left: np.ndarray
        right: np.ndarray

    wave = np.sin(np.linspace(0, 9, 1 << 12))
    state = {"step": 3, "waves": Pair(wave, 2 * wave), "names": ["u", "v"]}
    found = advice(checkpoint=state, codecs=["lossless"])
    assert found.problem.checkpoint_bytes == 2 * wave.nbytes
    with pytest.raises(OptionError, match="waves is not an array"):
        advice(checkpoint={"waves": object()})


def test_without_arrays_a_codec_needs_its_figures():
    assert "codecs were not tried" in str(advice(codecs=None))
    with pytest.raises(OptionError, match="give them in place of their size"):
        advice(codecs=["lossless"])


def test_arrays_of_a_gpu_are_encoded_by_the_save():
    slow = Compression(4.0, Rate(1e9), Rate(6e9), "lossless")
    there = advice(codecs=[slow], on_gpu=True, disk=Place(1e8, 1e8))
    here = advice(codecs=[slow], on_gpu=False, disk=Place(1e8, 1e8))
    on_gpu, on_cpu = (
        next(one for one in found.choices if one.name == "lossless") for found in (there, here)
    )
    assert on_gpu.blocked == 10.0 > on_cpu.blocked
    assert on_gpu.break_even < on_cpu.break_even


def test_a_checkpoint_and_a_restart_take_what_their_bytes_take():
    named = {one.name: one for one in advice(blocking=True, increments=0.1, restart=7.0).choices}
    plain, coded, both = (named[one] for one in ("none", "lossless", "lossless, increments"))
    assert (plain.durable, plain.restart) == (10 / 2, 7 + 10 / 4)
    assert coded.blocked == coded.durable == pytest.approx(10 / 3 + 2.5 / 2)
    assert coded.restart == pytest.approx(7 + 2.5 / 4 + 10 / 6)
    # A tenth changes: ten increments follow a full checkpoint, and a restart reads five of them.
    assert both.restart == pytest.approx(7 + 1.5 * (2.5 / 4 + 10 / 6))
    assert both.durable == pytest.approx(2 / 11 * (10 / 3 + 2.5 / 2))
    assert (coded.stored_bytes, both.stored_bytes) == (2.5e9, pytest.approx(2 / 11 * 2.5e9))
    later = {one.name: one for one in advice(blocked=1.0).choices}["lossless"]
    assert (later.blocked, later.durable) == pytest.approx((1.0, 1.0 + 10 / 3 + 2.5 / 2))


@pytest.mark.parametrize("changed", [3, 12, 50])
def test_increments_store_as_many_bytes_as_is_said(tmp_path, changed):
    rows, steps = 60, 80
    state = np.random.default_rng(changed).standard_normal((rows, 8192))  # a chunk of 64 KiB each
    share = changed / rows
    options = {"every": 1, "increments": True, "keep": steps, "mtbf": "1d"}
    with flat.checkpointer(tmp_path / "run", **options) as checkpoints:
        for step in range(steps):
            state[(step * changed + np.arange(changed)) % rows, 0] += 1.0
            checkpoints.save(step, state=state)
    stored = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) / steps
    disk = Place(1e9, 1e9)
    found = flat.advise(state.nbytes, disk, codecs=[], mtbf="1d", increments=share).choices
    (told,) = (one.stored_bytes for one in found if one.name == "increments")
    assert stored == pytest.approx(told, rel=0.1)


def test_the_job_fails_as_often_as_the_checkpointer_assumes_or_as_is_said():
    assert advice(mtbf=None, ranks=16_384).problem.mtbf == automatic_rule(16_384)[0]
    assert advice(mtbf=None, rank_mtbf="1000d", ranks=1000).problem.mtbf == 86_400
    with pytest.raises(OptionError, match="give one"):
        advice(mtbf="1h", rank_mtbf="1h")


def test_energy_is_that_of_computing_saving_restarting_and_coding():
    (plain,) = advice(codecs=[], power=Power(100.0), ranks=3).choices
    assert plain.joules == pytest.approx(3 * 100.0 * plain.seconds)
    options = {"codecs": [], "blocking": True}
    (one,) = advice(**options, power=Power(100.0, save=0.0, restore=0.0)).choices
    # A restart that fails again ends early.
    restarts = one.failures * 7200 * -math.expm1(-one.restart / 7200)
    idle = one.checkpoints * one.blocked + restarts
    assert one.joules == pytest.approx(100.0 * (one.seconds - idle))
    named = {one.name: one for one in advice(power=Power(0.0, encode=50.0)).choices}
    coded = named["lossless"]
    seconds = coded.checkpoints * 10 / 3
    seconds += coded.failures * math.exp(-coded.restart / 7200) * 10 / 6
    assert named["lossless"].joules == pytest.approx(50.0 * seconds) and named["none"].joules == 0


def test_a_drive_that_wears_out_is_bought_again():
    prices = Prices(node=1000.0, drive=100.0, weeks=260.0)
    found = advice(endurance="10PB", prices=prices, writers=2)
    for one in found.choices:
        assert one.drive_weeks == pytest.approx(1e16 / (2 * one.weekly_bytes))
        drives = max(1, math.ceil(260 / one.drive_weeks))
        price = 1000.0 + 100.0 * drives
        assert one.work_per_price == pytest.approx(260 * 168 * one.efficiency / price)
    assert "would be worn out" in found.sentence


def test_what_takes_longer_than_the_job_lives_is_left_out_with_the_reason():
    found = advice(disk=Place(1e8, 1e8), mtbf="90s")
    assert [one.name for one in found.choices] == ["lossless"]
    assert "hardly one would be finished" in found.left_out[0].reason
    with pytest.raises(OptionError, match="No way of keeping checkpoints works"):
        advice(mtbf="1s")


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint": "-1GB"},
        {"checkpoint": -5},
        {"checkpoint": {}},
        {"checkpoint": {"u": "text"}},
        {"disk": None},
        {"disk": 3},
        {"disk": "/there is no such directory"},
        {"ranks": 0},
        {"ranks": 1.5},
        {"mtbf": math.nan},
        {"mtbf": -1.0},
        {"mtbf": "soon"},
        {"rank_mtbf": "0s", "mtbf": None},
        {"healed": 1.5},
        {"work": 0},
        {"restart": -1},
        {"restart": "0"},
        {"mtbf": "0s"},
        {"blocked": math.inf},
        {"increments": -0.1},
        {"increments": 0.0},
        {"increments": math.nan},
        {"writers": 0},
        {"endurance": "0TB"},
        {"endurance": "auto"},
        {"power": 700},
        {"prices": 3},
        {"codecs": ["unheard of"]},
    ],
)
def test_arguments_that_make_no_sense_are_refused(options):
    with pytest.raises(OptionError):
        advice(**options)


def test_places_powers_and_prices_are_checked():
    for make in (
        lambda: Place(0.0, 1e9),
        lambda: Place(1e9, math.nan),
        lambda: Power(-1.0),
        lambda: Power(1.0, save=math.inf),
        lambda: Prices(-1.0),
        lambda: Prices(1.0, weeks=0.0),
        lambda: Place.measured("/tmp", writers=0),
        lambda: Place.measured("/tmp", limit=-1.0),
    ):
        with pytest.raises(OptionError):
            make()


@pytest.mark.parametrize("seconds", [0.01, 1.5, 59.0, 61.0, 3599.0, 7201.0, 86_400.0, 4e6])
def test_durations_are_written_as_they_are_read(seconds):
    assert duration_in_seconds(duration(seconds)) == pytest.approx(seconds, rel=0.01)


def test_everything_goes_out_as_json():
    found = advice(increments=0.3, remote=FAR, power=Power(500.0), prices=Prices(1e5))
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["best"] == found.best.line and len(told["choices"]) == len(found.choices)
    assert told["problem"]["mtbf"] == 7200.0


def test_what_is_not_finite_goes_out_as_nothing():
    found = advice(remote=FAR, endurance="600TB")
    assert any(one.drive_weeks == math.inf for one in found.choices)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert any(one["drive_weeks"] is None for one in told["choices"])


def test_the_table_shows_what_is_known_and_nothing_else():
    text = str(advice())
    assert "efficiency" in text and "energy" not in text and "work a price" not in text
    assert "Take: Checkpointer(" in text and "pays" in text
    assert "kWh" in str(advice(power=Power(500.0)))


def test_the_picture_needs_matplotlib_and_says_so(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingLibraryError, match="pip install matplotlib"):
        advice().draw(tmp_path / "a.png")


def test_a_picture_of_other_machines_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    advice(increments=0.2).draw(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().count("<path") > 20


def page(used, units):
    found = bytearray(512)
    found[5], found[48:64] = used, units.to_bytes(16, "little")
    return bytes(found)


def test_the_endurance_of_a_drive_is_what_was_written_over_the_part_of_its_life():
    assert endurance_in(page(4, 1000))[0] == 1000 * 512_000 * 25
    assert endurance_in(page(0, 1000)) == (
        None,
        "less than a hundredth of the drive's life is used, which tells nothing",
    )
    assert endurance_in(page(3, 0))[0] is None


def test_a_directory_that_is_on_no_such_drive_says_so(tmp_path):
    found, why = endurance_of(str(tmp_path), tmp_path)
    assert found is None and "not on an NVMe drive" in why


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """A machine whose only counter is a file, in microjoules, and a clock of a second a look."""
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    (folder / "max_energy_range_uj").write_text("1000000000")
    file = folder / "energy_uj"
    file.write_text("0")
    # Nothing reads on here: a thread would do so for as long as the file is there.
    monkeypatch.setattr(_energy.Counters, "_keep_up", lambda self: None)
    known = _energy.Counters(tmp_path, "no such library")
    monkeypatch.setattr(power, "counters", lambda: known)
    clock = itertools.count()
    monkeypatch.setattr(power.time, "perf_counter", lambda: float(next(clock)))
    return file


def test_powers_are_joules_by_seconds_of_each_phase(counted):
    meter = Meter()
    for joules in (100, 300):
        with meter.during("app"):
            counted.write_text(str(int(counted.read_text()) + joules * 1_000_000))
    with meter.during("save"):
        counted.write_text("450000000")
    assert meter.seconds == {"app": 2.0, "save": 1.0}
    assert meter.joules == {"app": 400.0, "save": 50.0}
    assert meter.power == Power(200.0, save=50.0)
    with pytest.raises(KeyError), meter.during("app"):
        raise KeyError
    assert meter.seconds["app"] == 2.0


def test_a_meter_goes_by_any_counter():
    joules = iter([0.0, 10.0, 40.0])
    meter = Meter(lambda: next(joules))
    with meter.during("app"):
        pass
    assert meter.joules == {"app": 30.0}
    with pytest.raises(OptionError, match=r'"app", "save" or "restore"'), meter.during("idle"):
        pass


def test_powers_need_the_computing_and_a_counter():
    with pytest.raises(OptionError, match=r'during\("app"\)'):
        _ = Meter(lambda: 1.0).power
    with pytest.raises(MissingLibraryError, match=r"Power\(watts\)"):
        Meter(lambda: None)


def test_the_power_of_now_is_that_of_all_counters(counted, monkeypatch):
    def computing(seconds):
        assert seconds == 2.0
        counted.write_text("70000000")

    # A second is a look at the clock here.
    monkeypatch.setattr(time, "sleep", computing)
    assert Power.now(2.0) == Power(70.0)


def test_a_machine_without_counters_says_why(monkeypatch, tmp_path):
    known = _energy.Counters(tmp_path, "no such library")
    monkeypatch.setattr(power, "counters", lambda: known)
    with pytest.raises(MissingLibraryError, match=r"no RAPL.*no NVML.*Power\(watts\)"):
        Power.now()


def test_energy_is_that_of_each_phase():
    assert Power(100.0).joules(10.0, save=2.0, restore=1.0) == 1300.0
    measured = Power(100.0, save=50.0, restore=20.0, encode=5.0)
    assert measured.joules(10.0, save=2.0, restore=1.0, encode=4.0) == 1140.0


def test_the_command_prints_a_table_json_and_a_picture(tmp_path, capsys):
    words = ["advise", "--bytes", "80GB", "--disk", "2 GB/s,4 GB/s", "--remote", "0.5 GB/s"]
    words += ["--ratio", "1.5", "--ranks", "1024", "--on-gpu", "--watts", "700,600"]
    words += ["--node-price", "3e5", "--endurance", "7PB"]
    assert cli.main(words) == 0
    assert "Take: Checkpointer(" in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["ranks"] == 1024


def test_bytes_and_a_time_between_failures_are_enough(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["advise", "--bytes", "1MB", "--mtbf", "12h"]) == 0
    said = capsys.readouterr().out
    assert "by one rank (measured with 1 writer)" in said and "Take: Checkpointer(" in said


def test_the_command_tries_codecs_on_files(tmp_path, capsys):
    np.save(tmp_path / "u.npy", np.linspace(0, 1, 4096, dtype=np.float32))
    np.savez(tmp_path / "v.npz", a=np.ones(100), b=np.arange(9))
    words = ["advise", "--disk", "1 GB/s", "--bound", "range=1e-3", "--json"]
    words += ["--sample", str(tmp_path / "u.npy"), "--sample", str(tmp_path / "v.npz")]
    assert cli.main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["problem"]["codecs"]] == ["lossless", "Bound(range=0.001)"]
    assert told["problem"]["checkpoint_bytes"] == 4096 * 4 + 800 + 72


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--disk", "fast/s"], "size"),
        (["--disk", "1 GB/s,2 GB/s,3 GB/s"], "the second for reading"),
        (["--disk", "1 GB/s", "--encode", "1 GB/s"], "--ratio"),
        (["--disk", "1 GB/s", "--ratio", "0.5"], "ratio=0.5"),
        (["--disk", "1 GB/s", "--bound", "range"], "range=1e-4"),
        (["--disk", "1 GB/s", "--watts", "much"], "--watts"),
        (["--disk", "1 GB/s", "--kwh-price", "0.3"], "--node-price"),
        (["--disk", "1 GB/s", "--figure", "/nowhere/a.png"], "--figure"),
        (["--disk", "1 GB/s", "--figure", "a.txt"], "--figure"),
        (["--disk", "1 GB/s", "--mtbf", "-3"], "mtbf"),
    ],
)
def test_mistakes_of_the_command_are_one_line(words, told, capsys):
    assert cli.main(["advise", "--bytes", "1GB", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and told in said
