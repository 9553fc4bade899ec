"""A history in unified memory, the baseline of part `orders`.

What the paper on prefetching does (Maurya et al., HPDC 2023, section 5.2.2): the application counts
how much of the history is on the device, prefetches only while there is room, and sends what it has
read back to the host. All of it is enqueued; streams and events keep it in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from unspool_studies.bench.cuda import Cuda, Stream
from unspool_studies.bench.managed import Managed

__all__ = ["ALIGNMENT", "WAYS", "UnifiedHistory", "UnifiedWay"]

#: Checkpoints begin at borders of the largest pages.
ALIGNMENT = 2 << 20


@dataclass(frozen=True, slots=True)
class UnifiedWay:
    """One use of unified memory.

    Attributes:
        name: for the table.
        ahead: how many restores ahead prefetches may be; 0: page faults bring everything; None:
            as many as there is room for.
        discard: what was restored is discarded, not sent back to the host (CUDA 13).
        in_place: the device reads across the link, nothing migrates for a restore.
    """

    name: str
    ahead: int | None
    discard: bool = False
    in_place: bool = False


WAYS = (
    UnifiedWay("unified, page faults", 0),
    UnifiedWay("unified, in place", 0, in_place=True),
    UnifiedWay("unified, one prefetch", 1),
    UnifiedWay("unified, all prefetched", None),
    UnifiedWay("unified, all prefetched, discards", None, discard=True),
)


class UnifiedHistory:
    """Checkpoints in unified memory, of which at most `budget` bytes are on the device.

    Attributes:
        peak: the most bytes that were on the device at once.
    """

    def __init__(
        self,
        managed: Managed,
        cuda: Cuda,
        stream: Stream,
        sizes: Sequence[int],
        budget: int,
        way: UnifiedWay,
    ) -> None:
        self._managed, self._cuda, self._app = managed, cuda, stream
        self._sizes, self._budget, self._way = sizes, budget, way
        self._into, self._out = cuda.stream(), cuda.stream()
        self._places = [0]
        for size in sizes:
            self._places.append(self._places[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        self._address = managed.allocate(self._places[-1])
        # On the device, oldest first; of those on their way out: when they are gone.
        self._here: dict[int, int] = {}
        self._leaving: deque[tuple[int, int]] = deque()
        self._held = self.peak = 0
        self._arrived: dict[int, int] = {}
        self._events: list[int] = []
        self._order: Sequence[int] = ()
        self._next = self._done = 0

    def close(self) -> None:
        """Gives everything back, when the device is done with it."""
        self.flush()
        for event in self._events:
            self._cuda.destroy_event(event)
        self._managed.free(self._address)

    def save(self, version: int, state: int) -> None:
        """Enqueues the copy of the state, and what makes room for later ones."""
        last = len(self._sizes) - 1
        for one in (version, min(version + 1, last)) if self._prefetches else (version,):
            self._bring(one)
        self._copy(self._place(version), state, version)
        self._leave_until(self._budget // 2, self._recorded(self._app), but=version)

    def flush(self) -> None:
        """Waits until what has been sent to the host is there."""
        for stream in (self._app, self._into, self._out):
            self._cuda.wait(stream)

    def begin_restores(self, order: Sequence[int]) -> None:
        """The order is known from here on, as far as this way may know it."""
        self._order = order
        saved = self._recorded(self._app)
        if self._way.in_place:
            self._leave_until(0, saved)
            for version, size in enumerate(self._sizes):
                self._managed.read_in_place(self._place(version), size)
        elif self._way.ahead is None:
            self._keep(self._first_to_fit(), saved)
            self._fill()
        else:
            self._leave_until(self._budget - 2 * max(self._sizes), saved)

    def restore(self, version: int, state: int) -> None:
        """Enqueues the copy into the state, and what may come after it."""
        if self._way.ahead == 1:
            # Not before this step has begun: the hint comes with it.
            self._managed.wait_for(self._into, self._recorded(self._app))
            for one in self._order[self._done + 1 : self._done + 2]:
                self._bring(one)
        if not self._way.in_place:
            self._bring(version)
        self._copy(state, self._place(version), version)
        self._done += 1
        if not self._way.in_place:
            self._leave(version, self._recorded(self._app), discard=self._way.discard)
        if self._way.ahead is None:
            self._fill()

    @property
    def _prefetches(self) -> bool:
        return self._way.ahead != 0

    def _place(self, version: int) -> int:
        return self._address + self._places[version]

    def _recorded(self, stream: Stream) -> int:
        event = self._cuda.event()
        self._events.append(event)
        self._cuda.record(event, stream)
        return event

    def _copy(self, to: int, source: int, version: int) -> None:
        if version in self._arrived:
            self._managed.wait_for(self._app, self._arrived.pop(version))
        self._managed.copy(to, source, self._sizes[version], self._app)

    def _bring(self, version: int) -> None:
        """Enqueues that it comes to the device, unless it is there: by prefetch, or by the faults
        of the copy that follows, for which there has to be room."""
        if version in self._here:
            return
        size = self._sizes[version]
        stream = self._into if self._prefetches else self._app
        while self._leaving and self._held + size > self._budget:
            gone, count = self._leaving.popleft()
            self._managed.wait_for(stream, gone)
            self._held -= count
        self._here[version] = size
        self._held += size
        self.peak = max(self.peak, self._held)
        if self._prefetches:
            self._managed.to_device(self._place(version), size, stream)
            self._arrived[version] = self._recorded(stream)

    def _leave(self, version: int, after: int, discard: bool = False) -> None:
        """Enqueues that it leaves the device after that event."""
        size = self._here.pop(version)
        self._managed.wait_for(self._out, after)
        leave = self._managed.discard if discard else self._managed.to_host
        leave(self._place(version), size, self._out)
        self._leaving.append((self._recorded(self._out), size))

    def _leave_until(self, count: int, after: int, but: int | None = None) -> None:
        """The oldest ones leave until at most `count` bytes stay; those that are about to be
        saved, newer than `but`, are none of them."""
        saved = [version for version in self._here if but is None or version < but]
        staying = sum(self._here.values())
        for version in saved:
            if staying <= count:
                return
            staying -= self._here[version]
            self._leave(version, after)

    def _first_to_fit(self) -> set[int]:
        """What is restored first, as much as the device may hold."""
        found, count = set(), 0
        for version in self._order:
            count += self._sizes[version]
            if count > self._budget:
                break
            found.add(version)
        return found

    def _keep(self, versions: set[int], after: int) -> None:
        for version in [one for one in self._here if one not in versions]:
            self._leave(version, after)

    def _fill(self) -> None:
        """Prefetches in the order of restores, while there is room or will be."""
        while self._next < len(self._order):
            version = self._order[self._next]
            new = 0 if version in self._here else self._sizes[version]
            if sum(self._here.values()) + new > self._budget and self._next > self._done:
                return
            self._bring(version)
            self._next += 1
