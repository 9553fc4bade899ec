"""Arrays larger than memory, against plain ones. Skipped, with the kernel's reason, where this
process may not answer page faults."""

import contextlib
import gc
import itertools
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool.types import PagedArray

CHUNK = 16 << 10
SMALL = {"resident": 8 * CHUNK, "chunk": CHUNK, "threads": 2}


@pytest.fixture(scope="module", autouse=True)
def faults():
    try:
        unspool.paged(16 * CHUNK, np.uint8, **SMALL)
    except unspool.errors.RefusedError as why:
        pytest.skip(str(why))


def paged(shape, dtype=np.float64, **options):
    return unspool.paged(shape, dtype, **{**SMALL, **options})


@pytest.mark.parametrize("codec", ["lossless", "lz4", "zstd", None])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "c16", "?", ">f8", "M8[s]", "S5"])
def test_what_was_written_is_read(dtype, codec):
    random = np.random.default_rng(1)
    plain = random.integers(0, 50, 70_001).astype("i4").astype(dtype)
    array = paged(plain.shape, dtype, codec=codec, resident=4 * CHUNK)
    assert array.dtype == plain.dtype and not array.any()
    array[:] = plain
    np.testing.assert_array_equal(array, plain)
    np.testing.assert_array_equal(array[::-3], plain[::-3])
    assert (array.paging().evictions > 0) == (plain.nbytes > 4 * CHUNK)


def test_structured_items_come_back_whole():
    dtype = np.dtype([("name", "S7"), ("at", "f8", 3), ("count", "<u2")])
    array = paged((5000, 3), dtype)
    array["at"] = np.arange(45_000.0).reshape(5000, 3, 3)
    array["name"], array["count"] = b"tile", np.arange(3)
    np.testing.assert_array_equal(array["at"].ravel(), np.arange(45_000.0))
    assert (array["name"] == b"tile").all() and (array["count"].sum(0) == [0, 5000, 10_000]).all()


def test_numpy_just_works_and_results_are_ordinary_arrays():
    plain = np.random.default_rng(2).normal(size=(200, 300))
    array = paged(plain.shape)
    array[...] = plain
    array += 1
    plain += 1
    assert isinstance(array, PagedArray) and isinstance(array[3:, ::2].T, PagedArray)
    np.testing.assert_array_equal(np.sort(array, axis=0), np.sort(plain, axis=0))
    np.testing.assert_array_equal(array @ array.T, plain @ plain.T)
    np.add(array, 2, out=array[:, :])
    for result in (array + 1, np.sin(array), array * array, array > 0):
        assert type(result) is np.ndarray
    assert array.sum() == pytest.approx((plain + 2).sum())
    assert isinstance(array.max(), float)
    assert type(pickle.loads(pickle.dumps(array))) is np.ndarray


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_slices_are_those_of_a_plain_array(data):
    array, plain = paged((30, 40, 50), np.float32), np.zeros((30, 40, 50), np.float32)
    for step in range(data.draw(st.integers(1, 20))):
        ends = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in plain.shape]
        part = tuple(slice(*end) for end in ends)
        np.testing.assert_array_equal(array[part], plain[part])
        array[part] = plain[part] = step + 1
    np.testing.assert_array_equal(array, plain)


def test_many_threads_read_what_they_wrote(tmp_path):
    disk = unspool.Disk(tmp_path, capacity="64MiB")
    array = paged((400, 1000), np.int64, host_memory="50KiB", disk=disk, codec=None)
    failures = []

    def run(thread, own):
        random = np.random.default_rng(thread)
        plain = np.zeros_like(np.asarray(own))
        for step in range(60):
            low, high = sorted(random.integers(0, 101, 2))
            if not np.array_equal(own[low:high], plain[low:high]):
                failures.append((thread, step))
            own[low:high] = plain[low:high] = random.integers(1 << 40)

    threads = [threading.Thread(target=run, args=(number, array[number::4])) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = array.paging()
    assert not failures and stats.lost == 0 and stats.stored_on_disk > 0
    assert stats.resident <= stats.resident_limit == 8 * CHUNK
    del array, threads
    gc.collect()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("order", ["sweep", "rows", None])
def test_a_sweep_with_an_order_or_without_is_loaded_ahead(order):
    array = paged((64, CHUNK // 8), resident=32 * CHUNK)
    if order:
        array.expect("sweep" if order == "sweep" else range(64))
    for lap in range(6):
        for row in array:
            assert row[0] == row[-1] == lap
            row += 1
    stats = array.paging()
    assert stats.order == ("given" if order else "detected")
    # Of 64 rows 32 do not fit; LRU would load all of them in each lap.
    assert stats.loads < 64 + 5 * 46 and stats.ahead_hits > 60, stats
    array.expect(None)
    assert array.paging().order is None


def pagers() -> set[str]:
    """The threads of this process that answer faults, by number."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text().startswith("unspool-page-"):
                found.add(task.name)
    return found


def test_views_keep_the_memory_and_it_is_gone_after_the_last():
    gc.collect()
    before = pagers()
    array = paged(40 * CHUNK, np.uint8)
    array[:] = np.arange(40 * CHUNK) % 251
    view = array[5 * CHUNK :: 7]
    expected = np.arange(5 * CHUNK, 40 * CHUNK, 7) % 251
    del array
    gc.collect()
    own = pagers() - before
    assert len(own) == 2
    np.testing.assert_array_equal(view, expected)
    del view
    gc.collect()
    # A thread that is joined may be listed for a moment more.
    until = time.monotonic() + 30
    while pagers() & own:
        assert time.monotonic() < until


def test_an_exception_leaves_the_array_as_it_is():
    array = paged((64, CHUNK // 8))
    with pytest.raises(ZeroDivisionError), array.pinned(slice(2, 4)):
        array[:] = 7
        raise ZeroDivisionError
    assert (array == 7).all()
    with array.pinned(slice(0, 7)):
        pass


def test_system_calls_work_on_what_is_pinned(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 256)
    array = paged(40 * CHUNK, np.uint8, user_mode_only=True)
    assert not array.paging().kernel_faults
    with path.open("rb", buffering=0) as file:
        with pytest.raises(OSError, match="Bad address"):
            file.readinto(array[3 * CHUNK : 5 * CHUNK])
        file.seek(0)
        with array.pinned(slice(3 * CHUNK, 5 * CHUNK)) as part:
            assert array.sum() == 0
            assert file.readinto(part) == 2 * CHUNK
    assert bytes(array[3 * CHUNK : 5 * CHUNK]) == path.read_bytes()[: 2 * CHUNK]
    with pytest.raises(unspool.errors.OptionError, match="pinned"), array.pinned():
        pass


def test_saving_what_the_kernel_may_not_read_says_to_pin_it(tmp_path):
    array = paged(40 * CHUNK, np.uint8, user_mode_only=True)
    array[:] = 1
    with pytest.raises(unspool.errors.StorageError, match="in `with array"):
        np.save(tmp_path / "a.npy", array)
    with array.pinned(slice(0, CHUNK)) as part:
        np.save(tmp_path / "b.npy", part)
    assert (np.load(tmp_path / "b.npy") == 1).all()
    np.save(tmp_path / "c.npy", np.array(array))
    assert np.load(tmp_path / "c.npy").sum() == 40 * CHUNK


def test_a_bound_holds_and_is_counted():
    plain = np.sin(np.linspace(0, 50, 200_000)).astype(np.float32)
    array = paged(plain.shape, np.float32, codec=unspool.Bound(abs=1e-3))
    array[:] = plain
    error = np.abs(array - plain).max()
    stats = array.paging()
    # A chunk that is evicted before it is full is encoded once more.
    assert 1 <= stats.lossy_most <= 4 and error <= stats.lossy_most * 1e-3
    assert stats.factor > 4


def test_an_array_that_fits_is_ordinary_memory():
    for shape in [(), 0, (3, 0), 100]:
        array = unspool.paged(shape, np.float32, order=None)
        array[...] = 3
        array.expect("sweep")
        with array.pinned() as part:
            assert (part == 3).all()
        stats = array.paging()
        assert stats.chunk_bytes == stats.faults == 0 and stats.factor == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": object}, "objects"),
        ({"dtype": [("a", "O")]}, "objects"),
        ({"dtype": "no such"}, "no such"),
        ({"shape": (-1, 3)}, "negative"),
        ({"shape": (1 << 40, 1 << 40)}, "address"),
        ({"resident": "lots"}, "resident"),
        ({"resident": 3 * CHUNK}, "chunks"),
        ({"chunk": 5000}, "multiple"),
        ({"threads": 0}, "threads"),
        ({"codec": unspool.Bound(range=1e-3)}, "absolute"),
        ({"codec": unspool.Bound(abs=1e-3), "dtype": int}, "floats"),
        ({"codec": unspool.codecs.Zfp(rate=8)}, "does not take"),
        ({"codec": "auto"}, "does not take"),
        ({"order": []}, "order"),
        ({"order": "zigzag"}, "zigzag"),
        ({"order": [1, 900]}, "900"),
        ({"order": 5}, "a list of indices"),
        ({"order": ["a"]}, "neither an index nor a slice"),
        ({"order": itertools.cycle(range(4))}, "more than 1,048,576 parts"),
        ({"order": [slice(None)] * 70_000}, "more than .* chunks"),
        ({"disk": unspool.Disk("/tmp", durable=True)}, "capacity"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    shape = arguments.pop("shape", (100, 5000))
    with pytest.raises(unspool.errors.OptionError, match=message):
        paged(shape, **arguments)


def test_a_disk_that_is_not_there_and_a_copy_are_refused(tmp_path):
    with pytest.raises(unspool.errors.StorageError):
        paged(40 * CHUNK, disk=tmp_path / "not" / "there")
    copy = paged(40 * CHUNK).copy()
    with pytest.raises(unspool.errors.ArrayError, match="copy"):
        copy.paging()


def child(program):
    text = f"import numpy as np, os, sys, unspool\nSMALL = {SMALL!r}\n" + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)


def test_a_forked_child_is_told_so():
    done = child("""
        array = unspool.paged(1 << 20, np.uint8, **SMALL)
        array[:] = 5
        pid = os.fork()
        if not pid:
            try:
                array.paging()
            except unspool.errors.ClosedError:
                del array
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert (array == 5).all()
    """)
    assert done.returncode == 0, done.stderr


def test_a_process_ends_with_an_array_in_use_and_its_directory_goes(tmp_path):
    done = child(f"""
        array = unspool.paged(1 << 20, np.uint8, host_memory=0, disk={str(tmp_path)!r}, **SMALL)
        array[:] = np.arange(1 << 20)
        assert array.paging().stored_on_disk
    """)
    assert done.returncode == 0 and not any(tmp_path.iterdir()), done.stderr


def test_bytes_that_are_lost_end_the_process_and_are_never_handed_out(tmp_path):
    done = child(f"""
        place = {str(tmp_path)!r}
        array = unspool.paged(1 << 20, np.uint8, host_memory=0, disk=place, codec=None, **SMALL)
        array[:] = 5
        for folder, _, files in os.walk(place):
            for name in files:
                if name != "lock":
                    path = os.path.join(folder, name)
                    with open(path, "r+b") as file:
                        file.seek(3000)
                        file.write(b"damage")
        print(array.sum())
    """)
    assert -done.returncode in (signal.SIGBUS, signal.SIGABRT), done
    assert "unspool.paged: bytes" in done.stderr and not done.stdout


def test_a_process_that_is_killed_leaves_a_directory_that_the_next_one_removes(tmp_path):
    program = f"""
        array = unspool.paged(1 << 20, np.uint8, host_memory=0, disk={str(tmp_path)!r}, **SMALL)
        array[:] = np.arange(1 << 20)
        os.kill(os.getpid(), 9)
    """
    assert child(program).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    array = paged(40 * CHUNK, np.uint8, disk=tmp_path)
    assert left not in tmp_path.iterdir() and array.sum() == 0


def test_a_spool_takes_a_paged_array_whose_pages_its_codec_waits_for():
    array = paged((64, CHUNK // 8), resident=4 * CHUNK)
    array[:] = np.linspace(0, 9, array.size).reshape(array.shape)
    with unspool.Spool(host_memory="64MiB", codec="lossless") as spool:
        for version in range(3):
            array += 1
            spool.save(version, array)
        spool.restore(0, array)
    expected = np.linspace(0, 9, array.size).reshape(array.shape) + 1
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    "option", ["resident", "dtype", "codec", "chunk", "threads", "host_memory", "disk", "shape"]
)
def test_an_option_that_makes_no_sense_is_an_error_of_ours(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for wrong in (-1, -(10**6000), 2**64, float("nan"), b"x\0", "\udcff", object(), "5" * 5000):
        given: dict[str, Any] = {"shape": (1000,), "resident": "1MiB", option: wrong}
        try:
            unspool.paged(given.pop("shape"), **given)
        except unspool.Error as error:
            refused += len(str(error)) > 10
    assert refused > 5
