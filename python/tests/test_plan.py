"""Plans: what is compared, in which order, what does not fit and why, and the command.

Links are given, so that nothing is measured and every figure is the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import advice, schedules
from unspool.advice import Link, Links, Rate, planning
from unspool.advice.commands import ShownProgress, plan_options
from unspool.advice.planning import problem_of
from unspool.advice.proposals import proposals
from unspool.advice.sizes import tiers_of
from unspool.cli import main

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

LINKS = Links(
    device="cpu",
    tiers=("device", "host", "disk"),
    save=Rate(20e9, 2e-6),
    restore=Rate(20e9, 2e-6),
    links=(
        Link("device", "host", Rate(8e9, 1e-5), Rate(8e9, 1e-5)),
        Link("host", "disk", Rate(1e9, 1e-4), Rate(2e9, 1e-4)),
    ),
)

TIERS: dict[str, Any] = {"device_memory": "8MiB", "host_memory": "32MiB", "disk": "1GiB"}


def planned(steps: int = 100, state: object = MIB, **options: Any) -> unspool.advice.Plan:
    tiers = {name: options.pop(name, TIERS[name]) for name in TIERS}
    tiers = {name: value for name, value in tiers.items() if value is not None}
    names = tuple(name.removesuffix("_memory") for name in tiers)
    links = options.pop("links", LINKS.of(names) if "device" in names else host_links(names))
    return unspool.plan(steps, state, 1e-3, links=links, **tiers, **options)


def host_links(names: tuple[str, ...]) -> Links:
    links = LINKS.links[1:] if "disk" in names else ()
    return Links("cpu", names, LINKS.save, LINKS.restore, links)


@pytest.fixture
def links_file(tmp_path: Path) -> Path:
    file = tmp_path / "links.json"
    LINKS.save_to(file)
    return file


# What a plan says.


def test_the_best_is_the_fastest_and_the_others_follow() -> None:
    plan = planned()
    times = [candidate.seconds for candidate in plan.candidates]
    assert times == sorted(times) and plan.best is plan.candidates[0]
    kinds = {type(candidate.schedule).__name__ for candidate in plan.candidates}
    assert {"StoreAll", "Revolve", "Uniform", "ZCut", "MultiLevel"} <= kinds


def test_every_figure_of_a_candidate_hangs_together() -> None:
    for one in planned().candidates:
        parts = (one.compute_seconds, one.copy_seconds, one.stall_seconds)
        assert one.seconds == pytest.approx(sum(parts), rel=1e-6)
        assert one.forward_steps == 99 + one.recomputed_steps
        assert one.restores >= 99 and one.saves >= 1 and one.peak_copies >= 1
        assert (
            set(one.peak_bytes)
            == set(one.tiers)
            == {name.removesuffix("_memory") for name in one.options}
        )
        assert [(link.fast, link.slow) for link in one.links] == [
            (link.fast, link.slow) for link in LINKS.of(one.tiers).links
        ]
        assert all(one.peak_bytes[name] <= size(name) for name in one.tiers)
        assert one.schedule.counts().advances == one.forward_steps


def size(name: str) -> int:
    return {"device": 8 * MIB, "host": 32 * MIB, "disk": GIB}[name]


def test_schedules_are_written_as_they_are_made() -> None:
    for one in planned().candidates:
        if not isinstance(one.schedule, schedules.MultiLevel):
            again = eval(one.name, vars(schedules).copy())
            assert again.counts() == one.schedule.counts()


def test_a_schedule_that_fits_into_memory_is_not_given_a_disk() -> None:
    found = {one.name: one for one in planned().candidates}
    assert found["Revolve(100, 8)"].tiers == ("device",)
    assert found["Revolve(100, 40)"].options == {"device_memory": 8 * MIB, "host_memory": 32 * MIB}
    assert found["StoreAll(100)"].tiers == ("device", "host", "disk")


def test_with_room_for_everything_nothing_is_computed_again() -> None:
    plan = planned(20, device_memory="64MiB", host_memory=None, disk=None)
    assert plan.best.recomputed_steps == 0
    assert "no step is computed again" in plan.sentence
    assert plan.best.stall_seconds == 0.0


def slow_disk(rate: float) -> Links:
    slow = Link("host", "disk", Rate(rate, 1e-4), Rate(2 * rate, 1e-4))
    return Links("cpu", LINKS.tiers, LINKS.save, LINKS.restore, (LINKS.links[0], slow))


def test_a_slow_disk_makes_computing_again_the_better_choice() -> None:
    plan = planned(links=slow_disk(20e6))
    store_all = next(one for one in plan.candidates if "StoreAll" in one.name)
    assert plan.best.recomputed_steps > 0 and plan.best.seconds < store_all.seconds
    assert plan.best.tiers != ("device", "host", "disk")


def test_what_needs_no_disk_and_is_little_slower_is_named() -> None:
    links = slow_disk(120e6)
    plan = planned(1000, device_memory="16MiB", host_memory="128MiB", disk="2GiB", links=links)
    other = plan.simpler
    assert other is not None and "disk" in plan.best.tiers and "disk" not in other.tiers
    assert plan.best.seconds <= other.seconds <= 1.05 * plan.best.seconds
    assert f"Without the disk tier {other.name} takes" in plan.sentence
    assert planned(20, device_memory="64MiB", host_memory=None, disk=None).simpler is None


def test_what_a_reverse_step_reads_may_be_less_than_a_state() -> None:
    small = planned(60, disk=None, reverse_bytes="256KiB")
    assert "StoreAll(60)" in [one.name for one in small.candidates]
    whole = planned(60, disk=None)
    assert "StoreAll(60)" in [one.name for one in whole.left_out]


def test_a_plan_is_the_same_every_time() -> None:
    assert planned().to_dict() == planned().to_dict()


# What does not fit.


def test_what_does_not_fit_says_what_it_needs_and_what_there_is() -> None:
    plan = planned(1000, disk=None)
    reasons = {one.name: one.reason for one in plan.left_out}
    assert reasons["StoreAll(1000)"] == (
        "does not fit: it keeps up to 999.00 MiB, and device and host together have 40.00 MiB"
    )
    assert "StoreAll(1000)" not in [one.name for one in plan.candidates]


def test_one_state_that_fits_is_enough_for_a_plan() -> None:
    plan = planned(12, device_memory="1MiB", host_memory=None, disk=None)
    assert all(one.peak_copies == 1 for one in plan.candidates)
    assert plan.best.recomputed_steps == sum(range(11))


def test_a_state_that_fits_nowhere_is_an_error_with_both_sizes() -> None:
    with pytest.raises(advice.NoPlanError, match=r"one state has 2\.00 GiB.*tier 1\.00 GiB"):
        planned(10, "2GiB")


def test_one_step_needs_no_copy() -> None:
    plan = planned(1)
    assert plan.best.recomputed_steps == 0 and plan.best.seconds == pytest.approx(1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"steps": 0}, "whole number from 1 to"),
        ({"steps": 10**20}, "whole number from 1 to"),
        ({"steps": 2.5}, "whole number from 1"),
        ({"state": "4G"}, "GiB"),
        ({"reverse_seconds": -1}, "finite number from 0"),
        ({"reverse_seconds": "soon"}, "is not a duration"),
        ({"reverse_bytes": "2MiB"}, "a part of the state"),
        ({"links": LINKS.of(("device",))}, "measured for the tiers device, and"),
        ({"links": "links.json"}, r"links='links.json': give Links, such as Links.load_from"),
        ({"compression": 4}, "compression=4: give a Compression"),
    ],
)
def test_figures_that_make_no_sense_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match=reason):
        planned(**arguments)


def test_times_of_steps_are_seconds_or_durations() -> None:
    problem = unspool.plan(
        10, MIB, "3ms", reverse_seconds=np.float32(0.5), **TIERS, links=LINKS
    ).problem
    assert (problem.step_seconds, problem.reverse_seconds) == (3e-3, 0.5)


# What is proposed and predicted.


def test_numbers_of_slots_lie_between_what_fits_into_the_tiers() -> None:
    tiers = tiers_of(8 * MIB, 32 * MIB, GIB)
    found = proposals(problem_of(2000, MIB, 1e-3), tiers, LINKS)
    slots = [one.need.states for one in found if one.name.startswith("Revolve")]
    assert {8, 32, 40} <= set(slots) and slots == sorted(slots)
    assert 1040 < slots[-1] < 1064  # every state has a head on the disk
    assert any(8 < count < 32 for count in slots) and any(40 < count < 1000 for count in slots)
    assert len({one.name for one in found}) == len(found)


def faked(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[Any]:
    """Puts `answer` into the place of the forecast; what it was asked."""
    asked = []

    def forecast(schedule: Any, job: Any, sample: Any = None) -> Any:
        asked.append((schedule, job))
        return answer(schedule)

    monkeypatch.setattr(planning, "forecast", forecast)
    return asked


def answered(schedule: Any, seconds: float) -> dict[str, Any]:
    counts = schedule.counts()
    return {
        "seconds": seconds,
        "compute_seconds": seconds,
        "copy_seconds": 0.0,
        "save_stall_seconds": 0.0,
        "restore_stall_seconds": 0.0,
        "counts": {name: getattr(counts, name) for name in counts.__dataclass_fields__},
        "peak_bytes": {},
        "link_bytes": [],
        "lead": None,
    }


def test_what_the_core_refuses_is_left_out_with_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(schedule: Any) -> Any:
        if isinstance(schedule, schedules.StoreAll):
            raise unspool.errors.OptionError("the slowest tier has no room")
        return answered(schedule, 1.0)

    faked(monkeypatch, answer)
    plan = planned()
    assert ("StoreAll(100)", "the slowest tier has no room") in [
        (one.name, one.reason) for one in plan.left_out
    ]
    faked(monkeypatch, lambda schedule: answer(schedules.StoreAll(2)))
    with pytest.raises(advice.NoPlanError, match="no room"):
        planned()


def test_what_can_only_be_slower_is_left_out_when_there_is_much_to_predict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "WORK", 0)
    asked = faked(monkeypatch, lambda schedule: answered(schedule, 0.21))
    plan = planned()
    assert 1 <= len(asked) < len(proposals(plan.problem, plan.tiers, plan.links))
    reasons = [one.reason for one in plan.left_out]
    assert reasons and all("slower than the best" in reason for reason in reasons)


def test_a_plan_may_end_before_it_has_looked_at_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = planned()
    asked = faked(monkeypatch, lambda schedule: answered(schedule, 1.0))
    limits = planning.Limits(0, 0)
    plan = planning.make_plan(whole.problem, whole.tiers, whole.links, limits=limits)
    assert len(asked) == len(plan.candidates) == 1
    assert any("was not looked at" in one.reason for one in plan.left_out)


def test_what_a_slow_link_has_to_carry_is_looked_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Link("host", "disk", Rate(1e6), Rate(1e6))
    links = Links("cpu", LINKS.tiers, LINKS.save, LINKS.restore, (LINKS.links[0], slow))
    asked = faked(monkeypatch, lambda schedule: answered(schedule, 1.0))
    planned(links=links)
    order = [schedule for schedule, _ in asked]
    kept = order.index(schedules.StoreAll(100))
    assert kept > order.index(schedules.Revolve(100, 40)), "in memory alone"


def test_fewer_slots_are_proposed_where_a_copy_takes_long() -> None:
    def slots(step: float) -> set[int]:
        problem, tiers = problem_of(100, MIB, step), tiers_of(None, "32MiB", None)
        found = proposals(problem, tiers, host_links(("host",)), ("Revolve",))
        return {one.need.states for one in found}

    assert slots(1e-3) == {32}
    assert slots(1e-5) == {1, 2, 4, 8, 16, 32}


def test_the_forecast_is_asked_in_bytes_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = faked(monkeypatch, lambda schedule: answered(schedule, 1.0))
    planned(100, "1MiB", reverse_bytes="512KiB", reverse_seconds=2e-3)
    job = next(job for schedule, job in asked if isinstance(schedule, schedules.StoreAll))
    assert job["tiers"] == [("device", 8 * MIB), ("host", 32 * MIB), ("disk", GIB)]
    assert (job["state_bytes"], job["reverse_bytes"]) == (MIB, 512 * KIB)
    assert (job["step_seconds"], job["reverse_seconds"]) == (1e-3, 2e-3)
    assert job["links"][1]["flush_rate"] == 1e9 and job["save"] == (20e9, 2e-6)
    assert job["on_gpu"] is False
    assert [link["contention"] for link in job["links"]] == [0.0, 0.0]


# One schedule alone.


def test_one_schedule_is_predicted_on_all_the_tiers_that_are_named() -> None:
    one = advice.predict(schedules.Revolve(100, 6), MIB, 1e-3, **TIERS, links=LINKS)
    assert one.tiers == ("device", "host", "disk") and one.seconds > 0.2
    assert one.forward_steps == schedules.Revolve(100, 6).counts().advances
    listed = advice.predict(list(schedules.Revolve(100, 6)), MIB, 1e-3, **TIERS, links=LINKS)
    assert listed.seconds == pytest.approx(one.seconds)


class Own(schedules.Schedule):
    """A schedule written in Python."""

    steps, slots = 40, 3

    def actions(self) -> Iterator[schedules.Action]:
        return iter(schedules.Revolve(40, 3))


def test_schedules_of_ones_own_are_predicted_as_the_same_ones_of_the_package() -> None:
    known = advice.predict(schedules.Revolve(40, 3), MIB, 1e-3, **TIERS, links=LINKS)
    for own in (Own(), list(Own())):
        one = advice.predict(own, MIB, 1e-3, **TIERS, links=LINKS)
        assert (one.seconds, one.forward_steps) == (known.seconds, known.forward_steps)
    with pytest.raises(unspool.errors.ScheduleError, match="is for 40 steps, not for 39"):
        advice.predict(Own(), MIB, 1e-3, steps=39, **TIERS, links=LINKS)


def test_a_schedule_that_does_not_know_its_steps_is_told() -> None:
    online = schedules.OnlineRevolve(6)
    one = advice.predict(online, MIB, 1e-3, steps=100, **TIERS, links=LINKS)
    assert one.forward_steps == online.counts(100).advances
    with pytest.raises(unspool.errors.OptionError, match="steps=None"):
        advice.predict(online, MIB, 1e-3, **TIERS, links=LINKS)


def test_very_long_schedules_are_predicted_from_shorter_ones() -> None:
    plan = planned(400_000, disk=None)
    revolve = next(one for one in plan.candidates if one.name == "Revolve(400000, 40)")
    assert revolve.forward_steps == revolve.schedule.counts().advances
    assert revolve.seconds > plan.problem.least_seconds(revolve.forward_steps)


def test_a_schedule_that_does_not_fit_cannot_be_predicted() -> None:
    with pytest.raises(unspool.Error, match="room"):
        advice.predict(
            schedules.StoreAll(100), MIB, 1e-3, device_memory="8MiB", links=LINKS.of(("device",))
        )


# More memory.


def test_more_memory_never_makes_the_best_time_worse() -> None:
    plan = planned(200, disk=None)
    rows = advice.what_if(plan)
    assert [(row.tier, row.capacity) for row in rows] == [
        ("device", 4 * MIB),
        ("device", 16 * MIB),
        ("host", 16 * MIB),
        ("host", 64 * MIB),
    ]
    best = {(row.tier, row.capacity): row.best for row in rows}
    twice, half = best["host", 64 * MIB], best["host", 16 * MIB]
    assert twice is not None and half is not None
    assert twice.recomputed_steps < plan.best.recomputed_steps < half.recomputed_steps


def test_half_of_a_tier_may_be_too_little() -> None:
    rows = advice.what_if(planned(10, device_memory="1MiB", host_memory=None, disk=None))
    assert [row.best is None for row in rows] == [True, False]


# Text and JSON.


def test_the_table_has_a_row_for_each_candidate_and_ends_with_advice() -> None:
    plan = planned(disk="50MiB")
    text = str(plan)
    for one in plan.candidates:
        assert text.count(f"\n{one.name} ") == 1
    for one in plan.left_out[:8]:
        assert f"left out: {one.name}: {one.reason}" in text
    assert text.splitlines()[-1] == plan.sentence
    assert plan.sentence.startswith(f"Take {plan.best.name} with Spool(")
    assert all(word in text for word in ("device<>host", "host<>disk", "stall", "again"))


def test_a_plan_is_plain_data_for_json() -> None:
    plan = planned()
    content = json.loads(json.dumps(plan.to_dict()))
    assert content["best"] == content["candidates"][0]["name"] == plan.best.name
    assert content["candidates"][0]["seconds"] == plan.best.seconds
    assert Links.from_dict(content["links"]) == plan.links
    assert content["steps"] == 100 and content["tiers"]["host"] == 32 * MIB


# The command.


def run(*more: str, links: Path | None = None) -> int:
    words = ["plan", "--steps", "100", "--state", "1MiB", "--step-ms", "1"]
    return main([*words, *([] if links is None else ["--links", str(links)]), *more])


def test_the_command_prints_table_advice_and_what_more_memory_buys(
    links_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiers = ["--device-memory", "8MiB", "--host-memory", "32MiB", "--disk-size", "1GiB"]
    assert run(*tiers, "--what-if", links=links_file) == 0
    shown = capsys.readouterr()
    assert "Take " in shown.out and "against now" in shown.out and "host 64.00 MiB" in shown.out
    assert "StoreAll(100)" in shown.out and shown.err == ""


def test_the_command_gives_json_and_keeps_measured_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    words = [
        "--host-memory",
        "8MiB",
        "--disk",
        str(tmp_path),
        "--disk-size",
        "64MiB",
        "--device",
        "cpu",
    ]
    assert run(*words, "--json", "--what-if", "--write-links", str(kept)) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["tiers"] == {"host": 8 * MIB, "disk": 64 * MIB}
    assert {row["tier"] for row in content["what_if"]} == {"host"}
    assert Links.load_from(kept) == Links.from_dict(content["links"])
    assert run(*words, links=kept) == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "needs a place"),
        (["--host-memory", "4G"], "GiB"),
        (["--disk-size", "1GiB"], "cannot be measured: add --disk"),
        (["--disk", "/no/such/directory"], "is not a directory"),
        (["--host-memory", "1MiB", "--reverse-ms", "-1"], "--reverse-ms=-1.0: milliseconds"),
        (["--host-memory", "1MiB", "--links", "/no/such/file"], "/no/such/file"),
        (["--host-memory", "1MiB", "--write-links", "/no/such/file"], "no such directory"),
        (["--host-memory", "1MiB", "--write-links", "/"], "is a directory"),
        (["--host-memory", "1KiB", "--device", "cpu"], "one state has 1.00 MiB"),
        (["--host-memory", "1MiB", "--device", "moon"], "moon"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) in (1, 2)
    shown = capsys.readouterr()
    assert reason in shown.err and shown.err.count("\n") == 1
    assert shown.err.startswith("unspool: ") and shown.out == ""


def test_a_plan_tells_of_each_schedule_that_it_looks_at() -> None:
    names: list[str] = []
    found = planned(50, host_memory="10kB", progress=names.append)
    assert {one.name for one in found.candidates} <= set(names)


def test_the_command_takes_many_steps_as_people_write_them_and_says_what_it_looks_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    plan_options(parser)
    required = ["--state", "1MiB", "--step-ms", "1", "--steps"]
    assert parser.parse_args([*required, "1e9"]).steps == 10**9
    for wrong in ("1.5", "1e-3", "0", "nan", "1e400", "many"):
        with pytest.raises(SystemExit):
            parser.parse_args([*required, wrong])
    capsys.readouterr()
    ShownProgress(10**9).show("Revolve")
    ShownProgress(10).show("StoreAll")
    assert capsys.readouterr().err == "looking at Revolve\n"
