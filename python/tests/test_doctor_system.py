"""What files of the system say, and what is there of spools, with made-up files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import unspool
from unspool._doctor.system import settings, spools


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("always [madvise] never", "madvise"), ("always madvise [never]\n", "never"), ("", None)],
)
def test_the_setting_of_huge_pages_is_the_word_in_brackets(
    tmp_path: Path, text: str, chosen: str | None
) -> None:
    pages = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    pages.parent.mkdir(parents=True)
    pages.write_text(text)
    assert settings("/no/lock", tmp_path)["huge_pages"] == chosen


def test_overcommit_is_strict_where_the_system_says_two(tmp_path: Path) -> None:
    assert not settings("/no/lock", tmp_path)["strict_overcommit"]
    overcommit = tmp_path / "proc/sys/vm/overcommit_memory"
    overcommit.parent.mkdir(parents=True)
    overcommit.write_text("2\n")
    assert settings("/no/lock", tmp_path)["strict_overcommit"]


def test_a_lock_that_nobody_has_made_is_not_a_problem_and_a_link_in_its_place_is(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "some.lock"
    assert settings(str(lock))["turns_problem"] is None
    lock.symlink_to("/etc/passwd")
    assert settings(str(lock))["turns_problem"] == "it is a symbolic link"
    lock.unlink()
    lock.touch()
    assert settings(str(lock))["turns_problem"] is None


def test_the_directory_of_an_open_spool_is_alive_and_its_bytes_are_counted(tmp_path: Path) -> None:
    with unspool.Spool(disk=tmp_path) as spool:
        spool.save(1, bytearray(8192))
        spool.flush()
        (found,) = spools(str(tmp_path))
        assert (found.owner, found.pid) == ("alive", os.getpid()) and found.bytes >= 8192
    assert spools(str(tmp_path)) == ()


def test_a_directory_whose_lock_nobody_holds_is_dead_and_stays(tmp_path: Path) -> None:
    dead = tmp_path / "unspool-4000000-0123456789abcdef"
    dead.mkdir()
    assert spools(str(tmp_path))[0].owner == "unknown", "one without a lock"
    (dead / "lock").write_text("process 4000000\n")
    (found,) = spools(str(tmp_path))
    assert (found.owner, found.pid) == ("dead", 4_000_000)
    assert (dead / "lock").exists(), "looking removes nothing"


def test_what_only_looks_like_one_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "unspool-results").mkdir()
    (tmp_path / "unspool-12-short").mkdir()
    (tmp_path / "unspool-12-0123456789abcdef").write_text("a file")
    assert spools(str(tmp_path)) == spools(str(tmp_path / "nothing")) == ()
