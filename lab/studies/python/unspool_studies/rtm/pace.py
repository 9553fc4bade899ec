"""What a shot costs on this machine: its groups of steps, and the copies of its states; measured.

That is what a schedule over several tiers is made from, and what a prediction needs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from unspool import Spool, advice, schedules
from unspool.advice import Candidate, Compression, Links, Rate
from unspool.schedules import Schedule
from unspool_studies.rtm.clock import Clock
from unspool_studies.rtm.history import Memory
from unspool_studies.rtm.job import LEVELS, Job
from unspool_studies.rtm.passes import Passes

__all__ = ["Pace"]

#: Groups that are taken before any is timed, and readings of each kind.
WARM, READINGS = 3, 7
#: A reading has so many groups that it takes this long, in seconds, but no more than this many.
READING_SECONDS, MOST_GROUPS = 0.05, 200
#: Copies of a state that are written in turn between the groups: more than the caches of a CPU.
COPIES = 8
#: Where in a shot states are taken on which the codec is tried, as shares of its groups; and the
#: seconds that computing them may take. The first states are silence, which any codec stores in
#: next to nothing.
SAMPLES, SAMPLING_SECONDS = (0.25, 0.5, 0.75), 10.0


class Pace:
    """Measures when it is first asked, and once."""

    def __init__(self, job: Job) -> None:
        """Of the shots of `job`; nothing is measured yet."""
        self._job = job

    @cached_property
    def seconds(self) -> tuple[float, float]:
        """Of a group of steps forward, and of one taken back."""
        bench = _Bench(self._job)
        forward, both = bench.measure()
        del bench
        if self._job.device is not None:
            # What the fields took is for the spool.
            self._job.device.give_back()
        return forward, max(both - forward, forward / 2)

    @cached_property
    def compression(self) -> Compression | None:
        """The codec's ratio and speed, measured on states with waves in them. None without a codec,
        and with `"auto"`, which decides for each state."""
        job = self._job
        if job.memory.codec in (None, "auto"):
            return None
        groups, reach = job.survey.timing.saves, int(SAMPLING_SECONDS / self.seconds[0])
        places = {round(share * groups) for share in SAMPLES}
        reached = {place for place in places if 1 <= place <= reach} or {max(1, min(groups, reach))}
        bench = _Bench(job)
        with job.spool() as spool:
            size = self._sizes["state_bytes"]
            found = [_tried(spool, levels, size) for levels in bench.states(reached)]
            ratio = max(1.0, spool.stats().codec.ratio)
        del bench
        if job.device is not None:
            job.device.give_back()
            # Twine's, as they were measured on a GPU.
            return Compression(ratio)
        encode, decode = (Rate(min(rates)) for rates in zip(*found, strict=True))
        return Compression(ratio, encode, decode)

    def renew(self) -> None:
        """Steps are measured anew when they are next asked for: machines drift. Links are not."""
        self.__dict__.pop("seconds", None)

    @cached_property
    def links(self) -> Links:
        """How fast this machine moves states between the tiers."""
        job = self._job
        work = None if job.device is not None else _Bench(job).forward
        size = self._sizes["state_bytes"]
        return advice.measure_links(**self._tiers, checkpoint_bytes=size, work=work)

    @cached_property
    def best(self) -> Candidate:
        """The fastest schedule for a shot, and the tiers that it needs."""
        return advice.plan(self._job.survey.timing.saves, **self._figures).best

    def predict(
        self,
        schedule: Schedule,
        *,
        seconds: tuple[float, float] | None = None,
        memory: Memory | None = None,
    ) -> Candidate:
        """What a shot takes by a schedule.

        Args:
            schedule: of a shot.
            seconds: of a group in each direction, if not those that were measured.
            memory: the tiers, if not all that the job has.
        """
        steps = self._job.survey.timing.saves
        forward, reverse = self.seconds if seconds is None else seconds
        figures = self._figures | {"step_seconds": forward, "reverse_seconds": reverse}
        if memory is not None:
            figures |= memory.tiers
        return advice.predict(schedule, steps=steps, **figures)

    def levels(self) -> Schedule:
        """The schedule over several tiers: as many states in each as it holds, at its costs."""
        tiers = advice.tiers_of(**self._tiers)
        size, links = self._sizes["state_bytes"], self.links
        steps, coded = self._job.survey.timing.saves, self.compression
        held = size if coded is None else max(1, int(size / coded.ratio))
        # A save takes room for the whole state in the fastest tier, until it is encoded.
        fastest = tiers.names[0]
        tiers = tiers.resized(fastest, max(0, tiers.capacity[fastest] - (size - held)))
        slots = {name: tiers.slots(name, held, links.on_gpu) for name in tiers.names}
        kept = {name: min(count, steps) for name, count in slots.items() if count}
        return schedules.MultiLevel(
            steps,
            **kept,
            write_seconds={name: links.write_seconds(name, held) for name in kept},
            read_seconds={name: links.read_seconds(name, held) for name in kept},
            step_seconds=self.seconds[0],
        )

    @property
    def _tiers(self) -> dict[str, Any]:
        job = self._job
        on = "cpu" if job.device is None else job.device.on
        return {**job.memory.tiers, "device": on}

    @property
    def _sizes(self) -> dict[str, int]:
        size = self._job.field_bytes
        return {"state_bytes": LEVELS * size, "reverse_bytes": size}

    @property
    def _figures(self) -> dict[str, Any]:
        forward, reverse = self.seconds
        times = {"step_seconds": forward, "reverse_seconds": reverse, "links": self.links}
        return {**self._sizes, **times, **self._tiers, "compression": self.compression}


def _tried(spool: Spool, levels: Sequence[Any], size: int) -> tuple[float, float]:
    """Encodes and decodes one state in main memory: the speeds of both, in bytes of the state a
    second. The second save is timed, as memory that is used for the first time is slower.

    Args:
        spool: whose codec is tried.
        levels: the arrays of the state.
        size: its bytes.
    """
    for _ in range(2):
        begin = time.perf_counter()
        spool.save(0, *levels)
        encoding = time.perf_counter() - begin
        rooms = [np.empty(level.shape, np.float32) for level in levels]
        begin = time.perf_counter()
        spool.restore(0, *rooms)
        decoding = time.perf_counter() - begin
        spool.discard(0)
    return size / max(encoding, 1e-9), size / max(decoding, 1e-9)


class _Bench:
    """Groups of steps of a shot that records nothing."""

    def __init__(self, job: Job) -> None:
        timing, survey = job.survey.timing, job.survey
        silence = np.zeros((timing.steps, len(survey.receivers)), np.float32)
        propagator = job.propagator(job.background)
        self._passes = Passes(propagator, survey, 0, silence, Clock(), lambda _phase, _steps: None)
        self._device = job.device
        self._tick = None if job.device is None else job.device.zeros((1,))
        rooms = 0 if job.device is not None else LEVELS * COPIES
        self._copies = [np.empty(propagator.shape, np.float32) for _ in range(rooms)]
        self._next = 0

    def forward(self) -> None:
        """One group: always the same, as none takes longer than another."""
        self._passes.forward(None, 0, 1)

    def both(self) -> None:
        """One group in each direction: the fields of both passes share the caches."""
        self._passes.forward(None, 0, 1)
        self._passes.reverse(None, 0)

    def states(self, places: Collection[int]) -> Iterator[Sequence[Any]]:
        """The states before these groups, in their order: both time levels."""
        for group in range(max(places)):
            self._passes.forward(None, group, group + 1)
            if group + 1 in places:
                yield self._passes.levels()

    def measure(self) -> tuple[float, float]:
        """Seconds of a group forward, and of one in each direction: medians of readings that take
        turns, so that both see the same machine.
        """
        once = min(self._time(self.both, 1) for _ in range(WARM))
        count = max(1, min(MOST_GROUPS, round(READING_SECONDS / max(once, 1e-9))))
        readings = [
            (self._time(self.forward, count) / count, self._time(self.both, count) / count)
            for _ in range(READINGS)
        ]
        forward, both = map(statistics.median, zip(*readings, strict=True))
        return forward, both

    def _time(self, group: Callable[[], object], count: int) -> float:
        """Seconds of so many groups: what they are with the saves of a spool between them, which
        push the fields out of a CPU's caches. A GPU takes them one after the other.
        """
        if self._device is None:
            return sum(self._after_a_save(group) for _ in range(count))
        begin = time.perf_counter()
        for _ in range(count):
            group()
        # What was enqueued is done when something after it has come back.
        self._device.fetch(self._tick)
        return time.perf_counter() - begin

    def _after_a_save(self, group: Callable[[], object]) -> float:
        for level in self._passes.levels():
            np.copyto(self._copies[self._next], level)
            self._next = (self._next + 1) % len(self._copies)
        begin = time.perf_counter()
        group()
        return time.perf_counter() - begin
