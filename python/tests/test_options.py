"""Options: sizes as people write them, tiers in every combination, errors with advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool._arrays import device_for


def capacity(size: object) -> int | None:
    with unspool.Spool(host_memory=size) as spool:
        return spool.stats().tiers[0].capacity


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("64KiB", 64 << 10),
        ("1MiB", 1 << 20),
        ("1 MB", 1_000_000),
        ("1.5 MB", 1_500_000),
        ("0.25mib", 1 << 18),
        ("1_000kB", 1_000_000),
        (" 65536 B ", 65536),
        (1 << 20, 1 << 20),
        (1e6, 1_000_000),
        (np.int64(65536), 65536),
    ],
)
def test_sizes_are_read_as_they_are_meant(size: object, count: int) -> None:
    assert capacity(size) == pytest.approx(count, abs=4096)


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        ("4G", "GiB"),
        ("512", "512B"),
        ("much", "KiB"),
        ("", "unit"),
        ("-1GB", "number"),
        ("99999999 PiB", "64 bits"),
        (0, "leave it out"),
        ("0GB", "leave it out"),
        (-5, "MiB"),
        (1.5, "MiB"),
        (float("nan"), "MiB"),
        (True, "MiB"),
        (2**70, "MiB"),
        ([1], "MiB"),
    ],
)
def test_what_is_no_size_is_refused_with_advice(size: object, advice: str, tmp_path: Path) -> None:
    for options in ({"device_memory": size}, {"host_memory": size}, {"disk": (tmp_path, size)}):
        with pytest.raises(unspool.errors.OptionError) as refusal:
            unspool.Spool(**options)
        assert advice in str(refusal.value) and next(iter(options)) in str(refusal.value)
    assert issubclass(unspool.errors.OptionError, ValueError)


def test_every_combination_of_tiers_keeps_what_is_saved(tmp_path: Path) -> None:
    tiers = {"device_memory": "1MiB", "host_memory": "1MiB", "disk": tmp_path}
    for chosen in range(1, 8):
        options = {name: tiers[name] for bit, name in enumerate(tiers) if chosen >> bit & 1}
        with unspool.Spool(**options) as spool:
            names = [name.removesuffix("_memory") for name in options]
            assert [tier.name for tier in spool.stats().tiers] == names
            for version in range(4):
                spool.save(version, np.full(100, version))
            for version in reversed(range(4)):
                assert (spool.load(version) == version).all()


@pytest.mark.parametrize("place", ["a disk", "memory", "nothing"])
def test_a_spool_without_tiers_takes_main_memory_and_a_disk_if_there_is_one(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Path("/dev/shm")
    if place == "memory" and not memory.is_dir():
        pytest.skip("no /dev/shm")
    named = {"a disk": tmp_path, "memory": memory, "nothing": tmp_path / "missing"}[place]
    monkeypatch.setenv("TMPDIR", str(named))
    with unspool.Spool() as spool:
        tiers = {tier.name: tier for tier in spool.stats().tiers}
        assert 'host_memory="auto"' in tiers["host"].notes[0]
        disk = tiers.get("disk")
        if disk is not None:
            wanted = str(tmp_path) if place == "a disk" else "/var/tmp"
            assert disk.location.startswith(wanted) and disk.capacity
            assert "no tier was given" in disk.notes[0]
        spool.save(1, np.arange(9.0))
        assert (spool.load(1) == np.arange(9.0)).all()


def test_a_disk_is_a_path_a_pair_or_an_object(tmp_path: Path) -> None:
    for disk, limit in [
        (str(tmp_path), None),
        (str(tmp_path).encode(), None),
        (tmp_path, None),
        ((tmp_path, "1MiB"), 1 << 20),
        (unspool.Disk(tmp_path), None),
        (unspool.Disk(str(tmp_path), capacity="1MiB"), 1 << 20),
        (unspool.Disk(tmp_path, capacity=1 << 20, durable=False), 1 << 20),
    ]:
        with unspool.Spool(disk=disk) as spool:
            assert spool.stats().tiers[-1].capacity == limit
            spool.save(0, np.arange(3))
            assert (spool.load(0) == np.arange(3)).all()


@pytest.mark.parametrize("disk", [3, (), ("a",), ("a", 1, 2), "", object()])
def test_what_is_no_disk_is_refused_with_advice(disk: object) -> None:
    with pytest.raises(unspool.errors.OptionError, match=r"unspool\.Disk"):
        unspool.Spool(disk=disk)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"durable": "no"}, r"Disk\(durable='no'\).*True or False"),
        ({"durable": 1}, r"Disk\(durable=1\).*True or False"),
        ({"durable": None}, r"Disk\(durable=None\).*True or False"),
        ({"mode": "w"}, r"Disk\(mode='w'\).*\"r\""),
        ({"mode": 3}, r"Disk\(mode=3\).*\"r\""),
        ({"permissions": "0o640"}, r"Disk\(permissions='0o640'\).*0o640"),
        ({"permissions": 0o4755}, r"Disk\(permissions=2541\).*0o640"),
        ({"permissions": 0o100}, r"Disk\(permissions=64\).*0o640"),
    ],
)
def test_an_argument_of_a_disk_that_makes_no_sense_is_named(
    options: dict[str, object], advice: str, tmp_path: Path
) -> None:
    with pytest.raises(unspool.errors.OptionError, match=advice):
        unspool.Spool(disk=unspool.Disk(tmp_path, **options))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_path_is_refused_and_not_created(tmp_path: Path) -> None:
    for durable in (False, True):
        disk = unspool.Disk(tmp_path / "scrtach" / "run", durable=durable)
        with pytest.raises(unspool.errors.StorageError, match="scrtach does not exist"):
            unspool.Spool(disk=disk)
        with pytest.raises(unspool.errors.StorageError, match="there is no such directory"):
            unspool.Spool(disk=unspool.Disk(tmp_path / "scrtach", mode="r"))
    assert list(tmp_path.iterdir()) == []
    with unspool.Spool(disk=tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(unspool.errors.StorageError, match=str(tmp_path)) as failure:
        unspool.Spool(disk=tmp_path / "file" / "below")
    assert isinstance(failure.value, OSError)


def test_unknown_options_are_refused_with_the_known_ones() -> None:
    with pytest.raises(unspool.errors.OptionError, match="device_memory") as refusal:
        unspool.Spool(host_memory="1MiB", polcy="lru")
    assert "polcy" in str(refusal.value) and isinstance(refusal.value, TypeError)


@pytest.mark.parametrize("policy", ["score", "lru", "fifo", "belady"])
def test_every_policy_serves_every_order(policy: str, tmp_path: Path) -> None:
    with unspool.Spool(
        host_memory="64KiB", disk=tmp_path, debug=unspool.Debug(policy=policy)
    ) as spool:
        for version in range(40):
            spool.save(version, np.full(1000, version))
        order = [*reversed(range(40)), *range(40)]
        spool.expect(order)
        for version in order:
            assert (spool.load(version) == version).all()


def test_values_that_make_no_sense_are_refused() -> None:
    for options, advice in [
        ({"debug": unspool.Debug(policy="random")}, "score, lru, fifo or belady"),
        ({"timeout": 0.0}, "seconds"),
        ({"timeout": -1.0}, "seconds"),
        ({"timeout": float("inf")}, "seconds"),
        ({"timeout": float("nan")}, "seconds"),
        ({"debug": unspool.Debug(record=3)}, "path"),  # type: ignore[arg-type]
        ({"debug": True}, "unspool.Debug"),
    ]:
        with pytest.raises(unspool.errors.OptionError, match=advice):
            unspool.Spool(host_memory="1MiB", **options)
    with pytest.raises(TypeError):
        unspool.Spool(host_memory="1MiB", timeout="long")
    with pytest.raises(TypeError):
        unspool.Spool("1MiB", None, None, True)


@pytest.mark.parametrize(
    ("to", "device", "place"),
    [
        ("torch", "cuda:1", 1),
        ("torch", "cuda", 2),
        ("torch", "cpu", None),
        ("jax", "cuda:0", 0),
        ("jax", "cpu", None),
        ("cupy", "cuda:3", 3),
        ("numpy", "cpu", None),
    ],
)
def test_new_arrays_are_made_where_they_are_wanted(to: str, device: str, place: int | None) -> None:
    assert device_for(to, device, 2) == place


@pytest.mark.parametrize(
    ("to", "device"), [("cupy", "cpu"), ("numpy", "cuda"), ("numpy", "cuda:0")]
)
def test_arrays_are_not_made_where_their_library_has_none(to: str, device: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match="never there"):
        device_for(to, device, 0)


@pytest.mark.parametrize("name", ["learn", "timeout", "verify", "device", "shrink_ok"])
def test_an_option_of_another_type_is_named(name: str) -> None:
    with pytest.raises(unspool.errors.OptionError, match=f"{name}=.*'list'"):
        unspool.Spool(host_memory="1MiB", **{name: []})


def test_an_argument_of_another_type_is_named() -> None:
    with unspool.Spool(host_memory="1MiB") as spool:
        for name, call in {
            "once": lambda: spool.expect([1], once="now"),
            "to": lambda: spool.load(1, to=3),
            "device": lambda: spool.load(1, device=3),
            "to=": lambda: spool.reading(1, to=3),
            "versions": lambda: spool.expect(3),
            "last": lambda: spool.expect([1], last=7),
        }.items():
            with pytest.raises(unspool.errors.OptionError, match=name) as raised:
                call()
            assert isinstance(raised.value, TypeError)
