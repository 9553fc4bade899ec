"""Forecasts: what the extension takes and gives. What they predict is tested in the core."""

from __future__ import annotations

import math
from typing import Any

import pytest
from unspool import _unspool, errors
from unspool._unspool import ScheduleCore

MB = 1_000_000


def job(**changes: Any) -> dict[str, Any]:
    return {
        "tiers": [("device", 8 * MB), ("host", 40 * MB), ("disk", None)],
        "links": [
            {"flush_rate": 1e10, "prefetch_rate": 1e10, "flush_latency": 1e-6},
            {"flush_rate": 1e9, "prefetch_rate": 2e9, "prefetch_latency": 1e-4},
        ],
        "state_bytes": MB,
        "step_seconds": 1e-3,
        "save": (1e10, 0.0),
        "restore": (1e10, 0.0),
        "lookahead": 64,
        "on_gpu": True,
    } | changes


def parts(found: dict[str, Any]) -> float:
    names = "compute_seconds", "copy_seconds", "save_stall_seconds", "restore_stall_seconds"
    return sum(found[name] for name in names)


def test_the_parts_of_the_answer_add_up() -> None:
    found = _unspool.forecast(ScheduleCore.revolve(100, 12), job())
    assert found["seconds"] == pytest.approx(parts(found))
    assert found["counts"]["reverses"] == 100
    assert found["compute_seconds"] == pytest.approx((found["counts"]["advances"] + 100) * 1e-3)
    assert set(found["peak_bytes"]) == {"device", "host", "disk"}
    assert len(found["link_bytes"]) == 2
    assert sum(found["restores_from"].values()) == found["counts"]["restores"]


def test_a_device_that_holds_all_copies_causes_no_stall() -> None:
    found = _unspool.forecast(
        ScheduleCore.store_all(50), job(tiers=[("device", 60 * MB)], links=[])
    )
    assert found["save_stall_seconds"] == found["restore_stall_seconds"] == 0
    assert found["seconds"] == pytest.approx(99e-3 + 98e-4)
    assert found["lead"][1] > 0


def test_parts_of_the_state_are_all_that_a_reverse_step_needs() -> None:
    found = _unspool.forecast(ScheduleCore.store_all(50), job(reverse_bytes=MB // 4))
    assert found["copy_seconds"] == pytest.approx(98e-4 / 4)


def test_a_slowdown_is_that_of_all_links_together() -> None:
    def predicted(**changes: Any) -> dict[str, Any]:
        return _unspool.forecast(ScheduleCore.store_all(80), job(on_gpu=False, **changes))

    assert predicted(slowdown=1.5) == predicted(contention=0.25)
    assert predicted(contention=[0.25, 0.25]) == predicted(contention=0.25)
    assert predicted(contention=[0.4, 0.1])["seconds"] > predicted(contention=[0.1, 0.1])["seconds"]
    assert predicted(slowdown=1.5)["seconds"] > predicted()["seconds"]


def test_what_does_not_fit_is_told_with_its_bytes() -> None:
    tiers = [("device", 8 * MB), ("host", 10 * MB)]
    with pytest.raises(errors.CapacityError, match="host, has room for 10000000"):
        links = job()["links"][:1]
        _unspool.forecast(ScheduleCore.store_all(100), job(tiers=tiers, links=links))


def test_an_online_schedule_needs_its_steps() -> None:
    with pytest.raises(errors.ScheduleError, match="number of steps"):
        _unspool.forecast(ScheduleCore.online_revolve(5), job())
    found = _unspool.forecast(ScheduleCore.online_revolve(5), job(steps=40))
    assert found["counts"]["reverses"] == 40


def test_a_long_schedule_is_forecast_from_a_sample() -> None:
    whole, sample = ScheduleCore.store_all(300_000), ScheduleCore.store_all(3000)
    with pytest.raises(errors.ScheduleError, match="actions"):
        _unspool.forecast(whole, job())
    found = _unspool.forecast(whole, job(), sample)
    part = _unspool.forecast(sample, job())
    assert found["counts"]["saves"] == 299_999
    assert found["seconds"] == pytest.approx(100 * part["seconds"], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lookahead": None}, "lookahead"),
        ({"step_seconds": -1.0}, "not negative"),
        ({"save": (0.0, 0.0)}, "above zero"),
        ({"save": (1e9, -1.0)}, "latency"),
        ({"restore": (1e9, math.nan)}, "latency"),
        ({"contention": [0.1]}, "2 links"),
        ({"tiers": [("shelf", 1)], "links": []}, "shelf"),
        ({"tiers": [], "links": []}, "tiers"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.OptionError, match=message):
        _unspool.forecast(ScheduleCore.store_all(5), job(**changes))


def test_a_forecast_leaves_the_schedule_where_it_is() -> None:
    schedule = ScheduleCore.revolve(30, 4)
    first = _unspool.forecast(schedule, job())
    assert _unspool.forecast(schedule, job()) == first
