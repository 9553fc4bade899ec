"""What commands print to outputs that cannot take everything, and files that are none."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import cli, errors, schedules
from unspool._restart import command
from unspool._restart.core import RestartCore


def called(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "unspool", *map(str, words)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    found: Any = subprocess.run(line, text=True, timeout=60, **options)  # type: ignore
    return found


@pytest.mark.parametrize("words", [("ls",), ("verify",), ("ls", "--json")])
def test_what_an_output_has_no_letters_for_is_escaped(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "Drücke \udcff"
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(path, durable=True)) as spool:
        spool.save(1, **{"Drücke": np.ones(10)})
    for encoding in ("ascii", "utf-8"):
        plain = {**os.environ, "PYTHONIOENCODING": encoding}
        done = called(words[0], path, *words[1:], env=plain)
        assert (done.returncode, done.stderr) == (0, "")
    missing = called("ls", tmp_path / "no Drücke \udcff", env=plain)
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1


def test_an_output_that_is_full_or_closed_is_told(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(tmp_path, durable=True)) as spool:
        spool.save(1, np.ones(10))
    with open("/dev/full", "w") as full:
        done = called("ls", tmp_path, stdout=full)
    assert done.returncode == 1 and done.stderr.startswith("unspool: ")
    assert done.stderr.count("\n") == 1
    ours, theirs = os.pipe()
    os.close(ours)
    done = called("ls", tmp_path, stdout=theirs)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, "")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)
        made.bind(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [pipe, listening, device, Path.mkdir])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    make(file)  # type: ignore[operator]
    for words in (("plan", "--links", file), ("accumulate", file)):
        done = called(*words)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
        assert "Traceback" not in done.stderr
    with pytest.raises((errors.Error, OSError)):
        schedules.Trace(file)


@pytest.mark.parametrize("make", [pipe, listening, device, Path.mkdir])
def test_files_of_a_run_that_are_none_are_not_waited_for(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flat.checkpointer(
        tmp_path / "run", every=1, host_memory="1MiB", device="cpu", remote=tmp_path / "place"
    ) as checkpoints:
        checkpoints.save(1, u=np.ones(3))
    monkeypatch.chdir(tmp_path)
    names = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(names) >= 6
    for path in names:
        # In a process of its own, which an alarm ends when it waits.
        content = path.read_bytes()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            try:
                path.unlink()
                make(path)  # type: ignore[operator]
                codes = [cli.main(["verify", str(tmp_path / place)]) for place in ("run", "place")]
                os._exit(0 if set(codes) <= {0, 1, 2} else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, path
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(content)
    assert cli.main(["verify", str(tmp_path / "run")]) == 0


def crafted(**changes: object) -> dict[str, object]:
    return {
        "step": 5,
        "run": "0" * 32,
        "ranks": 2**32 - 1,
        "has": [0, 2],
        "counts": False,
        "nbytes": 2**64 - 1,
        "seconds": 1e16,
        "written": 2**62,
        "stored": None,
        "increment_to": [],
        **changes,
    }


def test_a_manifest_with_numbers_beyond_reason_is_listed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank-0000-of-4294967295" / "data").mkdir(parents=True)
    listed = [crafted(), crafted(step=6, written=10**13, ranks=2, has=[0])]
    monkeypatch.setattr(command, "RestartCore", type("", (), {"listed": lambda _: (listed, [])}))
    assert cli.main(["ls", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "lacks rank 1, 3, 4 and 4294967290 more" in told and "lacks rank 1\n" in told
    assert cli.main(["ls", "--json", str(tmp_path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["checkpoints"]) == 2


def test_a_folder_that_claims_many_ranks_is_read_at_once(tmp_path: Path) -> None:
    with flat.checkpointer(tmp_path, every=1, host_memory="1MiB", device="cpu") as checkpoints:
        checkpoints.save(5, u=np.ones(3))
    (tmp_path / "rank-0000-of-0001").rename(tmp_path / "rank-0000-of-4294967295")
    for words in (("ls",), ("verify",), ("rm", "5"), ("export", "5", "-o", tmp_path / "x.npz")):
        done = called(words[0], tmp_path, *words[1:])
        assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)
    assert RestartCore.listed(tmp_path)[0] == []
