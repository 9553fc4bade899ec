"""Memory of a machine that several processes share: nothing is promised, and nobody is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import unspool

PROGRAM = """
import sys
import unspool

with unspool.Spool(host_memory=sys.argv[1], device="cpu") as spool:
    print(spool.stats().tiers[0].capacity, flush=True)
    sys.stdin.read()
"""

PRELUDE = """
import os, sys, time
import numpy as np, unspool
MIB = 1 << 20
SIZE = 8 * MIB

def full(version):
    return np.full(SIZE, version % 251, np.uint8)

def fill(spool, most):
    # Saves until it is refused, and returns how many were saved and the error.
    for version in range(most):
        try:
            spool.save(version, full(version))
        except unspool.errors.CapacityError as refusal:
            return version, refusal
    return most, None

def check(spool, count):
    for version in range(count):
        assert (spool.load(version) == full(version)).all(), version
"""


@contextmanager
def process(host: str, ranks: int = 1) -> Iterator[int]:
    """Another process with an open spool; gives the size of its host tier."""
    environment = {**os.environ, "LOCAL_WORLD_SIZE": str(ranks)}
    command, pipe = [sys.executable, "-c", PROGRAM, host], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        assert other.stdout is not None and other.stdin is not None
        try:
            yield int(other.stdout.readline())
        finally:
            other.stdin.close()


def total() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))


def test_processes_that_open_large_spools_together_all_open() -> None:
    half = f"{total() // 2}B"
    with contextlib.ExitStack() as stack:
        sizes = [stack.enter_context(process(half)) for _ in range(4)]
        assert sizes == [total() // 2] * 4
        with unspool.Spool(host_memory="auto", device_memory=half, device="cpu") as spool:
            spool.save(0, np.arange(3))
            assert (spool.load(0) == np.arange(3)).all()


def test_processes_of_a_job_get_the_same_whatever_the_first_ones_have_taken() -> None:
    with contextlib.ExitStack() as stack:
        sizes = {stack.enter_context(process("auto", 8)) for _ in range(3)}
    assert len(sizes) == 1
    assert 0 < sizes.pop() <= total() // 16


def test_a_size_that_the_machine_does_not_have_is_refused_in_units_of_people() -> None:
    with pytest.raises(unspool.errors.StorageError, match=r"1 PiB were asked for.* [GT]iB in all"):
        unspool.Spool(host_memory="1PiB", device="cpu")


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """A control group whose processes have so much memory, where this user can make one."""
    for root, name in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup", root, f"unspool-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / name).write_text(str(limit))
            except OSError:
                group.rmdir()
                continue
            try:
                yield group
            finally:
                group.rmdir()
            return
    pytest.skip("this user cannot make a control group with a limit on memory")


def limited(group: Path, program: str, *words: str) -> None:
    """Runs a program in a control group; it is to end well, and not to be killed."""
    move = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(__import__('os').getpid()))\n"
    code = move + PRELUDE + textwrap.dedent(program)
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_a_tier_that_cannot_grow_refuses_with_the_figures_and_loses_nothing() -> None:
    with control_group(400 << 20) as group:
        limited(
            group,
            """
            with unspool.Spool(host_memory="390MiB", device="cpu") as spool:
                count, refusal = fill(spool, 48)
                assert 10 < count < 48, (count, refusal)
                for part in ("host tier has", "of the 390 MiB", "/sys/fs/cgroup/", "MiB left"):
                    assert part in str(refusal), refusal
                check(spool, count)
                try:
                    spool.prepare()
                    raise AssertionError("there is too little memory")
                except unspool.errors.CapacityError as error:
                    assert "MiB left" in str(error), error
            """,
        )


def test_what_finds_no_memory_goes_to_the_disk(tmp_path: Path) -> None:
    with control_group(400 << 20) as group:
        limited(
            group,
            """
            for tiers in (["390MiB"], ["300MiB", "300MiB"]):
                with unspool.Spool(*[None, *tiers][-2:], disk=sys.argv[1], device="cpu") as spool:
                    count, refusal = fill(spool, 80)
                    assert refusal is None, refusal
                    check(spool, count)
            """,
            str(tmp_path),
        )


def test_a_tier_grows_again_when_there_is_memory_again() -> None:
    with control_group(400 << 20) as group:
        limited(
            group,
            """
            with unspool.Spool(host_memory="300MiB", device="cpu") as spool:
                other = np.ones(150 * MIB, np.uint8)
                count, refusal = fill(spool, 36)
                assert refusal is not None
                del other
                deadline = time.monotonic() + 60
                while True:
                    try:
                        spool.save(count, full(count))
                        break
                    except unspool.errors.CapacityError as refusal:
                        assert time.monotonic() < deadline, refusal
                check(spool, count + 1)
            """,
        )


def test_processes_that_grow_at_the_same_moment_take_no_more_than_there_is() -> None:
    with control_group(700 << 20) as group:
        limited(
            group,
            """
            # What the processes take themselves is far less than what spools leave.
            SIZE = MIB
            (begin, filled), (ended, end) = os.pipe(), os.pipe()
            children = []
            for _ in range(8):
                if (child := os.fork()) == 0:
                    os.close(end)
                    with unspool.Spool(host_memory="600MiB", device="cpu") as spool:
                        count, refusal = fill(spool, 599)
                        assert refusal is not None
                        os.close(filled)
                        # All keep what they have until nobody gets more.
                        os.read(ended, 1)
                        check(spool, count)
                    os._exit(0)
                children.append(child)
            os.close(filled)
            assert os.read(begin, 1) == b"", "all are full, or have failed"
            os.close(end)
            assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
            """,
        )


@pytest.mark.parametrize(("increments", "times"), [(False, 2), (True, 3)])
def test_the_host_tier_of_a_checkpointer_follows_its_state(
    tmp_path: Path, increments: bool, times: int
) -> None:
    def size() -> int:
        return checkpoints.spool.stats().tiers[0].capacity

    with unspool.Checkpointer(tmp_path / "run", every=1, increments=increments) as checkpoints:
        checkpoints.save(1, u=np.zeros(3))
        assert size() == 64 << 20
        state = np.zeros(40 << 20, np.uint8)
        checkpoints.save(2, u=state)
        assert times * state.nbytes <= size() <= times * state.nbytes + (1 << 20)
        checkpoints.save(3, u=np.zeros(3))
        assert size() > times * state.nbytes
        checkpoints.flush()
        assert checkpoints.load(2)["u"].nbytes == state.nbytes
