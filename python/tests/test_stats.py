"""The figures of a spool: right, immutable, readable, and ready for a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import unspool


def busy_spool(path: Path) -> unspool.stats.Stats:
    with unspool.Spool(host_memory="64KiB", disk=path) as spool:
        for version in range(40):
            spool.save(version, np.zeros(1000))
        spool.expect(reversed(range(40)), once=True)
        for version in reversed(range(40)):
            spool.load(version)
    return spool.stats()


def test_the_figures_count_what_was_done(tmp_path: Path) -> None:
    stats = busy_spool(tmp_path)
    assert (stats.saves, stats.saved_bytes) == (40, 40 * 8000)
    assert (stats.restores, stats.restored_bytes) == (40, 40 * 8000)
    assert stats.hinted_restores == 40 and stats.hints == 0
    assert stats.discards == 40 and stats.checkpoints == 0
    host, disk = stats.tiers
    assert (host.name, disk.name) == ("host", "disk")
    assert host.capacity == 64 << 10 and disk.capacity is None
    assert str(tmp_path) in disk.location
    assert 0 < host.peak <= host.capacity and host.evictions > 0
    assert host.restores + disk.restores == 40
    (link,) = stats.links
    assert (link.fast, link.slow) == ("host", "disk")
    assert link.flush.transfers > 0 and link.flush.busy_seconds > 0
    assert link.flush.failed == link.flush.retried == 0 and link.last_failure is None


def test_figures_do_not_change(tmp_path: Path) -> None:
    stats = busy_spool(tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.saves = 0
    with unspool.Spool(host_memory="1MiB") as spool:
        before = spool.stats()
        spool.save(0, np.zeros(3))
        assert before.saves == 0 and spool.stats().saves == 1 and spool.stats() == spool.stats()


def test_figures_go_into_a_file(tmp_path: Path) -> None:
    stats = busy_spool(tmp_path)
    read = json.loads(json.dumps(stats.to_dict()))
    assert read["tiers"][0]["evictions"] == stats.tiers[0].evictions
    assert read["links"][0]["flush"]["bytes"] == stats.links[0].flush.bytes


def test_figures_are_shown_as_a_table(tmp_path: Path) -> None:
    shown = str(busy_spool(tmp_path))
    rows = [line.split() for line in shown.splitlines() if line]
    assert ["save", "40", "312.50", "KiB"] in [row[:4] for row in rows]
    assert ["host", "64.00", "KiB"] in [row[:3] for row in rows]
    assert ["host", "->", "disk"] in [row[:3] for row in rows]
    assert max(map(len, shown.splitlines())) <= 120


def test_a_long_history_is_shown_with_separators() -> None:
    lead = unspool.stats.Lead(min=1, median=2_000, max=3_000, mean=1234.5)
    stall = unspool.stats.Stall(call="save", version=7, seconds=0.25, awaited="room in host")
    moved = unspool.stats.DirectionStats(
        transfers=1_500,
        bytes=3 << 30,
        busy_seconds=2.0,
        cancelled=1,
        failed=2,
        retried=3,
        in_flight=4,
        bytes_per_second=1.6e9,
    )
    stats = unspool.stats.Stats(
        saves=1_234_567,
        saved_bytes=5 << 40,
        restores=0,
        restored_bytes=0,
        save_stall_seconds=1234.0,
        restore_stall_seconds=2e-9,
        longest_stall=stall,
        prefetch_lead=lead,
        hinted_restores=1,
        hints=2,
        discards=3,
        checkpoints=4,
        dropped_spans=5,
        notes=("the disk is slow",),
        tiers=(),
        links=(unspool.stats.LinkStats("host", "disk", moved, moved, 6, "no space"),),
        codec=unspool.stats.CodecStats(
            raw_bytes=9 << 30,
            ratio=9.0,
            codecs=(
                unspool.stats.CodecUse(
                    "twine", 1234, 5, 9 << 30, 1 << 30, 9.0, 99, 1.25e-3, 1e-4, 7, 0.25, 0.5
                ),
                unspool.stats.CodecUse("raw", 3, 0, 9, 9, 1.0, 0, 0.0, 0.0, 0, 0.0, 0.0),
            ),
        ),
        auto=unspool.stats.AutoStats(
            stays=7,
            keeps_up=0,
            not_worth_it=2_000,
            chosen=1_500,
            tried=2,
            ratio=2.5,
            encode_seconds=1e-3,
            decode_seconds=5e-4,
            latest="it costs least",
        ),
    )
    shown = str(stats)
    for part in (
        "1,234,567",
        "5.00 TiB",
        "1,234 s",
        "2 ns",
        "250 ms in save(7), waiting for room in host",
        "median 2,000",
        "1.61 GB/s",
        "note: the disk is slow",
        "twine   1,234  9.00 GiB  1.00 GiB   9.00    0.00125         7  250 ms  500 ms",
        "no space",
        "as it is: not worth it      2,000      -      -       -       -",
        "lossless                    1,500      2   2.50    1 ms  500 us",
        "latest: it costs least",
    ):
        assert part in shown
    assert "keeps up" not in shown


def test_figures_are_json_that_every_reader_takes(tmp_path: Path) -> None:
    tiers = {"host_memory": "1MiB", "disk": tmp_path, "codec": unspool.Bound(abs=1e-3)}
    with unspool.Spool(**tiers) as spool:
        fresh = json.dumps(spool.stats().to_dict(), allow_nan=False)
        spool.save(1, np.array([1.0, np.inf, np.nan]))
        spool.load(1)
        used = json.loads(json.dumps(spool.stats().to_dict(), allow_nan=False))
    assert json.loads(fresh)["saves"] == 0 and used["saves"] == used["restores"] == 1
    assert used["tiers"][0]["name"] == "host"
