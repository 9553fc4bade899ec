"""`unspool ls`, `verify`, `rm`, `export` and `copy` on the folder of a run."""

from __future__ import annotations

import json
from pathlib import Path

import flat
import numpy as np
import pytest
import unspool
from unspool import cli

from rank_processes import Pipes, finish, start


def run(path: Path, *steps: int) -> unspool.Checkpointer:
    checkpoints = flat.checkpointer(path, host_memory="16MiB", device="cpu", signals=(), keep=5)
    for step in steps:
        checkpoints.save(step, u=np.full(100_000, step), time=0.5)
    checkpoints.flush()
    return checkpoints


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_checkpoints_of_a_run_are_listed_while_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run(tmp_path / "run", 100, 200):
        code, told, _ = command(capsys, "ls", tmp_path / "run")
        assert code == 0
        header, *rows = told.splitlines()
        assert header.split() == ["step", "ranks", "bytes", "durable", "after", "written", "age"]
        assert all(row.split()[-2].rstrip(",") == "s" for row in rows)
        assert [row.split()[0] for row in rows] == ["100", "200"]
        assert all("1 of 1" in row and row.endswith("counts") for row in rows)
        code, told, _ = command(capsys, "ls", tmp_path / "run", "--json", "--versions", "150:")
        assert code == 0
        (one,) = json.loads(told)["checkpoints"]
        assert (one["step"], one["ranks"], one["counts"]) == (200, 1, True)
        assert one["nbytes"] == 800_000


def test_every_part_is_read_by_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", 100, 200).close()
    code, told, _ = command(capsys, "verify", tmp_path / "run")
    assert (code, told) == (0, "2 parts of 2 steps read, 0 damaged or missing\n")
    data = tmp_path / "run" / "rank-0000-of-0001" / "data"
    frames = sorted(data.glob("frame-*"), key=lambda frame: int(frame.name.split("-")[1]))
    content = bytearray(frames[1].read_bytes())
    content[500_000] ^= 1
    frames[1].write_bytes(content)
    frames[0].unlink()
    code, told, _ = command(capsys, "verify", tmp_path / "run")
    assert code == 1
    assert "rank 0 of 1, step 100: " in told and "rank 0 of 1, step 200: " in told
    assert told.endswith("2 parts of 2 steps read, 2 damaged or missing\n")
    code, told, _ = command(capsys, "verify", tmp_path / "run", "--json")
    assert code == 1 and len(json.loads(told)["damaged"]) == 2


def test_a_checkpoint_is_removed_when_no_process_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = run(tmp_path / "run", 100, 200, 300)
    code, _, told = command(capsys, "rm", tmp_path / "run", "300")
    assert code == 1 and "in use" in told
    checkpoints.close()
    code, told, _ = command(capsys, "rm", tmp_path / "run", "250:,100")
    assert (code, told) == (0, "2 checkpoints removed\n")
    u = np.zeros(100_000, int)
    with run(tmp_path / "run") as checkpoints:
        assert checkpoints.restore(u=u) == 200 and u[0] == 200
        checkpoints.save(300, u=u)
    code, _, told = command(capsys, "rm", tmp_path / "run", "7")
    assert code == 2 and "there is no version '7'" in told
    code, _, told = command(capsys, "rm", tmp_path, "7")
    assert code == 2 and "holds no checkpoints of a run" in told


def work(ranks: Pipes, path: Path) -> None:
    """A run of several ranks, of which the last one lacks the last step."""
    with flat.checkpointer(
        path, host_memory="4MiB", device="cpu", ranks=ranks, keep=9
    ) as checkpoints:
        for step in (100, 200, 300):
            checkpoints.save(step, u=np.full(3, step + ranks.rank), tree={"a": [np.ones(2), 1]})
    if ranks.rank:
        (path / "rank-0001-of-0002" / "step-300.manifest").unlink()


def test_all_ranks_of_a_checkpoint_are_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish(start(2, work, tmp_path / "run")) == [0, 0]
    out = tmp_path / "{step}.npz"
    code, told, err = command(capsys, "export", tmp_path / "run", ":", "-o", out)
    assert (code, told, err) == (0, f"2 checkpoints written to {out}\n", "")
    found = np.load(tmp_path / "200.npz")
    assert sorted(found) == [
        f"rank-000{rank}/{name}"
        for rank in (0, 1)
        for name in ("tree/a/0", "u", "unspool.tree", "unspool.values")
    ]
    assert (found["rank-0001/u"] == 201).all()
    code, _, err = command(capsys, "export", tmp_path / "run", "300", "-o", tmp_path / "x.npz")
    assert code == 2 and "there is no version '300'" in err
    run(tmp_path / "alone", 100).close()
    assert command(capsys, "export", tmp_path / "alone", "100", "-o", tmp_path / "1.npz")[0] == 0
    found = np.load(tmp_path / "1.npz")
    assert sorted(found) == ["u", "unspool.values"] and (found["u"] == 100).all()
    assert json.loads(str(found["unspool.values"]))["values"] == {"time": 0.5}


def test_a_copied_checkpoint_counts_and_is_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish(start(2, work, tmp_path / "run")) == [0, 0]
    to = tmp_path / "copy"
    code, told, _ = command(capsys, "copy", tmp_path / "run", "200", to)
    assert (code, told) == (0, f"1 checkpoint copied to {to}\n")
    for part, before in zip(
        unspool.Checkpointer.parts(to), unspool.Checkpointer.parts(tmp_path / "run"), strict=True
    ):
        assert (part.step, part.rank, part.ranks) == (200, before.rank, 2)
        assert (part["u"] == before["u"]).all() and part["tree"]["a"][1] == 1
    assert command(capsys, "verify", to)[0] == 0
    assert finish(start(2, again, to)) == [0, 0]
    code, _, err = command(capsys, "copy", tmp_path / "run", "100:", to)
    assert code == 2 and "has 200 already" in err
    assert command(capsys, "copy", tmp_path / "run", "100:", to, "--force")[0] == 0
    code, told, _ = command(capsys, "ls", to, "--json")
    assert [one["step"] for one in json.loads(told)["checkpoints"] if one["counts"]] == [
        100,
        200,
        250,
    ]


def again(ranks: Pipes, path: Path) -> None:
    u = np.zeros(3, int)
    with flat.checkpointer(
        path, host_memory="4MiB", device="cpu", ranks=ranks, keep=9
    ) as checkpoints:
        assert checkpoints.restore(u=u) == 200 and (u == 200 + ranks.rank).all()
        checkpoints.save(250, u=u)


def test_a_run_that_goes_on_is_not_copied_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", 100).close()
    with run(tmp_path / "other", 100):
        words = ("copy", tmp_path / "run", "100", tmp_path / "other", "--force")
        code, _, err = command(capsys, *words)
        assert code == 1 and "in use" in err
        # What is there counts as before.
        assert "1 of 1" in command(capsys, "ls", tmp_path / "other")[1]
    with unspool.Spool(
        device="cpu", disk=unspool.Disk(tmp_path / "history", durable=True)
    ) as spool:
        spool.save(1, np.zeros(3))
    for one, other in (("history", "run"), ("run", "history")):
        code, _, err = command(capsys, "copy", tmp_path / one, ":", tmp_path / other)
        assert code == 2 and "is the folder of a run" in err and "is a history" in err
