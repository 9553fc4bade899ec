"""What accumulated compression is planned from: a run, checkpoint by checkpoint, and how long a
codec takes by the bytes of its input.

These are the two oracles of Maurya et al., "Towards Efficient I/O Pipelines using Accumulated
Compression" (HiPC 2023, section III-A1). `unspool-codecs --cost FILE` measures the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from .._files import Format, Kept
from ..errors import Error, OptionError
from .links import Rate
from .sizes import number

#: More bytes than a checkpoint can have.
MOST = 2**63

#: The arrays of a checkpoint: name, dtype and shape of each.
Layout = tuple[tuple[str, str, tuple[int, ...]], ...]


class ProfileError(Error, ValueError):
    """A file that holds no profile, or no costs of a codec."""


#: The columns of a file, and what makes the numbers of each.
COLUMNS = {"interval": float, "raw": int, "stored": int, "layout": int, "seconds": float}

#: The input of a straight line's second point.
FAR = 1 << 34


@dataclass(frozen=True, slots=True)
class CodecCost(Kept):
    """What one call of a codec costs.

    Attributes:
        name: of the codec, for people.
        times: pairs of bytes and seconds, by ascending bytes; linear between them, constant below
            the first one, and beyond the last one as between the last two.
        in_place: it reads the newest checkpoint where the application has it; else that is copied
            into the cache first.
        compacts: its output is copied into room of its own size before it is sent.
        worst_per_mille: room for its output while it runs, in thousandths of the input.
        worst_fixed: bytes of that besides.

    Raises:
        OptionError: a size, a time or a room is not a number from 0, or sizes do not ascend.
    """

    _format: ClassVar[Format] = Format("unspool_codec_cost", 1, "cost of a codec", ProfileError)

    name: str
    times: tuple[tuple[int, float], ...]
    in_place: bool = False
    compacts: bool = True
    worst_per_mille: int = 1003
    worst_fixed: int = 4096

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.times]
        if not sizes or sizes != sorted(set(sizes)):
            raise OptionError(f"times of {self.name} are needed by ascending bytes: {sizes!r:.80}.")
        for size, seconds in self.times:
            number(f"bytes of {self.name}", size)
            number(f"seconds of {self.name}", seconds)
        number(f"worst_per_mille of {self.name}", self.worst_per_mille)
        number(f"worst_fixed of {self.name}", self.worst_fixed)

    @classmethod
    def linear(cls, name: str, fixed: float, bytes_per_second: float, **more: Any) -> Self:
        """`fixed` seconds a call, and so many bytes a second."""
        if not bytes_per_second > 0:
            raise OptionError(f"{name}: bytes_per_second={bytes_per_second} must be above zero.")
        return cls(name, ((0, fixed), (FAR, fixed + FAR / bytes_per_second)), **more)

    def seconds(self, count: int) -> float:
        """The time of a call with so many bytes."""
        if count <= self.times[0][0] or len(self.times) == 1:
            return self.times[0][1]
        above = next((at for at, one in enumerate(self.times) if one[0] >= count), -1)
        at = len(self.times) - 1 if above < 0 else above
        (x0, y0), (x1, y1) = self.times[at - 1], self.times[at]
        return y0 + (y1 - y0) * (count - x0) / (x1 - x0)

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> Self:
        times = tuple((int(size), float(seconds)) for size, seconds in fields.pop("times"))
        return cls(times=times, **fields)


def _times(*seconds: float) -> tuple[tuple[int, float], ...]:
    """Of 1, 8, 32, 128 and 512 MiB."""
    return tuple(zip((1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20), seconds, strict=True))


#: nvCOMP's Bitcomp, lossless, on an H100, through its Python package: a call costs about 104 us
#: besides, and half of its peak rate is reached at 59 MB. It reads and writes buffers of its own.
NVCOMP = CodecCost("nvCOMP Bitcomp", _times(116.5e-6, 111.8e-6, 159.8e-6, 325.8e-6, 1111.5e-6))

#: Twine on an H100, device time of one launch: flat float32 waves within an absolute bound, 17 to
#: 24 times smaller. It reads the application's array and writes where the checkpoint stays.
TWINE = CodecCost(
    "Twine", _times(13.4e-6, 16.4e-6, 36.5e-6, 96.6e-6, 328e-6), in_place=True, compacts=False
)


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
class Profile(Kept):
    """A recorded run: the first oracle of accumulated compression.

    Attributes:
        checkpoints: in the order of their saves.
        layouts: the different layouts of checkpoints that there were.
        codec: what compressed, in words; "" for nothing.
        device: where the arrays were: `"cpu"` or `"cuda:0"`.
        cache: bytes of the fastest tier; 0 where it is not known.
        link: from the fastest tier to the next one, as the run saw it; None where there was none.
        cost: what the codec costs on this machine; None where it was not measured. Spools that
            follow the profile plan with it.
    """

    _format: ClassVar[Format] = Format("unspool_profile", 1, "profile", ProfileError)

    checkpoints: tuple[Recorded, ...]
    layouts: tuple[Layout, ...] = ()
    codec: str = ""
    device: str = "cpu"
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

    def _fields(self) -> dict[str, Any]:
        """Checkpoints are columns."""
        columns = {name: [getattr(one, name) for one in self.checkpoints] for name in COLUMNS}
        return {
            "codec": self.codec,
            "device": self.device,
            "cache": self.cache,
            "link": None if self.link is None else asdict(self.link),
            "cost": None if self.cost is None else self.cost.to_dict(),
            "layouts": [[[*two, list(shape)] for *two, shape in one] for one in self.layouts],
            "checkpoints": columns,
        }

    @classmethod
    def _of_fields(cls, found: dict[str, Any]) -> Self:
        columns = [map(made, found["checkpoints"][name]) for name, made in COLUMNS.items()]
        layouts = tuple(
            tuple((str(name), str(dtype), tuple(map(int, shape))) for name, dtype, shape in one)
            for one in found["layouts"]
        )
        checkpoints = tuple(Recorded(*row) for row in zip(*columns, strict=True))
        if layouts and any(one.layout >= len(layouts) for one in checkpoints):
            raise ValueError("a checkpoint names a layout that is not there")
        link = None if found["link"] is None else Rate(**found["link"])
        # Files of earlier versions have none.
        cost = None if found.get("cost") is None else CodecCost.from_dict(found["cost"])
        about = str(found["codec"]), str(found["device"]), int(found["cache"])
        return cls(checkpoints, layouts, *about, link, cost)


def _each(name: str, value: Any, count: int) -> list[float]:
    """One number for all, or as many as there are; NumPy's, too."""
    if not hasattr(value, "__len__"):
        return [float(value)] * count
    if len(value) != count:
        raise OptionError(f"{name} has {len(value)} entries for {count} checkpoints.")
    return [float(one) for one in value]
