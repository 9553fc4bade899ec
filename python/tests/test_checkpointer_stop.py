"""A run that is asked to stop: `stopping`, the exit code, and another run from Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import unspool
from unspool import errors


def opened(path: Path, **options: Any) -> unspool.Checkpointer:
    options = {"every": 100, "host_memory": "4MiB", "device": "cpu", **options}
    return flat.checkpointer(path / "run", **options)


def test_stopping_is_known_when_it_is_asked_and_nothing_is_lost_by_it(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        assert not checkpoints.stopping and checkpoints.exit_code == 0
        checkpoints.save(1, u=np.ones(3))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert checkpoints.stopping and checkpoints.exit_code == 75
        assert checkpoints.step(2, u=np.ones(3)), "a run that goes on saves once more"
        assert not checkpoints.step(3, u=np.ones(3))
    assert checkpoints.stopping and checkpoints.exit_code == 75


def test_a_step_that_was_not_due_is_saved_before_the_run_stops(tmp_path: Path) -> None:
    with opened(tmp_path) as checkpoints:
        assert not checkpoints.step(1, u=np.ones(3))
        checkpoints.stop()
        assert not checkpoints.stopping
        assert checkpoints.step(2, u=np.ones(3)) and checkpoints.stopping
    assert unspool.Checkpointer.parts(tmp_path / "run")[0].step == 2


def test_a_limit_is_looked_at_by_stopping(tmp_path: Path) -> None:
    with opened(tmp_path, limit=1e-9) as checkpoints:
        assert checkpoints.stopping


def test_a_run_that_ended_well_is_not_to_be_started_again(tmp_path: Path) -> None:
    checkpoints = opened(tmp_path)
    checkpoints.save(1, u=np.ones(3))
    checkpoints.stop()
    checkpoints.close()
    assert checkpoints.exit_code == 0 and not checkpoints.stopping


#: What stands in for Slurm's command writes down how it was called, and fails where it is told to.
SCONTROL = """#!/bin/sh
echo "$@" >> "$LOG"
[ -z "$FAIL" ] || { echo "$FAIL" >&2; exit 1; }
"""

JOB = """
import os, signal, sys
import numpy as np
import unspool
from unspool.types import Stop

steps, u = 50, np.zeros(9)
options = dict(every=1000, host_memory="4MiB", device="cpu", stop=Stop(requeue="slurm"))
with unspool.Checkpointer("run", **options) as checkpoints:
    step = checkpoints.restore(u=u) or 0
    while step < steps and not checkpoints.stopping:
        step += 1
        u += 1
        if step == 20:
            for name in sys.argv[1:]:
                os.kill(os.getpid(), getattr(signal, name))
        checkpoints.step(step, u=u)
assert (u == step).all()
sys.exit(checkpoints.exit_code)
"""


def job(path: Path, *signals: str, **variables: str) -> tuple[int, list[str], str]:
    """The exit code of a run of the job, how Slurm was called, and what was said."""
    command = path / "bin" / "scontrol"
    command.parent.mkdir(exist_ok=True)
    command.write_text(SCONTROL)
    command.chmod(0o755)
    log = path / "log"
    log.unlink(missing_ok=True)
    clean = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    found = {**clean, "PATH": f"{command.parent}:{os.environ['PATH']}", "LOG": str(log)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOB), *signals],
        cwd=path,
        env={**found, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stderr


def test_a_job_of_slurm_is_requeued_and_goes_on(tmp_path: Path) -> None:
    assert job(tmp_path, "SIGUSR1", SLURM_JOB_ID="77") == (75, ["requeue 77"], "")
    assert unspool.Checkpointer.parts(tmp_path / "run")[0].step == 20
    assert job(tmp_path, SLURM_JOB_ID="77") == (0, [], "")


@pytest.mark.parametrize(
    ("signals", "variables", "calls"),
    [
        (["SIGTERM"], {"SLURM_JOB_ID": "7"}, []),
        (["SIGTERM", "SIGUSR1"], {"SLURM_JOB_ID": "7"}, ["requeue 7"]),
        (["SIGUSR1"], {}, []),
        (
            ["SIGUSR1"],
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"},
            ["requeue 7_2"],
        ),
    ],
)
def test_only_a_job_of_slurm_that_nobody_cancelled_is_requeued(
    signals: list[str], variables: dict[str, str], calls: list[str], tmp_path: Path
) -> None:
    assert job(tmp_path, *signals, **variables) == (75, calls, "")


def test_a_job_that_slurm_does_not_requeue_says_so(tmp_path: Path) -> None:
    code, calls, said = job(tmp_path, "SIGUSR1", SLURM_JOB_ID="7", FAIL="Job is not requeuable")
    assert code == 75 and calls == ["requeue 7"]
    assert "RuntimeWarning: Job 7 was not requeued" in said and "not requeuable" in said


def test_another_batch_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.OptionError, match="requeue='pbs'"):
        opened(tmp_path, requeue="pbs")
