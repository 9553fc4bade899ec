"""How long a codec takes, by the bytes of its input: what is measured offline.

The second oracle of Maurya et al., "Towards Efficient I/O Pipelines using Accumulated Compression"
(HiPC 2023, section III-A1). `unspool-codecs --cost FILE` measures it on a machine.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from unspool._files import Format, write_json
from unspool.errors import Error, OptionError

__all__ = ["NVCOMP", "TWINE", "CodecCost", "ProfileError"]


class ProfileError(Error, ValueError):
    """A file that holds no profile, or no costs of a codec."""


FORMAT = Format("unspool_codec_cost", 1, "cost of a codec", ProfileError)

#: The input of a straight line's second point.
FAR = 1 << 34


@dataclass(frozen=True, slots=True)
class CodecCost:
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
        if sizes[0] < 0 or not all(0 <= one < math.inf for _, one in self.times):
            raise OptionError(
                f"times of {self.name} are bytes and seconds, numbers from 0: {self.times!r:.80}."
            )
        if self.worst_per_mille < 0 or self.worst_fixed < 0:
            raise OptionError(
                f"the room of {self.name} is a number from 0: worst_per_mille="
                f"{self.worst_per_mille!r:.20}, worst_fixed={self.worst_fixed!r:.20}."
            )

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

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for `json.dump`."""
        return FORMAT.marked(asdict(self))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Made from what `to_dict` gave.

        Raises:
            ProfileError: it is something else.
        """
        return FORMAT.made(found, cls._of_fields)

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> Self:
        times = tuple((int(size), float(seconds)) for size, seconds in fields.pop("times"))
        return cls(times=times, **fields)

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, as a whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_json(path, self.to_dict())

    @classmethod
    def load_from(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save_to` or `unspool-codecs --cost` wrote.

        Raises:
            ProfileError: the file holds something else.
            OSError: it cannot be read.
        """
        return FORMAT.read(path, cls.from_dict)


#: nvCOMP's Bitcomp, lossless, on an H100, through its Python package: a call costs about 104 us
#: besides, and half of its peak rate is reached at 59 MB. It reads and writes buffers of its own.
NVCOMP = CodecCost(
    "nvCOMP Bitcomp",
    (
        (1 << 20, 116.5e-6),
        (8 << 20, 111.8e-6),
        (32 << 20, 159.8e-6),
        (128 << 20, 325.8e-6),
        (512 << 20, 1111.5e-6),
    ),
)

#: Twine on an H100, device time of one launch: flat float32 waves within an absolute bound, 17 to
#: 24 times smaller. It reads the application's array and writes where the checkpoint stays.
TWINE = CodecCost(
    "Twine",
    (
        (1 << 20, 13.4e-6),
        (8 << 20, 16.4e-6),
        (32 << 20, 36.5e-6),
        (128 << 20, 96.6e-6),
        (512 << 20, 328e-6),
    ),
    in_place=True,
    compacts=False,
)
