"""Plans of accumulated compression, profile files, and spools that follow them."""

from __future__ import annotations

import json
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import accumulate
from unspool.accumulate import NVCOMP, TWINE, CodecCost, Profile, ProfileError, Recorded
from unspool.advice.accumulating import shortened
from unspool.cli import main
from unspool.errors import OptionError

MB = 1_000_000


def equal(
    count: int = 100, size: int = 2 * MB, ratio: float = 10.0, rate: float = 100e9
) -> Profile:
    return Profile.of([size] * count, ratio=ratio, interval=size / rate)


def test_a_plan_is_never_worse_than_simple_schedules() -> None:
    for codec in (NVCOMP, TWINE):
        found = accumulate.plan(equal(), codec=codec, cache="128MiB", link=25e9)
        assert found.is_optimal
        assert found.best.blocked <= min(one.blocked for one in found.simple.values())
        assert sum(found.best.counts.values()) == len(found.best.decisions) == 100


def test_a_high_fixed_cost_is_shared_and_a_low_one_need_not_be() -> None:
    run = equal(size=8 * MB)
    slow = accumulate.plan(run, codec=NVCOMP, cache="1GB", link=25e9).best
    codec = CodecCost.linear("fast", 7e-6, 1e12, in_place=True, compacts=False)
    fast = accumulate.plan(run, codec=codec, cache="1GB", link=25e9).best
    assert slow.counts["hold"] > 50 and fast.counts["hold"] == 0
    assert fast.blocked < slow.blocked


def test_the_parts_of_an_outcome_add_up() -> None:
    run = equal(7)
    decisions = ["raw", "alone", "hold", "hold", "together", "hold", "together"]
    found = accumulate.follow(run, decisions, codec=NVCOMP, cache="64MiB", link=25e9)
    parts = found.computing + found.room + found.copies + found.codec + found.last
    assert found.seconds == pytest.approx(parts)
    assert found.link_bytes == 2 * MB + 6 * MB // 5
    assert found.throughput == pytest.approx(14 * MB / found.seconds)
    assert found.counts == {"raw": 1, "alone": 1, "hold": 3, "together": 2}
    assert found.decisions == tuple(decisions)


def test_what_makes_no_sense_is_refused() -> None:
    run = equal(3)
    with pytest.raises(OptionError, match="cache"):
        accumulate.plan(run, codec=TWINE, link=25e9)
    with pytest.raises(OptionError, match="link"):
        accumulate.plan(run, codec=TWINE, cache="1GB")
    with pytest.raises(OptionError, match="larger cache"):
        accumulate.plan(run, codec=TWINE, cache="1MB", link=25e9)
    with pytest.raises(OptionError, match="2 decisions for 3"):
        accumulate.follow(run, ["raw"] * 2, codec=TWINE, cache="1GB", link=25e9)
    with pytest.raises(OptionError, match="one of raw, alone, hold, together"):
        accumulate.follow(run, ["raw", "raw", "U"], codec=TWINE, cache="1GB", link=25e9)
    with pytest.raises(OptionError, match="until"):
        accumulate.plan(run, codec=TWINE, cache="1GB", link=25e9, until="lunch")
    with pytest.raises(OptionError, match="ascending"):
        CodecCost("odd", ((5, 1.0), (1, 2.0)))


def test_costs_of_codecs_are_lines_through_points(tmp_path: Path) -> None:
    cost = CodecCost("mine", ((100, 1.0), (200, 2.0)))
    assert [cost.seconds(size) for size in (0, 100, 150, 400)] == [1.0, 1.0, 1.5, 4.0]
    assert CodecCost.linear("mine", 5.0, 100.0).seconds(200) == pytest.approx(7.0)
    file = tmp_path / "cost.json"
    file.write_text(json.dumps(TWINE.to_dict()))
    assert CodecCost.load_from(file) == TWINE
    file.write_text("{}")
    with pytest.raises(ProfileError, match="unspool_codec_cost"):
        CodecCost.load_from(file)


@pytest.mark.parametrize(
    "change",
    [
        {"times": ()},
        {"times": ((-1, 1.0),)},
        {"times": ((1, -1.0),)},
        {"times": ((1, float("nan")),)},
        {"times": ((1, float("inf")),)},
        {"worst_per_mille": -1},
        {"worst_fixed": -1},
    ],
)
def test_costs_that_make_no_sense_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="of odd"):
        CodecCost(**{"name": "odd", "times": ((1, 1.0),)} | change)
    file = tmp_path / "cost.json"
    file.write_text(json.dumps(TWINE.to_dict() | change))
    with pytest.raises(ProfileError, match=r"cost\.json"):
        CodecCost.load_from(file)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    layouts = ((("u", "float32", (3, 4)),), (("u", "float32", (3, 4)), ("v", "int8", (5,))))
    rows = (Recorded(0.0, 48, 20, 0, 1e-3), Recorded(1e-3, 53, 21, 1, 2e-3))
    link = unspool.advice.Rate(25e9, 1e-5)
    profile = Profile(rows, layouts, "lossless", "cpu", 1 << 20, link)
    profile.save_to(tmp_path / "run.json")
    assert Profile.load_from(tmp_path / "run.json") == profile
    assert (profile.raw_bytes, profile.seconds) == (101, 1e-3)
    assert profile.ratio == pytest.approx(101 / 41)


@pytest.mark.parametrize("change", [
    lambda found: found.pop("unspool_profile"),
    lambda found: found["checkpoints"]["raw"].pop(),
    lambda found: found["checkpoints"].pop("stored"),
    lambda found: found["checkpoints"]["layout"].__setitem__(0, 9),
    lambda found: found["checkpoints"]["interval"].__setitem__(0, -1),
    lambda found: found.__setitem__("link", {"speed": 3}),
    lambda found: found.__setitem__("layouts", 3),
])  # fmt: skip
def test_a_changed_profile_is_refused(tmp_path: Path, change: Any) -> None:
    layouts = ((("u", "float32", (3, 4)),),)
    found = Profile((Recorded(0.0, 48, 20), Recorded(0.1, 48, 20)), layouts).to_dict()
    change(found)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(found))
    with pytest.raises(ProfileError, match=r"run\.json"):
        Profile.load_from(file)


def test_schedules_are_shown_by_runs() -> None:
    assert shortened([*["raw"] * 3, *["hold"] * 2, "together", "alone"]) == (
        "3 raw, 2 hold, together, alone"
    )
    assert shortened(["raw", "alone"] * 50).endswith("... (60 more)")


def test_the_command_shows_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accumulate", "--codec", "nvcomp", "--checkpoints", "40"]) == 0
    shown = capsys.readouterr().out
    assert "proven to be optimal" in shown and "when the cache is full" in shown
    assert main(["accumulate", "--ratio", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["best"]["decisions"]) == 100
    assert main(["accumulate", "--checkpoints", "0"]) == 2


def test_the_costs_of_a_machine_are_kept_in_a_profile_and_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "run.json", tmp_path / "cost.json"
    shapes: list[tuple[int, ...]] = [(100, 100)] * 40
    run(path, shapes)
    slow = CodecCost.linear("slow", 10.0, 1e9)
    slow.save_to(file)
    words = ["accumulate", str(path), "--codec", str(file)]
    assert main(words) == 0 and Profile.load_from(path).cost is None
    assert main([*words, "--keep"]) == 0 and Profile.load_from(path).cost == slow
    capsys.readouterr()
    assert main(["accumulate", str(path)]) == 0
    assert "slow" in capsys.readouterr().out
    again, watch = run(path, shapes)
    assert watch.plan is not None and watch.plan.codec == slow and all(again.raw)
    assert main(["accumulate", "--keep"]) == 2
    assert "PROFILE" in capsys.readouterr().err


def test_a_profile_of_an_earlier_version_has_no_costs(tmp_path: Path) -> None:
    found = equal(3).to_dict()
    del found["cost"]
    assert Profile.from_dict(found) == equal(3)
    with pytest.raises(ProfileError, match="cost"):
        Profile.from_dict(found | {"cost": {"times": []}})


class _Spool:
    """As much of a spool as a watch sees: figures without energy, which takes time to be read."""

    def __init__(self, ratio: int = 10, cache: int = 64 << 20, on: str = "cpu") -> None:
        self.arrays: dict[int, np.ndarray] = {}
        self.raw: list[bool] = []
        self._ratio = ratio
        flush = SimpleNamespace(bytes=75, busy_seconds=3e-9)
        tiers = [SimpleNamespace(capacity=cache, name="device")]
        links = [SimpleNamespace(flush=flush)]
        self._figures = SimpleNamespace(save_stall_seconds=0.0, links=links, tiers=tiers)
        self.device = on

    def _stats(self) -> Any:
        return self._figures

    def regions(self, version: int) -> list[unspool.types.Region]:
        array = self.arrays[version]
        return [unspool.types.Region("0", str(array.dtype), array.shape, array.nbytes)]

    def achieved(self, version: int) -> dict[str, Any]:
        if version not in self.arrays:
            raise unspool.errors.UnknownVersionError("gone")
        return {"0": SimpleNamespace(stored_bytes=self.arrays[version].nbytes // self._ratio)}


def run(
    path: Path,
    shapes: list[tuple[int, ...]],
    *,
    pace: float = 0.0,
    codec: str = "lossless",
    **more: Any,
) -> tuple[_Spool, accumulate.Watch]:
    """Saves arrays of these shapes; each save takes a little while."""
    spool, watch = _Spool(**more), accumulate.open_profile(path, codec)
    for version, shape in enumerate(shapes):
        _busy(pace)
        spool.raw.append(watch.before_save(spool) == "raw")
        spool.arrays[version] = np.zeros(shape, np.float32)
        watch.after_save(spool, version)
    watch.closing(spool)
    return spool, watch


def _busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_the_first_run_is_recorded_and_the_next_one_follows_it(tmp_path: Path) -> None:
    path, shapes = tmp_path / "run.json", [(100, 100)] * 40
    first, watch = run(path, shapes)
    assert watch.records and not any(first.raw)
    known = Profile.load_from(path)
    assert {one.stored for one in known.checkpoints} == {4000}
    assert known.layouts == ((("0", "float32", (100, 100)),),)
    assert known.cache == 64 << 20 and known.link is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, watch = run(path, shapes)
    assert watch.plan is not None
    assert again.raw == [decision == "raw" for decision in watch.plan.best.decisions]


def test_bytes_of_what_was_discarded_meanwhile_count_as_raw(tmp_path: Path) -> None:
    spool, watch = _Spool(), accumulate.open_profile(tmp_path / "run.json", "lossless")
    for version in range(3):
        watch.before_save(spool)
        spool.arrays[version] = np.zeros(10, np.float32)
        watch.after_save(spool, version)
    del spool.arrays[1]
    watch.finish(spool)
    watch.closing(spool)
    stored = [one.stored for one in Profile.load_from(tmp_path / "run.json").checkpoints]
    assert stored == [4, 40, 4]


SHAPES = [(100, 100)] * 30


@pytest.mark.parametrize(("shapes", "more", "words"), [
    ([*SHAPES[:9], (100, 101), *SHAPES[10:]], {}, r"checkpoint 9 is 0 float32 \(100, 101\)"),
    ([*SHAPES[:9], (10, 1000), *SHAPES[10:]], {}, r"checkpoint 9 is .*, and was 0 float32 \(100"),
    ([*SHAPES, (100, 100)], {}, "there are more than 30 checkpoints"),
    (SHAPES[:20], {}, "there are 20 checkpoints, and were 30"),
    (SHAPES, {"pace": 2e-3}, "the first 16 checkpoints came within"),
    (SHAPES, {"codec": "auto"}, "the codec is auto, and was lossless"),
    (SHAPES, {"cache": 8}, "larger cache"),
    (SHAPES, {"on": "cuda:0"}, "on cuda:0, and was on cpu"),
])  # fmt: skip
def test_a_run_that_differs_is_noticed(
    tmp_path: Path, shapes: list[tuple[int, ...]], more: dict[str, Any], words: str
) -> None:
    path = tmp_path / "run.json"
    run(path, SHAPES)
    with pytest.warns(accumulate.PlanDroppedWarning, match=words) as told:
        _, watch = run(path, shapes, **more)
    assert watch.plan is None and len(told) == 1
    assert len(Profile.load_from(path).checkpoints) == 30


def test_spools_that_follow_one_profile_plan_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    monkeypatch.setattr(
        "unspool.accumulate.watch.plan", lambda *a, **k: plans.append(k) or accumulate.plan(*a, **k)
    )
    path = tmp_path / "run.json"
    run(path, SHAPES)
    followed = [run(path, SHAPES, cache=cache)[1] for cache in (64 << 20, 64 << 20, 32 << 20)]
    assert all(watch.plan is not None for watch in followed)
    assert [known["cache"] for known in plans] == [64 << 20, 32 << 20]


@pytest.mark.parametrize(("on", "keeps"), [("cuda:0", True), ("cpu", False)])
def test_a_host_that_only_enqueues_may_be_ahead_of_its_profile(
    tmp_path: Path, on: str, keeps: bool
) -> None:
    """A profile may have the intervals of the device, which are longer than those of the host."""
    path = tmp_path / "run.json"
    run(path, SHAPES, on=on)
    known = Profile.load_from(path)
    rows = tuple(replace(one, interval=0.1) for one in known.checkpoints)
    replace(known, checkpoints=rows).save_to(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, watch = run(path, SHAPES, on=on)
    assert (watch.plan is not None) == keeps
    assert ["of computing" in str(one.message) for one in told] == [True] * (not keeps)


def test_a_host_that_is_late_drops_the_plan_on_a_gpu_too(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    run(path, SHAPES, on="cuda:0")
    with pytest.warns(accumulate.PlanDroppedWarning, match="the first 16 checkpoints came within"):
        run(path, SHAPES, on="cuda:0", pace=2e-3)


def test_a_profile_in_no_directory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such directory"):
        accumulate.open_profile(tmp_path / "none" / "run.json", "lossless")


def history(path: Path, codec: Any, count: int = 24, size: int = 200) -> list[str]:
    """Saves and restores through a real spool; the codec of each checkpoint."""
    waves = np.random.default_rng(0).normal(size=(size, size)).cumsum(0).astype(np.float32)
    target, used = np.empty_like(waves), []
    spool = unspool.Spool(device_memory="1MiB", host_memory="64MiB", device="cpu", codec=codec)
    with accumulate.Batched(spool, profile=path) as spool:
        for version in range(count):
            spool.save(version, waves)
        used = [spool.achieved(version)["0"].codec for version in range(count)]
        for version in reversed(range(count)):
            spool.restore(version, target)
            assert np.abs(target - waves).max() <= 1e-2 * np.ptp(waves)
            spool.discard(version)
    return used


@pytest.mark.parametrize("codec", ["lossless", unspool.Bound(range=1e-2)])
def test_a_spool_records_a_profile_and_follows_it(tmp_path: Path, codec: Any) -> None:
    path = tmp_path / "run.json"
    assert set(history(path, codec)) == {"twine"}
    known = Profile.load_from(path)
    assert (known.codec, known.device, len(known.checkpoints)) == (repr(codec), "cpu", 24)
    assert all(0 < one.stored < one.raw for one in known.checkpoints)
    with warnings.catch_warnings():
        # How fast this machine is at the moment does not matter here.
        warnings.filterwarnings("ignore", "The plan .*of computing", accumulate.PlanDroppedWarning)
        used = history(path, codec)
    assert set(used) <= {"raw", "twine"} and len(used) == 24
    with pytest.warns(accumulate.PlanDroppedWarning, match=r"checkpoint 0 is 0 float32 \(100, 100"):
        assert history(path, codec, size=100)[1:] == ["twine"] * 23


def test_a_run_that_fails_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    spool = unspool.Spool(host_memory="4MiB", device="cpu", codec="lossless")
    with pytest.raises(ZeroDivisionError), accumulate.Batched(spool, profile=path) as spool:
        spool.save(0, np.zeros((10, 10), np.float32))
        spool.save(1, np.zeros(1 // 0, np.float32))
    assert not path.exists()


def test_a_profile_needs_a_codec(tmp_path: Path) -> None:
    with (
        unspool.Spool(host_memory="1MiB", device="cpu") as spool,
        pytest.raises(OptionError, match="with a codec"),
    ):
        accumulate.Batched(spool, profile=tmp_path / "run.json")


def test_a_spool_that_saves_nothing_leaves_no_profile(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="1MiB", device="cpu", codec="lossless")
    with accumulate.Batched(spool, profile=tmp_path / "run.json"):
        pass
    assert not (tmp_path / "run.json").exists()


def test_threads_may_save_at_the_same_time(tmp_path: Path) -> None:
    spool, watch = _Spool(), accumulate.open_profile(tmp_path / "run.json", "lossless")
    for version in range(3):
        spool.arrays[version] = np.zeros(10, np.float32)
    inside = threading.Event(), threading.Event()

    def other() -> None:
        watch.before_save(spool)
        inside[0].set()
        assert inside[1].wait(60)
        watch.after_save(spool, 1)

    watch.before_save(spool)
    watch.after_save(spool, 0)
    thread = threading.Thread(target=other)
    thread.start()
    assert inside[0].wait(60)
    # This save begins after the other one, and returns before it.
    watch.before_save(spool)
    watch.after_save(spool, 2)
    inside[1].set()
    thread.join()
    watch.closing(spool)
    known = Profile.load_from(tmp_path / "run.json")
    assert len(known.checkpoints) == 3 and known.checkpoints[2].interval == 0.0


def test_two_last_saves_at_the_same_time_drop_the_plan(tmp_path: Path) -> None:
    run(tmp_path / "run.json", [(100, 100)] * 3)
    spool, watch = _Spool(), accumulate.open_profile(tmp_path / "run.json", "lossless")
    for version in range(4):
        spool.arrays[version] = np.zeros((100, 100), np.float32)
    for version in range(3):
        watch.before_save(spool)
        if version < 2:
            watch.after_save(spool, version)
    watch.after_save(spool, 3)
    with pytest.warns(accumulate.PlanDroppedWarning, match="more than 3"):
        watch.after_save(spool, 2)
    assert watch.plan is None


@pytest.mark.parametrize("column", [[1e400], [10**30], [-1], ["x"]])
def test_a_profile_with_impossible_sizes_is_refused(tmp_path: Path, column: list[Any]) -> None:
    found = equal(1).to_dict()
    found["checkpoints"]["raw"] = column
    (tmp_path / "run.json").write_text(json.dumps(found))
    with pytest.raises(ProfileError, match=r"run\.json"):
        Profile.load_from(tmp_path / "run.json")
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(ProfileError):
        Profile.load_from(tmp_path / "run.json")


@pytest.mark.parametrize("ratio", [0, -1, float("nan"), 1e-300, [1.0, 0.0]])
def test_a_ratio_that_is_none_is_refused(ratio: Any) -> None:
    with pytest.raises(OptionError, match="ratio="):
        Profile.of([10, 10], ratio=ratio)


def test_numbers_of_numpy_are_numbers() -> None:
    assert Profile.of([10], ratio=np.float32(2)) == Profile.of([10], ratio=2)


@pytest.mark.parametrize("codec", [None, "twine"])
def test_a_plan_needs_the_cost_of_a_codec(codec: Any) -> None:
    with pytest.raises(OptionError, match="CodecCost is needed"):
        accumulate.plan(equal(2), codec=codec, cache="128MiB", link=25e9)


@pytest.mark.parametrize("arguments", [["--ratio", "1e-300"], ["--rate", "0B"]])
def test_the_command_refuses_what_makes_no_sense(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["accumulate", *arguments]) == 2
    assert arguments[0].strip("-") in capsys.readouterr().err


def test_checkpoints_are_not_held_and_looked_at_at_once() -> None:
    with (
        unspool.Spool(
            host_memory="1MiB",
            codec="lossless",
            debug=unspool.Debug(check_codec=True),
        ) as spool,
        pytest.raises(OptionError, match="leave one of them out"),
    ):
        accumulate.Batched(spool, 4)


def test_all_that_is_cleared_is_recorded_before(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    spool = unspool.Spool(host_memory="4MiB", device="cpu", codec="lossless")
    with accumulate.Batched(spool, profile=path) as batched:
        for version in range(4):
            batched.save(version, np.zeros((100, 100), np.float32))
        batched.clear()
        assert len(batched) == 0
        batched.flush(timeout=5)
    assert all(one.stored < one.raw / 10 for one in Profile.load_from(path).checkpoints)
