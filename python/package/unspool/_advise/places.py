"""How fast a directory takes bytes and gives them back: a probe, bounded in time and bytes."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import time
from typing import Any

from unspool._advise.problem import Place, number
from unspool._plan.sizes import bytes_of
from unspool.errors import OptionError, StorageError
from unspool.stats import size

__all__ = ["directory_of", "measure"]

#: Bytes of one call of the system, and between two looks at what the medium has taken.
BLOCK, SYNCED = 4 << 20, 32 << 20

#: Seconds after the limit in which the medium has to answer.
PATIENCE = 30.0


def measure(path: Any, writers: int, most: int | str, limit: float) -> Place:
    """What `Place.measured` does."""
    directory = directory_of(path)
    if type(writers) is not int or not 1 <= writers <= 1024:
        raise OptionError(f"writers={writers!r}: a whole number from 1 to 1024 is needed.")
    count, limit = bytes_of("most", most), number("limit", limit, 0.01, 600.0)
    each = max(BLOCK, count // writers // BLOCK * BLOCK)
    _check_room(directory, each * writers)
    try:
        found = _together(directory, writers, each, limit)
    except OSError as cause:
        raise _refused(directory, cause) from cause
    # The slowest writer is the one that all others wait for.
    return Place(min(one[0] for one in found), min(one[1] for one in found), directory, writers)


def directory_of(path: Any) -> str:
    """The absolute path of a directory that is there.

    Raises:
        OptionError: it is none.
    """
    try:
        directory = os.path.abspath(os.fsdecode(path))
    except TypeError as cause:
        raise OptionError(f"{path!r:.60} is neither a directory nor a Place.") from cause
    if not os.path.isdir(directory):
        raise OptionError(
            f"{directory} is not a directory: make it, or give its speeds as Place(write, read)."
        )
    return directory


def _check_room(directory: str, needed: int) -> None:
    """Other programs keep a twentieth of the file system, at least as much as is written here."""
    usage = shutil.disk_usage(directory)
    if usage.free < max(2 * needed, needed + usage.total // 20):
        raise StorageError(
            f"{directory} was not measured: {size(usage.free)} are free, and writing "
            f"{size(needed)} might fill it. Make room, or give its speeds as Place(write, read)."
        )


def _refused(directory: str, cause: OSError) -> StorageError:
    if isinstance(cause, StorageError):
        return cause
    full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "make room there" if full else "give its speeds as Place(write, read)"
    return StorageError(f"{directory} could not be measured: {cause.strerror or cause}; {advice}.")


def _together(directory: str, writers: int, each: int, limit: float) -> list[tuple[float, float]]:
    """What every writer reaches, both ways.

    Raises:
        OSError: that of one of them, or one gave no answer in time.
    """
    answers: list[tuple[float, float] | OSError | None] = [None] * writers
    meeting = threading.Barrier(writers)

    def run(place: int) -> None:
        try:
            answers[place] = _probe(directory, each, limit, meeting)
        except threading.BrokenBarrierError:
            pass
        except OSError as cause:
            answers[place] = cause
            meeting.abort()

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(writers)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2.0 * limit + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    failed = next((one for one in answers if isinstance(one, OSError)), None)
    if failed is not None:
        raise failed
    rates = [one for one in answers if isinstance(one, tuple)]
    if len(rates) < writers:
        waited = 2.0 * limit + PATIENCE
        raise OSError(errno.ETIMEDOUT, f"it gave no answer in {waited:.0f} s")
    return rates


def _probe(
    directory: str, count: int, limit: float, meeting: threading.Barrier
) -> tuple[float, float]:
    """Writes a file without a name and reads it again: whatever ends the process, nothing stays."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        written, write = _write(file.fileno(), count, limit)
        # Nobody reads while others write.
        meeting.wait(limit + PATIENCE)
        return write, _read(file.fileno(), written, limit)


def _write(number: int, count: int, limit: float) -> tuple[int, float]:
    """Writes and syncs until `count` bytes are there or the time is over; bytes, and their rate."""
    # What cannot be compressed, also by a file system that tries.
    block = os.urandom(BLOCK)
    begin, written, synced = time.perf_counter(), 0, 0
    while written < count:
        written += os.write(number, block)
        if written - synced >= SYNCED:
            os.fdatasync(number)
            synced = written
        if time.perf_counter() - begin > limit:
            break
    os.fsync(number)
    return written, written / max(time.perf_counter() - begin, 1e-9)


def _read(number: int, count: int, limit: float) -> float:
    """Bytes per second, from the medium where the system lets its own copy go."""
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    begin, done = time.perf_counter(), 0
    while done < count and time.perf_counter() - begin <= limit:
        block = os.pread(number, BLOCK, done)
        if not block:
            raise OSError(errno.EIO, "what was written is not there")
        done += len(block)
    return done / max(time.perf_counter() - begin, 1e-9)
