"""`unspool.Checkpointer(ranks=MPI.COMM_WORLD)`: jobs of `mpirun` that were killed go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import unspool
from unspool._restart.core import RestartCore

pytest.importorskip("mpi4py")
MPIRUN = shutil.which(
    "mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
)
JOB = Path(__file__).parent / "checkpointer_job.py"

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
]


def job(ranks: int, *words: object, script: Path = JOB) -> subprocess.CompletedProcess[str]:
    """Runs the job in so many ranks; bounded in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Tests may run as root, in containers with fewer cores than there are ranks.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    line = [str(MPIRUN), "--oversubscribe", "-n", str(ranks), sys.executable, str(script)]
    line += map(str, words)
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def counting(path: Path) -> list[int]:
    return [one["step"] for one in RestartCore.listed(path)[0] if one["counts"]]


def test_a_job_that_lost_a_rank_goes_on_from_what_all_have(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert job(3, path, 20, 1, 12).returncode != 0
    (*_, newest) = counting(path)
    # Rank 1 had step 11 on its disk; the others perhaps not yet.
    assert newest in (9, 10, 11)
    done = job(3, path, 5)
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert f"rank {rank} went from {newest} to {newest + 5}" in done.stdout
    assert counting(path) == [newest + 4, newest + 5]
    parts = unspool.Checkpointer.parts(path)
    assert [part["u"][0] for part in parts] == [0.0, 1.0, 2.0]


def test_a_rank_that_lost_its_disk_gets_its_part_back(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = job(4, path, 6, -1, -1, "partner")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(path / "rank-0001-of-0004")
    assert job(4, path, 20, 1, 12, "partner").returncode != 0
    shutil.rmtree(path / "rank-0002-of-0004")
    done = job(4, path, 3, -1, -1, "partner")
    assert done.returncode == 0, done.stderr
    # The partner of rank 2 had at least what it was given by the first save, which is step 6.
    (went,) = {line.split(" from ")[1] for line in done.stdout.splitlines() if "went" in line}
    first = int(went.split(" to ")[0])
    assert first >= 6, done.stdout


def test_a_rank_that_is_silent_is_named(tmp_path: Path) -> None:
    done = job(3, tmp_path / "run", 20, 2, 4, "silent")
    assert done.returncode != 0
    assert "rank 0: After 2 s rank 2 has not answered" in done.stdout
    assert "rank 1: After 2 s rank 2 has not answered" in done.stdout
    assert counting(tmp_path / "run")[-1] == 3


def test_another_number_of_ranks_is_refused_what_each_has_for_itself(tmp_path: Path) -> None:
    assert job(2, tmp_path / "run", 2).returncode == 0
    done = job(3, tmp_path / "run", 2)
    assert done.returncode != 0
    assert "u: what rank 0 has saved differs from that of rank 1" in done.stderr
    assert "another number of ranks than the 2 that saved it" in done.stderr


def test_another_number_of_ranks_goes_on(tmp_path: Path) -> None:
    script = JOB.with_name("checkpointer_shards_job.py")
    for turn, ranks in enumerate((4, 3, 8)):
        done = job(ranks, tmp_path / "run", 3, script=script)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(f"of {ranks} went from {3 * turn}") == ranks, done.stdout
    assert counting(tmp_path / "run") == [8, 9]
