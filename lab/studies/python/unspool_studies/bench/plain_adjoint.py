"""An adjoint by a schedule without a spool: what is saved is copied at once, or nowhere.

These are what a spool is measured beside: everything in the device's own memory, which is the
bound, and synchronous copies to pinned host memory, which is what GPUZIP's authors compare with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from unspool.schedules import Discard, Forward, Restore, Reverse, Save
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.passes import Passes

__all__ = ["DeviceStore", "Nowhere", "PinnedStore", "Store", "follow"]

#: The arrays of a state: both time levels of a field, or the newer one.
State = tuple[Any, ...]


class Store(Protocol):
    """Where copies of states are.

    Attributes:
        down: bytes that were copied to the host.
        up: bytes that were copied to the device.
    """

    down: int
    up: int

    def save(self, step: int, state: State) -> None:
        """Copies the arrays."""

    def restore(self, step: int, state: State) -> None:
        """Copies back into the arrays."""

    def discard(self, step: int) -> None:
        """Lets the next save have the place."""


def follow(actions: Iterable[Any], store: Store, passes: Passes, *, whole: bool = True) -> None:
    """Carries out a schedule: nothing is planned, nothing is ahead of time.

    Args:
        actions: of the schedule.
        store: keeps the states.
        passes: compute.
        whole: whether a state is both time levels; else the newer one, which is enough where no
            step is computed again.
    """
    for action in actions:
        match action:
            case Forward(start, stop):
                passes.forward(None, start, stop)
            case Save(step):
                store.save(step, _state(passes, whole))
            case Restore(step):
                store.restore(step, _state(passes, whole))
            case Reverse(step):
                passes.reverse(None, step)
            case Discard(step):
                store.discard(step)


def _state(passes: Passes, whole: bool) -> State:
    return passes.levels() if whole else (passes.now(),)


def _copy(to: State, of: State) -> None:
    """Enqueues copies within the device."""
    for place, array in zip(to, of, strict=True):
        place[...] = array


class Nowhere:
    """Keeps nothing: what the computing takes alone. What comes out is wrong."""

    down = up = 0

    def save(self, step: int, state: State) -> None:
        """Nothing is copied."""

    def restore(self, step: int, state: State) -> None:
        """Nothing is copied."""

    def discard(self, step: int) -> None:
        """There is nothing to discard."""


class _Slots:
    """Places for so many states, made before anything is timed."""

    def __init__(self, places: list[tuple[Any, ...]]) -> None:
        self.down = self.up = 0
        self._free = places
        self._kept: dict[int, tuple[Any, ...]] = {}

    def discard(self, step: int) -> None:
        """Lets the next save have the place."""
        self._free.append(self._kept.pop(step))

    def _place(self, step: int) -> tuple[Any, ...]:
        self._kept[step] = self._free.pop()
        return self._kept[step]


class DeviceStore(_Slots):
    """Every state in the device's own memory: a copy within the device, in order of the stream."""

    def __init__(self, device: Device, shape: tuple[int, ...], levels: int, slots: int) -> None:
        zeros = device.zeros
        super().__init__([tuple(zeros(shape) for _ in range(levels)) for _ in range(slots)])

    def save(self, step: int, state: State) -> None:
        """Enqueues the copies."""
        _copy(self._place(step), state)

    def restore(self, step: int, state: State) -> None:
        """Enqueues the copies."""
        _copy(state, self._kept[step])


class PinnedStore(_Slots):
    """Every state in pinned host memory; a save or restore returns when its copies are done.

    With a cache, the states that were used last are on the device as well: a restore of one of
    them is a copy within the device. That is GPUZIP's cache without its prefetching.
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], levels: int, slots: int, cached: int = 0
    ) -> None:
        pinned, zeros = device.pinned, device.zeros
        super().__init__([tuple(pinned(shape) for _ in range(levels)) for _ in range(slots)])
        self._device = device
        self._idle = [tuple(zeros(shape) for _ in range(levels)) for _ in range(cached)]
        #: The state that was used last is the last one.
        self._cached: dict[int, State] = {}

    def save(self, step: int, state: State) -> None:
        """Copies after what was enqueued, and waits."""
        for place, array in zip(self._place(step), state, strict=True):
            self._device.download(array, place)
            self.down += place.nbytes
        self._cache(step, state)

    def restore(self, step: int, state: State) -> None:
        """Copies, and waits unless the state is cached."""
        if (cached := self._cached.pop(step, None)) is not None:
            self._cached[step] = cached
            _copy(state, cached)
            return
        for place, array in zip(self._kept[step], state, strict=True):
            self._device.upload(array, place)
            self.up += place.nbytes
        self._cache(step, state)

    def discard(self, step: int) -> None:
        """Lets the next save have the place, and its place on the device."""
        super().discard(step)
        if (cached := self._cached.pop(step, None)) is not None:
            self._idle.append(cached)

    def _cache(self, step: int, state: State) -> None:
        """Enqueues the copies to the place of the state that was used longest ago."""
        if not self._idle and self._cached:
            self._idle.append(self._cached.pop(next(iter(self._cached))))
        if self._idle:
            self._cached[step] = self._idle.pop()
            _copy(self._cached[step], state)
