"""`unspool copy`: what it refuses, what it replaces, and copies of places that were copied to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import _copying, cli, errors

from rank_processes import Pipes, finish, start

COMMANDS = {"ls": (), "verify": (), "export": ("5",), "copy": ("5",)}


def write(path: Path, steps: Any = range(1, 6), **options: Any) -> None:
    options = {
        "every": 1,
        "keep": 9,
        "host_memory": "4MiB",
        "device": "cpu",
        "signals": (),
        **options,
    }
    u = np.zeros(100_000)
    with flat.checkpointer(path, **options) as checkpoints:
        for step in steps:
            u[step * 100] = step
            checkpoints.save(step, u=u, step=step)


def restored(path: Path) -> int | None:
    u = np.zeros(100_000)
    with flat.checkpointer(path, every=1, device="cpu", signals=()) as checkpoints:
        step = checkpoints.restore(u=u)
    assert step is None or u[step * 100] == step
    return step


def counted(path: Path) -> list[int]:
    found = unspool.Checkpointer.parts(path)
    assert (found[0]["u"].nonzero()[0] % 100 == 0).all()
    return [one["step"] for one in _copying.RestartCore.listed(path)[0] if one["counts"]]


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main([str(word) for word in words])
    caught = capsys.readouterr()
    return code, caught.out + caught.err


def linked(path: Path) -> Path:
    link = path.with_name("link")
    link.symlink_to(path)
    return link


def linked_inside(path: Path) -> Path:
    other = path.with_name("other")
    other.mkdir()
    (other / "rank-0000-of-0001").symlink_to(path / "rank-0000-of-0001")
    return other


def relative(path: Path) -> Path:
    return Path(path.name, "..", path.name)


@pytest.mark.parametrize("increments", [False, True])
@pytest.mark.parametrize("name", [lambda path: path, linked, linked_inside, relative])
def test_a_run_is_not_copied_onto_itself_by_any_name(
    name: Any,
    increments: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run"
    write(path, increments=increments)
    for step in ("5", "2", ":"):
        code, said = told(capsys, "copy", path, step, name(path), "--force")
        assert code == 2 and "itself" in said
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        (tmp_path / "link").unlink(missing_ok=True)
    assert counted(path) == [1, 2, 3, 4, 5] and told(capsys, "verify", path)[0] == 0
    assert restored(path) == 5


def test_a_history_is_not_copied_onto_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    with unspool.Spool(device="cpu", disk=unspool.Disk(path, durable=True)) as spool:
        spool.save(3, np.ones(100_000))
    for target in (path, linked(path)):
        code, said = told(capsys, "copy", path, "3", target, "--force")
        assert code == 2 and "itself" in said
    assert told(capsys, "verify", path) == (0, "1 checkpoint read, 0 damaged or missing\n")


def test_a_mount_of_a_run_is_the_run_itself(tmp_path: Path) -> None:
    path, mount = tmp_path / "run", tmp_path / "mount"
    write(path)
    mount.mkdir()
    command = (
        f"mount --bind {path} {mount} && {sys.executable} -m unspool copy {path} 5 {mount} --force"
    )
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", f"{command} || exit 3"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "itself" not in done.stderr and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 3 and "itself" in done.stderr
    assert counted(path) == [1, 2, 3, 4, 5]


def test_what_increments_build_on_is_replaced_with_them_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    write(path)
    write(other, increments=True)
    code, said = told(capsys, "copy", path, "1", other, "--force")
    assert code == 2 and "step 2 is an increment to step 1" in said
    assert counted(other) == [1, 2, 3, 4, 5]
    assert told(capsys, "copy", path, "5", other, "--force")[0] == 0
    assert told(capsys, "copy", path, ":", other, "--force")[0] == 0
    listed = json.loads(told(capsys, "ls", other, "--json")[1])["checkpoints"]
    assert [one["increment_to"] for one in listed] == [[]] * 5
    assert told(capsys, "verify", other)[0] == 0 and restored(other) == 5


def save_alone(ranks: Pipes, path: Path) -> None:
    write(path, (5,), ranks=ranks)


@pytest.mark.parametrize("sizes", [(2, 1), (1, 2)])
def test_checkpoints_of_other_numbers_of_ranks_are_not_mixed(
    sizes: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    for place, size in zip((path, other), sizes, strict=True):
        assert finish(start(size, save_alone, place)) == [0] * size
    for force in ((), ("--force",)):
        code, said = told(capsys, "copy", path, "5", other, *force)
        assert code == 2 and ("ranks" in said or "already" in said)
    assert {path.name for path in other.iterdir()} == {
        f"rank-{rank:04}-of-{sizes[1]:04}" for rank in range(sizes[1])
    }


@pytest.mark.parametrize("fails", ["beside", "in place"])
def test_a_checkpoint_stays_until_its_replacement_is_whole(
    fails: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    write(path)
    write(other)
    add = _copying._add

    def broken(parts: Any, to: Path) -> None:
        if fails == "beside" or to == other:
            raise errors.CapacityError("The disk is full.")
        add(parts, to)

    monkeypatch.setattr(_copying, "_add", broken)
    code, said = told(capsys, "copy", path, "5", other, "--force")
    assert code == 1 and "The disk is full." in said
    if fails == "beside":
        assert counted(other) == [1, 2, 3, 4, 5]
        assert all(child.name.startswith("rank-") for child in other.iterdir())
    else:
        (beside,) = other.glob(".unspool-copy-*")
        assert str(beside) in said and counted(beside) == [5]


def copy_and_die(_: Pipes, path: Path, other: Path, where: str) -> None:
    write = _copying._write

    def dies(target: Path, manifest: bytes) -> None:
        if (target.parents[1] == other) == (where == "in place"):
            os.kill(os.getpid(), signal.SIGKILL)
        write(target, manifest)

    _copying._write = dies
    cli.main(["copy", str(path), "5", str(other), "--force"])


@pytest.mark.parametrize("where", ["beside", "in place"])
def test_a_replacement_that_was_killed_is_finished_by_the_next_copy(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    write(path)
    write(other)
    assert finish(start(1, copy_and_die, path, other, where)) == [-signal.SIGKILL]
    assert counted(other) == ([1, 2, 3, 4] if where == "in place" else [1, 2, 3, 4, 5])
    (beside,) = other.glob(".unspool-copy-*")
    code, said = told(capsys, "ls", other)
    assert code == 0 and str(beside) in said
    with pytest.warns(RuntimeWarning, match="`unspool copy`"):
        flat.checkpointer(other, keep=9, device="cpu", signals=()).close()
    assert told(capsys, "copy", path, "4", other, "--force")[0] == 0
    assert counted(other) == [1, 2, 3, 4, 5] and restored(other) == 5
    assert all(child.name.startswith("rank-") for child in other.iterdir())


def saved(path: Path, value: float) -> None:
    with unspool.Spool(device="cpu", disk=unspool.Disk(path, durable=True)) as spool:
        for version in (1, 2):
            spool.save(version, {"u": np.full(100_000, value * version)})
        spool.flush()


def replace_and_die(_: Pipes, path: Path, other: Path) -> None:
    add = _copying._add

    def dies(parts: Any, to: Path) -> None:
        if to == other:
            with unspool.Spool(device="cpu", disk=unspool.Disk(to, durable=True)) as spool:
                spool.discard(2)
            os.kill(os.getpid(), signal.SIGKILL)
        add(parts, to)

    _copying._add = dies
    cli.main(["copy", str(path), "2", str(other), "--force"])


def test_a_version_that_was_being_replaced_comes_back_with_the_next_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "history", tmp_path / "other"
    saved(path, 1.0)
    saved(other, 3.0)
    assert finish(start(1, replace_and_die, path, other)) == [-signal.SIGKILL]
    assert told(capsys, "copy", path, "1", other, "--force")[0] == 0
    assert not list(other.glob(".unspool-copy-*"))
    with unspool.Spool(device="cpu", disk=unspool.Disk(other, mode="r")) as spool:
        assert spool.versions() == [1, 2]
        assert all((spool.load(version)["u"] == version).all() for version in (1, 2))


def test_a_damaged_checkpoint_replaces_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    write(path, (5,))
    write(other, (5,))
    (frame,) = (path / "rank-0000-of-0001" / "data").glob("frame-*")
    content = bytearray(frame.read_bytes())
    content[len(content) // 2] ^= 1
    frame.write_bytes(content)
    code, said = told(capsys, "copy", path, "5", other, "--force")
    assert code == 1 and "frame-" in said
    assert counted(other) == [5] and restored(other) == 5


def test_copies_are_read_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = tmp_path / "place", tmp_path / "5.npz"
    write(tmp_path / "run", increments=True, remote=place, remote_every=1)
    shutil.rmtree(tmp_path / "run")
    assert "counts" in told(capsys, "ls", place)[1]
    code, said = told(capsys, "verify", place)
    assert code == 0 and "read, 0 damaged" in said
    assert told(capsys, "export", place, "5", "-o", out)[0] == 0
    assert np.load(out)["u"][500] == 5
    assert json.loads(str(np.load(out)["unspool.values"]))["values"] == {"step": 5}
    assert told(capsys, "copy", place, "5", tmp_path / "again")[0] == 0
    assert restored(tmp_path / "again") == 5
    (part,) = unspool.Checkpointer.parts(place)
    assert part.step == 5 and part["u"][500] == 5 and part.small == {"step": 5}
    code, said = told(capsys, "rm", place, "5")
    assert code == 2 and "holds no checkpoints of a run" in said
    # What is there is copied to by a Checkpointer alone.
    code, said = told(capsys, "copy", tmp_path / "again", "5", place, "--force")
    assert code == 2 and "a place of copies" in said


def test_damaged_copies_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "place"
    write(tmp_path / "run", (5,), remote=place)
    (frame,) = place.rglob("*.frame")
    content = bytearray(frame.read_bytes())
    content[len(content) // 2] ^= 1
    frame.write_bytes(content)
    code, said = told(capsys, "verify", place)
    assert code == 1 and "rank 0, step 5" in said and "1 damaged" in said
    assert told(capsys, "export", place, "5", "-o", tmp_path / "5.npz")[0] == 1
    assert told(capsys, "copy", place, "5", tmp_path / "again")[0] == 1
    assert unspool.Checkpointer.parts(place)[0].step == 5
    with pytest.raises(errors.CorruptCheckpointError):
        dict(unspool.Checkpointer.parts(place)[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_holds_nothing_is_said_to_hold_nothing(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"export": ("-o", tmp_path / "x.npz"), "copy": (tmp_path / "to",)}.get(command, ())
    code, said = told(capsys, command, tmp_path, *COMMANDS[command], *more)
    assert code == 2 and "holds no durable checkpoints" in said


def test_an_address_is_no_folder_to_copy_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "run", (5,))
    code, said = told(capsys, "copy", tmp_path / "run", "5", "s3://bucket/run")
    assert code == 2 and "copy writes to a folder" in said


def test_the_place_of_copies_is_not_the_folder_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for remote in (tmp_path / "run", tmp_path / "link"):
        with pytest.raises(errors.OptionError, match="the folder of the run itself"):
            write(tmp_path / "run", remote=remote)
    assert not (tmp_path / "run").exists()
