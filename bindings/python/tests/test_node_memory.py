"""Processes of one node that open spools together: what one was promised, the others know."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import unspool

PROGRAM = """
import sys
import numpy as np
import unspool

spool = unspool.Spool(host=sys.argv[1], on="cpu")
tier = spool.stats().tiers[0]
for version in range(int(sys.argv[2])):
    spool.save(version, np.full(1 << 24, version, np.uint8))
print(tier.capacity, flush=True)
sys.stdin.read()
"""


# Where each process says what it was promised.
SHARED = Path("/dev/shm")
ACCOUNTS = SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())


@contextmanager
def rank(host: str, saves: int = 0, ranks: int = 1) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process with an open spool, and the size of its host tier."""
    environment = {**os.environ, "LOCAL_WORLD_SIZE": str(ranks)}
    command = [sys.executable, "-c", PROGRAM, host, str(saves)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def promised() -> int:
    return unspool.doctor(measure=False, cuda=False).host.promised


def test_processes_of_a_job_get_the_same_whatever_the_first_ones_have_taken() -> None:
    with contextlib.ExitStack() as stack:
        sizes = [stack.enter_context(rank("auto", saves, 4))[1] for saves in (12, 0, 8, 0)]
    # Other programs take and return memory meanwhile.
    assert max(sizes) < 1.1 * min(sizes), sizes


def test_what_another_process_was_promised_is_not_promised_again() -> None:
    with rank("1GiB", saves=4) as (process, _):
        (account,) = ACCOUNTS.glob(f"unspool-memory-{process.pid}-*")
        _, _, unwritten, written = struct.unpack("4Q", account.read_bytes())
        # Other programs have promises as well, which come and go: so not more than at least.
        counted = promised()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (1 << 30) - 5 * (1 << 24) < unwritten <= (1 << 30) - 4 * (1 << 24)
    assert written >= 4 << 24
    assert counted >= unwritten
    promised()
    assert not account.exists(), "what a killed process has left is removed by who reads it"


def test_more_than_is_left_beside_another_process_is_refused_with_the_figures() -> None:
    free = unspool.doctor(measure=False, cuda=False).host.free
    half = f"{free * 6 // 10}B"
    with rank(half), pytest.raises(unspool.Error, match="promised to other arenas"):
        unspool.Spool(host=half, on="cpu")
    deadline = time.monotonic() + 20
    while promised() > free // 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    unspool.Spool(host=half, on="cpu").close()
