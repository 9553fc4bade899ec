"""`unspool.messages.Channel` between processes, over mpi4py and over `torch.distributed`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MPIRUN = shutil.which(
    "mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
)
JOB = Path(__file__).parent / "messages_job.py"
LIMIT = 300

pytestmark = pytest.mark.peer


def over_mpi(ranks: int, what: str) -> subprocess.CompletedProcess[str]:
    """Runs the job in so many ranks of MPI; bounded in time."""
    pytest.importorskip("mpi4py")
    if MPIRUN is None:
        pytest.skip("there is no mpirun")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Tests may run as root, in containers with fewer cores than there are ranks.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    line = [MPIRUN, "--oversubscribe", "-n", str(ranks), sys.executable, str(JOB), what, "mpi"]
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def over_torch(ranks: int, what: str, store: Path) -> list[str]:
    """What each rank prints, in so many processes of `torch.distributed`; bounded in time."""
    pytest.importorskip("torch.distributed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(JOB), what, "torch"]
    jobs = [
        subprocess.Popen(
            [*words, str(rank), str(ranks), str(store)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        return [job.communicate(timeout=LIMIT)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_what_ranks_of_mpi_receive_is_what_was_sent() -> None:
    done = over_mpi(3, "ring")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[:3]) == [f"rank {rank}: done" for rank in range(3)]


def test_what_ranks_of_torch_receive_is_what_was_sent(tmp_path: Path) -> None:
    said = over_torch(2, "ring", tmp_path / "store")
    assert ["rank 0: done" in said[0], "rank 1: done" in said[1]] == [True, True], said


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("foreign", "MessageError: rank 1: message 0 with rank 0, tag 0: what came is not a mess"),
        ("long", "MessageError: rank 1: message 0 with rank 0, tag 0: the communicator has failed"),
        ("silent", "WaitTimeoutError: rank 1: message 0 with rank 0, tag 0: nothing came in 1 s"),
    ],
)
def test_what_goes_wrong_between_ranks_of_mpi_names_them(what: str, says: str) -> None:
    done = over_mpi(2, what)
    assert says in done.stdout, done.stdout + done.stderr


def test_a_rank_of_torch_that_dies_is_named(tmp_path: Path) -> None:
    said = over_torch(2, "dead", tmp_path / "store")[1]
    assert "Error: rank 1: message 0 with rank 0, tag 0: " in said
