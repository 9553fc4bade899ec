"""Opening, closing, forking, dying: no spool hangs, prints, or leaves its directory behind."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import children, python


def calls(spool: unspool.Spool, path: Path) -> dict[str, object]:
    """Every method that needs an open spool."""
    return {
        "save": lambda: spool.save(9, np.zeros(3)),
        "restore": lambda: spool.restore(1, np.zeros(3)),
        "load": lambda: spool.load(1),
        "regions": lambda: spool.regions(1),
        "expect": lambda: spool.expect([1]),
        "forget_hints": spool.forget_hints,
        "discard": lambda: spool.discard(1),
        "flush": spool.flush,
        "versions": spool.versions,
        "durable": lambda: spool.durable(1),
        "in": lambda: 1 in spool,
        "len": lambda: len(spool),
    }


def test_every_call_on_a_closed_spool_says_that_it_is_closed(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="1MiB", disk=tmp_path, debug=unspool.Debug(trace=True))
    spool.save(1, np.zeros(3))
    assert not spool.closed
    spool.close()
    assert spool.closed
    for name, call in calls(spool, tmp_path).items():
        with pytest.raises(unspool.errors.ClosedError) as refusal:
            call()
        assert "closed" in str(refusal.value), name
    spool.close()
    assert spool.stats().saves == 1
    spool.write_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text().startswith(("{", "["))
    assert "closed" in repr(spool)


def test_leaving_a_block_closes_and_an_error_in_it_is_not_hidden(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        unspool.Spool(host_memory="1MiB", disk=tmp_path) as spool,
    ):
        spool.save(1, np.zeros(3))
        raise ZeroDivisionError
    assert spool.closed and children(tmp_path) == []


def test_a_spool_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="1MiB", disk=tmp_path)
    spool.save(1, np.zeros(3))
    spool.flush()
    assert children(tmp_path)
    reference = weakref.ref(spool)
    with pytest.warns(ResourceWarning):
        del spool
        gc.collect()
    assert reference() is None and children(tmp_path) == []


AT_EXIT = """
import sys
import numpy as np, unspool
spool = unspool.Spool(host_memory="1MiB", disk=sys.argv[1])
cycle = [spool]
cycle.append(cycle)
for version in range(100):
    spool.save(version, np.zeros(4000))
spool.expect(range(100))
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise SystemExit(4)", 4), ("del spool, cycle", 0)],
)
def test_the_interpreter_exits_at_once_and_in_silence(
    ending: str, code: int, tmp_path: Path
) -> None:
    done = python(AT_EXIT.format(ending=ending), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert children(tmp_path) == []


IN_A_THREAD = """
import sys, threading
import numpy as np, unspool
spool = unspool.Spool(host_memory="1MiB", disk=sys.argv[1])
begun = threading.Event()
def work():
    for version in range(1 << 40):
        try:
            spool.save(version, np.zeros(4000))
            spool.discard(version)
        except unspool.errors.ClosedError:
            return
        begun.set()
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


def test_a_daemon_thread_in_a_call_does_not_hold_up_the_exit(tmp_path: Path) -> None:
    done = python(IN_A_THREAD, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert children(tmp_path) == []


VICTIM = """
import sys
import numpy as np, unspool
spool = unspool.Spool(host_memory="64KiB", disk=sys.argv[1])
for version in range(20):
    spool.save(version, np.zeros(4000))
spool.flush()
print("saved", flush=True)
sys.stdin.read()
"""


def test_the_directory_of_a_killed_process_is_reclaimed_by_the_next_spool(tmp_path: Path) -> None:
    command = [sys.executable, "-c", VICTIM, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == "saved\n"
        left = children(tmp_path)
        assert left
        with unspool.Spool(disk=tmp_path):
            assert set(left) <= set(children(tmp_path)), "a living spool is left alone"
        victim.send_signal(signal.SIGKILL)
        victim.wait(60)
    assert children(tmp_path) == left
    with unspool.Spool(disk=tmp_path) as spool:
        assert not set(left) & set(children(tmp_path))
        spool.save(0, np.arange(3))
    assert children(tmp_path) == []


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    spool = unspool.Spool(host_memory="64KiB", disk=tmp_path)
    for version in range(20):
        spool.save(version, np.full(4000, version))
    child = os.fork()
    if child == 0:
        os._exit(_in_the_child(spool, tmp_path))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for version in range(20):
        assert (spool.load(version) == version).all()
    spool.close()
    assert children(tmp_path) == []


def _in_the_child(spool: unspool.Spool, path: Path) -> int:
    """0 when every call says that the spool is the parent's; the number of the line otherwise."""
    try:
        every = {**calls(spool, path), "close": spool.close, "stats": spool.stats}
        for call in every.values():
            try:
                call()
            except unspool.errors.ClosedError as refusal:
                if "process" not in str(refusal):
                    return 2
            else:
                return 3
        repr(spool)
        del spool, every
        with unspool.Spool(host_memory="1MiB", disk=path) as own:
            own.save(0, np.arange(3))
            return 0 if own.load(0)[2] == 2 else 4
    except BaseException:
        return 5


FORK_AND_EXIT = """
import os, sys, warnings
import numpy as np, unspool
warnings.simplefilter("ignore")
spool = unspool.Spool(host_memory="64KiB", disk=sys.argv[1])
for version in range(20):
    spool.save(version, np.zeros(4000))
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert spool.load(19).shape == (4000,)
print(len(os.listdir(sys.argv[1])))
"""


def test_a_forked_child_that_exits_does_not_close_the_parents_spool(tmp_path: Path) -> None:
    done = python(FORK_AND_EXIT, tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert int(done.stdout) > 0 and children(tmp_path) == []


def test_a_spool_is_not_copied_or_pickled(spool: unspool.Spool) -> None:
    for make in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(unspool.errors.OptionError, match="each process"):
            make(spool)


def test_a_spool_describes_itself(tmp_path: Path) -> None:
    with unspool.Spool(device_memory="1MiB", host_memory="1.5MiB", disk=tmp_path) as spool:
        spool.save(1, np.zeros(3))
        shown = repr(spool)
    for part in ("device", "1 MiB", "1.5 MiB", str(tmp_path), "1 checkpoint"):
        assert part in shown


def test_an_empty_spool_is_true_and_has_a_length(spool: unspool.Spool) -> None:
    assert spool and len(spool) == 0
    spool.save(1, np.zeros(3))
    assert len(spool) == 1 and 1 in spool and "one" not in spool and None not in spool


def test_a_spool_can_be_subclassed(tmp_path: Path) -> None:
    class Named(unspool.Spool):
        def __new__(cls, name: str, **options: object) -> Named:
            made = super().__new__(cls, **options)
            made.name = name
            return made

    with Named("history", host_memory="1MiB") as spool:
        spool.save(1, np.zeros(3))
        assert spool.name == "history" and 1 in spool


def test_decisions_are_recorded_for_replay(tmp_path: Path) -> None:
    record = tmp_path / "decisions"
    with unspool.Spool(host_memory="1MiB", debug=unspool.Debug(record=record)) as spool:
        spool.save(1, np.zeros(3))
        spool.load(1)
    assert len(record.read_text().splitlines()) > 4


def test_a_spool_is_read_as_a_mapping(spool: unspool.Spool) -> None:
    assert spool.latest() is None and list(spool) == []
    for version in (5, -2, 3):
        spool.save(version, np.full(3, version))
    assert list(spool) == [-2, 3, 5] and spool.latest() == 5
    assert spool[3].tolist() == [3, 3, 3] and 3 in spool
    with pytest.raises(KeyError):
        spool[4]
    for version in spool:
        spool.discard(version)
    assert len(spool) == 0


def test_a_version_is_overwritten_where_that_is_asked_for(spool: unspool.Spool) -> None:
    spool.save(1, np.zeros(3), overwrite=True)
    with pytest.raises(unspool.errors.VersionExistsError):
        spool.save(1, np.ones(3))
    spool.save(1, u=np.ones(4), overwrite=True)
    assert spool[1]["u"].tolist() == [1, 1, 1, 1] and len(spool) == 1
    with pytest.raises(unspool.errors.ArrayError):
        spool.save(1, object(), overwrite=True)
    assert 1 in spool
    with pytest.raises(unspool.errors.OptionError, match="overwrite"):
        spool.save(1, np.zeros(3), overwrite="yes")


def test_clear_discards_everything(spool: unspool.Spool) -> None:
    for version in range(4):
        spool.save(version, np.zeros(3))
    spool.clear()
    spool.clear()
    assert len(spool) == 0 and spool.stats().discards == 4


def test_a_spool_that_is_dropped_open_is_warned_of() -> None:
    spool = unspool.Spool(host_memory="1MiB")
    with pytest.warns(ResourceWarning, match=r"host_memory=.*close\(\)"):
        del spool
        gc.collect()
    spool = unspool.Spool(host_memory="1MiB")
    spool.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del spool
        gc.collect()


def test_an_exception_that_drops_a_spool_goes_on() -> None:
    def fail() -> None:
        spool = unspool.Spool(host_memory="1MiB")
        spool.load(7)

    with pytest.warns(ResourceWarning), pytest.raises(KeyError):
        try:
            fail()
        except KeyError as raised:
            raise raised.with_traceback(None) from None
        gc.collect()
