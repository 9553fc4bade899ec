"""Several Python threads: they share a spool, run while one waits or copies, and Ctrl-C works."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import python, random_array, same_bits


@pytest.fixture
def never_switch() -> Iterator[None]:
    """Python gives the interpreter to another thread only when the running one lets go of it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    yield
    sys.setswitchinterval(interval)


def others_run_during(call: Callable[[int], None], attempts: int) -> bool:
    """Whether another thread got its turn in one of the calls, which are all that is done."""
    turns: list[int] = []
    ready, go = threading.Event(), threading.Event()

    def other() -> None:
        ready.set()
        go.wait()
        turns.append(1)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait()
    go.set()
    for attempt in range(attempts):
        call(attempt)
        if turns:
            break
    seen = bool(turns)
    thread.join()
    return seen


def test_other_threads_run_while_a_save_copies(never_switch: None) -> None:
    with unspool.Spool(host_memory="512MiB") as spool:
        state = np.ones(1 << 20)
        assert others_run_during(lambda n: spool.save(n, state), 60)


def test_other_threads_run_while_a_restore_copies(never_switch: None) -> None:
    with unspool.Spool(host_memory="64MiB") as spool:
        state = np.ones(1 << 20)
        spool.save(0, state)
        assert others_run_during(lambda _: spool.restore(0, state), 1_000)


def test_other_threads_run_while_a_save_waits_for_the_disk(
    never_switch: None, tmp_path: Path
) -> None:
    with unspool.Spool(host_memory="1MiB", disk=tmp_path) as spool:
        state = np.ones(100_000)
        assert others_run_during(lambda n: spool.save(n, state), 200)
        assert spool.stats().saves > 0


def test_a_pure_python_call_holds_other_threads_up(never_switch: None) -> None:
    """The check above is able to fail: a call that never lets go lets nobody in."""
    assert not others_run_during(lambda n: sum(range(100_000)), 5)


def test_threads_share_a_spool(tmp_path: Path) -> None:
    threads, each = 6, 40
    with unspool.Spool(host_memory="200KiB", disk=tmp_path) as spool:

        def work(thread: int) -> int:
            mine = range(thread * each, (thread + 1) * each)
            for version in mine:
                spool.save(version, random_array((700,), np.dtype("f8"), version))
            spool.expect(reversed(mine))
            target = np.empty(700)
            for version in reversed(mine):
                spool.restore(version, target)
                assert same_bits(target, random_array((700,), np.dtype("f8"), version))
                if version % 3 == 0:
                    spool.discard(version)
            return thread

        with ThreadPoolExecutor(threads) as pool:
            assert sorted(pool.map(work, range(threads))) == list(range(threads))
        kept = [version for version in range(threads * each) if version % 3]
        assert spool.versions() == kept and spool.stats().saves == threads * each


def test_one_of_two_saves_of_a_version_wins() -> None:
    with unspool.Spool(host_memory="64MiB") as spool, ThreadPoolExecutor(8) as pool:

        def save(value: int) -> bool:
            try:
                spool.save(0, np.full(1000, value))
            except (unspool.errors.VersionExistsError, unspool.errors.UnknownVersionError):
                return False
            return True

        won = list(pool.map(save, range(8)))
        assert won.count(True) == 1
        assert (spool.load(0) == won.index(True)).all()


def test_a_discard_during_restores_harms_nobody() -> None:
    with unspool.Spool(host_memory="64MiB") as spool, ThreadPoolExecutor(4) as pool:

        def rewrite(round_: int) -> None:
            spool.save(0, np.full(50_000, round_))
            spool.discard(0)

        def read(_: int) -> bool:
            try:
                found = spool.load(0)
            except (KeyError, unspool.errors.UnknownVersionError):
                return True
            return bool((found == found[0]).all())

        writes = pool.submit(lambda: [rewrite(round_) for round_ in range(200)])
        assert all(pool.map(read, range(200)))
        writes.result()


def test_a_wait_ends_in_time_and_says_what_it_waited_for(tmp_path: Path) -> None:
    state = np.ones(4 << 20)
    with unspool.Spool(host_memory="40MiB", disk=tmp_path, timeout=0.001) as spool:
        spool.save(0, state)
        with pytest.raises(unspool.errors.WaitTimeoutError, match="aise `timeout`") as late:
            spool.save(1, state)
        assert isinstance(late.value, TimeoutError)
        assert late.value.version == 1 and late.value.retryable
        assert spool.versions() == [0] and (spool.load(0) == 1).all()


def test_closing_from_another_thread_ends_every_call(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="100KiB", disk=tmp_path)
    begun = threading.Event()

    def work() -> str:
        for version in range(1 << 40):
            try:
                spool.save(version, np.zeros(5_000))
            except unspool.errors.ClosedError as error:
                return str(error)
            begun.set()
        return "never closed"

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(work)
        begun.wait()
        spool.close()
        assert "closed" in told.result()


# `inside` is true from before the call until after it. A handler that raises then ended either
# the wait, and the flush is not done, or it ran when the call had returned, and the flush is. It is
# packed on its way to the disk, which takes far longer than a wait looks for signals.
INTERRUPTED = """
import signal, sys
import numpy as np, unspool

inside = False

def ctrl_c(number, frame):
    if inside:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ctrl_c)
state = np.random.default_rng(0).random(1 << 19)
disk = unspool.Disk(sys.argv[1], compress="archive")
with unspool.Spool(host_memory="300MiB", disk=disk) as spool:
    for attempt in range(20):
        for version in range(40):
            spool.save(version, state)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            inside = True
            spool.flush()
            inside = False
        except KeyboardInterrupt:
            inside = False
            if spool.stats().tiers[-1].copies < 40:
                print("interrupted")
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        for version in range(40):
            spool.discard(version)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert all((spool.load(version) == state).all() for version in range(40))
    spool.flush()
    assert spool.stats().tiers[-1].copies == 40
    print("usable")
"""


def test_ctrl_c_ends_a_wait_and_the_spool_stays_usable(tmp_path: Path) -> None:
    done = python(INTERRUPTED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "usable"]


SMALL_STACK = """
import threading
import numpy as np, unspool
from unspool import Bound, codecs
values = np.random.default_rng(0).standard_normal((60, 70))
done = []
spool = unspool.Spool(host_memory="4MiB", codec="lossless")
def work():
    spool.save(0, values)
    spool.save(1, values, codec=Bound(abs=1e-3))
    done.append((spool.load(0) == values).all())
    done.append(np.abs(spool.load(1) - values).max() <= 1e-3)
work()
spool.discard(0)
spool.discard(1)
threading.stack_size(32 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(all(done), len(done))
"""


def test_a_thread_with_a_small_stack_encodes() -> None:
    done = python(SMALL_STACK)
    assert (done.returncode, done.stdout) == (0, "True 4\n"), done.stderr
