"""What an advice is for, as plain figures: no file is read and nothing is measured here."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from unspool.errors import OptionError

__all__ = ["Coded", "Place", "Power", "Prices", "Problem", "number"]


def number(name: str, value: Any, least: float = 0.0, most: float = math.inf) -> float:
    """A finite number between two others.

    Raises:
        OptionError: it is none; the text says what is needed.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and least <= value <= most):
        upper = "" if most == math.inf else f" to {most:g}"
        raise OptionError(f"{name}={value!r:.40}: a finite number from {least:g}{upper} is needed.")
    return float(value)


@dataclass(frozen=True, slots=True)
class Place:
    """How fast one rank writes to a place and reads from it while all others do as well.

    Attributes:
        write: bytes per second, synchronisation with the medium included.
        read: bytes per second.
        path: the directory, where it is one of this machine.
        writers: how many wrote at once when it was measured; 0 where it was given.
    """

    write: float
    read: float
    path: str | None = None
    writers: int = 0

    def __post_init__(self) -> None:
        number("write", self.write, 1.0)
        number("read", self.read, 1.0)

    @classmethod
    def measured(
        cls, path: Any, *, writers: int = 1, most: int | str = "256MiB", limit: float = 3.0
    ) -> Place:
        """Writes and reads files that have no name in a directory, and leaves nothing there.

        Arguments:
            path: the directory.
            writers: ranks that write to it at the same time; the speeds are those of one.
            most: bytes that are written at most, by all together.
            limit: about how long each direction takes at most, in seconds.

        Raises:
            OptionError: an argument makes no sense, or there is no such directory.
            StorageError: the file system is too full, refuses, or does not answer.
        """
        from unspool._advise.places import measure

        return measure(path, writers, most, limit)


@dataclass(frozen=True, slots=True)
class Power:
    """Mean electric power of one rank with its share of the machine, in watts.

    Attributes:
        app: while the application computes.
        save: while it waits for a checkpoint; as `app` without it.
        restore: while it is restored; as `app` without it.
        encode: what a codec takes besides, for as long as it works.
    """

    app: float
    save: float | None = None
    restore: float | None = None
    encode: float = 0.0

    def __post_init__(self) -> None:
        for name in ("app", "save", "restore", "encode"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name))

    @classmethod
    def now(cls, seconds: float = 1.0) -> Power:
        """What the GPUs and processors of this machine take now, by their own counters of energy:
        call it while the application computes.

        Raises:
            MissingLibraryError: no counter can be read; the text says why.
        """
        from unspool._advise.power import Meter

        seconds, meter = number("seconds", seconds, 0.1, 600.0), Meter()
        with meter.during("app"):
            time.sleep(seconds)
        return meter.power

    def joules(
        self, app: float, save: float = 0.0, restore: float = 0.0, encode: float = 0.0
    ) -> float:
        """The energy of so many seconds of each, of which those of `encode` lie within the others:
        equations 5.5 to 5.8 of D. Ibtesham, "Improving Large Scale Application Performance via Data
        Movement Reduction", University of New Mexico, 2017.
        """
        joules = app * self.app + encode * self.encode
        joules += save * (self.app if self.save is None else self.save)
        return joules + restore * (self.app if self.restore is None else self.restore)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a node costs, in any currency.

    Attributes:
        node: its price without the drive.
        drive: that of a drive, of which one is bought whenever one is worn out.
        weeks: for how long the node is used.
        kwh: of a kilowatt hour.
    """

    node: float
    drive: float = 0.0
    weeks: float = 260.0
    kwh: float = 0.0

    def __post_init__(self) -> None:
        for name in ("node", "drive", "kwh"):
            number(name, getattr(self, name))
        number("weeks", self.weeks, 1.0)


@dataclass(frozen=True, slots=True)
class Coded:
    """What a codec makes of a checkpoint.

    Attributes:
        name: for people: "lossless", "Bound(range=0.0001)".
        codec: as `Checkpointer` takes it, or None where only figures are known.
        ratio: bytes of the arrays for each that is stored.
        encode: bytes of the arrays per second.
        decode: likewise.
        source: where the figures come from, in words.
    """

    name: str
    codec: Any
    ratio: float
    encode: float
    decode: float
    source: str = "given"

    @property
    def saved(self) -> float:
        """The share of the bytes that it saves."""
        return 1.0 - 1.0 / self.ratio


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that an advice goes by.

    Attributes:
        checkpoint_bytes: of one rank.
        ranks: of the job.
        mtbf: seconds between two failures of the job.
        mtbf_source: who says so.
        disk: where checkpoints go.
        remote: a second place, which survives what the first one does not, or None.
        healed: the share of failures after which `disk` is still there; only with `remote`.
        work: seconds of computing, without checkpoints and failures.
        blocking: whether a save returns only when it is durable.
        copy: bytes per second at which an asynchronous save takes the arrays away.
        restart: seconds from a failure to where a restart begins to read.
        codecs: what may be done with the bytes.
        increments: the share of a checkpoint that changes, or None.
        on_gpu: whether the arrays are on a GPU, where encoding is part of the save.
        writers: ranks that share a drive and a node.
        endurance: bytes that may be written to that drive, or None.
        power: of a rank, or None.
        prices: of a node, or None.
    """

    checkpoint_bytes: int
    ranks: int
    mtbf: float
    mtbf_source: str
    disk: Place
    remote: Place | None = None
    healed: float = 0.9
    work: float = 7 * 86_400.0
    blocking: bool = False
    copy: float = 8e9
    restart: float = 60.0
    codecs: tuple[Coded, ...] = ()
    increments: float | None = None
    on_gpu: bool = False
    writers: int = 1
    endurance: float | None = None
    power: Power | None = None
    prices: Prices | None = None

    def place(self, name: str) -> Place:
        """The place that is called `"disk"` or `"remote"`; the disk where both are used."""
        return self.remote if name == "remote" and self.remote is not None else self.disk
