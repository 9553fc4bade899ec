"""How fast bytes move between an application and the tiers of a spool: what a plan is made from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

from .._files import Format, Kept
from ..errors import Error, OptionError
from ..stats import table, time
from .sizes import TIERS, number


class LinksError(Error, ValueError):
    """A file that holds no links."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How long copies in one direction take: `latency + bytes / bytes_per_second`.

    Attributes:
        bytes_per_second: of copies one after the other.
        latency: seconds that each one takes besides.
    """

    bytes_per_second: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        number("bytes_per_second", self.bytes_per_second, 1.0, 1e18)
        number("latency", self.latency, 0.0, 1e6)

    def seconds(self, count: int) -> float:
        """How long `count` bytes take."""
        return self.latency + count / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class Link:
    """The movement between two neighbouring tiers, all its workers together.

    Attributes:
        fast: the name of the faster tier.
        slow: the name of the slower tier.
        flush: to the slower tier.
        prefetch: to the faster tier.
        contention: by how much computing takes longer while one direction is busy, because both use
            the same memory and cores: 0.2 for a fifth; 0 on a GPU.
    """

    fast: str
    slow: str
    flush: Rate
    prefetch: Rate
    contention: float = 0.0

    def __post_init__(self) -> None:
        number("contention", self.contention, 0.0, 1e3)


@dataclass(frozen=True, slots=True)
class Links(Kept):
    """The speeds of one machine, as `measure_links` finds them.

    Attributes:
        device: `"cpu"` or `"cuda:0"`: where the arrays and the device tier were.
        tiers: the names of the tiers, fastest first.
        save: from the application's arrays into the fastest tier.
        restore: from the fastest tier into the application's arrays.
        links: `links[i]` lies between `tiers[i]` and `tiers[i + 1]`.
        first_touch: seconds per byte that the first write of a place in main memory takes longer
            than later ones: the system gives memory only then.
        checkpoint_bytes: what the copies carried that were measured; 0 when none were.
        seconds: how long the measurement took.
    """

    _format: ClassVar[Format] = Format("unspool_links", 1, "file of links", LinksError, indent=1)

    device: str
    tiers: tuple[str, ...]
    save: Rate
    restore: Rate
    links: tuple[Link, ...] = ()
    first_touch: float = 0.0
    checkpoint_bytes: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.device, str) and re.fullmatch(r"cpu|cuda:\d+", self.device)):
            raise OptionError(f'device is {self.device!r:.40}: "cpu" or "cuda:0" is needed.')
        if not self.tiers or self.tiers != tuple(name for name in TIERS if name in self.tiers):
            raise OptionError(
                f"tiers are {self.tiers!r:.80}: some of {TIERS} are needed, in order."
            )
        pairs = tuple(pairwise(self.tiers))
        if tuple((link.fast, link.slow) for link in self.links) != pairs:
            raise OptionError(f"links are needed for each pair of neighbours: {pairs}.")
        number("first_touch", self.first_touch, 0.0, 1.0)
        number("checkpoint_bytes", self.checkpoint_bytes, 0, 2**63)
        number("seconds", self.seconds, 0.0, 1e6)

    @property
    def on_gpu(self) -> bool:
        """Whether the arrays and the device tier are on a GPU."""
        return self.device.startswith("cuda")

    def write_seconds(self, tier: str, count: int) -> float:
        """How long `count` bytes take from the application to a tier, if it waits for them.

        Raises:
            OptionError: there is no such tier.
        """
        return self._seconds(tier, count, [self.save, *(link.flush for link in self.links)])

    def read_seconds(self, tier: str, count: int) -> float:
        """How long `count` bytes take from a tier to the application.

        Raises:
            OptionError: there is no such tier.
        """
        return self._seconds(tier, count, [self.restore, *(link.prefetch for link in self.links)])

    def _seconds(self, tier: str, count: int, moves: list[Rate]) -> float:
        if tier not in self.tiers:
            raise OptionError(f"there is no tier {tier!r} among {', '.join(self.tiers)}.")
        return sum(move.seconds(count) for move in moves[: self.tiers.index(tier) + 1])

    def first(self, count: int) -> Links:
        """Only the `count` fastest tiers."""
        return replace(self, tiers=self.tiers[:count], links=self.links[: count - 1])

    def of(self, names: Sequence[str]) -> Links:
        """Those of a spool with these tiers.

        Raises:
            OptionError: they were measured for other tiers.
        """
        if tuple(names) != self.tiers[: len(names)]:
            raise OptionError(
                f"The links were measured for the tiers {', '.join(self.tiers)}, and the plan is "
                f"for {', '.join(names)}: measure again with those, or leave links= out."
            )
        return self.first(len(names))

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> Self:
        links = [
            Link(**{**link, "flush": Rate(**link["flush"]), "prefetch": Rate(**link["prefetch"])})
            for link in fields["links"]
        ]
        ways = {name: Rate(**fields[name]) for name in ("save", "restore")}
        return cls(**{**fields, **ways, "tiers": tuple(fields["tiers"]), "links": tuple(links)})

    def __str__(self) -> str:
        rows = [("movement", "rate", "latency", "slows computing by"), *_movements(self)]
        notes = f"on {self.device}"
        if self.first_touch:
            cost = time(self.first_touch * (1 << 30))
            notes += f"; writing 1 GiB of main memory for the first time takes {cost} more"
        return f"{table(rows)}\n{notes}"


def _movements(links: Links) -> Iterator[tuple[str, ...]]:
    first = links.tiers[0]
    yield _movement(f"application -> {first}", links.save, "-")
    yield _movement(f"{first} -> application", links.restore, "-")
    for link in links.links:
        yield _movement(f"{link.fast} -> {link.slow}", link.flush, f"{link.contention:.0%}")
        yield _movement(f"{link.slow} -> {link.fast}", link.prefetch, f"{link.contention:.0%}")


def _movement(name: str, rate: Rate, slows: str) -> tuple[str, ...]:
    return name, f"{rate.bytes_per_second / 1e9:.2f} GB/s", time(rate.latency), slows
