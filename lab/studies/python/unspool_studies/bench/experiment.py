"""The experiment of the paper on prefetching (Maurya et al., HPDC 2023, section 5.3): its sizes and
orders, and the application that computes, saves and restores.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.managed import Managed
from unspool_studies.bench.measure import seconds_of
from unspool_studies.bench.memory import byte_at
from unspool_studies.bench.sizes import PAGE, SEED
from unspool_studies.bench.wavefields import COUNT, fill

__all__ = ["Application", "Experiment", "order_of"]

#: The program enqueues no more steps than these ahead of the device.
STEPS_AHEAD = 8

#: Bytes of the mark that every checkpoint has in its middle.
MARK = 16


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is done.

    Attributes:
        sizes: bytes of each checkpoint, by version.
        order: of restores.
        device: bytes of the device tier.
        host: bytes of the host tier.
        directory: of the disk tier.
        compute: seconds of each step.
        wait: whether the first restore waits until everything is flushed.
        timed: whether each save and each restore is timed by itself; two events more a step.
        limit: seconds after which a run is given up, between two steps.
        meet: waits for the other processes, before the first step; None: there are none.
        coupled: whether they meet before every step, of both passes.
        codec: of spools; with one, every checkpoint is the wavefield of its time.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    device: int
    host: int
    directory: Path
    compute: float
    wait: bool = False
    timed: bool = False
    limit: float = math.inf
    meet: Callable[[], None] | None = None
    coupled: bool = False
    codec: Any = None

    @property
    def total(self) -> int:
        """Bytes of the history."""
        return sum(self.sizes)


def order_of(name: str, count: int, seed: int = SEED) -> tuple[int, ...]:
    """The versions in the order of their restores: sequential, reverse or irregular."""
    versions = list(range(count))
    if name == "reverse":
        versions.reverse()
    elif name == "irregular":
        random.Random(seed).shuffle(versions)
    return tuple(versions)


class Application:
    """Computes, saves and restores one array; every checkpoint has a mark of its own in it."""

    def __init__(self, cuda: Cuda, managed: Managed, experiment: Experiment) -> None:
        self._cuda, self._managed, self._one = cuda, managed, experiment
        self.stream = cuda.stream()
        self.state = cuda.array(max(experiment.sizes))
        self.address = cuda.address(self.state)
        self._sources, self._target, self._unit = self._arrays()
        self._count = len(experiment.sizes)
        self._marks = cuda.malloc(2 * MARK * self._count)
        self._host = cuda.host_alloc(MARK * self._count)
        self._events = [cuda.event() for _ in range(self._count)]
        self._ends = cuda.event(), cuda.event()
        calls = self._count if experiment.timed else 0
        self._calls = [(cuda.event(), cuda.event()) for _ in range(calls)]
        self._until = time.perf_counter() + experiment.limit
        for version in range(self._count):
            cuda.fill(self._marks + MARK * version, mark(version), MARK, self.stream)

    def _arrays(self) -> tuple[list[Any], Any, int]:
        """What checkpoints are saved from, in order of time, and come back to, and the bytes of an
        item of these: the state as bytes, or where there is a codec rows of wavefields.
        """
        if self._one.codec is None:
            return [self.state], self.state, 1
        largest, columns = max(self._one.sizes), PAGE // 4
        fields = [fill(self._cuda.array(largest), number, columns) for number in range(COUNT)]
        return fields, self.state.view("float32").reshape(-1, columns), PAGE

    def _source(self, version: int) -> Any:
        return self._sources[version * len(self._sources) // self._count]

    def source(self, version: int) -> int:
        """The address of what is saved."""
        return self._cuda.address(self._source(version))

    def saved(self, version: int) -> Any:
        """The array that is saved: bytes, or rows of float32 where there is a codec."""
        return self._source(version)[: self._one.sizes[version] // self._unit]

    def restored(self, version: int) -> Any:
        """The array that it comes back to, likewise."""
        return self._target[: self._one.sizes[version] // self._unit]

    def forward(self, save: Callable[[int], None]) -> float:
        """All saves; seconds of the pass.

        Raises:
            TimeoutError: the time of the experiment is over.
        """
        if self._one.meet is not None and not self._one.coupled:
            self._one.meet()

        def step(number: int, version: int) -> None:
            self._compute()
            middle = self.source(version) + self._middle(version)
            self._managed.copy(middle, self._marks + MARK * version, MARK, self.stream)
            self._call(number, save, version)

        return self._passed(range(self._count), step, STEPS_AHEAD)

    def backward(self, restore: Callable[[int], None], hints: int | None) -> float:
        """All restores; seconds of the pass. Without all hints each is asked for when the step
        before has ended: a request that comes earlier would be a hint.

        Raises:
            TimeoutError: the time of the experiment is over.
        """

        def step(number: int, version: int) -> None:
            self._call(number, restore, version)
            to = self._marks + MARK * (self._count + version)
            self._managed.copy(to, self.address + self._middle(version), MARK, self.stream)
            self._compute()

        return self._passed(self._one.order, step, STEPS_AHEAD if hints is None else 1)

    def flush(self, flush: Callable[[], object]) -> float | None:
        """Seconds that `flush` takes, where the experiment waits for it before the restores."""
        return seconds_of(flush) if self._one.wait else None

    def calls(self) -> tuple[float, ...]:
        """Seconds of each save or restore of the last pass, in their order, by the device's clock;
        none where they are not timed.
        """
        return tuple(self._cuda.elapsed(*ends) for ends in self._calls)

    @property
    def left(self) -> float | None:
        """Seconds that are left to the run, at least a millisecond; None: there is no limit."""
        left = self._until - time.perf_counter()
        return None if math.isinf(left) else max(1e-3, left)

    def wrong(self) -> int:
        """Restores that gave another mark than was saved."""
        count = MARK * self._count
        self._cuda.down(self._host, self._marks + count, count, self.stream)
        self._cuda.wait(self.stream)
        return sum(
            byte_at(self._host + MARK * version) != mark(version) for version in range(self._count)
        )

    def close(self) -> None:
        """Gives everything back."""
        self._cuda.wait(self.stream)
        for event in (*self._events, *self._ends, *sum(self._calls, ())):
            self._cuda.destroy_event(event)
        self._cuda.free(self._marks)
        self._cuda.free_host(self._host)
        del self.state, self._sources, self._target

    def _passed(
        self, versions: Sequence[int], step: Callable[[int, int], None], ahead: int
    ) -> float:
        begin, end = self._ends
        meet = self._one.meet if self._one.coupled else None
        ahead = ahead if meet is None else 1
        self._cuda.wait(self.stream)
        self._cuda.record(begin, self.stream)
        for number, version in enumerate(versions):
            if number >= ahead:
                self._cuda.wait_event(self._events[number - ahead])
            if meet is not None:
                meet()
            self._check_time(number)
            step(number, version)
            self._cuda.record(self._events[number], self.stream)
        self._cuda.record(end, self.stream)
        return self._cuda.elapsed(begin, end)

    def _check_time(self, number: int) -> None:
        if time.perf_counter() > self._until:
            limit = f"{self._one.limit:g} s of --orders-cell-limit"
            raise TimeoutError(f"given up after {limit}, before step {number} of {self._count}")

    def _call(self, number: int, call: Callable[[int], None], version: int) -> None:
        """A save or restore, between two events where each of them is timed."""
        if not self._calls:
            return call(version)
        before, after = self._calls[number]
        self._cuda.record(before, self.stream)
        call(version)
        self._cuda.record(after, self.stream)

    def _compute(self) -> None:
        if self._one.compute:
            self._cuda.spin(self._one.compute, self.stream)

    def _middle(self, version: int) -> int:
        return self._one.sizes[version] // 2 // MARK * MARK


def mark(version: int) -> int:
    """Every byte of the mark."""
    return version % 251 + 1
