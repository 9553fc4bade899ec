"""`unspool.accumulate`: the best schedule for a recorded run, beside what simple ones cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import groupby
from typing import Any

from .._unspool import follow_accumulation, plan_accumulation
from ..errors import OptionError
from ..stats import size, table, time
from .links import Rate
from .profile import CodecCost, Profile
from .sizes import bytes_of, count_of

#: Copies on an H100: 1.49 TB/s, and about 3 us for one to begin.
DEVICE_COPY = Rate(1.49e12, 3e-6)

#: What can be done with a checkpoint: it is sent as it is, compressed alone, held for later, or
#: compressed with all that are held.
DECISIONS = ("raw", "alone", "hold", "together")

#: No limit to what is compressed in one call.
ANY = 2**32 - 1

#: What the simple schedules are called in a table.
NAMES = {
    "raw": "no compression",
    "alone": "each alone",
    "full": "when the cache is full",
    "pays": "as soon as it pays",
    "batches": "batches of 8",
}

#: Runs of decisions that a text shows.
SHOWN = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule costs; the parts add up to `seconds`.

    Attributes:
        decisions: one of `DECISIONS` for each checkpoint.
        seconds: from the beginning to the end of the run.
        computing: between checkpoints.
        room: waits for room in the cache.
        copies: waits for copies within the device.
        codec: waits for the codec.
        last: the wait for the last transfers.
        counts: checkpoints by decision.
        raw_bytes: of all checkpoints.
        link_bytes: that crossed the link.
    """

    decisions: tuple[str, ...]
    seconds: float
    computing: float
    room: float
    copies: float
    codec: float
    last: float
    counts: Mapping[str, int]
    raw_bytes: int
    link_bytes: int

    @property
    def blocked(self) -> float:
        """Seconds for which the application was blocked."""
        return self.seconds - self.computing

    @property
    def overhead(self) -> float:
        """The share of the run for which the application was blocked: what plans minimise."""
        return self.blocked / self.seconds if self.seconds else 0.0

    @property
    def throughput(self) -> float:
        """Bytes of checkpoints a second of the whole run."""
        return self.raw_bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A plan.

    Attributes:
        best: the best schedule that was found, and what it costs.
        simple: those that were not searched for, by name: `raw` and `alone` (every decision is
            that one), `full` (hold until the cache is full), `pays` (hold while that pays),
            `batches` (of eight).
        at_least: no schedule ends before so many seconds.
        codec: the codec that it is for.
        cache: bytes of the cache.
    """

    best: Outcome
    simple: Mapping[str, Outcome]
    at_least: float
    codec: CodecCost
    cache: int

    @property
    def is_optimal(self) -> bool:
        """Whether it is proven that no schedule is better."""
        return self.at_least >= self.best.seconds

    def to_dict(self) -> dict[str, Any]:
        """Everything as dictionaries, lists and numbers."""
        found = asdict(self)
        return {**found, "codec": self.codec.to_dict()}

    def __str__(self) -> str:
        head = ("schedule", "time", "blocked", "of it codec", "overhead", "GB/s", *DECISIONS)
        rows = [head, _row("best", self.best)]
        rows += [_row(NAMES.get(name, name), one) for name, one in self.simple.items()]
        best = self.best
        about = f"{len(best.decisions)} checkpoints, {size(best.raw_bytes)}; {self.codec.name}"
        about += f", cache {size(self.cache)}"
        return f"{about}\n\n{table(rows)}\n\n{_proof(self)}\n{shortened(best.decisions)}"


def plan(
    profile: Profile,
    *,
    codec: CodecCost,
    cache: int | str | None = None,
    link: float | Rate | None = None,
    copy: float | Rate = DEVICE_COPY,
    most_together: int | None = None,
    until: str = "flushed",
) -> Accumulation:
    """The schedule for which the application is blocked the least.

    Args:
        profile: the run.
        codec: what compresses, and how long that takes.
        cache: the cache on the device, as sizes of `Spool`; that of the profile if left out.
        link: to the host, in bytes a second or as a `Rate`; that of the profile if left out.
        copy: copies within the device, likewise.
        most_together: the most checkpoints in one call of the codec; 1 for schedules that do not
            accumulate.
        until: the run ends with the last transfer (`"flushed"`), or when the application is done
            with its last checkpoint (`"application"`).

    Raises:
        OptionError: something is missing or makes no sense, or a checkpoint is larger than the
            cache.
    """
    problem = _problem(
        profile, codec, cache, link, copy, until, ANY if most_together is None else most_together
    )
    found = plan_accumulation(problem)
    simple = {name: _outcome(one) for name, one in found["simple"].items()}
    return Accumulation(_outcome(found), simple, found["at_least"], codec, problem["cache"])


def follow(
    profile: Profile,
    decisions: Sequence[str],
    *,
    codec: CodecCost,
    cache: int | str | None = None,
    link: float | Rate | None = None,
    copy: float | Rate = DEVICE_COPY,
    until: str = "flushed",
) -> Outcome:
    """What a given schedule costs, such as `["raw", "hold", "together"]`.

    There is one decision for each checkpoint. The other arguments are as for `plan`.

    Raises:
        OptionError: as for `plan`; or a decision has no such name, or cannot be taken.
    """
    problem = _problem(profile, codec, cache, link, copy, until)
    return _outcome(follow_accumulation(problem, decisions))


def _problem(
    profile: Profile, codec: Any, cache: Any, link: Any, copy: Any, until: str, most: Any = None
) -> dict[str, Any]:
    """What the extension asks for."""
    if not isinstance(codec, CodecCost):
        raise OptionError(f"codec={codec!r}: accumulate.TWINE, NVCOMP or a CodecCost is needed.")
    link = profile.link if link is None else link
    if link is None:
        raise OptionError("The profile knows no link: give link=, in bytes a second.")
    room = profile.cache if cache is None else bytes_of("cache", cache)
    if not room:
        raise OptionError('The profile knows no cache: give cache=, such as "128MiB".')
    if until not in ("flushed", "application"):
        raise OptionError(f'until={until!r}: "flushed" or "application" is needed.')
    return {
        "checkpoints": [(one.interval, one.raw, one.stored) for one in profile.checkpoints],
        "times": list(codec.times),
        "worst_per_mille": codec.worst_per_mille,
        "worst_fixed": codec.worst_fixed,
        "in_place": codec.in_place,
        "compacts": codec.compacts,
        "cache": room,
        "copy": _rate(copy),
        "link": _rate(link),
        "until_application": until == "application",
        "most_together": ANY if most is None else count_of("most_together", most, ANY),
    }


def _rate(value: float | Rate) -> tuple[float, float]:
    return astuple(value if isinstance(value, Rate) else Rate(value))


def _outcome(found: Mapping[str, Any]) -> Outcome:
    counts = dict(zip(DECISIONS, found["counts"], strict=True))
    given = {name: found[name] for name in Outcome.__dataclass_fields__}
    return Outcome(**{**given, "decisions": tuple(found["decisions"]), "counts": counts})


def _row(name: str, one: Outcome) -> tuple[str, ...]:
    return (
        name,
        time(one.seconds),
        time(one.blocked),
        time(one.codec),
        f"{one.overhead:.1%}",
        f"{one.throughput / 1e9:.1f}",
        *(f"{one.counts[decision]:,}" for decision in DECISIONS),
    )


def _proof(found: Accumulation) -> str:
    if found.is_optimal:
        return "the best schedule is proven to be optimal:"
    gap = found.best.seconds / found.at_least - 1 if found.at_least else 0.0
    return f"no schedule can be faster than the best one by more than {gap:.2%}:"


def shortened(decisions: Sequence[str]) -> str:
    """Equal decisions in a row with their number: `3 raw, 2 hold, together`."""
    runs = [(decision, len(list(same))) for decision, same in groupby(decisions)]
    words = [decision if count == 1 else f"{count} {decision}" for decision, count in runs]
    more = f" ... ({len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more
