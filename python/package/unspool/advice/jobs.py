"""A job that keeps checkpoints, and what each way of keeping them costs: the model with the job's
figures, and the call of `Checkpointer` that it comes down to. Nothing is measured here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from .._unspool import automatic_rule
from ..errors import OptionError
from . import model
from .coding import Coded
from .model import FULL, Chain, Level, TwoLevels
from .places import Place
from .plans import LeftOut
from .power import Power
from .sizes import number

WEEK = 7 * 86_400.0

#: A codec that does nothing.
NONE = Coded("none", None, 1.0, float("inf"), float("inf"))

#: What "auto" takes is good enough this near to the best interval.
NEAR = 1.1


#: Rounds in which the interval and the length of a chain are looked for.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Prices:
    """What a node costs, in any currency.

    Attributes:
        node: its price without the drive.
        drive: that of a drive, of which one is bought whenever one is worn out.
        weeks: for how long the node is used.
        kwh: of a kilowatt hour.
    """

    node: float
    drive: float = 0.0
    weeks: float = 260.0
    kwh: float = 0.0

    def __post_init__(self) -> None:
        for name in ("node", "drive", "kwh"):
            number(name, getattr(self, name))
        number("weeks", self.weeks, 1.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """A job: the arguments of `unspool.advise`, in bytes and seconds, measured where not given.

    Attributes:
        mtbf_source: who says how often the job fails.
        copy: bytes per second at which an asynchronous save takes the arrays away.
        codecs: what may be done with the bytes.
    """

    checkpoint_bytes: int
    ranks: int
    mtbf: float
    mtbf_source: str
    disk: Place
    remote: Place | None = None
    healed: float = 0.9
    work: float = 7 * 86_400.0
    blocking: bool = False
    copy: float = 8e9
    restart: float = 60.0
    codecs: tuple[Coded, ...] = ()
    increments: float | None = None
    on_gpu: bool = False
    writers: int = 1
    endurance: float | None = None
    power: Power | None = None
    prices: Prices | None = None

    def place(self, name: str) -> Place:
        """The place that is called `"disk"` or `"remote"`; the disk where both are used."""
        return self.remote if name == "remote" and self.remote is not None else self.disk


@dataclass(frozen=True, slots=True)
class Way:
    """One way of keeping checkpoints.

    Attributes:
        coded: what is done with the bytes.
        increments: whether only what has changed is written.
        place: "disk", "remote", or "both": each on the disk, and some copied to the remote place.
    """

    coded: Coded
    increments: bool
    place: str

    @property
    def name(self) -> str:
        """What is done with the bytes, for people."""
        if not self.increments:
            return self.coded.name
        return "increments" if self.coded is NONE else f"{self.coded.name}, increments"


@dataclass(frozen=True, slots=True)
class Choice:
    """One way of keeping checkpoints, and what it is expected to cost.

    Attributes:
        name: what is done with the bytes: "none", "lossless", "lossless, increments", ...
        place: "disk", "remote", or "both": each on the disk, and each `copied`-th in the remote
            place as well.
        copied: how many checkpoints there are for each copy in the remote place, or None.
        interval: seconds of computing between two checkpoints, such that least is lost.
        efficiency: work over time, from 0 to 1.
        seconds: the expected time of the whole job.
        blocked: seconds for which the application waits in a checkpoint.
        durable: seconds from its beginning until a failure does not lose it.
        restart: seconds from a failure until the application computes again.
        stored_bytes: of one checkpoint of one rank, on average, those stored in full included.
        checkpoints: of the whole job, those that are made again included and those that a failure
            cuts off not.
        failures: of the whole job.
        weekly_bytes: what one rank writes to the disk in a week.
        drive_weeks: until the drive is worn out by its ranks, or None where its endurance is not
            known.
        work_per_price: hours of undisturbed work of a node for a unit of its price, or None.
        joules: of the whole job, or None.
        break_even: bytes per second of one rank: on a slower place this way is faster than to
            write the same without a codec. None without a codec.
        line: the call to copy, or None where no option of `Checkpointer` does that.
    """

    name: str
    place: str
    copied: int | None
    interval: float
    efficiency: float
    seconds: float
    blocked: float
    durable: float
    restart: float
    stored_bytes: float
    checkpoints: float
    failures: float
    weekly_bytes: float
    drive_weeks: float | None
    work_per_price: float | None
    joules: float | None
    break_even: float | None
    line: str | None


def ways_of(problem: Problem) -> Iterator[Way]:
    """What is compared: each codec with and without increments, in each place."""
    places = ("disk",) if problem.remote is None else ("remote", "both")
    for place in places:
        for coded in (NONE, *problem.codecs):
            yield Way(coded, False, place)
            if problem.increments is not None:
                yield Way(coded, True, place)


def choices_of(problem: Problem) -> tuple[tuple[Choice, ...], tuple[LeftOut, ...]]:
    """Every way that works, the best first, and those that do not."""
    found, left_out = [], []
    for way in ways_of(problem):
        try:
            found.append(_choice(way, problem))
        except OptionError as why:
            left_out.append(LeftOut(f"{way.name} ({way.place})", str(why)))
    return tuple(sorted(found, key=lambda one: -one.efficiency)), tuple(left_out)


def _level(way: Way, place: Place, problem: Problem, chain: Chain) -> Level:
    """The mean costs of checkpoints that go to one place."""
    return _level_of(way, place, problem, chain.written, chain.read)


def _level_of(way: Way, place: Place, problem: Problem, written: float, reads: float) -> Level:
    """The costs of a checkpoint that writes, and a restart that reads, so much of a full one."""
    count = float(problem.checkpoint_bytes)
    changed = count * written
    encode, commit = changed / way.coded.encode, changed / way.coded.ratio / place.write
    read = (count / way.coded.ratio / place.read + count / way.coded.decode) * reads
    restart = problem.restart + read
    if problem.blocking:
        return Level(encode + commit, encode + commit, restart)
    if problem.on_gpu and encode:
        # The launch of the encoder is the save.
        return Level(encode, encode + commit, restart)
    copy = changed / problem.copy
    return Level(copy, copy + encode + commit, restart)


def _choice(way: Way, problem: Problem) -> Choice:
    of = _of_two if way.place == "both" else _of_one
    if not way.increments or problem.increments is None:
        return of(way, problem, FULL).told()
    # The best chain depends on the interval, which depends on the chain.
    chain = model.chain_of(problem.increments, 0.0)
    for _ in range(ROUNDS):
        found = of(way, problem, chain)
        before, chain = (
            chain,
            model.chain_of(problem.increments, min(1.0, found.interval / problem.mtbf)),
        )
        if chain == before:
            break
    return found.told()


def _of_one(way: Way, problem: Problem, chain: Chain) -> _Run:
    place = problem.place(way.place)
    level = _level(way, place, problem, chain)
    levels = [_level_of(way, place, problem, *frame) for frame in chain.frames]
    interval = model.best_of_chain(levels, level, problem.mtbf)
    share = model.efficiency_of_chain(interval, levels, problem.mtbf)
    return _Run(way, problem, chain, level, level.restart, interval, None, share)


def _of_two(way: Way, problem: Problem, chain: Chain) -> _Run:
    assert problem.remote is not None
    near = _level(way, problem.disk, problem, chain)
    # The program does not wait for a copy, which is read from the disk, encoded already. It has the
    # whole checkpoint: a chain of increments stays where it is.
    remote = _level(way, problem.remote, problem, FULL)
    stored = problem.checkpoint_bytes / way.coded.ratio
    far = Level(0.0, stored / problem.remote.write, remote.restart)
    levels = TwoLevels(near, far, problem.healed)
    interval, count = model.best_pair(levels, problem.mtbf)
    share = model.efficiency_of_two(interval, count, levels, problem.mtbf)
    restart = problem.healed * near.restart + (1.0 - problem.healed) * remote.restart
    return _Run(way, problem, chain, near, restart, interval, count, share)


@dataclass(frozen=True, slots=True)
class _Run:
    """A whole job with checkpoints of one kind: `restart` is the mean over all failures."""

    way: Way
    problem: Problem
    chain: Chain
    level: Level
    restart: float
    interval: float
    copied: int | None
    share: float

    @property
    def seconds(self) -> float:
        return self.problem.work / self.share

    @property
    def failures(self) -> float:
        return self.seconds / self.problem.mtbf

    @property
    def checkpoints(self) -> float:
        """Those that end: each interval has one, and those that are computed again another."""
        level, mtbf = self.level, self.problem.mtbf
        if self.copied is None:
            work = max(model.worked(self.interval, level), 1e-9)
            return self.problem.work / work * math.exp((level.durable - level.blocked) / mtbf)
        running = self.seconds - self.failures * model.until(self.restart, mtbf)
        return running / max(self.interval + level.blocked, 1e-9)

    @property
    def changed(self) -> float:
        """Bytes of the arrays that a checkpoint of a rank encodes."""
        return self.problem.checkpoint_bytes * self.chain.written

    def told(self) -> Choice:
        """Everything that follows.

        Raises:
            OptionError: the job hardly gets on.
        """
        way, problem, level = self.way, self.problem, self.level
        if self.share <= 1e-6:
            raise OptionError(
                f"the job would hardly get on: it fails every {problem.mtbf:.3g} s, and a restart "
                f"takes {self.restart:.3g} s."
            )
        stored = self.changed / way.coded.ratio
        weekly = self.checkpoints * stored / self.seconds * WEEK if way.place != "remote" else 0.0
        weeks = None
        if problem.endurance is not None:
            weeks = model.lifespan(problem.endurance, weekly * problem.writers)
        joules = self._joules()
        return Choice(
            name=way.name,
            place=way.place,
            copied=self.copied,
            interval=self.interval,
            efficiency=self.share,
            seconds=self.seconds,
            blocked=level.blocked,
            durable=level.durable,
            restart=self.restart,
            stored_bytes=stored,
            checkpoints=self.checkpoints,
            failures=self.failures,
            weekly_bytes=weekly,
            drive_weeks=weeks,
            work_per_price=self._work_per_price(weeks, joules),
            joules=joules,
            break_even=_break_even(way, problem, self.failures / max(self.checkpoints, 1e-9)),
            line=self._line(),
        )

    def _joules(self) -> float | None:
        """Of all ranks, from the times of computing, saving, restarting and coding."""
        power, coded = self.problem.power, self.way.coded
        if power is None:
            return None
        saving = self.checkpoints * self.level.blocked
        restarting = self.failures * model.until(self.restart, self.problem.mtbf)
        coding = self.checkpoints * self.changed / coded.encode
        restored = self.failures * math.exp(-self.restart / self.problem.mtbf)
        coding += restored * self.problem.checkpoint_bytes * self.chain.read / coded.decode
        computing = self.seconds - saving - restarting
        return power.joules(computing, saving, restarting, coding) * self.problem.ranks

    def _work_per_price(self, drive_weeks: float | None, joules: float | None) -> float | None:
        """Equation 5.4 for one node, with the energy that it takes."""
        problem, prices = self.problem, self.problem.prices
        if prices is None:
            return None
        weeks = float("inf") if drive_weeks is None else drive_weeks
        price = model.node_cost(prices.node, prices.drive, prices.weeks, weeks)
        if joules is not None:
            watts = joules / self.seconds / problem.ranks * problem.writers
            price += watts / 1e3 * prices.weeks * 168.0 * prices.kwh
        return prices.weeks * 168.0 * self.share / price if price else None

    def _line(self) -> str | None:
        """The call; None where it is not known by which codec of a `Checkpointer` that is done."""
        way, problem = self.way, self.problem
        if way.coded.ratio != 1.0 and way.coded.codec is None:
            return None
        words = [f'"{_folder(problem.place(way.place), "FOLDER")}"', *self._when()]
        if way.coded.codec is not None:
            codec = way.coded.codec
            words.append(f'codec="{codec}"' if isinstance(codec, str) else f"codec={codec!r}")
        if way.increments:
            words.append("increments=True")
        if self.copied is not None and problem.remote is not None:
            words += self._copies(problem.remote, self.copied)
        return f"Checkpointer({', '.join(words)})"

    def _when(self) -> list[str]:
        """When a checkpoint is due: "auto", which goes by what saves turn out to cost, where it
        comes to about the same."""
        problem, level, interval = self.problem, self.level, self.interval
        share = automatic_rule(problem.ranks)[1]
        automatic = max(model.optimum(level.blocked, problem.mtbf), level.durable)
        if problem.blocking or not interval / NEAR <= automatic <= interval * NEAR:
            return [f'every="{duration(interval)}"']
        words = [f'mtbf="{duration(problem.mtbf)}"']
        lost = level.blocked / (automatic + level.blocked)
        if lost > share:
            words.append(f"share={min(0.99, math.ceil(lost * 110) / 100):g}")
        return [f"every=Auto({', '.join(words)})"]

    def _copies(self, place: Place, copied: int) -> list[str]:
        step = self.interval + self.level.blocked
        remote = f'"{_folder(place, "PLACE")}"'
        # As often as the place has time is what "auto" does, and the default.
        if (copied - 1) * step > self.problem.checkpoint_bytes / self.way.coded.ratio / place.write:
            return [f'copies=Copies({remote}, every="{duration(copied * step)}")']
        return [f"copies={remote}"]


def _folder(place: Place, unknown: str) -> str:
    return unknown if place.path is None else os.path.join(place.path, "run")


def _break_even(way: Way, problem: Problem, recoveries: float) -> float | None:
    if way.coded is NONE:
        return None
    place = problem.place(way.place)
    return model.break_even(
        way.coded.saved,
        way.coded.encode,
        way.coded.decode,
        recoveries,
        commit_waits=1.0 if problem.blocking else 0.0,
        encode_waits=1.0 if problem.blocking or problem.on_gpu else 0.0,
        reading=place.read / place.write,
    )


def duration(seconds: float) -> str:
    """As `Checkpointer` takes it, `"1h30min"` or `"2min15s"`; at most 1 % beside the figure."""
    if seconds >= 200 * 3600:
        return f"{min(round(seconds / 3600), 87_600)}h"
    if seconds >= 7200:
        return _two(round(seconds / 60), "h", "min")
    if seconds >= 60:
        return _two(round(seconds), "min", "s")
    return f"{seconds:.3g}s" if seconds >= 1 else f"{max(seconds * 1e3, 0.01):.2f}ms"


def _two(count: int, large: str, small: str) -> str:
    whole, part = divmod(count, 60)
    return f"{whole}{large}{part}{small}" if part else f"{whole}{large}"
