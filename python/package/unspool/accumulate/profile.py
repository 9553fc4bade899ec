"""What a run was like, checkpoint by checkpoint: a file that plans are made from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from unspool._files import Format, write_json
from unspool._plan.links import Rate
from unspool.accumulate.costs import CodecCost, ProfileError
from unspool.errors import OptionError

__all__ = ["Layout", "Profile", "ProfileError", "Recorded"]

#: More bytes than a checkpoint can have.
MOST = 2**63

#: The arrays of a checkpoint: name, dtype and shape of each.
Layout = tuple[tuple[str, str, tuple[int, ...]], ...]

FORMAT = Format("unspool_profile", 1, "profile", ProfileError)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One checkpoint of a recorded run.

    Attributes:
        interval: seconds of computing before it: since the save before it returned.
        raw: bytes of its arrays.
        stored: bytes that were kept of them; the same where nothing compressed.
        layout: the number of its layout among those of the profile.
        seconds: that its save took, without waiting for room.
    """

    interval: float
    raw: int
    stored: int
    layout: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (self.interval >= 0 and self.seconds >= 0):
            raise OptionError(f"times are numbers from 0: {self.interval!r}, {self.seconds!r}.")
        if not (0 <= self.raw < MOST and 0 <= self.stored < MOST and self.layout >= 0):
            raise OptionError(
                f"sizes are numbers from 0 to 8 EiB: {self.raw:.6g}, {self.stored:.6g}."
            )


@dataclass(frozen=True, slots=True)
class Profile:
    """A recorded run: the first oracle of accumulated compression.

    Attributes:
        checkpoints: in the order of their saves.
        layouts: the different layouts of checkpoints that there were.
        codec: what compressed, in words; "" for nothing.
        on: where the arrays were: `"cpu"` or `"cuda:0"`.
        cache: bytes of the fastest tier; 0 where it is not known.
        link: from the fastest tier to the next one, as the run saw it; None where there was none.
        cost: what the codec costs on this machine; None where it was not measured. Spools that
            follow the profile plan with it.
    """

    checkpoints: tuple[Recorded, ...]
    layouts: tuple[Layout, ...] = ()
    codec: str = ""
    on: str = "cpu"
    cache: int = 0
    link: Rate | None = field(default=None)
    cost: CodecCost | None = None

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        *,
        ratio: float | Sequence[float] = 1.0,
        interval: float | Sequence[float] = 0.0,
    ) -> Self:
        """A run that was not recorded but is known.

        Args:
            sizes: bytes of each checkpoint.
            ratio: raw over stored bytes, of all or of each.
            interval: seconds of computing, before all or before each.

        Raises:
            OptionError: a number makes no sense, or there are not as many as sizes.
        """
        ratios = _each("ratio", ratio, len(sizes))
        if not all(one > 1e-9 for one in ratios):
            raise OptionError(f"ratio={ratio!r}: raw over stored bytes, a number above 0.")
        intervals = _each("interval", interval, len(sizes))
        rows = zip(sizes, ratios, intervals, strict=True)
        return cls(tuple(Recorded(time, size, max(1, round(size / by))) for size, by, time in rows))

    @property
    def raw_bytes(self) -> int:
        """Bytes of all checkpoints."""
        return sum(one.raw for one in self.checkpoints)

    @property
    def ratio(self) -> float:
        """Raw over stored bytes of the whole run."""
        return self.raw_bytes / max(1, sum(one.stored for one in self.checkpoints))

    @property
    def seconds(self) -> float:
        """Computing between all checkpoints."""
        return sum(one.interval for one in self.checkpoints)

    def to_dict(self) -> dict[str, Any]:
        """All of it as dictionaries, lists and numbers, ready for `json.dump`: columns."""
        columns: dict[str, list[Any]] = {
            name: [getattr(one, name) for one in self.checkpoints]
            for name in ("interval", "raw", "stored", "layout", "seconds")
        }
        fields = {
            "codec": self.codec,
            "on": self.on,
            "cache": self.cache,
            "link": None if self.link is None else asdict(self.link),
            "cost": None if self.cost is None else self.cost.to_dict(),
            "layouts": [
                [[name, dtype, list(shape)] for name, dtype, shape in one] for one in self.layouts
            ],
            "checkpoints": columns,
        }
        return FORMAT.marked(fields)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Made from what `to_dict` gave.

        Raises:
            ProfileError: it is something else.
        """
        return FORMAT.made(found, cls._of_columns)

    @classmethod
    def _of_columns(cls, found: Mapping[str, Any]) -> Self:
        columns = found["checkpoints"]
        rows = zip(
            columns["interval"],
            columns["raw"],
            columns["stored"],
            columns["layout"],
            columns["seconds"],
            strict=True,
        )
        layouts = tuple(
            tuple((str(name), str(dtype), tuple(map(int, shape))) for name, dtype, shape in one)
            for one in found["layouts"]
        )
        checkpoints = tuple(
            Recorded(float(interval), int(raw), int(stored), int(layout), float(seconds))
            for interval, raw, stored, layout, seconds in rows
        )
        if layouts and any(one.layout >= len(layouts) for one in checkpoints):
            raise ValueError("a checkpoint names a layout that is not there")
        link = None if found["link"] is None else Rate(**found["link"])
        # Files of earlier versions have none.
        cost = None if found.get("cost") is None else CodecCost.from_dict(found["cost"])
        about = str(found["codec"]), str(found["on"]), int(found["cache"])
        return cls(checkpoints, layouts, *about, link, cost)

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, as a whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_json(path, self.to_dict())

    @classmethod
    def load_from(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save_to` wrote.

        Raises:
            ProfileError: the file holds something else.
            OSError: it cannot be read.
        """
        return FORMAT.read(path, cls.from_dict)


def _each(name: str, value: Any, count: int) -> list[float]:
    """One number for all, or as many as there are; NumPy's, too."""
    if not hasattr(value, "__len__"):
        return [float(value)] * count
    if len(value) != count:
        raise OptionError(f"{name} has {len(value)} entries for {count} checkpoints.")
    return [float(one) for one in value]
