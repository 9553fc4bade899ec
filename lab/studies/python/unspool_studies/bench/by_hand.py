"""Histories that a program keeps with plain CUDA, without knowing which restore comes next:
baselines of part `orders`.

Two of them: synchronous pinned copies, and a cache of the device from which the least recently used
checkpoint makes room.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from unspool.stats import size as size_text
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.disk_tier import move_all, open_direct
from unspool_studies.bench.experiment import Application, Experiment
from unspool_studies.bench.machine import require_memory
from unspool_studies.bench.sizes import PAGE

__all__ = ["LruHistory", "NoBaseline", "PinnedHistory", "require_disk", "view_of"]


class NoBaseline(RuntimeError):
    """A baseline that cannot do the experiment, or whose package is missing; the text says why."""


def view_of(address: int, count: int) -> memoryview:
    """Bytes of host memory, which has to be there for as long as the view."""
    return memoryview((ctypes.c_uint8 * count).from_address(address)).cast("B")


def require_disk(directory: Path, count: int) -> None:
    """Refuses a history that a disk has no room for.

    Raises:
        OSError: there is too little room.
    """
    free = shutil.disk_usage(directory).free
    if free < count:
        raise OSError(f"{directory} has {size_text(free)} free, {size_text(count)} are needed")


class PinnedHistory:
    """Checkpoints in pinned host memory by synchronous copies: those that fit there, in the order
    of their saves; the others in a file past the page cache, through one pinned buffer.

    Arguments:
        disk: whether host memory has the bytes of the host tier; else it holds everything.

    Raises:
        OSError: there is too little memory or room on the disk.
    """

    def __init__(self, cuda: Cuda, application: Application, one: Experiment, disk: bool) -> None:
        self._cuda, self._stream, self._sizes = cuda, application.stream, one.sizes
        begins = [0, *itertools.accumulate(one.sizes)]
        self._room = one.host if disk else one.total
        held = sum(end <= self._room for end in begins[1:])
        # What is not held comes one after the other in the file.
        self._begins, self._held, self._in_file = begins, held, begins[held]
        require_memory(self._room)
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            if held < len(one.sizes):
                self._file = _file_for(one, one.total - self._in_file, stack)
            # The buffer comes last; both begin at a page.
            count = begins[held] + PAGE + max(one.sizes)
            address = cuda.host_alloc(count)
            stack.callback(cuda.free_host, address)
            self._host = -(-address // PAGE) * PAGE
            self._stack = stack.pop_all()

    def save(self, version: int, state: int) -> None:
        """Returns when the bytes are where they stay."""
        size, place = self._sizes[version], self._place(version)
        self._cuda.down(place, state, size, self._stream)
        self._cuda.wait(self._stream)
        self._move(os.pwritev, version)

    def flush(self) -> None:
        """Nothing is under way."""

    def begin_restores(self, order: object) -> None:
        """The order is not made use of."""

    def restore(self, version: int, state: int) -> None:
        """Returns when the bytes are on the device."""
        self._move(os.preadv, version)
        size, place = self._sizes[version], self._place(version)
        self._cuda.up(state, place, size, self._stream)
        self._cuda.wait(self._stream)

    def close(self) -> None:
        """Gives everything back."""
        self._cuda.wait(self._stream)
        self._stack.close()

    def _place(self, version: int) -> int:
        """Where a checkpoint is in host memory, or passes through."""
        return self._host + self._begins[min(version, self._held)]

    def _move(self, call: Callable[..., int], version: int) -> None:
        if version < self._held:
            return
        with view_of(self._place(version), self._sizes[version]) as view:
            move_all(call, self._file, view, self._begins[version] - self._in_file)


def _file_for(one: Experiment, count: int, stack: contextlib.ExitStack) -> int:
    """A file in a folder of its own, which is removed with the stack."""
    require_disk(one.directory, count)
    folder = tempfile.TemporaryDirectory(prefix="unspool-bench-", dir=one.directory)
    file, _ = open_direct(Path(stack.enter_context(folder)) / "history")
    stack.callback(os.close, file)
    return file


class LruHistory:
    """Checkpoints in pinned host memory, and the last ones used in slots of the device; one stream
    copies in both directions, beside the application's.

    A slot has room for the largest checkpoint. All of it is enqueued: two events of each slot, of
    its last use by either stream, keep the streams in order.

    Raises:
        OSError: there is too little memory.
    """

    def __init__(self, cuda: Cuda, application: Application, one: Experiment) -> None:
        self._cuda, self._app, self._sizes = cuda, application.stream, one.sizes
        require_memory(one.total)
        self._begins = [0, *itertools.accumulate(one.sizes)]
        count = max(1, one.device // max(one.sizes))
        self._copies = cuda.stream()
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._host = cuda.host_alloc(one.total)
            stack.callback(cuda.free_host, self._host)
            self._slots = cuda.malloc(count * max(one.sizes))
            stack.callback(cuda.free, self._slots)
            self._used, self._copied = ([self._recorded(stack) for _ in range(count)] for _ in "ab")
            self._stack = stack.pop_all()
        self._free = list(range(count))
        # The slot of each version that is there, the least recently used first.
        self._held: dict[int, int] = {}

    def save(self, version: int, state: int) -> None:
        """Enqueues the copy into a slot, and from there to the host."""
        slot, size = self._take(version), self._sizes[version]
        self._cuda.hold(self._app, self._copied[slot])
        self._cuda.within(self._address(slot), state, size, self._app)
        self._cuda.record(self._used[slot], self._app)
        self._cuda.hold(self._copies, self._used[slot])
        self._cuda.down(self._place(version), self._address(slot), size, self._copies)
        self._cuda.record(self._copied[slot], self._copies)

    def flush(self) -> None:
        """Waits until all are in host memory."""
        self._cuda.wait(self._copies)

    def begin_restores(self, order: object) -> None:
        """The order is not made use of."""

    def restore(self, version: int, state: int) -> None:
        """Enqueues the copy from its slot, into which it may have to be brought before."""
        size = self._sizes[version]
        slot = self._held.pop(version, None)
        if slot is None:
            slot = self._take(version)
            self._cuda.hold(self._copies, self._used[slot])
            self._cuda.up(self._address(slot), self._place(version), size, self._copies)
            self._cuda.record(self._copied[slot], self._copies)
        self._held[version] = slot
        self._cuda.hold(self._app, self._copied[slot])
        self._cuda.within(state, self._address(slot), size, self._app)
        self._cuda.record(self._used[slot], self._app)

    def close(self) -> None:
        """Gives everything back, when the device is done with it."""
        for stream in (self._app, self._copies):
            self._cuda.wait(stream)
        self._stack.close()

    def _recorded(self, stack: contextlib.ExitStack) -> int:
        event = self._cuda.event()
        stack.callback(self._cuda.destroy_event, event)
        self._cuda.record(event, self._app)
        return event

    def _take(self, version: int) -> int:
        """A slot for it: a free one, or that of the least recently used."""
        slot = self._free.pop() if self._free else self._held.pop(next(iter(self._held)))
        self._held[version] = slot
        return slot

    def _address(self, slot: int) -> int:
        return self._slots + slot * max(self._sizes)

    def _place(self, version: int) -> int:
        return self._host + self._begins[version]
