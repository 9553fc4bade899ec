"""Two machines: the one of the dissertation, and one of today."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from unspool.advice import (
    Choice,
    Compression,
    Costs,
    Failures,
    Place,
    Prices,
    Rate,
    Waits,
    advise,
)
from unspool.errors import OptionError

__all__ = ["GPU_MTBF", "THESIS", "TODAY", "Machine", "ratio_of"]

YEAR = 365.0 * 86_400.0

#: The training of Llama 3 on 16,384 GPUs had 419 unexpected interruptions in 54 days (Llama team,
#: "The Llama 3 herd of models", 2024, section 3.3.4): seconds for one GPU.
GPU_MTBF = 54.0 * 86_400.0 * 16_384 / 419


@dataclass(frozen=True)
class Machine:
    """A machine and its job.

    Attributes:
        name: for people.
        part: what is counted along the axis: sockets, GPUs.
        checkpoint: bytes of one rank.
        write: bytes per second of one rank.
        read: likewise.
        part_mtbf: seconds between two failures of a part.
        parts: that are looked at.
        ratio: of the codec.
        encode: bytes per second.
        decode: likewise.
        increments: the share of a checkpoint that changes.
        blocking: whether a commit is waited for.
        on_gpu: whether encoding is part of the save.
        restart: seconds before a restart begins to read.
    """

    name: str
    part: str
    checkpoint: float
    write: float
    read: float
    part_mtbf: float
    parts: tuple[int, ...]
    ratio: float
    encode: float
    decode: float
    increments: float
    blocking: bool
    on_gpu: bool
    restart: float

    def with_rate(self, rate: float) -> Machine:
        """With other speeds of the place."""
        return replace(self, write=rate, read=rate)

    def with_joined_increments(self) -> Machine:
        """With increments under the name `"compressed"`, as the dissertation counts them: they are
        joined with the full checkpoint in the background, and a restart reads one checkpoint."""
        share = self.increments
        rest = (1 - share) * self.checkpoint / self.ratio / self.read
        return replace(
            self,
            ratio=self.ratio / share,
            encode=self.encode / share,
            restart=self.restart + rest,
        )

    def with_codec_times(self, factor: float) -> Machine:
        """With a codec that is so many times as fast."""
        return replace(self, encode=self.encode * factor, decode=self.decode * factor)

    def choices(
        self,
        parts: float,
        *,
        endurance: float | None = None,
        prices: Prices | None = None,
        writers: int = 1,
        remote: Place | None = None,
    ) -> dict[str, Choice]:
        """What each way costs with so many parts, by its name; empty where none works."""
        codec = Compression(self.ratio, Rate(self.encode), Rate(self.decode))
        try:
            found = advise(
                int(self.checkpoint),
                Place(self.write, self.read),
                remote=remote,
                failures=Failures(mtbf=self.part_mtbf / parts),
                work="365d",
                waits=Waits(blocking=self.blocking, restart=self.restart),
                codecs=[codec],
                increments=self.increments,
                on_gpu=self.on_gpu,
                costs=Costs(None if endurance is None else int(endurance), prices=prices),
                writers=writers,
            )
        except OptionError:
            return {}
        names = {"none": "none", "increments": "increments"}
        return {
            (names.get(one.name, "both" if "increments" in one.name else "compressed"))
            + ("" if one.place == "disk" else f", {one.place}"): one
            for one in found.choices
        }

    def efficiency(self, parts: float, name: str) -> float:
        """That of one way; 0 where it does not work."""
        one = self.choices(parts).get(name)
        return 0.0 if one is None else one.efficiency


def ratio_of(saved: float) -> float:
    """Bytes for each byte that is stored, from the share that is saved."""
    return math.inf if saved >= 1 else 1.0 / (1.0 - saved)


#: 2 GB a process, a third of it checkpointed at 1 MB/s, pbzip2 on LAMMPS; five years a node of two
#: sockets, which is the convention by which the 7.2 points of the text's Figure 5.6 come out.
THESIS = Machine(
    name="the dissertation's: 683 MB at 1 MB/s",
    part="sockets",
    checkpoint=683e6,
    write=1e6,
    read=1e6,
    part_mtbf=2 * 5 * YEAR,
    parts=(1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000),
    ratio=ratio_of(0.927),
    encode=154.2e6,
    decode=564.9e6,
    increments=0.2,
    blocking=True,
    on_gpu=False,
    restart=0.0,
)

#: H100s with 80 GB each, written at 1 GB/s, Twine without loss on the GPU at a ratio of 1.4.
TODAY = Machine(
    name="today's: 80 GB a GPU at 1 GB/s",
    part="GPUs",
    checkpoint=80e9,
    write=1e9,
    read=1e9,
    part_mtbf=GPU_MTBF,
    parts=(8, 64, 512, 4_096, 16_384, 50_000, 100_000),
    ratio=1.4,
    encode=550e9,
    decode=900e9,
    increments=0.2,
    blocking=False,
    on_gpu=True,
    restart=60.0,
)
