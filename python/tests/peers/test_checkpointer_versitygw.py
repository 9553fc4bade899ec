"""`unspool.Checkpointer(remote="s3://...")` on versitygw, a server of S3, on the loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool import errors
from unspool.cli import main
from unspool.types import Stop

pytestmark = pytest.mark.peer

SERVER = Path(sys.prefix) / "bin" / "versitygw"

#: A rank's part: several pieces of an upload.
ITEMS = 4_000_000


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket, with credentials in the environment."""
    if not SERVER.exists():
        pytest.skip("versitygw is not there: `make test-peers` installs it where Go is")
    (tmp_path / "server" / "bucket").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [SERVER, "--port", f"127.0.0.1:{port}", "--quiet", "posix", tmp_path / "server"]
    keys = {"ROOT_ACCESS_KEY": "user", "ROOT_SECRET_KEY": "secretsecret"}
    process = subprocess.Popen(command, env=os.environ | keys, stdout=subprocess.DEVNULL)
    try:
        await_answer(port)
        for key, value in {
            "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "secretsecret",
        }.items():
            monkeypatch.setenv(key, value)
        yield "s3://bucket/run"
    finally:
        process.kill()
        process.wait()


def await_answer(port: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("versitygw does not answer")


def opened(path: Path, bucket: str) -> unspool.Checkpointer:
    stop = Stop(signals=())
    return unspool.Checkpointer(path / "run", every=1, device="cpu", stop=stop, copies=bucket)


def state(step: int) -> np.ndarray:
    return np.random.default_rng(step).random(ITEMS)


def test_a_run_goes_on_from_a_bucket(
    tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path, bucket) as checkpoints:
        for step in range(1, 5):
            checkpoints.save(step, u=state(step), step=step)
    shutil.rmtree(tmp_path / "run")
    u = np.zeros(ITEMS)
    with opened(tmp_path, bucket) as checkpoints:
        assert checkpoints.restore(u=u) == 4 and checkpoints.values() == {"step": 4}
        assert (u == state(4)).all()
    assert main(["ls", bucket]) == 0
    assert capsys.readouterr().out.count("counts") == 2


def test_copies_in_a_bucket_are_read_by_every_command(
    tmp_path: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path, bucket) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, u=state(step), step=step)
    assert main(["verify", bucket]) == 0
    assert "read, 0 damaged or missing" in capsys.readouterr().out
    assert main(["export", bucket, "2", "-o", str(tmp_path / "2.npz")]) == 0
    assert (np.load(tmp_path / "2.npz")["u"] == state(2)).all()
    for address in (bucket, bucket + "/"):
        assert main(["copy", address, "2", str(tmp_path / "again"), "--force"]) == 0
    (part,) = unspool.Checkpointer.parts(bucket)
    (copy,) = unspool.Checkpointer.parts(tmp_path / "again")
    assert part.step == copy.step == 2 and part.small == copy.small == {"step": 2}
    assert (part["u"] == state(2)).all() and (copy["u"] == state(2)).all()
    u = np.zeros(ITEMS)
    with unspool.Checkpointer(tmp_path / "again", device="cpu", stop=Stop(signals=())) as again:
        assert again.restore(u=u) == 2 and (u == state(2)).all()


JOB = """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from test_checkpointer_versitygw import opened, state

    checkpoints = opened(Path({path!r}), {bucket!r})
    last = checkpoints.restore() or 0
    print(last, flush=True)
    checkpoints.save(last + 1, u=state(last + 1))
    checkpoints.flush()
    print("counts", flush=True)
    import time
    time.sleep(60)
"""


def test_a_job_that_is_killed_during_an_upload_goes_on_with_it(tmp_path: Path, bucket: str) -> None:
    tests = str(Path(__file__).parent)
    code = textwrap.dedent(JOB).format(tests=tests, path=str(tmp_path), bucket=bucket)
    reached = 0
    for kill in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        ) as job:
            assert job.stdout is not None
            first = int(job.stdout.readline())
            # What counted in the folder is there, and is copied by now or sent on.
            assert first == reached, kill
            assert job.stdout.readline() == "counts\n"
            time.sleep(0.03 * kill)
            job.send_signal(signal.SIGKILL)
        reached = first + 1
    with opened(tmp_path, bucket) as checkpoints:
        assert checkpoints.restore() == reached
    shutil.rmtree(tmp_path / "run")
    u = np.zeros(ITEMS)
    with opened(tmp_path, bucket) as checkpoints:
        assert checkpoints.restore(u=u) == reached
        assert (u == state(reached)).all()


def test_wrong_credentials_are_an_error_that_does_not_repeat_them(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anothersecret")
    with pytest.raises(errors.StorageError, match="is refused") as raised:
        opened(tmp_path, bucket)
    assert "anothersecret" not in str(raised.value) and "user" not in str(raised.value)
