"""The ways through which the experiment of part `orders` goes: uses of a spool, of unified memory,
and what people would use instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

import unspool
from unspool.stats import Stats
from unspool_studies.bench.adios import AdiosHistory
from unspool_studies.bench.by_hand import LruHistory, PinnedHistory, require_disk
from unspool_studies.bench.cuda import Cuda
from unspool_studies.bench.experiment import Application, Experiment
from unspool_studies.bench.machine import require_memory
from unspool_studies.bench.managed import Managed
from unspool_studies.bench.saved_tensors import SavedTensors
from unspool_studies.bench.tiers import FRAME, open_spool, tier, wait_until_ready
from unspool_studies.bench.unified import WAYS as UNIFIED_WAYS
from unspool_studies.bench.unified import UnifiedHistory, UnifiedWay

__all__ = [
    "ALL_WAYS",
    "BASELINES",
    "SPOOL_WAYS",
    "TIERS",
    "Baseline",
    "Outcome",
    "SpoolWay",
    "Way",
    "host_memory",
    "named",
    "through",
]

#: Of a spool, fastest first.
TIERS = ("device", "host", "disk")


class History(Protocol):
    """Checkpoints of the experiment, kept in some way other than a spool."""

    def save(self, version: int, state: int) -> None:
        """Keeps the bytes of the state, at that address of the device."""

    def flush(self) -> None:
        """Waits until everything that was begun is done."""

    def begin_restores(self, order: tuple[int, ...]) -> None:
        """All is saved, and this is the order of restores."""

    def restore(self, version: int, state: int) -> None:
        """Brings the bytes back to that address of the device."""

    def close(self) -> None:
        """Gives everything back."""


@dataclass(frozen=True, slots=True)
class SpoolWay:
    """One use of a spool.

    Attributes:
        name: for the table.
        ahead: restores that are announced ahead; None: all of them, before the first save.
        disk: whether the host tier is smaller than the history.
    """

    name: str
    ahead: int | None
    disk: bool = True


@dataclass(frozen=True, slots=True)
class Baseline:
    """What people would use instead; none of them knows the order.

    Attributes:
        name: for the table.
        open: makes the history.
        disk: whether it needs no more host memory than the host tier has.
        ahead: restores that are announced ahead.
    """

    name: str
    open: Callable[[Cuda, Application, Experiment], History]
    disk: bool = False
    ahead: ClassVar[int | None] = 0


#: Any of them.
Way = SpoolWay | UnifiedWay | Baseline

SPOOL_WAYS = (
    SpoolWay("unspool, all hints", None),
    SpoolWay("unspool, all hints, no disk", None, disk=False),
    SpoolWay("unspool, one hint", 1),
    SpoolWay("unspool, one hint, no disk", 1, disk=False),
    SpoolWay("unspool, no hints", 0),
    SpoolWay("unspool, no hints, no disk", 0, disk=False),
)

BASELINES = (
    Baseline("pinned copies", partial(PinnedHistory, disk=True), disk=True),
    Baseline("pinned copies, no disk", partial(PinnedHistory, disk=False)),
    Baseline("least recently used, no disk", LruHistory),
    Baseline("PyTorch save_on_cpu, no disk", SavedTensors),
    Baseline("ADIOS2 BP5", AdiosHistory, disk=True),
)

ALL_WAYS: tuple[Way, ...] = (*SPOOL_WAYS, *UNIFIED_WAYS, *BASELINES)


def host_memory(way: Way, one: Experiment) -> int:
    """Bytes of host memory that a way uses, about."""
    disk = not isinstance(way, UnifiedWay) and way.disk
    return min(one.host, one.total) if disk else one.total


def named(words: tuple[str, ...]) -> list[Way]:
    """The ways whose names have one of these words in them; all of them where there are none."""
    return [way for way in ALL_WAYS if not words or any(word in way.name for word in words)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out of one way.

    Attributes:
        forward: seconds of the forward pass.
        backward: seconds of the backward pass.
        stalls: of saves and restores, as the spool counts them.
        served: restores from the device, from the host and from the disk.
        disk: bytes that were written to the disk and read from it, in 1e9.
        wrong: restores that gave other bytes than were saved, by the mark in their middle.
        flush: seconds between the passes until everything was flushed, where that is waited for.
        saves: seconds of each save, in their order, where they are timed.
        restores: likewise.
        seen: what a spool says of each restore, where they are timed.
    """

    forward: float
    backward: float
    stalls: tuple[float, float] | None
    served: tuple[int, ...] | None
    disk: tuple[float, float] | None
    wrong: int
    flush: float | None = None
    saves: tuple[float, ...] = ()
    restores: tuple[float, ...] = ()
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a spool says of one restore.

    Attributes:
        distance: how many of the announced restores after it had their bytes in the device tier
            already, without a break, when it was served; None: it was not announced.
        tier: that it was served from, of `TIERS`.
    """

    distance: int | None
    tier: str


def through(cuda: Cuda, one: Experiment, way: Way) -> Outcome:
    """The experiment through one way.

    Raises:
        OSError: there is too little memory or room on the disk, or no time is left.
        NoBaseline: a baseline cannot do it.
        NotManaged: there is too little unified memory, or the driver refuses.
        unspool.Error: the spool refused.
    """
    if isinstance(way, SpoolWay):
        return _through_spool(cuda, one, way)
    if isinstance(way, UnifiedWay):
        require_memory(one.total)
    with _application(cuda, one) as (application, managed):
        history = _opened(cuda, managed, application, one, way)
        try:
            return _passes(application, history, one, way.ahead)
        finally:
            history.close()


@contextmanager
def _application(cuda: Cuda, one: Experiment) -> Iterator[tuple[Application, Managed]]:
    managed = Managed(cuda)
    application = Application(cuda, managed, one)
    try:
        yield application, managed
    finally:
        application.close()


def _opened(
    cuda: Cuda,
    managed: Managed,
    application: Application,
    one: Experiment,
    way: UnifiedWay | Baseline,
) -> History:
    if isinstance(way, Baseline):
        return way.open(cuda, application, one)
    return UnifiedHistory(managed, cuda, application.stream, one.sizes, one.device, way)


def _passes(
    application: Application, history: History, one: Experiment, ahead: int | None
) -> Outcome:
    address, source = application.address, application.source
    forward = application.forward(lambda version: history.save(version, source(version)))
    saves = application.calls()
    flush = application.flush(history.flush)
    history.begin_restores(one.order)
    backward = application.backward(lambda version: history.restore(version, address), ahead)
    wrong, calls = application.wrong(), application.calls()
    return Outcome(forward, backward, None, None, None, wrong, flush, saves, calls)


def _through_spool(cuda: Cuda, one: Experiment, way: SpoolWay) -> Outcome:
    with (
        _application(cuda, one) as (application, _),
        open_spool(cuda, **_tiers(one, way)) as spool,
        cuda.current(application.stream),
    ):
        wait_until_ready(spool)
        hints, announced = iter(one.order[1:]), set[int]()
        if way.ahead is None:
            spool.expect(one.order, once=True)
            announced.update(one.order)
        watch = _Watch(spool)

        def save(version: int) -> None:
            spool.save(version, application.saved(version))

        def restore(version: int) -> None:
            if way.ahead == 1 and (following := next(hints, None)) is not None:
                spool.expect([following], once=True)
                announced.add(following)
            spool.restore(version, application.restored(version))
            if version not in announced:
                spool.discard(version)
            if one.timed:
                watch.look()

        forward = application.forward(save)
        saves = application.calls()
        flush = application.flush(lambda: spool.flush(timeout=application.left))
        backward = application.backward(restore, way.ahead)
        stalls, served, disk = _counted(spool.stats())
        wrong, calls = application.wrong(), application.calls()
        seen = tuple(watch.seen)
        return Outcome(forward, backward, stalls, served, disk, wrong, flush, saves, calls, seen)


@dataclass
class _Watch:
    """Counts what a spool says of each restore, from its statistics before and after it."""

    spool: unspool.Spool
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = self.spool.stats()

    def look(self) -> None:
        """After each restore."""
        before, self._before = self._before, self.spool.stats()
        found = zip(_served(before), _served(self._before), TIERS, strict=True)
        of = next((name for old, new, name in found if new > old), "")
        # The mean over all announced restores, and how many there were.
        distance = None
        if self._before.hinted_restores > before.hinted_restores:
            distance = round(_distances(self._before) - _distances(before))
        self.seen.append(Seen(distance, of))


def _distances(stats: Stats) -> float:
    """The sum of the distances of all restores."""
    lead = stats.prefetch_lead
    return 0.0 if lead is None else lead.mean * stats.hinted_restores


def _served(stats: Stats) -> tuple[int, ...]:
    """Restores from each of the tiers."""
    return tuple(
        0 if found is None else found.restores for found in (tier(stats, name) for name in TIERS)
    )


def _tiers(one: Experiment, way: SpoolWay) -> dict[str, object]:
    """The options of the spool: the tiers, with room for what they keep beside the bytes."""
    mean = one.total // len(one.sizes)
    device = one.device + one.device // mean * FRAME
    host = one.host + one.host // mean * FRAME
    found: dict[str, object] = {"device_memory": device}
    found["codec"] = one.codec
    if way.disk:
        require_disk(one.directory, one.total)
        return found | {"host_memory": host, "disk": one.directory}
    host = one.total + len(one.sizes) * FRAME
    require_memory(host)
    return found | {"host_memory": host}


def _counted(
    stats: Stats,
) -> tuple[tuple[float, float], tuple[int, ...], tuple[float, float] | None]:
    disk = next((link for link in stats.links if link.slow == "disk"), None)
    moved = (disk.flush.bytes / 1e9, disk.prefetch.bytes / 1e9) if disk is not None else None
    return (stats.save_stall_seconds, stats.restore_stall_seconds), _served(stats), moved
