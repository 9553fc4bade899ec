"""The rows of a table of part `gpuzip`: one way after the other, each within a limit of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

from unspool import schedules
from unspool.errors import Error
from unspool.schedules import Schedule
from unspool.stats import size as size_text
from unspool_studies.bench.adjoint_options import PartOfRange
from unspool_studies.bench.bound import Link, Pace, accesses_of, least_seconds
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.measure import Sample
from unspool_studies.bench.options import Plan
from unspool_studies.bench.plain_adjoint import DeviceStore, Nowhere, PinnedStore, Store
from unspool_studies.bench.report import Table
from unspool_studies.bench.tiers import room_for
from unspool_studies.bench.wave_problem import LEVELS, Problem, Reading, plainly, through_spool
from unspool_studies.rtm.codec import is_lossy, name_of_codec
from unspool_studies.rtm.model import Floats
from unspool_studies.rtm.quality import image_quality

__all__ = ["COLUMNS", "DIFFERENT", "FAILURES", "NOTES", "Rows", "said"]

COLUMNS = (
    "way",
    "codec",
    "states on device",
    "s",
    "beyond computing s",
    "bound s",
    "of bound %",
    "stall s",
    "transfers s",
    "coding s",
    "recomputed",
    "to host GB",
    "to device GB",
    "ratio",
    "device MB",
    "host MB",
    "times baseline",
    "times same cache",
    "PSNR dB",
    "SSIM",
    "image",
)

NOTES = (
    "computing alone: the same steps with nothing saved; beyond: what saves and restores add to it",
    "synchronous copies, the baseline: to and from pinned memory on the propagator's stream, each "
    "waited for; with states on the device, those that were used last are there as well, and a "
    "restore of one of them is a copy within the device; times same cache: beside the row of them "
    "with as many states on the device",
    "stall: what the spool counts; transfers: seconds of all transfers between device and host, "
    "which run beside the computing and beside each other; coding: seconds of the host's in "
    "encoders and decoders, on a GPU until their kernels are enqueued",
    "bound: the least time of the same steps, saves and restores over pinned copies, with perfect "
    "knowledge and without copies within the device; of bound: what of it is reached",
    "newest level: a copy that is only reversed holds one time level, all others hold both",
    "states on device: room for so many as they are; encoded, more of them fit; device, host: the "
    "most bytes of copies that were there at once",
    "image: whether every bit is that of the first row that keeps its states; with a loss, PSNR, "
    "SSIM and a word for the finished image beside that one, by the relative error: 0.1 % same to "
    "the eye, 1 % good, 5 % visible, 20 % poor, beyond it RUINED",
)

#: What is said of an image without a loss.
SAME, DIFFERENT = "same", "DIFFERENT"

#: What a spool counts of an adjoint, in the order of the columns.
PARTS = ("stall", "transfers", "coding")

#: Of the device's free memory, so much may be used.
USABLE = 0.9

#: What a row may fail with; CuPy's errors are of the second kind.
FAILURES = (Error, RuntimeError, OSError, MemoryError)


def said(error: BaseException) -> str:
    """An error as a note says it."""
    return f"{type(error).__name__}: {error}"


class Rows:
    """The rows of one table; the plain ones come first, the others are compared with those.

    Attributes:
        images: finished images by the names of their codecs: without a loss, then with each codec
            that loses something.
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        plan: Plan,
        table: Table,
        rates: tuple[float, float] | None,
    ) -> None:
        self._problem, self._schedule, self._rates = problem, schedule, rates
        self._plan, self._table = plan, table
        self._counts = schedule.counts()
        self._alone = math.nan
        #: Seconds of synchronous copies, by the states in their cache.
        self._synchronous: dict[int, float] = {}
        self._wanted = ""
        #: What was found of lossy images, by their digests: it takes seconds.
        self._judged: dict[str, dict[str, Any]] = {}
        self.images: dict[str, Floats] = {}

    def add_all(self, tiers: Sequence[int], codecs: Sequence[Any]) -> None:
        """Every way; one that fails or takes too long is a note, and the next one begins."""
        self._try("computing alone", self._computing)
        for states in sorted({0, *tiers}):
            self._try("synchronous copies", self._copies, states)
        self._try("all states in device memory", self._on_device)
        self._try("every step in device memory", self._every_step)
        for codec in codecs:
            for newest in (False, True) if codec is None else (False,):
                name = "unspool, newest level" if newest else "unspool"
                for states in tiers:
                    self._try(name, self._spool, states, codec, newest)

    def _try(self, name: str, measure: Callable[..., None], *arguments: Any) -> None:
        try:
            with self._problem.within(self._plan.gpuzip.limit):
                measure(name, *arguments)
        except FAILURES as error:
            label = ", ".join([name, *map(_label, arguments[:2])])
            self._table.note(f"{label}: {said(error)}")

    def _computing(self, name: str) -> None:
        found = self._readings(self._each(self._schedule, Nowhere()))
        self._alone = _seconds(found).median
        self._add(name, found)

    def _copies(self, name: str, states: int) -> None:
        problem, kept = self._problem, self._counts.peak
        cached, size = min(states, kept), problem.state_bytes
        if self._holds(f"{name}, {states}", cached * size, kept * size):
            store = PinnedStore(problem.device, problem.shape, LEVELS, kept, cached)
            found = self._readings(self._each(self._schedule, store))
            self._synchronous[states] = _seconds(found).median
            memory = cached * size, kept * size
            self._compare(name, found, states=states, memory=memory)

    def _on_device(self, name: str) -> None:
        problem, kept = self._problem, self._counts.peak
        size = kept * problem.state_bytes
        if self._holds(name, size, 0):
            store = DeviceStore(problem.device, problem.shape, LEVELS, kept)
            found = self._readings(self._each(self._schedule, store))
            self._compare(name, found, states=kept, memory=(size, 0))

    def _every_step(self, name: str) -> None:
        """No step twice: the least that there is to compute."""
        problem, steps = self._problem, self._counts.steps
        size = steps * problem.state_bytes // LEVELS
        if self._holds(name, size, 0):
            store = DeviceStore(problem.device, problem.shape, 1, steps)
            found = self._readings(self._each(schedules.StoreAll(steps), store, whole=False))
            self._compare(name, found, states=steps, recomputed=0, memory=(size, 0))

    def _spool(self, name: str, states: int, codec: Any, newest: bool) -> None:
        size, kept = self._problem.state_bytes, self._counts.peak
        label = f"{name}, {states}, {_label(codec)}"
        if not self._holds(label, room_for(states, size), room_for(kept, size)):
            return
        used = codec.of(self._span) if isinstance(codec, PartOfRange) else codec
        through = through_spool(self._problem, self._schedule, states, newest, used)
        with closing(through) as readings:
            found = self._readings(readings)
        figures: dict[str, Any] = {"codec": _label(codec), "states": states}
        if is_lossy(used):
            self._judge(name, found, **figures)
        else:
            bound = None if codec is not None else self._bound(states, newest)
            self._compare(name, found, bound=bound, **figures)

    @cached_property
    def _span(self) -> float:
        return self._problem.span()

    def _bound(self, states: int, newest: bool) -> float | None:
        if self._rates is None:
            return None
        counts, size = self._counts, self._problem.state_bytes
        forward = self._problem.forward_seconds()
        reverse = max(0.0, self._alone - counts.advances * forward) / counts.steps
        part = size // LEVELS if newest else size
        pace = Pace(forward, reverse)
        accesses, after = accesses_of(self._schedule.actions(), pace, size, part)
        return least_seconds(accesses, [Link(room_for(states, size), *self._rates)], after=after)

    def _each(self, schedule: Schedule, store: Store, whole: bool = True) -> Iterator[Reading]:
        while True:
            yield plainly(self._problem, schedule, store, whole)

    def _readings(self, readings: Iterable[Reading]) -> list[Reading]:
        """As many as fit into the time that a figure may take, one at least; the image of the last
        one is kept.
        """
        found: list[Reading] = []
        begin = time.perf_counter()
        for reading in islice(readings, self._plan.rounds):
            found = [replace(one, parts=None) for one in found]
            found.append(reading)
            if time.perf_counter() - begin > self._plan.budget:
                break
        return found

    def _compare(self, name: str, found: list[Reading], **figures: Any) -> None:
        """Adds a row whose image is the same as the first one in every bit, or wrong."""
        if not self._wanted:
            self._wanted = found[0].digest
            self.images[_label(None)] = self._finished(found)
        same = all(one.digest == self._wanted for one in found)
        self._add(name, found, image=SAME if same else DIFFERENT, **figures)

    def _judge(self, name: str, found: list[Reading], *, codec: str, states: int) -> None:
        """Adds a row whose image is near the one without a loss, or not."""
        digest = found[-1].digest
        if digest not in self._judged:
            figures: dict[str, Any] = {}
            image, wanted = self._finished(found), self.images.get(_label(None))
            self.images.setdefault(codec, image)
            if wanted is not None:
                quality = image_quality(image, wanted)
                figures = {"psnr": quality.psnr, "ssim": quality.ssim, "image": quality.verdict}
            self._judged[digest] = figures
        self._add(name, found, codec=codec, states=states, **self._judged[digest])

    def _finished(self, found: list[Reading]) -> Floats:
        parts = found[-1].parts
        assert parts is not None
        return self._problem.finished(parts)

    def _add(
        self,
        name: str,
        found: list[Reading],
        *,
        codec: str = "",
        states: int = 0,
        recomputed: int | None = None,
        bound: float | None = None,
        memory: tuple[int, int] | None = None,
        psnr: float | None = None,
        ssim: float | None = None,
        image: str | None = None,
    ) -> None:
        seconds, costs = _seconds(found), [one.costs for one in found if one.costs is not None]
        if costs:
            memory = costs[-1].device, costs[-1].host
        same = self._synchronous.get(states, math.nan)
        self._table.add(
            name,
            codec,
            states,
            seconds,
            seconds.map(lambda one: one - self._alone),
            bound,
            None if bound is None else seconds.map(lambda one: 100 * bound / one),
            *(_sample(getattr(one, part) for one in costs) for part in PARTS),
            self._counts.recomputed_steps if recomputed is None else recomputed,
            found[-1].down / 1e9,
            found[-1].up / 1e9,
            costs[-1].ratio if costs else None,
            *(None if count is None else count / 1e6 for count in memory or (None, None)),
            self._synchronous.get(0, math.nan) / seconds.median,
            same / seconds.median,
            psnr,
            ssim,
            image,
        )

    def _holds(self, label: str, device: int, host: int) -> bool:
        """Whether device and host have so many bytes free; a note says where they have not."""
        self._problem.device.give_back()
        free = self._problem.device.free_bytes()
        if device > USABLE * free:
            return self._left_out(label, device, free, "device")
        there = available_memory()
        return fits(host, there) or self._left_out(label, host, there or 0, "host")

    def _left_out(self, label: str, count: int, free: int, where: str) -> bool:
        wanted, there = size_text(count), size_text(free)
        self._table.note(f"{label}: left out, it takes {wanted}, and the {where} has {there} free")
        return False


def _label(one: Any) -> str:
    return str(one) if isinstance(one, int | PartOfRange) else name_of_codec(one)


def _seconds(found: Iterable[Reading]) -> Sample:
    return Sample.of(one.seconds for one in found)


def _sample(values: Iterable[float]) -> Sample | None:
    found = tuple(values)
    return Sample(found) if found else None
