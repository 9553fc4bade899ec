"""A migration by every schedule: the image is the same in every bit, and the figures add up."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

import unspool
from unspool import schedules
from unspool.advice import Compression, Link, Links, Rate
from unspool.schedules import Discard, End, Forward, Listed, Restore, Reverse, Save
from unspool_studies import cli
from unspool_studies.rtm import job as rtm_job
from unspool_studies.rtm import pace as rtm_pace
from unspool_studies.rtm.errors import MigrationError
from unspool_studies.rtm.generated import generated_model
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import Job, migrate_again, run
from unspool_studies.rtm.model import smooth
from unspool_studies.rtm.pace import Pace
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.schedule import Choice, kept_by
from unspool_studies.rtm.survey import plan

SMALL = ["--shape", "81x51", "--spacing", "15", "--shots", "2", "--steps", "203", "--every", "4"]
SMALL += ["--device-memory", "256KiB", "--host-memory", "512KiB", "--layer", "12"]
#: Groups of steps of `SMALL`, and bytes of one wavefield.
GROUPS, FIELD = 51, 4 * (81 + 32) * (51 + 32)

FIGURES = {
    "all": [],
    "revolve": ["--snapshots", "5"],
    "online": ["--snapshots", "5"],
    "uniform": ["--snapshots", "6"],
    "zcut": ["--cut-length", "8"],
    "levels": [],
    "auto": [],
}


@pytest.fixture
def rtm(tmp_path):
    """Runs a small job with its files in a folder of their own; returns the exit code."""
    (tmp_path / "disk").mkdir()

    def call(*options):
        places = ["--out", tmp_path / "out", "--disk-dir", tmp_path / "disk"]
        return cli.rtm([*map(str, [*SMALL, *places, *options])])

    return call


@pytest.fixture
def job(tmp_path):
    model = generated_model(81, 51, 15.0)
    survey = plan(model, shots=2, steps=203, every=4)
    memory = Memory("256KiB", "512KiB", tmp_path)
    return Job(model, smooth(model, 60.0), survey, 12, 1, memory)


def _report(tmp_path):
    return json.loads((tmp_path / "out" / "report.json").read_text())


@pytest.mark.parametrize("name", FIGURES)
def test_every_schedule_makes_the_image_of_plain_arrays(rtm, tmp_path, name, capsys):
    assert rtm("--schedule", name, *FIGURES[name], "--check") == 0
    assert "every bit of the image is the same" in capsys.readouterr().out
    report = _report(tmp_path)
    assert report["check"]["identical"] is True
    found, kept = report["schedule"], report["history"]
    assert found["groups_a_shot"] == GROUPS
    # A pass whose end was not known has gone on to the state after the last step.
    once = GROUPS if name == "online" else GROUPS - 1
    assert found["recomputed"] == found["advances"] - 2 * once
    assert found["recomputed_steps"] == 4 * found["recomputed"]
    assert found["restores"] == report["spool"]["restores"] > 0
    assert found["saves"] == report["spool"]["saves"]
    assert kept["shot_bytes"] <= 2 * found["snapshots"] * FIELD
    assert sum(found["peak_bytes"].values()) >= FIELD
    assert found["seconds"] > 0
    if name == "all":
        assert kept["shot_bytes"] == (GROUPS - 1) * FIELD
        assert found["recomputed"] == 0


def test_all_schedules_make_the_same_image(job):
    chosen = (
        schedules.StoreAll(GROUPS),
        schedules.Revolve(GROUPS, 3),
        schedules.OnlineRevolve(4),
        schedules.Uniform(GROUPS, 7),
        schedules.ZCut(GROUPS, cuts=3),
    )
    runs = [run(dataclasses.replace(job, schedule=one), Silence()) for one in chosen]
    assert np.abs(runs[0].migrated.image).max() > 0
    assert len({one.migrated.digests for one in runs}) == 1
    assert len({one.migrated.illumination.tobytes() for one in runs}) == 1
    advances = [one.followed.advances for one in runs]
    assert advances[0] == 2 * (GROUPS - 1) == min(advances)
    again = run(dataclasses.replace(job, schedule=chosen[1]), Silence())
    assert again.followed.advances == advances[1], "a schedule begins anew for each job"


def test_every_wavefield_alone_is_what_storing_all_saves(job):
    stats = run(job, Silence()).stats
    assert stats.saved_bytes == 2 * (GROUPS - 1) * FIELD
    assert stats.checkpoints == stats.hints == 0, "nothing is left behind"


def test_a_schedule_that_was_written_down_is_followed(rtm, tmp_path):
    path = tmp_path / "schedule.txt"
    path.write_text(schedules.to_trace(schedules.Revolve(GROUPS, 4)))
    assert rtm("--schedule", f"trace:{path}", "--check", "--quiet") == 0
    report = _report(tmp_path)
    assert report["check"]["identical"] is True
    assert report["schedule"]["snapshots"] == 4
    wanted = schedules.Revolve(GROUPS, 4).counts()
    assert report["schedule"]["advances"] == 2 * wanted.advances


def test_two_processes_follow_a_schedule_each(rtm, tmp_path):
    assert rtm("--schedule", "revolve", "--snapshots", "4", "--jobs", "2", "--check") == 0
    report = _report(tmp_path)
    assert report["check"]["identical"] is True
    assert report["schedule"]["advances"] == 2 * schedules.Revolve(GROUPS, 4).counts().advances


def test_a_prediction_stands_beside_what_it_took(rtm, tmp_path, capsys):
    assert rtm("--schedule", "revolve", "--snapshots", "5", "--predict") == 0
    assert "were predicted" in capsys.readouterr().out
    found = _report(tmp_path)["schedule"]
    assert found["predicted_seconds"] > 0


def test_a_trace_of_a_schedule_shows_what_was_computed_again(rtm, tmp_path):
    path = tmp_path / "trace.json"
    assert rtm("--schedule", "revolve", "--snapshots", "3", "--trace", path, "--quiet") == 0
    events = json.loads(path.read_text())["traceEvents"]
    again = [event for event in events if event.get("args", {}).get("of") == "forward 0:1"]
    assert len(again) > 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--schedule", "best"], "there is no schedule 'best'"),
        (["--schedule", "all", "--snapshots", "3"], "--schedule all takes no --snapshots"),
        (["--schedule", "revolve", "--cuts", "3"], "--schedule revolve takes no --cuts"),
        (["--schedule", "zcut", "--cuts", "3", "--cut-length", "4"], "not allowed with"),
        (["--schedule", "zcut", "--cuts", "3", "--snapshots", "4"], "give one"),
        (["--schedule", "revolve", "--snapshots", "0"], "at least 1"),
        (["--schedule", "trace:/nowhere/at/all"], "/nowhere/at/all"),
        (["--predict", "--jobs", "2"], "of one process"),
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


def test_a_written_schedule_of_another_length_is_refused(rtm, tmp_path, capsys):
    path = tmp_path / "schedule.txt"
    path.write_text(schedules.to_trace(schedules.Revolve(7, 2)))
    assert rtm("--schedule", f"trace:{path}") == 2
    assert "a schedule of 7 steps, and a shot has 51" in capsys.readouterr().err


def test_the_disk_has_to_hold_what_a_schedule_keeps_and_no_more(rtm, capsys, monkeypatch):
    monkeypatch.setattr(rtm_job.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    assert rtm("--quiet") == 2
    assert "a --schedule that keeps less" in capsys.readouterr().err
    assert rtm("--schedule", "revolve", "--snapshots", "5", "--quiet") == 0


def test_whole_states_and_those_that_are_only_reversed_are_told_apart():
    # Copy 0 is gone on from, copy 1 is only reversed; both at once are the most.
    actions = [Save(0), Forward(0, 1), Save(1), Forward(1, 2), Reverse(2)]
    actions += [Restore(1), Discard(1), Reverse(1), Restore(0), Forward(0, 1), Restore(0)]
    actions += [Discard(0), Reverse(0), End()]
    kept = kept_by(Listed([*actions[:8], *actions[10:]]), 3, 100, 10)
    assert (kept.saves, kept.peak_copies, kept.peak_bytes) == (2, 2, 20)
    gone_on = [Save(0), Forward(0, 2), Reverse(2), Restore(0), Save(0)]
    gone_on = [Save(0), Forward(0, 1), Forward(1, 2), Reverse(2), Restore(0), Forward(0, 1)]
    gone_on += [Reverse(1), Restore(0), Discard(0), Reverse(0), End()]
    kept = kept_by(Listed(gone_on), 3, 100, 10)
    assert (kept.advances, kept.recomputed, kept.peak_bytes) == (3, 1, 100)


def test_what_is_kept_of_a_shot_is_what_the_interpreter_counts():
    for schedule in (
        schedules.StoreAll(40),
        schedules.Revolve(40, 3),
        schedules.Uniform(40, 5),
        schedules.ZCut(40, length=6),
    ):
        kept, counts = kept_by(schedule, 40, 2, 1), schedule.counts()
        assert (kept.advances, kept.saves) == (counts.advances, counts.saves)
        assert (kept.peak_copies, kept.recomputed) == (counts.peak, counts.recomputed_steps)


def test_a_pace_measures_both_ways_and_makes_a_schedule_of_the_tiers(job):
    pace = Pace(job)
    assert all(seconds > 0 for seconds in pace.seconds)
    levels = Choice("levels").schedule(GROUPS, pace)
    assert levels.steps == GROUPS
    links, seconds = pace.links, pace.seconds
    assert pace.seconds is seconds
    pace.renew()
    assert pace.seconds is not seconds
    assert pace.links is links, "measured once"
    assert pace.predict(levels).seconds > 0


#: A machine whose steps are long and whose copies are not.
SECONDS = 0.01, 0.01
LINKS = Links(
    "cpu",
    ("device", "host", "disk"),
    Rate(5e9),
    Rate(5e9),
    tuple(
        Link(fast, slow, Rate(rate), Rate(rate))
        for fast, slow, rate in (("device", "host", 5e9), ("host", "disk", 1e6))
    ),
)


def _paced(job):
    """Its pace on that machine."""
    pace = Pace(job)
    pace.__dict__ |= {"seconds": SECONDS, "links": LINKS}
    return pace


@pytest.mark.parametrize("name", ["auto", "levels"])
def test_with_a_codec_fewer_groups_are_computed_again_and_no_bit_is_another(job, name):
    found = {}
    for codec in (None, "lossless"):
        coded = dataclasses.replace(job, memory=dataclasses.replace(job.memory, codec=codec))
        schedule = Choice(name).schedule(GROUPS, _paced(coded))
        outcome = run(dataclasses.replace(coded, schedule=schedule), Silence())
        found[codec] = outcome.followed.recomputed, outcome.migrated.digests
    assert found["lossless"][0] < found[None][0]
    assert found["lossless"][1] == found[None][1]


def test_auto_keeps_the_slower_tiers_with_a_codec_and_counts_encoded_bytes(
    rtm, tmp_path, monkeypatch
):
    ratio = 1e6
    monkeypatch.setattr(
        rtm_pace.Pace, "compression", Compression(ratio, Rate(1e12), Rate(1e12)), raising=True
    )
    monkeypatch.setattr(rtm_job.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**6))
    assert rtm("--schedule", "auto", "--codec", "lossless", "--quiet", "--disk", "64MiB") == 0
    report = _report(tmp_path)
    # What is believed to become so small stays in memory; in truth the disk takes the rest.
    assert report["schedule"]["recomputed"] == 0
    assert report["schedule"]["peak_bytes"]["disk"] > 0


def test_the_codec_is_tried_on_waves_and_not_on_silence(job, monkeypatch):
    assert Pace(job).compression is None
    coded = dataclasses.replace(job, memory=dataclasses.replace(job.memory, codec="lossless"))
    auto = dataclasses.replace(job, memory=dataclasses.replace(job.memory, codec="auto"))
    assert Pace(auto).compression is None, "the spool decides"
    found = _paced(coded).compression
    assert found.encode is not None and found.decode is not None
    with coded.spool() as spool:
        spool.save(0, *[np.zeros((113, 83), np.float32)] * 2)
        silence = spool.stats().codec.ratio
    assert 1 < found.ratio < silence / 2
    # Where there is time for few groups, the last of them is what is tried.
    monkeypatch.setattr(rtm_pace, "SAMPLING_SECONDS", 3 * SECONDS[0])
    early = _paced(coded).compression
    assert found.ratio < early.ratio


def test_a_job_without_a_disk_keeps_to_its_memory(job):
    memory = Memory("256KiB", "1MiB", None)
    wanted = dataclasses.replace(job, memory=memory, schedule=schedules.Revolve(GROUPS, 6))
    outcome = run(wanted, Silence(), keep_records=True)
    assert [tier.name for tier in outcome.stats.tiers] == ["device", "host"]
    again = migrate_again(wanted, outcome.records, Silence())
    assert outcome.migrated.digests == again.digests


def test_a_choice_that_needs_no_figure_measures_nothing():
    class Never:
        def __getattr__(self, name):
            raise AssertionError(name)

    for name in ("all", "revolve", "online", "uniform", "zcut"):
        assert Choice(name).schedule(60, Never()) is not None
    with pytest.raises(MigrationError):
        Choice("trace")


@pytest.mark.parametrize(("slots", "steps"), [(20, 10), (4, 30), (8, 40)])
def test_copies_made_before_the_number_of_steps_is_known_count_as_whole(slots, steps):
    schedule, held, most = schedules.OnlineRevolve(slots), {}, 0

    class Watched:
        """A spool that counts the arrays it holds."""

        def __init__(self, spool):
            self.spool = spool

        def save(self, version, *arrays, **options):
            nonlocal most
            self.spool.save(version, *arrays, **options)
            held[version] = len(arrays)
            most = max(most, sum(held.values()))

        def discard(self, version):
            self.spool.discard(version)
            del held[version]

        def __getattr__(self, name):
            return getattr(self.spool, name)

    def forward(_state, _begin, end):
        return schedules.Stop(steps) if end >= steps else None

    levels = np.zeros(4), np.zeros(4)
    with unspool.Spool(host_memory="64KiB") as spool:
        unspool.adjoint(
            schedule,
            Watched(spool),
            forward,
            lambda _newest, _step: None,
            levels,
            for_reverse=lambda state: state[1],
        )
    assert kept_by(schedule, steps, 2, 1).peak_bytes == most
