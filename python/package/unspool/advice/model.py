"""How much of a job's time is work, when it fails at random and goes on from checkpoints.

Failures are exponential, and the mean time between two of them, `mtbf`, is the job's: that of one
part divided by the number of parts. Times are seconds and rates bytes per second.

The bandwidth below which compressing pays, endurance and price are equations 5.1 to 5.4 of D.
Ibtesham, "Improving Large Scale Application Performance via Data Movement Reduction" (University
of New Mexico, 2017), the first in a general form. The efficiency is exact for what it supposes.
With a synchronous commit it is equation 20 of J. T. Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps" (Future Generation Computer Systems 22, 2006); those of
asynchronous commits and of two levels follow from the same argument, and tests compare them with
failures that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import OptionError
from .sizes import number

#: How many local checkpoints may lie between two remote ones.
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

#: About how many counts between the neighbours of the best of these are tried as well.
NEAR = 16

#: Steps of a search, each of which leaves 0.62 of where the optimum may be.
STEPS = 48
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


#: The most increments that a `Checkpointer` lets follow a full checkpoint.
LONGEST_CHAIN = 100


@dataclass(frozen=True, slots=True)
class Chain:
    """A full checkpoint and the increments that follow it.

    Attributes:
        share: the bytes of an increment over those of a full checkpoint.
        count: the number of increments.
    """

    share: float
    count: int

    @property
    def written(self) -> float:
        """What a checkpoint writes, as a share of a full one, on average."""
        return (1.0 + self.count * self.share) / (self.count + 1)

    @property
    def read(self) -> float:
        """What a restart reads, as a share of a full checkpoint, on average."""
        return 1.0 + self.count * self.share / 2.0

    @property
    def frames(self) -> tuple[tuple[float, float], ...]:
        """By checkpoint, what it writes, and what a restart reads until it is durable."""
        reads = [1.0 + place * self.share for place in range(self.count + 1)]
        return ((1.0, reads[-1]), *((self.share, before) for before in reads[:-1]))


#: Checkpoints that are all stored in full.
FULL = Chain(1.0, 0)


def chain_of(share: float, failures: float) -> Chain:
    """The chain that a `Checkpointer` with `increments=True` writes.

    Args:
        share: the bytes of an increment over those of a full checkpoint.
        failures: restarts for each checkpoint.
    """
    # With n increments: the rule of `restart/src/increments.rs`, where it is explained.
    best = math.sqrt(2.0 * (1.0 - share) / (failures * share)) - 1.0 if failures else math.inf
    together = math.floor(1.0 / share + 1e-9)
    return Chain(share, max(1, round(min(best, LONGEST_CHAIN, together))))


@dataclass(frozen=True, slots=True)
class Level:
    """What checkpoints in one place cost, in seconds.

    Attributes:
        blocked: for which the application waits in a checkpoint.
        durable: from the beginning of a checkpoint until a failure does not lose it. As long as
            `blocked` where the commit is synchronous; never shorter.
        restart: from a failure until the application computes again.
    """

    blocked: float
    durable: float
    restart: float

    def __post_init__(self) -> None:
        for name in ("blocked", "durable", "restart"):
            number(name, getattr(self, name))
        if self.durable < self.blocked:
            raise OptionError(
                f"durable={self.durable:g} s is before the call returns (blocked={self.blocked:g} "
                "s): count both from the beginning of a checkpoint."
            )


@dataclass(frozen=True, slots=True)
class TwoLevels:
    """Checkpoints in a near place, each n-th of which is copied to a far one as well.

    Attributes:
        near: every checkpoint.
        far: `blocked` is what a copied checkpoint blocks besides, `durable` counts from when the
            near one is durable, and `restart` is from the far place.
        healed: the share of failures after which the near place is still there, from 0 to 1.
    """

    near: Level
    far: Level
    healed: float

    def __post_init__(self) -> None:
        number("healed", self.healed, 0.0, 1.0)


def checked(level: Level, mtbf: float) -> None:
    """Refuses what no interval makes good.

    Raises:
        OptionError: checkpoints take as long as the job goes on between two failures.
    """
    number("mtbf", mtbf)
    if level.durable >= mtbf:
        raise OptionError(
            f"a checkpoint takes {level.durable:.3g} s and the job fails every {mtbf:.3g} s, so "
            "that hardly one would be finished: write less, write faster, or use fewer parts."
        )


def break_even(
    saved: float,
    encode: float,
    decode: float,
    recoveries: float = 1.0,
    commit_waits: float = 1.0,
    encode_waits: float = 1.0,
    reading: float = 1.0,
) -> float:
    """The bandwidth of writing below which compressing pays: equation 5.1 in a general form.

    The dissertation has one recovery a checkpoint, waits for everything, and reads as fast as it
    writes. What is not waited for costs time after a failure, because what was computed meanwhile
    is computed again: so a commit that nobody waits for counts once a recovery, as its reading
    does.

    Arguments:
        saved: the share of the bytes that the codec saves, below 1: 0.75 for a ratio of 4.
        encode: bytes of the arrays per second.
        decode: likewise.
        recoveries: for each checkpoint.
        commit_waits: the share of writing for which the application waits: 1 for a synchronous
            commit, 0 for an asynchronous one.
        encode_waits: the share of encoding, likewise.
        reading: how many times as fast as writing it is.
    """
    for name, value in (("encode", encode), ("decode", decode)):
        if not value > 0.0:
            raise OptionError(f"{name}={value!r}: bytes per second above 0 are needed.")
    number("recoveries", recoveries)
    number("reading", reading, 1e-9)
    if not (math.isfinite(saved) and saved < 1.0):
        raise OptionError(f"saved={saved!r}: the share of bytes that go, below 1.")

    def counted(share: float) -> float:
        return share + recoveries * (1.0 - share)

    spent = counted(encode_waits) / encode + recoveries / decode
    won = counted(commit_waits) + recoveries / reading
    return max(0.0, saved) * won / spent if spent > 0.0 else math.inf


def optimum(blocked: float, mtbf: float) -> float:
    """The compute time between two checkpoints at which least is lost, however long a commit takes.

    It solves `(1 - x) e^x = e^(-blocked / mtbf)` for `x = interval / mtbf`, of which Daly's
    equation 37 (what `Checkpointer(every="auto")` goes by) is the expansion.
    """
    low, high = 0.0, 1.0
    for _ in range(64):
        middle = (low + high) / 2.0
        if middle + math.log1p(-middle) + blocked / mtbf > 0.0:
            low = middle
        else:
            high = middle
    return low * mtbf


def best_interval(level: Level, mtbf: float) -> float:
    """The interval that loses least, such that one commit has ended before the next one begins."""
    checked(level, mtbf)
    return max(optimum(level.blocked, mtbf), level.durable - level.blocked)


def until(seconds: float, mtbf: float) -> float:
    """The mean time until a try of so many seconds ends or fails."""
    return -mtbf * math.expm1(-seconds / mtbf)


def efficiency(interval: float, level: Level, mtbf: float) -> float:
    """Work over time, of a job that computes for `interval` between two checkpoints.

    From one durable checkpoint to the next it needs `interval + blocked` without a failure, or
    after a failure `restart + interval + durable`, tried until it succeeds; from 0 to 1.
    """
    if not interval >= 0.0:
        raise OptionError(f"interval={interval!r}: seconds from 0 are needed.")
    if level.durable > (interval + level.blocked) * (1 + 1e-9):
        raise OptionError(
            f"interval={interval:g}: a checkpoint is not durable when the next one begins; with "
            f"{level.durable:g} s to be durable write at least {level.durable - level.blocked:g}."
        )
    stretch = (interval + level.blocked) / mtbf
    lost = (level.restart + level.durable - level.blocked) / mtbf
    if stretch == 0.0:
        return math.exp(-lost)
    if stretch > 700.0:
        return 0.0
    return interval / mtbf * math.exp(-lost) / math.expm1(stretch)


def worked(interval: float, level: Level) -> float:
    """What is computed before a checkpoint when another one is due after `interval`: until that
    one is durable at least."""
    return max(interval, level.durable - level.blocked)


def best_of_chain(levels: Sequence[Level], mean: Level, mtbf: float) -> float:
    """The interval that loses least where checkpoints of these costs follow each other."""
    if len(levels) == 1:
        return best_interval(mean, mtbf)
    checked(mean, mtbf)
    least = max(min(worked(0.0, level) for level in levels), optimum(mean.blocked, mtbf) / 8.0)

    def lost(logarithm: float) -> float:
        return -efficiency_of_chain(math.exp(logarithm), levels, mtbf)

    least = max(least, 1e-6 * mtbf)
    return math.exp(_least(lost, math.log(least), math.log(max(2.0 * least, mtbf))))


def efficiency_of_chain(interval: float, levels: Sequence[Level], mtbf: float) -> float:
    """Work over time where checkpoints of these costs follow each other, again and again.

    The `restart` of each is from the one before it. Where one is not durable when the next is due,
    the next one begins later.
    """
    works = [worked(interval, level) for level in levels]
    shares = [efficiency(work, level, mtbf) for work, level in zip(works, levels, strict=True)]
    if not all(shares):
        return 0.0
    return sum(works) / sum(work / share for work, share in zip(works, shares, strict=True))


def efficiency_of_two(interval: float, count: int, levels: TwoLevels, mtbf: float) -> float:
    """Work over time where each `count`-th checkpoint is copied to the far place as well.

    A copy takes part of the segments that follow; between whole numbers of them the expected time
    is interpolated.
    """
    stretch = interval + levels.near.blocked
    latency = levels.far.durable / stretch
    if latency > count * (1 + 1e-9):
        raise OptionError("a copy to the far place takes longer than there is between two of them.")
    whole = min(math.floor(latency + 1e-9), count)
    part = min(max(0.0, latency - whole), 0.999_999)
    seconds = (1.0 - part) * _cycle(interval, count, levels, mtbf, whole)
    if part > 1e-9:
        seconds += part * _cycle(interval, count, levels, mtbf, whole + 1)
    return min(1.0, count * interval / seconds)


@dataclass(frozen=True, slots=True)
class _Step:
    """The expected time from one state to the end, `a + (1 - c) Z`, from that of the next state:
    `a -> (1 - leaves) a + adds`, `c -> (1 - leaves) c`."""

    leaves: float
    adds: float

    def applied(self, value: tuple[float, float], times: int) -> tuple[float, float]:
        """The value `times` states earlier."""
        if not 0.0 < self.leaves < 1.0:
            power, total = (1.0, float(times)) if self.leaves <= 0.0 else (0.0, 1.0)
        else:
            logarithm = times * math.log1p(-self.leaves)
            power, total = math.exp(logarithm), -math.expm1(logarithm) / self.leaves
        return power * value[0] + self.adds * total, power * value[1]


def _step(interval: float, copied: float, levels: TwoLevels, mtbf: float) -> _Step:
    """Of one segment, at whose end a copy blocks for `copied`."""
    near, healed = levels.near, levels.healed
    again = (near.restart + interval + near.durable + copied) / mtbf
    failed, held = -math.expm1(-again), math.exp(-again)
    fails = -math.expm1(-(interval + near.blocked + copied) / mtbf)
    tries = held + failed * (1.0 - healed)
    if tries <= 0.0:
        return _Step(1.0, math.inf)
    return _Step(fails * (1.0 - healed) / tries, mtbf * fails * (1.0 + healed * failed / tries))


def _cycle(interval: float, count: int, levels: TwoLevels, mtbf: float, late: int) -> float:
    """The expected time in which the newest far checkpoint becomes `count` checkpoints newer.

    In state j, j segments were done since that checkpoint; in state `late + count` the next one is
    there. V_j, the expected time from j to there, is kept as `a + (1 - c) Z`, where Z is that after
    a failure that the near place does not survive: back to state 0. From the last state backwards:

        V_j = F(P) + e^(-P/M) V_j+1 + (1 - e^(-P/M)) (h W_j + (1 - h) Z)
        W_j = F(Q) + e^(-Q/M) V_j+1 + (1 - e^(-Q/M)) (h W_j + (1 - h) Z)

    with F(x) = M (1 - e^(-x/M)), P a segment, Q one after a restart, h the share that is healed.
    """
    far = levels.far
    plain, copying = (_step(interval, copied, levels, mtbf) for copied in (0.0, far.blocked))

    def back(value: tuple[float, float], state: int, to: int) -> tuple[float, float]:
        while state > to:
            times = 1 if state % count == 0 else min(state - to, state % count)
            value = (copying if state % count == 0 else plain).applied(value, times)
            state -= times
        return value

    middle = max(late, 1)
    begun = back((0.0, 1.0), late + count, middle)
    first = back(begun, middle, 1)
    found = begun if late else back(first, 1, 0)
    # Until the next near checkpoint, any failure leads to the far place once more.
    again = far.restart + interval + levels.near.durable + (far.blocked if count == 1 else 0.0)
    if again > 700.0 * mtbf or first[1] <= 0.0:
        return math.inf
    lost = (mtbf * math.expm1(again / mtbf) + first[0]) / first[1]
    return found[0] + (1.0 - found[1]) * lost


def best_pair(levels: TwoLevels, mtbf: float) -> tuple[float, int]:
    """The interval, and how many of them lie between two copies to the far place, that lose least.

    Raises:
        OptionError: checkpoints take as long as the job goes on between two failures.
    """
    checked(levels.near, mtbf)
    found = {count: _best_with(count, levels, mtbf) for count in COUNTS}
    place = COUNTS.index(max(COUNTS, key=lambda count: found[count][0]))
    low, high = COUNTS[max(0, place - 1)], COUNTS[min(place + 1, len(COUNTS) - 1)]
    for count in range(low, high, max(1, (high - low) // NEAR)):
        found[count] = _best_with(count, levels, mtbf)
    count = max(found, key=lambda count: found[count][0])
    return found[count][1], count


def _best_with(count: int, levels: TwoLevels, mtbf: float) -> tuple[float, float]:
    """The largest efficiency with this many intervals between copies, and its interval."""
    near = levels.near
    least = max(near.durable - near.blocked, levels.far.durable / count - near.blocked)
    least = max(least, optimum(near.blocked, mtbf) / 8.0, 1e-6 * mtbf)
    most = max(2.0 * least, mtbf)

    def lost(logarithm: float) -> float:
        return -efficiency_of_two(math.exp(logarithm), count, levels, mtbf)

    found = _least(lost, math.log(least * (1 + 1e-9)), math.log(most))
    return -lost(found), math.exp(found)


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum is least: golden section."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
        if high - low < 1e-6:
            break
    return min((low, left, right, high), key=function)


def lifespan(endurance: float, weekly: float) -> float:
    """Weeks until a drive has been written `endurance` bytes: equation 5.2; none where nothing is
    written."""
    return endurance / weekly if weekly > 0.0 else math.inf


def node_cost(node: float, drive: float, weeks: float, drive_weeks: float) -> float:
    """The price of a node with the drives that it wears out in `weeks`, at least one: equation
    5.3."""
    drives = 1 if drive_weeks >= weeks else math.ceil(weeks / drive_weeks)
    return node + drive * drives
