"""Links of a plan: sizes as a spool takes them, figures that can be kept, and the probe.

The probe is only asked for figures above zero and an end: nothing is asserted about speeds.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import unspool
from unspool.advice import Link, Links, LinksError, Rate, measure_links, measuring, probe
from unspool.advice.probe import Probe, Span, _shares, busy_seconds, rate_of
from unspool.advice.sizes import OPTIONS, Tiers, bytes_of, tiers_of

from helpers import children

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

#: Longer than any probe may take here, in seconds: the machine may be busy.
LONG = 60.0


def made(**changes: object) -> Links:
    rate = Rate(1e9, 1e-6)
    links = (Link("device", "host", rate, rate, 0.5), Link("host", "disk", rate, Rate(5e8, 1e-4)))
    fields = {"device": "cpu", "tiers": ("device", "host", "disk"), "save": rate, "restore": rate}
    return Links(**{**fields, "links": links, **changes})


# Sizes and tiers.


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (4096, 4096),
        (4e9, 4_000_000_000),
        ("512MiB", 512 * MIB),
        ("1.5 GB", 1_500_000_000),
        (" 1_000 kB ", 1_000_000),
        (".5KiB", 512),
        ("0.1GB", 100_000_000),
        ("7b", 7),
    ],
)
def test_sizes_are_those_of_a_spool(value: object, count: int) -> None:
    assert bytes_of("host", value) == count


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("4G", "GiB"),
        ("4", "4B"),
        ("", "not a size"),
        ("much", "not a size"),
        ("-1GB", "not a size"),
        ("1 furlong", "MiB"),
        (0, "from 1 byte"),
        (-4096, "from 1 byte"),
        (2.5, "not a size"),
        (True, "not a size"),
        (None, "not a size"),
    ],
)
def test_what_is_no_size_is_refused_by_a_plan_and_by_a_spool(value: object, reason: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match=reason):
        bytes_of("host", value)
    if value is not None:
        with pytest.raises(unspool.errors.OptionError):
            unspool.Spool(host_memory=value, device="cpu")


def test_a_disk_is_a_place_or_a_size_or_both(tmp_path: Path) -> None:
    place = str(tmp_path)
    both = Tiers({"disk": 10 * GIB}, place)
    assert tiers_of(None, None, (tmp_path, "10GiB")) == both
    assert tiers_of(None, None, unspool.Disk(place, "10GiB")) == both
    assert both.options() == {"disk": (place, 10 * GIB)}
    somewhere = tiers_of(None, "1GiB", "200GiB")
    assert somewhere == Tiers({"host": GIB, "disk": 200 * GIB})
    assert somewhere.options()["disk"] == ("DIRECTORY", 200 * GIB)
    free = tiers_of(None, None, tmp_path)
    assert tiers_of(None, "1GiB", None, "cpu").options() == {"host_memory": GIB, "device": "cpu"}
    assert free.free and free.capacity["disk"] > 0 and free.options() == {"disk": place}


def test_automatic_sizes_are_those_that_a_spool_would_take() -> None:
    capacity = tiers_of(None, "auto", None, "cpu").capacity
    with unspool.Spool(host_memory="auto", device="cpu") as spool:
        taken = spool.stats().tiers[0].capacity
    assert taken is not None and 0.5 < capacity["host"] / taken < 2


def test_tiers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for disk in (tmp_path / "nothing", (tmp_path, "1GiB", 3), 1.5, object()):
        with pytest.raises(unspool.errors.OptionError):
            tiers_of(None, None, disk)
    with pytest.raises(unspool.errors.OptionError, match="at least one"):
        tiers_of(None, None, None)


def test_a_checkpoint_takes_aligned_bytes_and_a_head_on_disk() -> None:
    memory = Tiers({"host": 1000})
    assert memory.room("host", 100, on_gpu=False) == 128
    assert memory.room("host", 100, on_gpu=True) == 256
    assert memory.slots("host", 100, on_gpu=False) == 7
    spilled = Tiers({"host": 8192, "disk": 16384})
    assert [spilled.room(name, 5000, False) for name in ("host", "disk")] == [8192, 12288]
    assert spilled.first(1) == Tiers({"host": 8192})
    assert spilled.resized("host", 4096).capacity == {"host": 4096, "disk": 16384}


# Links.


def test_links_survive_a_file(tmp_path: Path) -> None:
    links = made(first_touch=3e-10, checkpoint_bytes=MIB, seconds=1.5)
    file = tmp_path / "links.json"
    links.save_to(file)
    assert Links.load_from(file) == links
    assert children(tmp_path) == ["links.json"]
    assert Links.from_dict(json.loads(json.dumps(links.to_dict()))) == links


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"unspool_links": 1}', '{"unspool_links": 2, "on": "cpu"}']
)
def test_files_of_another_kind_are_no_links(tmp_path: Path, text: str) -> None:
    file = tmp_path / "links.json"
    file.write_text(text)
    with pytest.raises(LinksError, match=r"links\.json"):
        Links.load_from(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", None),
        ("device", 7),
        ("device", "moon"),
        ("tiers", ["host"]),
        ("tiers", [1]),
        ("tiers", ["host", "device"]),
        ("tiers", None),
        ("first_touch", -1),
        ("checkpoint_bytes", "x"),
        ("checkpoint_bytes", None),
        ("seconds", "x"),
        ("save", {"bytes_per_second": 10**400}),
        ("save", {"bytes_per_second": 0.0}),
        ("save", {"bytes_per_second": float("nan")}),
        ("save", {"bytes_per_second": 1e9, "latency": -1}),
        ("save", {"bytes_per_second": "fast"}),
        ("save", {"speed": 1}),
        ("save", 3),
        ("links", [3]),
        ("links", []),
    ],
)
def test_links_that_someone_wrote_wrongly_are_refused(name: str, value: object) -> None:
    with pytest.raises(LinksError, match="incomplete or changed"):
        Links.from_dict({**made().to_dict(), name: value})


def test_a_link_slows_computing_by_a_share() -> None:
    with pytest.raises(unspool.errors.OptionError, match="contention=-1"):
        Link("host", "disk", Rate(1e9), Rate(1e9), -1)


def test_links_of_more_tiers_hold_for_the_fastest_of_them() -> None:
    links = made()
    assert links.of(("device", "host")).tiers == ("device", "host")
    assert links.of(("device",)).links == ()
    with pytest.raises(
        unspool.errors.OptionError, match="measured for the tiers device, host, disk"
    ):
        links.of(("host", "disk"))


def test_the_way_to_a_tier_goes_through_those_before_it() -> None:
    links = made(save=Rate(2e9), restore=Rate(4e9))
    assert links.write_seconds("device", 10**9) == pytest.approx(0.5)
    assert links.write_seconds("disk", 10**9) == pytest.approx(0.5 + 1.0 + 1.0, abs=1e-3)
    assert links.read_seconds("disk", 10**9) == pytest.approx(0.25 + 1.0 + 2.0, abs=1e-3)
    with pytest.raises(unspool.errors.OptionError, match="no tier 'remote'"):
        links.read_seconds("remote", 1)


def test_links_print_every_movement() -> None:
    text = str(made(first_touch=1e-9))
    for part in ("application -> device", "disk -> host", "0.50 GB/s", "for the first time"):
        assert part in text


# What traces say.


def test_workers_of_one_lane_share_its_time() -> None:
    spans = [Span("a-b", 1, 100, 0.0, 2.0), Span("a-b", 2, 100, 1.0, 3.0)]
    spans += [Span("a-b", 3, 100, 9.0, 10.0), Span("b-a", 4, 5, 0.0, 9.0)]
    assert busy_seconds(spans[:3]) == 4.0
    assert rate_of(spans, lambda span: span.lane == "a-b") == 75.0
    assert rate_of(spans, lambda span: span.lane == "c-d") is None


# The probe.


@pytest.mark.parametrize(
    "names", [("host",), ("disk",), ("device", "host"), ("host", "disk"), ("device", "disk")]
)
def test_the_probe_measures_every_direction_and_leaves_nothing(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    options = {OPTIONS[name]: tmp_path if name == "disk" else "1GiB" for name in names}
    begin = time.perf_counter()
    links = unspool.advice.measure_links(
        **options, device="cpu", checkpoint_bytes="1MiB", limit=0.5
    )
    assert time.perf_counter() - begin < LONG
    assert (links.device, links.tiers) == ("cpu", names)
    assert links.checkpoint_bytes <= MIB and links.seconds > 0
    rates = [links.save, links.restore]
    rates += [rate for link in links.links for rate in (link.flush, link.prefetch)]
    assert len(rates) == 2 * len(names)
    assert all(rate.bytes_per_second > 0 for rate in rates)
    assert all(link.contention >= 0.0 for link in links.links) and links.first_touch >= 0.0
    assert children(tmp_path) == []


def test_the_application_can_lend_its_own_computing(tmp_path: Path) -> None:
    calls = []
    links = unspool.advice.measure_links(
        host_memory="1GiB",
        disk=tmp_path,
        device="cpu",
        checkpoint_bytes="1MiB",
        limit=0.5,
        work=lambda: calls.append(time.perf_counter()),
        arrays=3,
    )
    assert calls and links.links[0].contention >= 0.0


def test_checkpoints_are_no_larger_than_the_time_allows() -> None:
    small = Probe(Tiers({"host": GIB}), 256 * KIB, 256 * KIB, 1.0)
    small.moved, small.seconds = 10 * MIB, 1.0
    assert measuring._affordable(small, 32 * MIB, left=60.0) == 8 * MIB
    assert measuring._affordable(small, 32 * MIB, left=0.1) == 256 * KIB
    assert measuring._affordable(small, 32 * MIB, left=-1.0) == 256 * KIB


def test_a_disk_without_a_place_cannot_be_measured() -> None:
    with pytest.raises(unspool.errors.OptionError, match="no directory to measure"):
        unspool.advice.measure_links(host_memory="1GiB", disk="200GiB", device="cpu")
    with pytest.raises(unspool.errors.OptionError, match="limit=0"):
        unspool.advice.measure_links(host_memory="1GiB", device="cpu", limit=0)
    with pytest.raises(unspool.errors.OptionError, match="limit='soon'"):
        measure_links(host_memory="1GiB", device="cpu", limit="soon")  # type: ignore[arg-type]
    with pytest.raises(unspool.errors.OptionError, match="arrays=0"):
        unspool.advice.measure_links(host_memory="1GiB", device="cpu", arrays=0)
    with pytest.raises(unspool.errors.OptionError, match="work=3: that is not a function"):
        unspool.advice.measure_links(host_memory="1GiB", work=3)  # type: ignore[arg-type]
    with pytest.raises(unspool.errors.OptionError, match="checkpoint_bytes"):
        unspool.advice.measure_links(host_memory="1GiB", device="cpu", checkpoint_bytes="4G")


def test_each_link_has_its_own_part_in_what_slows_computing() -> None:
    both, disk = (True, True), (False, True)
    assert _shares(2, 1.0, {both: [2.0], disk: [1.25]}) == [0.75, 0.25]
    assert _shares(2, 1.0, {both: [2.0]}) == [0.5, 0.5]
    assert _shares(2, 1.0, {both: [0.5], disk: [100.0]}) == [0.0, 2.0]
    assert _shares(1, 1.0, {}) == [0.0]


def test_two_readings_give_a_rate_and_a_latency() -> None:
    rate = measuring._line((1000, 0.003), (101_000, 0.103))
    assert rate.bytes_per_second == pytest.approx(1e6)
    assert rate.latency == pytest.approx(0.002)
    # Noise: the larger one took less time.
    assert measuring._line((1000, 0.5), (101_000, 0.1)) == Rate(1.01e6)


def test_the_probe_restores_when_every_link_has_prefetched_or_time_is_up() -> None:
    class Slow:
        asked = 0

        def stats(self) -> SimpleNamespace:
            self.asked += 1
            moved = [int(self.asked > 2), int(self.asked > 4)]
            links = [SimpleNamespace(prefetch=SimpleNamespace(transfers=one)) for one in moved]
            return SimpleNamespace(links=links)

    slow: Any = Slow()
    probe._wait_until_prefetched(slow, math.inf)
    assert slow.asked == 5
    never: Any = Slow()
    probe._wait_until_prefetched(never, time.perf_counter())
    assert never.asked == 0
