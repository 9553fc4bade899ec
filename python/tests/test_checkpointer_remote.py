"""`unspool.Checkpointer(remote=...)` with a directory: what is there when disks are lost, and jobs
are killed."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors
from unspool._restart.core import RestartCore
from unspool.cli import main

from rank_processes import Pipes, finish, start, tell

SIZE = 3

#: The jobs that are killed; UNSPOOL_TEST_KILLS=1000 runs more.
KILLS = int(os.environ.get("UNSPOOL_TEST_KILLS", "15"))


def opened(path: Path, ranks: Any = None, **options: Any) -> unspool.Checkpointer:
    options = {"every": 1, "host_memory": "4MiB", "device": "cpu", "signals": (), **options}
    return flat.checkpointer(path / "run", ranks=ranks, remote=path / "remote", **options)


def state(step: int, rank: int) -> np.ndarray:
    return np.random.default_rng([step, rank]).random(50_000)


def test_a_run_goes_on_on_another_node(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        assert checkpoints.restore(u=np.zeros(50_000)) is None
        for step in range(1, 6):
            checkpoints.save(step, u=state(step, 0), step=step)
    shutil.rmtree(tmp_path / "run")
    u = np.zeros(50_000)
    with opened(tmp_path) as checkpoints:
        assert checkpoints.latest() == 5
        assert checkpoints.restore(u=u) == 5 and checkpoints.values() == {"step": 5}
        assert (u == state(5, 0)).all()
        copies = checkpoints.copies
        assert copies is not None and copies["steps"][-1] == 5 and copies["copying"] is None
        assert copies["place"] == str(tmp_path / "remote")
    with flat.checkpointer(tmp_path / "run", device="cpu") as alone:
        assert alone.copies is None and alone.restore(u=u) == 5


def test_copies_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(tmp_path) as checkpoints:
        checkpoints.save(300, u=state(300, 0))
    assert main(["ls", str(tmp_path / "remote")]) == 0
    printed = capsys.readouterr().out
    assert "300  1 of 1" in printed and "counts" in printed
    (tmp_path / "remote" / "rank-0000-of-0001" / "step-300.frame").unlink()
    (tmp_path / "remote" / "rank-0000-of-0001" / "step-9.frame").write_bytes(b"something")
    assert main(["ls", str(tmp_path / "remote")]) == 0
    assert "300" not in capsys.readouterr().out


def test_what_is_damaged_here_is_fetched_with_a_warning(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        checkpoints.save(1, u=state(1, 0))
        checkpoints.save(2, u=state(2, 0))
    frames = (tmp_path / "run" / "rank-0000-of-0001" / "data").glob("frame-*")
    # Their names begin with increasing numbers.
    newest = max(frames)
    content = bytearray(newest.read_bytes())
    content[100_000] ^= 1
    newest.write_bytes(content)
    u = np.zeros(50_000)
    with opened(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="Step 2 was damaged here, and was fetched"):
            assert checkpoints.restore(u=u) == 2
        assert (u == state(2, 0)).all()
    with opened(tmp_path) as checkpoints:
        assert (checkpoints.load()["u"] == state(2, 0)).all()


def test_a_copy_that_fails_is_a_warning_and_at_the_end_an_error(tmp_path: Path) -> None:
    checkpoints = opened(tmp_path)
    shutil.rmtree(tmp_path / "remote")
    (tmp_path / "remote").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        checkpoints.save(1, u=state(1, 0))
        checkpoints.flush()
        checkpoints.save(2, u=state(2, 0))
    with pytest.raises(errors.StorageError, match=r"did not reach .*remote"):
        checkpoints.close()
    checkpoints.close()
    (tmp_path / "remote").unlink()
    with opened(tmp_path, on_error="warn") as checkpoints:
        assert checkpoints.latest() == 2
    with opened(tmp_path) as checkpoints:
        assert checkpoints.copies is not None and checkpoints.copies["steps"] == [2]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"remote": "s3://key:secret@bucket/x"}, "more than a bucket and a prefix"),
        ({"remote": "http://host/x"}, "kind of store is not known"),
        ({"remote": "missing/folder"}, "not there"),
    ],
)
def test_places_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.StorageError) as raised:
        flat.checkpointer(tmp_path / "run", device="cpu", **options)
    said = str(raised.value)
    assert "secret" not in said
    if "built without a client of object stores" in said:
        pytest.skip("the extension has no client of object stores: `make test WHOLE=1`")
    assert re.search(why, said)


def test_the_interval_of_copies_is_written_as_the_other_one(tmp_path: Path) -> None:
    with pytest.raises(errors.OptionError, match=r"Copies\.every=.*not a duration"):
        opened(tmp_path, remote_every="10")
    with opened(tmp_path, remote_every=None, keep=9) as checkpoints:
        for step in range(1, 4):
            checkpoints.save(step, u=state(step, 0))
    with opened(tmp_path, remote_every=2) as checkpoints:
        assert checkpoints.copies is not None and checkpoints.copies["steps"] == [3]


def with_partner(ranks: Pipes, path: Path, steps: int) -> None:
    # What is sent to a rank fits into its pipe: all ranks send before they receive.
    u = np.zeros(500)
    with warnings.catch_warnings():
        # All ranks of this test are on one machine.
        warnings.simplefilter("ignore", RuntimeWarning)
        checkpoints = flat.checkpointer(
            path, every=1, host_memory="4MiB", device="cpu", signals=(), ranks=ranks, partner="auto"
        )
    with checkpoints:
        first = checkpoints.restore(u=u) or 0
        assert first == 0 or (u == state(first, ranks.rank)[:500]).all()
        assert first == checkpoints.values().get("step", 0)
        for step in range(first + 1, first + steps + 1):
            checkpoints.save(step, u=state(step, ranks.rank)[:500], step=step)


def test_a_partner_gives_back_what_a_lost_disk_had(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for end in (4, 8):
        assert finish(start(SIZE, with_partner, path, 4)) == [0] * SIZE
        found, _ = RestartCore.listed(path)
        assert [one["step"] for one in found if one["counts"]][-1] == end
        shutil.rmtree(path / f"rank-0001-of-{SIZE:04}")
    assert finish(start(SIZE, with_partner, path, 1)) == [0] * SIZE
    found, _ = RestartCore.listed(path)
    assert [one["step"] for one in found if one["counts"]] == [8, 9]


def work(ranks: Pipes, path: Path, steps: int, told: Path) -> None:
    """A run that goes on from where it was, checks that, and tells which step is in both places."""
    u = np.zeros(50_000)
    with opened(path, ranks, timeout=30.0) as checkpoints:
        before = int(told.read_text()) if told.exists() else 0
        first = checkpoints.restore(u=u) or 0
        whole = first == 0 or (u == state(first, ranks.rank)).all()
        if not whole or first < before:
            told.with_suffix(".wrong").write_text(f"{ranks.rank}: {first} of {before}")
            raise AssertionError
        for step in range(first + 1, first + steps + 1):
            checkpoints.save(step, u=state(step, ranks.rank))
            if step % 3 == 0 and ranks.rank == 0:
                tell(told, max(remote_counting(path), default=0))


def remote_counting(path: Path) -> list[int]:
    """The steps of which all ranks have a manifest and a frame in the remote directory."""
    found: set[int] | None = None
    for rank in range(SIZE):
        folder = path / "remote" / f"rank-{rank:04}-of-{SIZE:04}"
        names = {one.name for one in folder.glob("step-*")}
        steps = {int(name[5:-9]) for name in names if name.endswith(".manifest")}
        steps = {step for step in steps if f"step-{step}.frame" in names}
        found = steps if found is None else found & steps
    return sorted(found or ())


def test_killed_jobs_go_on_from_the_copies_when_disks_are_lost(tmp_path: Path) -> None:
    seed = 23
    drawn = random.Random(seed)
    told = tmp_path / "told"
    for kill in range(KILLS):
        job = start(SIZE, work, tmp_path, 10_000, told)
        time.sleep(drawn.uniform(0.05, 0.5))
        for process in job:
            process.kill()
        finish(job)
        assert not told.with_suffix(".wrong").exists(), f"seed {seed}, job {kill}"
        # A node is lost with its disk, or all of them are.
        lost = range(SIZE) if drawn.random() < 0.3 else [drawn.randrange(SIZE)]
        for rank in lost:
            folder = tmp_path / "run" / f"rank-{rank:04}-of-{SIZE:04}"
            shutil.rmtree(folder, ignore_errors=True)
        acknowledged = int(told.read_text()) if told.exists() else 0
        assert max(remote_counting(tmp_path), default=0) >= acknowledged, f"seed {seed}, job {kill}"
    assert finish(start(SIZE, work, tmp_path, 3, told)) == [0] * SIZE
    found, damaged = RestartCore.listed(tmp_path / "run")
    newest = max(one["step"] for one in found if one["counts"])
    assert damaged == [] and newest > 3
    assert max(remote_counting(tmp_path)) == newest


def test_a_removed_step_does_not_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    u = np.zeros(50_000)
    for step in (1, 2, 3):
        with opened(tmp_path, keep=9) as checkpoints:
            checkpoints.restore(u=u)
            checkpoints.save(step, u=state(step, 0))
    run, place = tmp_path / "run", tmp_path / "remote"
    assert main(["rm", "--keep-copies", str(run), "3"]) == 0
    assert capsys.readouterr().out == "1 checkpoint removed\n"
    with opened(tmp_path, keep=9) as checkpoints:
        assert checkpoints.restore(u=u) == 3
    assert main(["rm", str(run), "2:"]) == 0
    assert capsys.readouterr().out == f"2 checkpoints removed\n2 copies in {place} removed\n"
    with opened(tmp_path, keep=9) as checkpoints:
        assert checkpoints.restore(u=u) == 1 and (u == state(1, 0)).all()
    place.rename(tmp_path / "elsewhere")
    place.write_text("a file")
    assert main(["rm", str(run), "1"]) == 1
    assert "could come back" in capsys.readouterr().err
    with flat.checkpointer(run, device="cpu") as checkpoints:
        assert checkpoints.restore(u=u) == 1
