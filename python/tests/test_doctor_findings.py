"""Each fault of a made-up machine is found, and none of a good one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unspool._doctor import Diagnosis, Finding, facts, libraries
from unspool._doctor.findings import judge

GIB = 1 << 30


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed beside the tests is not a finding here."""
    monkeypatch.setattr(libraries, "_version", lambda package: None)


def speeds(alone: float, both_each: float) -> Any:
    return facts(
        {
            "device_to_host": alone,
            "host_to_device": alone,
            "both_each": both_each,
            "within_device": 1.2e12,
        }
    )


def machine(part: str = "", **changed: Any) -> Diagnosis:
    """A machine on which nothing is to be found, but for what changed in one of its parts."""
    device = {
        "ordinal": 0,
        "free": 78 * GIB,
        "total": 80 * GIB,
        "maps_in_pieces": True,
        "start_seconds": 0.3,
        "speeds": speeds(55e9, 48e9),
        "pins_are_locked": False,
        "problem": None,
    }
    host = {
        "free": 120 * GIB,
        "limit": "the machine",
        "locked_soft": 8 << 20,
        "huge_pages": "madvise",
        "strict_overcommit": False,
        "turns": "/dev/shm/x.lock",
        "turns_problem": None,
    }
    disk = {
        "directory": "/scratch",
        "file_system": "xfs",
        "medium": "local",
        "free": 900 * GIB,
        "direct": True,
        "direct_problem": None,
        "io_uring_problem": None,
        "write": 1.5e9,
        "read": 2.9e9,
        "spools": [],
        "problem": None,
    }
    cuda = {"version": (13, 0), "path": "/usr/lib/libcuda.so.580.82.07", "problem": None}
    nvrtc = {"version": (13, 0), "problem": None}
    parts = {"device": device, "host": host, "disk": disk, "cuda": cuda, "nvrtc": nvrtc}
    if part:
        assert changed.keys() <= parts[part].keys()
        parts[part].update(changed)
    made = {name: facts(figures) for name, figures in parts.items()}
    devices = (made.pop("device"),) if made["cuda"].version else ()
    made.pop("device", None)
    return Diagnosis(
        version="0",
        kernels="none came with this build",
        compiled_on=(0,),
        automatic_device=None,
        automatic_host="",
        libraries={},
        devices=devices,
        **made,
    )


def one(part: str, **changed: Any) -> Finding:
    """The only finding after a change to a good machine."""
    (found,) = judge(machine(part, **changed))
    assert found.what and found.meaning and found.remedy
    return found


def test_on_a_good_machine_nothing_is_found() -> None:
    assert judge(machine()) == ()


def test_a_compiler_is_not_missed_where_kernels_were_shipped_for_every_device() -> None:
    without = machine("nvrtc", problem="It is nowhere.", version=None)
    assert judge(replace(without, compiled_on=())) == ()


def test_without_cuda_only_that_is_found_and_neither_kernels_nor_turns_are_missed() -> None:
    without = machine("cuda", version=None, path=None, problem="no CUDA driver")
    without.nvrtc.problem, without.host.turns_problem = "nowhere", "denied"
    (found,) = judge(without)
    assert (found.level, found.about) == ("missing", "CUDA") and "no CUDA driver" in found.what
    assert "nvidia-smi" in found.remedy and 'device="cpu"' in found.remedy


def test_a_device_that_does_not_start_is_worse_than_one_that_cannot_be_measured() -> None:
    dead = one("device", free=None, speeds=None, start_seconds=None, problem="exclusive.")
    assert (dead.level, dead.about) == ("missing", "device 0")
    odd = one("device", speeds=None, problem="out of memory.")
    assert odd.level == "poor" and "could not be measured: out of memory." in odd.what


def test_a_slow_link_names_what_may_be_the_cause() -> None:
    found = one("device", speeds=speeds(3e9, 2e9))
    assert found.level == "poor" and "3.0 GB/s; 10.0 GB/s and more are usual" in found.what
    for cause in ("nothing else uses the link", "numactl", "lanes", "IOMMU"):
        assert cause in found.remedy
    assert judge(machine("device", speeds=speeds(12e9, 11e9))) == ()


def test_directions_that_hinder_each_other_are_noted() -> None:
    found = one("device", speeds=speeds(55e9, 27e9))
    assert found.level == "note"
    assert "27.0 GB/s while the other one runs, and 55.0 GB/s alone" in found.what


def test_the_limit_on_locked_memory_counts_only_where_pinning_counts() -> None:
    assert "8.00 MiB can be locked" in one("device", pins_are_locked=True).what
    unlimited = machine("device", pins_are_locked=True)
    unlimited.host.locked_soft = None
    assert judge(unlimited) == ()


@pytest.mark.parametrize(
    ("part", "changed", "level", "said"),
    [
        ("cuda", {"path": "/x/libfake.so"}, "note", "/x/libfake.so stands for the driver"),
        ("nvrtc", {"problem": "It is nowhere.", "version": None}, "missing", "It is nowhere."),
        ("nvrtc", {"version": (14, 0)}, "poor", "CUDA 14.0 and the driver of CUDA 13.0"),
        ("device", {"maps_in_pieces": False}, "missing", "mapped in pieces"),
        ("device", {"free": 300 << 20}, "poor", "300.00 MiB of 80.00 GiB"),
        ("device", {"start_seconds": 9.0}, "poor", "9.0 s to start"),
        ("host", {"free": 100 << 20}, "poor", "100.00 MiB are free, by the machine"),
        ("host", {"huge_pages": "never"}, "poor", "huge pages are switched off"),
        ("host", {"strict_overcommit": True}, "note", "vm.overcommit_memory"),
        ("host", {"turns_problem": "denied"}, "poor", "/dev/shm/x.lock cannot be used: denied"),
        ("disk", {"medium": "memory", "file_system": "tmpfs"}, "poor", "main memory (tmpfs)"),
        ("disk", {"medium": "remote", "file_system": "nfs"}, "note", "another machine (nfs)"),
        (
            "disk",
            {"medium": "remote", "file_system": "fuse"},
            "note",
            "lies most likely on another",
        ),
        ("disk", {"direct": False, "direct_problem": "EINVAL."}, "poor", "EINVAL."),
        ("disk", {"free": 5}, "poor", "Only 5 B are free"),
        ("disk", {"write": 9e7, "read": 3e8}, "poor", "writes 90 MB/s and reads 300 MB/s"),
        ("disk", {"io_uring_problem": "EPERM."}, "note", "io_uring does not work: EPERM."),
    ],
)
def test_what_is_missing_or_poor_is_found(
    part: str, changed: dict[str, Any], level: str, said: str
) -> None:
    found = one(part, **changed)
    assert found.level == level and said in found.what


def test_remedies_name_the_commands() -> None:
    assert "empty_cache" in one("device", free=0).remedy
    assert "persistence mode" in one("device", start_seconds=9.0).remedy
    assert "echo madvise >" in one("host", huge_pages="never").remedy


def test_of_a_directory_that_cannot_be_used_nothing_else_is_said() -> None:
    found = one("disk", problem="denied", free=0, medium="memory", write=None, read=None)
    assert found.level == "missing"


def test_memory_that_cannot_do_direct_output_is_found_once() -> None:
    found = one("disk", medium="memory", direct=False, direct_problem="EINVAL.")
    assert "main memory" in found.what


def test_what_dead_processes_left_is_counted_and_what_is_in_use_is_not() -> None:
    dead, alive, unknown = (
        {"owner": owner, "bytes": GIB, "pid": 1} for owner in ("dead", "alive", "unknown")
    )
    found = one("disk", spools=[dead, alive, dead])
    assert "left 2 directories of spools there: 2.00 GiB" in found.what
    assert "For 1 directories" in one("disk", spools=[unknown]).what


def test_the_worst_comes_first() -> None:
    bad = machine("nvrtc", problem="It is nowhere.")
    bad.host.strict_overcommit, bad.host.huge_pages = True, "never"
    assert [finding.level for finding in judge(bad)] == ["missing", "poor", "note"]
