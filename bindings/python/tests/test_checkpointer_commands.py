"""`unspool ls`, `verify` and `rm` on the folder of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool import cli


def run(path: Path, *steps: int) -> unspool.Checkpointer:
    checkpoints = unspool.Checkpointer(path, host="16MiB", on="cpu", signals=(), keep=5)
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
        assert header.split() == ["step", "ranks", "bytes", "durable", "after", "written"]
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


def test_the_commands_of_histories_say_where_they_are_in_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", 100).close()
    code, _, told = command(capsys, "export", tmp_path / "run", tmp_path / "out")
    assert code == 2 and "name the `data` folder of a rank" in told
    data = tmp_path / "run" / "rank-0000-of-0001" / "data"
    assert command(capsys, "export", data, tmp_path / "out")[0] == 0
    assert (np.load(tmp_path / "out" / "100.npz")["u"] == 100).all()
