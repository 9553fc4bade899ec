"""Starts the ranks of `ddp_job.py`, and ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: A job that takes longer than so many seconds is lost, and ended.
PATIENCE = 300


def run_ranks(size: int, meet: Path, kind: str, environment: Mapping[str, str]) -> None:
    """Runs the job on the CPU or on `size` GPUs; every rank has to come to its end."""
    job = Path(__file__).parent / "ddp_job.py"
    paths = [str(job.parent), *filter(None, [environment.get("PYTHONPATH")])]
    ranks = [
        subprocess.Popen(
            [sys.executable, job, str(rank), str(size), meet, kind],
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        told = [each.communicate(timeout=PATIENCE)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    for rank, (each, text) in enumerate(zip(ranks, told, strict=True)):
        assert each.returncode == 0 and text.endswith("equal\n"), f"rank {rank}:\n{text}"
