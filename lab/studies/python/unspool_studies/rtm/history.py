"""Where the wavefields of the forward pass wait for the backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from unspool import Debug, Spool
from unspool_studies.rtm.clock import Clock, Span
from unspool_studies.rtm.device import Device
from unspool_studies.rtm.model import Floats

__all__ = [
    "ArrayHistory",
    "DeviceHistory",
    "History",
    "Memory",
    "PinnedHistory",
    "SpoolHistory",
]


class History(Protocol):
    """The part of `unspool.Spool` that a migration uses."""

    def save(self, version: int, array: Any, /) -> None:
        """Keeps a copy of `array`."""

    def expect(self, versions: Iterable[int], /) -> None:
        """Says in which order the versions will be restored."""

    def restore(self, version: int, array: Any, /) -> None:
        """Fills `array` with what was saved."""


class ArrayHistory:
    """The whole history in plain arrays of the same kind: what a spool is checked against."""

    #: For people.
    memory = "plain NumPy arrays"

    def __init__(self) -> None:
        self._arrays: dict[int, Any] = {}

    def save(self, version: int, array: Any, /) -> None:
        """Keeps a copy of `array`."""
        self._arrays[version] = array.copy()

    def expect(self, versions: Iterable[int], /) -> None:
        """Needs no hint."""

    def restore(self, version: int, array: Any, /) -> None:
        """Fills `array`, and forgets the copy."""
        array[...] = self._arrays.pop(version)


class DeviceHistory(ArrayHistory):
    """The whole history in plain arrays of a GPU."""

    memory = "plain device memory"


class PinnedHistory:
    """The whole history in pinned host memory, for a GPU whose own memory is too small for it."""

    memory = "pinned host memory"

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[int, Floats] = {}

    def save(self, version: int, array: Any, /) -> None:
        """Keeps a copy of `array`."""
        self._arrays[version] = self._device.pinned(array.shape)
        self._device.download(array, self._arrays[version])

    def expect(self, versions: Iterable[int], /) -> None:
        """Needs no hint."""

    def restore(self, version: int, array: Any, /) -> None:
        """Fills `array`, and forgets the copy."""
        self._device.upload(array, self._arrays.pop(version))


class SpoolHistory:
    """A spool, with the time of each save and restore on the application's clock."""

    def __init__(self, spool: Spool, clock: Clock) -> None:
        self.spool = spool
        self.clock = clock
        self._stalled = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spool, name)

    def save(self, version: int, /, *arrays: Any, **options: Any) -> None:
        """Keeps a copy of `arrays`."""
        with self.clock.span("save", str(version)) as span:
            self.spool.save(version, *arrays, **options)
        self._note_stall(span)

    def restore(self, version: int, /, *arrays: Any, **options: Any) -> None:
        """Fills `arrays` with what was saved."""
        with self.clock.span("restore", str(version)) as span:
            self.spool.restore(version, *arrays, **options)
        self._note_stall(span)

    def _note_stall(self, span: Span) -> None:
        if not self.clock.keeps_spans:
            return
        stats = self.spool.stats()
        stalled = stats.save_stall_seconds + stats.restore_stall_seconds
        span.stall = min(round(1e9 * (stalled - self._stalled)), span.end - span.begin)
        self._stalled = stalled


@dataclass(frozen=True)
class Memory:
    """The tiers of a job's spool.

    Attributes:
        device_memory: size of the device tier, such as `"64MiB"`, or None for no such tier.
        host_memory: size of the host tier, likewise.
        directory: where the disk tier lies; the spool removes what it has put there. None for no
            such tier.
        disk: the most that the disk tier may take, or None for all that is free.
        codec: what becomes of the states in them, as the spool's own option says.
    """

    device_memory: str | None
    host_memory: str | None
    directory: Path | None
    disk: str | None = None
    codec: Any = None

    @property
    def tiers(self) -> dict[str, Any]:
        """As options of a spool."""
        disk: Any = self.directory
        if disk is not None and self.disk is not None:
            disk = (disk, self.disk)
        return {"device_memory": self.device_memory, "host_memory": self.host_memory, "disk": disk}

    def only(self, names: Collection[str]) -> Memory:
        """The same with no other tiers than these."""
        kept = {
            "device_memory": self.device_memory if "device" in names else None,
            "host_memory": self.host_memory if "host" in names else None,
        }
        directory = self.directory if "disk" in names else None
        return replace(self, **kept, directory=directory)

    def open(self, *, trace: bool, device: str = "cpu") -> Spool:
        """A spool with these tiers.

        Args:
            trace: whether it records what happens when.
            device: the place of its memory, as the spool's own option says.
        """
        debug = Debug(trace=trace)
        return Spool(**self.tiers, device=device, codec=self.codec, debug=debug)
