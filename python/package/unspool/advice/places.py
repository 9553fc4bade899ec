"""How fast a directory takes bytes and gives them back, by a probe that is bounded in time and
bytes, and how many bytes its drive may be written, from what an NVMe drive says of its wear.

Drives do not tell their rated endurance. They tell what was written and how many hundredths of
their life that was, and the quotient is the endurance, as far as the drive is not new.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..errors import OptionError, StorageError
from ..stats import size
from .sizes import bytes_of, count_of, number

#: Bytes of one call of the system, and between two looks at what the medium has taken.
BLOCK, SYNCED = 4 << 20, 32 << 20

#: Seconds after the limit in which the medium has to answer.
PATIENCE = 30.0

#: The system call for a command to a drive's controller, `NVME_IOCTL_ADMIN_CMD`.
ADMIN = 0xC048_4E41

#: "Get log page", the log of its health, the bytes of that, and all name spaces.
GET_LOG, HEALTH, BYTES, ALL = 0x02, 0x02, 512, 0xFFFF_FFFF

#: `struct nvme_admin_cmd` of the kernel: the command, name spaces, the address and the bytes of the
#: answer, which part of it, and the milliseconds that it may take.
COMMAND = struct.Struct("=B3xI16xQ4xII20xI4x")

#: Bytes of a unit of the log.
UNIT = 512_000


@dataclass(frozen=True, slots=True)
class Place:
    """How fast one rank writes to a place and reads from it while all others do as well.

    Attributes:
        write: bytes per second, synchronisation with the medium included.
        read: bytes per second.
        path: the directory, where it is one of this machine.
        writers: how many wrote at once when it was measured; 0 where it was given.
    """

    write: float
    read: float
    path: str | None = None
    writers: int = 0

    def __post_init__(self) -> None:
        number("write", self.write, 1.0)
        number("read", self.read, 1.0)

    @classmethod
    def measured(
        cls, path: Any, *, writers: int = 1, most: int | str = "256MiB", limit: float = 3.0
    ) -> Self:
        """Writes and reads files that have no name in a directory, and leaves nothing there.

        Arguments:
            path: the directory.
            writers: ranks that write to it at the same time; the speeds are those of one.
            most: bytes that are written at most, by all together.
            limit: about how long each direction takes at most, in seconds.

        Raises:
            OptionError: an argument makes no sense, or there is no such directory.
            StorageError: the file system is too full, refuses, or does not answer.
        """
        directory = directory_of(path)
        writers = count_of("writers", writers, 1024)
        count, limit = bytes_of("most", most), number("limit", limit, 0.01, 600.0)
        each = max(BLOCK, count // writers // BLOCK * BLOCK)
        _check_room(directory, each * writers)
        try:
            found = _together(directory, writers, each, limit)
        except OSError as cause:
            raise _refused(directory, cause) from cause
        # The slowest writer is the one that all others wait for.
        return cls(min(one[0] for one in found), min(one[1] for one in found), directory, writers)


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
    import tempfile

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


def endurance_of(directory: str, root: Path = Path("/sys/dev/block")) -> tuple[float | None, str]:
    """Bytes that may be written to the drive of a directory in all, or why that is not known."""
    number = os.stat(directory).st_dev
    link = root / f"{os.major(number)}:{os.minor(number)}"
    # A partition lies in the folder of its drive.
    names = [part for part in link.resolve().parts if re.fullmatch(r"nvme\d+n\d+", part)]
    if not names:
        return None, f"{directory} is not on an NVMe drive of this machine"
    device = f"/dev/{names[-1]}"
    page = (ctypes.c_uint8 * BYTES)()
    which = HEALTH | (BYTES // 4 - 1) << 16
    command = bytearray(COMMAND.pack(GET_LOG, ALL, ctypes.addressof(page), BYTES, which, 5_000))
    try:
        file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            refused = fcntl.ioctl(file, ADMIN, command)
        finally:
            os.close(file)
    except OSError as cause:
        return None, f"{device} does not tell its wear ({cause.strerror})"
    if refused:
        return None, f"{device} has no log of its health"
    return endurance_in(bytes(page))


def endurance_in(page: bytes) -> tuple[float | None, str]:
    """What the log of a drive's health says: hundredths of its life, and what was written."""
    used, written = page[5], int.from_bytes(page[48:64], "little") * UNIT
    if used == 0:
        return None, "less than a hundredth of the drive's life is used, which tells nothing"
    if not written:
        return None, "the drive does not count what is written"
    return written * 100.0 / used, "from the drive's own log of its wear"
