"""Sizes, numbers and tiers as people give them: those of `Spool`, and of other machines.

A size is an integer in bytes or text with a unit, exactly as in `Spool`: `"512MiB"`, `"1.5GB"`.
"""

from __future__ import annotations

import math
import operator
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._types import Disk
from .._unspool import Spool, duration_in_seconds, size_in_bytes
from ..errors import OptionError

#: The tiers that a spool may have, fastest first.
TIERS = ("device", "host", "disk")
#: The options of a `Spool` that size them.
OPTIONS = {"device": "device_memory", "host": "host_memory", "disk": "disk"}

#: Checkpoints start at multiples of this with a disk, on a GPU, and in main memory alone.
DISK_ALIGNMENT, DEVICE_ALIGNMENT, MEMORY_ALIGNMENT = 4096, 256, 64

#: What the disk tier keeps in front of a checkpoint.
HEAD = 4096

#: What may be meant as a size: a number and letters after it, either of them left out perhaps.
_NUMBER = re.compile(r"[\d._]*\s*[A-Za-z]*")


def bytes_of(name: str, value: Any) -> int:
    """The bytes of a size.

    Raises:
        OptionError: it is none; the text says what to write.
    """
    try:
        found = size_in_bytes(value) if isinstance(value, str) else _whole(value)
    except ValueError as why:
        raise OptionError(f"{name}: {why}.") from None
    if found is None:
        advice = 'write a string such as "512MiB" or "1.5GB", or a whole number of bytes'
        raise OptionError(f"{name}={value!r} is not a size; {advice}.")
    if not 0 < found < 2**63:
        raise OptionError(f"{name}={value!r}: from 1 byte to 8 EiB, or leave it out.")
    return found


def number(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> float:
    """A finite number between two others.

    Raises:
        OptionError: it is none; the text says what is needed.
    """
    try:
        found = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not (math.isfinite(found) and least <= found <= most):
        upper = "" if most == math.inf else f" to {most:g}"
        raise OptionError(f"{name}={value!r:.40}: a finite number from {least:g}{upper} is needed.")
    return found


def count_of(name: str, value: Any, most: int) -> int:
    """A whole number from 1.

    Raises:
        OptionError: it is none.
    """
    found = None if isinstance(value, float) else _whole(value)
    if found is None or not 1 <= found <= most:
        raise OptionError(f"{name}={value!r:.40}: a whole number from 1 to {most} is needed.")
    return found


def duration_of(name: str, value: Any, least: float = 0.0) -> float:
    """The seconds of a duration: a text such as `"1h30min"`, or a number.

    Raises:
        OptionError: it is none.
    """
    if isinstance(value, str):
        try:
            nothing = re.fullmatch(r"\s*0+(\.0+)?\s*(d|h|min|s|ms)\s*", value)
            value = 0.0 if nothing else duration_in_seconds(value)
        except ValueError as why:
            raise OptionError(f"{name}: {why}.") from None
    return number(name, value, least)


def rate_of(name: str, text: str) -> float:
    """The bytes per second of a speed as people write it: `"500 GB/s"`.

    Raises:
        OptionError: it is none; the text says what to write.
    """
    words = text.strip()
    if not words.endswith("/s"):
        raise OptionError(f'{name} {text}: a speed is written as "500 GB/s".')
    return float(bytes_of(name, words.removesuffix("/s")))


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers that a plan is for.

    Attributes:
        capacity: bytes by the names of the tiers, fastest first.
        directory: of the disk tier, if it has a place on this machine.
        free: whether the capacity of the disk is what its file system has free.
        device: the place of the device tier, as in `Spool`.
    """

    capacity: Mapping[str, int]
    directory: str | None = None
    free: bool = False
    device: str = "auto"

    @property
    def names(self) -> tuple[str, ...]:
        """The tiers, fastest first."""
        return tuple(self.capacity)

    def first(self, count: int) -> Tiers:
        """Only the `count` fastest ones."""
        kept = {name: self.capacity[name] for name in self.names[:count]}
        directory = self.directory if "disk" in kept else None
        return Tiers(kept, directory, self.free and "disk" in kept, self.device)

    def resized(self, name: str, capacity: int) -> Tiers:
        """The same with another capacity of one tier."""
        free = self.free and name != "disk"
        return replace(self, capacity={**self.capacity, name: capacity}, free=free)

    def room(self, name: str, size: int, on_gpu: bool) -> int:
        """What a checkpoint of `size` bytes takes in a tier, in bytes."""
        unit = DEVICE_ALIGNMENT if on_gpu else MEMORY_ALIGNMENT
        if "disk" in self.capacity:
            unit = DISK_ALIGNMENT
        return -(-size // unit) * unit + (HEAD if name == "disk" else 0)

    def slots(self, name: str, size: int, on_gpu: bool) -> int:
        """How many checkpoints of `size` bytes a tier holds."""
        return self.capacity[name] // self.room(name, size, on_gpu)

    def options(self) -> dict[str, Any]:
        """The keywords of a `Spool` with these tiers."""
        found: dict[str, Any] = {OPTIONS[name]: room for name, room in self.capacity.items()}
        if "disk" in found:
            place = self.directory if self.directory is not None else "DIRECTORY"
            found["disk"] = place if self.free else (place, found["disk"])
        return found if self.device == "auto" else {**found, "device": self.device}


def tiers_of(device_memory: Any, host_memory: Any, disk: Any, device: str = "auto") -> Tiers:
    """The tiers that the options name.

    Raises:
        OptionError: one makes no sense, or there is none.
    """
    sizes = (("device", device_memory), ("host", host_memory))
    given = {name: value for name, value in sizes if value is not None}
    automatic = _automatic([name for name, value in given.items() if value == "auto"], device)
    capacity = {
        name: automatic[name] if name in automatic else bytes_of(OPTIONS[name], value)
        for name, value in given.items()
    }
    directory, free = None, False
    if disk is not None:
        directory, capacity["disk"], free = _disk(disk)
    if not capacity:
        raise OptionError(
            "A plan needs a place to keep checkpoints, and none was given: set at least one of "
            "device_memory=, host_memory= and disk=."
        )
    return Tiers(capacity, directory, free, device)


def _automatic(names: list[str], device: str) -> dict[str, int]:
    """The bytes that `"auto"` takes now, by opening such a spool for a moment."""
    if not names:
        return {}
    options: dict[str, Any] = {OPTIONS[name]: "auto" for name in names}
    with Spool(**options, device=device) as spool:
        tiers = spool.stats().tiers
    return {tier.name: tier.capacity or 0 for tier in tiers}


def _disk(disk: Any) -> tuple[str | None, int, bool]:
    """Directory, capacity, and whether that is what is free."""
    size: Any = None
    if isinstance(disk, Disk):
        disk, size = disk.path, disk.capacity
    elif isinstance(disk, tuple):
        if len(disk) != 2:
            raise OptionError('disk= is a path, a size, or a pair such as ("/scratch", "100GiB").')
        disk, size = disk
    elif _is_size(disk):
        return None, bytes_of("disk", disk), False
    path = _directory(disk)
    if size is not None:
        return path, bytes_of("disk", size), False
    return path, shutil.disk_usage(path).free, True


def _is_size(disk: Any) -> bool:
    """Numbers and text such as `"200GiB"` are sizes unless there is a folder of that name."""
    if not isinstance(disk, str):
        return not isinstance(disk, bytes | os.PathLike)
    return not os.path.exists(disk) and _NUMBER.fullmatch(disk.strip()) is not None


def _directory(disk: Any) -> str:
    try:
        path = os.fsdecode(disk)
    except TypeError as error:
        raise OptionError(f"disk={disk!r} is neither a path nor a size.") from error
    if not os.path.isdir(path):
        raise OptionError(f"disk={path!r} is not a directory: make it, or give a size for a plan.")
    return path
