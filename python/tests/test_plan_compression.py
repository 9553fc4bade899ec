"""Plans for spools with a codec: what is asked, what is assumed, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import Bound, advice, schedules
from unspool.advice import Compression, Link, Links, Rate
from unspool.advice.coding import GIVEN, MEASURED, ON_CPU, ON_GPU
from unspool.cli import main

MIB = 1 << 20

LINKS = Links(
    device="cpu",
    tiers=("device", "host"),
    save=Rate(20e9, 2e-6),
    restore=Rate(20e9, 2e-6),
    links=(Link("device", "host", Rate(0.5e9, 1e-5), Rate(0.5e9, 1e-5)),),
)

ON_A_GPU = replace(LINKS, device="cuda:0")

TIERS: dict[str, Any] = {"device_memory": "8MiB", "host_memory": "32MiB"}

#: The speed of a codec that is not the bottleneck.
FAST = Rate(100e9)

WAVE = np.sin(np.linspace(0, 60, 1 << 18, dtype="f4")).reshape(512, 512)


def planned(**options: Any) -> unspool.advice.Plan:
    return unspool.plan(100, MIB, 1e-3, **{"links": LINKS, **TIERS, **options})


def store_all(**options: Any) -> advice.Candidate:
    return advice.predict(schedules.StoreAll(30), MIB, 1e-3, **{"links": LINKS, **TIERS, **options})


def test_what_fits_only_when_it_is_compressed_is_planned() -> None:
    assert "StoreAll(100)" in [one.name for one in planned().left_out]
    plan = planned(compression=Compression(10, Rate(10e9), Rate(10e9)))
    assert plan.best.recomputed_steps == 0 and plan.best.seconds < planned().best.seconds
    one = next(one for one in plan.candidates if one.name == "StoreAll(100)")
    assert one.peak_bytes["device"] <= 8 * MIB
    assert plan.problem.state_held == MIB // 10 and plan.problem.slots(plan.tiers, LINKS) > 300


def test_the_links_carry_what_is_stored_and_the_codec_takes_its_time() -> None:
    raw, coded = store_all(), store_all(compression=Compression(4, Rate(2e9), Rate(4e9)))
    assert coded.links[0].flushed <= raw.links[0].flushed / 4
    copies = 29 * (MIB / 2e9 + MIB / 4e9)
    assert coded.copy_seconds == pytest.approx(copies, rel=0.01)
    assert coded.stall_seconds < raw.stall_seconds


def test_a_slow_codec_is_no_bargain() -> None:
    rates = (Rate(10e9), Rate(0.01e9))
    fast, slow = (store_all(compression=Compression(4, rate, rate)) for rate in rates)
    assert slow.seconds > store_all().seconds > fast.seconds


def test_a_ratio_of_one_at_the_speed_of_copies_changes_little() -> None:
    same = store_all(compression=Compression(1, LINKS.save, LINKS.restore))
    assert same.seconds == pytest.approx(store_all().seconds, rel=0.05)


def test_a_state_needs_room_for_all_of_it_while_it_is_encoded() -> None:
    codec = Compression(8, Rate(1e10), Rate(1e10))
    one = planned(compression=codec, device_memory="2MiB", host_memory=None, links=LINKS.first(1))
    # A MiB is kept free, and eight states lie in the other; one more takes the place of the last.
    assert one.problem.slots(one.tiers, one.links) == 9
    assert all(found.peak_copies <= 9 for found in one.candidates)


@pytest.mark.parametrize(("links", "usual"), [(LINKS, ON_CPU), (ON_A_GPU, ON_GPU)])
def test_speeds_that_are_not_given_are_assumed_and_that_is_said(
    links: Links, usual: tuple[Rate, Rate]
) -> None:
    plan = planned(compression=Compression(10), links=links)
    found = plan.problem.compression
    assert found is not None and (found.encode, found.decode) == usual
    assert found.sources[0] == GIVEN and all("assumed" in one for one in found.sources[1:])
    assert "a ratio of 10 (given); encoder" in str(plan) and "(assumed: Twine on" in str(plan)
    half = planned(compression=Compression(10, Rate(1e9)), links=links).problem.compression
    assert half is not None and half.encode == Rate(1e9) and half.sources[1] == GIVEN
    assert half.decode == usual[1] and "assumed" in half.sources[2]


def test_a_sample_gives_the_ratio_and_the_codec_of_the_spool() -> None:
    bound = Bound(range=1e-3)
    tried = Compression.of(bound, WAVE)
    plan = planned(compression=tried)
    found = plan.problem.compression
    assert found is not None and found.ratio == unspool.codecs.encode(WAVE, bound).ratio
    assert found.sources == (MEASURED, MEASURED, MEASURED) and found.encode.bytes_per_second > 1
    assert plan.best.options["codec"] == bound and f"codec={bound!r}" in plan.sentence
    on_gpu = planned(compression=tried, links=ON_A_GPU).problem.compression
    assert on_gpu is not None and on_gpu.encode == ON_GPU[0] and "H100" in on_gpu.sources[1]


def test_noise_is_stored_as_it_is() -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype="u4")
    assert Compression.of("lossless", noise).ratio == 1.0


def test_the_plan_stays_plain_data() -> None:
    plan = planned(compression=Compression.of("lossless", WAVE))
    content = json.loads(json.dumps(plan.to_dict()))
    assert content["compression"]["ratio"] > 1 and content["compression"]["codec"] == "lossless"
    assert content["compression"]["sources"]["encode"] == MEASURED
    assert content["candidates"][0]["options"]["codec"] == "lossless"
    assert planned().to_dict()["compression"] is None


def test_more_memory_is_judged_with_the_codec() -> None:
    codec = Compression(4, Rate(1e10), Rate(1e10))
    rows = advice.what_if(planned(compression=codec, host_memory=None, links=LINKS.first(1)))
    best = {row.capacity: row.best for row in rows}
    less, more = best[4 * MIB], best[16 * MIB]
    assert less is not None and more is not None
    assert more.recomputed_steps < less.recomputed_steps


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ratio": 0.5}, "ratio=0.5: a finite number from 1"),
        ({"ratio": float("nan")}, "finite number from 1"),
        ({"ratio": True}, "finite number from 1"),
        ({"ratio": "4"}, "finite number from 1"),
        ({"ratio": 4, "encode": "500 GB/s"}, "encode='500 GB/s': give a Rate"),
        ({"ratio": 4, "decode": 0}, "decode=0: give a Rate in bytes of the arrays per second"),
        ({"ratio": 4, "decode": True}, "decode=True: give a Rate"),
        ({"ratio": 4, "codec": unspool.codecs.Zfp(rate=8)}, "its speed is not known here"),
        ({"ratio": 4, "codec": 1e-3}, "is not a codec"),
        ({"ratio": 4, "encode": FAST, "decode": FAST, "codec": "gzip"}, "gzip"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(unspool.errors.OptionError, match=reason):
        Compression(**options)


@pytest.mark.parametrize(
    ("codec", "sample", "reason"),
    [
        ("auto", WAVE, "chooses for the saves of a spool"),
        ("lossless", WAVE[:0], "has to have bytes"),
        (None, WAVE, 'tries a codec, such as "lossless"'),
    ],
)
def test_a_codec_that_cannot_be_tried_is_refused(codec: Any, sample: Any, reason: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match=reason):
        Compression.of(codec, sample)


def test_another_codec_is_planned_with_speeds() -> None:
    plan = planned(compression=Compression(4, FAST, FAST, unspool.codecs.Zfp(rate=8)))
    assert plan.best.options["codec"] == unspool.codecs.Zfp(rate=8)


def test_the_speed_of_another_codec_on_a_gpu_is_not_that_of_the_cores() -> None:
    tried = Compression.of(unspool.codecs.Zfp(rate=8), WAVE)
    assert planned(compression=tried).problem.compression is not None
    with pytest.raises(unspool.errors.OptionError, match="its speed is not known here"):
        planned(compression=tried, links=ON_A_GPU)


# The command.


def run(tmp_path: Path, *more: str) -> int:
    links = tmp_path / "links.json"
    LINKS.save_to(links)
    tiers = [word for name, size in TIERS.items() for word in (f"--{name.replace('_', '-')}", size)]
    words = ["plan", "--steps", "100", "--state", "1MiB", "--step-ms", "1", "--links", str(links)]
    return main([*words, *tiers, *more])


def test_the_command_takes_a_ratio_and_speeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--ratio", "10", "--encode", "5 GB/s", "--decode", "6e9 B/s") in (1, 2)
    assert "decode" in capsys.readouterr().err
    assert run(tmp_path, "--ratio", "10", "--encode", "5 GB/s", "--decode", "6 GB/s") == 0
    shown = capsys.readouterr().out
    assert "a ratio of 10 (given); encoder 5 GB/s, decoder 6 GB/s (given)" in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--encode", "5 GB/s"], "--encode says nothing of how small"),
        (["--ratio", "4", "--encode", "500 GB"], 'a speed is written as "500 GB/s"'),
        (["--ratio", "4", "--encode", "5 apples/s"], "apples"),
        (["--ratio", "0.5"], "ratio=0.5"),
    ],
)
def test_the_command_refuses_a_codec_that_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], reason: str
) -> None:
    assert run(tmp_path, *options) == 2
    assert reason in capsys.readouterr().err
