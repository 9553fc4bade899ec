"""The migration as an MPI job: `mpirun -n 3 unspool-rtm --mpi`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
MPIRUN = shutil.which(
    "mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
)

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
]

COMMAND = "import sys; from unspool_studies.cli import rtm; sys.exit(rtm())"


def mpirun(ranks, *arguments):
    """Runs Python in so many ranks; bounded in time."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Tests may run as root, in containers with fewer cores than there are ranks.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    words = [MPIRUN, "--oversubscribe", "-n", str(ranks), sys.executable, *map(str, arguments)]
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_image_is_that_of_one_process(rtm, alone):
    done = mpirun(3, "-c", COMMAND, *rtm.words("--mpi", "--check"))
    assert done.returncode == 0, done.stderr
    image, report = rtm.found()
    assert image == alone[0]
    assert report["image"]["shot_sha256"] == alone[1]["image"]["shot_sha256"]
    assert report["spool"]["saves"] == alone[1]["spool"]["saves"]
    assert "MPI rank" in report["time"]["propagator"]
    assert report["check"]["identical"] is True
    # One bar and one report: those of the leader.
    assert done.stderr.count("shot 3 of 6") == 1
    assert done.stdout.count("written:") == 1
    assert os.listdir(rtm.disk) == []


def test_a_mistake_is_told_once_and_ends_all_ranks(rtm):
    done = mpirun(2, "-c", COMMAND, *rtm.words("--mpi", "--frequency", "-1"))
    assert done.returncode == 2
    assert done.stderr.count("the frequency must be positive") == 1


def test_one_rank_alone_is_told_what_to_call(rtm):
    done = mpirun(1, "-c", COMMAND, *rtm.words("--mpi"))
    assert done.returncode == 2
    assert "mpirun -n 5 unspool-rtm --mpi" in done.stderr


FAILING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_rtm import job_of
from unspool_studies.rtm import seat
from unspool_studies.rtm.crew import run_crew
from unspool_studies.rtm.errors import GpuError
from unspool_studies.rtm.job import Migrator, run
from unspool_studies.rtm.progress import Silence
from unspool_studies.rtm.ranks import Ranks
from unspool_studies.rtm.seat import Order

class Failing(Migrator):
    def migrate(self, shot, watch):
        if ranks._talk.rank == 1:
            raise GpuError("the GPU is lost")
        return super().migrate(shot, watch)

class Interrupted(Silence):
    def stepped(self, shot, phase, steps):
        if steps:
            raise KeyboardInterrupt

ranks, disk, what = Ranks(), Path(sys.argv[2]), sys.argv[3]
seat.Migrator = Failing if what == "failing" else Migrator
if not ranks.leads:
    ranks.serve()
elif what == "failing":
    job = job_of(disk, 100)
    found = run_crew(Order(job, None, False), ranks, Silence()).outcome
    one = run(job, Silence())
    print(found.migrated.digests == one.migrated.digests, found.propagator.split(",")[0])
else:
    try:
        run_crew(Order(job_of(disk, 1_000_000), None, False), ranks, Interrupted())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("what", "told"), [("failing", "True 1 MPI rank"), ("interrupted", "interrupted")]
)
def test_shots_of_a_failing_rank_are_done_elsewhere_and_ctrl_c_ends_all(rtm, tmp_path, what, told):
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = mpirun(3, script, Path(__file__).parent, rtm.disk, what)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == told
    assert os.listdir(rtm.disk) == []
