"""How fast bytes move between an application and the tiers of a spool: what a plan is made from."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from unspool.errors import Error, OptionError

__all__ = ["Link", "Links", "LinksError", "Rate"]

#: The format of the file.
FORMAT = 1


class LinksError(Error, ValueError):
    """A file that holds no links."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How long copies in one direction take: `latency + bytes / bytes_per_second`.

    Attributes:
        bytes_per_second: of copies one behind the other.
        latency: seconds that each one takes besides.
    """

    bytes_per_second: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        if not (_number(self.bytes_per_second) and self.bytes_per_second > 0):
            raise OptionError(f"{self.bytes_per_second!r} is no rate: bytes per second, above 0.")
        if not (_number(self.latency) and self.latency >= 0):
            raise OptionError(f"{self.latency!r} is no latency: seconds, at least 0.")

    def seconds(self, count: int) -> float:
        """How long `count` bytes take."""
        return self.latency + count / self.bytes_per_second


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Link:
    """The movement between two neighbouring tiers, all its workers together.

    Attributes:
        fast: the name of the faster tier.
        slow: the name of the slower tier.
        flush: to the slower tier.
        prefetch: to the faster tier.
    """

    fast: str
    slow: str
    flush: Rate
    prefetch: Rate


@dataclass(frozen=True, slots=True)
class Links:
    """The speeds of one machine, as `measure_links` finds them.

    Attributes:
        on: `"cpu"` or `"cuda:0"`: where the arrays and the device tier were.
        tiers: the names of the tiers, fastest first.
        save: from the application's arrays into the fastest tier.
        restore: from the fastest tier into the application's arrays.
        links: `links[i]` lies between `tiers[i]` and `tiers[i + 1]`.
        slowdown: how much longer computing takes while bytes move between tiers, because both use
            the same memory and cores: 1.2 for a fifth; 1 on a GPU.
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
    slowdown: float = 1.0
    first_touch: float = 0.0
    checkpoint_bytes: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        pairs = tuple(pairwise(self.tiers))
        if not self.tiers or tuple((link.fast, link.slow) for link in self.links) != pairs:
            raise OptionError(f"links between {self.tiers} are needed, each pair of neighbours.")
        if not (_number(self.slowdown) and self.slowdown >= 1):
            raise OptionError(f"slowdown={self.slowdown!r}: a factor, at least 1.")
        if not (_number(self.first_touch) and self.first_touch >= 0):
            raise OptionError(f"first_touch={self.first_touch!r}: seconds per byte, at least 0.")

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
        """Only the `count` fastest tiers. Each link has the same part in the slowdown."""
        links = self.links[: count - 1]
        share = len(links) / max(1, len(self.links))
        slowdown = 1.0 + share * (self.slowdown - 1.0)
        return replace(self, tiers=self.tiers[:count], links=links, slowdown=slowdown)

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

    def as_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers, ready for `json.dump`."""
        return {"unspool_links": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Made from what `as_dict` gave.

        Raises:
            LinksError: it is something else.
        """
        if not isinstance(found, Mapping) or found.get("unspool_links") != FORMAT:
            raise LinksError(f'these are no links: they lack "unspool_links": {FORMAT}')
        try:
            return cls(**_parts(found))
        except (KeyError, TypeError, OptionError) as error:
            raise LinksError(f"these links are incomplete or changed: {error}") from error

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, as a whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(path)
        partial = target.with_name(f"{target.name}.{os.getpid()}.part")
        partial.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
        os.replace(partial, target)

    @classmethod
    def load_from(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save_to` wrote.

        Raises:
            LinksError: the file holds something else.
            OSError: it cannot be read.
        """
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        try:
            return cls.from_dict(json.loads(text))
        except ValueError as error:
            raise LinksError(f"{os.fspath(path)}: {error}") from error

    def __str__(self) -> str:
        from unspool.planning.text import links_table

        return links_table(self)


def _parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with their own classes in place of dictionaries and lists."""
    fields = {name: value for name, value in found.items() if name != "unspool_links"}
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
