"""Part `disk`: a history that goes through the disk tier, beside one plain file that is written and
read past the page cache (O_DIRECT), one checkpoint a call, in the same directory.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from unspool.stats import size as size_text
from unspool_studies.bench.measure import Sample, gigabytes_per_second, ratio, seconds_of
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table
from unspool_studies.bench.tiers import open_plain, room_for

__all__ = ["PlainFile", "move_all", "open_direct", "run"]

COLUMNS = ("way", "write GB/s", "of raw %", "read GB/s", "read/raw %")

#: Checkpoints that the host tier above the disk holds.
HOST = 4

#: The most bytes of one checkpoint here.
LARGEST = 64 << 20


def run(plan: Plan, report: Report) -> None:
    """One table."""
    size = min(plan.checkpoint, LARGEST)
    count = max(2 * HOST, plan.disk_history // size)
    title = f"{count} checkpoints of {size_text(size)} through the disk tier in {plan.directory}"
    table = Table("disk", title, COLUMNS)
    table.note("write: until everything is on the disk tier; read: in the order of writing")
    raw: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    for _ in range(min(plan.rounds, 3)):
        with PlainFile(plan.directory, size) as plain:
            raw.append((plain.write(count), plain.read(count)))
            if not plain.direct:
                table.note("this file system has no O_DIRECT: the plain file is in the page cache")
        ours.append(_through_spool(plan.directory, size, count))
    rates = [_rates(size * count, readings) for readings in (raw, ours)]
    table.add("plain O_DIRECT", rates[0][0], None, rates[0][1], None)
    shares = [100 * ratio(rates[1][way], rates[0][way]) for way in (0, 1)]
    table.add("unspool", rates[1][0], shares[0], rates[1][1], shares[1])
    report.show(table)


def _rates(count: int, readings: list[tuple[float, float]]) -> tuple[Sample, Sample]:
    write, read = (
        gigabytes_per_second(count, Sample.of(one[way] for one in readings)) for way in (0, 1)
    )
    return write, read


def _through_spool(directory: Path, size: int, count: int) -> tuple[float, float]:
    """Seconds to save everything and have it on disk, and to restore everything."""
    state = np.full(size, 1, np.uint8)
    disk = (str(directory), 2 * room_for(count, size))
    with open_plain(host_memory=room_for(HOST, size), disk=disk) as spool:

        def write() -> None:
            for version in range(count):
                spool.save(version, state)
            spool.flush()

        def read() -> None:
            spool.expect(range(count))
            for version in range(count):
                spool.restore(version, state)

        return seconds_of(write), seconds_of(read)


class PlainFile:
    """A file that is removed at the end.

    Attributes:
        direct: whether it is used past the page cache.
    """

    def __init__(self, directory: Path, size: int) -> None:
        self._directory, self._size = directory, size
        # A mapping begins at a page, which is what O_DIRECT needs.
        self._buffer = mmap.mmap(-1, size)
        self._buffer[:] = b"\1" * size

    def __enter__(self) -> PlainFile:
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="unspool-bench-", dir=self._directory)
        )
        self._file, self.direct = open_direct(Path(folder) / "plain")
        self._stack.callback(os.close, self._file)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stack.close()
        self._buffer.close()

    def write(self, count: int) -> float:
        """Seconds to write the buffer so many times, one after the other."""
        return seconds_of(lambda: self._each(os.pwritev, count))

    def read(self, count: int) -> float:
        """Seconds to read everything back."""
        return seconds_of(lambda: self._each(os.preadv, count))

    def _each(self, call: Callable[..., int], count: int) -> None:
        for number in range(count):
            with memoryview(self._buffer) as view:
                move_all(call, self._file, view, number * self._size)


def move_all(call: Callable[..., int], file: int, view: memoryview, place: int) -> None:
    """Writes or reads all bytes at their place in the file: the system may do less in one call.

    Raises:
        OSError: it fails, or the file ends before.
    """
    done = 0
    while done < len(view):
        with view[done:] as rest:
            count = call(file, [rest], place + done)
        if not count:
            raise OSError(f"a file ends after {place + done} bytes, {len(view) - done} more needed")
        done += count


def open_direct(path: Path) -> tuple[int, bool]:
    """A new file that is used past the page cache, and whether its file system can do that."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600), False
