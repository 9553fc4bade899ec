"""`unspool ls`, `verify`, `export`, `copy` and `clean`, on directories that runs have left."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from unspool import cli

from helpers import python


@dataclasses.dataclass
class State:
    u: Any
    step: int


def keep(path: Path) -> list[Path]:
    """A history of five checkpoints, each in a file of its own; gives the files."""
    with unspool.Spool(device="cpu", disk=unspool.Disk(path, durable=True)) as spool:
        spool.save(-1, np.arange(10_000.0))
        spool.save(2, {"u": np.ones((300, 400), "f4"), "t": 0.5, "w": [np.zeros(2), "text"]})
        spool.save(3, np.arange(10_000), np.zeros(2, [("a", "i4"), ("b", "f8")]))
        spool.save(10, State(np.arange(10_000), 10))
        spool.save(11, u=np.zeros(100_000), v=np.ones(3))
    return sorted(path.glob("frame-*"))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def unspool_command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_what_is_there_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path)
    code, out, err = unspool_command(capsys, "ls", tmp_path)
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 7)
    assert lines[1].split() == ["-1", "78.12", "KiB", "78.12", "KiB", "float64[10000]"]
    assert "u float32[300, 400]  w/0 float64[2]  (tree)" in lines[2]
    assert lines[-1].startswith("5 checkpoints, 1.45 MiB")
    code, out, _ = unspool_command(capsys, "ls", tmp_path, "--json", "--versions", "11")
    found = json.loads(out)
    assert found["directory"] == str(tmp_path) and found["lost"] == {}
    assert [array["name"] for array in found["checkpoints"][0]["arrays"]] == ["u", "v"]
    assert found["checkpoints"][0]["nbytes_stored"] == 800_024


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("3", [3]),
        ("10:", [10, 11]),
        (":3", [-1, 2]),
        ("-1,10:20", [-1, 10, 11]),
        ("::3", [-1, 2, 11]),
        ("3:12:7", [3, 10]),
    ],
)
def test_versions_are_chosen_as_python_chooses(
    text: str, versions: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path)
    code, out, _ = unspool_command(capsys, "verify", tmp_path, "--json", f"--versions={text}")
    assert (code, json.loads(out)["checked"]) == (0, versions)


@pytest.mark.parametrize("text", ["4", "x", "1:2:3:4", "2:3:0", "", "20:30"])
def test_versions_that_are_none_are_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path)
    code, out, err = unspool_command(capsys, "ls", tmp_path, f"--versions={text}")
    assert (code, out) == (2, "") and repr(text)[1:-1] in err and err.count("\n") == 1


def test_damage_is_found_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = keep(tmp_path)
    assert unspool_command(capsys, "verify", tmp_path)[:2] == (
        0,
        "5 checkpoints read, 0 damaged or missing\n",
    )
    flip(files[0], 9)
    flip(files[4], 8192)
    files[2].unlink()
    code, out, err = unspool_command(capsys, "verify", tmp_path)
    assert (code, err) == (1, "")
    for version, file in ((-1, files[0]), (3, files[2]), (11, files[4])):
        assert any(
            line.startswith(f"version {version}: ") and str(file) in line
            for line in out.splitlines()
        )
    assert out.endswith("3 checkpoints read, 3 damaged or missing\n")
    found = json.loads(unspool_command(capsys, "ls", tmp_path, "--json")[1])
    assert list(found["lost"]) == ["-1", "3"]


def test_checkpoints_are_exported_as_npz(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path / "history")
    out = tmp_path / "a" / "b"
    words: list[object] = ["export", tmp_path / "history"]
    code, told, _ = unspool_command(capsys, *words, ":", "-o", out / "{step}.npz")
    assert (code, told) == (0, f"5 checkpoints written to {out}/{{step}}.npz\n")
    assert (np.load(out / "-1.npz")["0"] == np.arange(10_000.0)).all()
    tree = np.load(out / "2.npz")
    assert (tree["u"] == 1).all() and tree["w/0"].shape == (2,)
    assert json.loads(str(tree["unspool.tree"]))["unspool"] == 1
    assert np.load(out / "3.npz")["1"].dtype.names == ("a", "b")
    assert (np.load(out / "10.npz")["u"] == np.arange(10_000)).all()
    code, _, err = unspool_command(capsys, *words, ":", "-o", out / "{step}.npz")
    assert code == 2 and "--force" in err and "4 more" in err
    (out / "11.npz").write_bytes(b"")
    assert unspool_command(capsys, *words, "11", "-o", out / "11.npz", "--force")[0] == 0
    assert np.load(out / "11.npz")["u"].shape == (100_000,)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{step}.npz" for step in (-1, 2, 3, 10, 11)
    )


@pytest.mark.parametrize(
    ("steps", "out", "why"),
    [
        ("2,3", "x.npz", "need {step} in the name"),
        ("2", "x.mat", "its end says the format"),
        ("4", "x.npz", "there is no version '4'"),
        ("2", "x.h5", "pip install h5py"),
        ("2", "x.zarr", "pip install zarr"),
        ("2", "x.safetensors", "pip install safetensors"),
    ],
)
def test_an_export_that_makes_no_sense_is_refused(
    steps: str,
    out: str,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("h5py", "zarr", "safetensors"):
        monkeypatch.setitem(sys.modules, library, None)
    keep(tmp_path / "history")
    words = ("export", tmp_path / "history", steps, "-o", tmp_path / out)
    code, told, err = unspool_command(capsys, *words)
    assert (code, told) == (2, "") and why in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


def test_an_export_leaves_out_what_is_damaged_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = keep(tmp_path / "history")
    flip(files[1], 9)
    flip(files[4], 8192)
    out = tmp_path / "out" / "{step}.npz"
    code, told, err = unspool_command(capsys, "export", tmp_path / "history", ":", "-o", out)
    assert code == 1 and told.startswith("3 checkpoints written")
    assert "step 11: " in err and "version 2 is lost: " in err
    assert str(files[1]) in err and str(files[4]) in err
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["-1.npz", "10.npz", "3.npz"]


def test_a_history_is_copied_with_its_trees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, to = tmp_path / "history", tmp_path / "copy"
    files = keep(source)
    code, told, _ = unspool_command(capsys, "copy", source, "2:", to)
    assert (code, told) == (0, f"4 checkpoints copied to {to}\n")
    disks = [unspool.Disk(path, mode="r") for path in (source, to)]
    with (
        unspool.Spool(device="cpu", disk=disks[0]) as one,
        unspool.Spool(device="cpu", disk=disks[1]) as two,
    ):
        assert two.versions() == [2, 3, 10, 11]
        for version in two.versions():
            assert two.regions(version) == one.regions(version)
            parts = [spool._load_parts(version) for spool in (one, two)]
            for name in parts[0]:
                assert bytes(parts[0][name]) == bytes(parts[1][name])
        found = two.load(10)
        assert isinstance(found, State) and found.step == 10 and found.u[9999] == 9999
    code, _, err = unspool_command(capsys, "copy", "--", source, "-1,11", to)
    assert code == 2 and "has 11 already: --force" in err
    flip(files[4], 8192)
    code, _, err = unspool_command(capsys, "copy", source, "11", to, "--force")
    assert code == 1 and str(files[4]) in err
    assert unspool_command(capsys, "verify", to)[0] == 0


def test_lost_versions_and_those_that_are_named_are_discarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = keep(tmp_path)
    flip(files[0], 9)
    files[2].unlink()
    code, out, _ = unspool_command(capsys, "clean", tmp_path)
    assert (code, out) == (0, "0 checkpoints discarded, 0 files removed, 0 B\n")
    code, out, _ = unspool_command(capsys, "clean", tmp_path, "--lost", "--discard", "10:")
    assert code == 0 and out.startswith("4 checkpoints discarded, 3 files removed")
    found = json.loads(unspool_command(capsys, "ls", tmp_path, "--json")[1])
    assert [about["version"] for about in found["checkpoints"]] == [2] and found["lost"] == {}


LEAVE = """
import os, signal, sys
import numpy as np, unspool
kept = unspool.Spool(device="cpu", disk=unspool.Disk(sys.argv[1], durable=True))
kept.save(0, np.arange(100_000))
kept.flush()
kept.save(1, np.arange(100_000))
gone = unspool.Spool(device="cpu", disk=sys.argv[1])
gone.save(1, np.arange(100_000))
gone.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "slot-1").write_text("mine")
    assert python(LEAVE, tmp_path).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("unspool-*-*"))) == 1
    assert "1 checkpoint," in unspool_command(capsys, "ls", tmp_path)[1]
    code, out, _ = unspool_command(capsys, "clean", tmp_path)
    assert code == 0 and "MiB" in out
    names = {path.name.split("-")[0] for path in tmp_path.iterdir()}
    assert names == {"frame", "notes.txt", "slot", "unspool.lock", "unspool.manifest"}
    assert (tmp_path / "slot-1").read_text() == "mine"


def test_a_directory_in_use_is_read_and_not_cleaned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with unspool.Spool(device="cpu", disk=unspool.Disk(tmp_path, durable=True)) as spool:
        spool.save(0, np.zeros(10_000))
        spool.flush()
        assert unspool_command(capsys, "verify", tmp_path)[0] == 0
        code, _, err = unspool_command(capsys, "clean", tmp_path, "--discard", "0")
        assert code == 1 and f"in use by this process, process {os.getpid()}" in err
    assert len(list(tmp_path.glob("frame-*"))) == 1


@pytest.mark.parametrize("command", ["ls", "verify", "export", "copy", "clean"])
def test_what_is_no_history_is_said(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: dict[str, list[object]] = {
        "export": [":", "-o", tmp_path / "out.npz"],
        "copy": [":", tmp_path / "out"],
        "clean": ["--lost"],
    }
    more = taken.get(command, [])
    for directory, why in ((tmp_path, "no durable checkpoints"), (tmp_path / "x", "not a dir")):
        code, out, err = unspool_command(capsys, command, directory, *more)
        assert (code, out) == (2, "") and why in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
