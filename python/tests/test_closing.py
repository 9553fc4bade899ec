"""The end of a durable spool: what its disk refuses is kept, or given up and named."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import children, python

#: Two frames fit.
ROOM = 420_000


def crowded(directory: Path, saves: int = 5) -> unspool.Spool:
    """A spool whose disk has room for less than half of what it holds."""
    disk = unspool.Disk(directory, capacity=ROOM, durable=True)
    spool = unspool.Spool(host_memory="16MiB", disk=disk)
    for version in range(saves):
        spool.save(version, np.full(25_000, float(version)))
    return spool


def test_a_close_that_the_disk_refuses_can_be_repeated(tmp_path: Path) -> None:
    spool = crowded(tmp_path)
    with pytest.raises(unspool.errors.CapacityError, match="still open") as refusal:
        spool.close()
    assert refusal.value.retryable and not spool.closed
    unsaved = refusal.value.unsaved
    assert unsaved == [v for v in range(5) if not spool.durable(v)] and len(unsaved) == 3
    for version in range(5):
        assert (spool.load(version) == version).all()
    with pytest.raises(unspool.errors.CapacityError, match="flush again"):
        spool.flush()
    for version in (0, 3, 4):
        spool.discard(version)
    spool.flush()
    spool.close()
    assert spool.closed
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(tmp_path, durable=True)) as again:
        assert again.versions() == [1, 2]


def test_a_close_that_discards_warns_of_the_versions_that_go(tmp_path: Path) -> None:
    spool = crowded(tmp_path)
    with pytest.warns(RuntimeWarning, match="not durable: versions 2, 3 and 4"):
        spool.close(discard_unflushed=True)
    assert spool.closed
    spool.close()
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(tmp_path, durable=True)) as again:
        assert again.versions() == [0, 1]


def test_an_exception_of_the_block_says_which_versions_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised, crowded(tmp_path) as spool:
        raise ZeroDivisionError
    assert spool.closed
    assert "not durable: versions 2, 3 and 4" in raised.value.__notes__[0]


def test_a_block_that_ends_well_leaves_what_the_disk_refuses_open(tmp_path: Path) -> None:
    with (
        pytest.raises(unspool.errors.CapacityError, match="still open"),
        crowded(tmp_path) as spool,
    ):
        pass
    assert not spool.closed and len(spool) == 5
    with pytest.warns(RuntimeWarning):
        spool.close(discard_unflushed=True)


def test_a_program_that_ends_warns_of_what_its_disk_has_refused(tmp_path: Path) -> None:
    code = """
    import sys, numpy as np, unspool
    disk = unspool.Disk(sys.argv[1], capacity=420_000, durable=True)
    spool = unspool.Spool(host_memory="16MiB", disk=disk)
    for version in range(5):
        spool.save(version, np.zeros(25_000))
    """
    done = python("\n".join(line[4:] for line in code.splitlines()), tmp_path)
    assert done.returncode == 0
    assert "RuntimeWarning: The spool was closed" in done.stderr
    assert "not durable: versions 2, 3 and 4" in done.stderr


def test_a_time_limit_makes_sense_or_is_refused(spool: unspool.Spool) -> None:
    for call in (spool.flush, spool.close):
        for seconds in (0, -1, float("nan")):
            with pytest.raises(unspool.errors.OptionError, match="timeout"):
                call(timeout=seconds)
    assert not spool.closed
    spool.flush(timeout=10)
    spool.close(timeout=10)
    assert spool.closed


def test_statistics_say_what_is_still_to_be_flushed(tmp_path: Path) -> None:
    spool = crowded(tmp_path)
    with pytest.raises(unspool.errors.CapacityError):
        spool.flush(timeout=60)
    stats = spool.stats()
    assert (stats.unflushed, stats.unflushed_bytes) == (3, 3 * 200_000)
    with pytest.warns(RuntimeWarning):
        spool.close(discard_unflushed=True)


# What an archive packs takes long enough for a signal to come in the middle.
INTERRUPTED = """
import os, signal, sys, threading
import numpy as np, unspool
disk = unspool.Disk(sys.argv[1], durable=True, compress="archive")
spool = unspool.Spool(host_memory="256MiB", disk=disk)
values = np.random.default_rng(0).random(1 << 20)
for version in range(24):
    spool.save(version, values)
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    spool.close()
except KeyboardInterrupt as raised:
    print(spool.closed, "23 are not durable yet" in " ".join(raised.__notes__))
    sys.exit(3)
"""


def test_ctrl_c_ends_a_durable_close_and_the_program(tmp_path: Path) -> None:
    done = python(INTERRUPTED, tmp_path)
    assert (done.returncode, done.stdout) == (3, "False True\n")
    # While the program ends, the rest may become durable after all.
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(tmp_path, durable=True)) as again:
        given_up = len(again) < 24
    assert ("RuntimeWarning: The spool was closed" in done.stderr) == given_up


def test_a_close_within_a_time_limit_can_go_on_later(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="64MiB", disk=unspool.Disk(tmp_path, durable=True))
    for version in range(8):
        spool.save(version, np.zeros(1 << 20))
    for call in (spool.flush, spool.close):
        with pytest.raises(unspool.errors.WaitTimeoutError):
            call(timeout=1e-6)
        spool.save(100 + len(spool), np.zeros(1000))
    spool.close()
    with unspool.Spool(host_memory="1MiB", disk=unspool.Disk(tmp_path, durable=True)) as again:
        assert len(again) == 10


# A saver that never stops keeps the disk busy, so that a signal comes in the middle of something.
VICTIM = """
import sys
import numpy as np, unspool
disk = unspool.Disk(sys.argv[1], durable=True) if sys.argv[2] == "durable" else sys.argv[1]
spool = unspool.Spool(host_memory="1MiB", disk=disk)
for version in range(1 << 40):
    spool.save(version, np.full(10_000, version))
    if version >= 50:
        spool.discard(version - 50)
    if version == 100:
        spool.flush()
        print("flushed", flush=True)
"""


@pytest.mark.parametrize("kind", ["durable", "ephemeral"])
def test_what_sigterm_leaves_is_used_or_cleaned_by_the_next_spool(
    kind: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", VICTIM, str(tmp_path), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == "flushed\n"
        victim.send_signal(signal.SIGTERM)
        assert victim.wait(60) == -signal.SIGTERM
    disk = unspool.Disk(tmp_path, durable=kind == "durable")
    with unspool.Spool(host_memory="1MiB", disk=disk) as spool:
        left = [name for name in children(tmp_path) if name.startswith("slot")]
        assert left == [], "what was not finished is gone"
        for version in spool.versions():
            assert (spool.load(version) == version).all()
        assert len(spool) <= 51
        spool.save(-1, np.arange(3))
    if kind == "ephemeral":
        assert children(tmp_path) == []
