"""Every error names what it is about, and gives advice that works."""

from __future__ import annotations

import errno
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool.errors import ArrayError, CapacityError, StorageError, UnknownVersionError

from helpers import python


class Dataset:
    """What h5py and zarr have: it lends no memory, and is assigned to."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array(self.values)

    def __setitem__(self, key: object, values: np.ndarray) -> None:
        self.values[key] = values


def test_errors_about_arrays_have_the_version_of_the_call(spool: unspool.Spool) -> None:
    spool.save(5, np.zeros(3))
    for call in [
        lambda: spool.restore(5, np.zeros(4)),
        lambda: spool.restore(5, u=np.zeros(3)),
        lambda: spool.save(5),
        lambda: spool.save(5, object()),
        lambda: spool.save(5, np.zeros(3), u=np.zeros(3)),
        lambda: spool.load(5, to="mxnet"),
        lambda: spool.writing(5, u=3),
        lambda: spool.writing(5, (3,), "f4").__enter__(),
    ]:
        with pytest.raises(unspool.Error) as raised:
            call()
        assert raised.value.version == 5, raised.value


def test_a_directory_that_is_gone_is_named_and_not_worth_a_retry(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as raised:
        unspool.Spool(disk="/proc")
    assert raised.value.errno == errno.ENOENT and not raised.value.retryable
    copied = pickle.loads(pickle.dumps(raised.value))
    assert raised.value.filename == copied.filename == "/proc"


def test_a_dataset_is_restored_by_what_the_error_says(spool: unspool.Spool) -> None:
    dataset = Dataset(np.zeros(3))
    with pytest.raises(ArrayError, match=r"numpy\.asarray\(it\)"):
        spool.save(1, dataset)
    spool.save(1, np.arange(3.0))
    with pytest.raises(ArrayError, match=r"it\[\.\.\.\] = array"):
        spool.restore(1, dataset)
    dataset[...] = spool.load(1)
    assert dataset.values.tolist() == [0, 1, 2]


def test_a_call_in_a_writing_block_that_waits_for_the_block_is_named() -> None:
    with (
        unspool.Spool(host_memory="64KiB", device="cpu", timeout=60) as spool,
        spool.writing(1, (6000,), "f8"),
    ):
        for call in (spool.load, spool.discard, spool.durable):
            with pytest.raises(UnknownVersionError, match=r"Leave the block first") as unknown:
                call(1)
            assert not unknown.value.retryable and unknown.value.version == 1


@pytest.fixture
def counting() -> Iterator[None]:
    """A thread as that which reads counters of energy, and no other one besides the main thread."""
    for other in threading.enumerate():
        if other is not threading.main_thread() and not other.name.startswith("unspool-"):
            other.join(10)
            assert not other.is_alive()
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="unspool-energy", daemon=True)
    thread.start()
    yield
    done.set()
    thread.join(60)


@pytest.mark.usefixtures("counting")
def test_a_save_that_waits_for_the_room_of_its_own_block_is_refused() -> None:
    # With another thread of the program, which might discard something, the save would wait.
    with (
        unspool.Spool(host_memory="64KiB", device="cpu", timeout=60) as spool,
        spool.writing(1, (6000,), "f8"),
    ):
        for call in [
            lambda: spool.save(2, np.zeros(6000)),
            lambda: spool.writing(2, (6000,), "f8").__enter__(),
        ]:
            with pytest.raises(CapacityError, match=r"inside of writing\(1\)") as full:
                call()
            assert not full.value.retryable and full.value.version == 2


def test_a_save_in_a_block_waits_for_other_threads_and_names_the_block_at_its_end() -> None:
    with (
        unspool.Spool(host_memory="64KiB", device="cpu", timeout=2) as spool,
        spool.writing(1, (6000,), "f8"),
    ):
        done = threading.Event()
        other = threading.Thread(target=done.wait)
        other.start()
        with pytest.raises(unspool.errors.WaitTimeoutError, match=r"inside of writing\(1\)"):
            spool.save(2, np.zeros(6000))
        done.set()
        other.join()


def test_a_save_in_a_block_goes_on_where_room_is_made(tmp_path: Path) -> None:
    with unspool.Spool(host_memory="128KiB", disk=tmp_path, device="cpu") as spool:
        with spool.writing(100, (6000,), "f8", to="numpy") as array:
            for version in range(10):
                spool.save(version, np.full(6000, version))
            array[...] = 1
        assert all(spool.load(version)[0] == version for version in range(10))
        assert spool.load(100)[0] == 1


def test_a_flush_that_a_full_medium_refuses_says_where_and_with_what_number(
    tmp_path: Path,
) -> None:
    code = """
import errno, resource, signal, sys
import numpy as np, unspool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
disk = unspool.Disk(sys.argv[1], durable=True)
spool = unspool.Spool(host_memory="8MiB", device="cpu", disk=disk)
spool.save(1, np.zeros(1 << 18))
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
spool.save(2, np.zeros(1 << 18))
try:
    spool.flush()
except unspool.errors.StorageError as error:
    assert error.errno == errno.EFBIG and error.filename.startswith(sys.argv[1]), vars(error)
    assert error.retryable
else:
    raise SystemExit("nothing was refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
spool.flush()
spool.close()
"""
    done = python(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_damaged_bytes_are_those_of_a_file(tmp_path: Path) -> None:
    with unspool.Spool(device="cpu", disk=unspool.Disk(tmp_path, durable=True)) as spool:
        spool.save(1, np.zeros(10_000))
        spool.flush()
        (file,) = tmp_path.glob("frame-*")
        data = bytearray(file.read_bytes())
        data[9000] ^= 1
        file.write_bytes(data)
        with pytest.raises(unspool.errors.CorruptCheckpointError) as raised:
            spool.load(1)
    assert raised.value.filename == str(file) and str(file) in str(raised.value)
