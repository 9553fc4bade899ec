"""How fast bytes move between an application and the tiers of a spool: what a plan is made from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Self

from unspool._files import Format, write_json
from unspool._plan.sizes import TIERS
from unspool.errors import Error, OptionError

__all__ = ["Link", "Links", "LinksError", "Rate"]


class LinksError(Error, ValueError):
    """A file that holds no links."""


FORMAT = Format("unspool_links", 1, "file of links", LinksError)


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
        _check("bytes_per_second", self.bytes_per_second, 1.0, 1e18)
        _check("latency", self.latency, 0.0, 1e6)

    def seconds(self, count: int) -> float:
        """How long `count` bytes take."""
        return self.latency + count / self.bytes_per_second


def _check(name: str, value: Any, least: float, most: float) -> None:
    """A number of a file that people may have written."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and least <= value <= most):
        raise OptionError(
            f"{name} is {value!r:.40}: a number from {least:g} to {most:g} is needed."
        )


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
        _check("contention", self.contention, 0.0, 1e3)


@dataclass(frozen=True, slots=True)
class Links:
    """The speeds of one machine, as `measure_links` finds them.

    Attributes:
        on: `"cpu"` or `"cuda:0"`: where the arrays and the device tier were.
        tiers: the names of the tiers, fastest first.
        save: from the application's arrays into the fastest tier.
        restore: from the fastest tier into the application's arrays.
        links: `links[i]` lies between `tiers[i]` and `tiers[i + 1]`.
        first_touch: seconds per byte that the first write of a place in main memory takes longer
            than later ones: the system gives memory only then.
        checkpoint_bytes: what the copies carried that were measured; 0 when none were.
        seconds: how long the measurement took.
    """

    on: str
    tiers: tuple[str, ...]
    save: Rate
    restore: Rate
    links: tuple[Link, ...] = ()
    first_touch: float = 0.0
    checkpoint_bytes: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.on, str) and re.fullmatch(r"cpu|cuda:\d+", self.on)):
            raise OptionError(f'on is {self.on!r:.40}: "cpu" or "cuda:0" is needed.')
        if not self.tiers or self.tiers != tuple(name for name in TIERS if name in self.tiers):
            raise OptionError(
                f"tiers are {self.tiers!r:.80}: some of {TIERS} are needed, in order."
            )
        pairs = tuple(pairwise(self.tiers))
        if tuple((link.fast, link.slow) for link in self.links) != pairs:
            raise OptionError(f"links are needed for each pair of neighbours: {pairs}.")
        _check("first_touch", self.first_touch, 0.0, 1.0)
        _check("checkpoint_bytes", self.checkpoint_bytes, 0, 2**63)
        _check("seconds", self.seconds, 0.0, 1e6)

    @property
    def on_gpu(self) -> bool:
        """Whether the arrays and the device tier are on a GPU."""
        return self.on.startswith("cuda")

    def write_seconds(self, tier: str, count: int) -> float:
        """How long `count` bytes take from the application to a tier, if it waits for them.

        Raises:
            OptionError: there is no such tier.
        """
        moves = [self.save, *(link.flush for link in self.links)]
        return sum(move.seconds(count) for move in moves[: self._place(tier) + 1])

    def read_seconds(self, tier: str, count: int) -> float:
        """How long `count` bytes take from a tier to the application.

        Raises:
            OptionError: there is no such tier.
        """
        moves = [self.restore, *(link.prefetch for link in self.links)]
        return sum(move.seconds(count) for move in moves[: self._place(tier) + 1])

    def _place(self, tier: str) -> int:
        if tier not in self.tiers:
            raise OptionError(f"there is no tier {tier!r} among {', '.join(self.tiers)}.")
        return self.tiers.index(tier)

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

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers, ready for `json.dump`."""
        return FORMAT.marked(asdict(self))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Made from what `to_dict` gave.

        Raises:
            LinksError: it is something else.
        """
        return FORMAT.made(found, lambda fields: cls(**_parts(fields)))

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, as a whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_json(path, self.to_dict(), indent=1)

    @classmethod
    def load_from(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save_to` wrote.

        Raises:
            LinksError: the file holds something else.
            OSError: it cannot be read.
        """
        return FORMAT.read(path, cls.from_dict)

    def __str__(self) -> str:
        from unspool._plan.text import links_table

        return links_table(self)


def _parts(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with their own classes in place of dictionaries and lists."""
    links = [
        Link(**{**link, "flush": Rate(**link["flush"]), "prefetch": Rate(**link["prefetch"])})
        for link in fields["links"]
    ]
    return {
        **fields,
        "tiers": tuple(fields["tiers"]),
        "save": Rate(**fields["save"]),
        "restore": Rate(**fields["restore"]),
        "links": tuple(links),
    }
