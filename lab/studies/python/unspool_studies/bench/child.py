"""One process of those that share a node: `python -m unspool_studies.bench.child JOB`.

It says `ready` when its context is made, and then does one phase for each line that it is told:
`start`, `sweep`. After each it says what came out, as one line of JSON. It ends when its input
does: the end of a process disturbs the others, so they all end together.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import unspool
from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.tiers import open_spool, wait_until_ready

__all__ = ["Job", "work"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a process does.

    Attributes:
        way: `"spool"`, or `"pinned"`: cudaHostAlloc and plain copies.
        ordinal: the device's number.
        device: bytes of the device tier.
        host: its share of host memory, in bytes.
        size: bytes of a checkpoint.
        checkpoints: of the sweep.
    """

    way: str
    ordinal: int
    device: int
    host: int
    size: int
    checkpoints: int

    def text(self) -> str:
        """One word for a command line."""
        return json.dumps(asdict(self))


def work(
    cuda: Cuda, job: Job, phases: Iterable[str], say: Callable[[dict[str, Any]], None]
) -> None:
    """Does the phases as they are told, and says what came out of each."""
    worker = (_Spool if job.way == "spool" else _Pinned)(cuda, job)
    for phase in phases:
        if phase == "start":
            say(worker.start())
        elif phase == "sweep":
            say(worker.sweep())
        else:
            raise ValueError(f"there is no phase {phase!r}")
    worker.close()


class _Spool:
    """Through a spool."""

    def __init__(self, cuda: Cuda, job: Job) -> None:
        self._cuda, self._job = cuda, job
        self._stream, self._array = cuda.stream(), cuda.array(job.size)
        self._spool: unspool.Spool | None = None

    def start(self) -> dict[str, Any]:
        """Seconds until the first save returned, and until all is registered."""
        begin = time.perf_counter()
        self._spool = open_spool(
            self._cuda,
            device_memory=self._job.device,
            host_memory=self._job.host,
        )
        with self._cuda.current(self._stream):
            self._spool.save(-1, self._array)
        first = time.perf_counter() - begin
        told = wait_until_ready(self._spool)
        ready = None if told is None else time.perf_counter() - begin
        self._spool.discard(-1)
        return {"first": first, "ready": ready}

    def sweep(self) -> dict[str, Any]:
        """Seconds for all saves and for all restores in reverse order."""
        assert self._spool is not None
        spool, array, count = self._spool, self._array, self._job.checkpoints
        with self._cuda.current(self._stream):
            begin = time.perf_counter()
            for version in range(count):
                spool.save(version, array)
            self._cuda.wait(self._stream)
            turn = time.perf_counter()
            spool.expect(reversed(range(count)), once=True)
            for version in reversed(range(count)):
                spool.restore(version, array)
            self._cuda.wait(self._stream)
        return {"forward": turn - begin, "reverse": time.perf_counter() - turn}

    def close(self) -> None:
        """Gives everything back."""
        if self._spool is not None:
            self._spool.close()


class _Pinned:
    """With memory that the driver allocates and pins, and one copy after the other."""

    def __init__(self, cuda: Cuda, job: Job) -> None:
        self._cuda, self._job = cuda, job
        self._stream, self._array = cuda.stream(), cuda.array(job.size)
        self._host = 0

    def start(self) -> dict[str, Any]:
        """Seconds until one checkpoint was copied, and until all is pinned."""
        begin = time.perf_counter()
        self._host = self._cuda.host_alloc(self._job.host)
        ready = time.perf_counter() - begin
        self._copy(self._cuda.down, 0, self._stream)
        self._cuda.wait(self._stream)
        return {"first": time.perf_counter() - begin, "ready": ready}

    def sweep(self) -> dict[str, Any]:
        """Seconds for all copies down and for all copies up in reverse order."""
        begin = time.perf_counter()
        for version in range(self._job.checkpoints):
            self._copy(self._cuda.down, version, self._stream)
        self._cuda.wait(self._stream)
        turn = time.perf_counter()
        for version in reversed(range(self._job.checkpoints)):
            self._copy(self._cuda.up, version, self._stream)
        self._cuda.wait(self._stream)
        return {"forward": turn - begin, "reverse": time.perf_counter() - turn}

    def close(self) -> None:
        """Gives everything back."""
        if self._host:
            self._cuda.free_host(self._host)

    def _copy(self, copy: Callable[..., None], version: int, stream: Stream) -> None:
        places = max(1, self._job.host // self._job.size)
        place = self._host + version % places * self._job.size
        ends = (place, self._cuda.address(self._array))
        copy(*(ends if copy == self._cuda.down else ends[::-1]), self._job.size, stream)


def main() -> None:
    """Works for the process that started this one."""
    job = Job(**json.loads(sys.argv[1]))
    cuda = Cuda(job.ordinal)

    def say(found: dict[str, Any]) -> None:
        print(json.dumps(found), flush=True)

    print("ready", flush=True)
    work(cuda, job, (line.strip() for line in iter(sys.stdin.readline, "")), say)


if __name__ == "__main__":
    main()
