"""`Batched(profile=...)`: records the first run, and decides for each save of the following ones.

`Batched` calls the methods of a `Watch` around its own, and carries out the plan's decisions:
"raw" keeps a checkpoint as it is, "alone" encodes it alone, "hold" holds it on the GPU, "together"
encodes it with all that are held. In main memory there is no launch to share, so plans for it have
"raw" and "alone" only.

On a GPU the host only enqueues work, so that intervals are those of the host: they are right for
the run as a whole where the application waits for the GPU now and then, as one that is limited by
the GPU does. A profile may have those of the device in their place, which are longer: a run on a
GPU is out of pace when its host is late, and not when it is ahead.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..advice.accumulating import Accumulation, plan
from ..advice.links import Rate
from ..advice.profile import NVCOMP, TWINE, CodecCost, Layout, Profile, Recorded
from ..errors import Error

__all__ = ["PlanDroppedWarning", "Watch", "open_profile"]

#: The pace of a run is compared from this many checkpoints on,
PACE_FROM = 16
#: and may differ by so much: a plan still holds about as well then.
PACE_FACTOR = 2.0
#: Shorter runs are not compared: clocks and other processes disturb them.
PACE_SECONDS = 0.01
#: Saves after which the bytes of one are asked for: a GPU has encoded it by then.
ENCODED_AFTER = 16


class PlanDroppedWarning(RuntimeWarning):
    """The run is not the one that was recorded: its plan is dropped, and the codec is used for all.

    The text names the first difference.
    """


def open_profile(path: str | os.PathLike[str], codec: str, most: int = 1, held: int = 0) -> Watch:
    """Called by `Batched`: follows the profile in the file, or records one where there is no file.

    Args:
        path: the file.
        codec: of the spool, in words.
        most: the most checkpoints that a GPU encodes together,
        held: and the most bytes of their values.

    Raises:
        ProfileError: the file holds something else.
        OSError: it cannot be read, or there is no such directory.
    """
    target = Path(path)
    if target.exists():
        return Watch(target, codec, Profile.load_from(target), most, held)
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"profile={os.fspath(path)!r}: there is no such directory.")
    return Watch(target, codec, None, most, held)


class Watch:
    """One run with a profile.

    Threads may save at the same time: checkpoints then count in the order in which their saves
    return, and what others compute meanwhile is not time between them.

    Attributes:
        path: the file.
        plan: what is followed; None while a run is recorded, and after a difference was found.
    """

    def __init__(
        self, path: Path, codec: str, known: Profile | None, most: int = 1, held: int = 0
    ) -> None:
        self.path = path
        self._most, self._held = most, held
        self.plan: Accumulation | None = None
        self._codec, self._known = codec, known
        self._rows: list[Recorded] = []
        self._layouts: list[Layout] = []
        self._unknown: dict[int, int] = {}
        self._computed = 0.0
        #: Seconds of computing up to each recorded checkpoint.
        self._then = list(accumulate(one.interval for one in known.checkpoints)) if known else []
        self._resumed = time.perf_counter()
        #: When the save of this thread began, and the stalls before it.
        self._mine = threading.local()
        #: Held while rows change, and never around a call of the spool.
        self._lock = threading.Lock()
        self._begun = self._dropped = False

    @property
    def records(self) -> bool:
        """Whether this run is recorded."""
        return self._known is None

    def _follow(self, known: Profile, spool: Any) -> None:
        if known.codec != self._codec:
            return self._drop(f"the codec is {self._codec}, and was {known.codec}")
        if known.device.partition(":")[0] != spool.device.partition(":")[0]:
            return self._drop(f"the spool is on {spool.device}, and was on {known.device}")
        if known.link is None or not known.checkpoints:
            return None
        cost, cache = _cost(known), _cache(spool) or known.cache
        try:
            together = self._most_together(known, spool)
            self.plan = _planned(known, cost, cache, together)
        except Error as why:
            self._drop(str(why))

    def _most_together(self, known: Profile, spool: Any) -> int:
        """How many checkpoints a spool can hold: those of a GPU whose memory is its first tier."""
        tiers = spool._stats().tiers
        if not spool.device.startswith("cuda") or tiers[0].name != "device":
            return 1
        largest = max(one.raw for one in known.checkpoints)
        return max(1, min(self._most, self._held // max(1, largest)))

    def before_save(self, spool: Any) -> str | None:
        """What the plan decides for the next save; None where no plan is followed."""
        self._mine.begin = time.perf_counter()
        if not self._begun:
            self._begun = True
            if self._known is not None:
                self._follow(self._known, spool)
        number, plan = len(self._rows), self.plan
        if self.records:
            self._mine.stalled = spool._stats().save_stall_seconds
        if plan is None:
            return None
        if number >= len(plan.best.decisions):
            self._drop(f"there are more than {number} checkpoints")
            return None
        return plan.best.decisions[number]

    def after_save(self, spool: Any, version: int) -> None:
        """Notes what was saved."""
        end, begin = time.perf_counter(), self._mine.begin
        stalled = spool._stats().save_stall_seconds - self._mine.stalled if self.records else 0.0
        layout, raw = _layout_of(spool, version)
        with self._lock:
            number = len(self._rows)
            # Another thread may have returned from a save since this one began its own.
            interval = max(0.0, begin - self._resumed) if number else 0.0
            seconds = max(0.0, end - begin - stalled)
            row = Recorded(interval, raw, raw, self._number(layout), seconds)
            self._rows.append(row)
            self._computed += row.interval
            if self.records:
                self._unknown[version] = number
        if self.records:
            self._take_some(spool)
        elif self.plan is not None:
            self._compare(number, row, layout)
        self._resumed = time.perf_counter()

    def finish(self, spool: Any) -> None:
        """Before restores and discards: asks for the bytes of what was saved so far."""
        if not self._unknown:
            return
        for version in list(self._unknown):
            self._take(spool, version)
        self._resumed = time.perf_counter()

    def abandon(self) -> None:
        """The run has failed: it is not recorded, and not compared any more."""
        with self._lock:
            self.plan = None
            self._rows.clear()
            self._unknown.clear()

    def closing(self, spool: Any) -> None:
        """The spool closes: writes a recorded run, reports one that is shorter than its profile."""
        self.finish(spool)
        if self.records and self._rows:
            self._profile(spool).save_to(self.path)
        elif self.plan is not None and 0 < len(self._rows) < len(self.plan.best.decisions):
            self._drop(
                f"there are {len(self._rows)} checkpoints, and were {len(self.plan.best.decisions)}"
            )

    def _take_some(self, spool: Any) -> None:
        for version in list(self._unknown)[:-ENCODED_AFTER]:
            self._take(spool, version)

    def _take(self, spool: Any, version: int) -> None:
        number = self._unknown.pop(version, None)
        if number is None:
            return
        try:
            stored = sum(one.stored_bytes for one in spool.achieved(version).values())
        except Error:
            # Discarded meanwhile, or lost: as if nothing had been compressed.
            return
        with self._lock:
            # None is left of a run that failed.
            for row in self._rows[number : number + 1]:
                kept = Recorded(row.interval, row.raw, stored, row.layout, row.seconds)
                self._rows[number] = kept

    def _number(self, layout: Layout) -> int:
        if layout not in self._layouts:
            self._layouts.append(layout)
        return self._layouts.index(layout)

    def _compare(self, number: int, row: Recorded, layout: Layout) -> None:
        assert self._known is not None
        if number >= len(self._known.checkpoints):
            return self._drop(f"there are more than {len(self._known.checkpoints)} checkpoints")
        known = self._known.checkpoints[number]
        if self._known.layouts and self._known.layouts[known.layout] != layout:
            was = _words(self._known.layouts[known.layout])
            return self._drop(f"checkpoint {number} is {_words(layout)}, and was {was}")
        if row.raw != known.raw:
            return self._drop(f"checkpoint {number} has {row.raw} bytes, and had {known.raw}")
        if number + 1 >= PACE_FROM and self._out_of_pace(number):
            self._drop(
                f"the first {number + 1} checkpoints came within {self._computed:.3g} s of "
                f"computing, and did within {self._then[number]:.3g} s"
            )

    def _out_of_pace(self, number: int) -> bool:
        assert self._known is not None
        then = self._then[number]
        if self._known.device.startswith("cuda") and self._computed < then:
            # The host only enqueues: that it is ahead says nothing of when states are there.
            return False
        longer, shorter = max(then, self._computed), min(then, self._computed)
        return longer > PACE_SECONDS and longer > PACE_FACTOR * shorter

    def _drop(self, difference: str) -> None:
        self.plan = None
        if not self._dropped:
            self._dropped = True
            text = (
                f"The plan of {self.path} is dropped: {difference}. Delete the file to record "
                "such a run."
            )
            warnings.warn(text, PlanDroppedWarning, stacklevel=3)

    def _profile(self, spool: Any) -> Profile:
        return Profile(
            tuple(self._rows),
            tuple(self._layouts),
            self._codec,
            spool.device,
            _cache(spool),
            _link(spool),
        )


@functools.lru_cache(maxsize=8)
def _planned(known: Profile, cost: CodecCost, cache: int, together: int) -> Accumulation:
    """A plan is made once for all spools that follow a profile, of which each shot has its own."""
    return plan(known, codec=cost, cache=cache, most_together=together)


def _layout_of(spool: Any, version: int) -> tuple[Layout, int]:
    regions = spool.regions(version)
    layout = tuple((one.name, one.dtype, tuple(one.shape)) for one in regions)
    return layout, sum(one.nbytes for one in regions)


def _words(layout: Layout) -> str:
    return ", ".join(f"{name or 'an array'} {dtype} {shape}" for name, dtype, shape in layout)


def _cache(spool: Any) -> int:
    """Bytes of the fastest tier."""
    return int(spool._stats().tiers[0].capacity or 0)


def _link(spool: Any) -> Rate | None:
    """From the fastest tier to the next one: the mean over all that the spool moved there. What it
    has learned for its own use follows the last few transfers, too far for a plan of all shots.
    """
    links = spool._stats().links
    flushed = links[0].flush if links else None
    if flushed is None or flushed.busy_seconds <= 0:
        return None
    rate = flushed.bytes / flushed.busy_seconds
    return Rate(rate) if rate >= 1 else None


def _cost(known: Profile) -> CodecCost:
    """What was measured on this machine, where the profile has it; else on a GPU the costs of an
    H100, and in main memory what the run itself saw.
    """
    if known.cost is not None:
        return known.cost
    if known.device.startswith("cuda"):
        return NVCOMP if known.codec.startswith("NvComp") else TWINE
    fastest: dict[int, float] = {}
    for one in known.checkpoints:
        fastest[one.raw] = min(one.seconds, fastest.get(one.raw, one.seconds))
    return CodecCost("as recorded", tuple(sorted(fastest.items())), True, False)
