"""What a plan is asked and what it says, as plain figures, and its text: `unspool.plan` returns a
`Plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

from ..errors import Error
from ..stats import size, table, time
from .coding import Settled
from .links import Links, Rate
from .sizes import Tiers

#: How much longer may be little longer.
LITTLE = 1.05

#: Stall of less than this share of the time is not worth a word.
WORTH_A_WORD = 0.005

#: Schedules that were left out of which a table tells.
SHOWN = 8


class NoPlanError(Error, ValueError):
    """No schedule can be carried out with these tiers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An adjoint computation: the arguments of `unspool.plan`, in bytes and seconds."""

    steps: int
    state_bytes: int
    reverse_bytes: int
    step_seconds: float
    reverse_seconds: float
    compression: Settled | None = None

    @property
    def state_held(self) -> int:
        """What is stored of a state."""
        return self._held(self.state_bytes)

    @property
    def reverse_held(self) -> int:
        """What is stored of a copy that is only restored in order to reverse a step."""
        return self._held(self.reverse_bytes)

    @property
    def margin(self) -> int:
        """What a save takes of the fastest tier besides, until the state is encoded."""
        return self.state_bytes - self.state_held

    def _held(self, count: int) -> int:
        return count if self.compression is None else self.compression.held(count)

    def slots(self, tiers: Tiers, links: Links) -> int:
        """How many states these tiers hold together: none has to be in two of them."""
        return sum(self.slots_in(name, tiers, links) for name in tiers.names)

    def slots_in(self, name: str, tiers: Tiers, links: Links) -> int:
        """How many states one of them holds."""
        return self.left_in(name, tiers) // tiers.room(name, self.state_held, links.on_gpu)

    def left_in(self, name: str, tiers: Tiers) -> int:
        """What there is of a tier for states that are stored."""
        margin = self.margin if name == tiers.names[0] else 0
        return max(0, tiers.capacity[name] - margin)

    def save_seconds(self, links: Links, count: int) -> float:
        """The time of `count` bytes from the application to the fastest tier."""
        return (self.compression.encode if self.compression else links.save).seconds(count)

    def restore_seconds(self, links: Links, count: int) -> float:
        """The time of `count` bytes from the fastest tier to the application."""
        return (self.compression.decode if self.compression else links.restore).seconds(count)

    def write_seconds(self, links: Links, tier: str) -> float:
        """How long a state takes from the application to a tier, if it waits for it."""
        moved = links.write_seconds(tier, self.state_held) - links.save.seconds(self.state_held)
        return self.save_seconds(links, self.state_bytes) + moved

    def read_seconds(self, links: Links, tier: str) -> float:
        """How long a state takes from a tier to the application."""
        moved = links.read_seconds(tier, self.state_held) - links.restore.seconds(self.state_held)
        return self.restore_seconds(links, self.state_bytes) + moved

    def least_seconds(self, advances: int) -> float:
        """The computing of a schedule with so many forward steps."""
        return advances * self.step_seconds + self.steps * self.reverse_seconds


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """What a link carries.

    Attributes:
        fast: the name of the faster tier.
        slow: the name of the slower tier.
        flushed: bytes to the slower tier.
        prefetched: bytes to the faster tier.
    """

    fast: str
    slow: str
    flushed: int
    prefetched: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule on a spool, and what it was predicted to cost.

    Attributes:
        name: the schedule as it is written in Python.
        schedule: the schedule itself, an object of `unspool.schedules`, for `unspool.adjoint`.
        tiers: the tiers of the spool that it needs, fastest first.
        options: the keywords of that `Spool`; a disk without a place is called "DIRECTORY". The
            codec is there if the plan was given it as `codec=`.
        seconds: of the whole computation: the sum of the four figures below.
        compute_seconds: forward and reverse steps, slowed by what moves beside them.
        copy_seconds: copies between the application and the spool.
        save_stall_seconds: waits of saves for room.
        restore_stall_seconds: waits of restores for their data.
        forward_steps: forward steps, repeated ones included.
        recomputed_steps: forward steps beyond one pass.
        saves: how often a state is saved.
        restores: how often one is restored.
        peak_copies: the most copies that are kept at a time.
        peak_bytes: the most bytes in use, by tier.
        links: bytes over each link.
        lead: how many restores had their data ready ahead of time: the median.
    """

    name: str
    schedule: Any
    tiers: tuple[str, ...]
    options: Mapping[str, Any]
    seconds: float
    compute_seconds: float
    copy_seconds: float
    save_stall_seconds: float
    restore_stall_seconds: float
    forward_steps: int
    recomputed_steps: int
    saves: int
    restores: int
    peak_copies: int
    peak_bytes: Mapping[str, int]
    links: tuple[LinkBytes, ...]
    lead: int | None

    @property
    def stall_seconds(self) -> float:
        """All waits."""
        return self.save_stall_seconds + self.restore_stall_seconds

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers, without the schedule."""
        plain = figures(self)
        del plain["schedule"]
        return plain | {
            "tiers": list(self.tiers),
            "options": {name: _plain(value) for name, value in self.options.items()},
            "peak_bytes": dict(self.peak_bytes),
            "links": [asdict(link) for link in self.links],
            "stall_seconds": self.stall_seconds,
        }


def figures(record: Any) -> dict[str, Any]:
    """The fields of a record by name, as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int | str) else str(value)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A schedule that was not predicted, or a way of keeping checkpoints that does not work.

    Attributes:
        name: the schedule as it is written in Python, or the way in words.
        reason: why.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Schedules for one computation on one machine, the fastest first; `print` it for a table.

    Attributes:
        problem: the computation.
        tiers: what there is.
        links: how fast bytes move, as measured or given.
        candidates: what was predicted, the fastest first, at least one.
        left_out: what was not, and why.
    """

    problem: Problem
    tiers: Tiers
    links: Links
    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def best(self) -> Candidate:
        """The one to take."""
        return self.candidates[0]

    @property
    def simpler(self) -> Candidate | None:
        """The fastest one that needs fewer tiers, if it takes at most 5 % longer."""
        for one in self.candidates:
            if len(one.tiers) < len(self.best.tiers):
                return one if one.seconds <= LITTLE * self.best.seconds else None
        return None

    @property
    def sentence(self) -> str:
        """What to take and what it costs."""
        return sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as nested dictionaries, lists and numbers, ready for `json.dump`."""
        compression = self.problem.compression
        return {
            **figures(self.problem),
            "compression": None if compression is None else compression.to_dict(),
            "tiers": dict(self.tiers.capacity),
            "best": self.best.name,
            "simpler": None if self.simpler is None else self.simpler.name,
            "sentence": self.sentence,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "left_out": [asdict(one) for one in self.left_out],
            "links": self.links.to_dict(),
        }

    def __str__(self) -> str:
        """Everything: the computation, the candidates, what was left out, and the sentence."""
        blocks = [_head(self), _candidates(self)]
        if self.left_out:
            blocks.append("\n".join(_left_out(self)))
        return "\n\n".join([*blocks, self.sentence])


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The best that can be done with another size of one tier.

    Attributes:
        tier: its name.
        capacity: its size, in bytes; 0: without that tier.
        best: what would be taken, or None where nothing fits.
    """

    tier: str
    capacity: int
    best: Candidate | None

    def to_dict(self) -> dict[str, Any]:
        """All figures as nested dictionaries, lists and numbers."""
        best = None if self.best is None else self.best.to_dict()
        return {"tier": self.tier, "capacity": self.capacity, "best": best}


def _left_out(plan: Plan) -> Iterator[str]:
    for one in plan.left_out[:SHOWN]:
        yield f"left out: {one.name}: {one.reason}"
    if len(plan.left_out) > SHOWN:
        yield f"left out: {len(plan.left_out) - SHOWN} more, see `left_out`, or --json"


def _head(plan: Plan) -> str:
    problem = plan.problem
    tiers = ", ".join(f"{name} {size(count)}" for name, count in plan.tiers.capacity.items())
    part = ""
    if problem.reverse_bytes != problem.state_bytes:
        part = f" ({size(problem.reverse_bytes)} of it for a reverse step)"
    return (
        f"{problem.steps:,} steps of {time(problem.step_seconds)} forward and "
        f"{time(problem.reverse_seconds)} in reverse, states of {size(problem.state_bytes)}{part}; "
        f"{tiers}{_compression(problem)}"
    )


def _compression(problem: Problem) -> str:
    """What the codec was taken to be, and who says so."""
    found = problem.compression
    if found is None:
        return ""
    of_ratio, of_encoder, of_decoder = found.sources
    name = "" if found.codec is None else f" by {_option(found.codec)}"
    encode, decode = _speed(found.encode), _speed(found.decode)
    speeds = f"encoder {encode} ({of_encoder}), decoder {decode} ({of_decoder})"
    if of_encoder == of_decoder:
        speeds = f"encoder {encode}, decoder {decode} ({of_encoder})"
    held = size(problem.state_held)
    return f"\nstored{name} in {held}, a ratio of {found.ratio:.3g} ({of_ratio}); {speeds}"


def _speed(rate: Rate) -> str:
    return f"{rate.bytes_per_second / 1e9:.3g} GB/s"


def _candidates(plan: Plan) -> str:
    names = plan.tiers.names
    head = ("schedule", "time", "steps", "again", "copying", "stall", "lead", *names)
    moved = [f"{fast}<>{slow}" for fast, slow in pairwise(names)]
    rows = [_row(candidate, names) for candidate in plan.candidates]
    return table([(*head, *moved), *rows])


def _row(candidate: Candidate, names: Sequence[str]) -> tuple[str, ...]:
    peaks = (candidate.peak_bytes.get(name) for name in names)
    moved = {(link.fast, link.slow): link.flushed + link.prefetched for link in candidate.links}
    pairs = pairwise(names)
    return (
        candidate.name,
        time(candidate.seconds),
        f"{candidate.forward_steps:,}",
        f"{candidate.recomputed_steps:,}",
        time(candidate.copy_seconds),
        time(candidate.stall_seconds),
        "-" if candidate.lead is None else f"{candidate.lead:,}",
        *("-" if peak is None else _brief(peak) for peak in peaks),
        *(_brief(moved[pair]) if pair in moved else "-" for pair in pairs),
    )


def _brief(count: int) -> str:
    """Bytes in at most four digits: `1.5 GiB`, `714 GiB`."""
    number, unit = size(count).split(" ")
    value = float(number)
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def sentence(plan: Plan) -> str:
    """What to take and what it costs."""
    best = plan.best
    options = ", ".join(f"{name}={_option(value)}" for name, value in best.options.items())
    costs = [f"{best.recomputed_steps:,} steps are computed again"]
    if not best.recomputed_steps:
        costs = ["no step is computed again"]
    if best.stall_seconds > WORTH_A_WORD * best.seconds:
        costs.append(f"{time(best.stall_seconds)} are spent waiting for data or room")
    else:
        costs.append("nothing waits for data or room")
    unused = [name for name in plan.tiers.names if name not in best.tiers]
    spare = f"; it has no use for the {' and the '.join(unused)} tier" if unused else ""
    return (
        f"Take {best.name} with Spool({options}): about {time(best.seconds)}, in which "
        f"{' and '.join(costs)}{spare}.{_simpler(plan)}"
    )


def _simpler(plan: Plan) -> str:
    """What takes little longer and needs fewer tiers."""
    other = plan.simpler
    if other is None:
        return ""
    more = other.seconds / plan.best.seconds - 1
    unused = [name for name in plan.best.tiers if name not in other.tiers]
    return f" Without the {' and the '.join(unused)} tier {other.name} takes {more:.1%} longer."


def _option(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_option, value))})"
    if not isinstance(value, int | str):
        return repr(value)
    return f'"{_exact(value) if isinstance(value, int) else value}"'


def _exact(count: int) -> str:
    """A size as `Spool` takes it: the largest binary unit of which it is a whole number."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % (1 << 10 * power) == 0:
            return f"{count >> 10 * power}{unit}"
    return f"{count}B"


def what_if_table(plan: Plan, rows: Sequence[WhatIf]) -> str:
    """The best time with other sizes, beside that of the plan."""
    lines = [("with", "best", "time", "against now")]
    lines.append(("what there is", plan.best.name, time(plan.best.seconds), ""))
    for row in rows:
        name = f"{row.tier} {size(row.capacity)}" if row.capacity else f"no {row.tier}"
        if row.best is None:
            lines.append((name, "nothing fits", "-", "-"))
        else:
            change = row.best.seconds / plan.best.seconds - 1 if plan.best.seconds else 0.0
            lines.append((name, row.best.name, time(row.best.seconds), f"{change:+.1%}"))
    return table(lines)
